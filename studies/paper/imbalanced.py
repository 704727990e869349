"""Tables II and VI of the paper and its critical difference diagram: F1 on ten imbalanced sets with noisy labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scikit_posthocs
from matplotlib.figure import Figure
from scipy.stats import friedmanchisquare
from sklearn.metrics import f1_score, precision_score, recall_score
from sklearn.model_selection import StratifiedKFold

from excess import inject_label_noise
from studies.paper import published
from studies.paper.data import IMBALANCED_SETS, describe_sets, identify_sets, imbalanced_set
from studies.paper.methods import METHODS, cross_validate, group_by_model, make_method_model, threshold_rules
from studies.paper.tables import Page, compare, show
from studies.paper.trials import Row, Settings, Study, Trial

P_MINUS = 0.5
DEPTH = 8
"""Largest depth of the paper's forests; the paper does not give it. See results.md."""
N_FOLDS = 10
N_TRIALS = 20
FORESTS = published.FORESTS
PARTS = {"paper": (*FORESTS, "noisy-forest-near-best"), "ours": ("default-forest", "default-forest-f1")}
"""Methods that are run together. Ours takes far longer on the largest set, where it is run last."""
LARGEST = "protein_homo"
OURS = ("noisy-forest-near-best", "default-forest", "default-forest-f1")
NAMES = {method: METHODS[method].name for method in (*FORESTS, *OURS)}
NOISE = {"imbalanced": (0.1, published.IMBALANCED), "imbalanced-more-noise": (0.25, published.MORE_NOISE)}
"""Noise p_plus and the published cells of each study."""
TOLERANCE = 0.05
"""Differences of F1 that count as a reproduction: depth and leaf size are not published, and change F1 as much."""
LEVEL = 0.1
"""Level of the tests of the critical difference diagram, as in the paper."""


def plan(settings: Settings, n_trials: int, p_plus: float) -> list[Trial]:
    """Return the trials, in an order that gives whole repetitions when a run is interrupted."""
    order = [(number, name, part) for number in range(n_trials) for name in IMBALANCED_SETS for part in PARTS]
    order.sort(key=lambda item: item[1:] == (LARGEST, "ours"))
    return [{"set": name, "p_plus": p_plus, "trial": number, "part": part} for number, name, part in order]


def run(settings: Settings, trial: Trial) -> list[Row]:
    """Run one trial: one draw of noise and folds on one set, and some of the methods."""
    X, clean = imbalanced_set(trial["set"], settings)
    number = list(IMBALANCED_SETS).index(trial["set"])
    for_noise, for_folds, for_models = (settings.trial_seed(trial["trial"], number, part) for part in range(3))
    on = inject_label_noise(clean, trial["p_plus"], P_MINUS, random_state=for_noise).astype(np.bool_)
    folds = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=for_folds).split(X, clean))
    methods = PARTS[trial["part"]]
    rows = {}
    for sharing in group_by_model(methods):
        options = {} if sharing[0] == "default-forest" else {"max_depth": DEPTH}
        forest = make_method_model(sharing[0], settings, random_state=for_models, **options)
        found = cross_validate(forest, X, on, threshold_rules(sharing, for_models), 1.0, folds)
        for method, selected in found.selected.items():
            each = [f1_score(clean[test], selected[test], zero_division=0.0) for _, test in folds]
            rows[method] = {
                "method": method,
                "f1": float(f1_score(clean, selected, zero_division=0.0)),
                "f1_of_folds": float(np.mean(each)),
                "precision": float(precision_score(clean, selected, zero_division=0.0)),
                "recall": float(recall_score(clean, selected, zero_division=0.0)),
                "n_selected": int(np.count_nonzero(selected)),
            }
    return [rows[method] for method in methods]


IMBALANCED, MORE_NOISE = (
    Study(name, N_TRIALS, partial(plan, p_plus=p_plus), run, describe_sets, identify_sets)
    for name, (p_plus, _) in NOISE.items()
)


