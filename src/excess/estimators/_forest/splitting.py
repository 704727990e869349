"""Split criteria, histograms of packed counts, and the resulting split of a node.

With ``f(x) = x ln x``, ``I(on, off) = f(on) + f(off) - f(on + off)`` is minus the entropy of a node times its number
of events, and Li & Ma's ``S^2 / 2 = I(on, off) - on ln q - off ln(1 - q)``. Of ``S_left^2 + S_right^2`` only the ``I``
depend on the split, for any alpha, so it ranks splits like information gain.

Histograms have On weights in the upper 32 bits of a number, Off weights in the lower. One addition counts an event
of either label, and a histogram has half the memory of two. The halves cannot overflow: they have room for the weights
of about 2^31 events, the maximum of a forest. Integer sums are exact, so they depend neither on the order of events nor
on their distribution over threads or workers.
"""

import math

import numpy as np

from excess._utils.compilation import njit
from excess.estimators._forest.binning import ON_BIT, WEIGHT_MASK

INFORMATION, LI_MA = 0, 1
CRITERIA = {"information": INFORMATION, "li_ma": LI_MA}

TABLE_SIZE = 1 << 16  # counts below this size use a table of ``x ln x``; larger ones are rare enough to compute it


@njit(cache=True, nogil=True)
def x_log_x_table(size):
    """Return ``x ln x`` for x = 0, 1, ..., size - 1."""
    # 0 ln 0 and 1 ln 1 are 0
    table = np.zeros(size)
    for x in range(2, size):
        table[x] = x * math.log(x)
    return table


@njit(cache=True, nogil=True)
def x_log_x(x, table):
    """Return ``x ln x`` of an integer."""
    # the same expression as in the table
    return table[x] if x < len(table) else x * math.log(x)


@njit(cache=True, nogil=True)
def information(on, off, table):
    """Return minus the entropy of a node times its number of events."""
    return x_log_x(on, table) + x_log_x(off, table) - x_log_x(on + off, table)


@njit(cache=True, nogil=True)
def li_ma(on, off, alpha, log_alpha, log_1p_alpha, table):
    """Return ``S^2 / 2``, one-sided: 0 for a deficit. The logarithms are those of alpha and of 1 + alpha."""
    # with q = alpha / (1 + alpha): -on ln q - off ln(1 - q) = -on ln alpha + (on + off) ln(1 + alpha), so the two
    # logarithms are computed once per node and the table covers the rest
    if on <= alpha * off:
        return 0.0
    return information(on, off, table) - on * log_alpha + (on + off) * log_1p_alpha


@njit(cache=True, nogil=True)
def scan_pairs(cells, n_cells, on, units, alpha, table, found):
    """Write, for each feature, the maximum ``S^2 / 2`` of a rectangle in a plane of this feature and another one.

    ``cells`` are small numbers of shape (n_features, n_events), ``units`` weights of events as integers, or None.
    """
    log_alpha, log_1p_alpha = math.log(alpha), math.log1p(alpha)
    sums = np.zeros((2, n_cells + 1, n_cells + 1), dtype=np.int64)
    for a in range(1, len(cells)):
        for b in range(a):
            sums[:] = 0
            for i in range(len(on)):
                sums[1 if on[i] else 0, cells[a, i] + 1, cells[b, i] + 1] += 1 if units is None else units[i]
            # cumulative sums over cells, from which the counts of any rectangle follow
            for label in range(2):
                for i in range(1, n_cells + 1):
                    for j in range(1, n_cells + 1):
                        sums[label, i, j] += sums[label, i - 1, j] + sums[label, i, j - 1] - sums[label, i - 1, j - 1]
            best = 0.0
            for low in range(n_cells):
                for high in range(low + 1, n_cells + 1):
                    for left in range(n_cells):
                        n_on_left = sums[1, high, left] - sums[1, low, left]
                        n_off_left = sums[0, high, left] - sums[0, low, left]
                        for right in range(left + 1, n_cells + 1):
                            n_on = sums[1, high, right] - sums[1, low, right] - n_on_left
                            n_off = sums[0, high, right] - sums[0, low, right] - n_off_left
                            excess = n_on - alpha * n_off
                            # a divergence is at most chi-squared: few rectangles require logarithms
                            if excess > 0 and excess * excess > best * alpha * (n_on + n_off):
                                best = max(best, li_ma(n_on, n_off, alpha, log_alpha, log_1p_alpha, table))
            found[a], found[b] = max(found[a], best), max(found[b], best)


_ON_SHIFT, _ABOVE, _WEIGHT = np.uint64(ON_BIT), np.uint64(ON_BIT + 1), np.uint64(WEIGHT_MASK)
_ONE, _FIVE = np.uint64(1), np.uint64(5)


