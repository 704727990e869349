"""Small tables in HTML, for notebooks: no script, no colours of their own, so that they suit light and dark ones."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_CELL = "padding: 0.2em 0.8em; white-space: nowrap; "


class Row(NamedTuple):
    """A row of a table: its name, its numbers in words, and whether it is the one that counts."""

    name: str
    cells: Sequence[str]
    strong: bool = False


def html_table(columns: Sequence[str], rows: Sequence[Row], *, caption: str = "", notes: Sequence[str] = ()) -> str:
    """Return a table with a caption above and paragraphs below; all texts are escaped.

    Examples
    --------
    >>> from excess._core.html import Row, html_table
    >>> html_table(["", "On"], [Row("night <1>", ["20"])]).count("night &lt;1&gt;")
    1
    """
    head = _cells("th", columns, "bold")
    lines = [_cells("td", [row.name, *row.cells], "bold" if row.strong else "normal") for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    title = f'<caption style="text-align: left; color: inherit">{escape(caption)}</caption>' if caption else ""
    below = "".join(f'<p style="margin: 0.3em 0; max-width: 60em">{escape(note)}</p>' for note in notes)
    table = f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{table}{below}</div>"


def _cells(tag: str, texts: Sequence[str], weight: str) -> str:
    """Return the cells of a row, the first one at the left."""
    sides = ["left"] + ["right"] * (len(texts) - 1)
    return "".join(
        f'<{tag} style="{_CELL}text-align: {side}; font-weight: {weight}">{escape(text)}</{tag}>'
        for text, side in zip(texts, sides, strict=True)
    )
