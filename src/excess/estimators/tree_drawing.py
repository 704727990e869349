"""A tree as text, one line per node, and as a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray, as_int
from excess._core.errors import require
from excess.stats.significance import li_ma_significance


@dataclass(frozen=True)
class TreeView:
    """The nodes of one tree with what is said about them."""

    nodes: NDArray[np.uint32]
    edges: list[FloatArray]
    n_on: NDArray[np.int64]
    n_off: NDArray[np.int64]
    selected: BoolArray
    alpha: float
    names: list[str]
    has_missing: BoolArray

    def children(self, node: int) -> tuple[int, int] | None:
        """Return left and right child, or None for a leaf."""
        left = int(self.nodes[node, 3])
        return None if left == node else (left, left + 1)

    def cuts(self, node: int) -> tuple[str, str]:
        """Say which events go left and which go right."""
        feature, shift, limit, _ = (int(number) for number in self.nodes[node])
        name = self.names[feature]
        n_bins_left = limit if shift == 0 else limit + 1
        edges = self.edges[feature]
        if n_bins_left == 0:
            return f"{name} missing", f"{name} present"
        if n_bins_left > len(edges):
            return f"{name} present", f"{name} missing"
        value = _format_edge(edges, n_bins_left - 1)
        missing = [" or missing" if self.has_missing[feature] and side == shift else "" for side in (0, 1)]
        return f"{name} <= {value}{missing[0]}", f"{name} > {value}{missing[1]}"

    def significance(self) -> FloatArray:
        """Return the signed significance of every node."""
        return li_ma_significance(self.n_on, self.n_off, self.alpha, signed=True)

    def verdict(self, node: int) -> str:
        """Say what a leaf is assigned to."""
        return "signal" if self.selected[node] else "background"


def tree_text(view: TreeView, max_depth: int | None) -> str:
    """Return one line per node: its cut, counts, significance and, for a leaf, its assignment."""
    deepest = _deepest(max_depth)
    rows: list[tuple[str, int, str]] = []
    waiting = [(0, "all events", "", 0)]  # a stack, because a tree may be deeper than Python likes to recurse
    while waiting:
        node, label, indent, depth = waiting.pop()
        children = view.children(node)
        if children is None or depth == deepest:
            rows.append((label, node, view.verdict(node) if children is None else "..."))
            continue
        rows.append((label, node, ""))
        left, right = view.cuts(node)
        waiting.append((children[1], f"{indent}`-- {right}", indent + "    ", depth + 1))
        waiting.append((children[0], f"{indent}|-- {left}", indent + "|   ", depth + 1))
    width = max(len(label) for label, _, _ in rows)
    on_width, off_width = (len(_format_count(counts[0])) for counts in (view.n_on, view.n_off))
    significance = view.significance()
    return "\n".join(
        f"{label:{width}}  On {_format_count(view.n_on[node]):>{on_width}}"
        f"  Off {_format_count(view.n_off[node]):>{off_width}}"
        f"  {significance[node]:6.1f} sigma  {remark}".rstrip()
        for label, node, remark in rows
    )


def draw_tree(view: TreeView, max_depth: int | None, ax: Any) -> Any:
    """Draw the tree with matplotlib and return the axes."""
    plt = require("matplotlib.pyplot", "plot_tree")
    from matplotlib.colors import TwoSlopeNorm

    deepest = _deepest(max_depth)
    places = _place_nodes(view, deepest)
    next_leaf = 1 + max(x for x, _ in places.values())
    depth = max(level for _, level in places.values())
    if ax is None:
        _, ax = plt.subplots(figsize=(max(4.0, 1.7 * next_leaf), 1.3 * (depth + 1)), layout="constrained")
    significance = view.significance()
    reach = max(float(np.abs(significance).max()), 1e-9)
    norm, colours = TwoSlopeNorm(0.0, -reach, reach), plt.get_cmap("PuOr_r")
    for node, (x, level) in places.items():
        counts = f"On {_format_count(view.n_on[node])}, Off {_format_count(view.n_off[node])}"
        lines = [counts, f"{significance[node]:.1f} sigma"]
        children = view.children(node)
        if children is None:
            lines.append(view.verdict(node))
        elif level == deepest:
            lines.append("...")
        else:
            # the two cuts stand at different heights, so that long names do not run into each other
            for child, cut, way in zip(children, view.cuts(node), (0.42, 0.62), strict=True):
                child_x, child_level = places[child]
                ax.plot([x, child_x], [-level, -child_level], color="0.6", lw=1, zorder=1)
                ax.text(
                    x + way * (child_x - x), -level - way, cut, ha="center", va="center", fontsize=7, zorder=2,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
                )  # fmt: skip
        shade = colours(norm(significance[node]))
        dark = np.dot(shade[:3], (0.299, 0.587, 0.114)) < 0.5
        ax.text(
            x, -level, "\n".join(lines), ha="center", va="center", fontsize=7, zorder=3,
            color="white" if dark else "black",
            bbox={"facecolor": shade, "edgecolor": "0.3", "boxstyle": "round,pad=0.4"},
        )  # fmt: skip
    ax.set(xlim=(-0.7, next_leaf - 0.3), ylim=(-depth - 0.5, 0.5))
    ax.axis("off")
    return ax


def _deepest(max_depth: int | None) -> int:
    return -1 if max_depth is None else as_int("max_depth", max_depth, minimum=0)


def _place_nodes(view: TreeView, deepest: int) -> dict[int, tuple[float, int]]:
    """Return where nodes are drawn: the ends of branches side by side, others above the middle of their children."""
    levels = {0: 0}
    ends = []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        children = view.children(node)
        if children is None or levels[node] == deepest:
            ends.append(node)
            continue
        for child in reversed(children):
            levels[child] = levels[node] + 1
            waiting.append(child)
    across = {node: float(x) for x, node in enumerate(ends)}
    for node in sorted(levels, reverse=True):  # children have larger numbers than their parents
        if node not in across:
            left, right = view.children(node) or (node, node)
            across[node] = (across[left] + across[right]) / 2
    return {node: (across[node], levels[node]) for node in levels}


def _format_count(count: Any) -> str:
    """Write a count; where events have weights, it need not be a whole number."""
    return str(count) if isinstance(count, np.integer) else f"{count:.1f}"


def _format_edge(edges: FloatArray, number: int) -> str:
    """Write an edge with as few digits, but at least four, as keep it apart from its neighbours."""
    edge = float(edges[number])
    gaps = np.abs(np.diff(edges[max(0, number - 1) : number + 2]))
    allowed = 0.01 * float(gaps.min()) if len(gaps) else 1e-3 * abs(edge)
    for digits in range(4, 18):
        text = f"{edge:.{digits}g}"
        if abs(float(text) - edge) <= allowed:
            break
    return text
