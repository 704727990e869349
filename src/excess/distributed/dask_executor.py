"""The executor on the workers of a Dask cluster: parts stay on workers; totals and the events of small nodes are sent.

Every task depends only on parts and on its arguments, and parts can be created again, so that a lost worker costs time
but does not change the result. No wait is without an end: questions to the scheduler have one in `Connection`, tasks in
`Watch`, and only the `Workers` that have the version of this process get tasks.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for_all
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, TypeVar

from excess._core.checks import as_counts, as_int, as_scalar
from excess.distributed.dask_connection import Connection, first_line
from excess.distributed.dask_watch import StandstillError, Watch
from excess.distributed.dask_workers import Workers
from excess.distributed.executors import (
    Arguments,
    DistributedError,
    Executor,
    Reduction,
    Shuffle,
    add_all,
    concatenate_rows,
    ignore_tick,
)
from excess.distributed.parts import Part
from excess.estimators._forest.ensemble import Tick

__all__ = ["Dask"]

T = TypeVar("T")
_logger = logging.getLogger("excess")

_ATTEMPTS = 5
_LOST = ("cancelled", "lost")
"""States of a future whose data was on a worker that is gone."""
_PATIENCE = 60.0
"""Seconds without any progress before a fit is given up."""
_POLL = 1.0
"""Seconds between two looks at tasks."""


class _RemotePart:
    """A part on a worker, with the function that submits the task that creates it, from other parts or from none."""

    def __init__(self, submit: Callable[[], Any], sources: Sequence[_RemotePart] = ()) -> None:
        self._submit, self._sources = submit, sources
        self.future = submit()

    def restore(self) -> None:
        """Create the part again if it is not there."""
        if self.future.status != "finished":
            for source in self._sources:
                source.restore()
            self.future = self._submit()


class Dask(Executor):
    """Workers of a Dask cluster.

    Parameters
    ----------
    client : dask.distributed.Client or str
        The client, or the address of the scheduler, such as ``"tcp://10.0.0.1:8786"``.
    max_moved : int, default=65_536
        The largest node (in events, bootstrap weights included) whose events are moved to one worker; larger nodes are
        searched by histograms.
    patience : float, default=60.0
        Seconds without any worker, any answer of the scheduler, or any progress before the fit is given up. A task may
        take any time, as long as its worker is heard of: it may be silent for five times as long.

    Raises
    ------
    DistributedError
        If the scheduler cannot be reached, or is lost, or has workers with another version.
    """

    remote = True

    def __init__(self, client: Any, *, max_moved: int = 65_536, patience: float = _PATIENCE) -> None:
        self.max_moved = as_int("max_moved", max_moved, minimum=0)
        self._patience = as_scalar("patience", as_counts("patience", patience))
        self._connection = Connection(client, self._patience)
        self._client, self._distributed = self._connection.client, self._connection.distributed
        self._address = self._connection.address
        try:
            self._workers = self._retry(lambda: Workers(self._connection))
            if not self._workers.threads():
                _logger.warning("The Dask scheduler at %s has no workers yet; waiting for some", self._address)
        except BaseException:
            self.close()
            raise

    @property
    def n_threads(self) -> int:  # type: ignore[override]
        """Threads of all workers."""
        return max(1, sum(self.threads().values()))

    @property
    def threads_per_worker(self) -> int:  # type: ignore[override]
        """Threads of the worker that has most."""
        return max(self.threads().values(), default=1)

    def threads(self) -> dict[str, int]:
        """Return the threads of each worker that takes part, by its address."""
        return self._retry(self._workers.threads)

    def close(self) -> None:
        """Close the client, if it was opened here."""
        self._connection.close()

    def run(
        self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick, shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Call a function with each tuple of arguments, on workers."""
        progress = _Progress(tick)

        def attempt() -> list[Any]:
            sent = [self._send(value) for value in shared]
            return self._gather([self._submit(function, *sent, *own) for own in arguments], progress)

        return self._retry(attempt)

    def create_parts(
        self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick
    ) -> list[_RemotePart]:
        """Leave the results of a function for each tuple of arguments on the workers."""
        return self._create([partial(self._submit, function, *own) for own in arguments], [()] * len(arguments), tick)

    def scatter(self, parts: Sequence[Part]) -> list[_RemotePart]:
        """Send parts to workers; the scheduler keeps a copy, in case that a worker is lost."""

        def send(part: Part) -> Any:
            return self._send(part.load())

        return self._retry(lambda: [_RemotePart(partial(send, part)) for part in parts])

    def map(self, function: Callable[[Any], Any], parts: Sequence[_RemotePart]) -> list[_RemotePart]:
        """Leave the results of a function for each part on the worker of the part."""
        sent: Any = None

        def submit(part: _RemotePart) -> Any:
            nonlocal sent  # one copy for all parts; sent again if it is lost when a part is created again
            if sent is None or sent.status in (*_LOST, "error"):
                sent = self._send(function)
            return self._submit(operator.call, sent, part.future)

        return self._create([partial(submit, part) for part in parts], [(part,) for part in parts])

    def reduce(self, reduction: Reduction, parts: Sequence[_RemotePart]) -> Any:
        """Return the total over parts: first on each worker, then pairwise between workers."""

        def attempt() -> Any:
            sent = self._send(reduction)
            totals = []
            for worker, futures in self._group_by_thread(parts):
                totals.append(self._submit(add_all, sent, futures, worker=worker))
            while len(totals) > 1:
                pairs = [totals[i : i + 2] for i in range(0, len(totals), 2)]
                totals = [self._submit(_merge, sent, pair) for pair in pairs]
            return self._gather(totals)[0]

        return self._retry(attempt, parts)

    def collect(self, parts: Sequence[_RemotePart]) -> list[Any]:
        """Return the events of all parts to this process, in order."""
        return self._retry(lambda: self._gather([part.future for part in parts]), parts)

    def shuffle(self, shuffle: Shuffle, parts: Sequence[_RemotePart]) -> Iterator[list[Any]]:
        """Send the rows of each job to one worker; a few jobs run at a time, so that memory is bounded."""
        sent: Any = None
        groups: list[tuple[str | None, list[Any]]] = []

        def prepare() -> None:
            nonlocal sent, groups
            sent, groups = self._send(shuffle), self._group_by_thread(parts)

        def submit(job: int) -> Any:
            pieces = [self._submit(_select_rows, sent, job, futures) for _, futures in groups]
            return self._submit(_run_job, sent, job, pieces)

        self._retry(prepare, parts)
        n_jobs, n_ahead = shuffle.n_jobs, 2 * self.n_threads
        running: dict[int, Any] = {}
        for job in range(n_jobs):
            for further in range(job + len(running), min(job + n_ahead, n_jobs)):
                running[further] = self._retry(partial(submit, further))
            tried = False

            def attempt(job: int = job) -> list[Any]:
                nonlocal tried
                # the error of the first attempt is that of the task, or of its lost worker; then the job is run again
                if running[job].status in _LOST or (tried and running[job].status != "finished"):
                    prepare()
                    running[job] = submit(job)
                tried = True
                return self._gather([running[job]])[0]

            results = self._retry(attempt, parts)
            del running[job]
            yield results

    def _create(
        self, submits: Sequence[Callable[[], Any]], sources: Sequence[tuple[_RemotePart, ...]], tick: Tick = ignore_tick
    ) -> list[_RemotePart]:
        """Return parts, by the functions that submit their tasks, when all are there; raise the error of a task."""
        progress = _Progress(tick)

        def attempt() -> list[_RemotePart]:
            parts = [_RemotePart(submit, own) for submit, own in zip(submits, sources, strict=True)]
            self._wait([part.future for part in parts], progress)
            return parts

        return self._retry(attempt, [source for own in sources for source in own])

    def _group_by_thread(self, parts: Sequence[_RemotePart]) -> list[tuple[str | None, list[Any]]]:
        """Divide parts among the threads of the workers that have them; None is for parts that no worker has."""
        futures = [part.future for part in parts]
        holders = self._connection.ask("who_has", keys=[future.key for future in futures])
        threads = self._workers.wait_for_some()
        running = self._connection.ask("ncores_running")
        by_worker: dict[str | None, list[Any]] = defaultdict(list)
        for future in futures:
            workers = [worker for worker in holders.get(future.key, ()) if worker in threads and worker in running]
            by_worker[min(workers, key=lambda worker: len(by_worker[worker])) if workers else None].append(future)
        groups = []
        for worker, own in by_worker.items():
            n = max(1, threads.get(worker or "", 1))
            groups += [(worker, own[first::n]) for first in range(min(n, len(own)))]
        return groups

    def _submit(self, function: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Submit a task to a worker, or to any that takes part; return its future."""
        workers = list(self._workers.wait_for_some()) if worker is None else [worker]
        return self._client.submit(function, *arguments, pure=False, workers=workers, allow_other_workers=False)

    def _send(self, value: Any) -> Any:
        """Send a value of any size to the scheduler as a task, so that no lost worker takes it away; return its future.

        A broadcast of Dask would do as well, but waits for ever if a worker is lost during it.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            return self._submit(_identity, value)

    def _gather(self, futures: Sequence[Any], progress: _Progress | None = None) -> list[Any]:
        """Wait for futures; return their results."""
        self._wait(futures, progress or _Progress(ignore_tick))

        async def gather() -> Any:
            return await self._client.gather(list(futures))

        watch, results = Watch(self._connection, self._workers), self._connection.start(gather)
        try:
            while not wait_for_all([results], timeout=_POLL).done:
                self._look(futures, watch)
            return list(results.result())
        finally:
            results.cancel()

    def _wait(self, futures: Sequence[Any], progress: _Progress) -> None:
        """Wait for futures; raise the error of one that failed, or if they cannot be finished."""
        watch = Watch(self._connection, self._workers)
        while True:
            try:
                with self._client.as_current():
                    done = self._distributed.wait(list(futures), timeout=_POLL)
            except (TimeoutError, self._distributed.TimeoutError):
                self._look(futures, watch)
                progress.advance_to(sum(future.done() for future in futures))
                continue
            for future in done.done:
                if future.status == "error":
                    self._raise_task_error(future)
            progress.advance_to(len(futures))
            return

    def _look(self, futures: Sequence[Any], watch: Watch) -> None:
        """Raise if futures cannot be finished."""
        if any(future.status in _LOST for future in futures):  # for these, Dask would wait for ever
            self._connection.check_connected()
            raise ConnectionError("a worker was lost with what had been sent to it")
        watch.look(futures)

    def _raise_task_error(self, future: Any) -> None:
        """Raise the error of a task, which is not tried again unless its worker was lost."""
        error = future.exception()
        if type(error).__module__ == "distributed.scheduler":  # KilledWorker and such as no worker is allowed
            raise ConnectionError(first_line(error))
        # the client keeps the error, and its traceback would keep everything that this fit has on workers
        with suppress(Exception):
            own = copy(error)
            own.__cause__, error.__traceback__ = error.__cause__, None
            if len(own.args) == 1 and isinstance(own.args[0], str):
                own.args = (f"on a Dask worker: {own.args[0]}",)
            error = own
        raise _TaskError(error)

    def _retry(self, attempt: Callable[[], T], parts: Sequence[_RemotePart] = ()) -> T:
        """Return the result of an attempt; if it fails because a worker was lost, restore parts and try again."""
        reason, standstill = "", False
        for number in range(_ATTEMPTS):
            try:
                if number > 0:
                    for part in parts:
                        part.restore()
                return attempt()
            except _TaskError as failed:
                raise failed.error from failed.error.__cause__
            except StandstillError:  # once more, on workers that run
                if standstill:
                    raise
                standstill = True
            except DistributedError:
                raise
            except (CancelledError, self._distributed.CancelledError, OSError) as error:  # TimeoutError is an OSError
                self._connection.check_scheduler()
                reason = first_line(error)
        raise DistributedError(
            f"the workers of the Dask scheduler at {self._address} were lost {_ATTEMPTS} times ({reason}); do they "
            "have enough memory?"
        )


class _TaskError(Exception):
    """The error of a task, to be raised as if the task had run here."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _Progress:
    """A tick for each finished task, which is not repeated when tasks run again."""

    def __init__(self, tick: Tick) -> None:
        self._tick, self._n_done = tick, 0

    def advance_to(self, n_done: int) -> None:
        """Tick for the tasks that were finished since the last call."""
        if n_done > self._n_done:
            self._tick(n_done - self._n_done)
            self._n_done = n_done


def _identity(value: Any) -> Any:
    return value


def _merge(reduction: Reduction, totals: Sequence[Any]) -> Any:
    return totals[0] if len(totals) == 1 else reduction.merge(*totals)


def _select_rows(shuffle: Shuffle, job: int, parts: Sequence[Any]) -> list[Any]:
    return [shuffle.select_rows(job, events) for events in parts]


def _run_job(shuffle: Shuffle, job: int, groups: Sequence[list[Any]]) -> list[Any]:
    pieces = [piece for pieces in groups for piece in pieces]
    tasks = range(shuffle.n_tasks(job))
    return [shuffle.run_task(job, task, concatenate_rows(shuffle, job, task, pieces)) for task in tasks]
