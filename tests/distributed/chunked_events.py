"""Events of the tests of fits on chunks, in memory and in files."""

from itertools import pairwise

import numpy as np

from excess.events import write_events

N_EVENTS = 3000
NAMES = [f"x{j}" for j in range(6)]


def cut(events, n_chunks):
    """Divide events into chunks."""
    X, y = events
    ends = np.linspace(0, len(y), n_chunks + 1).astype(int)
    return [(X.iloc[a:b], y[a:b]) for a, b in pairwise(ends)]


def write_files(events, folder, suffix="parquet"):
    """Write events into four files; return their paths."""
    X, y = events
    paths = []
    for number, (first, last) in enumerate([(0, 700), (700, 1900), (1900, 2000), (2000, N_EVENTS)]):
        paths.append(folder / f"{number}.{suffix}")
        write_events(X.iloc[first:last].assign(on=y[first:last]), paths[-1])
    return paths
