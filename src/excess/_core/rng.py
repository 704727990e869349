"""Counter-based random numbers: every draw is a hash of what it is for, so that no draw depends on another.

A key stands for a seed, a tree or a node; the number of a row or of a draw is the counter. The hash is the
output function of SplitMix64 (Steele, Lea & Flood 2014).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)

MAX_WEIGHT = 12
"""Largest bootstrap weight: a larger Poisson(1) draw is rarer than 2^-32, the resolution of the draws."""


@njit(cache=True, nogil=True)
def draw(key, counter):
    """Return 64 random bits for a key and a counter, both uint64."""
    # Weyl sequence with the golden ratio as its step: neighbouring counters differ in many bits before they are mixed.
    # uint64 arithmetic wraps around, and every step is a bijection of 64 bits: different counters give different draws
    z = key + counter * _GOLDEN
    z = (z ^ (z >> _30)) * _MULTIPLIER_1
    z = (z ^ (z >> _27)) * _MULTIPLIER_2
    return z ^ (z >> _31)


@njit(cache=True, nogil=True)
def derive_key(key, number):
    """Return the key of a part: of a tree under a seed, of a child under a node."""
    # hashed twice, so that the keys of parts have nothing to do with the draws under the same key
    return draw(draw(np.uint64(key), np.uint64(number)), np.uint64(0x5851F42D4C957F2D))


@njit(cache=True, nogil=True)
def choose_features(key, used, chosen):
    """Fill ``chosen`` with distinct features out of ``used``, in their order, all sets equally likely."""
    n_used, n_chosen = len(used), len(chosen)
    if n_chosen == n_used:
        for j in range(n_used):
            chosen[j] = used[j]
        return
    found = 0
    for j in range(n_used):
        # selection sampling: take j with probability (still wanted) / (still left)
        left = np.uint64(n_used - j)
        # 32 bits as a fixed-point number in [0, 1), times left: a whole number from 0 to left - 1 without a division
        fraction = ((draw(key, np.uint64(j)) >> _32) * left) >> _32
        if fraction < np.uint64(n_chosen - found):
            chosen[found] = used[j]
            found += 1
            if found == n_chosen:
                return


def poisson_thresholds() -> NDArray[np.uint64]:
    """Return where the distribution function of Poisson(1) lies among 32-bit numbers."""
    probabilities = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(MAX_WEIGHT)])
    return np.round(probabilities * 2.0**32).astype(np.uint64)


_THRESHOLDS = tuple(int(t) for t in poisson_thresholds())


@njit(cache=True, nogil=True)
def bootstrap_weights(key, first_row, weights):
    """Fill ``weights`` (uint8) with the Poisson(1) weights of consecutive rows in the tree of a key."""
    for i in range(len(weights)):
        bits = np.int64(draw(key, np.uint64(first_row + i)) >> _32)
        # inverse of the distribution function: the weight is the number of thresholds that the draw reaches; all are
        # compared, because an early exit would be a branch that nobody can predict
        weight = 0
        for threshold in _THRESHOLDS:
            weight += bits >= threshold
        weights[i] = weight


def bottom_rows(n_rows: int, n_wanted: int) -> NDArray[np.int64]:
    """Return the rows whose hashes are smallest, ascending: a sample that does not depend on chunking."""
    if n_rows <= n_wanted:
        return np.arange(n_rows)
    hashes = np.empty(n_rows, dtype=np.uint64)
    row_hashes(0, hashes)
    return np.sort(np.argpartition(hashes, n_wanted)[:n_wanted])


@njit(cache=True, nogil=True)
def row_hashes(first_row, hashes):
    """Fill ``hashes`` with those of consecutive rows; no two rows have the same."""
    # one key for all, so that the draws are a bijection of the row numbers: there are no ties in a sample
    for i in range(len(hashes)):
        hashes[i] = draw(np.uint64(0), np.uint64(first_row + i))
