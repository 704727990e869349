"""Work on threads: one way to run it, joblib's, with results in order; and reading ahead of the work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from sklearn import config_context, get_config
from threadpoolctl import ThreadpoolController

from excess._core.checks import as_int

T = TypeVar("T")
Item = TypeVar("Item")


def n_threads(n_jobs: int | None) -> int:
    """Return how many threads ``n_jobs`` means."""
    if n_jobs is not None and as_int("n_jobs", n_jobs, minimum=-(2**31)) == 0:
        raise ValueError("n_jobs must not be 0; -1 means all cores")
    return effective_n_jobs(n_jobs)


def map_threaded(
    function: Callable[[Item], T], items: Iterable[Item], n_threads: int, *, limit_blas: bool = False
) -> Iterator[T]:
    """Call a function with each item, on threads, and yield what it returns, in the order of the items.

    Items are taken as threads become free, so that they may come from a generator. After an error no further item is
    begun. Functions see scikit-learn's configuration of the caller.

    Parameters
    ----------
    function : callable
        Called with one item.
    items : iterable
        What to work on.
    n_threads : int
        Threads; with 1, everything runs in the thread of the caller.
    limit_blas : bool, default=False
        Let linear algebra run on one thread inside each call. Results then do not depend on the number of threads, and
        libraries that set this limit for the whole process find it set and leave it so.
    """
    with ThreadpoolController().limit(limits=1, user_api="blas") if limit_blas else nullcontext():
        if n_threads <= 1:
            yield from map(function, items)
            return
        config = get_config()

        def call(item: Item) -> T:
            # not scikit-learn's own Parallel: it sets the warning filters of the whole process from every thread
            with config_context(**config):
                return function(item)

        pool = Parallel(n_threads, require="sharedmem", return_as="generator", batch_size=1)
        yield from pool(delayed(call)(item) for item in items)


def run_tasks(
    tasks: Iterable[int], work: Callable[[int, Any], None], make_memory: Callable[[], Any], n_threads: int
) -> None:
    """Call ``work(task, memory)`` for every task, on threads that each have a memory of their own."""
    waiting = deque(tasks)  # threads take tasks from it and clear it at an error, both of which are atomic

    def serve(_: int) -> None:
        memory = make_memory()
        while waiting:
            try:
                task = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                work(task, memory)
            except BaseException:
                waiting.clear()  # so that the other threads stop after their present task
                raise

    n_used = max(1, min(n_threads, len(waiting)))
    try:
        for _ in map_threaded(serve, range(n_used), n_used):
            pass
    finally:
        waiting.clear()  # after an interrupt


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Return an iterator whose next item is read on a thread while the present one is worked on; reading begins now."""
    reading = ThreadPoolExecutor(1)
    first = reading.submit(next, items, None)

    def remaining() -> Iterator[Item]:
        coming = first
        with reading:
            while (item := coming.result()) is not None:
                coming = reading.submit(next, items, None)
                yield item

    return remaining()
