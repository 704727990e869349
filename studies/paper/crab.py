"""Table I of the paper in its full version, fake On regions, agreement with the supervised forest, and ROC curves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.model_selection import LeaveOneGroupOut

from excess import OnOffCounts, agreement, null_test, on_off_likelihood, supervised_reference
from studies.paper import published
from studies.paper.data import (
    N_REGIONS,
    crab_data,
    describe_crab,
    fact_files,
    has_labels,
    identify_crab,
    labelled_events,
)
from studies.paper.methods import METHODS, cross_validate, group_by_model, make_method_model, threshold_rules
from studies.paper.tables import BLUE, GREEN, GREY, ORANGE, Page, compare, show
from studies.paper.trials import Row, Settings, Study, Trial

N_TRIALS = 10
MEASURES = ("pearson", "spearman")
CLUSTERS = (8, 16, 32, 48, 64, 128, 256)
DEPTHS = (4, 5, 6, 7, 8)
SIZES: dict[str, tuple[int, ...]] = {
    "li-ma-tree": DEPTHS,
    "noisy-tree": DEPTHS,
    "li-ma-forest": DEPTHS,
    "noisy-forest": DEPTHS,
    "supervised-tree": (0, 1),
    "supervised-forest": (0, 1),
    "default-forest": (0,),
    "k-means": CLUSTERS,
    "k-means-ensemble": CLUSTERS,
    "default-k-means-ensemble": (0,),
}
"""Depths or numbers of clusters of each model, roughly the fastest first; 1 is a supervised model with few events.

A model is named by the first of the methods that share it."""
NULL_SIZES = {"li-ma-tree": (4, 6), "li-ma-forest": (4, 6), "k-means": (32, 128), "k-means-ensemble": (32, 128)}
SMALL_SIZES = {"k-means": (8,), "k-means-ensemble": (8,)}
METHODS_OF = {first: (first, *others) for first, *others in group_by_model(key for key in METHODS if "near" not in key)}
"""Methods that share a model."""
OURS = ("default-forest", "default-k-means-ensemble")
"""Lines of the tables after the published ones."""
ROC_FORESTS = {"supervised-forest": 0, "li-ma-forest": 6, "noisy-forest": 8, "default-forest": 0}
"""Forests of the ROC figure with their depths; the paper has the first two."""


def line_of(method: str, size: int) -> str:
    """Return the line of the published tables that a method of some size belongs to, such as menon-7."""
    if method.startswith("default"):
        return method
    kind = method.removesuffix("-tree").removesuffix("-forest").removesuffix("-ensemble")
    if kind == "supervised":
        return "supervised-small" if size else "supervised"
    return f"{kind}-{size}"


def name_of(line: str, n_models: int | None = None) -> str:
    """Return the name of a line for single models (1), for ensembles (100), or for both (None)."""
    if line.startswith("default"):
        return METHODS[line].name
    kind, _, size = line.rpartition("-") if line != "supervised" else (line, "", "")
    keys = ("k-means", "k-means-ensemble") if kind == "k-means" else (f"{kind}-tree", f"{kind}-forest")
    single, ensemble = (METHODS[key].name for key in keys)
    name = {1: single, 100: ensemble, None: f"{single} / {ensemble.split()[-1]}"}[n_models]
    if kind == "supervised":
        return f"{name}, few events" if size else name
    return f"{name}, {size} clusters" if kind == "k-means" else f"{name}, depth {size}"


def is_in_agreement(trial: Trial) -> bool:
    """Return whether a trial belongs to the table of correlations."""
    line = line_of(trial["model"], trial["size"])
    return line.startswith("default") or line in published.AGREEMENT.index.get_level_values("line")


def make_crab_model(model: str, size: int, settings: Settings, seed: int) -> Any:
    """Return a model of some depth or number of clusters, not fitted; below 2, the model's own."""
    option = "n_clusters" if "k-means" in model else "max_depth"
    return make_method_model(model, settings, random_state=seed, **({option: size} if size > 1 else {}))


def train_supervised(model: str, size: int, settings: Settings, seed: int) -> Any:
    """Return a model trained on labelled events, which tunes its threshold on On and Off events."""
    events = labelled_events("train-small" if size else "train", settings)
    if events is None:
        raise ValueError("a supervised model needs files of simulated gammas and protons next to FACT's data")
    return supervised_reference(*events, estimator=make_method_model(model, settings, random_state=seed))


