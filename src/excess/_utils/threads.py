"""Threads, progress bars, numbers with errors as text, and small HTML tables for notebooks."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from html import escape
from typing import Any, NamedTuple, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from sklearn import config_context, get_config
from threadpoolctl import ThreadpoolController

from excess._utils.checks import as_int

T = TypeVar("T")
Item = TypeVar("Item")


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads for ``n_jobs``."""
    if n_jobs is not None and as_int("n_jobs", n_jobs, minimum=-(2**31)) == 0:
        raise ValueError("n_jobs must not be 0; -1 means all cores")
    return effective_n_jobs(n_jobs)


def map_threaded(
    function: Callable[[Item], T], items: Iterable[Item], n_threads: int, *, limit_blas: bool = False
) -> Iterator[T]:
    """Call a function with each item on threads, and yield the results in the order of the items."""
    with ThreadpoolController().limit(limits=1, user_api="blas") if limit_blas else nullcontext():
        if n_threads <= 1:
            yield from map(function, items)
            return
        config = get_config()

        def call(item: Item) -> T:
            # not scikit-learn's Parallel: it sets the warning filters of the whole process from every thread
            with config_context(**config):
                return function(item)

        pool = Parallel(n_threads, require="sharedmem", return_as="generator", batch_size=1)
        yield from pool(delayed(call)(item) for item in items)


def run_tasks(
    tasks: Iterable[int], work: Callable[[int, Any], None], make_memory: Callable[[], Any], n_threads: int
) -> None:
    """Call ``work(task, memory)`` for every task, on threads with separate memory."""
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
                waiting.clear()  # stops the other threads after their present task
                raise

    n_used = max(1, min(n_threads, len(waiting)))
    try:
        for _ in map_threaded(serve, range(n_used), n_used):
            pass
    finally:
        waiting.clear()  # after an interrupt


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Return an iterator that reads the next item on a thread while the present one is processed; starts at once."""
    reading = ThreadPoolExecutor(1)
    first = reading.submit(next, items, None)

    def remaining() -> Iterator[Item]:
        coming = first
        with reading:
            while (item := coming.result()) is not None:
                coming = reading.submit(next, items, None)
                yield item

    return remaining()


@contextmanager
def progress_bar(description: str, total: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts finished steps; with ``shown``, a bar with the remaining time is displayed."""
    if not shown:
        yield lambda steps: None
        return
    from rich import progress
    from rich.console import Console

    times = progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), progress.TimeRemainingColumn()
    columns = progress.TextColumn("{task.description}"), progress.BarColumn(), *times
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda steps: bar.advance(task, steps)


_CELL = "padding: 0.2em 0.8em; white-space: nowrap; "


class Row(NamedTuple):
    """A row of a table: name, values as text, and whether it is highlighted."""

    name: str
    cells: Sequence[str]
    strong: bool = False


def html_table(columns: Sequence[str], rows: Sequence[Row], *, caption: str = "", notes: Sequence[str] = ()) -> str:
    """Return a table with a caption above and paragraphs below; all text is escaped."""
    head = _cells("th", columns, "bold")
    lines = [_cells("td", [row.name, *row.cells], "bold" if row.strong else "normal") for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    title = f'<caption style="text-align: left; color: inherit">{escape(caption)}</caption>' if caption else ""
    below = "".join(f'<p style="margin: 0.3em 0; max-width: 60em">{escape(note)}</p>' for note in notes)
    table = f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{table}{below}</div>"


def _cells(tag: str, texts: Sequence[str], weight: str) -> str:
    """Return the cells of a row, with the first one aligned to the left."""
    sides = ["left"] + ["right"] * (len(texts) - 1)
    styles = (f"{_CELL}text-align: {side}; font-weight: {weight}" for side in sides)
    return "".join(f'<{tag} style="{own}">{escape(text)}</{tag}>' for text, own in zip(texts, styles, strict=True))
