"""What is shown of the imbalanced sets: F1 by set and method, averages, ranks, and the critical difference diagram."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from excess.reproduction import published
from excess.reproduction.critical_difference import plot_critical_difference
from excess.reproduction.datasets import IMBALANCED_SETS
from excess.reproduction.imbalanced import DEPTH, N_TRIALS, PAPER_METHODS
from excess.reproduction.methods import METHODS
from excess.reproduction.pages import Comparison, Figure, Page, Table, compare
from excess.reproduction.ranking import RankComparison, compare_ranks
from excess.reproduction.settings import Settings

__all__ = ["critical_difference_page", "imbalanced_page"]

OURS = ("noisy-forest-near-best", "default-forest", "default-forest-f1")
NAMES = {method: METHODS[method].name for method in (*PAPER_METHODS, *OURS)}
NOISE = {"imbalanced": (0.1, published.IMBALANCED), "imbalanced-more-noise": (0.25, published.MORE_NOISE)}
"""Noise p_plus and the published cells of each study."""
TOLERANCE = 0.05
"""Differences of F1 up to this count as a reproduction: depth and leaf size are not published, and move F1 as much."""
CONFIDENCE = 0.9


def imbalanced_page(frames: Mapping[str, pd.DataFrame], settings: Settings, origin: Mapping[str, Any]) -> Page:
    """Return the page of one noise level."""
    (study, rows), *_ = frames.items()
    p_plus, cells = NOISE[study]
    found: dict[tuple[str, str], Comparison] = {}
    lines, summary = [], []
    for name in IMBALANCED_SETS:
        for method in NAMES:
            part = rows[(rows["set"] == name) & (rows["method"] == method)]
            if len(part):
                own = found[name, method] = compare(part["f1"], cells.get((name, method)), N_TRIALS)
                folds = part["f1_of_folds"].mean()
                lines.append((name, NAMES[method], *own.cells(3), str(own.n), f"{folds:.3f}"))
                summary.append({"set": name, "method": method, **vars(own), "mean_of_folds": folds})
    sets = describe_sets(name for name, _ in found)
    columns = ("set", "method", "published", "ours", "difference", "trials", "mean F1 of the folds")
    tables = [
        averages(rows, study),
        our_methods(rows),
        _overview(found, sets),
        Table(f"By set and method, {sets}", columns, lines, 2),
    ]
    title = f"F1 on imbalanced sets with noisy labels, p_plus = {p_plus:g}, p_minus = 0.5"
    return Page(title, _data(settings), _text(found, p_plus), tables, [], pd.DataFrame(summary))


def critical_difference_page(frames: Mapping[str, pd.DataFrame], settings: Settings, origin: Mapping[str, Any]) -> Page:
    """Return the diagrams: from the published tables, from ours, and from ours with our own forest."""
    figures, lines, summary = [], [], []
    for study, rows in frames.items():
        p_plus, _ = NOISE[study]
        theirs = compare_ranks(_published_table(study), [NAMES[method] for method in PAPER_METHODS], CONFIDENCE)
        cases = [("published", theirs, list(IMBALANCED_SETS))]
        for case, methods in (("ours", PAPER_METHODS), ("ours, with our default", (*PAPER_METHODS, "default-forest"))):
            own = common_means(rows, methods)
            if len(own) >= 2:
                compared = compare_ranks(own.to_numpy(), [NAMES[method] for method in methods], CONFIDENCE)
                cases.append((case, compared, list(own.index)))
        for case, comparison, sets in cases:
            what = f"{case}, p_plus = {p_plus:g}, {describe_sets(sets)}"
            figures.append(_figure(comparison, what, f"{study}-{case}".replace(", ", "-").replace(" ", "-")))
            lines += [
                (what, f"{first} - {second}", f"{comparison.p_value_of(first, second):.3f}")
                for i, first in enumerate(comparison.order)
                for second in comparison.order[i + 1 :]
            ]
            summary += [
                {
                    "p_plus": p_plus,
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
        f"Wilcoxon signed-rank test tells apart at a confidence of {CONFIDENCE:g}, Holm-corrected and exact. "
        "Every diagram is of the sets that all its methods have, by trials that all have.",
    )
    pairs = Table("Holm-corrected p-values", ("table", "pair", "p"), lines, 2)
    return Page("Critical differences", _data(settings), text, [pairs], figures, pd.DataFrame(summary))


def _text(found: Mapping[tuple[str, str], Comparison], p_plus: float) -> list[str]:
    paper = [own for (_, method), own in found.items() if method in PAPER_METHODS]
    near = sum(abs(own.difference) <= TOLERANCE for own in paper)
    text = f"{near} of {len(paper)} cells lie within {TOLERANCE:g} of the published value"
    repeated = [own for own in paper if own.n > 1]
    if repeated:
        n_draws = sum(abs(own.difference) <= 2 * own.std for own in repeated)
        of = "" if len(repeated) == len(paper) else f" of {len(repeated)} with more than one trial"
        text += (
            f", {n_draws}{of} within two of our standard deviations. Those hold the draw of label noise, which is "
            "another one in each trial"
        )
    return [
        f"Ten sets of imbalanced-learn, labels with noise of p_plus = {p_plus:g} and p_minus = 0.5, so that "
        "alpha is 1; stratified 10-fold cross-validation, thresholds on out-of-bag scores of noisy labels, F1 of all "
        "hold-out predictions against the clean labels. The paper says neither depth nor leaf size; here its forests "
        f"have 100 trees of depth {DEPTH} without a limit on leaves. Spreads are standard deviations over trials, that "
        "of a difference is its standard error.",
        f"{text}.",
    ]


def _overview(found: Mapping[tuple[str, str], Comparison], sets: str) -> Table:
    """Return published and own means, a line for each set; a star where they differ by more than the tolerance."""

    def cell(own: Comparison | None) -> str:
        if own is None:
            return ""
        theirs = "" if np.isnan(own.published) else f"{own.published:.3f} / "
        return f"{theirs}{own.mean:.3f}{' *' if abs(own.difference) > TOLERANCE else ''}"

    names = dict.fromkeys(name for name, _ in found)
    lines = [(name, *(cell(found.get((name, method))) for method in NAMES)) for name in names]
    title = f"Published / ours, {sets}; * differs by more than {TOLERANCE:g}"
    return Table(title, ("set", *NAMES.values()), lines)


def averages(rows: pd.DataFrame, study: str) -> Table:
    """Return mean F1 and mean rank of the paper's four forests over all sets that they have."""
    ours = common_means(rows, PAPER_METHODS)
    theirs = _published_table(study, list(ours.index))
    printed = published.AVERAGES[study]
    their_ranks, own_ranks = _ranks(theirs), _ranks(ours.to_numpy())
    lines = [
        (
            NAMES[method],
            f"{printed['f1'][j]:.3f}",
            f"{theirs[:, j].mean():.3f}",
            f"{ours[method].mean():.3f}",
            f"{printed['rank'][j]:.2f}",
            their_ranks[j],
            own_ranks[j],
        )
        for j, method in enumerate(PAPER_METHODS)
        if len(ours)
    ]
    columns = (
        "method",
        "mean F1, printed in the paper",
        "mean F1 of its cells",
        "mean F1, ours",
        "rank among the paper's four, printed in the paper",
        "rank among the paper's four, of its cells",
        "rank among the paper's four, ours",
    )
    return Table(f"Averages over {describe_sets(ours.index)}", columns, lines)