@lru_cache(maxsize=1)
def reference_score(settings: Settings) -> NDArray[np.float64] | None:
    """Return the scores of all events by the supervised forest, if there are labelled events to train it on."""
    if labelled_events("train", settings) is None:
        return None
    reference = train_supervised("supervised-forest", 0, settings, settings.trial_seed(2_000))
    return reference.estimator.predict_proba(crab_data(settings).X)[:, 1]


def plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return the trials, repetition by repetition."""
    sizes = {**SIZES, **SMALL_SIZES} if settings.small else SIZES
    labels = has_labels(fact_files(settings))
    return [
        {"model": model, "size": size, "trial": number}
        for number in range(n_trials)
        for model, own in sizes.items()
        for size in own
        if labels or not model.startswith("supervised")
    ]


def run(settings: Settings, trial: Trial) -> list[Row]:
    """Cross-validate one model with all its threshold rules, one night held out at a time."""
    data, reference = crab_data(settings), reference_score(settings)
    on = data.on == 1
    model, size, seed = trial["model"], trial["size"], settings.trial_seed(trial["trial"])
    make = train_supervised if model.startswith("supervised") else make_crab_model
    rules = threshold_rules(METHODS_OF[model], seed)
    folds = LeaveOneGroupOut().split(data.X, groups=data.groups)
    found = cross_validate(make(model, size, settings, seed), data.X, on, rules, data.alpha, folds)
    likelihood = on_off_likelihood(on, found.ratio, data.alpha).significance
    uncut = OnOffCounts(int(on.sum()), int((~on).sum()), data.alpha).significance
    rows = []
    for method, selected in found.selected.items():
        counts = OnOffCounts(int((selected & on).sum()), int((selected & ~on).sum()), data.alpha)
        row = _row(method, size, counts, likelihood, uncut)
        if reference is not None:
            # a single model has no soft score, according to the paper: its crisp classification is compared
            near = agreement(found.score if row["n_models"] > 1 else selected, reference)._asdict()
            row |= {name: None if np.isnan(near[name]) else near[name] for name in MEASURES}
        rows.append(row)
    return rows


def null_plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return the trials with a fake On region; repetitions use the Off regions in turn."""
    return [
        {"model": model, "size": size, "trial": number, "region": 1 + number % (N_REGIONS - 1)}
        for number in range(n_trials)
        for model, own in ({**NULL_SIZES, **SMALL_SIZES} if settings.small else NULL_SIZES).items()
        for size in own
    ]


def null_run(settings: Settings, trial: Trial) -> list[Row]:
    """Cross-validate one model where there is no source."""
    data, model, size, region = crab_data(settings), trial["model"], trial["size"], trial["region"]
    untrained = make_crab_model(model, size, settings, settings.trial_seed(trial["trial"]))
    shared = {"n_regions": data.regions.n_regions, "groups": data.groups, "statistic": "cut"}
    found = null_test(untrained, data.X, data.regions.region, off_regions=[region], **shared).detections[region]
    return [_row(model, size, found.counts, found.likelihood.significance, found.uncut.significance)]


def _row(method: str, size: int, counts: OnOffCounts, likelihood: float, uncut: float) -> Row:
    return {
        "method": method,
        "line": line_of(method, size),
        "n_models": 1 if method == "k-means" or method.endswith("-tree") else 100,
        "n_on": int(counts.n_on),
        "n_off": int(counts.n_off),
        "significance": float(counts.significance),
        "likelihood": float(likelihood),
        "uncut": float(uncut),
    }


def roc_plan(settings: Settings, n_trials: int) -> list[Trial]:
    """Return the trials, repetition by repetition."""
    return [{"model": model, "trial": number} for number in range(n_trials) for model in ROC_FORESTS]


