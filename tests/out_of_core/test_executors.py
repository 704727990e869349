"""The same forest on the workers of a Dask cluster, and clusters that cannot be used."""

import gc
import logging
import socket
import threading
import time

import numpy as np
import pytest
from chunked_events import NAMES, cut, write_files
from helpers import make_forest, model_bits, signal_bits

from excess._utils.errors import ArgumentError
from excess.io import EventFileError
from excess.out_of_core import Dask, DistributedError, EventFiles, _executors, fit_forest
from excess.out_of_core._executors import InMemory

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


def test_same_bits_of_chunks_on_dask(many_features, tmp_path, shared_client):
    options = {"n_estimators": 12, "alpha": 0.2}
    expected = make_forest(**options).fit(*many_features)
    assert not expected.used_features_.all()
    executor = Dask(shared_client, max_moved=700)
    assert executor.threads == [1, 1]
    fitted = fit_forest(make_forest(**options), cut(many_features, 6), executor=executor)
    assert model_bits(fitted, tmp_path) == model_bits(expected, tmp_path)
    assert signal_bits(fitted, many_features[0]) == signal_bits(expected, many_features[0])
    assert fitted.members_ == expected.members_


def test_same_bits_of_files_on_dask(events, nights, weights, tmp_path, shared_cluster):
    paths = write_files(events, tmp_path, night=nights, weight=weights)
    files = EventFiles(paths, NAMES, "on", chunk_rows=500, groups="night", sample_weight="weight")
    expected = make_forest().fit(*events, groups=nights, sample_weight=weights)
    fitted = fit_forest(make_forest(), files, executor=shared_cluster.address)
    assert model_bits(fitted, tmp_path) == model_bits(expected, tmp_path)
    assert signal_bits(fitted, events[0]) == signal_bits(expected, events[0])

    paths[2].write_bytes(paths[2].read_bytes()[:-200])
    with pytest.raises(EventFileError, match=r"^on a Dask worker: .*2\.parquet: "):
        fit_forest(make_forest(), files, executor=shared_cluster.address)


def test_errors_of_tasks_are_raised_once_and_keep_nothing(shared_client):
    executor, ticks = Dask(shared_client), []

    def fail(events):
        raise TimeoutError(f"no answer for {len(events)} events")

    assert executor.run(divmod, [(3, 2), (9, 2)], ticks.append) == [(1, 1), (4, 1)]
    assert sum(ticks) == 2
    parts = executor.scatter([InMemory(np.zeros(1_000_000))])
    with pytest.raises(TimeoutError, match="no answer for"):
        executor.map(fail, parts)
    del parts
    end = time.monotonic() + 20
    while shared_client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > 0:
        assert time.monotonic() < end, "events are still on the worker"
        gc.collect()
        time.sleep(0.05)


@pytest.fixture
def listen():
    """A function that returns the address of a server that is no scheduler, which sends some bytes or none."""
    opened = []

    def start(answer):
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
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"

    yield start
    for each in opened:
        each.close()


@pytest.mark.parametrize("address", ["nonsense", "tcp://10.0.0.1", "http://10.0.0.1:8786"])
def test_texts_that_are_no_address(address):
    with pytest.raises(ArgumentError, match=f"executor '{address}'"):
        Dask(address)


def test_servers_that_are_no_scheduler(listen, shared_client):
    for address, reason in {
        "tcp://127.0.0.1:9": "(Connection refused|no answer)",  # the latter on a busy machine
        "tls://127.0.0.1:9": "TLS",
        listen(b""): "no answer within 0.5 seconds",
        listen(b"HTTP/1.1 400\r\n\r\n"): "another server answers",
        next(iter(shared_client.nthreads())): "a Dask worker answers",
    }.items():
        with pytest.raises(DistributedError, match=rf"'{address}' \(.*{reason}.*\)"):
            Dask(address, patience=0.5)


def test_arguments_that_are_rejected(shared_client, monkeypatch):
    with pytest.raises(ValueError, match="max_moved"):
        Dask(shared_client, max_moved=-1)
    with pytest.raises(TypeError, match=r"executor must be .*got int"):
        Dask(7)
    monkeypatch.setattr(type(shared_client), "asynchronous", True)
    with pytest.raises(ArgumentError, match="executor"):
        Dask(shared_client)


def test_no_scheduler_is_connected_to_by_default(monkeypatch):
    """Not even that of the configuration of Dask: a scheduler can execute code in its clients."""
    monkeypatch.setattr(distributed, "Client", lambda *arguments, **settings: pytest.fail("connected"))
    with dask.config.set({"scheduler-address": "tcp://127.0.0.1:9"}), _executors.open_executor(None, 1) as opened:
        assert not opened.remote


def test_silent_loggers_stay_silent(monkeypatch):
    for name, level in {"distributed": logging.CRITICAL + 1, "distributed.client": logging.WARNING}.items():
        monkeypatch.setattr(logging.getLogger(name), "level", level)
    with pytest.raises(DistributedError):
        Dask("tcp://127.0.0.1:9", patience=0.1)
    assert not logging.getLogger("distributed.client").isEnabledFor(logging.CRITICAL)


def test_another_version_is_an_error(shared_client, monkeypatch):
    executor = Dask(shared_client)
    with monkeypatch.context() as patch:
        patch.setattr(_executors, "__version__", "0.0.1")  # as of a worker that has joined since
        with pytest.raises(DistributedError, match=r"the caller 0\.0\.1"):
            executor.run(divmod, [(3, 2)])
    monkeypatch.setattr("distributed.versions.get_versions", lambda packages: {"packages": {"excess": "0.0.1"}})
    with pytest.raises(DistributedError, match=r"here it is 0\.0\.1"):
        Dask(shared_client)


def test_no_running_workers_are_an_error(monkeypatch, caplog):
    monkeypatch.setattr(_executors, "_POLL", 0.1)
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "memory_limit": "20MiB"}
    with distributed.LocalCluster(n_workers=0, **options) as cluster, distributed.Client(cluster) as client:
        executor = Dask(client, patience=0.5)
        with pytest.raises(DistributedError, match=r"no running workers, and 0 paused.*waited for 0\.5 seconds"):
            executor.run(divmod, [(3, 2)])
        assert "no running workers" in caplog.text
        cluster.scale(1)
        end = time.monotonic() + 20
        while not client.nthreads() or client.sync(client.scheduler.ncores_running):  # until it is paused
            assert time.monotonic() < end
            time.sleep(0.05)
        with pytest.raises(DistributedError, match="no running workers, and 1 paused"):
            executor.run(divmod, [(3, 2)])


def test_workers_without_progress_are_an_error(shared_client, monkeypatch):
    monkeypatch.setattr(_executors, "_POLL", 0.1)
    executor = Dask(shared_client, patience=0.6)
    assert executor.run(time.sleep, [(4.0,)]) == [None]  # a task may take any time
    monkeypatch.setattr(_executors, "_STANDSTILL", 1)
    monkeypatch.setattr(_executors, "_look", lambda dask_scheduler: (2, 2, 0, 7))
    with pytest.raises(DistributedError, match=r"no progress.*waited for 0\.6 seconds"):
        executor.run(time.sleep, [(3,)])
