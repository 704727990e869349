"""The executor on the workers of a Dask cluster: parts stay on workers; totals and the events of small nodes are sent.

Every task depends only on parts and on its arguments, and parts can be created again, so that a lost worker costs time
but does not change the result.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from copy import copy
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from excess._core.checks import as_counts, as_int, as_scalar
from excess._core.errors import require
from excess._core.version import __version__
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
"""Seconds without any worker before a fit is given up."""
_ANSWER = 10.0
"""Seconds for the scheduler to answer."""


class _RemotePart:
    """A part on a worker, with the function that submits the task that creates it."""

    def __init__(self, submit: Callable[[], Any]) -> None:
        self._submit = submit
        self.future = submit()

    def restore(self) -> None:
        """Create the part again if it was lost."""
        if self.future.status in (*_LOST, "error"):
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
        Seconds without any worker before the fit is given up.

    Raises
    ------
    DistributedError
        If the scheduler cannot be reached, or is lost.
    """

    remote = True

    def __init__(self, client: Any, *, max_moved: int = 65_536, patience: float = _PATIENCE) -> None:
        self.max_moved = as_int("max_moved", max_moved, minimum=0)
        self._patience = as_scalar("patience", as_counts("patience", patience))
        self._distributed = require("distributed", "fitting on Dask", extra="dask")
        self._owns_client = isinstance(client, str)
        if self._owns_client:
            self._check_address(client)
            try:
                client = self._distributed.Client(client, timeout=min(patience, _ANSWER), set_as_default=False)
            except (OSError, ValueError, RuntimeError) as error:
                raise DistributedError(
                    f"no Dask scheduler answers at {client!r} ({_first_line(error)}); start one with 'dask scheduler'"
                ) from error
        elif not isinstance(client, self._distributed.Client):
            raise TypeError(
                f"executor must be a dask.distributed.Client, the address of a scheduler, an Executor or None, got "
                f"{type(client).__name__}"
            )
        self._client = client
        self._address = str(getattr(client.scheduler, "address", client))
        try:
            self._check_versions()
        except BaseException:
            self.close()
            raise
        if not self.threads():
            _logger.warning("The Dask scheduler at %s has no workers yet; waiting for some", self._address)

    @property
    def n_threads(self) -> int:  # type: ignore[override]
        """Threads of all workers."""
        return max(1, sum(self.threads().values()))

    @property
    def threads_per_worker(self) -> int:  # type: ignore[override]
        """Threads of the worker that has most."""
        return max(self.threads().values(), default=1)

    def threads(self) -> dict[str, int]:
        """Return the threads of each worker, by its address."""
        found: dict[str, int] = self._retry(lambda: self._ask("ncores"))
        return found

    def close(self) -> None:
        """Close the client, if it was opened here."""
        if self._owns_client:
            with suppress(Exception):  # a lost scheduler must not hide the error that reported it
                self._client.close(timeout=2)

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
        return self._create([partial(self._submit, function, *own) for own in arguments], tick=tick)

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

        return self._create([partial(submit, part) for part in parts], parts)

    def reduce(self, reduction: Reduction, parts: Sequence[_RemotePart]) -> Any:
        """Return the total over parts: first on each worker, then pairwise between workers."""

        def attempt() -> Any:
            sent = self._send(reduction)
            totals = []
            for worker, futures in self._group_by_thread(parts):
                where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
                totals.append(self._submit(add_all, sent, futures, **where))
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
                if running[job].status in _LOST or (tried and running[job].status == "error"):
                    prepare()
                    running[job] = submit(job)
                tried = True
                return self._gather([running[job]])[0]

            results = self._retry(attempt, parts)
            del running[job]
            yield results

    def _create(
        self, submits: Sequence[Callable[[], Any]], sources: Sequence[_RemotePart] = (), tick: Tick = ignore_tick
    ) -> list[_RemotePart]:
        """Return parts, by the functions that submit their tasks, when all are there; raise the error of a task."""
        progress = _Progress(tick)

        def attempt() -> list[_RemotePart]:
            parts = [_RemotePart(submit) for submit in submits]
            self._wait([part.future for part in parts], progress)
            return parts

        return self._retry(attempt, sources)

    def _group_by_thread(self, parts: Sequence[_RemotePart]) -> list[tuple[str | None, list[Any]]]:
        """Divide parts among the threads of the workers that have them; None is for parts that no worker has."""
        futures = [part.future for part in parts]
        holders = self._client.who_has(futures)
        threads = self._ask("ncores")
        by_worker: dict[str | None, list[Any]] = defaultdict(list)
        for future in futures:
            workers = [worker for worker in holders.get(future.key, ()) if worker in threads]
            by_worker[min(workers, key=lambda worker: len(by_worker[worker])) if workers else None].append(future)
        groups = []
        for worker, own in by_worker.items():
            n = max(1, threads.get(worker, 1))
            groups += [(worker, own[first::n]) for first in range(min(n, len(own)))]
        return groups

    def _submit(self, function: Callable[..., Any], *arguments: Any, **where: Any) -> Any:
        """Submit a task; return its future."""
        return self._client.submit(function, *arguments, pure=False, **where)

    def _send(self, value: Any) -> Any:
        """Send a value of any size to the scheduler as a task, so that no lost worker takes it away; return its future.

        A broadcast of Dask would do as well, but waits for ever if a worker is lost during it.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            return self._submit(_identity, value)

    def _ask(self, question: str) -> Any:
        """Ask the scheduler, and do not wait as long as Dask would if it is gone."""
        if self._client.status != "running":
            raise ConnectionError(f"the client is {self._client.status}")
        return self._client.sync(getattr(self._client.scheduler, question), callback_timeout=_ANSWER)

    def _gather(self, futures: Sequence[Any], progress: _Progress | None = None) -> list[Any]:
        """Wait for futures; return their results."""
        self._wait(futures, progress or _Progress(ignore_tick))
        return list(self._client.gather(list(futures)))

    def _wait(self, futures: Sequence[Any], progress: _Progress) -> None:
        """Wait for futures; raise the error of one that failed, or if there are no workers for too long."""
        no_workers_since = None
        while True:
            try:
                with self._client.as_current():
                    done = self._distributed.wait(list(futures), timeout=2)
            except (TimeoutError, self._distributed.TimeoutError):
                if self._client.status != "running":
                    raise ConnectionError("the client is not connected") from None
                if any(future.status in _LOST for future in futures):  # for these, Dask would wait for ever
                    raise ConnectionError("a worker was lost with what had been sent to it") from None
                progress.advance_to(sum(future.done() for future in futures))
                if self._ask("ncores"):
                    no_workers_since = None
                elif no_workers_since is None:
                    no_workers_since = monotonic()
                elif monotonic() - no_workers_since > self._patience:
                    raise DistributedError(
                        f"the Dask scheduler at {self._address} has had no workers for {self._patience:.0f} seconds; "
                        "start some with 'dask worker'"
                    ) from None
                continue
            for future in done.done:
                if future.status == "error":
                    self._raise_task_error(future)
            progress.advance_to(len(futures))
            return

    def _raise_task_error(self, future: Any) -> None:
        """Raise the error of a task, which is not tried again unless its worker was lost."""
        error = future.exception()
        if isinstance(error, self._distributed.KilledWorker):
            raise ConnectionError(_first_line(error))
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
        reason = ""
        for number in range(_ATTEMPTS):
            try:
                if number > 0:
                    for part in parts:
                        part.restore()
                return attempt()
            except _TaskError as failed:
                raise failed.error from failed.error.__cause__
            except DistributedError:
                raise
            except (CancelledError, self._distributed.CancelledError, OSError) as error:  # TimeoutError is an OSError
                self._check_scheduler()
                reason = _first_line(error)
        raise DistributedError(
            f"the workers of the Dask scheduler at {self._address} were lost {_ATTEMPTS} times ({reason}); do they "
            "have enough memory?"
        )

    def _check_address(self, address: str) -> None:
        """Raise ValueError for what cannot be an address; the client would keep trying to reach it."""
        if address.startswith("inproc://"):
            return
        try:
            self._distributed.comm.get_address_host_port(address)
        except ValueError as error:
            raise ValueError(
                f"{address!r} is no address of a Dask scheduler, such as tcp://host:8786: {error}"
            ) from error

    def _check_versions(self) -> None:
        """Raise DistributedError if the scheduler or a worker has another version of this package, or none."""

        def find_version() -> str | None:  # sent as code, because there may be no package to import it from
            import importlib
            from importlib.util import find_spec

            return None if find_spec("excess") is None else str(importlib.import_module("excess").__version__)

        def ask_all() -> dict[str, str | None]:
            workers = list(self._ask("ncores"))
            versions = self._gather([self._submit(find_version, workers=[worker]) for worker in workers])
            named = zip([f"worker at {worker}" for worker in workers], versions, strict=True)
            return {"scheduler": self._client.run_on_scheduler(find_version), **dict(named)}

        for process, version in self._retry(ask_all).items():
            if version != __version__:
                raise DistributedError(
                    f"the Dask {process} has {'no excess' if version is None else f'excess {version}'}, here it is "
                    f"{__version__}; install the same everywhere"
                )

    def _check_scheduler(self) -> None:
        """Raise DistributedError unless the scheduler answers."""
        try:
            self._ask("identity")
        except Exception as error:  # whatever it is, there is no scheduler to talk to
            raise DistributedError(f"the Dask scheduler at {self._address} was lost") from error


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


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


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
