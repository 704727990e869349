"""Scores of events from the nodes of all trees, block by block of rows and tree by tree.

The sum over trees always runs in the order of the trees, so that a score has the same bits on any number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from excess._forest.layout import FEATURE, LEFT, LIMIT, SHIFT
from excess._rng import bootstrap_weights, derive_key

BLOCK = 512
"""Rows that pass through a tree together: their codes and the tree fit into the cache."""
_STRIDE = 8
"""Levels that all rows go down before those that have arrived are taken out."""


class FlatTrees(NamedTuple):
    """The nodes of all trees in one table, with children numbered throughout.

    Attributes
    ----------
    nodes : ndarray of uint32 of shape (n_nodes, 4)
        Feature, shift, limit and left child of each node; see ``layout``.
    roots : ndarray of int64 of shape (n_trees + 1,)
        Number of each tree's root, and of all nodes.
    depths : ndarray of int64 of shape (n_trees,)
        Steps from the root to the deepest leaf.
    """

    nodes: NDArray[np.uint32]
    roots: NDArray[np.int64]
    depths: NDArray[np.int64]


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
    return FlatTrees(nodes, roots, np.array([tree_depth(tree) for tree in trees], dtype=np.int64))


@njit(cache=True, nogil=True)
def node_depths(tree):
    """Return the depth of each node of a tree in breadth-first order."""
    depths = np.zeros(len(tree), dtype=np.int64)
    for node in range(len(tree)):
        left = tree[node, LEFT]
        if left != node:
            depths[left] = depths[left + 1] = depths[node] + 1
    return depths


def tree_depth(tree: NDArray[np.int64]) -> int:
    """Return the steps from the root to the deepest leaf: nodes are breadth-first, so the last is deepest."""
    return int(node_depths(tree)[-1])


@njit(cache=True, nogil=True)
def _descend(codes, rows, n_rows, nodes, root, depth, mask, places, active):
    """Send rows through a tree, a few levels at a time; write the leaf of each into ``places``.

    Within a stride, rows that have reached a leaf stay there; after it, only the others go on.
    """
    n = np.uint64(n_rows)
    mask = np.uint32(mask)
    for r in range(n):
        places[r] = root
        active[r] = r
    level = 0
    while level < depth and n > 0:
        stride = min(_STRIDE, depth - level)
        for _ in range(stride):
            for k in range(n):
                r = active[k]
                node = places[r]
                code = np.uint32(codes[rows[r], nodes[node, np.uint64(0)]])
                right = ((code - nodes[node, np.uint64(1)]) & mask) > nodes[node, np.uint64(2)]
                places[r] = nodes[node, np.uint64(3)] + np.uint32(right)
        level += stride
        if level < depth:
            n_active = np.uint64(0)
            for k in range(n):
                r = active[k]
                active[n_active] = r
                n_active += np.uint64(nodes[places[r], np.uint64(3)] != places[r])
            n = n_active


@njit(cache=True, nogil=True)
def add_scores(codes, n_rows, nodes, roots, depths, values, mask, scores):
    """Add the value of each row's leaf in every tree to its score."""
    rows = np.arange(n_rows).astype(np.uint32)
    places = np.empty(n_rows, dtype=np.uint32)
    active = np.empty(n_rows + 1, dtype=np.uint32)
    for tree in range(len(depths)):
        _descend(codes, rows, n_rows, nodes, roots[tree], depths[tree], mask, places, active)
        for r in range(np.uint64(n_rows)):
            scores[r] += values[places[r]]


@njit(cache=True, nogil=True)
def add_out_of_bag_scores(codes, first_row, nodes, roots, depths, values, mask, keys, scores, n_trees):
    """Add, for trees that have not seen a row, the value of its leaf to its score, and count those trees."""
    n_rows = len(scores)
    weights = np.empty(n_rows, dtype=np.uint8)
    rows = np.empty(n_rows + 1, dtype=np.uint32)
    places = np.empty(n_rows, dtype=np.uint32)
    active = np.empty(n_rows + 1, dtype=np.uint32)
    for tree in range(len(depths)):
        bootstrap_weights(derive_key(keys[tree], 0), first_row, weights)
        n_out = 0
        for r in range(n_rows):
            rows[n_out] = r
            n_out += weights[r] == 0
        _descend(codes, rows, n_out, nodes, roots[tree], depths[tree], mask, places, active)
        for r in range(np.uint64(n_out)):
            scores[rows[r]] += values[places[r]]
            n_trees[rows[r]] += 1


@njit(cache=True, nogil=True)
def find_leaves(codes, n_rows, nodes, roots, depths, mask, leaves):
    """Write the number of each row's leaf within its tree, for all trees."""
    rows = np.arange(n_rows).astype(np.uint32)
    places = np.empty(n_rows, dtype=np.uint32)
    active = np.empty(n_rows + 1, dtype=np.uint32)
    for tree in range(len(depths)):
        _descend(codes, rows, n_rows, nodes, roots[tree], depths[tree], mask, places, active)
        for r in range(n_rows):
            leaves[r, tree] = places[r] - roots[tree]


def leaf_mask(trees: FlatTrees) -> NDArray[Any]:
    """Return True for the nodes that are leaves."""
    return trees.nodes[:, 3] == np.arange(len(trees.nodes), dtype=np.uint32)