def roc_run(settings: Settings, trial: Trial) -> list[Row]:
    """Train one forest and return its ROC curve at evenly spread false positive rates."""
    model, seed = trial["model"], settings.trial_seed(trial["trial"])
    if model == "supervised-forest":
        fitted = train_supervised(model, 0, settings, seed).estimator
    else:
        data = crab_data(settings)
        fitted = make_crab_model(model, ROC_FORESTS[model], settings, seed).set_params(alpha=data.alpha)
        fitted.fit(data.X, data.on)
    X, clean = labelled_events("test", settings)
    score = fitted.predict_proba(X)[:, 1]
    fpr, tpr, _ = roc_curve(clean, score)
    auc, grid = float(roc_auc_score(clean, score)), np.linspace(0, 1, 101)
    return [
        {"fpr": round(float(x), 2), "tpr": float(y), "auc": auc}
        for x, y in zip(grid, np.interp(grid, fpr, tpr), strict=True)
    ]


CRAB = Study("crab", N_TRIALS, plan, run, describe_crab, identify_crab)
CRAB_NULL = Study("crab-null", N_TRIALS, null_plan, null_run, describe_crab, identify_crab)
ROC = Study("roc", N_TRIALS, roc_plan, roc_run, describe_crab, identify_crab)


def crab_page(frames: Mapping[str, pd.DataFrame], data: str) -> Page:
    """Return Table I in its full version."""
    rows, by = _in_order(frames["crab"], published.CRAB), ["line", "n_models"]
    found = compare(rows, by, "significance", published.CRAB, N_TRIALS)
    likelihood = compare(rows, by, "likelihood")
    cells = show(found, 2).assign(likelihood=show(likelihood, 2)["ours"], repetitions=found["n"].astype(str))
    table = _side_by_side(cells, {1: "T = 1, cut", 100: "T = 100, cut"})
    table.insert(0, "model", [name_of(line) for line in table.index])
    text = [
        "Significance in sigma of all selected events, one night held out at a time, as in the paper; the likelihood "
        "is ours, uses all hold-out events, and has no threshold. T = 1 is a single model, T = 100 an ensemble. "
        "Spreads are standard deviations over repetitions on the same events, for differences standard errors.",
        f"Without a cut, all events have {rows['uncut'].iloc[0]:.1f} sigma.",
    ]
    summary = found.join(likelihood[["mean", "std"]].add_suffix("_likelihood")).reset_index()
    figures = {"significance": (_draw_significance(summary), f"Significance of the Crab Nebula. Data: {data}.")}
    return Page("Detection of the Crab Nebula", data, text, {"Table I, full version": table}, summary, figures)


def null_page(frames: Mapping[str, pd.DataFrame], data: str) -> Page:
    """Return the table with a fake On region."""
    rows, by = _in_order(frames["crab-null"], published.CRAB_NULL), ["line", "n_models"]
    rows["one_sided"] = rows["significance"].clip(lower=0.0)  # the paper's significance has no deficits
    found = compare(rows, by, "one_sided", published.CRAB_NULL, N_TRIALS)
    # repetitions on the same region are not independent, so the standard error is from the means of the regions
    regions = rows.groupby([*by, "region"], sort=False)["one_sided"].mean().reset_index()
    found["error"] = compare(regions, by, "one_sided", published.CRAB_NULL, N_TRIALS)["error"]
    found["n_regions"] = rows.groupby(by, sort=False)["region"].nunique()
    table = show(found, 2).assign(repetitions=found["n"], regions=found["n_regions"])
    for value, name in (("significance", "signed"), ("likelihood", "likelihood")):
        own = compare(rows, by, value)
        found = found.join(own[["mean", "std"]].add_suffix(f"_{name}"))
        table[f"ours, {name}"] = show(own, 2)["ours"]
        table[f"largest, {name}"] = rows.groupby(by, sort=False)[value].max().map("{:.2f}".format)
    uncut = rows.groupby("region")["uncut"].first().map("{:.1f}".format)
    text = [
        f"The Off regions are declared On in turn, without the On events; alpha is {1 / (N_REGIONS - 2):g}. Deficits "
        "count as 0, as in the paper; the last columns are signed. Without a source a signed significance should have "
        "mean 0 and standard deviation 1, so the one-sided mean should be 0.40. Standard errors are from the means of "
        f"the regions. Without any cut, the regions show {', '.join(uncut)} sigma."
    ]
    return Page("A fake On region", data, text, {"Significance": _named(table)}, found.reset_index())


