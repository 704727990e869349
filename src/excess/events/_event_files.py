"""Event files of one format and one telescope: what each holds, and its events in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from excess._core.checks import as_choice
from excess._core.errors import EventFileError, missing_column, wrap_errors
from excess.events._derived import Derivation, Origin, Plan, derivations
from excess.events._formats import FORMATS, Format, recognise

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
Rows = Literal["events", "telescopes"]
LOCATION_COLUMNS = ("_file", "_row")
"""Columns of where an event comes from: its file, and its row there, from 0."""
_PEEK_ROWS = 100
"""Rows that tell whether a column of times has an absolute origin."""
_TELESCOPE = "tel_id"


class Content(NamedTuple):
    """What a file holds: its columns, what it says about its events, and what can be computed from both."""

    stored: tuple[str, ...]
    origin: Origin
    derivations: tuple[Derivation, ...]
    derived: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, known: Format) -> Content:
        """Look into a file."""

        def peek(name: str) -> pd.Series:
            if name not in stored:
                raise KeyError(name)
            return next(iter(known.chunks(path, [name], _PEEK_ROWS)))[name]

        stored, origin = known.columns(path), known.origin(path)
        return cls(stored, origin, *derivations(stored, origin, peek))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of events."""
        return (*self.stored, *self.derived)

    @property
    def of_images(self) -> tuple[str, ...]:
        """Columns of telescope images; those of the whole shower belong to each of its images."""
        return (*self.origin.telescope_columns, *self.derived)

    def plan(self, wanted: tuple[str, ...]) -> Plan:
        """Return how to read columns."""
        return Plan.of(wanted, (*self.stored, *self.origin.telescope_columns), self.derivations)


class OpenedFiles:
    """Files of one format and one telescope, and what each holds.

    ``rows`` says whether a row is an event or a telescope image; by default, the columns asked for do.
    """

    def __init__(
        self, argument: str, paths: Paths, rows: Rows | None = None, wanted: Sequence[str] | None = None
    ) -> None:
        given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
        if not given:
            raise ValueError(f"{argument} is empty; name at least one file")
        self.paths = [Path(fspath(path)) for path in given]
        self.first = self.paths[0]
        formats = {path: recognise(path) for path in self.paths}
        self.format = formats[self.first]
        for path, name in formats.items():
            if name != self.format:
                raise EventFileError(f"{path}: mixed formats, this file is {name} and {self.first} is {self.format}")
        self._content = {}
        for path in formats:
            with wrap_errors(path, f"reading {self.format}"):
                self._content[path] = Content.of(path, FORMATS[self.format])
        compare_telescopes({path: content.origin.telescope for path, content in self._content.items()})
        self._of_images = self._choose_images(rows, wanted or ())

    def _choose_images(self, rows: Rows | None, wanted: Sequence[str]) -> bool:
        """Say whether rows are telescope images, which a column that only images have asks for as well."""
        if rows is not None:
            as_choice("rows", rows, ("events", "telescopes"))
        content = self._content[self.first]
        of_images = [name for name in wanted if name not in content.columns and name in content.of_images]
        if rows == "telescopes" and not content.origin.telescope_columns:
            raise EventFileError(f"{self.first}: has no tables of telescope images, so `rows` cannot be telescopes")
        if rows is not None or not of_images:
            return rows == "telescopes"
        of_events = [name for name in wanted if name not in content.of_images and name in content.columns]
        if of_events:
            raise EventFileError(
                f"{self.first}: {of_images[0]!r} has a value for each telescope image, and {of_events[0]!r} one for "
                f"each shower; take columns of showers, such as '{of_images[0]}_mean', or of images alone"
            )
        return True

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the first file."""
        return self._columns_of(self.first)

    def _columns_of(self, path: Path) -> tuple[str, ...]:
        content = self._content[path]
        return content.of_images if self._of_images else content.columns

    def check(self, wanted: tuple[str, ...]) -> None:
        """Raise EventFileError unless all files have these columns."""
        for path in self._content:
            known = self._columns_of(path)
            for column in wanted:
                if column not in known:
                    raise EventFileError(f"{path}: {missing_column(column, known)}")

    def read(self, columns: tuple[str, ...], locate: bool = False) -> pd.DataFrame:
        """Return all events, with their files and rows if wanted."""
        self.check(columns)
        parts = list(self.chunks(columns, None))
        if locate:
            parts = [_located(part) for part in parts]
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)

    def chunks(self, columns: tuple[str, ...], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
        """Yield chunks with events; if there are none at all, one table without rows that shows the columns."""
        empty = None
        any_events = False
        for path in self.paths:
            plan = self._content[path].plan(columns)
            stored = plan.stored
            if self._of_images and _TELESCOPE not in stored:
                stored = (*stored, _TELESCOPE)  # tells the format to read images
            first_row = 0
            parts = FORMATS[self.format].chunks(path, stored, chunk_rows)
            while True:
                # only here, so that the file is noted as being read while it is, and not while a chunk is worked on
                with wrap_errors(path, f"reading {self.format}"):
                    part = next(parts, None)
                    chunk = None if part is None else plan.complete(part, columns)
                if chunk is None:
                    break
                if len(chunk):
                    any_events = True
                    chunk.attrs.update(file=str(path), first_row=first_row)
                    first_row += len(chunk)
                    yield chunk
                elif empty is None:
                    empty = chunk
        if not any_events and empty is not None:
            yield empty


def compare_telescopes(telescopes: Mapping[Path, str | None]) -> None:
    """Raise EventFileError where telescopes differ; None is one that a file does not tell."""
    known = {path: name for path, name in telescopes.items() if name is not None}
    if len(set(known.values())) > 1:
        first, name = next(iter(known.items()))
        path, other = next((path, other) for path, other in known.items() if other != name)
        raise EventFileError(
            f"{path}: is of {other}, and {first} is of {name}; events of different telescopes differ in all features, "
            "so give each telescope as an observation of its own, in a list of observations"
        )


def _located(chunk: pd.DataFrame) -> pd.DataFrame:
    """Return a chunk with the file and the row of each event."""
    first_row = chunk.attrs.get("first_row", 0)
    rows = range(first_row, first_row + len(chunk))
    return chunk.assign(**dict(zip(LOCATION_COLUMNS, (chunk.attrs.get("file", ""), rows), strict=True)))
