"""What is shown of the Crab: significances, fake On regions, agreement with the supervised forest, ROC curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from excess.events._errors import require
from excess.experiments import published
from excess.experiments.crab import label_of
from excess.experiments.crab_data import crab_data, fact_files
from excess.experiments.pages import Figure, Page, Table, compare
from excess.experiments.roc import FORESTS
from excess.experiments.settings import Settings
from excess.significance import OnOffCounts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AGREEMENT_LINES", "agreement_page", "crab_page", "null_page", "roc_page"]

N_PUBLISHED = 10
COLORS = {
    "supervised-forest": "black",
    "li-ma-forest": "#d55e00",
    "noisy-forest": "#0072b2",
    "default-forest": "#009e73",
}
AGREEMENT_LINES = ("k-means-32", "k-means-128", "li-ma-4", "li-ma-6")
NAMES = {"default-forest": "our default forest", "default-k-means-ensemble": "our default k-means ensemble"}


def crab_page(frames: Mapping[str, pd.DataFrame], settings: Settings) -> Page:
    """Return Table I in its full version."""
    import pandas as pd

    rows = frames["crab"]
    lines, summary = [], []
    for line in _lines(rows, published.CRAB):
        cells = []
        for column in ("1", "100"):
            values = rows.loc[(rows["line"] == line) & (rows["n_models"] == int(column)), "significance"]
            found = compare(values, published.CRAB.get((line, column)), N_PUBLISHED)
            cells += [*found.cells(2), str(found.n) if found.n else ""]
            if found.n:
                summary.append({"line": line, "n_models": int(column), **vars(found)})
        lines.append((NAMES.get(line, line), *cells))
    data = crab_data(settings)
    uncut = OnOffCounts(int(data.on.sum()), int((~data.on).sum()), data.alpha)
    text = [
        f"Significance of the Crab Nebula in sigma: one night is held out at a time, and one significance is computed "
        f"of all hold-out events that are selected. Without a cut: {uncut}.",
        "The number after a name is the number of clusters or the depth. T = 1 is a single model, T = 100 an ensemble "
        "(200 trees for the supervised forest and our default). Spreads are standard deviations over repetitions with "
        "other seeds on the same events; that of a difference is its standard error.",
    ]
    columns = ["model"]
    for size in ("T = 1", "T = 100"):
        columns += [f"{size}: published", "ours", "difference", "repetitions"]
    return Page(
        "Detection of the Crab Nebula",
        data_of(settings),
        text + _simulation_note(settings),
        [Table("Table I, full version", columns, lines)],
        [_bars(pd.DataFrame(summary), settings)],
        pd.DataFrame(summary),
    )


def null_page(frames: Mapping[str, pd.DataFrame], settings: Settings) -> Page:
    """Return the table with a fake On region."""
    import pandas as pd

    rows = frames["crab-null"]
    lines, summary = [], []
    for line in _lines(rows, published.CRAB_NULL):
        for size in ("1", "100"):
            signed = rows.loc[(rows["line"] == line) & (rows["n_models"] == int(size)), "significance"].to_numpy()
            if len(signed) == 0:
                continue
            # the paper's significance knows no deficits
            found = compare(np.maximum(signed, 0.0), published.CRAB_NULL.get((line, size)), N_PUBLISHED)
            own = compare(signed, None, 1)
            lines.append((line, size, *found.cells(2), str(found.n), own.cells(2)[1], f"{signed.max():.2f}"))
            summary.append(
                {"line": line, "n_models": int(size), **vars(found), "mean_signed": own.mean, "std_signed": own.std}
            )
    text = [
        "On events are dropped and one Off region is called On, another one in each repetition, so that alpha is "
        f"{crab_data(settings).with_fake_on(1).alpha:g}; everything else is as for the Crab. There is no source to "
        "find. Deficits count as 0, as in the paper; the last columns keep their sign. Without a source a signed "
        "significance should have mean 0 and standard deviation 1, so that the one-sided mean should be 0.40, not 0.",
    ]
    columns = (
        "model",
        "T",
        "published",
        "ours",
        "difference",
        "repetitions",
        "ours, signed",
        "largest",
    )
    uncut = []
    for region in range(1, crab_data(settings).n_regions):
        data = crab_data(settings).with_fake_on(region)
        counts = OnOffCounts(int(data.on.sum()), int((~data.on).sum()), data.alpha)
        uncut.append(f"{counts.significance:.1f}")
    text.append(f"Without any cut, the regions show {', '.join(uncut)} sigma.")
    return Page(
        "A fake On region",
        data_of(settings),
        text,
        [Table("Significance where there is no source", columns, lines, 2)],
        [],
        pd.DataFrame(summary),
    )


def agreement_page(frames: Mapping[str, pd.DataFrame], settings: Settings) -> Page:
    """Return correlations with the supervised forest."""
    import pandas as pd

    rows = frames["crab"]
    lines, summary = [], []
    if "pearson" in rows:
        for size in ("1", "100"):
            for line in _lines(rows, published.AGREEMENT[size]):
                part = rows[(rows["line"] == line) & (rows["n_models"] == int(size))]
                if len(part) == 0:
                    continue
                cells = []
                for measure in ("pearson", "spearman"):
                    theirs = published.AGREEMENT[size].get((line, measure))
                    found = compare(part[measure].dropna(), theirs, N_PUBLISHED)
                    cells += list(found.cells(3))
                    summary.append({"line": line, "n_models": int(size), "measure": measure, **vars(found)})
                lines.append((NAMES.get(line, line), size, *cells, str(len(part))))
    text = [
        "Correlations of hold-out scores with the scores of the supervised forest, over all On and Off events; of "
        "single models, of their crisp classification.",
    ]
    columns = ["model", "T"]
    for measure in ("Pearson", "Spearman"):
        columns += [f"{measure}: published", "ours", "difference"]
    columns.append("repetitions")
    return Page(
        "Agreement with the supervised forest",
        data_of(settings),
        text + _simulation_note(settings),
        [Table("Correlations", columns, lines, 2)],
        [],
        pd.DataFrame(summary),
    )


def roc_page(frames: Mapping[str, pd.DataFrame], settings: Settings) -> Page:
    """Return the ROC curves on simulated truth."""
    import pandas as pd

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
        data_of(settings),
        text + _simulation_note(settings),
        [Table("Area under the curve", ("model", "published", "ours", "difference", "repetitions"), lines)],
        [_curves(rows)],
        pd.DataFrame(summary),
    )


def data_of(settings: Settings) -> str:
    """Say which events the numbers are from."""
    if settings.small:
        return "simulated, and small stand-ins, whose numbers mean nothing"
    if fact_files(settings):
        return "FACT's files of the Crab Nebula"
    return "SIMULATED, an observation like FACT's open Crab sample; not the sample itself"


def _simulation_note(settings: Settings) -> list[str]:
    if fact_files(settings):
        return []
    return [
        "The simulation has the published numbers of events and FACT's distributions of image parameters, drawn from a "
        "Gaussian copula. Ensembles, the supervised ones included, reach smaller significances on it than the paper "
        "has on the real sample: compare the order of methods, not the values."
    ]


def _lines(rows: pd.DataFrame, table: Any) -> list[str]:
    """Return the published lines, in their order, and then those of ours that the paper has not."""
    theirs = dict.fromkeys(line for line, _ in table)
    extra = [line for line in dict.fromkeys(rows["line"]) if line in (label_of(key, 0) for key in NAMES)]
    return [line for line in [*theirs, *extra] if line in set(rows["line"])]


def _axes(**options: Any) -> Any:
    figure = require("matplotlib.figure", "drawing", extra="report").Figure(layout="constrained", **options)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _bars(summary: pd.DataFrame, settings: Settings) -> Figure:
    """Draw all means, ours and published, of single models and ensembles."""
    axes = _axes(figsize=(8, 8.5))
    names = list(dict.fromkeys(summary["line"]))
    for n_models, color, what in ((1, "#0072b2", "T = 1"), (100, "#d55e00", "T = 100")):
        part = summary[summary["n_models"] == n_models]
        y = [names.index(line) for line in part["line"]]
        axes.errorbar(part["mean"], y, xerr=part["std"].fillna(0.0), fmt="o", color=color, ms=5, label=f"ours, {what}")
        axes.plot(part["published"], y, "|", color=color, ms=11, mew=1.8, label=f"published, {what}")
    axes.set_yticks(range(len(names)), [NAMES.get(name, name) for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.set(xlabel="significance / sigma")
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    caption = f"Significance of the Crab Nebula; ours on {data_of(settings)}."
    return Figure("significance", caption, axes.figure)


def _curves(rows: pd.DataFrame) -> Figure:
    axes = _axes(figsize=(5.5, 5))
    for model, (name, _) in FORESTS.items():
        part = rows[rows["model"] == model]
        if len(part) == 0:
            continue
        mean = part.groupby("fpr")["tpr"].mean()
        area = part.groupby("trial")["auc"].first().mean()
        axes.plot(mean.index, mean, color=COLORS[model], lw=1.6, label=f"{name}, area {area:.3f}")
    axes.plot([0, 1], [0, 1], color="#666666", lw=0.8, ls=":")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    return Figure("roc", "ROC curves on simulated truth, mean over repetitions.", axes.figure)
