"""A detection in words: a few lines with both statistics, what speaks for and against them, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from excess._core.checks import FloatArray
from excess.validation.judged import JudgedDetection
from excess.validation.outcome import Outcome
from excess.validation.verdict import Verdict

__all__ = ["ShownDetection", "detection_text", "permutation_text", "strategy_text", "trained_on_text"]

# A protocol, because a detection shows itself: the other way round would be an import cycle.


class ShownDetection(JudgedDetection, Protocol):
    """A `Detection`, whose documentation says what each attribute is."""

    @property
    def outcomes_by_observation(self) -> Mapping[Any, Outcome]: ...  # noqa: D102
    @property
    def significances(self) -> FloatArray: ...  # noqa: D102
    @property
    def spread(self) -> float: ...  # noqa: D102
    @property
    def n_permutations(self) -> int: ...  # noqa: D102
    @property
    def permutation_p_value(self) -> float: ...  # noqa: D102
    @property
    def judgement(self) -> Verdict: ...  # noqa: D102
    @property
    def remarks(self) -> tuple[str, ...]: ...  # noqa: D102


def detection_text(detection: ShownDetection) -> str:
    """Say a detection in a few lines."""
    lines = [strategy_text(detection)]
    if detection.outcome.likelihood is not None:
        lines.append(f"likelihood: {detection.outcome.likelihood}")
    lines.append(f"cut: {detection.outcome.counts}")
    parts = detection.outcomes_by_observation
    for name, outcome in parts.items() if len(parts) > 1 else ():
        by_likelihood = (
            "" if outcome.likelihood is None else f"likelihood {outcome.likelihood.significance:.1f} sigma, "
        )
        lines.append(f"{name}: {by_likelihood}cut: {outcome.counts}")
    if len(detection.significances) > 1:
        lines.append(f"{len(detection.significances)} repetitions scatter by {detection.spread:.2f} sigma")
    lines.append(f"without a cut: {detection.uncut.significance:.1f} sigma")
    lines += [*trained_on_text(detection), *permutation_text(detection)]
    return "\n".join([*lines, *detection.remarks, str(detection.judgement)])


def strategy_text(detection: ShownDetection) -> str:
    """Say how training and hold-out events were chosen."""
    n_folds = "" if detection.strategy == "applied" else f", {len(detection.folds)} folds"
    return f"{detection.strategy}{n_folds}"


def trained_on_text(detection: ShownDetection) -> list[str]:
    """Say in one line how many events were never held out; no line where all were."""
    n_only_trained_on = len(detection.on) - int(np.count_nonzero(detection.held_out))
    return [f"{n_only_trained_on} of {len(detection.on)} events were only trained on"] if n_only_trained_on else []


def permutation_text(detection: ShownDetection) -> list[str]:
    """Say the p-value of permutations in one line; no line without permutations."""
    if not detection.n_permutations:
        return []
    return [f"permutation p-value {detection.permutation_p_value:.3g} ({detection.n_permutations} permutations)"]
