"""Bins of a column, such as energy: what was found in each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from excess.validation.detection_parts import Fold
from excess.validation.outcome import Outcome

__all__ = ["DetectionBins", "bin_labels", "borrowing_notes"]


def bin_labels(borders: Sequence[float]) -> tuple[str, ...]:
    """Return texts for bins between borders, of which the first and the last may be infinite.

    Examples
    --------
    >>> from excess.validation.detection_bins import bin_labels
    >>> bin_labels([float("-inf"), 1.0, 5.0])
    ('below 1', '1 to 5')
    """
    return tuple(
        f"below {high:.4g}" if low == float("-inf") else f"above {low:.4g}" if high == float("inf") else text
        for (low, high), text in ((pair, f"{pair[0]:.4g} to {pair[1]:.4g}") for pair in pairwise(borders))
    )


def borrowing_notes(folds: Sequence[Fold], n_bins: int) -> tuple[str, ...]:
    """Say for each bin in how many folds it was tuned with events of its neighbours; empty texts for most."""
    notes = []
    for own in range(n_bins):
        borrowed = sum(fold.bins[own].first < fold.bins[own].last for fold in folds if fold.bins)
        note = f"too few events: tuned with its neighbours in {borrowed} of {len(folds)} folds"
        notes.append(note if borrowed else "")
    return tuple(notes)


@dataclass(frozen=True, eq=False)
class DetectionBins:
    """What was found in each bin of a column, such as energy.

    Attributes
    ----------
    column : str
        The column.
    edges : tuple of float of length n_bins + 1
        Borders of the bins; the first and the last one may be infinite.
    outcomes : tuple of Outcome of length n_bins
        Both statistics of the hold-out events of each bin.
    notes : tuple of str of length n_bins
        What is to be said about a bin, such as that it borrows events from its neighbours; empty for most.

    Examples
    --------
    >>> from excess import OnOffCounts
    >>> from excess.validation import DetectionBins, Outcome
    >>> outcomes = tuple(Outcome(OnOffCounts(n, 30, 0.2), None, "cut") for n in (8, 20))
    >>> DetectionBins("energy", (0.5, 1.0, 5.0), outcomes, ("", "")).labels
    ('0.5 to 1', '1 to 5')
    """

    column: str
    edges: tuple[float, ...]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise ValueError where numbers of bins differ."""
        if not len(self.edges) - 1 == len(self.outcomes) == len(self.notes):
            raise ValueError(
                f"{len(self.edges)} edges need {len(self.edges) - 1} outcomes and notes, got {len(self.outcomes)} and "
                f"{len(self.notes)}"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """Texts of the bins."""
        return bin_labels(self.edges)

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes, as JSON has it."""
        bins = [
            {
                **one.summary(),
                "alpha": one.counts.alpha,
                **({"parts": one.counts.parts} if one.counts.parts else {}),
                "note": note,
            }
            for one, note in zip(self.outcomes, self.notes, strict=True)
        ]
        return {"column": self.column, "edges": list(self.edges), "bins": bins}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], statistic: str) -> DetectionBins:
        """Return the bins of which ``to_dict`` was written."""
        outcomes = tuple(Outcome.from_summary(one, one["alpha"], statistic) for one in given["bins"])
        notes = tuple(str(one["note"]) for one in given["bins"])
        return cls(str(given["column"]), tuple(map(float, given["edges"])), outcomes, notes)
