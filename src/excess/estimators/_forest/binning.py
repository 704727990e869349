"""Events as records of codes: memory layout, and bin edges that do not depend on the chunking of rows.

An event is a record of whole 64-bit words: one code per feature, then one element with the label and the bootstrap
weight. A code is 0 for a missing value, else 1 plus the index of the bin. Codes are uint8 ("narrow") or, if a feature
has more than 255 bins, uint32 ("wide"). Records are moved as words and read as codes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._utils.compilation import njit
from excess._utils.rng import bottom_rows

ON_BIT = 7
WEIGHT_MASK = 127
"""Label and weight of an event in one element: bit 7 is set for On, bits 0 to 6 are the weight, at most 12 in a plain
bootstrap. Wide elements allow larger weights: bits 8 to 31 are the next 24 bits of the weight."""

MAX_NARROW_BINS = 255


def code_type(max_bins_used: int) -> type:
    """Return the type of codes for this number of bins."""
    return np.uint8 if max_bins_used <= MAX_NARROW_BINS else np.uint32


def code_mask(codes: NDArray[Any]) -> int:
    """Return the largest code, for arithmetic modulo one more than it."""
    return int(np.iinfo(codes.dtype).max)


def pack_weights(weights: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return weights below 2^31 as wide elements without a label."""
    return ((weights & WEIGHT_MASK) | ((weights >> ON_BIT) << (ON_BIT + 1))).astype(np.uint32)


