"""The executor on the workers of a Dask cluster: parts stay where they are, sums and the events of small nodes travel.

Every task is a function of parts and of what it was given, and parts can be made again, so that a lost worker costs
time but changes nothing.
"""

from __future__ import annotations

import importlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from excess._core.checks import as_counts, as_int, as_scalar
from excess.distributed.executors import (
    Arguments,
    DistributedError,
    Executor,
    Fold,
    Move,
    fold_over,
    join_all,
    not_shown,
)
from excess.distributed.parts import Part
from excess.estimators._forest.ensemble import Tick

__all__ = ["Dask"]

T = TypeVar("T")

_ATTEMPTS = 5
_LOST = ("cancelled", "lost")
_PATIENCE = 60.0
"""Seconds without any worker before a fit is given up."""
_ANSWER = 10.0
"""Seconds for the scheduler to answer."""


@dataclass
class _Held:
    """A part on a worker, and how to make it again."""

    future: Any
    again: Callable[[], Any]


class Dask(Executor):
    """Workers of a Dask cluster.

    Parameters
    ----------
    client : dask.distributed.Client or str
        The client, or the address of the scheduler, such as ``"tcp://10.0.0.1:8786"``.
    max_moved : int, default=65_536
        The largest node (in events, bootstrap weights included) whose events are moved to one worker; larger ones are
        searched by histograms.
    patience : float, default=60.0
        Seconds without any worker before the fit is given up.

    Raises
    ------
    DistributedError
        If the scheduler cannot be reached, or is lost.
    """

    in_place = True
    shares_jobs = True

    def __init__(self, client: Any, *, max_moved: int = 65_536, patience: float = _PATIENCE) -> None:
        super().__init__()
        self.max_moved = as_int("max_moved", max_moved, minimum=0)
        self._patience = as_scalar("patience", as_counts("patience", patience))
        self._distributed = _import_distributed()
        self._own = isinstance(client, str)
        if self._own:
            self._check_address(client)
            try:
                client = self._distributed.Client(client, timeout=min(patience, _ANSWER), set_as_default=False)
            except (OSError, ValueError, RuntimeError) as error:
                raise DistributedError(
                    f"no Dask scheduler answers at {client!r} ({_said(error)}); start one with 'dask scheduler'"
                ) from error
        elif not isinstance(client, self._distributed.Client):
            raise TypeError(
                f"client must be a dask.distributed.Client, the address of a scheduler, an executor or None, got "
                f"{type(client).__name__}"
            )
        self._client = client
        self._address = str(getattr(client.scheduler, "address", client))
        try:
            self._check_versions()
        except BaseException:
            self.close()
            raise

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        """Threads of all workers."""
        return max(1, sum(self.threads().values()))

    @property
    def n_sharing(self) -> int:  # type: ignore[override]
        """Threads of the worker that has most."""
        return max(self.threads().values(), default=1)

    def close(self) -> None:
        """Close the client, if it was opened here."""
        super().close()
        if self._own:
            with suppress(Exception):  # a lost scheduler must not hide the error that told of it
                self._client.close(timeout=2)

    def place(self, parts: Sequence[Part]) -> list[_Held]:
        """Send parts to workers; the scheduler keeps a copy, in case that one is lost."""

        def send(part: Part) -> Callable[[], Any]:
            return lambda: _given(self._client, part.load())

        makers = [send(part) for part in parts]
        return self._retried(lambda: [_Held(make(), make) for make in makers])

    def run(self, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown) -> list[Any]:
        """Return what a function says to each set of arguments, on workers."""
        progress = _Progress(tick)
        return self._retried(
            lambda: self._gathered([self._client.submit(function, *own, pure=False) for own in arguments], progress)
        )

    def run_with(
        self, shared: Any, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown
    ) -> list[Any]:
        """Return what a function says to something that is sent to all workers once and to each set of arguments."""
        progress = _Progress(tick)

        def attempt() -> list[Any]:
            sent = _Shared(self._client, shared).future()
            futures = [self._client.submit(function, sent, *own, pure=False) for own in arguments]
            return self._gathered(futures, progress)

        return self._retried(attempt)

    def make(self, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown) -> list[_Held]:
        """Leave what a function says to each set of arguments on the workers."""
        makers = [(lambda own=own: self._client.submit(function, *own, pure=False)) for own in arguments]
        return self._kept(makers, progress=_Progress(tick))

    def derive(self, function: Callable[[Any], Any], parts: Sequence[_Held]) -> list[_Held]:
        """Leave what a function says to each part where the part is."""
        shared = _Shared(self._client, function)
        return self._kept(
            [
                (lambda part=part: self._client.submit(_apply, shared.future(), part.future, pure=False))  # type: ignore[misc]
                for part in parts
            ],
            parts,
        )

    def fold(self, fold: Fold, parts: Sequence[_Held]) -> Any:
        """Return the sum over parts: first on each worker, then pairwise between workers."""

        def attempt() -> Any:
            shared = _Shared(self._client, fold).future()
            totals = []
            for where, futures in self._by_worker(parts):
                place = {} if where is None else {"workers": [where], "allow_other_workers": True}
                totals.append(self._client.submit(fold_over, shared, futures, pure=False, **place))
            while len(totals) > 1:
                pairs = [totals[i : i + 2] for i in range(0, len(totals), 2)]
                totals = [self._client.submit(_merge, shared, pair, pure=False) for pair in pairs]
            return self._gathered(totals)[0]

        return self._retried(attempt, parts)

    def collect(self, parts: Sequence[_Held]) -> list[Any]:
        """Return the events of all parts, in order."""
        return self._retried(lambda: self._gathered([part.future for part in parts]), parts)

    def move(self, move: Move, parts: Sequence[_Held], n_jobs: int) -> Iterator[tuple[int, list[Any]]]:
        """Send the pieces of each job to one worker; a few jobs are under way at a time, so that memory is bounded."""
        shared: list[Any] = []
        groups: list[Any] = []

        def submit(job: int) -> Any:
            pieces = [self._client.submit(_split, shared[0], job, futures, pure=False) for _, futures in groups]
            return self._client.submit(_join, shared[0], job, pieces, pure=False)

        def prepare() -> None:
            shared[:] = [_Shared(self._client, move).future()]
            groups[:] = self._by_worker(parts)

        self._retried(prepare, parts)
        n_ahead = 2 * self.n_workers
        under_way: dict[int, Any] = {}
        for job in range(n_jobs):
            for further in range(job + len(under_way), min(job + n_ahead, n_jobs)):
                under_way[further] = self._retried(lambda number=further: submit(number))  # type: ignore[misc]
            again = False

            def attempt(job: int = job) -> Any:
                nonlocal again
                if under_way[job].status in _LOST or (again and under_way[job].status == "error"):
                    prepare()
                    under_way[job] = submit(job)
                again = True
                return self._gathered([under_way[job]])[0]

            found = self._retried(attempt, parts)
            del under_way[job]
            yield job, found

    def _kept(
        self, makers: Sequence[Callable[[], Any]], parts: Sequence[_Held] = (), progress: _Progress | None = None
    ) -> list[_Held]:
        """Wait until all parts are made; raise what went wrong."""
        held: list[_Held] = []

        def attempt() -> None:
            held[:] = [_Held(make(), make) for make in makers]
            self._finished([part.future for part in held], progress)

        self._retried(attempt, parts)
        return held

    def _by_worker(self, parts: Sequence[_Held]) -> list[tuple[str | None, list[Any]]]:
        """Return the parts of each thread of each worker."""
        futures = [part.future for part in parts]
        where = self._client.who_has(futures)
        threads = self._ask("ncores")
        groups: dict[str | None, list[Any]] = defaultdict(list)
        for future in futures:
            holders = [address for address in where.get(future.key, ()) if address in threads]
            groups[min(holders, key=lambda address: len(groups[address])) if holders else None].append(future)
        shares = []
        for address, own in groups.items():
            n = max(1, threads.get(address, 1) if address is not None else 1)
            shares += [(address, own[first::n]) for first in range(min(n, len(own)))]
        return [share for share in shares if share[1]]

    def threads(self) -> dict[str, int]:
        """Return the threads of each worker, by its address."""
        found: dict[str, int] = self._retried(lambda: self._ask("ncores"))
        return found

    def _ask(self, question: str) -> Any:
        """Ask the scheduler, and do not wait as long as Dask would if it is gone."""
        if self._client.status != "running":
            raise ConnectionError(f"the client is {self._client.status}")
        return self._client.sync(getattr(self._client.scheduler, question), callback_timeout=_ANSWER)

    def _gathered(self, futures: Sequence[Any], progress: _Progress | None = None) -> list[Any]:
        self._finished(futures, progress)
        return list(self._client.gather(list(futures)))

    def _finished(self, futures: Sequence[Any], progress: _Progress | None = None) -> None:
        """Wait for futures; raise the error of one that failed, or if there is nobody to work on them."""
        alone_since = None
        while True:
            try:
                with self._client.as_current():
                    done = self._distributed.wait(list(futures), timeout=2)
            except (TimeoutError, self._distributed.TimeoutError):
                if self._client.status != "running":
                    raise ConnectionError("the client is not connected") from None
                if any(future.status in _LOST for future in futures):  # for these, Dask would wait for ever
                    raise ConnectionError("a worker was lost with what had been sent to it") from None
                if progress is not None:
                    progress.reach(sum(future.done() for future in futures))
                if self._ask("ncores"):
                    alone_since = None
                elif alone_since is None:
                    alone_since = monotonic()
                elif monotonic() - alone_since > self._patience:
                    raise DistributedError(
                        f"the Dask scheduler at {self._address} has had no workers for {self._patience:.0f} seconds; "
                        "start some with 'dask worker'"
                    ) from None
                continue
            for future in done.done:
                if future.status == "error":
                    self._raise(future)
            if progress is not None:
                progress.reach(len(futures))
            return

    def _raise(self, future: Any) -> None:
        """Raise what a task has raised, as an error that is not tried again unless its worker was lost."""
        error = future.exception()
        if isinstance(error, self._distributed.KilledWorker):
            raise ConnectionError(_said(error))
        # the client keeps the error, and with a traceback everything that this fit has on workers
        with suppress(Exception):
            own = copy(error)
            own.__cause__, error.__traceback__ = error.__cause__, None
            if len(own.args) == 1 and isinstance(own.args[0], str):
                own.args = (f"on a Dask worker: {own.args[0]}",)
            error = own
        raise _TaskError(error)

    def _retried(self, attempt: Callable[[], T], parts: Sequence[_Held] = ()) -> T:
        """Run what may fail because a worker was lost; put parts back whose data was only there."""
        from concurrent.futures import CancelledError

        said = ""
        for number in range(_ATTEMPTS):
            try:
                if number > 0:
                    for part in parts:
                        if part.future.status in (*_LOST, "error"):
                            part.future = part.again()
                return attempt()
            except _TaskError as failed:
                raise failed.error from failed.error.__cause__
            except DistributedError:
                raise
            except (CancelledError, self._distributed.CancelledError, OSError) as error:  # TimeoutError is an OSError
                self._check_scheduler()
                said = _said(error)
        raise DistributedError(
            f"the workers of the Dask scheduler at {self._address} were lost {_ATTEMPTS} times ({said}); do they have "
            "enough memory?"
        )

    def _check_address(self, address: str) -> None:
        """Refuse what cannot be the address of a scheduler before a client tries it, and goes on trying."""
        if address.startswith("inproc://"):
            return
        try:
            self._distributed.comm.get_address_host_port(address)
        except ValueError as error:
            raise ValueError(
                f"{address!r} is no address of a Dask scheduler, such as tcp://host:8786: {error}"
            ) from error

    def _check_versions(self) -> None:
        """Refuse a scheduler or workers that have another version of this package, or none."""
        from excess import __version__

        def version() -> str | None:  # sent as code, because there may be no package to find it in
            from importlib.util import find_spec

            if find_spec("excess") is None:
                return None
            from excess import __version__

            return __version__

        def ask() -> dict[str, str | None]:
            workers = list(self._ask("ncores"))
            futures = [self._client.submit(version, workers=[worker], pure=False) for worker in workers]
            named = zip([f"worker at {worker}" for worker in workers], self._gathered(futures), strict=True)
            return {"scheduler": self._client.run_on_scheduler(version), **dict(named)}

        for who, theirs in self._retried(ask).items():
            if theirs != __version__:
                raise DistributedError(
                    f"the Dask {who} has {'no excess' if theirs is None else f'excess {theirs}'}, here it is "
                    f"{__version__}; install the same everywhere"
                )

    def _check_scheduler(self) -> None:
        """Raise DistributedError unless the scheduler answers."""
        try:
            self._ask("identity")
        except Exception as error:  # whatever it is, there is no scheduler to talk to
            raise DistributedError(f"the Dask scheduler at {self._address} was lost") from error


