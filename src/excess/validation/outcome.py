"""What some events say about a source, by both statistics: the likelihood of all, and the counts that a cut leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.stats.counts import OnOffCounts
from excess.stats.likelihood import OnOffLikelihood, compute_likelihood

__all__ = ["STATISTICS", "Outcome", "count_cuts", "count_events", "find_contrasts", "find_likelihood"]

STATISTICS = ("likelihood", "cut")
"""What a significance may be of: all events by the On/Off likelihood, or the selected ones by their counts."""


_MAX_PARTS = 1000
"""Exposure ratios that are told apart where events are counted."""


@dataclass(frozen=True)
class Outcome:
    """What some events say about a source, by both statistics.

    Parameters
    ----------
    counts : OnOffCounts
        Selected events.
    likelihood : OnOffLikelihood or None
        All events, each by how signal-like it is; None if the model does not say.
    statistic : {"likelihood", "cut"}
        The one that was declared to count.
    """

    counts: OnOffCounts
    likelihood: OnOffLikelihood | None
    statistic: str

    @property
    def significances(self) -> dict[str, float]:
        """Signed significance by each statistic; NaN for a likelihood that is not known."""
        likelihood = float("nan") if self.likelihood is None else self.likelihood.significance
        return {"likelihood": likelihood, "cut": self.counts.significance}

    @property
    def significance(self) -> float:
        """Signed significance by the declared statistic."""
        return self.significances[self.statistic]

    @property
    def empty(self) -> bool:
        """Whether a cut has selected nothing, so that its significance says nothing."""
        return self.statistic == "cut" and self.counts.n_on + self.counts.n_off == 0

    @classmethod
    def from_summary(cls, numbers: Mapping[str, Any], alpha: float, statistic: str) -> Outcome:
        """Return the outcome whose ``summary`` this is, as it is in a file."""
        counts = OnOffCounts(numbers["n_on"], numbers["n_off"], alpha, numbers.get("parts", ()))
        found = {name: numbers[name] for name in OnOffLikelihood.names() if name != "significance"}
        significance = numbers["likelihood_significance"]
        if significance is None or significance != significance:
            return cls(counts, None, statistic)
        return cls(counts, OnOffLikelihood.from_summary({**found, "significance": significance}), statistic)

    def summary(self) -> dict[str, Any]:
        """Return the numbers by name, to be put into a table or a file."""
        likelihood = {} if self.likelihood is None else self.likelihood.summary()
        found = likelihood or dict.fromkeys(OnOffLikelihood.names(), float("nan"))
        by_statistic = {f"{name}_significance": value for name, value in self.significances.items()}
        return {**self.counts.summary(), "significance": self.significance, **by_statistic} | {
            name: value for name, value in found.items() if name != "significance"
        }


def count_events(on: BoolArray, mask: BoolArray, alpha: FloatArray | float) -> OnOffCounts:
    """Count some events; where their exposure ratios differ, they are stacked, and their significance is joint."""
    if not isinstance(alpha, np.ndarray):
        return OnOffCounts(int(np.count_nonzero(on & mask)), int(np.count_nonzero(mask & ~on)), alpha)
    on, alpha, largest = on[mask], alpha[mask], float(alpha.max())
    if len(on) == 0:
        return OnOffCounts(0, 0, largest)
    values, number = np.unique(alpha, return_inverse=True)
    if len(values) > _MAX_PARTS:  # neighbouring ratios together, by their mean
        number = number * _MAX_PARTS // len(values)
        values = np.bincount(number, alpha) / np.bincount(number)
    n_on, n_off = (np.bincount(number[own], minlength=len(values)) for own in (on, ~on))
    return OnOffCounts.stack(zip(n_on.tolist(), n_off.tolist(), values.tolist(), strict=True))


def count_cuts(on: BoolArray, n_passed: NDArray[np.intp], alpha: FloatArray | float, n_cuts: int) -> list[OnOffCounts]:
    """Count the events of several cuts, of which each event passes the first ``n_passed``, as `count_events` does."""
    values, number = np.unique(np.broadcast_to(alpha, on.shape), return_inverse=True)
    n_values = len(values)
    if n_values > _MAX_PARTS:  # which of them are taken together depends on the cut; what is in order is sorted faster
        order = np.argsort(number, kind="stable")
        on, n_passed, ratios = on[order], n_passed[order], values[number[order]]
        return [count_events(on, n_passed > cut, ratios) for cut in range(n_cuts)]
    passed = []
    for own in (on, ~on):
        last = np.bincount(n_passed[own] * n_values + number[own], minlength=(n_cuts + 1) * n_values)
        passed.append(last.reshape(n_cuts + 1, n_values)[::-1].cumsum(axis=0)[::-1][1:].tolist())
    parts = [list(zip(n_on, n_off, values.tolist(), strict=True)) for n_on, n_off in zip(*passed, strict=True)]
    nothing = [(0, 0, float(np.max(alpha, initial=0.0)) or 1.0)]
    return [OnOffCounts.stack(part or nothing) for part in parts]


def find_likelihood(
    on: BoolArray, ratio: FloatArray | None, mask: BoolArray, alpha: FloatArray | float
) -> OnOffLikelihood | None:
    """Compute the likelihood of some events; None if they have no signal ratio."""
    if ratio is None:
        return None
    return compute_likelihood(on[mask], ratio[mask], alpha[mask] if isinstance(alpha, np.ndarray) else alpha)


def find_contrasts(
    on: BoolArray, selected: BoolArray, ratio: FloatArray | None, held_out: BoolArray, alpha: FloatArray | float
) -> dict[str, float]:
    """Significance, by each statistic, with which the features tell On from Off among hold-out events."""
    everything = count_events(on, held_out, alpha)
    if everything.n_on == 0 or everything.n_off == 0:
        return {"likelihood": float("nan") if ratio is None else 0.0, "cut": 0.0}
    without_excess = alpha * (everything.n_on / everything.background)
    likelihood = find_likelihood(on, ratio, held_out, without_excess)
    cut = count_events(on, selected, without_excess)
    return Outcome(cut, likelihood, "cut").significances
