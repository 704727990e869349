"""Executors: who works on the parts of the events. In this process on threads, or in processes through joblib.

All of them do the same few things, so that a fit need not know which one it has: fold over parts, derive further parts,
collect, and move pieces of all parts into one place. `excess.distributed.dask_executor` has the third one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import as_int
from excess._core.threads import n_threads, run_tasks
from excess.distributed.parts import InMemory, Part
from excess.estimators._forest.ensemble import Tick

__all__ = ["DistributedError", "Executor", "Fold", "InProcess", "Joblib", "Move"]


Arguments = tuple[Any, ...]

_MAX_SHARES = 50_000
"""Shares of tasks in pieces that are put together one by one."""


def not_shown(steps: int) -> None:
    """Tick for nobody."""


class DistributedError(ConnectionError):
    """Workers, or who directs them, cannot be reached or were lost for good.

    Examples
    --------
    >>> from excess.distributed import DistributedError
    >>> issubclass(DistributedError, OSError)
    True
    """


class Fold(Protocol):
    """A sum over parts; the order of parts must not matter."""

    def start(self) -> Any:
        """Return the sum over nothing."""

    def add(self, total: Any, events: Any) -> Any:
        """Return the sum with the events of one more part."""

    def merge(self, total: Any, other: Any) -> Any:
        """Return the sum of two sums."""


class Move(Protocol):
    """Pieces of all parts that are needed in one place, in several jobs of several tasks each."""

    def only(self, job: int) -> Move:
        """Return what one job needs to know; there it has the number 0."""

    def n_tasks(self, job: int) -> int:
        """Return how many tasks a job has."""

    def split(self, job: int, events: Any) -> Any:
        """Return the piece of a part that a job needs."""

    def expected(self, job: int, task: int) -> int:
        """Return about how many rows the shares of a task have in all."""

    def own(self, job: int, task: int, piece: Any) -> NDArray[Any]:
        """Return the share of a task in a piece."""

    def join(self, job: int, task: int, rows: NDArray[Any]) -> Any:
        """Do a task of a job, with its shares of all pieces in one array, which is used up."""


class Executor(ABC):
    """Who works on parts, and how much may be moved.

    Attributes
    ----------
    n_workers : int
        How many work side by side.
    max_moved : int or None
        The largest node (in events, bootstrap weights included) that is moved into one place; None for as many as fit
        into memory.
    n_sharing : int
        How many of them share the memory that a fit may use.
    in_place : bool
        Whether parts are made by workers from their own partitions; else by the caller.
    shares_jobs : bool
        Whether the jobs of a move are done side by side; else one after the other, with their tasks side by side.
    """

    n_workers: int = 1
    max_moved: int | None = None
    n_sharing: int = 1
    in_place: bool = False
    shares_jobs: bool = False
    _always_in_file = False

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None

    def tidy(self) -> None:
        """Let go of what a fit has left behind: a temporary file."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def close(self) -> None:
        """Let go of everything."""
        self.tidy()

    def record_path(self, n_bytes: int, memory: int) -> Path | None:
        """Return a file for so many bytes of records; None if they are a small part of the memory, and stay there."""
        if n_bytes <= memory // 16 and not self._always_in_file:
            return None
        self._folder = TemporaryDirectory(prefix="excess-")
        free = disk_usage(self._folder.name).free
        if free < n_bytes:
            raise OSError(
                f"{Path(self._folder.name).parent}: binned events take {n_bytes / 1e9:.2f} GB, {free / 1e9:.2f} GB are "
                "free; set TMPDIR to a folder with more room"
            )
        return Path(self._folder.name) / "records"

    def place(self, parts: Sequence[Part]) -> list[Any]:
        """Put parts where they are worked on."""
        return list(parts)

    @abstractmethod
    def run(self, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown) -> list[Any]:
        """Return what a function says to each set of arguments; tick for each."""

    def run_with(
        self, shared: Any, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown
    ) -> list[Any]:
        """Return what a function says to something large that all share and to each set of arguments."""
        return self.run(function, [(shared, *own) for own in arguments], tick)

    def make(self, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown) -> list[Any]:
        """Return parts with what a function says to each set of arguments."""
        return [InMemory(value) for value in self.run(function, arguments, tick)]

    @abstractmethod
    def fold(self, fold: Fold, parts: Sequence[Any]) -> Any:
        """Return the sum over parts."""

    @abstractmethod
    def derive(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Return parts with what a function says to each."""

    def collect(self, parts: Sequence[Any]) -> list[Any]:
        """Return the events of all parts, in order."""
        return [part.load() for part in parts]

    @abstractmethod
    def move(self, move: Move, parts: Sequence[Any], n_jobs: int) -> Iterator[tuple[int, list[Any]]]:
        """Give each job's number and what its tasks returned."""


class InProcess(Executor):
    """Threads of this process.

    Parameters
    ----------
    n_jobs : int, default=1
        How many; -1 is all cores.
    """

    def __init__(self, n_jobs: int = 1) -> None:
        super().__init__()
        self.n_workers = self.n_sharing = n_threads(n_jobs)

    def run(self, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown) -> list[Any]:
        """Return what a function says to each set of arguments, one after the other."""
        found = []
        for own in arguments:
            found.append(function(*own))
            tick(1)
        return found

    def fold(self, fold: Fold, parts: Sequence[Any]) -> Any:
        """Return the sum over parts; every thread has a sum of its own."""
        totals: list[list[Any]] = []

        def start() -> list[Any]:
            totals.append([fold.start()])
            return totals[-1]

        def add(number: int, total: list[Any]) -> None:
            total[0] = fold.add(total[0], parts[number].load())

        run_tasks(range(len(parts)), add, start, self.n_workers)
        result = totals[0][0]
        for total in totals[1:]:
            result = fold.merge(result, total[0])
        return result

    def derive(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Return parts in memory."""
        found: list[Any] = [None] * len(parts)

        def work(number: int, _: None) -> None:
            found[number] = InMemory(function(parts[number].load()))

        run_tasks(range(len(parts)), work, lambda: None, self.n_workers)
        return found

    def move(self, move: Move, parts: Sequence[Any], n_jobs: int) -> Iterator[tuple[int, list[Any]]]:
        """Do one job after the other, the tasks of each on threads."""
        for job in range(n_jobs):
            results = [None] * move.n_tasks(job)
            rows = self._rows(move, job, parts, len(results))

            def join(task: int, _: None, job: int = job, rows: Any = rows, results: Any = results) -> None:
                results[task] = move.join(job, task, rows(task))

            run_tasks(range(len(results)), join, lambda: None, self.n_workers)
            yield job, results

    def _rows(self, move: Move, job: int, parts: Sequence[Any], n_tasks: int) -> Callable[[int], NDArray[Any]]:
        """Split all parts; return what gives a task its rows.

        Those of a few large tasks are put together as they come, so that events are in memory once; those of many small
        ones stay in the pieces.
        """
        if n_tasks * len(parts) > _MAX_SHARES:
            pieces: list[Any] = [None] * len(parts)

            def keep(number: int, _: None) -> None:
                pieces[number] = move.split(job, parts[number].load())

            run_tasks(range(len(parts)), keep, lambda: None, self.n_workers)
            return lambda task: np.concatenate([move.own(job, task, piece) for piece in pieces])

        joined = [_Joined(move.expected(job, task)) for task in range(n_tasks)]

        def put(number: int, _: None) -> None:
            piece = move.split(job, parts[number].load())
            for task, rows in enumerate(joined):
                rows.append(move.own(job, task, piece))

        run_tasks(range(len(parts)), put, lambda: None, self.n_workers)
        return lambda task: joined[task].take()


class _Joined:
    """Rows from several threads in one array."""

    def __init__(self, n_expected: int) -> None:
        self._n_expected, self._n_rows = n_expected, 0
        self._rows: NDArray[Any] | None = None
        self._lock = threading.Lock()

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows; their order does not matter."""
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

    def take(self) -> NDArray[Any]:
        """Give the rows away."""
        rows, self._rows = self._rows, None
        assert rows is not None
        return rows[: self._n_rows]


class Joblib(Executor):
    """Processes of this machine, through joblib.

    Parameters
    ----------
    n_jobs : int, default=-1
        How many processes; -1 is all cores.
    max_moved : int, default=65_536
        The largest node whose events are moved into one process.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffForestClassifier
    >>> from excess.distributed import Joblib, fit_forest
    >>> X, y = np.arange(40.0).reshape(-1, 1), np.arange(40) >= 20
    >>> forest = OnOffForestClassifier(5, min_samples_leaf=2, random_state=0)
    >>> fitted = fit_forest(forest, [(X[:30], y[:30]), (X[30:], y[30:])], client=Joblib(1))
    >>> fitted.predict([[3.0], [33.0]])
    array([False,  True])
    """

    _always_in_file = True  # from which all processes read
    shares_jobs = True

    def __init__(self, n_jobs: int = -1, *, max_moved: int = 65_536) -> None:
        super().__init__()
        self.n_workers = self.n_sharing = n_threads(n_jobs)
        self.max_moved = as_int("max_moved", max_moved, minimum=0)

    def run(self, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown) -> list[Any]:
        """Return what a function says to each set of arguments, in processes."""
        found = []
        for one in self._stream(function, arguments):
            found.append(one)
            tick(1)
        return found

    def fold(self, fold: Fold, parts: Sequence[Any]) -> Any:
        """Return the sum over parts; every process has a sum of its own."""
        shares = [parts[first :: self.n_workers] for first in range(min(self.n_workers, len(parts)))]
        first, *others = self.run(_fold_parts, [(fold, share) for share in shares])
        for other in others:
            first = fold.merge(first, other)
        return first

    def derive(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Return parts in the memory of the caller."""
        return [InMemory(value) for value in self.run(_applied, [(function, part) for part in parts])]

    def move(self, move: Move, parts: Sequence[Any], n_jobs: int) -> Iterator[tuple[int, list[Any]]]:
        """Give jobs to processes; each reads all parts."""
        yield from enumerate(self._stream(_whole_job, ((move.only(job), parts) for job in range(n_jobs))))

    def _stream(self, function: Callable[..., Any], arguments: Iterable[Arguments]) -> Iterator[Any]:
        """Give what a function says to each set of arguments, as soon as it is said."""
        from joblib import Parallel, delayed

        yield from Parallel(n_jobs=self.n_workers, return_as="generator")(delayed(function)(*own) for own in arguments)


def fold_over(fold: Fold, parts: Iterable[Any]) -> Any:
    """Return the sum over the events of parts."""
    total = fold.start()
    for events in parts:
        total = fold.add(total, events)
    return total


def join_all(move: Move, job: int, pieces: Sequence[Any]) -> list[Any]:
    """Do all tasks of a job; pieces stay as they are, in case the job has to be done again."""
    return [
        move.join(job, task, np.concatenate([move.own(job, task, piece) for piece in pieces]))
        for task in range(move.n_tasks(job))
    ]


def _fold_parts(fold: Fold, parts: Sequence[Part]) -> Any:
    return fold_over(fold, (part.load() for part in parts))


def _applied(function: Callable[[Any], Any], part: Part) -> Any:
    return function(part.load())


def _whole_job(move: Move, parts: Sequence[Any]) -> list[Any]:
    return join_all(move, 0, [move.split(0, part.load()) for part in parts])
