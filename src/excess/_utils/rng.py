"""Counter-based random numbers: every draw is a hash of its purpose, so no draw depends on another.

A key represents a seed, a tree or a node; the index of a row or of a draw is the counter. The hash is the
output function of SplitMix64 (Steele, Lea & Flood 2014).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._utils.compilation import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)

MAX_WEIGHT = 12  # maximum bootstrap weight: a larger Poisson(1) draw is rarer than 2^-32, the resolution of the draws
WEIGHT_LIMIT = 127  # maximum weight in the record of an event
LARGEST_FACTOR = 16.0  # maximum number of events represented by one: weights above the limit are rarer than 10^-5
SHARE_OF_GROUPS = 0.8  # probability that a group is in the bag of a tree: more than 1 - 1/e, because groups may be few


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
    """Return the key of a part, such as of a tree from a seed, or of a child from a node."""
    # hashed twice, so keys of parts are independent of the draws under the same key
    return draw(draw(np.uint64(key), np.uint64(number)), np.uint64(0x5851F42D4C957F2D))


@njit(cache=True, nogil=True)
def choose_features(key, used, chosen):
    """Fill ``chosen`` with distinct features out of ``used``, in order, with equal probability of all sets."""
    n_used, n_chosen = len(used), len(chosen)
    if n_chosen == n_used:
        for j in range(n_used):
            chosen[j] = used[j]
        return
    found = 0
    for j in range(n_used):
        # selection sampling: take j with probability (still needed) / (still available)
        left = np.uint64(n_used - j)
        # 32 bits as a fixed-point number in [0, 1), times left: an integer from 0 to left - 1 without a division
        fraction = ((draw(key, np.uint64(j)) >> _32) * left) >> _32
        if fraction < np.uint64(n_chosen - found):
            chosen[found] = used[j]
            found += 1
            if found == n_chosen:
                return


# values of the distribution function of Poisson(1) as 32-bit numbers
_POISSON = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(MAX_WEIGHT)])
_THRESHOLDS = tuple(int(threshold) for threshold in np.round(_POISSON * 2.0**32))


@njit(cache=True, nogil=True)
def bootstrap_weights(key, first_row, weights):
    """Fill ``weights`` (uint8) with the Poisson(1) weights of consecutive rows in the tree of a key."""
    for i in range(len(weights)):
        bits = np.int64(draw(key, np.uint64(first_row + i)) >> _32)
        # inverse of the distribution function: the weight is the number of thresholds that the draw reaches; all are
        # compared, because an early exit would be an unpredictable branch
        weight = 0
        for threshold in _THRESHOLDS:
            weight += bits >= threshold
        weights[i] = weight


@njit(cache=True, nogil=True)
def scale_weights(key, first_row, part_row, factors, limit, weights):
    """Multiply the bootstrap weights (uint8) of consecutive rows by factors, with stochastic rounding."""
    for i in range(len(weights)):
        # the lower half of the draw: the upper one determined the bootstrap weight
        low = draw(key, np.uint64(first_row + i)) & _LOW
        # below the limit it is uniform, and is used for the rounding as well
        scaled = min(np.int64(weights[i] * factors[part_row + i] + np.float64(low) / limit), WEIGHT_LIMIT)
        weights[i] = scaled if low < limit else 0


@njit(cache=True, nogil=True)
def thin_weights(key, first_row, limit, weights):
    """Set the weights (uint8) of consecutive rows to 0 unless the lower half of their draw is below a limit."""
    for i in range(len(weights)):
        weights[i] *= np.uint8((draw(key, np.uint64(first_row + i)) & _LOW) < limit)


WHOLE_BAG = np.uint64(1 << 32)


def bag_limit(share: float) -> np.uint64:
    """Return the limit of draws that keeps a fraction of the events of positive bootstrap weight in a bag."""
    # excluded events are not used by the tree, but do not count as out of bag
    return np.uint64(round(share * 2.0**32))


@njit(cache=True, nogil=True)
def choose_groups(keys, in_bag):
    """Fill ``in_bag`` (uint8, trees by groups) with 1 if a group is in the bag of the tree of a key, else 0."""
    for tree in range(len(keys)):
        # the key of a tree has three parts: 0 for the weights of its bag, 1 for its root, 2 for its groups
        key = derive_key(keys[tree], 2)
        n_in, lowest, highest = 0, 0, 0
        for group in range(in_bag.shape[1]):
            bits = draw(key, np.uint64(group))
            is_in = np.float64(bits >> _32) < SHARE_OF_GROUPS * 2.0**32
            in_bag[tree, group] = is_in
            n_in += is_in
            if bits < draw(key, np.uint64(lowest)):
                lowest = group
            if bits > draw(key, np.uint64(highest)):
                highest = group
        # if all are on one side, the closest to the other side changes; draws of groups are distinct
        if n_in == 0:
            in_bag[tree, lowest] = 1
        elif n_in == in_bag.shape[1]:
            in_bag[tree, highest] = 0


@njit(cache=True, nogil=True)
def bag_weights(key, first_row, part_row, groups, in_bag, tree, factors, limit, weights):
    """Fill ``weights`` (uint8) of consecutive rows in the bag of the tree of a key, see `bag_limit`."""
    bootstrap_weights(key, first_row, weights)
    # known at compile time: in the plain case only the bags of many events are thinned
    if factors is not None:
        scale_weights(key, first_row, part_row, factors, limit, weights)
    elif limit < WHOLE_BAG:
        thin_weights(key, first_row, limit, weights)
    if groups is not None:
        for i in range(len(weights)):
            weights[i] *= in_bag[tree, groups[part_row + i]]


def bottom_rows(n_rows: int, n_wanted: int) -> NDArray[np.int64]:
    """Return the rows with the smallest hashes, ascending: a sample that does not depend on chunking."""
    if n_rows <= n_wanted:
        return np.arange(n_rows)
    hashes = np.empty(n_rows, dtype=np.uint64)
    row_hashes(0, hashes)
    return np.sort(np.argpartition(hashes, n_wanted)[:n_wanted])


@njit(cache=True, nogil=True)
def row_hashes(first_row, hashes):
    """Fill ``hashes`` of consecutive rows; all are distinct."""
    # one key for all, so the draws are a bijection of the row numbers: a sample has no ties
    for i in range(len(hashes)):
        hashes[i] = draw(np.uint64(0), np.uint64(first_row + i))


def hash_rows(X: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return a hash of each row, equal for equal rows, and for others with probability 2^-64."""
    key = np.zeros(len(X), dtype=np.uint64)
    for column in range(X.shape[1]):
        values = X[:, column] + 0.0  # converts -0 to 0
        key ^= np.ascontiguousarray(values).view(np.uint64)
        # the finaliser of splitmix64
        key += _GOLDEN
        key = (key ^ (key >> _30)) * _MULTIPLIER_1
        key = (key ^ (key >> _27)) * _MULTIPLIER_2
        key ^= key >> _31
    return key


N_SKETCHED = 256  # number of training events with hashes stored in a model
NO_SKETCH = np.empty(0, dtype=np.uint64)


def sketch_rows(X: Any) -> NDArray[np.uint64]:
    """Return the hashes of some training events, by which a model recognises them; empty for non-numeric events."""
    try:
        rows = bottom_rows(len(X), N_SKETCHED)  # sparse events have no length
        sampled = np.asarray(X.iloc[rows] if hasattr(X, "iloc") else X[rows], dtype=np.float64)
    except (TypeError, ValueError):
        return NO_SKETCH
    return np.unique(hash_rows(sampled)) if sampled.ndim == 2 else NO_SKETCH


def share_sketched(sketch: NDArray[np.uint64], X: Any) -> float:
    """Return the fraction of sketched training events among new events; 0 if rows are equal by chance."""
    try:
        keys = np.unique(hash_rows(np.asarray(X, dtype=np.float64)))
    except (TypeError, ValueError, IndexError):
        return 0.0
    # with discrete features, different events may have equal rows
    return float(np.isin(sketch, keys).mean()) if len(sketch) and len(keys) > 0.9 * len(X) else 0.0
