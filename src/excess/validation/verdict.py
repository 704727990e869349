"""The verdict on a search: one status, one sentence, and the warnings that come before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from excess._core.checks import as_counts, as_scalar
from excess.validation.judged import JudgedDetection, JudgedNullTest
from excess.validation.outcome import Outcome
from excess.validation.warning_signs import WarningSign, find_warning_signs, weigh_source

__all__ = ["STATUSES", "Verdict", "as_required_significance", "judge", "judge_all"]

STATUSES = ("detected", "not confirmed", "no detection", "doubtful")
"""What a verdict may be, the best first."""

_REQUIRED_IMPROVEMENT = 2.0
"""By how many errors learning must improve upon all events without a cut."""

_REQUIRED_CONTRAST = 2.0
"""Significance with which features tell On from Off, if nothing but alpha vouches for an excess of all events."""


@dataclass(frozen=True)
class Verdict:
    """What a search means.

    Attributes
    ----------
    status : {"detected", "not confirmed", "no detection", "doubtful"}
        ``"not confirmed"``: beyond what is required, but not forward; or an excess of all events alone, which features
        do not tell from the background, without a null test that vouches for alpha. ``"doubtful"``: there are warnings,
        whatever the significance is.
    sentence : str
        The same in words, with the numbers.
    warnings : tuple of WarningSign
        What no source explains.

    See Also
    --------
    judge : Makes one.
    """

    status: str
    sentence: str
    warnings: tuple[WarningSign, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether a source is detected, and nothing speaks against it."""
        return self.status == "detected"

    def summary(self) -> dict[str, Any]:
        """Return the verdict as a file holds it."""
        return {
            "status": self.status,
            "verdict": self.sentence,
            "feasible": self.feasible,
            "warnings": [one._asdict() for one in self.warnings],
        }

    def __str__(self) -> str:
        """Say the warnings, and the verdict after them."""
        return "\n".join([*(f"Warning: {one.sentence}" for one in self.warnings), self.sentence])


def judge(
    detection: JudgedDetection, forward: Outcome | None = None, null_test: JudgedNullTest | None = None
) -> Verdict:
    """Return the verdict on a search.

    Parameters
    ----------
    detection : Detection
        What was found.
    forward : Outcome or None, default=None
        What models of earlier groups find, beside a pooled detection. It must reach what is required as well.
    null_test : NullTest or None, default=None
        What was found where there is no source. A suspicious one makes the verdict doubtful; one that found nothing
        shows that the regions are equally exposed, so that counts alone may be a detection.

    Returns
    -------
    Verdict
        One status and one sentence.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect, inject_label_noise
    >>> from excess.validation import judge
    >>> X, y = make_classification(3000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> tree = OnOffTreeClassifier(max_depth=3, random_state=0)
    >>> found = cross_val_detect(tree, X, on, alpha=1 / 5, random_state=0)
    >>> judge(found).status
    'detected'
    >>> judge(cross_val_detect(tree, X, on, alpha=1, random_state=0)).warnings[0].code
    'deficit'
    """
    warnings = find_warning_signs(detection)
    if null_test is not None and null_test.suspicious:
        farthest = float(np.abs(null_test.significances).max())
        numbers = {"p_value": null_test.p_value, "largest_significance": farthest}
        warnings += (WarningSign("null-test", null_test.verdict, numbers),)
    required = detection.required_significance
    by = "by the likelihood of all" if detection.statistic == "likelihood" else "in the selected"
    ahead = "" if forward is None else f", {forward.significance:.1f} forward"
    found = f"{detection.significance:.1f} sigma {by} hold-out events{ahead}, {required:g} required"
    if warnings:
        why = "the warning is" if len(warnings) == 1 else f"the {len(warnings)} warnings are"
        return Verdict("doubtful", f"{found}: doubtful. Claim nothing before {why} explained.", warnings)
    if not detection.significance >= required:
        what = "nothing was selected" if detection.outcome.empty else "no detection"
        return Verdict(
            "no detection",
            f"{found}: {what}. Learning from these labels is not shown to be feasible: On may have no more signal than "
            "Off, or too few events.",
        )
    if forward is not None and not forward.significance >= required:
        return Verdict(
            "not confirmed",
            f"{found}: not confirmed. The forward value is the one to quote, and it does not reach what is required.",
        )
    contrast = weigh_source(detection)
    if null_test is None and detection.uncut.significance >= required and contrast < _REQUIRED_CONTRAST:
        return Verdict(
            "not confirmed",
            f"{found}: not confirmed. All events without a cut have {detection.uncut.significance:.1f} sigma, but the "
            f"features do not tell it from the background ({max(contrast, 0.0):.1f} sigma), as with a wrong "
            "alpha: check it, or make a null test.",
        )
    return Verdict("detected", f"{found}: On has more signal than Off{_describe_learning(detection)}.")


def judge_all(
    detections: Mapping[str, JudgedDetection], forward: Mapping[str, Outcome], null_tests: Mapping[str, JudgedNullTest]
) -> dict[str, Verdict]:
    """Return the verdict on each model of a search.

    Null tests are about the features and regions, which models share: a model without one of its own is judged by the
    first there is.
    """
    first = next(iter(null_tests.values()), None)
    return {name: judge(found, forward.get(name), null_tests.get(name, first)) for name, found in detections.items()}


def _describe_learning(detection: JudgedDetection) -> str:
    """Say whether learning improved upon all events without a cut by more than chance does."""
    if detection.strategy == "applied":
        return ""
    gain, error = _improvement(detection)
    if gain > _REQUIRED_IMPROVEMENT * error:
        return ", and it could be learned from these labels"
    return (
        f", but learning added nothing beyond its error: all events without a cut have "
        f"{detection.uncut.significance:.1f} sigma, and the difference is {gain:.1f} +- {error:.1f}"
    )


def _improvement(detection: JudgedDetection) -> tuple[float, float]:
    """Return the significance above that of all events without a cut, and the error of this difference.

    Both are sums over events, one with weights w (the signal ratio, or 1 for selected events), one with the weight 1.
    Their correlation is that of the weights with 1, mean(w) / sqrt(mean(w^2)), and each has a variance of 1.
    """
    weights = detection.selected if detection.statistic == "cut" or detection.ratio is None else detection.ratio
    own = np.asarray(weights[detection.held_out], dtype=np.float64)
    own = own[np.isfinite(own)]
    square = float(np.mean(own**2)) if len(own) else 0.0
    correlation = float(own.mean()) / square**0.5 if square > 0 else 0.0
    error = (2 * max(0.0, 1 - correlation)) ** 0.5
    return detection.significance - detection.uncut.significance, error


def as_required_significance(value: Any) -> float:
    """Return the significance that a search requires."""
    return as_scalar("required_significance", as_counts("required_significance", value))
