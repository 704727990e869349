"""The workers of a Dask cluster that take part: those that have the version of this process.

Tasks are restricted to them. So a worker that joins during a fit gets no task before it has told its version, and one
that is lost while it is asked is not waited for.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from time import monotonic, sleep
from typing import Any

from excess._core.version import __version__
from excess.distributed.dask_connection import Connection, first_line, in_words
from excess.distributed.executors import DistributedError

__all__ = ["Workers"]

_logger = logging.getLogger("excess")

_ANSWER = 10.0
"""Seconds for the workers that are there at the beginning to tell their versions; others are admitted later."""
_FRESH = 0.5
"""Seconds for which the list of workers is not asked for again."""
_POLL = 0.2


class Workers:
    """Workers that have the version of this process.

    Parameters
    ----------
    connection : Connection
        The connection to their scheduler.

    Raises
    ------
    DistributedError
        If the scheduler or a worker that is there now has another version, or none.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._refreshed = float("-inf")
        self._present: dict[str, tuple[str, int]] = {}  # address and threads, by the identity of the process
        self._problems: dict[str, str] = {}  # why a worker is left out, empty if it is not
        self._asked: dict[str, Future[Any]] = {}
        problem = _problem_of(connection.run_on_scheduler(_make_question()))
        if problem:
            raise DistributedError(f"the Dask scheduler at {connection.address} {problem}")
        end = monotonic() + min(connection.patience, _ANSWER)
        self._refresh()
        while self._asked and monotonic() < end:
            wait_for_all(self._asked.values(), timeout=_POLL)
            self._refresh()
        for process, problem in self._problems.items():
            if problem:
                raise DistributedError(f"the Dask worker at {self._present[process][0]} {problem}")
        self._told = set(self._problems)

    def threads(self) -> dict[str, int]:
        """Return the threads of each worker that takes part, by its address."""
        if monotonic() - self._refreshed > _FRESH:
            self._refresh()
            self._tell_problems()
        admitted = [self._present[process] for process, problem in self._problems.items() if not problem]
        return dict(sorted(admitted))

    def wait_for_some(self) -> dict[str, int]:
        """Return `threads` when there are any.

        Raises
        ------
        DistributedError
            If there are none for too long.
        """
        end = monotonic() + self._connection.patience
        while not (found := self.threads()):
            if monotonic() > end:
                raise DistributedError(self.describe_absence(self._connection.patience))
            sleep(_POLL)
        return found

    def describe_absence(self, seconds: float) -> str:
        """Say that no worker has taken part for some seconds, and what to do."""
        start, time = f"the Dask scheduler at {self._connection.address} has had no workers", in_words(seconds)
        for process, problem in self._problems.items():
            return f"{start} that can be used for {time}: the worker at {self._present[process][0]} {problem}"
        for address, _ in self._present.values():
            return f"{start} that answer for {time}: the one at {address} does not; restart it"
        return f"{start} for {time}; start some with 'dask worker'"

    def _refresh(self) -> None:
        """Ask which workers there are, ask new ones for their versions, and take in the answers."""
        self._present = self._connection.run_on_scheduler(list_workers)
        self._refreshed = monotonic()
        for process in self._asked.keys() - self._present.keys():
            self._asked.pop(process).cancel()
        for process in self._problems.keys() - self._present.keys():
            del self._problems[process]
        for process, (address, _) in self._present.items():
            if process in self._problems:
                continue
            if process not in self._asked:
                self._asked[process] = self._ask(address)
            elif self._asked[process].done():
                answer = self._asked.pop(process)
                found = answer.exception() or answer.result().get(address, OSError("no answer"))
                if not isinstance(found, OSError):  # else the connection has failed; asked again if it is still there
                    self._problems[process] = _problem_of(found)

    def _ask(self, address: str) -> Future[Any]:
        # not as a task, for which a worker may have no time or no memory
        async def call() -> Any:
            return await self._connection.client.run(_make_question(), workers=[address], on_error="return")

        return self._connection.start(call)

    def _tell_problems(self) -> None:
        """Warn of workers that are left out, once of each."""
        for process in self._problems.keys() - self._told:
            self._told.add(process)
            if self._problems[process]:
                _logger.warning(
                    "The Dask worker at %s is left out: it %s", self._present[process][0], self._problems[process]
                )


def list_workers(dask_scheduler: Any) -> dict[str, tuple[str, int]]:
    """Return address and threads of each worker, by the identity of its process; runs on the scheduler."""
    return {worker.server_id: (worker.address, worker.nthreads) for worker in dask_scheduler.workers.values()}


def _make_question() -> Any:
    """Return the function that finds the version of this package, which is sent as code."""

    def find_version() -> str | None:  # there may be no package to import it from
        import importlib
        from importlib.util import find_spec

        return None if find_spec("excess") is None else str(importlib.import_module("excess").__version__)

    return find_version


def _problem_of(version: Any) -> str:
    """Return what is wrong with the version that a process has found."""
    if version == __version__:
        return ""
    if isinstance(version, BaseException):
        return f"cannot import excess ({first_line(version)}); install {__version__} everywhere"
    found = "no excess" if version is None else f"excess {version}"
    return f"has {found}, here it is {__version__}; install the same everywhere"