@njit(cache=True, nogil=True)
def packed_counts(element):
    """Return the weight of an event as packed counts, from the element with label and weight."""
    bits = np.uint64(element)
    # bit 7 is the label, the bits below and above it are the weight; a narrow element has none above, which is known
    # at compile time. The weight is shifted by 32 for On and by 0 for Off, without a branch
    weight = (bits & _WEIGHT) | ((bits >> _ABOVE) << _ON_SHIFT)
    return np.int64(weight << (((bits >> _ON_SHIFT) & _ONE) << _FIVE))


@njit(cache=True, nogil=True)
def _count_four(codes, start, end, label, a, b, c, d, count_a, count_b, count_c, count_d):
    """Fill four histograms in one pass; as separate arguments, their addresses stay in registers."""
    # Records outside, features inside: label and weight are unpacked once for four features, and the codes of a record
    # are in one or two cache lines. The four additions go to different arrays and are independent.
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
        # known at compile time: one version with marks, for wide codes, and one without
        if touched is not None:
            touched[code >> 6] = 1


@njit(cache=True, nogil=True)
def fill_histograms(codes, start, end, n_features, chosen, histograms, touched):
    """Add the packed counts of records ``start`` to ``end`` to the histograms of the chosen features."""
    label = np.uint64(n_features)  # the element after the codes
    k = 0
    if touched is None:
        # narrow codes: 256 counts of 8 bytes, so four histograms fit into the first-level cache together
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
        # only used blocks of 64 counts: a small node must not clear a histogram as wide as all events
        for k in range(touched.shape[0]):
            for block in range(touched.shape[1]):
                if touched[k, block]:
                    for code in range(64 * block, 64 * block + 64):
                        histograms[k, code] = 0
                    touched[k, block] = 0


BEST, RANDOM = 0, 1
SPLITTERS = {"best": BEST, "random": RANDOM}

_LOW = np.int64(0xFFFFFFFF)
_32 = np.int64(32)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@njit(cache=True, nogil=True, inline="always")
def _value_of(left, right, criterion, alpha, log_alpha, log_1p_alpha, table):
    """Return the criterion of a split, from the packed counts of its two sides."""
    on_left, off_left, on_right, off_right = left >> _32, left & _LOW, right >> _32, right & _LOW
    if criterion == INFORMATION:
        return information(on_left, off_left, table) + information(on_right, off_right, table)
    return max(
        li_ma(on_left, off_left, alpha, log_alpha, log_1p_alpha, table),
        li_ma(on_right, off_right, alpha, log_alpha, log_1p_alpha, table),
    )


@njit(cache=True, nogil=True)
def _first_reaching(sums, first, last, offset, wanted):
    """Return the first position in ``first`` to ``last`` with this many events above ``offset``, or ``last``."""
    # A branch-free binary search: the direction is nearly random, and a branch would be mispredicted.
    # Invariant: the result is in first..first + n; sums never decrease, because counts are non-negative.
    n = last - first
    while n > 0:
        half = n >> 1
        left = sums[np.uint64(first + half)] - offset
        is_below = (left >> _32) + (left & _LOW) < wanted
        first = first + half + 1 if is_below else first
        n = n - half - 1 if is_below else half
    return first


@njit(cache=True, nogil=True)
def _search_information(sums, first, last, offset, total, table, best_value):
    """Return the largest information of the splits after positions ``first`` to ``last``, and its position."""
    # The hot loop of a fit: unsigned indices avoid the test for negative ones, and the caller has checked that the
    # table is long enough, so a candidate takes six loads and no branch except the last, which is rarely taken.
    best_position = -1
    for position in range(np.uint64(first), np.uint64(last)):
        left = sums[position] - offset
        right = total - left
        on_left, off_left = np.uint64(left >> _32), np.uint64(left & _LOW)
        on_right, off_right = np.uint64(right >> _32), np.uint64(right & _LOW)
        value = (table[on_left] + table[off_left] - table[on_left + off_left]) + (
            table[on_right] + table[off_right] - table[on_right + off_right]
        )
        if value > best_value:
            best_value, best_position = value, np.int64(position)
    return best_value, best_position


