"""Growth of trees level by level on parts of the events: histograms of nodes, their splits, and the records of nodes.

Parts of the events are independent. Each sends its rows down the trees grown so far, which is cheaper than storing the
node of every row in every tree, and counts them in the requested nodes. Sums over parts equal those over all events,
so the splits are those of a tree grown in one place.
"""

import numpy as np

from excess._utils.compilation import njit
from excess._utils.rng import bag_weights, choose_features, derive_key
from excess.estimators._forest.grower import DEPTH, FEATURE, LEFT, LIMIT, N_OFF, N_ON, SHIFT, may_split, search_node
from excess.estimators._forest.predictor import descend
from excess.estimators._forest.splitting import packed_counts

WIDTH = 256  # codes of a histogram
_BLOCK = 8192  # rows that pass through all trees together, so their records stay in the cache
_LOW = np.int64(0xFFFFFFFF)
_32 = np.int64(32)


@njit(cache=True, nogil=True)
def _rows_in_bag(
    codes, first_row, part_row, groups, in_bag, tree, factors, limit,
    key, nodes, root, depth, mask, weights, rows, places,
):  # fmt: skip
    """Write the rows of a block that are in the bag of a tree, and the nodes they reach; return their number."""
    bag_weights(derive_key(key, 0), first_row, part_row, groups, in_bag, tree, factors, limit, weights)
    # branch-free: each row is written, and overwritten unless it is in the bag; rows has one more element
    n_in = 0
    for r in range(len(weights)):
        rows[n_in] = r
        n_in += weights[r] > 0
    descend(codes, rows, n_in, nodes, root, depth, mask, places)
    return n_in


@njit(cache=True, nogil=True)
def fill_nodes(
    codes, first_row, groups, in_bag, factors, limit, n_features,
    nodes, roots, depths, mask, keys, slots, chosen, histograms,
):  # fmt: skip
    """Add the bags of rows to the histograms of the nodes that have a slot.

    The events of this part begin with row ``first_row`` of all events; ``groups`` contains the group of each, and
    ``in_bag`` (trees by groups) whether a tree may use it; both are None without groups. ``factors`` are event weights,
    or None for one each; ``limit`` is that of `bag_limit`. ``nodes`` (packed), ``roots`` and ``depths`` are the trees
    grown so far, see ``FlatTrees``; ``keys`` has a key per tree. ``slots`` (int32, one per node, -1 for none) is the
    index of the histograms of a node, ``chosen`` (uint32, slots by features) the features of a slot. ``histograms`` are
    packed counts, flat, of the length ``n_slots * n_chosen * WIDTH``.
    """
    n_rows = len(codes)
    weights = np.empty(_BLOCK, dtype=np.uint8)
    rows = np.empty(_BLOCK + 1, dtype=np.uint32)
    places = np.empty(_BLOCK, dtype=np.uint32)
    label, n_chosen = np.uint64(n_features), np.uint64(chosen.shape[1])
    four = chosen.shape[1] == 4  # the usual case, the square root of about twenty features, has its own loop
    width = np.uint64(WIDTH)
    # blocks outside, trees inside: the records of a block are read from memory once for all trees
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        block = codes[start : start + n]
        for tree in range(len(depths)):
            n_in = _rows_in_bag(
                block, first_row + start, start, groups, in_bag, tree, factors, limit,
                keys[tree], nodes, roots[tree], depths[tree], mask, weights[:n], rows, places,
            )  # fmt: skip
            for i in range(np.uint64(n_in)):
                slot = slots[places[i]]
                if slot < 0:
                    continue
                # the record contains the label, but not the weight: combine them to the element of a bag
                r, s = rows[i], np.uint64(slot)
                counts = packed_counts(block[r, label] | weights[r])
                # one flat array: the histograms of a slot are contiguous, in the order of its features
                base = s * n_chosen * width
                if four:
                    histograms[base + block[r, chosen[s, np.uint64(0)]]] += counts
                    histograms[base + width + block[r, chosen[s, np.uint64(1)]]] += counts
                    histograms[base + np.uint64(2) * width + block[r, chosen[s, np.uint64(2)]]] += counts
                    histograms[base + np.uint64(3) * width + block[r, chosen[s, np.uint64(3)]]] += counts
                else:
                    for k in range(n_chosen):
                        histograms[base + k * width + block[r, chosen[s, k]]] += counts


