"""A Dask cluster for tests: scheduler and workers as processes on loopback.

Tests that change or kill the cluster have one of their own (``cluster``); the others share one (``shared_cluster``).
The processes are forked from a server that has imported everything, which saves seconds for each of them.
"""

import importlib
import json
import multiprocessing
import os
import sys
import time

import pytest

LOOPBACK = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
ENDING = ("--idle-timeout", "1800 s")  # for a scheduler whose test process was killed; its workers end with it
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    ["distributed", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker", "excess.out_of_core"]
)


class ServerProcess:
    """A scheduler or a worker, with what tests ask of a process."""

    def __init__(self, what, options, log, version=None, config=None):
        self._process = FORKSERVER.Process(target=_serve, args=(what, options, log, version, config), daemon=True)
        self._process.start()

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout):
        self._process.join(timeout)
        return self._process.exitcode

    def send_signal(self, number):
        os.kill(self._process.pid, number)

    def kill(self):
        self._process.kill()


def _serve(what, options, log, version, config):
    with log.open("a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    if version is not None:
        importlib.import_module("excess.out_of_core._executors").__version__ = version
    importlib.import_module("dask").config.set(config or {})
    importlib.import_module(f"distributed.cli.dask_{what}").main(options, standalone_mode=False)


class Cluster:
    """A scheduler and workers in processes of their own."""

    def __init__(self, folder, config=None):
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", self.file, *ENDING, config=config)
        self.workers = []
        end = time.monotonic() + 60
        while not self.file.exists() or not self.file.read_text():
            assert time.monotonic() < end, "the scheduler did not start"
            time.sleep(0.02)
        self.address = json.loads(self.file.read_text())["address"]

    def _start(self, what, *options, **settings):
        return ServerProcess(what, [*map(str, options), *LOOPBACK], self.folder / "log", **settings)

    def add_workers(self, n, n_threads=1, version=None):
        options = (
            "--scheduler-file",
            self.file,
            "--no-nanny",
            "--nthreads",
            n_threads,
            "--local-directory",
            self.folder,
        )
        self.workers += [self._start("worker", *options, version=version) for _ in range(n)]

    def stop(self):
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait(30)


@pytest.fixture
def cluster(tmp_path):
    """A scheduler without workers, for one test."""
    pytest.importorskip("distributed")
    (tmp_path / "dask").mkdir()
    running = Cluster(tmp_path / "dask", {"distributed.scheduler.worker-ttl": "2 s"})
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
