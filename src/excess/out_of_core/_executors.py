"""Executors: they process parts of the events on threads of this process or on Dask workers."""

import asyncio
import logging
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import wait as wait_for_all
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import reduce as fold
from itertools import islice
from operator import call
from time import monotonic
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from excess._utils.checks import as_count, as_int
from excess._utils.errors import ArgumentError, first_line, require
from excess._utils.threads import n_threads, run_tasks
from excess._utils.version import __version__
from excess.estimators._forest.ensemble import Tick

_logger = logging.getLogger("excess")

Arguments = Sequence[tuple[Any, ...]]
MapTasks = Callable[[int, Callable[[int], Any]], list[Any]]  # results of a function for task numbers

_CONNECTING = 10.0  # seconds to wait for the first answer of a scheduler, and for the versions of workers
_POLL = 1.0  # seconds between two checks of the cluster while tasks run
_STANDSTILL = 5  # multiples of the patience without progress of any task, although workers are running


class DistributedError(ConnectionError):
    """The scheduler or the workers of a cluster cannot be reached, do not match, or were lost."""


@dataclass(frozen=True)
class InMemory:
    """A part: a portion of the events, loaded on demand."""

    value: Any

    def load(self) -> Any:
        """Return the events."""
        return self.value


class _Reduction(Protocol):
    """A sum over parts, merged in any order: totals must not depend on it, so they contain no sums of floats."""

    def empty(self) -> Any: ...

    def add(self, total: Any, events: Any) -> Any: ...  # may change the total

    def merge(self, total: Any, other: Any) -> Any: ...


