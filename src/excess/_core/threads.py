"""Tasks side by side on threads, with results in order and nothing left running."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sklearn import config_context, get_config
from threadpoolctl import ThreadpoolController


def in_order(tasks: Iterable[Callable[[], Any]], n_threads: int) -> Iterator[Any]:
    """Run tasks on so many threads and give their results in order; a failed task ends the others that have not begun.

    Every task sees scikit-learn's configuration of the caller. Linear algebra runs on one thread inside each task, so
    that results do not depend on the number of threads, and so that libraries which set that limit for themselves, for
    the whole process, find it set and leave it so.
    """
    config = get_config()

    def run(task: Callable[[], Any]) -> Any:
        with config_context(**config):
            return task()

    with ThreadpoolController().limit(limits=1, user_api="blas"):
        if n_threads <= 1:
            yield from (task() for task in tasks)
            return
        waiting: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(n_threads) as pool:
            try:
                for task in tasks:
                    waiting.append(pool.submit(run, task))
                    if len(waiting) > 2 * n_threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