@njit(cache=True, nogil=True)
def take_nodes(
    records, codes, first_row, groups, in_bag, tree, factors, limit, n_features, nodes, root, depth, mask, key,
    slots, first_slot, n_slots,
):  # fmt: skip
    """Return the records of a tree's bag in its requested nodes, sorted by slot, and the number in each slot."""
    n_rows = len(codes)
    weights = np.empty(n_rows, dtype=np.uint8)
    found = np.empty(n_rows, dtype=np.uint32)
    found_slots = np.empty(n_rows, dtype=np.int32)
    rows = np.empty(_BLOCK + 1, dtype=np.uint32)
    places = np.empty(_BLOCK, dtype=np.uint32)
    counts = np.zeros(n_slots, dtype=np.int64)
    n_found = 0
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        n_in = _rows_in_bag(
            codes[start : start + n], first_row + start, start, groups, in_bag, tree, factors, limit,
            key, nodes, root, depth, mask, weights[start : start + n], rows, places,
        )  # fmt: skip
        for i in range(n_in):
            slot = slots[places[i]] - first_slot
            if 0 <= slot < n_slots:
                found[n_found] = start + rows[i]
                found_slots[n_found] = slot
                n_found += 1
                counts[slot] += 1
    # counting sort: each slot has a range of its length, and a cursor that moves through it; rows keep their order
    # within a slot
    cursors = np.zeros(n_slots, dtype=np.int64)
    for slot in range(1, n_slots):
        cursors[slot] = cursors[slot - 1] + counts[slot - 1]
    taken = np.empty((n_found, records.shape[1]), dtype=np.uint64)
    taken_codes = taken.view(codes.dtype)
    for i in range(n_found):
        row, place = found[i], cursors[found_slots[i]]
        cursors[found_slots[i]] += 1
        for word in range(records.shape[1]):
            taken[place, word] = records[row, word]
        taken_codes[place, n_features] = codes[row, n_features] | weights[row]
    return taken, counts


@njit(cache=True, nogil=True)
def choose_for_nodes(keys, active, used, chosen):
    """Write the features of the nodes into the rows of ``chosen``."""
    own = np.empty(chosen.shape[1], dtype=np.int64)
    for i in range(len(active)):
        choose_features(keys[active[i]], used, own)
        for k in range(chosen.shape[1]):
            chosen[i, k] = own[k]


@njit(cache=True, nogil=True)
def split_nodes(
    nodes, keys, n_nodes, active, n_codes, chosen, histograms,
    max_depth, splitter, min_leaf, criterion, alpha, table, searched, moved, waiting,
):  # fmt: skip
    """Split the active nodes of a tree by their histograms; there must be room for two children each."""
    left_counts = np.zeros(len(nodes), dtype=np.int64)
    present = np.empty((2, WIDTH + 1), dtype=np.int64)
    own = np.empty(chosen.shape[1], dtype=np.int64)
    n_searched = n_waiting = 0
    for i in range(len(active)):
        node = active[i]
        if node == 0:  # the events of the root are unknown until now
            total = np.int64(0)  # the codes of any feature cover all events, so one histogram is sufficient
            for code in range(WIDTH):
                total += histograms[i, 0, code]
            nodes[0, N_ON], nodes[0, N_OFF] = total >> _32, total & _LOW
            if not may_split(nodes, 0, max_depth, min_leaf):
                continue
        for k in range(len(own)):
            own[k] = chosen[i, k]
        if not search_node(
            node, nodes, keys[node], len(n_codes), n_codes, own, histograms[i], None, present,
            splitter, min_leaf, criterion, alpha, table, left_counts,
        ):  # fmt: skip
            continue
        # as in `grower`: children are neighbours, and the counts of the right one are the difference
        left = n_nodes
        n_nodes += 2
        nodes[node, LEFT] = left
        nodes[left, N_ON], nodes[left, N_OFF] = left_counts[node] >> _32, left_counts[node] & _LOW
        for column in (N_ON, N_OFF):
            nodes[left + 1, column] = nodes[node, column] - nodes[left, column]
        for side in range(2):
            child = left + side
            nodes[child, DEPTH] = nodes[node, DEPTH] + 1
            keys[child] = derive_key(keys[node], side)
            if may_split(nodes, child, max_depth, min_leaf):
                if nodes[child, N_ON] + nodes[child, N_OFF] > moved:
                    searched[n_searched] = child
                    n_searched += 1
                else:
                    waiting[n_waiting] = child
                    n_waiting += 1
    return n_nodes, n_searched, n_waiting


@njit(cache=True, nogil=True)
def routes_of(nodes, n_nodes, mask, root, routes):
    """Write a growing tree as nodes to traverse, numbered from ``root`` on; nodes without children are leaves."""
    for node in range(n_nodes):
        left = nodes[node, LEFT]
        if left > 0:
            routes[root + node, 0] = nodes[node, FEATURE]
            routes[root + node, 1] = nodes[node, SHIFT]
            routes[root + node, 2] = nodes[node, LIMIT]
            routes[root + node, 3] = root + left
        else:
            routes[root + node, 0] = routes[root + node, 1] = 0
            routes[root + node, 2] = mask
            routes[root + node, 3] = root + node


@njit(cache=True, nogil=True)
def graft(nodes, n_nodes, node, branch):
    """Replace a node by a finished branch (breadth-first, with leaves pointing to themselves)."""
    # The root of the branch takes the row of the node; its other nodes follow at the end of the table. Node i > 0 of
    # the branch thus has the number n_nodes + i - 1. A leaf points to itself, which is 0 while a tree grows.
    for i in range(len(branch)):
        place = node if i == 0 else n_nodes + i - 1
        for column in (FEATURE, SHIFT, LIMIT, N_ON, N_OFF):
            nodes[place, column] = branch[i, column]
        nodes[place, LEFT] = 0 if branch[i, LEFT] == i else n_nodes + branch[i, LEFT] - 1
    return n_nodes + len(branch) - 1
