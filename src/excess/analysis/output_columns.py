"""Columns that an applied model adds to event files: their names, and which of them a file has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from excess._core.errors import ArgumentError

__all__ = ["PREFIX", "OutputColumns"]

PREFIX = "excess"
"""What the names of the columns begin with, unless another prefix is given."""


class OutputColumns(NamedTuple):
    """Names of the columns that an applied model adds.

    Attributes
    ----------
    score : str
        Score, which the threshold cuts.
    signal_probability : str
        Probability that the event is signal.
    selected : str
        Whether the score exceeds the threshold.
    """

    score: str
    signal_probability: str
    selected: str

    @property
    def prefix(self) -> str:
        """What the names begin with."""
        return self.score.removesuffix("_score")

    @classmethod
    def of(cls, prefix: str) -> OutputColumns:
        """Return the names with a prefix, which must be a word that expressions of the configuration can use.

        Examples
        --------
        >>> from excess.analysis.output_columns import OutputColumns
        >>> OutputColumns.of("excess").signal_probability
        'excess_signal_probability'
        """
        if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z]\w*", prefix, re.ASCII):
            raise ArgumentError(
                "prefix", f"must be letters, digits and underscores, a letter first, such as 'excess', got {prefix!r}"
            )
        return cls(*(f"{prefix}_{name}" for name in cls._fields))

    @classmethod
    def found_in(cls, columns: Iterable[str]) -> list[OutputColumns]:
        """Return the names of all models whose columns are among these.

        Examples
        --------
        >>> from excess.analysis.output_columns import OutputColumns
        >>> [found.selected for found in OutputColumns.found_in(["width", *OutputColumns.of("night")])]
        ['night_selected']
        """
        known = list(columns)
        prefixes = [name.removesuffix("_selected") for name in known if name.endswith("_selected")]
        every = (cls(*(f"{prefix}_{name}" for name in cls._fields)) for prefix in prefixes)
        return [names for names in every if set(names) <= set(known)]
