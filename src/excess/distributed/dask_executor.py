"""The executor on the workers of a Dask cluster: parts stay where they are, sums and the events of small nodes travel.

Every task is a function of parts and of what it was given, and parts can be made again, so that a lost worker costs
time but changes nothing.
"""

from __future__ import annotations

import importlib
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from excess._forest.ensemble import Tick
from excess.distributed.executors import Arguments, DistributedError, Executor, Fold, Move, join_all, not_shown
from excess.distributed.parts import Part

__all__ = ["Dask"]

T = TypeVar("T")

_ATTEMPTS = 5
_LOST = ("cancelled", "lost")
_PATIENCE = 60.0
"""Seconds without any worker before a fit is given up."""
_ANSWER = 10.0
"""Seconds for the scheduler to answer at first."""


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

    def __init__(self, client: Any, *, max_moved: int = 65_536, patience: float = _PATIENCE) -> None:
        self._distributed = _import_distributed()
        self._patience = patience
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
        self.max_moved = max_moved
        self.in_place = True

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        """Threads of all workers."""
        return max(1, sum(self._client.nthreads().values()))

    def close(self) -> None:
        """Close the client, if it was opened here."""
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
        return self._retried(
            lambda: self._gathered([self._client.submit(function, *own, pure=False) for own in arguments], tick)
        )

    def run_with(
        self, shared: Any, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown
    ) -> list[Any]:
        """Return what a function says to something that is sent to all workers once and to each set of arguments."""

        def attempt() -> list[Any]:
            sent = _Shared(self._client, shared).future()
            return self._gathered([self._client.submit(function, sent, *own, pure=False) for own in arguments], tick)

        return self._retried(attempt)

    def make(self, function: Callable[..., Any], arguments: Sequence[Arguments], tick: Tick = not_shown) -> list[_Held]:
        """Leave what a function says to each set of arguments on the workers."""
        makers = [(lambda own=own: self._client.submit(function, *own, pure=False)) for own in arguments]
        return self._kept(makers, tick=tick)

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
                totals.append(self._client.submit(_fold, shared, futures, pure=False, **place))
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
        waiting: deque[tuple[int, Any]] = deque()
        coming = iter(range(n_jobs))
        for job in coming:
            waiting.append((job, submit(job)))
            if len(waiting) < 2 * self.n_workers and job + 1 < n_jobs:
                continue
            while waiting and (len(waiting) >= 2 * self.n_workers or job + 1 == n_jobs):
                number, future = waiting.popleft()

                def attempt(number: int = number, future: Any = future) -> Any:
                    if future.status in _LOST:
                        prepare()
                        future = submit(number)
                    return self._gathered([future])[0]

                yield number, self._retried(attempt, parts)

    def _kept(
        self, makers: Sequence[Callable[[], Any]], parts: Sequence[_Held] = (), tick: Tick = not_shown
    ) -> list[_Held]:
        """Wait until all parts are made; raise what went wrong."""
        held: list[_Held] = []

        def attempt() -> None:
            held[:] = [_Held(make(), make) for make in makers]
            self._finished([part.future for part in held], tick)

        self._retried(attempt, parts)
        return held

    def _by_worker(self, parts: Sequence[_Held]) -> list[tuple[str | None, list[Any]]]:
        """Return the parts of each thread of each worker."""
        futures = [part.future for part in parts]
        where = self._client.who_has(futures)
        threads = self._client.nthreads()
        groups: dict[str | None, list[Any]] = defaultdict(list)
        for future in futures:
            holders = [address for address in where.get(future.key, ()) if address in threads]
            groups[min(holders, key=lambda address: len(groups[address])) if holders else None].append(future)
        shares = []
        for address, own in groups.items():
            n = max(1, threads.get(address, 1) if address is not None else 1)
            shares += [(address, own[first::n]) for first in range(min(n, len(own)))]
        return [share for share in shares if share[1]]

    def _gathered(self, futures: Sequence[Any], tick: Tick = not_shown) -> list[Any]:
        self._finished(futures, tick)
        return list(self._client.gather(list(futures)))

    def _finished(self, futures: Sequence[Any], tick: Tick = not_shown) -> None:
        """Wait for futures; raise the error of one that failed, or if there is nobody to work on them."""
        alone_since, n_done = None, 0
        while True:
            try:
                with self._client.as_current():
                    done = self._distributed.wait(list(futures), timeout=2)
            except (TimeoutError, self._distributed.TimeoutError):
                if self._client.status != "running":
                    raise ConnectionError("the client is not connected") from None
                if any(future.status in _LOST for future in futures):  # for these, Dask would wait for ever
                    raise ConnectionError("a worker was lost with what had been sent to it") from None
                n_before, n_done = n_done, sum(future.done() for future in futures)
                tick(n_done - n_before)
                if self._client.nthreads():
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
                    raise future.exception()
            tick(len(futures) - n_done)
            return

    def _retried(self, attempt: Callable[[], T], parts: Sequence[_Held] = ()) -> T:
        """Run what may fail because a worker was lost; put parts back whose data was only there."""
        from concurrent.futures import CancelledError

        for number in range(_ATTEMPTS):
            try:
                if number > 0:
                    for part in parts:
                        if part.future.status in (*_LOST, "error"):
                            part.future = part.again()
                return attempt()
            except DistributedError:
                raise
            except (CancelledError, ConnectionError, self._distributed.CancelledError, self._distributed.KilledWorker,
                    self._distributed.comm.CommClosedError, TimeoutError) as error:  # fmt: skip
                self._check_scheduler(error)
                failure = error
        raise DistributedError(
            f"the workers of the Dask scheduler at {self._address} were lost {_ATTEMPTS} times ({_said(failure)}); do "
            "they have enough memory?"
        ) from failure

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

    def _check_scheduler(self, cause: BaseException) -> None:
        """Raise DistributedError unless the scheduler answers."""
        try:
            if self._client.status != "running":
                raise ConnectionError(f"the client is {self._client.status}")
            self._client.sync(self._client.scheduler.identity, callback_timeout=5)
        except Exception as error:  # whatever it is, there is no scheduler to talk to
            raise DistributedError(
                f"the Dask scheduler at {self._address} was lost ({_said(cause)}); nothing was written, start the fit "
                "again when there is a scheduler"
            ) from error


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


def _fold(fold: Fold, parts: Sequence[Any]) -> Any:
    total = fold.start()
    for events in parts:
        total = fold.add(total, events)
    return total


def _merge(fold: Fold, totals: Sequence[Any]) -> Any:
    return totals[0] if len(totals) == 1 else fold.merge(*totals)


def _split(move: Move, job: int, parts: Sequence[Any]) -> list[Any]:
    return [move.split(job, events) for events in parts]


def _join(move: Move, job: int, groups: Sequence[list[Any]]) -> list[Any]:
    return join_all(move, job, [piece for pieces in groups for piece in pieces])
