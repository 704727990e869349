"""The watch over tasks on a Dask cluster: it tells slow work from a standstill.

There is progress as long as a worker executes a task or receives data, or anything has changed since the last look; a
task may take any time. Without progress, there is a warning first and an error when the patience is over.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, time
from typing import Any

from excess.distributed.dask_connection import Connection, in_words
from excess.distributed.dask_workers import Workers
from excess.distributed.executors import DistributedError

__all__ = ["StandstillError", "Watch"]

_logger = logging.getLogger("excess")

_SILENT = 5
"""A worker that is busy may be silent for this many times the patience, which is 5 minutes, as Dask itself allows."""
_HEARD = 10.0
"""Seconds for which it is known what a worker executes; later, it may be any task that it was sent."""
_WARNING = 0.25
"""Part of the patience after which a standstill is told."""
_NOT_RECEIVED = "not received"
"""State of a task that is on its way to the scheduler."""


class StandstillError(DistributedError):
    """Nothing has moved, but there are workers that could run the tasks."""


class Watch:
    """Looks at tasks until they are finished.

    Parameters
    ----------
    connection : Connection
        The connection to the scheduler.
    workers : Workers
        The workers that take part.
    """

    def __init__(self, connection: Connection, workers: Workers) -> None:
        self._connection, self._workers = connection, workers
        self._started = self._moved = self._own_moved = monotonic()
        self._last: _Look | None = None
        self._told: set[str] = set()
        self._allowed: frozenset[str] = frozenset()

    def look(self, futures: Sequence[Any]) -> None:
        """Look at tasks; raise if they cannot be finished.

        Raises
        ------
        ConnectionError
            If the workers of a task are lost, so that it must be sent to others.
        StandstillError
            If nothing has moved for too long, although there are workers.
        DistributedError
            If there are none, or the scheduler does not answer.
        """
        self._connection.check_connected()
        admitted = self._workers.threads()
        self._extend(futures, frozenset(admitted))
        keys = [future.key for future in futures]
        seen = _Look(**self._connection.run_on_scheduler(look_at_tasks, keys, list(admitted)))
        if seen.n_orphans:
            raise ConnectionError("the workers of a task are gone")
        self._judge(seen, admitted)

    def _judge(self, seen: _Look, admitted: dict[str, int]) -> None:
        """Raise if nothing has moved for too long; warn before, once of each cause."""
        patience, silence = self._connection.patience, _SILENT * self._connection.patience
        now, last, self._last = monotonic(), self._last, seen
        for address, worker in seen.workers.items():
            if worker["n_executing"] and patience < worker["silent"] <= silence:
                self._tell(
                    address,
                    f"The Dask worker at {address} has not been heard of for {in_words(worker['silent'])}; waiting for "
                    f"up to {in_words(silence)}",
                )
        if last is None or seen.states != last.states or seen.is_executing(silence, "n_own"):
            self._moved = self._own_moved = now
            return
        arriving = _NOT_RECEIVED in seen.states and now - self._started < silence
        if arriving or seen.totals != last.totals or seen.is_moving(silence):
            self._moved = now
            if now - self._own_moved > patience and seen.is_executing(silence):
                address = self._connection.address
                self._tell("others", f"The workers of the Dask scheduler at {address} have tasks of others; waiting")
            return
        waited = now - self._moved
        if waited > patience:
            reason = self._describe(seen, admitted, patience)
            raise StandstillError(reason) if seen.can_run(patience) else DistributedError(reason)
        if waited > _WARNING * patience:
            reason = self._describe(seen, admitted, waited)
            self._tell("standstill", f"{reason[0].upper()}{reason[1:]}; waiting for up to {in_words(patience)}")

    def _extend(self, futures: Sequence[Any], admitted: frozenset[str]) -> None:
        """Allow workers that were admitted since the last look to take over tasks."""
        if admitted <= self._allowed:
            return
        pending = {future.key: list(admitted) for future in futures if future.status == "pending"}
        with suppress(KeyError):  # a task that the scheduler has not received yet; tried again at the next look
            self._connection.ask("set_restrictions", worker=pending)
            self._allowed = admitted

    def _tell(self, what: str, message: str) -> None:
        """Log a message, once."""
        if what not in self._told:
            self._told.add(what)
            _logger.warning("%s", message)

    def _describe(self, seen: _Look, admitted: dict[str, int], seconds: float) -> str:
        """Say why nothing has moved for some seconds, and what to do."""
        if not admitted:
            return self._workers.describe_absence(seconds)
        start = (
            f"no task has moved on the workers of the Dask scheduler at {self._connection.address} for "
            f"{in_words(seconds)}"
        )
        silent = [address for address, worker in seen.workers.items() if worker["silent"] > self._connection.patience]
        if silent:
            worst = max(silent, key=lambda address: seen.workers[address]["silent"])
            return f"{start}: the one at {worst} does not answer; restart it"
        paused = [address for address, worker in seen.workers.items() if worker["status"] == "paused"]
        if paused:
            fullest = max(paused, key=lambda address: seen.workers[address]["memory"])
            memory, limit = (f"{seen.workers[fullest][what] / 2**20:,.0f}" for what in ("memory", "limit"))
            of_all = "all" if len(paused) == len(admitted) else f"{len(paused)} of {len(admitted)}"
            return (
                f"{start}: {of_all} are paused at their memory limit, such as the one at {fullest} with "
                f"{memory} of {limit} MiB; give them more memory, or start more workers"
            )
        states = ", ".join(f"{number} {state}" for state, number in sorted(seen.states.items()))
        return f"{start} ({states}); restart the workers"


@dataclass(frozen=True)
class _Look:
    """What `look_at_tasks` has seen."""

    states: dict[str, int]  # of tasks that are not finished
    n_orphans: int  # of these, tasks none of whose workers is there
    workers: dict[str, dict[str, Any]]  # that take part
    holders: list[str]  # of finished tasks, whose results may be on the way

    @property
    def totals(self) -> dict[str, Any]:
        """What changes when workers do anything."""
        return {address: worker["totals"] for address, worker in self.workers.items()}

    def can_run(self, silence: float) -> bool:
        """Say whether a worker could start a task."""
        return any(worker["status"] == "running" and worker["silent"] <= silence for worker in self.workers.values())

    def is_executing(self, silence: float, which: str = "n_executing") -> bool:
        """Say whether workers that were heard of lately execute tasks, any or own ones."""
        return any(worker[which] for worker in self.workers.values() if worker["silent"] <= silence)

    def is_moving(self, silence: float) -> bool:
        """Say whether workers that were heard of lately are at work, or send the results."""
        silent = {address for address, worker in self.workers.items() if worker["silent"] > silence}
        if not self.states:
            return not silent.intersection(self.holders)
        # what comes from a silent worker may never come
        is_receiving = not silent and any(worker["n_receiving"] for worker in self.workers.values())
        return is_receiving or self.is_executing(silence)


def look_at_tasks(keys: Collection[Any], admitted: Collection[str], dask_scheduler: Any) -> dict[str, Any]:
    """Return what the scheduler knows of tasks, of those that they depend on, and of workers; runs on the scheduler."""
    tasks, now = dask_scheduler.tasks, time()
    states: Counter[str] = Counter()
    n_orphans, n_missing = 0, sum(key not in tasks for key in keys)
    if n_missing:
        states[_NOT_RECEIVED] = n_missing
    waiting = [tasks[key] for key in keys if key in tasks]
    seen = set(waiting)
    holders: set[str] = set()
    while waiting:
        task = waiting.pop()
        if task.state == "memory":
            holders |= {worker.address for worker in task.who_has}
        elif task.state != "erred":
            states[task.state] += 1
            allowed = task.worker_restrictions or ()
            n_orphans += task.state == "no-worker" and not any(worker in dask_scheduler.workers for worker in allowed)
            new = set(task.dependencies) - seen
            seen |= new
            waiting += [dependency for dependency in new if dependency.state != "memory"]
    workers = {}
    for address in admitted:
        worker = dask_scheduler.workers.get(address)
        if worker is not None:
            metrics, silent = worker.metrics, now - worker.last_seen
            executing = worker.executing if silent < _HEARD else worker.processing  # it may have begun since
            transfer = metrics.get("transfer", {})
            workers[address] = {
                "status": worker.status.name,
                "silent": silent,
                "n_executing": len(executing),
                "n_own": sum(task in seen for task in executing),
                "n_receiving": transfer.get("incoming_count", 0),
                "memory": metrics.get("memory", 0),
                "limit": worker.memory_limit or 0,
                "totals": [
                    worker.nbytes,
                    transfer.get("incoming_count_total"),
                    transfer.get("outgoing_count_total"),
                    metrics.get("spilled_bytes", {}).get("disk"),
                ],
            }
    return {
        "states": dict(states),
        "n_orphans": n_orphans,
        "workers": workers,
        "holders": sorted(holders),
    }