def imbalanced_page(frames: Mapping[str, pd.DataFrame], data: str) -> Page:
    """Return the page of one noise level."""
    ((study, rows),) = frames.items()
    p_plus, theirs = NOISE[study]
    order = {"set": list(IMBALANCED_SETS), "method": list(NAMES)}
    rows = rows.sort_values(["set", "method"], key=lambda own: own.map(order[own.name].index), kind="stable")
    found = compare(rows, ["set", "method"], "f1", theirs, N_TRIALS)
    found["mean_of_folds"] = rows.groupby(["set", "method"], sort=False)["f1_of_folds"].mean()
    paper = found[found["published"].notna()]
    near, far = (paper["difference"].abs() <= limit for limit in (TOLERANCE, 2 * paper["std"]))
    text = [
        f"Label noise p_plus = {p_plus:g}, p_minus = {P_MINUS:g}, so alpha is 1; stratified {N_FOLDS}-fold "
        "cross-validation, F1 of hold-out predictions against the clean labels. The paper's forests have 100 trees of "
        f"depth {DEPTH}. Spreads are standard deviations over trials, for differences standard errors.",
        f"{near.sum()} of {len(paper)} cells are within {TOLERANCE:g} of the published value, {far.sum()} within two "
        "of our standard deviations, which include the draw of label noise.",
    ]
    cells = found["mean"].map("{:.3f}".format) + np.where(found["difference"].abs() > TOLERANCE, " *", "")
    cells[paper.index] = paper["published"].map("{:.3f} / ".format) + cells[paper.index]
    overview = cells.unstack(sort=False, fill_value="").rename(columns=NAMES)
    full = show(found, 3).assign(trials=found["n"], folds=found["mean_of_folds"].map("{:.3f}".format))
    full = full.rename(NAMES, level="method").rename(columns={"folds": "mean F1 of the folds"})
    tables = {
        f"Averages over {count_sets(common_means(rows, FORESTS).index)}": averages(rows, study),
        "Our further forests, each with the paper's four on the sets and trials that all five have": our_methods(rows),
        f"Published / ours; * differs by more than {TOLERANCE:g}": overview.reset_index(),
        "By set and method": full.reset_index(),
    }
    title = f"F1 on imbalanced sets with noisy labels, p_plus = {p_plus:g}, p_minus = {P_MINUS:g}"
    return Page(title, data, text, tables, found.reset_index())


def critical_difference_page(frames: Mapping[str, pd.DataFrame], data: str) -> Page:
    """Return the diagrams: from the published tables, from ours, and from ours with our own forest."""
    figures, pairs, summary = {}, [], []
    for study, rows in frames.items():
        p_plus, cells = NOISE[study]
        tables = {
            "published": cells["published"].unstack(sort=False).loc[list(IMBALANCED_SETS), list(FORESTS)],
            "ours": common_means(rows, FORESTS),
            "ours, with our default": common_means(rows, (*FORESTS, "default-forest")),
        }
        for case, table in tables.items():
            if len(table) < 2:
                continue
            table = table.rename(columns=NAMES)
            ranks, p_values = mean_ranks(table).sort_values(kind="stable"), pairwise_p_values(table)
            friedman = float(friedmanchisquare(*_scaled(table).to_numpy().T).pvalue)
            what = f"{case}, p_plus = {p_plus:g}, {count_sets(table.index)}"
            caption = f"Average ranks of F1, {what}; Friedman p = {friedman:.3g}."
            name = f"{study}-{case}".replace(", ", "-").replace(" ", "-")
            figures[name] = (draw_critical_difference(ranks, p_values)[0], caption)
            pairs += [
                {"table": what, "pair": f"{first} - {second}", "p": f"{p_values.loc[first, second]:.3f}"}
                for i, first in enumerate(ranks.index)
                for second in ranks.index[i + 1 :]
            ]
            known = {"p_plus": p_plus, "table": case}
            counted = {"friedman_p_value": friedman, "n_sets": len(table)}
            summary += [{**known, "method": method, "rank": rank, **counted} for method, rank in ranks.items()]
    text = [
        "Average ranks of F1 over the sets and trials that all methods have, ties averaged. A bar connects methods "
        f"that no Wilcoxon signed-rank test separates at a confidence of {1 - LEVEL:g}, Holm-corrected."
    ]
    tables = {"Holm-corrected p-values": pd.DataFrame(pairs)}
    return Page("Critical differences", data, text, tables, pd.DataFrame(summary), figures)


def _scaled(table: pd.DataFrame) -> pd.DataFrame:
    """Return scores as whole numbers of 1e-9, whose differences have no rounding errors and tie where they should."""
    return (table * 1e9).round()