def agreement_page(frames: Mapping[str, pd.DataFrame], data: str) -> Page:
    """Return correlations with the supervised forest."""
    rows, by = _in_order(frames["crab"], published.AGREEMENT), ["line", "n_models"]
    rows = rows.sort_values("n_models", kind="stable")
    long = rows.melt(by, MEASURES, "measure").astype({"value": float})
    found = compare(long, [*by, "measure"], "value", published.AGREEMENT, N_TRIALS)
    table = _side_by_side(show(found, 3), {measure: measure.title() for measure in MEASURES})
    table["repetitions"] = rows.groupby(by, sort=False).size()
    text = [
        "Correlations of hold-out scores with those of the supervised forest, over all On and Off events; for single "
        "models, of their classification."
    ]
    title = "Agreement with the supervised forest"
    return Page(title, data, text, {"Correlations": _named(table)}, found.reset_index())


def roc_page(frames: Mapping[str, pd.DataFrame], data: str) -> Page:
    """Return the ROC curves on simulated truth."""
    rows = frames["roc"]
    found = compare(rows[rows["fpr"] == 0], ["model"], "auc", published.AUC, N_TRIALS)
    table = show(found, 3).assign(repetitions=found["n"]).reset_index()
    names = {key: METHODS[key].name + (f", depth {depth}" if depth else "") for key, depth in ROC_FORESTS.items()}
    table["model"] = table["model"].map(names)
    text = [
        "Forests that learned from On and Off labels only, and one from simulated truth, on other simulated events. "
        "The paper prints one area, and no spread."
    ]
    figure = Figure(figsize=(5.5, 5), layout="constrained")
    axes = figure.subplots()
    for model, color in zip(found.index, ("black", ORANGE, BLUE, GREEN), strict=False):
        mean = rows[rows["model"] == model].groupby("fpr")["tpr"].mean()
        axes.plot(mean.index, mean, color=color, label=f"{names[model]}, area {found.loc[model, 'mean']:.3f}")
    axes.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls=":")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.legend(loc="lower right", frameon=False)
    figures = {"roc": (figure, "ROC curves on simulated truth, mean over repetitions.")}
    title = "ROC curves on simulated truth"
    return Page(title, data, text, {"Area under the curve": table}, found.reset_index(), figures)


def _in_order(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of published lines and ours, by line and number of models."""
    place = {line: i for i, line in enumerate(dict.fromkeys([*table.index.get_level_values("line"), *OURS]))}
    rows = rows.assign(place=rows["line"].map(place)).dropna(subset="place")
    return rows.sort_values(["place", "n_models"], kind="stable")


def _side_by_side(cells: pd.DataFrame, titles: Mapping[Any, str]) -> pd.DataFrame:
    """Return columns for each value of the last level of the index, with a title for the first of them."""
    wide = cells.unstack(sort=False, fill_value="").swaplevel(axis=1).reindex(columns=list(titles), level=0)
    return wide.set_axis(
        [f"{titles[key]}: {name}" if name == "published" else name for key, name in wide.columns], axis=1
    )


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the name of each line and the number of models in columns."""
    table = table.reset_index(names=["model", "T"])
    return table.assign(model=[name_of(*key) for key in zip(table["model"], table["T"], strict=True)])


def _draw_significance(summary: pd.DataFrame) -> Figure:
    """Draw all means, ours and published, of single models and ensembles."""
    names = list(dict.fromkeys(summary["line"]))
    figure = Figure(figsize=(8, 8.5), layout="constrained")
    axes = figure.subplots()
    for n_models, color in ((1, BLUE), (100, ORANGE)):
        own = summary[summary["n_models"] == n_models]
        y, style, size = own["line"].map(names.index), {"color": color, "mfc": "none"}, f"T = {n_models}"
        axes.errorbar(own["mean"], y, xerr=own["std"].fillna(0.0), fmt="o", ms=5, label=f"ours, cut, {size}", **style)
        axes.plot(own["mean_likelihood"], y, "^", ms=5, label=f"ours, likelihood, {size}", **style)
        axes.plot(own["published"], y, "|", ms=11, mew=1.8, label=f"published, {size}", **style)
    axes.set_yticks(range(len(names)), [name_of(name) for name in names])
    axes.invert_yaxis()
    axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.6)
    axes.set(xlabel="significance / sigma")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    return figure
