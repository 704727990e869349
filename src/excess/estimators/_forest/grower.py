"""Growth of one tree, depth first, and the records that move with it.

Whole records move, left ones to the front and right ones to the back of the node's range in a second buffer, so all
reading is sequential and the records of a small node stay in the cache. Counts are integers, so the result depends
neither on the order of the records nor on the number of threads.

A node is a row of a table of int64. Its left and right child are neighbours. An event goes left when
``(code - shift) mod 2^bits <= limit``: with ``shift`` 0 missing values go left, with ``shift`` 1 they wrap around to
the largest number and go right. A leaf is its own left child, and everything goes left.
"""

import numpy as np

from excess._utils.compilation import njit
from excess._utils.rng import bag_weights, choose_features, derive_key, draw
from excess.estimators._forest.splitting import (
    RANDOM,
    clear_histograms,
    draw_border,
    fill_histograms,
    packed_counts,
    place_border,
    present_codes,
    search_feature,
    value_of_split,
    value_to_exceed,
)

FEATURE, SHIFT, LIMIT, LEFT, N_ON, N_OFF = range(6)  # columns of a node
START, END, DEPTH = range(6, 9)  # columns of a node while its tree grows: its records and its depth
N_COLUMNS, N_COLUMNS_GROWING = 6, 9
_ONE = np.uint64(1)
_BLOCK = np.uint64(256)
"""Records, moved word by word; indices are unsigned, which avoids a test for negative ones."""


@njit(cache=True, nogil=True)
def take_bag(records, codes, n_features, weights, bag, bag_codes):
    """Copy the records of positive weight into ``bag`` with their weights; return their number."""
    n_words, n_rows, label = np.uint64(records.shape[1]), np.uint64(len(weights)), np.uint64(n_features)
    rows = np.empty(_BLOCK + _ONE, dtype=np.uint64)
    start = place = np.uint64(0)
    while start < n_rows:
        n = min(_BLOCK, n_rows - start)
        # Pass 1: the selected records of the block. At least a third of the weights are 0, at random, so a branch would
        # often be mispredicted; instead every row is written, and overwritten unless it is selected.
        n_taken = np.uint64(0)
        for r in range(start, start + n):
            rows[n_taken] = r
            n_taken += np.uint64(weights[r] > 0)
        # Pass 2: the words of the records
        for word in range(n_words):
            for r in range(n_taken):
                bag[place + r, word] = records[rows[r], word]
        # Pass 3: the weight, into the low bits next to the label; in the original records those are 0
        for r in range(n_taken):
            bag_codes[place + r, label] = codes[rows[r], label] | weights[rows[r]]
        start += n
        place += n_taken
    return np.int64(place)


@njit(cache=True, nogil=True)
def partition(records, codes, start, end, feature, shift, limit, mask, moved):
    """Move the records ``start`` to ``end`` into the same range of ``moved``, left ones first; return the border."""
    n_words, column = np.uint64(records.shape[1]), np.uint64(feature)
    shift, limit, mask = np.uint64(shift), np.uint64(limit), np.uint64(mask)
    places = np.empty(_BLOCK, dtype=np.uint64)
    first, last = np.uint64(start), np.uint64(end)
    # Invariant: `front` is the next free place of the left child, `back` that of the right one, which fills from the
    # end; back - front + 1 records are still to come, so the two meet exactly when all have been placed.
    front, back = first, last - _ONE
    while first < last:
        n = min(_BLOCK, last - first)
        for r in range(n):
            # modulo 2^bits: with shift 1 a missing value, code 0, wraps around to the largest number and goes right
            right = np.uint64(((np.uint64(codes[first + r, column]) - shift) & mask) > limit)
            # front or back, selected by arithmetic: the direction of a record is nearly random
            places[r] = front + (back - front) * right
            front += _ONE - right
            back -= right
        # words outside, records inside: an inner loop over the few words of a record would be too short
        for word in range(n_words):
            for r in range(n):
                moved[places[r], word] = records[first + r, word]
        first += n
    return np.int64(front)


_LOW = np.int64(0xFFFFFFFF)
_32 = np.int64(32)


@njit(cache=True, nogil=True)
def _find_split(
    node, nodes, keys, codes, n_features, used, n_codes, chosen, histograms, touched, present,
    splitter, min_leaf, criterion, alpha, table, left_counts,
):  # fmt: skip
    """Write the split of a node into its row; return whether there is one."""
    # features are drawn by the key of the node, independent of when or where it is searched
    choose_features(keys[node], used, chosen)
    fill_histograms(codes, nodes[node, START], nodes[node, END], n_features, chosen, histograms, touched)
    found = search_node(
        node, nodes, keys[node], n_features, n_codes, chosen, histograms, touched, present,
        splitter, min_leaf, criterion, alpha, table, left_counts,
    )  # fmt: skip
    clear_histograms(histograms, touched)  # the next node expects empty histograms
    return found


