"""Compilation of the kernels ahead of the first use, with a warning to the user when it takes a while.

Numba compiles a kernel for the types of its first call and keeps the result on disk, so that this happens once per
machine. Later processes load it in a fraction of a second. What is on disk belongs to the sources it was compiled from;
numba looks at one file only for that, so that a fingerprint of all of them is kept beside it.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray

from excess._core import rng
from excess._core.compilation import is_compiling
from excess.estimators._forest import ensemble, grower, predictor
from excess.estimators._forest.layout import MAX_NARROW_BINS
from excess.stats import score_kernels

_SECONDS_BEFORE_WARNING = 2.0

_ready: set[tuple[Any, ...]] = set()
_lock = threading.Lock()
_logger = logging.getLogger("excess")


def compile_kernels(X: NDArray[Any], max_bins: int | None) -> None:
    """Run all kernels once on a few rows of the type of X, unless that was done before in this process."""
    wide = max_bins is None and len(X) > MAX_NARROW_BINS
    kind = (X.dtype, X.flags.c_contiguous, X.flags.f_contiguous, X.flags.writeable, wide)
    if not is_compiling():
        return
    with _lock:
        if kind in _ready:
            return
        for kernel in (grower.grow_tree, score_kernels.count_resamples):
            if kernel.stats.cache_path is not None:  # else nothing is kept
                drop_stale_kernels(Path(str(kernel.stats.cache_path)))
        n_rows = MAX_NARROW_BINS + 45 if wide else 45
        few = np.zeros((n_rows, X.shape[1]), dtype=X.dtype, order="F" if X.flags.f_contiguous else "C")
        few += np.arange(n_rows, dtype=X.dtype)[:, None]
        if not (X.flags.c_contiguous or X.flags.f_contiguous):
            few = np.repeat(few, 2, axis=1)[:, ::2]
        few.flags.writeable = X.flags.writeable
        with _warn_if_slow():
            events = ensemble.bin_events(few, np.arange(n_rows) % 3 == 0, max_bins, n_threads=1)
            keys = ensemble.tree_keys(0, 1)
            settings = ensemble.GrowthSettings(2, 1.0, np.arange(X.shape[1]))
            tree = ensemble.TreeSettings(keys[0], 0, 0, 1, X.shape[1])
            trees = predictor.flatten(ensemble.grow_trees(events, [tree], settings, n_threads=1))
            values = np.zeros(len(trees.nodes))
            ensemble.score_out_of_bag(events.codes, 0, [ensemble.BaggedTrees(trees, values, keys)], n_threads=1)
            ensemble.mean_scores(few, events.edges, trees, values, n_threads=1)
            ensemble.leaf_numbers(few, events.edges, trees, n_threads=1)
        _ready.add(kind)


def drop_stale_kernels(cache: Path) -> None:
    """Remove compiled kernels from a cache folder unless they stem from the present sources."""
    digest = hashlib.sha256()
    for source in [*sorted(Path(__file__).parent.glob("*.py")), Path(rng.__file__), Path(score_kernels.__file__)]:
        text = source.read_bytes()
        digest.update(text if b"@njit" in text else b"")
    stamp = cache / "excess-kernels.sha256"
    with suppress(OSError):  # a folder that cannot be written holds nothing that could be stale
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        cache.mkdir(parents=True, exist_ok=True)
        for compiled in [*cache.glob("*.nbi"), *cache.glob("*.nbc")]:
            compiled.unlink(missing_ok=True)
        stamp.write_text(digest.hexdigest())


@contextmanager
def _warn_if_slow() -> Iterator[None]:
    timer = threading.Timer(_SECONDS_BEFORE_WARNING, _warn_if_compiling)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _warn_if_compiling() -> None:
    """Say that kernels are compiled, if that is so: on a busy machine, loading them may take a while as well."""
    modules = [module for name, module in sys.modules.items() if name.startswith("excess.estimators._forest.")]
    kernels = [value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)]
    if any(sum(kernel.stats.cache_misses.values()) for kernel in kernels):
        _logger.warning("Compiling the forest for this machine; this takes some seconds, once.")
