"""Faults of a Dask cluster: every wait has an end and a sentence, slow work is none of them."""

import errno
import logging
import os
import signal
import socket
import threading
import time

import pytest

from excess.distributed import Dask, DistributedError
from excess.distributed.dask_connection import _reason
from excess.distributed.parts import InMemory

distributed = pytest.importorskip("distributed")


@pytest.fixture
def listening():
    """A function that returns the port of something that is no scheduler, which sends some bytes or none."""
    opened = []

    def listen(answer):
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)

        def serve():
            while True:
                try:
                    opened.append(server.accept()[0])
                    opened[-1].sendall(answer)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]

    yield listen
    for each in opened:
        each.close()


def work(number, seconds=0.0):
    time.sleep(seconds)
    return number, distributed.get_worker().address


def work_with_another(number, folder):
    """Return when another worker has done so, too."""
    (folder / str(os.getpid())).touch()
    until(lambda: len(list(folder.glob("[0-9]*"))) == 2)
    return work(number)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def workers_of(results):
    assert [number for number, _ in results] == list(range(len(results)))
    return {address for _, address in results}


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"", "no answer within 0.5 seconds"), (b"HTTP/1.1 400\r\n\r\n", "what answers is something else")],
)
def test_what_is_no_scheduler_does_not_hold_anything_up(listening, answer, reason):
    with pytest.raises(
        DistributedError, match=rf"no Dask scheduler answers at 'tcp://.*' \({reason}\); start one with"
    ):
        Dask(f"tcp://127.0.0.1:{listening(answer)}", patience=0.5)


def test_tls_without_settings_says_which_are_needed(tmp_path):
    import dask

    absent = str(tmp_path / "absent.pem")
    with pytest.raises(DistributedError, match=r"'tls://127\.0\.0\.1:9' needs TLS settings: set distributed"):
        Dask("tls://127.0.0.1:9")
    with (
        dask.config.set({"distributed.comm.tls.ca-file": absent, "distributed.comm.tls.client.cert": absent}),
        pytest.raises(
            DistributedError,
            match=r"TLS settings of Dask cannot be used \(.*No such file.*\); check distributed.comm.tls",
        ),
    ):
        Dask("tls://127.0.0.1:9")


def test_loggers_of_dask_that_are_silent_stay_so(monkeypatch):
    for name, level in {"distributed": logging.CRITICAL + 1, "distributed.client": logging.WARNING}.items():
        monkeypatch.setattr(logging.getLogger(name), "level", level)
    with pytest.raises(DistributedError, match="no Dask scheduler answers"):
        Dask("tcp://127.0.0.1:9", patience=0.5)
    assert not logging.getLogger("distributed.client").isEnabledFor(logging.CRITICAL)


def test_a_refused_connection_is_named_behind_a_timeout():
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    late = TimeoutError("nothing was heard")
    late.__cause__ = OSError("Timed out trying to connect")
    late.__cause__.__cause__ = refused
    assert _reason(late, 2.0) == "Connection refused"
    assert _reason(TimeoutError(), 2.0) == "no answer within 2 seconds"


def test_a_worker_in_place_of_the_scheduler_is_refused(shared_client):
    address = next(iter(shared_client.nthreads()))
    with pytest.raises(
        DistributedError, match=r"\(a Dask worker is there\); start one with 'dask scheduler', or check"
    ):
        Dask(address)


def test_an_asynchronous_client_is_refused(shared_client, monkeypatch):
    monkeypatch.setattr(type(shared_client), "asynchronous", True)
    with pytest.raises(ValueError, match="executor must be a client that waits for results"):
        Dask(shared_client)


@pytest.mark.slow
def test_a_worker_lost_while_it_tells_its_version_is_not_waited_for(cluster, client):
    cluster.add_workers(2)
    client.wait_for_workers(2, timeout=60)
    cluster.workers[0].send_signal(signal.SIGSTOP)
    threading.Timer(1, cluster.workers[0].kill).start()
    executor = Dask(client, patience=30)
    assert len(executor.threads()) == 1
    assert len(workers_of(executor.run(work, [(0,), (1,)]))) == 1