def mean_ranks(table: pd.DataFrame) -> pd.Series[float]:
    """Return the average rank of each method over the data sets, from a table of sets and methods; 1 is the best."""
    return _scaled(table).rank(axis=1, ascending=False).mean()


def pairwise_p_values(table: pd.DataFrame) -> pd.DataFrame:
    """Return p-values of all pairs of methods by Wilcoxon's signed-rank test, Holm-corrected."""
    with np.errstate(invalid="ignore"):  # two equal methods have p = 1
        found = scikit_posthocs.posthoc_wilcoxon(list(_scaled(table).to_numpy().T), p_adjust="holm")
    return found.set_axis(table.columns, axis=0).set_axis(table.columns, axis=1)


def draw_critical_difference(ranks: pd.Series[float], p_values: pd.DataFrame) -> tuple[Figure, dict[str, list[Any]]]:
    """Draw average ranks with bars over methods that the tests do not separate; also return the drawn elements."""
    figure = Figure(figsize=(7.0, 2.4), layout="constrained")
    style = {"label_fmt_left": "{label}  {rank:.2f} ", "label_fmt_right": " {rank:.2f}  {label}", "text_h_margin": 0.1}
    axes = figure.subplots()
    return figure, scikit_posthocs.critical_difference_diagram(ranks, p_values, alpha=LEVEL, ax=axes, **style)


def averages(rows: pd.DataFrame, study: str) -> pd.DataFrame:
    """Return mean F1 and mean rank of the paper's four forests over all sets that they have."""
    ours = common_means(rows, FORESTS)
    theirs = NOISE[study][1]["published"].unstack(sort=False).loc[ours.index, list(FORESTS)]
    printed = published.AVERAGES[study]
    table = pd.DataFrame(
        {
            "mean F1, printed in the paper": pd.Series(printed["f1"], FORESTS).map("{:.3f}".format),
            "mean F1 of its cells": theirs.mean().map("{:.3f}".format),
            "mean F1, ours": ours.mean().map("{:.3f}".format),
            "rank, printed in the paper": pd.Series(printed["rank"], FORESTS).map("{:.2f}".format),
            "rank of its cells": mean_ranks(theirs).map("{:.2f}".format),
            "rank, ours": mean_ranks(ours).map("{:.2f}".format),
        }
    )
    return table.rename(NAMES).reset_index(names="method")


def our_methods(rows: pd.DataFrame) -> pd.DataFrame:
    """Return our further methods, each with the paper's four on the sets and trials that all five have."""
    lines = []
    for method in OURS:
        trials = common_trials(rows, (method, *FORESTS))
        means, n = trials.groupby("set", sort=False).mean(), trials.groupby("set").size()
        if len(means):
            over, n_trials = count_sets(means.index), " to ".join(map(str, sorted({n.min(), n.max()})))
            cells = [f"{mean:.3f} ({rank:.2f})" for mean, rank in zip(means.mean(), mean_ranks(means), strict=True)]
            lines.append([NAMES[method], over, n_trials, *cells])
    columns = ["method", "over", "trials on a set", "its mean F1 (rank of five)", *(NAMES[key] for key in FORESTS)]
    return pd.DataFrame(lines, columns=columns)


def common_trials(rows: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Return F1 of methods by set and trial, of the trials that all of them have.

    The paper's four are run together, and have all their sets. With others, sets with fewer than two such trials are
    left out, unless no set has more than one trial.
    """
    f1 = rows.pivot_table("f1", ["set", "trial"], "method").reindex(columns=list(methods)).dropna()
    at_least = rows.groupby("set")["trial"].nunique().clip(upper=1 if set(methods) <= set(FORESTS) else 2)
    n = f1.groupby("set").size()
    return f1.loc[[name for name in IMBALANCED_SETS if name in n and n[name] >= at_least[name]]]


def common_means(rows: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Return mean F1 by set and method, over the trials that all these methods have."""
    return common_trials(rows, methods).groupby("set", sort=False).mean()


def count_sets(sets: Iterable[str]) -> str:
    """Return the number of sets, and which of the ten are left out."""
    missing = [name for name in IMBALANCED_SETS if name not in set(sets)]
    return f"{len(IMBALANCED_SETS) - len(missing)} sets" + (f" (left out: {', '.join(missing)})" if missing else "")
