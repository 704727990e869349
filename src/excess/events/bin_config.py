"""Settings of bins, such as those of energy."""

from __future__ import annotations

from itertools import pairwise
from typing import Self

from pydantic import Field, ValidationError, model_validator

from excess.events.region_config import Settings

__all__ = ["BinConfig"]

_MAX_BINS = 100


class BinConfig(Settings):
    """Bins of a column, such as energy, each with a threshold and a calibration of its own.

    Examples
    --------
    >>> from excess.events import BinConfig
    >>> BinConfig.parse("energy:0.5,2,8").edges
    (0.5, 2.0, 8.0)
    >>> BinConfig.parse("energy:4").n_bins
    4
    """

    column: str = Field(min_length=1, description="Column, or derived feature, that the bins are of.")
    edges: tuple[float, ...] = Field(
        default=(), max_length=_MAX_BINS - 1, description="Edges between the bins; the first and the last bin are open."
    )
    n_bins: int | None = Field(
        default=None, ge=2, le=_MAX_BINS, strict=True, description="Number of bins with equally many events."
    )
    feature: bool | None = Field(
        default=None, strict=True, description="Whether models learn from the column; by default if it is a feature."
    )

    @model_validator(mode="after")
    def _edges_or_number(self) -> Self:
        if bool(self.edges) == (self.n_bins is not None):
            raise ValueError("needs either edges, such as [1, 5], or n_bins, a number of bins")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(f"edges must ascend, got {', '.join(f'{edge:g}' for edge in self.edges)}")
        return self

    @classmethod
    def parse(cls, text: str) -> BinConfig:
        """Return the bins that a text such as ``"energy:0.5,2,8"`` or ``"energy:4"`` describes."""
        column, _, given = text.rpartition(":")
        try:
            numbers = [float(word) for word in given.split(",")]
            if len(numbers) == 1 and numbers[0].is_integer() and "." not in given:
                return cls(column=column, n_bins=int(numbers[0]))
            return cls(column=column, edges=tuple(numbers))
        except ValidationError as error:
            raise ValueError(f"cannot be {text!r}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"must be a column with edges or a number of bins, such as energy:1,5, got {text!r}"
            ) from error
