"""Reading of ctapipe files: array events and telescope images, against ctapipe's own TableLoader in the same run.

The file is written with ctapipe's functions. Both sides read the same columns into memory.
The third line has what an analysis needs: statistics of the images of each shower, which TableLoader does not compute.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ctapipe_files import write_ctapipe

from excess.io import describe, read_events

N_EVENTS = 100_000
N_TELESCOPES = 8
N_RUNS = 5


def seconds(call: Callable[[], object]) -> float:
    """Return the median time of some calls."""
    times = []
    for _ in range(N_RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def load(path: Path, method: str) -> object:
    """Read a file with ctapipe."""
    from ctapipe.io import TableLoader

    with TableLoader(path) as loader:
        return getattr(loader, method)()


def read(path: Path, names: list[str], rows: str) -> object:
    """Read a file that was not described before."""
    os.utime(path)
    return read_events(path, names, rows=rows)


def main() -> None:
    """Write a file, read it both ways, and fail where ours is slower."""
    from ctapipe.io import TableLoader

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.dl2.h5")
        write_ctapipe(path, N_EVENTS, n_signal=0, n_telescopes=N_TELESCOPES)
        info = describe(path)
        size = path.stat().st_size / 2**20
        console = Console()
        console.print(
            f"{info.n_events:,} array events, {info.n_images:,} images, {size:.0f} MiB; medians of {N_RUNS} runs"
        )
        table = Table("rows", "columns", "TableLoader [s]", "excess [s]", "ratio")
        slower = []
        for rows, method in (("events", "read_subarray_events"), ("telescopes", "read_telescope_events")):
            with TableLoader(path) as loader:
                some = getattr(loader, method)(stop=10)
                names = [name for name in some.colnames if some[name].ndim == 1]
            theirs = seconds(lambda method=method: load(path, method))
            ours = seconds(lambda names=names, rows=rows: read(path, names, rows))
            table.add_row(rows, str(len(names)), f"{theirs:.2f}", f"{ours:.2f}", f"{theirs / ours:.1f}")
            if ours > theirs:
                slower.append(rows)
        stored = info.stored_columns
        table.add_row("showers", str(len(stored)), "", f"{seconds(lambda: read(path, stored, 'events')):.2f}", "")
        console.print(table)
        if slower:
            sys.exit(f"slower than TableLoader: {', '.join(slower)}")


if __name__ == "__main__":
    main()
