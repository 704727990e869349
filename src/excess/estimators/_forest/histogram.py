"""Histograms of packed counts: On weights in the upper 32 bits of a number, Off weights in the lower.

One addition counts an event whatever its label, and a histogram has half the memory of two. The halves cannot run into
each other: they have room for the weights of some 2^31 events, the most that a forest takes. Integer sums are exact, so
that they depend neither on the order of events nor on how these are divided among threads or workers.
"""

from __future__ import annotations

import numpy as np

from excess._core.compilation import njit
from excess.estimators._forest.layout import ON_BIT, WEIGHT_MASK

_ON_SHIFT, _ABOVE, _WEIGHT = np.uint64(ON_BIT), np.uint64(ON_BIT + 1), np.uint64(WEIGHT_MASK)
_ONE, _FIVE = np.uint64(1), np.uint64(5)


@njit(cache=True, nogil=True)
def packed_counts(element):
    """Return the weight of an event as packed counts, from the element that holds label and weight."""
    bits = np.uint64(element)
    # bit 7 is the label, the bits below and above it are the weight; a narrow element has none above, which the
    # compiler knows. The weight is shifted by 32 for On and by 0 for Off, without a branch
    weight = (bits & _WEIGHT) | ((bits >> _ABOVE) << _ON_SHIFT)
    return np.int64(weight << (((bits >> _ON_SHIFT) & _ONE) << _FIVE))


@njit(cache=True, nogil=True)
def _count_four(codes, start, end, label, a, b, c, d, count_a, count_b, count_c, count_d):
    """Fill four histograms in one pass; as separate arguments, their addresses stay in registers."""
    # Records outside, features inside: label and weight are unpacked once for four features, and the codes of a record
    # lie in one or two lines of the cache. The four additions go to different arrays and do not wait for each other.
    for i in range(np.uint64(start), np.uint64(end)):
        counts = packed_counts(codes[i, label])
        count_a[codes[i, a]] += counts
        count_b[codes[i, b]] += counts
        count_c[codes[i, c]] += counts
        count_d[codes[i, d]] += counts


@njit(cache=True, nogil=True)
def _count_one(codes, start, end, label, a, count_a, touched):
    for i in range(np.uint64(start), np.uint64(end)):
        code = codes[i, a]
        count_a[code] += packed_counts(codes[i, label])
        # known when this is compiled: there is one version with marks, for wide codes, and one without
        if touched is not None:
            touched[code >> 6] = 1


@njit(cache=True, nogil=True)
def fill_histograms(codes, start, end, n_features, chosen, histograms, touched):
    """Add the packed counts of records ``start`` to ``end`` to the histograms of the chosen features."""
    label = np.uint64(n_features)  # the element after the codes
    k = 0
    if touched is None:
        # narrow codes: 256 counts of 8 bytes, so that four histograms fit into the first-level cache together
        while k + 4 <= len(chosen):
            _count_four(
                codes, start, end, label,
                np.uint64(chosen[k]), np.uint64(chosen[k + 1]), np.uint64(chosen[k + 2]), np.uint64(chosen[k + 3]),
                histograms[k], histograms[k + 1], histograms[k + 2], histograms[k + 3],
            )  # fmt: skip
            k += 4
        while k < len(chosen):
            _count_one(codes, start, end, label, np.uint64(chosen[k]), histograms[k], None)
            k += 1
    else:
        # wide codes: a histogram may have a count per event; one at a time, to stay in the cache
        while k < len(chosen):
            _count_one(codes, start, end, label, np.uint64(chosen[k]), histograms[k], touched[k])
            k += 1


@njit(cache=True, nogil=True)
def clear_histograms(histograms, touched):
    """Set all histograms to zero."""
    if touched is None:
        for k in range(histograms.shape[0]):
            for code in range(histograms.shape[1]):
                histograms[k, code] = 0
    else:
        # only blocks of 64 counts that were used: a small node must not pay for a histogram as wide as all events
        for k in range(touched.shape[0]):
            for block in range(touched.shape[1]):
                if touched[k, block]:
                    for code in range(64 * block, 64 * block + 64):
                        histograms[k, code] = 0
                    touched[k, block] = 0