class ArraySum:
    """Merge of a reduction whose totals are arrays of integers."""

    def merge(self, total: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of two totals."""
        return total + other


class _Shuffle(Protocol):
    """Jobs that each require some rows of all parts in one place, in any order; few jobs at a time bound the memory."""

    @property
    def n_jobs(self) -> int: ...

    def select_rows(self, job: int, events: Any) -> Any: ...  # a piece with the rows of a part for a job

    def run_job(self, job: int, n_parts: int, piece_of: Callable[[int], Any], map_tasks: MapTasks) -> list[Any]: ...


def read_only(array: Any) -> Any:
    """Return a read-only view, or None, like arrays of other processes: numba compiles kernels once for these."""
    if array is None:
        return None
    view = array.view()
    view.flags.writeable = False
    return view


def ignore_tick(steps: int) -> None:
    """Ignore the progress of the work."""


class Executor:
    """Threads of this process, as many as ``n_jobs`` specifies; other executors override the methods."""

    threads: list[int]  # of each worker, which share its memory
    max_moved: int | None = None  # largest node, in events with bootstrap weights, that is moved; None: by memory
    remote: bool = False  # whether other processes read the partitions and run several jobs of a shuffle at a time

    def __init__(self, n_jobs: int | None = 1) -> None:
        self.threads = [n_threads(n_jobs)]

    def close(self) -> None:
        """Release all resources."""

    def run(
        self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick, shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Return the results of a function for each tuple of arguments; ``shared`` are leading arguments of all."""
        results = []
        for own in arguments:
            results.append(function(*shared, *own))
            tick(1)
        return results

    def create_parts(self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick) -> list[Any]:
        """Return parts with the results of a function for each tuple of arguments; they stay where they are created."""
        return [InMemory(result) for result in self.run(function, arguments, tick)]

    def scatter(self, parts: Sequence[Any]) -> list[Any]:
        """Send parts from this process to the workers."""
        return list(parts)

    def collect(self, parts: Sequence[Any]) -> list[Any]:
        """Return the events of all parts to this process, in order."""
        return [part.load() for part in parts]

    def map(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Return parts with the results of a function for the events of each part."""
        return self._run_tasks(len(parts), lambda number: InMemory(function(parts[number].load())))

    def reduce(self, reduction: _Reduction, parts: Sequence[Any]) -> Any:
        """Return the total over parts; every thread has its own total until the end."""
        n = max(1, min(self.threads[0], len(parts)))
        totals = self._run_tasks(n, lambda i: _add_all(reduction, (part.load() for part in parts[i::n])))
        return fold(reduction.merge, totals)

    def shuffle(self, shuffle: _Shuffle, parts: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield the results of each job, sequentially, each on all threads."""
        for job in range(shuffle.n_jobs):

            def piece_of(number: int, job: int = job) -> Any:
                return shuffle.select_rows(job, parts[number].load())

            yield shuffle.run_job(job, len(parts), piece_of, self._run_tasks)

    def _run_tasks(self, n_tasks: int, function: Callable[[int], Any]) -> list[Any]:
        """Return the results of a function for task numbers, on threads; suitable for many short tasks."""
        results: dict[int, Any] = {}
        run_tasks(range(n_tasks), lambda task, _: results.update({task: function(task)}), lambda: None, self.threads[0])
        return [results[task] for task in range(n_tasks)]


InProcess = Executor


@contextmanager
def open_executor(
    executor: Any, n_jobs: int | None, advice: str = "nothing was written, start the fit again"
) -> Iterator[Executor]:
    """Open the ``executor`` argument of `fit_forest`; add advice to the errors of lost workers."""
    opened = executor
    if not isinstance(executor, Executor):
        opened = InProcess(n_jobs) if executor is None else Dask(executor)
    try:
        yield opened
    except DistributedError as error:
        if advice in str(error):
            raise
        raise DistributedError(f"{error}; {advice}") from error
    finally:
        if opened is not executor:
            opened.close()


class Dask(Executor):
    """Workers of a Dask cluster, given by a client or by the address of the scheduler."""

    remote = True

    def __init__(self, client: Any, *, max_moved: int = 65_536, patience: float = 60.0) -> None:
        self.max_moved = as_int("max_moved", max_moved, minimum=0)
        self._patience = as_count("patience", patience)
        self._distributed = _import_distributed()
        self._is_own = isinstance(client, str)
        if self._is_own:
            client = _connect(self._distributed, client, min(self._patience, _CONNECTING))
        elif not isinstance(client, self._distributed.Client):
            kinds = "a dask.distributed.Client, the address of a scheduler, an Executor or None"
            raise TypeError(f"executor must be {kinds}, got {type(client).__name__}")
        elif client.asynchronous:
            raise ArgumentError("executor", "must be a client that waits for results, without asynchronous=True")
        self._client = client
        self._address = client.scheduler.address
        try:
            self._check_versions()
        except BaseException:
            self.close()
            raise

    @property
    def threads(self) -> list[int]:  # type: ignore[override]
        """Threads of each running worker; one if there are none."""
        return list(self._ask(self._client.scheduler.ncores_running).values()) or [1]

    def close(self) -> None:
        """Close the client, if it was opened here."""
        if self._is_own:
            with suppress(Exception):  # a lost scheduler must not hide the original error
                self._client.close(timeout=2)

    def run(
        self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick, shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Return the results of a function for each tuple of arguments; a worker receives ``shared`` once."""
        sent = [self._send(value) for value in shared]
        return self._gather([self._submit(function, *sent, *own) for own in arguments], tick)

    def create_parts(self, function: Callable[..., Any], arguments: Arguments, tick: Tick = ignore_tick) -> list[Any]:
        """Keep the results of a function for each tuple of arguments on the workers."""
        return self._wait([self._submit(function, *own) for own in arguments], tick)

    def scatter(self, parts: Sequence[Any]) -> list[Any]:
        """Send parts to workers; the scheduler keeps a copy, in case a worker is lost."""
        return [self._send(part.load()) for part in parts]

    def map(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Keep the results of a function for each part on the worker of the part."""
        sent = self._send(function)
        return self._wait([self._submit(call, sent, part) for part in parts])

    def reduce(self, reduction: _Reduction, parts: Sequence[Any]) -> Any:
        """Return the total over parts: first on each worker, then pairwise between workers."""
        sent = self._send(reduction)
        totals = [self._submit(_add_all, sent, own, worker=worker) for worker, own in self._group_by_thread(parts)]
        while len(totals) > 1:
            totals = [self._submit(_merge, sent, totals[i : i + 2]) for i in range(0, len(totals), 2)]
        return self._gather(totals)[0]

    def collect(self, parts: Sequence[Any]) -> list[Any]:
        """Return the events of all parts to this process, in order."""
        return self._gather(parts)

    def shuffle(self, shuffle: _Shuffle, parts: Sequence[Any]) -> Iterator[list[Any]]:
        """Send the rows of each job to one worker; a few jobs run at a time, so memory is bounded."""
        sent, groups = self._send(shuffle), self._group_by_thread(parts)

        def submit(job: int) -> Any:
            return self._submit(_run_job, sent, job, [self._submit(_select_rows, sent, job, own) for _, own in groups])

        jobs = iter(range(shuffle.n_jobs))
        running = deque(map(submit, islice(jobs, 2 * sum(self.threads))))
        while running:
            yield self._gather([running.popleft()])[0]
            running.extend(map(submit, islice(jobs, 1)))

    def _group_by_thread(self, parts: Sequence[Any]) -> list[tuple[str | None, list[Any]]]:
        """Distribute parts over the threads of the workers that have them; None is for recently lost parts."""
        self._wait(parts)
        holders = self._ask(self._client.scheduler.who_has, keys=[part.key for part in parts])
        threads = self._ask(self._client.scheduler.ncores_running)
        by_worker: dict[str | None, list[Any]] = defaultdict(list)
        for part in parts:
            workers = [worker for worker in holders.get(part.key, ()) if worker in threads]
            by_worker[min(workers, key=lambda worker: len(by_worker[worker]), default=None)].append(part)
        numbers = {worker: min(len(own), threads.get(worker or "", 1)) for worker, own in by_worker.items()}
        return [(worker, by_worker[worker][i::n]) for worker, n in numbers.items() for i in range(n)]

    def _submit(self, function: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Submit a task, on a given worker if available; return its future."""
        self._check_connected()
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self._client.submit(_run_task, __version__, function, *arguments, pure=False, **where)

    def _send(self, value: Any) -> Any:
        """Send a value of any size as a task, so the scheduler can send it again; return its future."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            return self._submit(_identity, value)

    def _gather(self, futures: Sequence[Any], tick: Tick = ignore_tick) -> list[Any]:
        """Return the results of tasks."""

        async def gather() -> Any:
            return await self._client.gather(list(futures))

        self._wait(futures, tick)
        return list(self._finish(gather, futures))

    def _wait(self, futures: Sequence[Any], tick: Tick = ignore_tick) -> list[Any]:
        """Return futures when their tasks are finished; raise the error of one that has failed."""

        async def wait() -> None:
            with self._client.as_current():
                await self._distributed.wait(list(futures))

        self._finish(wait, futures, tick)
        self._raise_task_error(futures)
        return list(futures)

    def _finish(
        self, wait: Callable[[], Coroutine[Any, Any, Any]], futures: Sequence[Any], tick: Tick = ignore_tick
    ) -> Any:
        """Return the result of a coroutine that waits for futures; check the cluster meanwhile."""
        self._check_connected()
        result = asyncio.run_coroutine_threadsafe(wait(), self._client.loop.asyncio_loop)
        n_done, n_moves, moved, has_warned = 0, -1, monotonic(), False
        try:
            while not wait_for_all([result], timeout=_POLL).done:
                n_done, n_before = _advance(tick, n_done, futures), n_moves
                n_workers, n_running, n_executing, n_moves = self._ask(self._client.run_on_scheduler, function=_look)
                is_sending = all(future.done() for future in futures)
                if n_executing or is_sending or (n_running and n_moves != n_before):
                    moved, has_warned = monotonic(), False
                    continue
                problem, seconds = "has workers that make no progress; restart them", _STANDSTILL * self._patience
                if n_running == 0:
                    problem = f"has no running workers, and {n_workers} paused at their memory limit; start some"
                    seconds = self._patience
                    if not has_warned:
                        _logger.warning("The Dask scheduler at %s %s", self._address, problem)
                        has_warned = True
                if monotonic() - moved > seconds:
                    raise self._error(f"{problem} (waited for {seconds:g} seconds)")
            found = result.result()
        except DistributedError:
            raise
        except (Exception, asyncio.CancelledError) as error:  # not a subclass of Exception
            self._raise_task_error(futures)
            raise self._error("was lost") from error
        finally:
            result.cancel()
        _advance(tick, n_done, futures)
        return found

    def _raise_task_error(self, futures: Sequence[Any]) -> None:
        """Raise the error of a failed task, if any."""
        for future in futures:
            if future.status == "error":
                error = future.exception()
                if type(error).__module__ == "distributed.scheduler":  # such as KilledWorker
                    raise self._error(f"has lost its workers ({first_line(error):.200}); check their memory")
                # a copy, because the client keeps the error, and its traceback would keep all futures
                with suppress(Exception):
                    cause, error = error.__cause__, copy(error)
                    error.__cause__ = cause
                    if len(error.args) == 1 and isinstance(error.args[0], str):
                        error.args = (f"on a Dask worker: {error.args[0]}",)
                raise error

    def _ask(self, question: Callable[..., Any], seconds: float | None = None, **details: Any) -> Any:
        """Return the answer of the scheduler; None if there is no answer within ``seconds``, if given."""

        async def ask() -> Any:
            return await question(**details)

        self._check_connected()
        try:
            return self._client.sync(ask, callback_timeout=self._patience if seconds is None else seconds)
        except TimeoutError as error:
            if seconds is not None:
                return None
            raise self._error(f"has not answered for {self._patience:g} seconds; restart it if necessary") from error
        except Exception as error:  # any error of a library that has lost its scheduler
            raise self._error("was lost") from error

    def _check_versions(self) -> None:
        """Raise DistributedError if the scheduler or a worker has another version of this package; see `_run_task`."""
        seconds = min(self._patience, _CONNECTING)  # do not wait longer for a worker that does not answer
        found = self._ask(self._client.get_versions, seconds, packages=["excess"])
        if found is not None:
            ours = found["client"]["packages"]["excess"]
            for where, answer in {"scheduler": found["scheduler"], **found["workers"]}.items():
                theirs = answer["packages"].get("excess")
                if theirs != ours:
                    raise self._error(
                        f"does not match: {where} has excess {theirs}, here it is {ours}; install the same version"
                    )

    def _check_connected(self) -> None:
        if self._client.status != "running":
            raise self._error("was lost")

    def _error(self, problem: str) -> DistributedError:
        return DistributedError(f"the Dask scheduler at {self._address} {problem}")


def _import_distributed() -> Any:
    """Import Dask, which sets the levels of its loggers; silenced loggers stay silent."""
    level = logging.getLogger("distributed").level
    distributed = require("distributed", "fitting on Dask", extra="dask")
    if level > logging.CRITICAL:
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(level)
    return distributed


def _connect(distributed: Any, address: str, seconds: float) -> Any:
    """Return a client of the scheduler at an address."""

    async def find() -> str:
        security = distributed.Security().get_connection_args("client")
        async with distributed.rpc(address, timeout=seconds, connection_args=security) as server:
            return str((await asyncio.wait_for(server.identity(), seconds + 1))["type"])

    try:
        # checked first, because a client would wait forever for a server that never answers
        found = distributed.utils.LoopRunner().run_sync(find)
        if found != "Scheduler":
            raise ConnectionError(f"a Dask {found.lower()} answers")
        return distributed.Client(address, timeout=seconds, set_as_default=False)
    except ValueError as error:
        problem = f"{address!r} is not the address of a scheduler, such as tcp://host:8786: {first_line(error):.200}"
        raise ArgumentError("executor", problem) from error
    except Exception as error:  # any server may answer, and libraries raise any error then
        remedy = "start one with 'dask scheduler', check the address and, for tls://, distributed.comm.tls of Dask"
        raise DistributedError(
            f"no Dask scheduler answers at {address!r} ({_reason(error, seconds)}); {remedy}"
        ) from error


def _reason(error: BaseException, seconds: float) -> str:
    """Return why a connection failed, from the innermost error."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, (TimeoutError, asyncio.CancelledError)):
        return f"no answer within {seconds:g} seconds"
    return f"{first_line(error):.200}" if isinstance(error, (OSError, TypeError)) else "another server answers"


def _advance(tick: Tick, n_before: int, futures: Sequence[Any]) -> int:
    """Report the tasks finished since the last call; return their total number."""
    n_done = max(n_before, sum(future.done() for future in futures))
    tick(n_done - n_before)
    return n_done


def _look(dask_scheduler: Any) -> tuple[int, int, int, int]:
    """Return the numbers of workers, running workers, executing tasks and changes of tasks; runs on the scheduler."""
    workers = dask_scheduler.workers.values()
    n_executing = sum(len(worker.executing) for worker in workers)
    return len(workers), len(dask_scheduler.running), n_executing, dask_scheduler.transition_counter


def _run_task(version: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a worker, which may have joined after the version check."""
    if version != __version__:
        raise DistributedError(f"a Dask worker has excess {__version__}, the caller {version}; use the same version")
    return function(*arguments)


def _identity(value: Any) -> Any:
    return value


def _add_all(reduction: _Reduction, parts: Iterable[Any]) -> Any:
    total = reduction.empty()
    for events in parts:
        total = reduction.add(total, events)
    return total


def _merge(reduction: _Reduction, totals: Sequence[Any]) -> Any:
    return totals[0] if len(totals) == 1 else reduction.merge(*totals)


def _select_rows(shuffle: _Shuffle, job: int, parts: Sequence[Any]) -> list[Any]:
    return [shuffle.select_rows(job, events) for events in parts]


def _run_job(shuffle: _Shuffle, job: int, groups: Sequence[list[Any]]) -> list[Any]:
    pieces = [piece for group in groups for piece in group]
    return shuffle.run_job(job, len(pieces), pieces.__getitem__, lambda n, function: list(map(function, range(n))))
