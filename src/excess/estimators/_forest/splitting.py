"""The split of a node, in the histograms of its features: the best one of each, or one that is drawn at random."""

from __future__ import annotations

import math

import numpy as np

from excess._core.compilation import njit
from excess.estimators._forest.criterion import INFORMATION, information, li_ma, x_log_x

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
def search_feature(counts, present, n_present, total, min_leaf, criterion, alpha, table, best_value):
    """Find the best split in one feature's histogram, if it exceeds ``best_value``.

    ``counts`` has packed counts (On in the upper 32 bits, Off in the lower) per code, where code 0 counts missing
    values; ``total`` are those of the node. The first ``n_present`` elements of ``present`` are the codes with events,
    ascending. Returns the value of the best split (or ``best_value``), where in ``present`` the largest code is that
    goes left (-1 if nothing exceeds ``best_value``), whether missing values go left, and the packed counts on the left.
    """
    # Counts stay packed while they are added and subtracted: both halves at once, without a carry between them,
    # because no half of a part exceeds that of the node.
    best_position = -1
    best_missing_left = False
    best_left = np.int64(0)
    n_total = (total >> _32) + (total & _LOW)
    log_alpha, log_1p_alpha = math.log(alpha), math.log1p(alpha)
    any_missing = present[0] == 0  # codes ascend, so that code 0 can only come first
    # one pass with missing values on the right and, if the node has any, a second one with them on the left
    for missing_left in range(2 if any_missing else 1):
        left = np.int64(0)
        # with missing values on the left, they alone are the first candidate
        for position in range(1 if any_missing and missing_left == 0 else 0, n_present):
            # invariant: left holds the counts of all codes up to this one, and of missing values on the second pass
            left += counts[present[position]]
            n_left = (left >> _32) + (left & _LOW)
            n_right = n_total - n_left
            if n_left < min_leaf:
                continue
            if n_right < min_leaf or n_right == 0:
                break  # the right side only shrinks from here on
            value = _value_of(left, total - left, criterion, alpha, log_alpha, log_1p_alpha, table)
            # strictly: among equal splits the first one wins, the lowest code of the lowest feature
            if value > best_value:
                best_value, best_position = value, position
                best_missing_left, best_left = missing_left == 1, left
    return best_value, best_position, best_missing_left, best_left


@njit(cache=True, nogil=True)
def draw_border(counts, present, n_present, total, min_leaf, bits):
    """Draw one split of a feature, from 64 random bits; arguments as for `search_feature`.

    All borders between codes that leave enough events on either side are equally likely, also those between empty
    codes; missing values go to either side. Returns the largest code that goes left (-1 if no border is possible),
    whether missing values go left, and the packed counts on the left.
    """
    n_total = (total >> _32) + (total & _LOW)
    any_missing = present[0] == 0
    missing_left = any_missing and (bits & _ONE) == _ONE
    start = 1 if any_missing and not missing_left else 0
    # the places with enough events on either side are neighbours: the left side only grows, the right one only shrinks
    first, last = -1, -1
    left = np.int64(0)
    for position in range(start, n_present):
        left += counts[present[position]]
        n_left = (left >> _32) + (left & _LOW)
        n_right = n_total - n_left
        if n_right < min_leaf or n_right == 0:
            break
        if n_left >= min_leaf:
            first, last = (position if first < 0 else first), position
    if first < 0:
        return -1, False, np.int64(0)
    # the codes that the border may follow: up to the one before the next that holds events
    lowest = present[first] if present[first] > 0 else present[1] - 1
    highest = present[last + 1] - 1 if last + 1 < n_present else present[last]
    # the upper 32 bits as a number in [0, 1), times the number of codes
    code = lowest + np.int64(((bits >> _HALF) * np.uint64(highest - lowest + 1)) >> _HALF)
    left = np.int64(0)
    for position in range(start, n_present):
        if present[position] > code:
            break
        left += counts[present[position]]
    return code, missing_left, left


@njit(cache=True, nogil=True)
def value_of_split(left, total, criterion, alpha, table):
    """Return the criterion of a split, from the packed counts on its left and those of the node."""
    return _value_of(left, total - left, criterion, alpha, math.log(alpha), math.log1p(alpha), table)


@njit(cache=True, nogil=True)
def present_codes(counts, n_codes, touched, present):
    """List the codes with events, ascending; return how many. ``touched`` marks blocks of 64 codes, if given."""
    # A code is always written and the number moves on by 0 or 1, so that there is no branch to mispredict; present has
    # one element more than there are codes.
    n_present = 0
    if touched is None:
        for code in range(n_codes):
            present[n_present] = code
            n_present += counts[code] != 0
    else:
        for block in range((n_codes + 63) // 64):
            if touched[block]:
                for code in range(64 * block, min(64 * block + 64, n_codes)):
                    present[n_present] = code
                    n_present += counts[code] != 0
    return n_present


@njit(cache=True, nogil=True)
def value_to_exceed(total, criterion, alpha, table):
    """Return the criterion of a node that is not split, plus what rounding may pretend."""
    on, off = total >> _32, total & _LOW
    if criterion == INFORMATION:
        value = information(on, off, table)
    else:
        value = max(li_ma(on, off, alpha, math.log(alpha), math.log1p(alpha), table), 0.0)
    # the terms are as large as n ln n and cancel, so that rounding errors are in proportion to it
    return value + 1e-13 * (1.0 + x_log_x(on + off, table))


@njit(cache=True, nogil=True)
def place_border(present, n_present, position, n_codes):
    """Return the largest code that goes left: in the middle of the empty codes that follow, for a fairer border."""
    code = present[position]
    if code == 0:  # missing values go left, all others right
        return code
    if position + 1 == n_present:  # missing values go right, all others left, also those that the node does not hold
        return n_codes - 1
    return (code + present[position + 1] - 1) // 2
