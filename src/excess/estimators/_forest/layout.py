"""How events and nodes lie in memory.

An event is a record of whole 64-bit words: one code per feature, then one element that holds the label and the
bootstrap weight. A code is 0 for a missing value, else 1 plus the number of the bin. Codes are uint8 ("narrow") or,
where a feature has more than 255 bins, uint32 ("wide"). Records are moved as words and read as codes.

A node is a row of a table of int64. Its left and right child are neighbours. An event goes left when
``(code - shift) mod 2^bits <= limit``: with ``shift`` 0 missing values go left, with ``shift`` 1 they wrap around to
the largest number and go right. A leaf is its own left child, and everything goes left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FEATURE, SHIFT, LIMIT, LEFT, N_ON, N_OFF = range(6)
"""Columns of a node."""
START, END, DEPTH = range(6, 9)
"""Columns of a node while its tree grows: its records and its depth."""
N_COLUMNS, N_COLUMNS_GROWING = 6, 9

ON_BIT = 7
WEIGHT_MASK = 127
"""Label and weight of an event in one element: bit 7 is set for On, bits 0 to 6 are the weight, at most 12 in a plain
bootstrap. Wide elements have room for larger weights: bits 8 to 31 are the next 24 bits of the weight."""

MAX_NARROW_BINS = 255


def code_type(max_bins_used: int) -> type:
    """Return the type of codes for so many bins."""
    return np.uint8 if max_bins_used <= MAX_NARROW_BINS else np.uint32


def code_mask(codes: NDArray[Any]) -> int:
    """Return the largest code, for arithmetic modulo one more than it."""
    return int(np.iinfo(codes.dtype).max)


def pack_weights(weights: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return weights below 2^31 as wide elements without a label."""
    return ((weights & WEIGHT_MASK) | ((weights >> ON_BIT) << (ON_BIT + 1))).astype(np.uint32)


def empty_records(n_events: int, n_features: int, dtype: Any) -> NDArray[np.uint64]:
    """Allocate records for events with so many features."""
    # rounded up to whole words; what is left over at the end of a record is moved but never read
    size = (n_features + 1) * np.dtype(dtype).itemsize
    return np.empty((n_events, -(-size // 8)), dtype=np.uint64)


def as_codes(records: NDArray[np.uint64], dtype: Any) -> NDArray[Any]:
    """View records as codes: column ``j`` is feature ``j``, column ``n_features`` label and weight."""
    return records.view(dtype)
