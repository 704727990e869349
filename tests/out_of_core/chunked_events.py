"""Events of the tests of fits on chunks, in memory and in files."""

import numpy as np

from excess.io import write_events

N_EVENTS = 3000
NAMES = [f"x{j}" for j in range(6)]


def cut(events, ends, groups=None, weights=None):
    """Divide events into chunks that end at some rows, or into a number of equal chunks."""
    X, y = events
    if isinstance(ends, int):
        ends = np.linspace(0, len(y), ends + 1).astype(int)[1:-1]
    chunks = []
    for a, b in zip([0, *ends], [*ends, len(y)], strict=True):
        chunk = X.iloc[a:b], y[a:b], None if groups is None else groups[a:b], None if weights is None else weights[a:b]
        chunks.append(chunk if weights is not None else chunk[: 2 if groups is None else 3])
    return chunks


def write_files(events, folder, suffix="parquet", **columns):
    """Write events, with further columns, into four files; return their paths."""
    X, y = events
    table = X.assign(on=y, **columns)
    paths = []
    for number, (first, last) in enumerate([(0, 700), (700, 1900), (1900, 2000), (2000, N_EVENTS)]):
        paths.append(folder / f"{number}.{suffix}")
        write_events(table.iloc[first:last], paths[-1])
    return paths
