"""Moving records: the bag of a tree out of all records, and the children of a node out of its records.

Whole records move, left ones to the front and right ones to the back of the node's range in a second buffer, so that
all reading is sequential and the records of a small node lie in the cache.
"""

from __future__ import annotations

import numpy as np

from excess._core.compilation import njit

_ONE = np.uint64(1)
_BLOCK = np.uint64(256)
"""Records that are moved word by word; indices are unsigned, which spares a test for negative ones."""


@njit(cache=True, nogil=True)
def take_bag(records, codes, n_features, weights, bag, bag_codes):
    """Copy the records of positive weight into ``bag`` and note the weight there; return how many they are."""
    n_words, n_rows, label = np.uint64(records.shape[1]), np.uint64(len(weights)), np.uint64(n_features)
    places = np.empty(_BLOCK, dtype=np.uint64)
    start = place = np.uint64(0)
    while start < n_rows:
        n = min(_BLOCK, n_rows - start)
        # Pass 1: where each record of the block goes. A third of the weights are 0, at random, so that a branch would
        # often be mispredicted; instead the place moves on by 0 or 1 and nothing is skipped.
        for r in range(n):
            places[r] = place
            place += np.uint64(weights[start + r] > 0)
        # Pass 2: the words of the records. A record of weight 0 is written where the next one goes and is overwritten
        # by it; the bag has room for one record more than there are events, in case that the last one is dropped.
        for word in range(n_words):
            for r in range(n):
                bag[places[r], word] = records[start + r, word]
        # Pass 3: the weight, into the low bits beside the label; in the original records those are 0
        for r in range(n):
            bag_codes[places[r], label] = codes[start + r, label] | weights[start + r]
        start += n
    return np.int64(place)


@njit(cache=True, nogil=True)
def partition(records, codes, start, end, feature, shift, limit, mask, moved):
    """Move the records ``start`` to ``end`` into the same range of ``moved``, left ones first; return the border."""
    n_words, column = np.uint64(records.shape[1]), np.uint64(feature)
    shift, limit, mask = np.uint64(shift), np.uint64(limit), np.uint64(mask)
    places = np.empty(_BLOCK, dtype=np.uint64)
    first, last = np.uint64(start), np.uint64(end)
    # Invariant: `front` is the next free place of the left child, `back` that of the right one, which fills from the
    # end; back - front + 1 records are still to come, so that the two meet exactly when all have been placed.
    front, back = first, last - _ONE
    while first < last:
        n = min(_BLOCK, last - first)
        for r in range(n):
            # modulo 2^bits: with shift 1 a missing value, code 0, wraps around to the largest number and goes right
            right = np.uint64(((np.uint64(codes[first + r, column]) - shift) & mask) > limit)
            # front or back, chosen by arithmetic: which way a record goes is as good as random
            places[r] = front + (back - front) * right
            front += _ONE - right
            back -= right
        # words outside, records inside: the loop over the few words of a record would be too short as the inner one
        for word in range(n_words):
            for r in range(n):
                moved[places[r], word] = records[first + r, word]
        first += n
    return np.int64(front)