def our_methods(rows: pd.DataFrame) -> Table:
    """Return our further methods, each beside the paper's four on the sets and trials that all five have."""
    lines = []
    for method in OURS:
        five = (method, *PAPER_METHODS)
        common = common_trials(rows, five)
        if not common:
            continue
        means = common_means(rows, five)
        cells = [
            f"{means[key].mean():.3f} ({rank})" if rank else f"{means[key].mean():.3f}"
            for key, rank in zip(five, _ranks(means.to_numpy()), strict=True)
        ]
        n = sorted({len(trials) for trials in common.values()})
        n_trials = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
        lines.append((NAMES[method], describe_sets(means.index), n_trials, *cells))
    names = (NAMES[method] for method in PAPER_METHODS)
    columns = ("method", "over", "trials on a set", "its mean F1 (rank of five)", *names)
    title = "Our further forests, each with the paper's four on the sets and trials that all five have"
    return Table(title, columns, lines, 2)


def common_trials(rows: pd.DataFrame, methods: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return F1 by trial and method for each set, of the trials that all these methods have.

    The paper's four are run together, and have all their sets. With others, sets with fewer than two such trials are
    left out, unless nothing there has more than one.
    """
    found = {}
    for name in IMBALANCED_SETS:
        own = rows[rows["set"] == name]
        by_trial = own.pivot_table(index="trial", columns="method", values="f1").reindex(columns=list(methods))
        common = by_trial.dropna()
        at_least = 1 if set(methods) <= set(PAPER_METHODS) else min(2, own["trial"].nunique())
        if len(common) >= max(at_least, 1):
            found[name] = common
    return found


def common_means(rows: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Return mean F1 by set and method, over the trials that all these methods have."""
    means = {name: trials.mean() for name, trials in common_trials(rows, methods).items()}
    return pd.DataFrame.from_dict(means, orient="index", columns=list(methods))


def describe_sets(sets: Iterable[str]) -> str:
    """Return how many sets there are, and which of the ten are left out.

    Examples
    --------
    >>> from excess.reproduction.datasets import IMBALANCED_SETS
    >>> from excess.reproduction.imbalanced_page import describe_sets
    >>> describe_sets(IMBALANCED_SETS), describe_sets(list(IMBALANCED_SETS)[:-1])
    ('10 sets', '9 sets (left out: protein_homo)')
    """
    there = set(sets)
    missing = [name for name in IMBALANCED_SETS if name not in there]
    return f"{len(there)} sets" + (f" (left out: {', '.join(missing)})" if missing else "")


def _ranks(table: Any) -> list[str]:
    """Return mean ranks of columns as text; nothing for fewer than two sets."""
    names = [str(j) for j in range(table.shape[1])]
    return [f"{rank:.2f}" for rank in compare_ranks(table, names).ranks] if len(table) > 1 else [""] * len(names)


def _published_table(study: str, sets: list[str] | None = None) -> Any:
    _, cells = NOISE[study]
    names = IMBALANCED_SETS if sets is None else sets
    return np.array([[cells[name, method].mean for method in PAPER_METHODS] for name in names]).reshape(-1, 4)


def _figure(comparison: RankComparison, what: str, name: str) -> Figure:
    axes = plot_critical_difference(comparison)
    axes.set_title(f"F1, {what}", fontsize=9, loc="left")
    caption = f"Average ranks of F1, {what}; Friedman p = {comparison.friedman_p_value:.3g}."
    return Figure(name, caption, axes.figure)


def _data(settings: Settings) -> str:
    return "small stand-ins, whose numbers mean nothing" if settings.small else "imbalanced-learn's sets, labels noisy"