@pytest.mark.slow
def test_workers_that_join_later_take_part_if_they_have_the_same_version(cluster, client, caplog, tmp_path):
    cluster.add_workers(1)
    client.wait_for_workers(1, timeout=60)
    executor = Dask(client, patience=2)
    first = set(executor.threads())

    cluster.add_workers(1, version="0.0.1")
    client.wait_for_workers(2, timeout=60)
    assert workers_of(executor.run(work, [(number, 0.1) for number in range(20)])) == first
    until(lambda: executor.threads().keys() == first and "is left out: it has excess 0.0.1, here" in caplog.text)
    with pytest.raises(DistributedError, match=r"the Dask worker at .* has excess 0\.0\.1, here it is .*; install the"):
        Dask(client)

    parts = executor.scatter([InMemory(number) for number in range(4)])
    cluster.add_workers(1)  # while tasks run, which it takes over
    assert len(workers_of(executor.run(work_with_another, [(number, tmp_path) for number in range(8)]))) == 2
    cluster.workers[0].kill()  # parts are made again by the worker that has joined
    until(lambda: len(executor.threads()) == 1)
    assert first.isdisjoint(workers_of(executor.run(work, [(0,)])))
    assert executor.collect(parts) == [0, 1, 2, 3]
    cluster.workers[2].kill()
    with pytest.raises(
        DistributedError,
        match=r"has had no workers that can be used for 2 seconds: the worker at .* has excess 0\.0\.1",
    ):
        executor.run(work, [(0,)])


@pytest.mark.slow
def test_workers_that_die_at_every_attempt_are_given_up(cluster, client):
    cluster.add_workers(5)
    client.wait_for_workers(5, timeout=60)
    client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
    with pytest.raises(DistributedError, match=r"were lost 5 times \(.*\); do they have enough memory\?"):
        Dask(client, patience=20).run(die, [()])


@pytest.mark.slow
def test_workers_at_their_memory_limit_are_named(cluster, client, caplog):
    cluster.add_workers(1, memory="20MiB")
    client.wait_for_workers(1, timeout=60)
    until(lambda: not client.sync(client.scheduler.ncores_running))
    executor = Dask(client, patience=2)
    message = (
        rf"no task has moved on the workers of the Dask scheduler at {client.scheduler.address} for 2 seconds: all are "
        r"paused at their memory limit, such as the one at tcp://.* with [\d,]+ of 20 MiB; give them more memory, or"
    )
    with pytest.raises(DistributedError, match=message):
        executor.run(work, [(0,)])
    assert "No task has moved on the workers" in caplog.text  # before the end, too
    assert "start more workers; waiting for up to 2 seconds" in caplog.text

    cluster.add_workers(1)  # one that is not paused does the work
    client.wait_for_workers(1, timeout=60)
    assert len(workers_of(executor.run(work, [(number,) for number in range(4)]))) == 1


@pytest.mark.slow
def test_slow_tasks_are_waited_for_and_a_worker_that_stands_still_is_not(cluster, client, monkeypatch, caplog):
    monkeypatch.setattr("excess.distributed.dask_watch._SILENT", 2)
    monkeypatch.setattr("excess.distributed.dask_executor._POLL", 0.3)
    cluster.add_workers(1)
    client.wait_for_workers(1, timeout=60)
    executor = Dask(client, patience=1.2)
    ticks = []
    assert len(workers_of(executor.run(work, [(0, 2.5)], ticks.append))) == 1
    assert ticks == [1]
    assert "have tasks of others" not in caplog.text
    other = client.submit(time.sleep, 3)
    assert len(workers_of(executor.run(work, [(0,)]))) == 1
    assert other.done()
    assert caplog.text.count("have tasks of others; waiting") == 1

    threading.Timer(0.5, cluster.workers[0].send_signal, [signal.SIGSTOP]).start()
    with pytest.raises(DistributedError, match=r"for 1.2 seconds: the one at tcp://.* does not answer; restart it"):
        executor.run(work, [(0, 60.0)])
    assert "has not been heard of for" in caplog.text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Dask says about a connection that is gone
def test_no_workers_and_no_scheduler_have_an_end(cluster, client):
    executor = Dask(cluster.address, patience=2)
    with pytest.raises(DistributedError, match="has had no workers for 2 seconds; start some with 'dask worker'"):
        executor.run(work, [(0,)])
    cluster.scheduler.send_signal(signal.SIGSTOP)
    with pytest.raises(DistributedError, match="has not answered for 2 seconds; start it again, or wait until it has"):
        executor.run(work, [(0,)])
    executor.close()
    with pytest.raises(DistributedError, match="no Dask scheduler answers at"):
        Dask(cluster.address, patience=0.5)
