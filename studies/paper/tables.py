"""Means over trials compared with published values, and the files of a target: CSV, Markdown and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

ORANGE, BLUE, GREEN, GREY = "#d55e00", "#0072b2", "#009e73", "#666666"
"""Colours that colour-blind readers can distinguish."""


@dataclass(frozen=True)
class Page:
    """Tables and figures of a target. ``summary`` has the numbers of the tables, tidy."""

    title: str
    data: str  # which data the numbers are from
    text: Sequence[str]
    tables: Mapping[str, pd.DataFrame]  # by title, of text
    summary: pd.DataFrame
    figures: Mapping[str, tuple[Figure, str]] = field(default_factory=dict)  # by file name, with captions


def compare(
    rows: pd.DataFrame, by: Sequence[str], value: str, published: pd.DataFrame | None = None, n_published: int = 1
) -> pd.DataFrame:
    """Return mean, standard deviation and number of trials by group, compared with published values.

    ``error`` is the standard error of the difference, from both standard deviations and numbers of repetitions. What is
    unknown is NaN, such as the standard deviation of a single trial.
    """
    groups = rows.groupby(list(by), sort=False)[value]
    found = groups.agg(["mean", "std", "count"]).rename(columns={"count": "n"})
    found["std"] = found["std"].mask((groups.nunique() == 1) & (found["n"] > 1), 0.0)  # but for rounding
    if published is None:
        return found
    found = found.join(published)
    found["difference"] = found["mean"] - found["published"]
    found["error"] = np.sqrt(found["std"] ** 2 / found["n"] + found["published_std"] ** 2 / n_published)
    return found


def show(found: pd.DataFrame, digits: int) -> pd.DataFrame:
    """Return published values, ours and differences as text, with their spreads."""
    columns = {
        "published": ("published", "published_std"),
        "ours": ("mean", "std"),
        "difference": ("difference", "error"),
    }
    return pd.DataFrame(
        {
            name: [
                show_number(*pair, digits, signed=name == "difference")
                for pair in zip(found[mean], found[spread], strict=True)
            ]
            for name, (mean, spread) in columns.items()
            if mean in found
        },
        found.index,
    )


def show_number(value: float, spread: float, digits: int, *, signed: bool = False) -> str:
    """Return a number with its spread as text; nothing for NaN, and no spread if there is none."""
    if np.isnan(value):
        return ""
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return text if np.isnan(spread) or spread == 0 else f"{text} ± {spread:.{digits}f}"


def write_page(page: Page, results: pd.DataFrame, folder: Path) -> Path:
    """Write the rows of all trials, the summary, the figures and ``page.md``; return the path of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    results.to_csv(folder / "results.csv", index=False)
    page.summary.assign(data=page.data).to_csv(folder / "summary.csv", index=False)
    blocks = [f"# {page.title}", f"**Data: {page.data}.**", *page.text]
    for title, table in page.tables.items():
        marks = ["---", *["--:"] * (len(table.columns) - 1)]
        lines = [list(table.columns), marks, *table.astype(str).to_numpy().tolist()]
        blocks += [f"## {title}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    for name, (figure, caption) in page.figures.items():
        figure.savefig(folder / f"{name}.png", dpi=110, facecolor="white", metadata={"Software": None})
        blocks.append(f"![{caption}]({name}.png)\n\n{caption}")
    path = folder / "page.md"
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path