@njit(cache=True, nogil=True)
def search_node(
    node, nodes, key, n_features, n_codes, chosen, histograms, touched, present,
    splitter, min_leaf, criterion, alpha, table, left_counts,
):  # fmt: skip
    """Write the best split in the histograms of a node's features into its row; return whether there is one."""
    total = (nodes[node, N_ON] << _32) | nodes[node, N_OFF]
    # each feature must exceed the best one so far, and the first must exceed the unsplit node
    best_value = value_to_exceed(total, criterion, alpha, table)
    found = False
    for k in range(len(chosen)):
        feature = chosen[k]
        # two calls, because numba types None and an array differently: each version is compiled with one of them
        if touched is None:
            n_present = present_codes(histograms[k], n_codes[feature], None, present)
        else:
            n_present = present_codes(histograms[k], n_codes[feature], touched[k], present)
        better = False
        if splitter == RANDOM:
            # counters below n_features were used to select the features
            bits = draw(key, np.uint64(n_features + feature))
            code, missing_left, left = draw_border(present, n_present, total, min_leaf, bits)
            if code >= 0:
                value = value_of_split(left, total, criterion, alpha, table)
                better = value > best_value
        else:
            value, position, missing_left, left = search_feature(
                present, n_present, total, min_leaf, criterion, alpha, table, best_value
            )
            better = position >= 0
            if better:
                code = place_border(present, n_present, position, n_codes[feature])
        if better:
            found = True
            best_value = value
            if present[0, 0] != 0:
                # without missing values in this node, later ones go with the majority
                n_left = (left >> _32) + (left & _LOW)
                missing_left = 2 * n_left >= nodes[node, N_ON] + nodes[node, N_OFF]
            nodes[node, FEATURE] = feature
            # with shift 1, codes are compared after the subtraction of 1: the limit moves with them
            nodes[node, SHIFT] = 0 if missing_left else 1
            nodes[node, LIMIT] = code if missing_left else code - 1
            left_counts[node] = left
    return found


