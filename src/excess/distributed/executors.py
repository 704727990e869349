"""Executors: they run the work of a fit on parts of the events, so that the fit need not know where the parts are.

`InProcess` uses threads of this process, `excess.distributed.dask_executor.Dask` the workers of a Dask cluster.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from excess._core.threads import n_threads, run_tasks
from excess.distributed.parts import InMemory, Part
from excess.estimators._forest.ensemble import Tick

__all__ = ["DistributedError", "Executor", "InProcess", "Reduction", "Shuffle", "add_all", "ignore_tick"]

Arguments = Sequence[tuple[Any, ...]]

_MAX_APPENDS = 50_000
"""Appends of rows to the array of a task up to which these arrays are filled directly; see `InProcess`."""


def ignore_tick(steps: int) -> None:
    """Do nothing with the progress of the work."""


class DistributedError(ConnectionError):
    """The scheduler or the workers of a cluster cannot be reached, or were lost for good.

    Examples
    --------
    >>> from excess.distributed import DistributedError
    >>> issubclass(DistributedError, OSError)
    True
    """


class Reduction(Protocol):
    """A sum over parts.

    Parts are added and totals are merged in any order, so that the total must not depend on it, to the bit: totals hold
    integers, minima and maxima, or lists that are sorted at the end, but no sums of floats.
    """

    def empty(self) -> Any:
        """Return the total of no events."""

    def add(self, total: Any, events: Any) -> Any:
        """Return the total with the events of one more part; ``total`` may be changed."""

    def merge(self, total: Any, other: Any) -> Any:
        """Return the total of two totals."""


class Shuffle(Protocol):
    """Tasks that each need some rows of all parts in one array.

    Tasks are grouped into jobs. The rows of a job are moved into one place at a time, which bounds the memory. They
    arrive in any order, which must not change the results.
    """

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""

    def n_tasks(self, job: int) -> int:
        """Return the number of tasks of a job."""

    def select_rows(self, job: int, events: Any) -> Any:
        """Return the rows of a part that a job needs, as a piece from which `rows_of_task` takes those of a task."""

    def rows_of_task(self, job: int, task: int, piece: Any) -> NDArray[Any]:
        """Return the rows of a piece that a task needs."""

    def expected_rows(self, job: int, task: int) -> int:
        """Return the approximate number of rows that a task needs of all parts."""

    def run_task(self, job: int, task: int, rows: NDArray[Any]) -> Any:
        """Run a task on its rows of all parts; the array may be overwritten."""


def add_all(reduction: Reduction, parts: Iterable[Any]) -> Any:
    """Return the total over the events of some parts."""
    total = reduction.empty()
    for events in parts:
        total = reduction.add(total, events)
    return total


class Executor(ABC):
    """Interface of everything that runs the work of a fit.

    Attributes
    ----------
    n_threads : int
        Threads of all workers.
    threads_per_worker : int
        Threads that share the memory of a worker.
    max_moved : int or None
        The largest node (in events, bootstrap weights included) whose events are moved into one place; None for as many
        as fit into memory.
    remote : bool
        Whether the work is done by other processes, which read partitions themselves and run several jobs of a shuffle
        at a time. Otherwise this process reads all events and runs one job at a time, its tasks on threads.
    """

    n_threads: int = 1
    threads_per_worker: int = 1
    max_moved: int | None = None
    remote: bool = False

    def close(self) -> None:  # noqa: B027
        """Release all resources."""

    @abstractmethod
    def run(
        self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick, shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Call a function with each tuple of arguments; return the results in order.

        ``shared`` are leading arguments of all calls, which may be large: a worker receives them once. ``tick`` is
        called for each result.
        """

    def create_parts(self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick) -> list[Any]:
        """Return parts with the results of a function for each tuple of arguments; they stay where they are made."""
        return [InMemory(result) for result in self.run(function, arguments, tick)]

    def scatter(self, parts: Sequence[Part]) -> list[Any]:
        """Send parts from this process to where the work is done."""
        return list(parts)

    def collect(self, parts: Sequence[Any]) -> list[Any]:
        """Return the events of all parts to this process, in order."""
        return [part.load() for part in parts]

    @abstractmethod
    def map(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Return parts with the results of a function for the events of each part."""

    @abstractmethod
    def reduce(self, reduction: Reduction, parts: Sequence[Any]) -> Any:
        """Return the total over parts."""

    @abstractmethod
    def shuffle(self, shuffle: Shuffle, parts: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield the results of the tasks of each job, in the order of jobs."""


class InProcess(Executor):
    """Threads of this process.

    Parameters
    ----------
    n_jobs : int, default=1
        Number of threads; -1 for all cores.
    """

    def __init__(self, n_jobs: int = 1) -> None:
        self.n_threads = self.threads_per_worker = n_threads(n_jobs)

    def run(
        self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick, shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Call a function with each tuple of arguments, one after the other."""
        results = []
        for own in arguments:
            results.append(function(*shared, *own))
            tick(1)
        return results

    def map(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Return parts in memory."""
        return self._run_tasks(len(parts), lambda number: InMemory(function(parts[number].load())))

    def reduce(self, reduction: Reduction, parts: Sequence[Any]) -> Any:
        """Return the total over parts; every thread has a total of its own until the end."""
        totals: list[list[Any]] = []

        def start_total() -> list[Any]:
            totals.append([reduction.empty()])
            return totals[-1]

        def add(number: int, total: list[Any]) -> None:
            total[0] = reduction.add(total[0], parts[number].load())

        run_tasks(range(len(parts)), add, start_total, self.n_threads)
        result = totals[0][0]
        for total in totals[1:]:
            result = reduction.merge(result, total[0])
        return result

    def shuffle(self, shuffle: Shuffle, parts: Sequence[Any]) -> Iterator[list[Any]]:
        """Run one job after the other, the tasks of each on threads."""
        for job in range(shuffle.n_jobs):
            rows_of = self._gather_rows(shuffle, job, parts)

            def run_task(task: int, job: int = job, rows_of: Any = rows_of) -> Any:
                return shuffle.run_task(job, task, rows_of(task))

            yield self._run_tasks(shuffle.n_tasks(job), run_task)

    def _gather_rows(self, shuffle: Shuffle, job: int, parts: Sequence[Any]) -> Callable[[int], NDArray[Any]]:
        """Read the rows of a job from all parts; return the function that gives a task its rows.

        The rows of a few large tasks are appended to one array per task as they are read, so that events are in memory
        once. For many small tasks these appends would take most of the time; their rows stay in the pieces until the
        task runs.
        """
        n_tasks = shuffle.n_tasks(job)
        if n_tasks * len(parts) > _MAX_APPENDS:
            pieces = self._run_tasks(len(parts), lambda number: shuffle.select_rows(job, parts[number].load()))
            return lambda task: concatenate_rows(shuffle, job, task, pieces)

        buffers = [_RowBuffer(shuffle.expected_rows(job, task)) for task in range(n_tasks)]

        def append(number: int) -> None:
            piece = shuffle.select_rows(job, parts[number].load())
            for task, buffer in enumerate(buffers):
                buffer.append(shuffle.rows_of_task(job, task, piece))

        self._run_tasks(len(parts), append)
        return lambda task: buffers[task].release()

    def _run_tasks(self, n_tasks: int, function: Callable[[int], Any]) -> list[Any]:
        """Return the results of a function for the numbers of tasks, on threads."""
        results: list[Any] = [None] * n_tasks

        def run(task: int, _: None) -> None:
            results[task] = function(task)

        run_tasks(range(n_tasks), run, lambda: None, self.n_threads)
        return results


def concatenate_rows(shuffle: Shuffle, job: int, task: int, pieces: Sequence[Any]) -> NDArray[Any]:
    """Return the rows of a task from the pieces of all parts; the pieces stay as they are."""
    return np.concatenate([shuffle.rows_of_task(job, task, piece) for piece in pieces])


class _RowBuffer:
    """An array to which several threads append rows."""

    def __init__(self, n_expected: int) -> None:
        self._n_expected, self._n_rows = n_expected, 0
        self._rows: NDArray[Any] | None = None
        self._lock = threading.Lock()

    def append(self, rows: NDArray[Any]) -> None:
        """Append rows, in the order in which threads arrive."""
        with self._lock:
            end = self._n_rows + len(rows)
            if self._rows is None:
                self._rows = np.empty((max(self._n_expected, end), *rows.shape[1:]), dtype=rows.dtype)
            elif end > len(self._rows):
                larger = np.empty((end + end // 8, *rows.shape[1:]), dtype=rows.dtype)
                larger[: self._n_rows] = self._rows[: self._n_rows]
                self._rows = larger
            self._rows[self._n_rows : end] = rows
            self._n_rows = end

    def release(self) -> NDArray[Any]:
        """Return the rows and forget them, so that their memory is free when the task ends."""
        rows, self._rows = self._rows, None
        assert rows is not None
        return rows[: self._n_rows]
