"""A tree as people read it: as lines of cuts, or as a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._checks import BoolArray, FloatArray, as_int
from excess.significance import li_ma_significance


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
        value = f"{edges[n_bins_left - 1]:.4g}"
        return f"{name} <= {value}", f"{name} > {value}"

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

    def visit(node: int, label: str, indent: str, depth: int) -> None:
        children = view.children(node)
        if children is None:
            rows.append((label, node, view.verdict(node)))
            return
        if depth == deepest:
            rows.append((label, node, "..."))
            return
        rows.append((label, node, ""))
        for child, cut, last in zip(children, view.cuts(node), (False, True), strict=True):
            branch, below = ("`-- ", "    ") if last else ("|-- ", "|   ")
            visit(child, indent + branch + cut, indent + below, depth + 1)

    visit(0, "all events", "", 0)
    width = max(len(label) for label, _, _ in rows)
    on_width, off_width = (len(str(counts[0])) for counts in (view.n_on, view.n_off))
    significance = view.significance()
    return "\n".join(
        f"{label:{width}}  On {view.n_on[node]:{on_width}}  Off {view.n_off[node]:{off_width}}"
        f"  {significance[node]:6.1f} sigma  {remark}".rstrip()
        for label, node, remark in rows
    )


def draw_tree(view: TreeView, max_depth: int | None, ax: Any) -> Any:
    """Draw the tree with matplotlib and return the axes."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.colors import TwoSlopeNorm
    except ImportError as error:
        raise ImportError("plot_tree needs matplotlib; install it with: pip install 'excess[report]'") from error
    deepest = _deepest(max_depth)
    places: dict[int, tuple[float, int]] = {}
    next_leaf = 0.0

    def place(node: int, depth: int) -> float:
        nonlocal next_leaf
        children = view.children(node)
        if children is None or depth == deepest:
            x = next_leaf
            next_leaf += 1.0
        else:
            x = sum(place(child, depth + 1) for child in children) / 2
        places[node] = (x, depth)
        return x

    place(0, 0)
    depth = max(level for _, level in places.values())
    if ax is None:
        _, ax = plt.subplots(figsize=(max(4.0, 1.7 * next_leaf), 1.3 * (depth + 1)), layout="constrained")
    significance = view.significance()
    reach = max(float(np.abs(significance).max()), 1e-9)
    norm, colours = TwoSlopeNorm(0.0, -reach, reach), plt.get_cmap("PuOr_r")
    for node, (x, level) in places.items():
        lines = [f"On {view.n_on[node]}, Off {view.n_off[node]}", f"{significance[node]:.1f} sigma"]
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