@njit(cache=True, nogil=True)
def grow_tree(
    records, codes, n_features, used, n_codes, key, bootstrap, groups, in_bag, tree, factors, limit,
    max_depth, splitter, min_leaf, criterion, alpha, table, mask,
    weights, bag, bag_codes, moved, moved_codes, chosen, histograms, touched, present,
):  # fmt: skip
    """Grow a tree on records; return its nodes in breadth-first order."""
    # the key of a tree has two parts: 0 for the weights of its bag, 1 for its root
    if bootstrap:
        bag_weights(derive_key(key, 0), 0, 0, groups, in_bag, tree, factors, limit, weights)
    elif factors is None:
        for i in range(len(weights)):
            weights[i] = 1
    else:
        for i in range(len(weights)):
            weights[i] = factors[i]
    n_bag = take_bag(records, codes, n_features, weights, bag, bag_codes)
    return grow_bag(
        n_bag, n_features, used, n_codes, derive_key(key, 1), 0,
        max_depth, splitter, min_leaf, criterion, alpha, table, mask,
        bag, bag_codes, moved, moved_codes, chosen, histograms, touched, present,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def grow_bag(
    n_bag, n_features, used, n_codes, root_key, root_depth,
    max_depth, splitter, min_leaf, criterion, alpha, table, mask,
    bag, bag_codes, moved, moved_codes, chosen, histograms, touched, present,
):  # fmt: skip
    """Grow a tree, or a branch from one of its nodes, on the records in its bag; return nodes breadth-first."""
    # tables grow by doubling, because the size of a tree is unknown in advance
    capacity = 64
    nodes = np.zeros((capacity, N_COLUMNS_GROWING), dtype=np.int64)
    keys = np.zeros(capacity, dtype=np.uint64)
    left_counts = np.zeros(capacity, dtype=np.int64)
    pending = np.zeros(capacity, dtype=np.int64)

    # packed counts of all records: their sum is that of both labels
    total = np.int64(0)
    for i in range(n_bag):
        total += packed_counts(bag_codes[i, n_features])
    nodes[0, N_ON], nodes[0, N_OFF] = total >> _32, total & _LOW
    nodes[0, START], nodes[0, END], nodes[0, DEPTH] = 0, n_bag, root_depth
    keys[0] = root_key
    n_nodes, n_pending = 1, 0
    if may_split(nodes, 0, max_depth, min_leaf) and _find_split(
        0, nodes, keys, bag_codes, n_features, used, n_codes, chosen, histograms, touched, present,
        splitter, min_leaf, criterion, alpha, table, left_counts,
    ):  # fmt: skip
        pending[0] = 0
        n_pending = 1

    # Invariant: the pending nodes have a split in their row and their records in the range START to END of one of the
    # two buffers. The ranges of pending nodes do not overlap. The last one is processed first (depth first), while its
    # records are still in the cache.
    while n_pending > 0:
        n_pending -= 1
        node = pending[n_pending]
        if n_nodes + 2 > capacity or n_pending + 2 > capacity:
            capacity *= 2
            nodes, keys = _enlarge_table(nodes, capacity), _enlarge_column(keys, capacity)
            left_counts, pending = _enlarge_column(left_counts, capacity), _enlarge_column(pending, capacity)
        left = n_nodes
        n_nodes += 2
        nodes[node, LEFT] = left
        # the counts of the left child are known from the search; those of the right one are the difference
        counts = left_counts[node]
        nodes[left, N_ON], nodes[left, N_OFF] = counts >> _32, counts & _LOW
        for column in (N_ON, N_OFF):
            nodes[left + 1, column] = nodes[node, column] - nodes[left, column]
        depth = nodes[node, DEPTH]
        any_splits = False
        for side in range(2):
            child = left + side
            nodes[child, DEPTH] = depth + 1
            keys[child] = derive_key(keys[node], side)
            any_splits |= may_split(nodes, child, max_depth, min_leaf)
        if not any_splits:
            continue  # two leaves: their records are not needed
        start, end = nodes[node, START], nodes[node, END]
        split = nodes[node, FEATURE], nodes[node, SHIFT], nodes[node, LIMIT]
        # two buffers in turn: the records of a node at an even depth lie in the bag, at an odd depth in `moved`. The
        # children use the same range of the other buffer, so no node overwrites records that are still needed
        if (depth - root_depth) % 2 == 0:
            middle = partition(bag, bag_codes, start, end, split[0], split[1], split[2], mask, moved)
            child_codes = moved_codes
        else:
            middle = partition(moved, moved_codes, start, end, split[0], split[1], split[2], mask, bag)
            child_codes = bag_codes
        nodes[left, START], nodes[left, END] = start, middle
        nodes[left + 1, START], nodes[left + 1, END] = middle, end
        # the right child first, so the left one is on top of the stack
        for side in range(1, -1, -1):
            child = left + side
            if may_split(nodes, child, max_depth, min_leaf) and _find_split(
                child, nodes, keys, child_codes, n_features, used, n_codes, chosen, histograms, touched, present,
                splitter, min_leaf, criterion, alpha, table, left_counts,
            ):  # fmt: skip
                pending[n_pending] = child
                n_pending += 1
    return breadth_first(nodes, n_nodes, mask)


@njit(cache=True, nogil=True)
def may_split(nodes, node, max_depth, min_leaf):
    """Return whether a node is searched for splits."""
    # a pure node has no information gain, and one with fewer events than two leaves has no split
    on, off = nodes[node, N_ON], nodes[node, N_OFF]
    deep = max_depth >= 0 and nodes[node, DEPTH] >= max_depth
    return not deep and on > 0 and off > 0 and on + off >= 2 * min_leaf


@njit(cache=True, nogil=True)
def _enlarge_table(table, capacity):
    # loops, because numba takes seconds to compile an assignment to a slice
    larger = np.zeros((capacity, table.shape[1]), dtype=table.dtype)
    for row in range(len(table)):
        for column in range(table.shape[1]):
            larger[row, column] = table[row, column]
    return larger


@njit(cache=True, nogil=True)
def _enlarge_column(values, capacity):
    larger = np.zeros(capacity, dtype=values.dtype)
    for i in range(len(values)):
        larger[i] = values[i]
    return larger


@njit(cache=True, nogil=True)
def breadth_first(nodes, n_nodes, mask):
    """Return the finished nodes level by level, leaves pointing to themselves."""
    # Level by level, so node numbers do not depend on the order of growth, children follow their parents, and the upper
    # levels, which every event passes, are contiguous in the cache. `order` is the queue of the search.
    order = np.empty(n_nodes, dtype=np.int64)
    ordered = np.empty((n_nodes, N_COLUMNS), dtype=np.int64)
    order[0] = 0
    n_ordered = 1
    for place in range(n_nodes):
        node = order[place]
        for column in range(N_COLUMNS):
            ordered[place, column] = nodes[node, column]
        left = nodes[node, LEFT]
        if left > 0:
            ordered[place, LEFT] = n_ordered
            order[n_ordered] = left
            order[n_ordered + 1] = left + 1
            n_ordered += 2
        else:
            # a leaf sends all codes to the left, which is itself: rows stay in a leaf without a test
            ordered[place, FEATURE], ordered[place, SHIFT] = 0, 0
            ordered[place, LEFT], ordered[place, LIMIT] = place, mask
    return ordered
