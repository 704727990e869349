"""Scores of events from the nodes of all trees, block by block of rows and tree by tree.

The sum over trees always runs in the order of the trees, so a score has the same bits on any number of threads.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._utils.compilation import njit
from excess._utils.rng import bootstrap_weights, derive_key
from excess.estimators._forest.binning import encode
from excess.estimators._forest.grower import FEATURE, LEFT, LIMIT, SHIFT

BLOCK = 512  # rows that pass through a tree together: their codes and the tree fit into the cache
LARGE_BLOCK = 4096  # the same for contributions, which are computed for all leaves of a tree first
_STRIDE = 8  # levels that a group of rows descends before testing whether all have arrived
_0, _1, _2, _3, _4, _5, _6, _7 = (np.uint64(k) for k in range(8))
_8, _16, _32, _BYTE, _LOW = np.uint64(8), np.uint64(16), np.uint64(32), np.uint64(0xFF), np.uint64(0xFFFFFFFF)
_MAX_PACKED_FEATURES = 1 << 16


class FlatTrees(NamedTuple):
    """The nodes of all trees in one table, with consecutive child indices."""

    nodes: Annotated[NDArray[np.uint32], "nodes", 4]  # feature, shift, limit and left child; see `grower`
    roots: Annotated[NDArray[np.int64], "trees+1"]  # number of each tree's root, and of all nodes
    depths: Annotated[NDArray[np.int64], "trees"]  # steps from the root of each tree to its deepest leaf


def flatten(trees: list[NDArray[np.int64]]) -> FlatTrees:
    """Put the nodes of trees into one table."""
    roots = np.zeros(len(trees) + 1, dtype=np.int64)
    np.cumsum([len(tree) for tree in trees], out=roots[1:])
    nodes = np.empty((roots[-1], 4), dtype=np.uint32)
    for root, tree in zip(roots[:-1], trees, strict=True):
        part = nodes[root : root + len(tree)]
        for place, column in enumerate((FEATURE, SHIFT, LIMIT, LEFT)):
            part[:, place] = tree[:, column]
        part[:, 3] += np.uint32(root)
    # nodes are breadth-first, so the last one is deepest
    return FlatTrees(nodes, roots, np.array([node_depths(tree)[-1] for tree in trees], dtype=np.int64))


@njit(cache=True, nogil=True)
def node_depths(tree):
    """Return the depth of each node of a tree in breadth-first order."""
    depths = np.zeros(len(tree), dtype=np.int64)
    # parents come before their children, so one pass is sufficient
    for node in range(len(tree)):
        left = tree[node, LEFT]
        if left != node:
            depths[left] = depths[left + 1] = depths[node] + 1
    return depths


def pack_nodes(nodes: NDArray[np.uint32], mask: int) -> NDArray[np.uint64]:
    """Return the packed nodes for a traversal: one word if codes are bytes, otherwise two."""
    if mask > 0xFF or nodes[:, 0].max(initial=0) >= _MAX_PACKED_FEATURES:
        return np.ascontiguousarray(nodes).view(np.uint64)
    feature, shift, limit, left = nodes.astype(np.uint64).T
    # the left child in the upper half, then 16 bits of the feature, a byte of the shift and one of the limit: a tree of
    # some thousand nodes fits into the first-level cache
    return (left << _32) | (feature << _16) | (shift << _8) | limit


@njit(cache=True, nogil=True)
def _step(codes, row, packed, node, mask):
    """Return the child that a row goes to; from a leaf, the leaf itself."""
    # the right child follows the left one, so the comparison is added without a branch; the variant is known at
    # compile time
    if packed.ndim == 1:
        word = packed[node]
        code = np.uint64(codes[row, (word >> _16) & np.uint64(0xFFFF)])
        right = ((code - ((word >> _8) & _BYTE)) & _BYTE) > (word & _BYTE)
        return (word >> _32) + np.uint64(right)
    # low half of `split`: the feature, high half: the shift; low half of `way`: the limit, high half: the left child
    # (little-endian machines); two loads of 64 bits instead of four of 32
    split, way = packed[node, _0], packed[node, _1]
    code = np.uint64(codes[row, split & _LOW])
    right = ((code - (split >> _32)) & mask) > (way & _LOW)
    return (way >> _32) + np.uint64(right)


@njit(cache=True, nogil=True)
def descend(codes, rows, n_rows, packed, root, depth, mask, places):
    """Send rows through a tree, eight at a time with overlapping loads; write the leaf of each into ``places``."""
    mask, root, n = np.uint64(mask), np.uint64(root), np.uint64(n_rows)
    whole = n - n % np.uint64(8)
    # A step depends on the previous node, with the latency of a load from the cache. Eight rows in eight variables,
    # which the compiler keeps in registers, overlap eight loads.
    for k in range(np.uint64(0), whole, np.uint64(8)):
        r0, r1, r2, r3 = rows[k], rows[k + _1], rows[k + _2], rows[k + _3]
        r4, r5, r6, r7 = rows[k + _4], rows[k + _5], rows[k + _6], rows[k + _7]
        n0 = n1 = n2 = n3 = n4 = n5 = n6 = n7 = root
        level = 0
        while level < depth:
            o0, o1, o2, o3, o4, o5, o6, o7 = n0, n1, n2, n3, n4, n5, n6, n7
            for _ in range(min(_STRIDE, depth - level)):
                n0 = _step(codes, r0, packed, n0, mask)
                n1 = _step(codes, r1, packed, n1, mask)
                n2 = _step(codes, r2, packed, n2, mask)
                n3 = _step(codes, r3, packed, n3, mask)
                n4 = _step(codes, r4, packed, n4, mask)
                n5 = _step(codes, r5, packed, n5, mask)
                n6 = _step(codes, r6, packed, n6, mask)
                n7 = _step(codes, r7, packed, n7, mask)
            level += _STRIDE
            # a leaf leads to itself, so a row that has not moved in a stride has arrived
            moved = (o0 ^ n0) | (o1 ^ n1) | (o2 ^ n2) | (o3 ^ n3) | (o4 ^ n4) | (o5 ^ n5) | (o6 ^ n6) | (o7 ^ n7)
            if moved == 0:
                break
        places[k], places[k + _1], places[k + _2], places[k + _3] = n0, n1, n2, n3
        places[k + _4], places[k + _5], places[k + _6], places[k + _7] = n4, n5, n6, n7
    # the last rows, fewer than eight
    for k in range(whole, n):
        node = root
        for _ in range(depth):
            node = _step(codes, rows[k], packed, node, mask)
        places[k] = node


@njit(cache=True, nogil=True)
def score_rows(X, first, last, edges, features, codes, packed, roots, depths, mask, values, scores):
    """Add the value of the leaf in every tree to the score, for rows ``first`` to ``last`` of X."""
    block = len(codes)  # as many rows as the buffer has room for
    rows = np.arange(block).astype(np.uint32)
    places = np.empty(block, dtype=np.uint32)
    for start in range(first, last, block):
        n_rows = min(block, last - start)
        encode(X, start, start + n_rows, edges, features, codes)
        part = scores[start : start + n_rows]
        # blocks outside, trees inside: the codes of a block stay in the cache; scores add up in the order of the trees
        for tree in range(len(depths)):
            descend(codes, rows, n_rows, packed, roots[tree], depths[tree], mask, places)
            for k in range(np.uint64(n_rows)):
                part[k] += values[places[k]]


@njit(cache=True, nogil=True)
def _seen_rows(key, tree, first_row, groups, in_bag, weights):
    """Fill ``weights`` with 0 for rows that are out of the bag of a tree."""
    if groups is None:
        # the weights are drawn again from the key of the tree, which is faster than storing them for all trees
        bootstrap_weights(derive_key(key, 0), first_row, weights)
    else:
        for r in range(len(weights)):
            weights[r] = in_bag[tree, groups[r]]


@njit(cache=True, nogil=True)
def add_out_of_bag_scores(
    codes, first_row, groups, in_bag, packed, roots, depths, values, mask, keys, scores, n_trees
):  # fmt: skip
    """Add, for trees with a row out of bag, the value of its leaf to its score, and count those trees."""
    n_rows = len(scores)
    weights = np.empty(n_rows, dtype=np.uint8)
    rows = np.empty(n_rows + 1, dtype=np.uint32)
    places = np.empty(n_rows, dtype=np.uint32)
    for tree in range(len(depths)):
        _seen_rows(keys[tree], tree, first_row, groups, in_bag, weights)
        # list the rows of weight 0 without a branch: each is written, and overwritten unless it counts
        n_out = 0
        for r in range(n_rows):
            rows[n_out] = r
            n_out += weights[r] == 0
        descend(codes, rows, n_out, packed, roots[tree], depths[tree], mask, places)
        for k in range(np.uint64(n_out)):
            scores[rows[k]] += values[places[k]]
            n_trees[rows[k]] += 1


@njit(cache=True, nogil=True)
def _fill_moves(nodes, root, end, values, moves):
    """Write, for the nodes of a tree, the contribution of each feature on their path to the value of the root."""
    for j in range(moves.shape[1]):
        moves[0, j] = 0.0
    # parents come before their children
    for node in range(root, end):
        left = np.int64(nodes[node, 3])
        if left == node:
            continue
        for child in (left, left + 1):
            for j in range(moves.shape[1]):
                moves[child - root, j] = moves[node - root, j]
            moves[child - root, nodes[node, 0]] += values[child] - values[node]


@njit(cache=True, nogil=True)
def add_out_of_bag_contributions(
    codes, first_row, groups, in_bag, packed, nodes, roots, depths, values, mask, keys, scores, contributions, n_trees
):  # fmt: skip
    """Add, for trees with a row out of bag, its score and the contribution of each feature."""
    n_rows = len(scores)
    weights = np.empty(n_rows, dtype=np.uint8)
    rows = np.empty(n_rows + 1, dtype=np.uint32)
    places = np.empty(n_rows, dtype=np.uint32)
    moves = np.empty((np.max(roots[1:] - roots[:-1]), contributions.shape[1]))
    for tree in range(len(depths)):
        root = roots[tree]
        _seen_rows(keys[tree], tree, first_row, groups, in_bag, weights)
        n_out = 0
        for r in range(n_rows):
            rows[n_out] = r
            n_out += weights[r] == 0
        descend(codes, rows, n_out, packed, root, depths[tree], mask, places)
        # once per leaf instead of once per row: many rows share a leaf
        _fill_moves(nodes, root, roots[tree + 1], values, moves)
        for k in range(n_out):
            r, leaf = rows[k], places[k] - root
            scores[r] += values[places[k]]
            n_trees[r] += 1
            for j in range(contributions.shape[1]):
                contributions[r, j] += moves[leaf, j]


@njit(cache=True, nogil=True)
def contribute_rows(X, first, last, edges, features, codes, packed, roots, depths, mask, nodes, values, contributions):
    """Add the contribution of each feature to the score, for rows ``first`` to ``last`` of X and all trees."""
    block = len(codes)
    rows = np.arange(block).astype(np.uint32)
    places = np.empty(block, dtype=np.uint32)
    moves = np.empty((np.max(roots[1:] - roots[:-1]), contributions.shape[1]))
    for start in range(first, last, block):
        n_rows = min(block, last - start)
        encode(X, start, start + n_rows, edges, features, codes)
        for tree in range(len(depths)):
            descend(codes, rows, n_rows, packed, roots[tree], depths[tree], mask, places)
            _fill_moves(nodes, roots[tree], roots[tree + 1], values, moves)
            for k in range(n_rows):
                for j in range(contributions.shape[1]):
                    contributions[start + k, j] += moves[places[k] - roots[tree], j]


@njit(cache=True, nogil=True)
def number_rows(X, first, last, edges, features, codes, packed, roots, depths, mask, leaves):
    """Write the number of the leaf within its tree, for rows ``first`` to ``last`` of X and all trees."""
    block = len(codes)  # as many rows as the buffer has room for
    rows = np.arange(block).astype(np.uint32)
    places = np.empty(block, dtype=np.uint32)
    for start in range(first, last, block):
        n_rows = min(block, last - start)
        encode(X, start, start + n_rows, edges, features, codes)
        for tree in range(len(depths)):
            descend(codes, rows, n_rows, packed, roots[tree], depths[tree], mask, places)
            for k in range(n_rows):
                leaves[start + k, tree] = places[k] - roots[tree]


def leaf_mask(trees: FlatTrees) -> NDArray[Any]:
    """Return True for leaves."""
    return trees.nodes[:, 3] == np.arange(len(trees.nodes), dtype=np.uint32)
