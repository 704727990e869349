"""Compilation of the kernels ahead of the first use, with a word to the user when it takes a while.

Numba compiles a kernel for the types of its first call and keeps the result on disk, so that this happens once per
machine. Later processes load it in a fraction of a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._forest import ensemble, predictor
from excess._forest.layout import MAX_NARROW_BINS

_PATIENCE = 2.0
"""Seconds without a word."""

_ready: set[tuple[Any, ...]] = set()
_lock = threading.Lock()
_logger = logging.getLogger("excess")


def compile_kernels(X: NDArray[Any], max_bins: int | None) -> None:
    """Run all kernels once on a few rows of the type of X, unless that was done before in this process."""
    wide = max_bins is None and len(X) > MAX_NARROW_BINS
    kind = (X.dtype, X.flags.c_contiguous, X.flags.f_contiguous, wide)
    with _lock:
        if kind in _ready:
            return
        n_rows = MAX_NARROW_BINS + 45 if wide else 45
        few = np.zeros((n_rows, X.shape[1]), dtype=X.dtype, order="F" if X.flags.f_contiguous else "C")
        few += np.arange(n_rows, dtype=X.dtype)[:, None]
        if not (X.flags.c_contiguous or X.flags.f_contiguous):
            few = np.repeat(few, 2, axis=1)[:, ::2]
        with _word_if_slow():
            events = ensemble.bin_events(few, np.arange(n_rows) % 3 == 0, max_bins, n_threads=1)
            keys = ensemble.tree_keys(0, 1)
            settings = ensemble.GrowthSettings(2, 1, X.shape[1], 1.0, bootstrap=True)
            trees = predictor.flatten(ensemble.grow_trees(events, keys, [0], settings, n_threads=1))
            values = np.zeros(len(trees.nodes))
            ensemble.out_of_bag_scores(events, trees, values, keys, n_threads=1)
            ensemble.mean_scores(few, events.edges, trees, values, n_threads=1)
        _ready.add(kind)


@contextmanager
def _word_if_slow() -> Iterator[None]:
    message = "Compiling the forest for this machine; this takes some seconds, once."
    timer = threading.Timer(_PATIENCE, _logger.warning, (message,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
