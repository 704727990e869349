"""What is shown of the Crab: significances, fake On regions, agreement with the supervised forest, ROC curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from excess.report.style import GREY, OFF, ON, OTHER, paper_axes
from excess.reproduction import published
from excess.reproduction.crab import name_of
from excess.reproduction.crab_data import N_REGIONS, are_labelled, crab_data, fact_files, labelled_files
from excess.reproduction.pages import Comparison, Figure, Page, Table, compare, pm
from excess.reproduction.roc import FORESTS
from excess.reproduction.settings import Settings
from excess.stats.counts import OnOffCounts
from excess.validation.null_tests import label_null_region

__all__ = ["agreement_page", "crab_page", "null_page", "roc_page"]

N_PUBLISHED = 10
COLORS = {"supervised-forest": "black", "li-ma-forest": ON, "noisy-forest": OFF, "default-forest": OTHER}


def crab_page(frames: Mapping[str, pd.DataFrame], settings: Settings, origin: Mapping[str, Any]) -> Page:
    """Return Table I in its full version."""
    lines: dict[str, list[str]] = {}
    summary = []
    for line, n_models, part in _parts(frames["crab"], published.CRAB):
        found = compare(part["significance"], published.CRAB.get((line, str(n_models))), N_PUBLISHED)
        likelihood = compare(part["likelihood"].dropna(), None, 1)
        cells = [*found.cells(2), likelihood.cells(2)[1], str(found.n) if found.n else ""]
        lines.setdefault(line, [name_of(line)]).extend(cells)
        if found.n:
            of_likelihood = {"mean_likelihood": likelihood.mean, "std_likelihood": likelihood.std}
            summary.append({"line": line, "n_models": n_models, **vars(found), **of_likelihood})
    uncut = ""
    if _has_events(settings, origin):
        uncut = f" Without a cut: {crab_data(settings).regions.counts}."
    text = [
        f"Significance of the Crab Nebula in sigma: one night is held out at a time, and one significance is computed "
        f"of all hold-out events that are selected, which is the paper's statistic.{uncut}",
        "The likelihood is not in the paper: it uses all hold-out events, each by its signal ratio, and the models are "
        "those of the cut. It has no threshold, so that methods which differ in their rule for it alone share one "
        f"value.{_without_likelihood(summary)}",
        "The number after a name is the number of clusters or the depth. T = 1 is a single model, T = 100 an ensemble "
        "(200 trees for the supervised forest and our default). Spreads are standard deviations over repetitions with "
        "other seeds on the same events; that of a difference is its standard error. There is none where all "
        "repetitions are equal, as those of a tree that searches every cut.",
        "The data are one observation: differences between methods below about one sigma may turn with another one.",
    ]
    columns = ["model"]
    for size in ("T = 1", "T = 100"):
        columns += [f"{size}, cut: published", "ours", "difference", "likelihood: ours", "repetitions"]
    return Page(
        "Detection of the Crab Nebula",
        describe_data(settings, origin),
        text + _simulation_note(origin),
        [Table("Table I, full version", columns, list(lines.values()))],
        [_bars(pd.DataFrame(summary), settings, origin)],
        pd.DataFrame(summary),
    )


def _without_likelihood(summary: Sequence[Mapping[str, Any]]) -> str:
    """Say which models have no likelihood, and why."""
    blank = [name_of(row["line"], row["n_models"]) for row in summary if np.isnan(row["mean_likelihood"])]
    if not blank:
        return ""
    return f" It is blank for models that do not say how signal-like an event is: {'; '.join(blank)}."


def null_page(frames: Mapping[str, pd.DataFrame], settings: Settings, origin: Mapping[str, Any]) -> Page:
    """Return the table with a fake On region."""
    lines, summary = [], []
    for line, n_models, part in _parts(frames["crab-null"], published.CRAB_NULL):
        if len(part) == 0:
            continue
        found, own = _without_source(part, published.CRAB_NULL.get((line, str(n_models))))
        n_regions = part["region"].nunique()
        likelihood = compare(part["likelihood"].dropna(), None, 1)
        counted = [str(found.n), str(n_regions)]
        for signed_values, name in ((own, "significance"), (likelihood, "likelihood")):
            counted += [signed_values.cells(2)[1], pm(part[name].max(), float("nan"), 2) if signed_values.n else ""]
        lines.append((name_of(line, n_models), str(n_models), *found.cells(2), *counted))
        signed = {"mean_signed": own.mean, "std_signed": own.std}
        signed |= {"mean_likelihood": likelihood.mean, "std_likelihood": likelihood.std}
        summary.append({"line": line, "n_models": n_models, **vars(found), "n_regions": n_regions, **signed})
    n_regions = N_REGIONS
    text = [
        "On events are dropped and one Off region is called On, the Off regions in turn, so that alpha is "
        f"{1 / (n_regions - 2):g}; everything else is as for the Crab. There is no source to find. Deficits count as "
        "0, as in the paper; the last columns keep their sign. Without a source a signed significance should have "
        "mean 0 and standard deviation 1, so that the one-sided mean should be 0.40, not 0.",
        "Spreads are standard deviations over repetitions; that of a difference is its standard error. Repetitions on "
        "one region share its events: ours is from the means of the regions, one value for each.",
    ]
    if _has_events(settings, origin):
        labels = [label_null_region(crab_data(settings).regions.region, region) for region in range(1, n_regions)]
        counts = [OnOffCounts(int(on.sum()), int((1 - on).sum()), 1 / (n_regions - 2)) for on in labels]
        uncut = ", ".join(f"{counted.significance:.1f}" for counted in counts)
        text.append(f"Without any cut, the regions show {uncut} sigma.")
    columns = ["model", "T", "cut: published", "ours", "difference", "repetitions", "regions"]
    columns += ["ours, signed", "largest", "likelihood: ours, signed", "largest"]
    return Page(
        "A fake On region",
        describe_data(settings, origin),
        text,
        [Table("Significance where there is no source", columns, lines, 2)],
        [],
        pd.DataFrame(summary),
    )


def agreement_page(frames: Mapping[str, pd.DataFrame], settings: Settings, origin: Mapping[str, Any]) -> Page:
    """Return correlations with the supervised forest."""
    rows = frames["crab"]
    lines, summary = [], []
    parts = _parts(rows, published.AGREEMENT["1"]) if "pearson" in rows else []
    for line, n_models, part in sorted(parts, key=lambda found: found[1]):
        if len(part) == 0:
            continue
        cells: list[str] = []
        for measure in ("pearson", "spearman"):
            theirs = published.AGREEMENT[str(n_models)].get((line, measure))
            found = compare(part[measure].dropna(), theirs, N_PUBLISHED)
            cells += found.cells(3)
            summary.append({"line": line, "n_models": n_models, "measure": measure, **vars(found)})
        lines.append((name_of(line, n_models), str(n_models), *cells, str(len(part))))
    text = [
        "Correlations of hold-out scores with the scores of the supervised forest, over all On and Off events; of "
        "single models, of their crisp classification.",
    ]
    columns = ["model", "T"]
    for measure in ("Pearson", "Spearman"):
        columns += [f"{measure}: published", "ours", "difference"]
    return Page(
        "Agreement with the supervised forest",
        describe_data(settings, origin),
        text + _simulation_note(origin),
        [Table("Correlations", [*columns, "repetitions"], lines, 2)],
        [],
        pd.DataFrame(summary),
    )


def roc_page(frames: Mapping[str, pd.DataFrame], settings: Settings, origin: Mapping[str, Any]) -> Page:
    """Return the ROC curves on simulated truth."""
    rows = frames["roc"]
    areas = rows.groupby(["model", "trial"], sort=False)["auc"].first()
    lines, summary = [], []
    for model, (name, _) in FORESTS.items():
        if model not in areas.index.get_level_values("model"):
            continue
        theirs = published.Value(published.PUBLISHED_AUC, float("nan")) if model == "li-ma-forest" else None
        found = compare(areas.loc[model], theirs, N_PUBLISHED)
        lines.append((name, *found.cells(3)[:2], f"{found.difference:+.3f}" if theirs else "", str(found.n)))
        summary.append({"model": model, **vars(found)})
    text = [
        "Forests that learned from On and Off labels alone, and one that was trained on simulated truth, on other "
        "simulated events with true labels. The paper prints one area, and no spread.",
    ]
    return Page(
        "ROC curves on simulated truth",
        describe_data(settings, origin),
        text + _simulation_note(origin),
        [Table("Area under the curve", ("model", "published", "ours", "difference", "repetitions"), lines)],
        [_curves(rows)],
        pd.DataFrame(summary),
    )


def describe_data(settings: Settings, origin: Mapping[str, Any]) -> str:
    """Say which events the numbers are from."""
    if settings.small:
        return "simulated, and small stand-ins, whose numbers mean nothing"
    if origin["crab"] != "simulated":
        if not are_labelled(origin):
            return "FACT's files of the Crab Nebula, without labelled events"
        names = [path.name for path in labelled_files(settings).values()] or ["files of gammas", "of protons"]
        return f"FACT's files of the Crab Nebula, labelled events from {' and '.join(names)}"
    return "SIMULATED, an observation like FACT's open Crab sample; not the sample itself"


def _has_events(settings: Settings, origin: Mapping[str, Any]) -> bool:
    """Say whether the events behind finished trials are at hand; pages are made without them as well."""
    return origin["crab"] == "simulated" or bool(fact_files(settings))


def _without_source(part: pd.DataFrame, theirs: published.Value | None) -> tuple[Comparison, Comparison]:
    """Compare significances of fake On regions, one-sided as the paper has them, and signed.

    Repetitions on the same region are not independent, so that the standard error is from the means of the regions.
    """
    # the paper's significance knows no deficits
    one_sided = part["significance"].clip(lower=0.0)
    found = compare(one_sided, theirs, N_PUBLISHED)
    of_regions = compare(one_sided.groupby(part["region"]).mean(), theirs, N_PUBLISHED)
    return replace(found, error=of_regions.error), compare(part["significance"], None, 1)


def _simulation_note(origin: Mapping[str, Any]) -> list[str]:
    if origin["crab"] != "simulated":
        return []
    return [
        "The simulation has the published numbers of events and FACT's distributions of image parameters, drawn from a "
        "Gaussian copula. Ensembles, the supervised ones included, reach smaller significances on it than the paper "
        "has on the real sample: compare the order of methods, not the values."
    ]


def _parts(rows: pd.DataFrame, table: Mapping[tuple[str, str], Any]) -> Iterator[tuple[str, int, pd.DataFrame]]:
    """Yield line, number of models and rows: the published lines in their order, then ours that the paper has not."""
    for line in dict.fromkeys([*(line for line, _ in table), "default-forest", "default-k-means-ensemble"]):
        if (rows["line"] == line).any():
            for n_models in (1, 100):
                yield line, n_models, rows[(rows["line"] == line) & (rows["n_models"] == n_models)]


def _bars(summary: pd.DataFrame, settings: Settings, origin: Mapping[str, Any]) -> Figure:
    """Draw all means, ours and published, of single models and ensembles."""
    names = list(dict.fromkeys(summary["line"]))
    with paper_axes(None, None, size=(8, 8.5)) as axes:
        for n_models, color, what in ((1, OFF, "T = 1"), (100, ON, "T = 100")):
            part = summary[summary["n_models"] == n_models]
            y = np.array([names.index(line) for line in part["line"]], dtype=np.intp)
            few = (part["n"] < N_PUBLISHED).to_numpy()
            for are_few, fill in ((False, color), (True, "white")):
                own, at = part[few == are_few], y[few == are_few]
                if len(own):
                    label = f"ours, cut, {what}" + (f", fewer than {N_PUBLISHED} repetitions" if are_few else "")
                    axes.errorbar(
                        own["mean"], at, xerr=own["std"].fillna(0.0), fmt="o", color=color, mfc=fill, ms=5, label=label
                    )
            axes.plot(part["mean_likelihood"], y, "^", color=color, mfc="none", ms=5, label=f"ours, likelihood, {what}")
            axes.plot(part["published"], y, "|", color=color, ms=11, mew=1.8, label=f"published, {what}")
        axes.set_yticks(range(len(names)), [name_of(name) for name in names])
        axes.invert_yaxis()
        axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.6)
        axes.set_axisbelow(True)
        axes.set(xlabel="significance / sigma")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    caption = (
        "Significance of the Crab Nebula, published and ours; published values are of a cut. Data of ours: "
        f"{describe_data(settings, origin)}. Open circles are means of fewer than {N_PUBLISHED} repetitions."
    )
    return Figure("significance", caption, axes.figure)


def _curves(rows: pd.DataFrame) -> Figure:
    with paper_axes(None, None, size=(5.5, 5)) as axes:
        for model, (name, _) in FORESTS.items():
            part = rows[rows["model"] == model]
            if len(part) == 0:
                continue
            mean = part.groupby("fpr")["tpr"].mean()
            area = part.groupby("trial")["auc"].first().mean()
            axes.plot(mean.index, mean, color=COLORS[model], lw=1.6, label=f"{name}, area {area:.3f}")
        axes.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls=":")
        axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.legend(loc="lower right")
    return Figure("roc", "ROC curves on simulated truth, mean over repetitions.", axes.figure)
