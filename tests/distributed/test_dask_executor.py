"""The same forest on the workers of a Dask cluster, also when some of them are lost."""

import gc
import signal
import threading
import time

import numpy as np
import pytest
from chunked_events import NAMES, cut, write_files
from helpers import make_forest, model_bits, signal_bits

from excess.distributed import Dask, DistributedError, EventFiles, fit_forest
from excess.distributed.parts import InMemory
from excess.events import EventFileError

pytest.importorskip("distributed")


def test_parameters_of_dask_that_are_refused():
    for address in ("nonsense", "tcp://10.0.0.1", "http://10.0.0.1:8786"):
        with pytest.raises(ValueError, match=f"'{address}' is no address of a Dask scheduler"):
            Dask(address)
    with pytest.raises(DistributedError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        Dask("tcp://127.0.0.1:9", patience=0.5)
    with pytest.raises(ValueError, match="max_moved must be at least 0"):
        Dask("tcp://127.0.0.1:9", max_moved=-1)


def test_same_bits_on_dask(events, tmp_path, shared_cluster, shared_client):
    files = EventFiles(write_files(events, tmp_path), NAMES, "on", chunk_rows=500)
    expected = make_forest().fit(*events)
    executor = Dask(shared_client, max_moved=500)
    for chunks, given in ((cut(events, 17), executor), (files, shared_cluster.address)):
        fitted = fit_forest(make_forest(), chunks, executor=given)
        assert model_bits(fitted, tmp_path) == model_bits(expected, tmp_path)
        assert signal_bits(fitted, events[0]) == signal_bits(expected, events[0])
    assert shared_client.status == "running"

    (tmp_path / "2.parquet").write_bytes((tmp_path / "2.parquet").read_bytes()[:-200])
    with pytest.raises(EventFileError, match=r"^on a Dask worker: .*2\.parquet: .*damaged"):
        fit_forest(make_forest(), files, executor=shared_client)


def test_another_version_on_workers_is_refused(shared_client, monkeypatch):
    monkeypatch.setattr("excess.distributed.dask_workers.__version__", "0.0.1")
    with pytest.raises(
        DistributedError, match=r"Dask scheduler at .* has excess .*, here it is 0\.0\.1; install the same"
    ):
        Dask(shared_client)


def test_errors_of_tasks_are_raised_once_and_keep_nothing(shared_client):
    executor = Dask(shared_client)

    def fail(events):
        raise TimeoutError(f"no answer for {len(events)} events")

    parts = executor.scatter([InMemory(np.zeros(1_000_000))])
    with pytest.raises(TimeoutError, match="no answer for"):  # no error of the network, so it is not tried again
        executor.map(fail, parts)
    del parts
    end = time.monotonic() + 20
    while shared_client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > 0:
        assert time.monotonic() < end, "events are still on the worker"
        gc.collect()
        time.sleep(0.05)


@pytest.mark.slow
def test_same_bits_on_one_two_and_four_dask_workers(events, tmp_path, cluster, client):
    files = EventFiles(write_files(events, tmp_path), NAMES, "on", chunk_rows=500)
    expected = model_bits(make_forest().fit(*events), tmp_path)
    for n_new, n_workers in ((1, 1), (1, 2), (2, 4)):
        cluster.add_workers(n_new)
        client.wait_for_workers(n_workers, timeout=60)
        assert len(client.nthreads()) == n_workers
        executor = Dask(client, max_moved=500)
        assert model_bits(fit_forest(make_forest(), files, executor=executor), tmp_path) == expected
    assert model_bits(fit_forest(make_forest(), cut(events, 17), executor=executor), tmp_path) == expected


@pytest.mark.slow
def test_workers_with_several_threads(events, tmp_path, cluster, client):
    cluster.add_workers(1, n_threads=3)
    client.wait_for_workers(1, timeout=60)
    executor = Dask(client, max_moved=300)
    assert (executor.n_threads, executor.threads_per_worker) == (3, 3)
    chunked = fit_forest(make_forest(), EventFiles(write_files(events, tmp_path), NAMES, "on"), executor=executor)
    assert model_bits(chunked, tmp_path) == model_bits(make_forest().fit(*events), tmp_path)


class KillingDask(Dask):
    """Kills a process shortly after a method was called for the nth time."""

    def __init__(self, client, process, phase, number, delay=0.01):
        super().__init__(client, max_moved=300, patience=30)
        self.process, self.phase, self.left, self.delay = process, phase, number, delay

    def _begin(self, phase):
        self.left -= phase == self.phase
        if self.left == 0 and self.process.poll() is None and phase == self.phase:
            threading.Timer(self.delay, self.process.send_signal, [signal.SIGKILL]).start()

    def create_parts(self, *arguments):
        self._begin("create_parts")
        return super().create_parts(*arguments)

    def reduce(self, reduction, parts):
        self._begin("reduce")
        return super().reduce(reduction, parts)

    def shuffle(self, *arguments):
        self._begin("shuffle")
        yield from super().shuffle(*arguments)

    def map(self, *arguments):
        self._begin("map")
        return super().map(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "phase", "number"),
    [("files", "reduce", 3), ("pairs", "reduce", 3), ("files", "shuffle", 1), ("pairs", "shuffle", 1)],
)
def test_a_killed_worker_changes_nothing(events, tmp_path, cluster, client, source, phase, number):
    cluster.add_workers(2)
    client.wait_for_workers(2, timeout=60)
    chunks = EventFiles(write_files(events, tmp_path), NAMES, "on") if source == "files" else cut(events, 6)
    expected = model_bits(make_forest().fit(*events), tmp_path)
    executor = KillingDask(client, cluster.workers[0], phase, number)
    assert model_bits(fit_forest(make_forest(), chunks, executor=executor), tmp_path) == expected
    assert executor.left <= 0
    assert cluster.workers[0].wait(10) == -signal.SIGKILL
    assert len(client.nthreads()) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Dask says about a connection that is gone
@pytest.mark.parametrize(("phase", "number"), [("create_parts", 1), ("reduce", 2), ("shuffle", 1), ("map", 1)])
def test_a_lost_scheduler_is_a_clear_error(events, tmp_path, cluster, client, phase, number):
    cluster.add_workers(1)
    client.wait_for_workers(1, timeout=60)
    executor = KillingDask(client, cluster.scheduler, phase, number, delay=0)
    with pytest.raises(DistributedError, match=f"scheduler at {cluster.address} was lost; nothing was written"):
        fit_forest(make_forest(), EventFiles(write_files(events, tmp_path), NAMES, "on"), executor=executor)
