"""The page of a target: tidy tables as CSV and Parquet, and Markdown and HTML for people."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._core import files
from excess._core.errors import require
from excess.reproduction.published import Value

__all__ = ["PAGE_FILES", "Comparison", "Figure", "Page", "Table", "compare", "pm", "write_page"]

PAGE_FILES = ("results.csv", "results.parquet", "summary.csv", "page.md", "page.html")
"""Files of a page, without those of its figures."""


@dataclass(frozen=True)
class Table:
    """A table of text; the first columns say what a line is about."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    n_names: int = 1


@dataclass(frozen=True)
class Figure:
    """A drawing with the name of its file and a caption."""

    name: str
    caption: str
    drawing: Any


@dataclass(frozen=True)
class Page:
    """What is shown of a target.

    ``data`` says which data the numbers are from; it stands under the title, and in every line of the tidy tables.
    ``summary`` holds the numbers of the tables, tidy.
    """

    title: str
    data: str
    text: Sequence[str] = ()  # paragraphs
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    summary: pd.DataFrame | None = None


@dataclass(frozen=True)
class Comparison:
    """Our mean over repetitions beside a published one; what is not known is NaN."""

    mean: float
    std: float  # NaN for a single repetition
    n: int  # repetitions
    published: float
    published_std: float
    difference: float  # ours minus the published one
    error: float  # standard error of the difference, from both standard deviations and numbers of repetitions

    def cells(self, digits: int) -> tuple[str, str, str]:
        """Return the published value, ours, and the difference, as text."""
        return (
            pm(self.published, self.published_std, digits),
            pm(self.mean, self.std, digits),
            pm(self.difference, self.error, digits, signed=True),
        )


def compare(values: Any, published: Value | None, n_published: int) -> Comparison:
    """Compare our repetitions with a published mean and standard deviation over some repetitions.

    Examples
    --------
    >>> from excess.reproduction.pages import compare
    >>> from excess.reproduction.published import Value
    >>> compare([0.5, 0.6, 0.7], Value(0.55, 0.1), n_published=4).cells(2)
    ('0.55 ± 0.10', '0.60 ± 0.10', '+0.05 ± 0.08')
    """
    own = np.asarray(values, dtype=np.float64)
    mean = float(own.mean()) if len(own) else float("nan")
    std = float(own.std(ddof=1)) if len(own) > 1 else float("nan")
    if len(own) > 1 and np.ptp(own) == 0:
        std = 0.0  # equal values, but for the rounding of their mean
    theirs, their_std = (published.mean, published.std) if published is not None else (float("nan"), float("nan"))
    error = float(np.sqrt(std**2 / max(len(own), 1) + their_std**2 / n_published))
    return Comparison(mean, std, len(own), theirs, their_std, mean - theirs, error)


def pm(value: float, error: float, digits: int, *, signed: bool = False) -> str:
    """Return a number with its spread as text; nothing for NaN, and no spread where there is none."""
    if np.isnan(value):
        return ""
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text if np.isnan(error) or error == 0 else f"{text} ± {error:.{digits}f}"


def write_page(page: Page, results: pd.DataFrame, folder: Path) -> None:
    """Write a page and the rows behind it into a folder.

    ``results.csv`` and ``results.parquet`` hold one line per repetition and method, ``summary.csv`` the numbers of the
    tables, ``page.md`` and ``page.html`` what people read. The HTML file needs no other file.
    """
    require("pyarrow", "writing Parquet")
    folder.mkdir(parents=True, exist_ok=True)
    labelled = results.assign(data=page.data)
    files.write_text(folder / "results.csv", labelled.to_csv(index=False))
    with files.replacing(folder / "results.parquet") as temporary:
        labelled.to_parquet(temporary, index=False)
    if page.summary is not None:
        files.write_text(folder / "summary.csv", page.summary.assign(data=page.data).to_csv(index=False))
    drawings = {}
    for figure in page.figures:
        with files.replacing(folder / f"{figure.name}.png") as temporary:
            figure.drawing.savefig(temporary, format="png", dpi=110, facecolor="white")
            drawings[figure.name] = temporary.read_bytes()
    files.write_text(folder / "page.md", as_markdown(page))
    files.write_text(folder / "page.html", as_html(page, drawings))


def as_markdown(page: Page) -> str:
    """Return a page as Markdown; its figures are files beside it."""
    blocks = [f"# {page.title}", f"**Data: {page.data}.**", *page.text]
    for table in page.tables:
        blocks += [f"## {table.title}", _markdown_table(table)]
    blocks += [f"![{figure.caption}]({figure.name}.png)\n\n{figure.caption}" for figure in page.figures]
    return "\n\n".join(blocks) + "\n"


def as_html(page: Page, drawings: dict[str, bytes]) -> str:
    """Return a page as one HTML file, figures included."""
    parts = [f"<h1>{html.escape(page.title)}</h1>", f'<p class="data">Data: {html.escape(page.data)}.</p>']
    parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in page.text]
    for figure in page.figures:
        source = base64.b64encode(drawings[figure.name]).decode("ascii")
        caption = html.escape(figure.caption)
        parts.append(
            f'<figure><img alt="{caption}" src="data:image/png;base64,{source}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    for table in page.tables:
        parts += [f"<h2>{html.escape(table.title)}</h2>", _html_table(table)]
    return _HTML.format(title=html.escape(page.title), style=_STYLE, body="\n".join(parts))


def _markdown_table(table: Table) -> str:
    marks = ["---"] * table.n_names + ["--:"] * (len(table.columns) - table.n_names)
    lines = [table.columns, marks, *table.lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _html_table(table: Table) -> str:
    def row(line: Sequence[str], tag: str) -> str:
        kinds = ["name" if j < table.n_names else "number" for j in range(len(line))]
        cells = (f'<{tag} class="{k}">{html.escape(text)}</{tag}>' for k, text in zip(kinds, line, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    body = "\n".join(row(line, "td") for line in table.lines)
    head = f"<thead>{row(table.columns, 'th')}</thead>"
    return f'<div class="wide"><table>\n{head}\n<tbody>\n{body}\n</tbody>\n</table></div>'


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #111; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.data { background: #f3f3f3; border-left: 4px solid #d55e00; padding: .5rem .8rem; font-weight: 600; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
p, figure { max-width: 62rem; }
.wide { overflow-x: scroll; scrollbar-width: thin; scrollbar-color: #888 #eee; padding-bottom: .3rem; }
th { border-bottom: 2px solid #111; vertical-align: bottom; } td { border-bottom: 1px solid #ddd; }
th, td { padding: .25rem .6rem; } td { white-space: nowrap; } .name { text-align: left; } .number { text-align: right; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; } figcaption { color: #555; font-size: .9rem; }
""".strip()
_HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""
