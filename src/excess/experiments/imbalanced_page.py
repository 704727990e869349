"""What is shown of the imbalanced sets: F1 by set and method, averages, ranks, and the critical difference diagram."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from excess.experiments import published
from excess.experiments.datasets import IMBALANCED_SETS
from excess.experiments.imbalanced import DEPTH, N_TRIALS, PAPER_METHODS
from excess.experiments.methods import METHODS
from excess.experiments.pages import Figure, Page, Table, compare
from excess.experiments.settings import Settings
from excess.ranking import RankComparison, compare_ranks

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["critical_difference_page", "imbalanced_page"]

PUBLISHED = {"imbalanced": published.IMBALANCED, "imbalanced-more-noise": published.MORE_NOISE}
P_PLUS = {"imbalanced": 0.1, "imbalanced-more-noise": 0.25}
OURS = ("noisy-forest-near-best", "default-forest")
TOLERANCE = 0.05
"""Differences of F1 up to this count as a reproduction: depth and leaf size are not published, and move F1 as much."""
CONFIDENCE = 0.9


def imbalanced_page(frames: Mapping[str, pd.DataFrame], settings: Settings) -> Page:
    """Return the page of one noise level."""
    import pandas as pd

    (study, rows), *_ = frames.items()
    cells = PUBLISHED[study]
    lines, summary = [], []
    for name in IMBALANCED_SETS:
        for method in (*PAPER_METHODS, *OURS):
            f1 = _values(rows, name, method)
            if len(f1) == 0:
                continue
            found = compare(f1, cells.get((name, method)), N_TRIALS)
            folds = rows.loc[(rows["set"] == name) & (rows["method"] == method), "f1_of_folds"].mean()
            lines.append((name, METHODS[method].name, *found.cells(3), str(found.n), f"{folds:.3f}"))
            summary.append({"set": name, "method": method, **vars(found), "mean_of_folds": folds})
    table = pd.DataFrame(summary)
    return Page(
        f"F1 on imbalanced sets with noisy labels, p_plus = {P_PLUS[study]:g}, p_minus = 0.5",
        _data(settings),
        _text(table, study),
        [
            _averages(table, study),
            _glance(table),
            Table(
                "By set and method",
                ("set", "method", "published", "ours", "difference", "trials", "mean F1 of the folds"),
                lines,
                2,
            ),
        ],
        [],
        table,
    )


def critical_difference_page(frames: Mapping[str, pd.DataFrame], settings: Settings) -> Page:
    """Return the diagrams: from the published tables, from ours, and from ours with our own forest."""
    import pandas as pd

    figures, lines, summary = [], [], []
    for study, rows in frames.items():
        names = [METHODS[method].name for method in PAPER_METHODS]
        cases = [("published", compare_ranks(_published_table(study), names, CONFIDENCE))]
        for case, methods in (("ours", PAPER_METHODS), ("ours, with our default", (*PAPER_METHODS, "default-forest"))):
            table = _own_table(rows, methods)
            if len(table) >= 2:
                cases.append((case, compare_ranks(table, [METHODS[method].name for method in methods], CONFIDENCE)))
        for case, comparison in cases:
            what = f"{case}, p_plus = {P_PLUS[study]:g}"
            figures.append(_figure(comparison, what, f"{study}-{case}".replace(", ", "-").replace(" ", "-")))
            lines += [
                (what, f"{first} - {second}", f"{comparison.p_value_of(first, second):.3f}")
                for i, first in enumerate(comparison.order)
                for second in comparison.order[i + 1 :]
            ]
            summary += [
                {
                    "p_plus": P_PLUS[study],
                    "table": case,
                    "method": name,
                    "rank": comparison.rank_of(name),
                    "friedman_p_value": comparison.friedman_p_value,
                    "n_sets": comparison.n_sets,
                }
                for name in comparison.order
            ]
    text = (
        "Average ranks of F1 over the data sets, ties averaged, the best on the right. A bar connects methods that no "
        f"Wilcoxon signed-rank test tells apart at a confidence of {CONFIDENCE:g}, Holm-corrected and exact.",
    )
    pairs = Table("Holm-corrected p-values", ("table", "pair", "p"), lines, 2)
    return Page("Critical differences", _data(settings), text, [pairs], figures, pd.DataFrame(summary))


def _text(table: pd.DataFrame, study: str) -> list[str]:
    paper = table[table["method"].isin(PAPER_METHODS)]
    near = int((paper["difference"].abs() <= TOLERANCE).sum())
    near_draws = int((paper["difference"].abs() <= 2 * paper["std"]).sum())
    return [
        f"Ten sets of imbalanced-learn, labels with noise of p_plus = {P_PLUS[study]:g} and p_minus = 0.5, so that "
        "alpha is 1; stratified 10-fold cross-validation, thresholds on out-of-bag scores of noisy labels, F1 of all "
        "hold-out predictions against the clean labels. The paper says neither depth nor leaf size; here its forests "
        f"have 100 trees of depth {DEPTH} without a limit on leaves. Spreads are standard deviations over trials, that "
        "of a difference is its standard error.",
        f"{near} of {len(paper)} cells lie within {TOLERANCE:g} of the published value, {near_draws} within two of our "
        "standard deviations. Those hold the draw of label noise, which is another one in each trial.",
    ]


def _glance(table: pd.DataFrame) -> Table:
    """Return published and own means, a line for each set; a star where they differ by more than the tolerance."""
    means = table.set_index(["set", "method"])
    lines = []
    for name in dict.fromkeys(table["set"]):
        cells = []
        for method in (*PAPER_METHODS, *OURS):
            if (name, method) not in means.index:
                cells.append("")
                continue
            found = means.loc[(name, method)]
            is_far = abs(found["difference"]) > TOLERANCE
            theirs = "" if np.isnan(found["published"]) else f"{found['published']:.3f} / "
            cells.append(f"{theirs}{found['mean']:.3f}{' *' if is_far else ''}")
        lines.append((name, *cells))
    columns = ("set", *(METHODS[method].name for method in (*PAPER_METHODS, *OURS)))
    return Table(f"Published / ours; * differs by more than {TOLERANCE:g}", columns, lines)


def _averages(table: pd.DataFrame, study: str) -> Table:
    """Return mean F1 and mean rank over the sets that all methods have."""
    ours = table.pivot_table(index="set", columns="method", values="mean").dropna()
    theirs = _published_table(study, list(ours.index))
    printed = published.AVERAGES[study]
    four = compare_ranks(ours[list(PAPER_METHODS)], PAPER_METHODS).ranks if len(ours) > 1 else np.full(4, np.nan)
    every = (*PAPER_METHODS, *OURS)
    lines = []
    for j, method in enumerate(every):
        is_paper = j < len(PAPER_METHODS)
        five = (*PAPER_METHODS, method)
        beside = theirs if is_paper else np.column_stack([theirs, ours[method]])
        own = ours[list(PAPER_METHODS if is_paper else five)].to_numpy()
        lines.append(
            (
                METHODS[method].name,
                f"{printed['f1'][j]:.3f}" if is_paper else "",
                f"{theirs[:, j].mean():.3f}" if is_paper else "",
                f"{ours[method].mean():.3f}",
                f"{printed['rank'][j]:.2f}" if is_paper else "",
                _rank(beside, j if is_paper else 4),
                f"{four[j]:.2f}" if is_paper else _rank(own, 4),
            )
        )
    columns = (
        "method",
        "mean F1, printed in the paper",
        "mean of its cells",
        "ours",
        "mean rank, printed in the paper",
        "rank among its cells",
        "rank among our four forests",
    )
    return Table(f"Averages over {len(ours)} sets", columns, lines)


def _rank(table: Any, column: int) -> str:
    if len(table) < 2:
        return ""
    return f"{compare_ranks(table, [str(j) for j in range(np.shape(table)[1])]).ranks[column]:.2f}"


def _published_table(study: str, sets: list[str] | None = None) -> Any:
    cells = PUBLISHED[study]
    return np.array(
        [[cells[name, method].mean for method in PAPER_METHODS] for name in (sets or list(IMBALANCED_SETS))]
    )


def _own_table(rows: pd.DataFrame, methods: tuple[str, ...]) -> Any:
    means = rows.pivot_table(index="set", columns="method", values="f1", aggfunc="mean")
    if not set(methods) <= set(means.columns):
        return np.empty((0, len(methods)))
    return means[list(methods)].dropna().to_numpy()


def _values(rows: pd.DataFrame, name: str, method: str) -> Any:
    return rows.loc[(rows["set"] == name) & (rows["method"] == method), "f1"].to_numpy()


def _figure(comparison: RankComparison, what: str, name: str) -> Figure:
    from excess.report.critical_difference import plot_critical_difference

    axes = plot_critical_difference(comparison)
    axes.set_title(f"F1, {what}", fontsize=10, loc="left")
    caption = f"Average ranks of F1, {what}; Friedman p = {comparison.friedman_p_value:.3g}."
    return Figure(name, caption, axes.figure)


def _data(settings: Settings) -> str:
    return "small stand-ins, whose numbers mean nothing" if settings.small else "imbalanced-learn's sets, labels noisy"