class _TaskError(Exception):
    """What a task has raised, as it would have been raised here."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _Progress:
    """Ticks that are not repeated when something is done again."""

    def __init__(self, tick: Tick) -> None:
        self._tick, self._n_done = tick, 0

    def reach(self, n_done: int) -> None:
        """Say how many are done."""
        if n_done > self._n_done:
            self._tick(n_done - self._n_done)
            self._n_done = n_done


class _Shared:
    """What all tasks need, given to the scheduler as a task of its own, so that no lost worker takes it away.

    (A broadcast of Dask would do as well, but waits for ever if a worker is lost in the middle of it.)
    """

    def __init__(self, client: Any, value: Any) -> None:
        self._client, self._value, self._future = client, value, None

    def future(self) -> Any:
        """Return where it is."""
        if self._future is None or self._future.status in (*_LOST, "error"):
            self._future = _given(self._client, self._value)
        return self._future


def _given(client: Any, value: Any) -> Any:
    """Give a value to the scheduler, whatever its size, and return where it is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
        return client.submit(_same, value, pure=False)


def _same(value: Any) -> Any:
    return value


def _import_distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise ImportError("fitting on Dask needs distributed: pip install 'excess[dask]'") from error


def _said(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def _apply(function: Callable[[Any], Any], events: Any) -> Any:
    return function(events)


def _merge(fold: Fold, totals: Sequence[Any]) -> Any:
    return totals[0] if len(totals) == 1 else fold.merge(*totals)


def _split(move: Move, job: int, parts: Sequence[Any]) -> list[Any]:
    return [move.split(job, events) for events in parts]


def _join(move: Move, job: int, groups: Sequence[list[Any]]) -> list[Any]:
    return join_all(move, job, [piece for pieces in groups for piece in pieces])