def empty_records(n_events: int, n_features: int, dtype: Any) -> NDArray[np.uint64]:
    """Allocate records for events with this number of features."""
    # rounded up to whole words; padding at the end of a record is moved but never read
    size = (n_features + 1) * np.dtype(dtype).itemsize
    return np.empty((n_events, -(-size // 8)), dtype=np.uint64)


def as_codes(records: NDArray[np.uint64], dtype: Any) -> NDArray[Any]:
    """View records as codes: column ``j`` is feature ``j``, column ``n_features`` label and weight."""
    return records.view(dtype)


N_SAMPLED = 100_000  # rows used to compute the edges of features with many distinct values
_BLOCK = 256  # rows encoded together, one feature after the other
_TABLE_BITS = 12
"""4096 slots for at most 255 values: a sparse hash table, where most searches end at the first slot."""
_HASH = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(64 - _TABLE_BITS)


def find_edges(column: NDArray[Any], sampled: NDArray[np.int64], max_bins: int | None) -> NDArray[np.float64]:
    """Return the ascending inner edges of a feature's bins; a value equal to an edge belongs below it."""
    if max_bins is None:
        return _midpoints(np.unique(_present(column)))
    values = few_distinct(column, max_bins)
    return edges_of(values, column[sampled] if values is None else column[:0], max_bins)


def edges_of(distinct: NDArray[np.float64] | None, sampled: NDArray[Any], max_bins: int) -> NDArray[np.float64]:
    """Return edges from the distinct values of a feature or, if there are too many (None), from sampled values."""
    if distinct is not None:
        return _midpoints(np.sort(distinct))
    return _quantile_edges(_present(sampled), max_bins)


def sampled_rows(n_rows: int) -> NDArray[np.int64]:
    """Return the rows used to compute the edges of features with many distinct values."""
    return bottom_rows(n_rows, N_SAMPLED)


def pad_edges(edges: list[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the edges of all features in one array, padded with infinity, and the start and end of each feature."""
    starts = np.zeros(len(edges) + 1, dtype=np.int64)
    np.cumsum([1 << len(values).bit_length() for values in edges], out=starts[1:])
    padded = np.full(starts[-1], np.inf)
    for start, values in zip(starts[:-1], edges, strict=True):
        padded[start : start + len(values)] = values
    return padded, starts


@njit(cache=True, nogil=True)
def encode(X, first, last, edges, features, codes):
    """Write the codes of rows ``first`` to ``last`` of X, of some features, into the top rows of ``codes``."""
    padded, starts = edges
    values = np.zeros(_BLOCK)
    below = np.zeros(_BLOCK, dtype=np.int64)
    # blocks outside, features inside: the rows of a block stay in the cache for all features, and so do the edges
    for start in range(first, last, _BLOCK):
        n = min(_BLOCK, last - start)
        for j in features:
            row = padded[starts[j] : starts[j + 1]]
            # converted to float64 once; the last block keeps old values at its end, which get no code
            for i in range(n):
                values[i] = X[start + i, j]
            for i in range(_BLOCK):
                below[i] = 0
            # A binary search for all rows of the block at once: how many edges lie below each value. The length of
            # the edges is a power of two and the last of them infinite, so every row takes the same steps and the
            # count stays below the length. Steps outside, rows inside: a step is a selection without a branch, and the
            # loads of different rows overlap.
            step = len(row) // 2
            while step > 0:
                for i in range(_BLOCK):
                    position = below[i]
                    # unsigned, which avoids a test for negative indices; NaN is below no edge
                    below[i] = position + (step if row[np.uint64(position + step - 1)] < values[i] else 0)
                step >>= 1
            for i in range(n):
                # code 0 is for missing values, so bins start at 1
                codes[start + i - first, j] = 0 if np.isnan(values[i]) else below[i] + 1


@njit(cache=True, nogil=True)
def _collect_distinct(column, limit, table, used, found):
    """Collect the distinct values of a column until there are more than ``limit``; return how many."""
    # open addressing; the number of slots is a power of two, far above the limit
    n_found = 0
    mask = len(table) - 1
    for i in range(len(column)):
        x = np.float64(column[i]) + 0.0  # turns -0.0 into 0.0
        if np.isnan(x):
            continue
        # a float is read as bits through memory: the last element of found is free for that
        found[limit + 1] = x
        # multiplicative hash: the upper bits of the product depend on all bits of the value
        slot = np.int64((found.view(np.uint64)[limit + 1] * _HASH) >> _SHIFT)
        while used[slot] and table[slot] != x:
            slot = (slot + 1) & mask
        if not used[slot]:
            if n_found == limit:  # one too many: most continuous features end here, after a few hundred rows
                return limit + 1
            used[slot] = True
            table[slot] = x
            found[n_found] = x
            n_found += 1
    return n_found


def few_distinct(column: NDArray[Any], limit: int) -> NDArray[np.float64] | None:
    """Return the distinct values of a column, or None if there are more than ``limit``."""
    size = 1 << _TABLE_BITS
    found = np.empty(limit + 2)
    n = _collect_distinct(column, limit, np.empty(size), np.zeros(size, dtype=np.bool_), found)
    return found[:n] if n <= limit else None


def _quantile_edges(values: NDArray[np.float64], max_bins: int) -> NDArray[np.float64]:
    """Cut values into bins of similar size; a frequent value has its own bin, the others share the rest."""
    distinct, counts = np.unique(values, return_counts=True)
    frequent = np.zeros(len(distinct), dtype=np.bool_)
    while True:  # more frequent values leave fewer events for the others, so more of them are frequent
        n_others = max(1, max_bins - np.count_nonzero(frequent))
        now = counts >= max(2.0, counts[~frequent].sum() / n_others)
        if not (now & ~frequent).any():
            break
        frequent |= now
    return _midpoints(distinct)[_cut_into_bins(counts, frequent, max_bins)]


@njit(cache=True, nogil=True)
def _cut_into_bins(counts, frequent, max_bins):
    """Return the last value of each bin but the highest."""
    lasts = np.empty(max_bins - 1, dtype=np.int64)
    n_lasts = 0
    n_frequent = 0
    others = 0
    for i in range(len(counts)):
        if frequent[i]:
            n_frequent += 1
        else:
            others += counts[i]
    # `others`: events of infrequent values, from the open bin on; `in_bin`: those in the open bin
    in_bin = 0
    for i in range(len(counts) - 1):
        if frequent[i]:
            n_frequent -= 1
        else:
            in_bin += counts[i]
        n_free = max_bins - 1 - n_lasts
        if n_free == 0:
            break
        # every frequent value ahead takes an edge below and one above it; the rest is shared evenly
        wanted = (others + 0.0) / max(1, n_free + 1 - 2 * n_frequent)
        # a frequent value starts its own bin, unless all free edges are needed above frequent values
        closes_below = frequent[i + 1] and n_free > n_frequent
        if frequent[i] or closes_below or in_bin >= wanted:
            lasts[n_lasts] = i
            n_lasts += 1
            others -= in_bin
            in_bin = 0
    return lasts[:n_lasts]


def _present(column: NDArray[Any]) -> NDArray[np.float64]:
    values = column[~np.isnan(column)].astype(np.float64)
    values += 0.0  # turns -0.0 into 0.0
    return values


def _midpoints(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = values[:-1], values[1:]
    middle = 0.5 * low + 0.5 * high
    # the middle of neighbouring floats rounds to one of them; at low, low itself is below the edge and high above
    return np.where((middle >= low) & (middle < high), middle, low)
