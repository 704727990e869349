"""The headline of the page: the number to quote, largest, with the others smaller beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from excess.validation.detection import Detection
from excess.validation.outcome import Outcome

__all__ = ["COMPARES", "TO_QUOTE", "Headline", "forward_value", "make_headline", "to_quote"]

TO_QUOTE = "the one to quote"
COMPARES = "compares models"
_MEANINGS = {
    "detected": TO_QUOTE,
    "compared": "for comparison with the first model",
    "not confirmed": "not confirmed",
    "no detection": "no detection",
    "doubtful": "not to be quoted before the warnings are explained",
}
"""What the value is that could be quoted, by the status of the verdict; "compared": detected by another model."""
_NAMES = {"pooled": "pooled", "forward": "forward", "applied": "new events"}


class Headline(NamedTuple):
    """Significances at the top of the page.

    Attributes
    ----------
    value, label : str
        The largest number of the page, and what it is: the forward value of the declared statistic, if there is one.
    beside : tuple of tuple of str
        Value and label of the pooled one, where it is not the largest.
    notes : tuple of str
        Which statistic this is, what the other one says, and why there is no forward value.
    """

    value: str
    label: str
    beside: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def make_headline(detection: Detection, forward: Outcome | None, no_forward: str, status: str) -> Headline:
    """Return the number to quote with its label, and the others, by the status of the verdict or ``"compared"``.

    Where there is no forward value beside a pooled one, the pooled one is shown and said to be no value to quote.
    """
    name, pooled = _NAMES[detection.strategy], _text(detection.significance)
    ahead = forward_value(detection, forward, detection.statistic)
    meaning = _MEANINGS[status]
    notes = [_describe_statistics(detection, forward)]
    if ahead is not None:
        beside = ((pooled, f"pooled: {COMPARES}"),)
        return Headline(_text(ahead), f"forward: {meaning}", beside, tuple(notes))
    if detection.strategy == "pooled":
        if status == "detected":
            meaning = f"{COMPARES}, not {TO_QUOTE}"
        notes.insert(0, _describe_absence(no_forward, quotable=status == "detected"))
    elif status == "detected":
        meaning = to_quote(detection)
    return Headline(pooled, f"{name}: {meaning}", (), tuple(notes))


def to_quote(detection: Detection) -> str:
    """Say that a number is the one to quote, and on which condition."""
    condition = ", if the model was chosen before they were looked at" if detection.strategy == "applied" else ""
    return f"{TO_QUOTE}{condition}"


def forward_value(detection: Detection, forward: Outcome | None, statistic: str) -> float | None:
    """Return the forward significance by a statistic that was found beside a pooled one; None if there is none."""
    if detection.strategy != "pooled" or forward is None or np.isnan(forward.significances[statistic]):
        return None
    return forward.significances[statistic]


def _describe_absence(no_forward: str, *, quotable: bool) -> str:
    """Return why there is no forward value."""
    what = "There is no forward value, which would be the one to quote" if quotable else "There is no forward value"
    return f"{what}: {no_forward.strip().rstrip('.') or 'it was not computed'}."


def _describe_statistics(detection: Detection, forward: Outcome | None) -> str:
    """Return which statistic was declared, and the significances by the other one."""
    name = {"likelihood": "By the likelihood of all hold-out events", "cut": "By the cut"}[detection.statistic]
    others = [(one, value) for one, value in detection.outcome.significances.items() if one != detection.statistic]
    [(other, value)] = others
    if np.isnan(value):
        return f"{name}."
    ahead = forward_value(detection, forward, other)
    values = [f"{_text(value)} {_NAMES[detection.strategy]}"]
    if ahead is not None:
        values.insert(0, f"{_text(ahead)} forward")
    return f"{name}, declared beforehand. By the {other}, for comparison: {', '.join(values)}."


def _text(significance: float) -> str:
    return f"{significance:.1f} σ"
