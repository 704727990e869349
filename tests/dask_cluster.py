"""A Dask cluster for tests: scheduler and workers as processes on loopback.

Tests that change or kill the cluster have one of their own (``cluster``); the others share one (``shared_cluster``).
"""

import json
import os
import subprocess
import sys
import time

import pytest

LOOPBACK = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")


class Cluster:
    """A scheduler and workers in processes of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", self.file)
        self.workers = []
        end = time.monotonic() + 60
        while not self.file.exists() or not self.file.read_text():
            assert time.monotonic() < end, "the scheduler did not start"
            time.sleep(0.02)
        self.address = json.loads(self.file.read_text())["address"]

    def _start(self, what, *options):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *map(str, options), *LOOPBACK]
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NUMBA_NUM_THREADS": "1"})

    def add_workers(self, n, n_threads=1):
        options = (
            "--scheduler-file",
            self.file,
            "--no-nanny",
            "--nthreads",
            n_threads,
            "--local-directory",
            self.folder,
        )
        self.workers += [self._start("worker", *options) for _ in range(n)]

    def stop(self):
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait(30)


@pytest.fixture
def cluster(tmp_path):
    """A scheduler without workers, for one test."""
    pytest.importorskip("distributed")
    (tmp_path / "dask").mkdir()
    running = Cluster(tmp_path / "dask")
    yield running
    running.stop()


@pytest.fixture
def client(cluster):
    """A client of ``cluster``."""
    yield from _connect(cluster)


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory):
    """A scheduler and two workers with one thread each, for all tests that leave them as they are."""
    pytest.importorskip("distributed")
    running = Cluster(tmp_path_factory.mktemp("dask"))
    running.add_workers(2)
    yield running
    running.stop()


@pytest.fixture
def shared_client(shared_cluster):
    """A client of ``shared_cluster``; when it is closed, the scheduler forgets its tasks."""
    for connected in _connect(shared_cluster):
        connected.wait_for_workers(2, timeout=60)
        yield connected


def _connect(running):
    from distributed import Client

    with Client(running.address, set_as_default=False, timeout=5) as connected:
        yield connected