@njit(cache=True, nogil=True)
def search_feature(present, n_present, total, min_leaf, criterion, alpha, table, best_value):
    """Find the best split of one feature, if it exceeds ``best_value``; see `present_codes`."""
    codes, sums = present[0], present[1]
    # Counts stay packed in additions and subtractions: both halves at once, without a carry between them,
    # because no half of a part exceeds that of the node.
    best_position = -1
    best_missing_left = False
    best_left = np.int64(0)
    n_total = (total >> _32) + (total & _LOW)
    log_alpha, log_1p_alpha = math.log(alpha), math.log1p(alpha)
    any_missing = codes[0] == 0  # codes ascend, so code 0 can only come first
    # one pass with missing values on the right and, if the node has any, a second one with them on the left
    for missing_left in range(2 if any_missing else 1):
        missing_right = any_missing and missing_left == 0
        offset = sums[0] if missing_right else np.int64(0)
        # The left side only grows, so the positions with enough events on either side are contiguous. With missing
        # values on the left, they alone are the first candidate.
        first = _first_reaching(sums, 1 if missing_right else 0, n_present, offset, min_leaf)
        last = _first_reaching(sums, first, n_present, offset, n_total - max(min_leaf, 1) + 1)
        # strictly larger: among equal splits the first one wins, the lowest code of the lowest feature
        position = -1
        if criterion == INFORMATION and n_total < len(table):
            best_value, position = _search_information(sums, first, last, offset, total, table, best_value)
        else:
            for place in range(first, last):
                left = sums[place] - offset
                value = _value_of(left, total - left, criterion, alpha, log_alpha, log_1p_alpha, table)
                if value > best_value:
                    best_value, position = value, place
        if position >= 0:
            best_position, best_missing_left, best_left = position, missing_left == 1, sums[position] - offset
    return best_value, best_position, best_missing_left, best_left


@njit(cache=True, nogil=True)
def draw_border(present, n_present, total, min_leaf, bits):
    """Draw one split of a feature, from 64 random bits; arguments as for `search_feature`."""
    codes, sums = present[0], present[1]
    n_total = (total >> _32) + (total & _LOW)
    any_missing = codes[0] == 0
    missing_left = any_missing and (bits & _ONE) == _ONE
    missing_right = any_missing and not missing_left
    start, offset = (1, sums[0]) if missing_right else (0, np.int64(0))
    first = _first_reaching(sums, start, n_present, offset, min_leaf)
    last = _first_reaching(sums, first, n_present, offset, n_total - max(min_leaf, 1) + 1)
    if first == last:
        return -1, False, np.int64(0)
    # possible codes of the border: up to the one before the next with events
    lowest = codes[first] if codes[first] > 0 else codes[1] - 1
    highest = codes[last] - 1 if last < n_present else codes[last - 1]
    # the upper 32 bits as a number in [0, 1), times the number of codes
    code = lowest + np.int64(((bits >> _HALF) * np.uint64(highest - lowest + 1)) >> _HALF)
    place = first
    while place + 1 < last and codes[place + 1] <= code:
        place += 1
    return code, missing_left, sums[place] - offset


@njit(cache=True, nogil=True)
def value_of_split(left, total, criterion, alpha, table):
    """Return the criterion of a split, from the packed counts on its left and those of the node."""
    return _value_of(left, total - left, criterion, alpha, math.log(alpha), math.log1p(alpha), table)


@njit(cache=True, nogil=True)
def present_codes(counts, n_codes, touched, present):
    """Write the codes with events, ascending, and the cumulative counts of each, as rows of ``present``.

    Return their number. ``touched`` marks blocks of 64 codes, if given.
    """
    # A code is always written and the index advances by 0 or 1, without a branch to mispredict; present has one column
    # more than there are codes. The cumulative counts serve every candidate of the search.
    codes, sums = present[0], present[1]
    n_present = np.uint64(0)
    total = np.int64(0)
    if touched is None:
        for code in range(n_codes):
            total += counts[code]
            codes[n_present], sums[n_present] = code, total
            n_present += np.uint64(counts[code] != 0)
    else:
        for block in range((n_codes + 63) // 64):
            if touched[block]:
                for code in range(64 * block, min(64 * block + 64, n_codes)):
                    total += counts[code]
                    codes[n_present], sums[n_present] = code, total
                    n_present += np.uint64(counts[code] != 0)
    return np.int64(n_present)


@njit(cache=True, nogil=True)
def value_to_exceed(total, criterion, alpha, table):
    """Return the criterion of an unsplit node, plus a bound of rounding errors."""
    on, off = total >> _32, total & _LOW
    if criterion == INFORMATION:
        value = information(on, off, table)
    else:
        value = max(li_ma(on, off, alpha, math.log(alpha), math.log1p(alpha), table), 0.0)
    # the terms are of order n ln n and cancel, so rounding errors are proportional to it
    return value + 1e-13 * (1.0 + x_log_x(on + off, table))


@njit(cache=True, nogil=True)
def place_border(present, n_present, position, n_codes):
    """Return the largest code that goes left: in the middle of the following empty codes, for a symmetric border."""
    code = present[0, position]
    if code == 0:  # missing values go left, all others right
        return code
    if position + 1 == n_present:  # missing values go right, all others left, including codes missing in the node
        return n_codes - 1
    return (code + present[0, position + 1] - 1) // 2
