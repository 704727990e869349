"""Processes of a Dask cluster that are killed, frozen or added during the work."""

import os
import signal
import threading
import time

import pytest
from chunked_events import NAMES, cut, write_files
from helpers import make_forest, model_bits

from excess.out_of_core import Dask, DistributedError, EventFiles, fit_forest

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.campaign, pytest.mark.filterwarnings("ignore")]  # of Dask about lost connections


def work(number, seconds=0.0):
    time.sleep(seconds)
    return number, distributed.get_worker().address


def die():
    os.kill(os.getpid(), signal.SIGKILL)


FIXED = {"splitter": "best", "min_samples_leaf": 20, "max_features": "sqrt"}
"""One tree configuration: its trees are grown on the workers, where a choice among several fits into memory."""


def workers_of(results):
    assert [number for number, _ in results] == list(range(len(results)))
    return {address for _, address in results}


class FaultyDask(Dask):
    """Sends a signal to a process shortly after a method was called for the nth time."""

    def __init__(self, client, process, phase, number, sent=signal.SIGKILL, delay=0.01):
        super().__init__(client, max_moved=300, patience=3)
        self.process, self.phase, self.left, self.sent, self.delay = process, phase, number, sent, delay

    def _begin(self, phase):
        self.left -= phase == self.phase
        if self.left == 0 and self.process.poll() is None and phase == self.phase:
            threading.Timer(self.delay, self.process.send_signal, [self.sent]).start()

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


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize(
    ("source", "phase", "number"), [("files", "reduce", 3), ("chunks", "shuffle", 1), ("files", "map", 1)]
)
def test_a_killed_or_frozen_worker_changes_nothing(events, tmp_path, cluster, client, source, phase, number, sent):
    cluster.add_workers(2)
    client.wait_for_workers(2, timeout=60)
    chunks = EventFiles(write_files(events, tmp_path), NAMES, "on") if source == "files" else cut(events, 6)
    expected = model_bits(make_forest(**FIXED).fit(*events), tmp_path)
    executor = FaultyDask(client, cluster.workers[0], phase, number, sent)
    assert model_bits(fit_forest(make_forest(**FIXED), chunks, executor=executor), tmp_path) == expected
    assert executor.left <= 0
    assert len(client.nthreads()) == 1


@pytest.mark.parametrize(("phase", "number"), [("create_parts", 1), ("reduce", 2), ("shuffle", 1), ("map", 1)])
def test_a_lost_scheduler_is_an_error(events, tmp_path, cluster, client, phase, number):
    cluster.add_workers(1)
    client.wait_for_workers(1, timeout=60)
    executor = FaultyDask(client, cluster.scheduler, phase, number, delay=0)
    with pytest.raises(DistributedError, match=f"scheduler at {cluster.address} was lost; nothing was written"):
        fit_forest(make_forest(**FIXED), EventFiles(write_files(events, tmp_path), NAMES, "on"), executor=executor)


def test_a_frozen_scheduler_is_an_error(cluster):
    cluster.add_workers(1)
    executor = Dask(cluster.address, patience=5)
    assert len(executor.run(work, [(0,)])) == 1
    executor._patience = 2
    cluster.scheduler.send_signal(signal.SIGSTOP)
    with pytest.raises(DistributedError, match="has not answered for 2 seconds"):
        executor.run(work, [(0,)])
    executor.close()
    with pytest.raises(DistributedError, match="no Dask scheduler answers at"):
        Dask(cluster.address, patience=0.5)


def test_a_frozen_worker_is_replaced(cluster, client):
    cluster.add_workers(2)
    client.wait_for_workers(2, timeout=60)
    cluster.workers[0].send_signal(signal.SIGSTOP)
    executor = Dask(client, patience=3)  # does not wait for the version of the worker
    assert len(workers_of(executor.run(work, [(0, 0.1), (1, 0.1), (2, 0.1)]))) == 1
    cluster.workers[1].send_signal(signal.SIGSTOP)
    with pytest.raises(DistributedError, match="no running workers, and 0 paused"):
        executor.run(work, [(0, 60.0)])


def test_workers_that_die_at_every_attempt_are_an_error(cluster, client):
    cluster.add_workers(5)
    client.wait_for_workers(5, timeout=60)
    with pytest.raises(DistributedError, match=r"lost its workers .*memory"):
        Dask(client, patience=20).run(die, [()])


def test_workers_join_during_the_work(events, tmp_path, cluster, client):
    cluster.add_workers(1)
    client.wait_for_workers(1, timeout=60)
    executor = Dask(client, max_moved=500)
    files = EventFiles(write_files(events, tmp_path), NAMES, "on", chunk_rows=500)
    expected = model_bits(make_forest(**FIXED).fit(*events), tmp_path)
    assert model_bits(fit_forest(make_forest(**FIXED), files, executor=executor), tmp_path) == expected
    cluster.add_workers(1, n_threads=3)
    assert len(workers_of(executor.run(work, [(number, 0.5) for number in range(30)]))) == 2
    assert sorted(executor.threads) == [1, 3]
    assert model_bits(fit_forest(make_forest(**FIXED), files, executor=executor), tmp_path) == expected
    cluster.add_workers(1, version="0.0.1")
    with pytest.raises(DistributedError, match=r"excess 0\.0\.1, the caller"):
        executor.run(work, [(number, 0.5) for number in range(40)])
