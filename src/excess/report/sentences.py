"""What the page says in words: the verdict, which number to quote, and what selects the events."""

from __future__ import annotations

import numpy as np

from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest


def level_of(detection: Detection, forward: OnOffCounts | None, null_test: NullTest | None) -> tuple[str, str]:
    """Return what kind of result it is, for the colour of the page, and in two or three words."""
    if null_test is not None and null_test.suspicious:
        return "doubt", "Do not trust this"
    if not detection.feasible:
        return "nothing", "No detection"
    if forward is not None and forward.significance < detection.required_significance:
        return "unconfirmed", "Not confirmed"
    return "found", "Source detected"


def beside(detection: Detection, forward: OnOffCounts | None) -> str:
    """Say which significance the large one is."""
    if detection.strategy != "pooled":
        return {"forward": "forward", "applied": "new events"}[detection.strategy]
    return "pooled" if forward is None else f"pooled; forward {forward.significance:.1f} σ"


def verdict(detection: Detection, forward: OnOffCounts | None, null_test: NullTest | None) -> str:
    """Say in one sentence what was found, what it means, and whether learning was feasible."""
    counts, required = detection.counts, f"{detection.required_significance:g} required"
    found = f"{detection.significance:.1f} sigma in events that the models had not seen"
    if counts.n_on + counts.n_off == 0:
        amount = "Nothing was selected"
    else:
        word = "An excess" if counts.excess >= 0 else "A deficit"
        amount = f"{word} of {abs(counts.excess):,.0f} ± {counts.excess_error:,.0f} events"
    if not detection.feasible:
        text = (
            f"{amount}, {found}: no detection ({required}), and it is not shown that learning from these labels is "
            "feasible, because On has no more signal than Off, or too few events."
        )
    elif forward is not None and forward.significance < detection.required_significance:
        text = (
            f"{amount}, {found}, but {forward.significance:.1f} sigma forward, which is the number to quote: no "
            f"detection until that one confirms it ({required})."
        )
    elif detection.strategy == "applied":
        text = f"{amount}, {found}: a detection ({required})."
    elif detection.significance <= detection.uncut.significance:
        text = (
            f"{amount}, {found}: a detection ({required}), but no cut at all is as significant "
            f"({detection.uncut.significance:.1f} sigma), so that the features did not help to find it."
        )
    else:
        text = (
            f"{amount}, {found}: a detection ({required}), so On has more signal than Off, and it could be learned "
            "from these labels."
        )
    return f"{text} But: {null_test.verdict}" if null_test is not None and null_test.suspicious else text


def quote(detection: Detection, forward: OnOffCounts | None, no_forward: str) -> str:
    """Say which number to quote, and why."""
    if detection.strategy == "applied":
        return (
            f"Quote {detection.significance:.1f} sigma, if this model and its threshold were chosen before anybody "
            "looked at these events, and none of them was among those that it was trained on."
        )
    if detection.strategy == "forward":
        return (
            f"Quote this value, {detection.significance:.1f} sigma: the selection of every group was fixed by earlier "
            "groups before the group was counted, so that without a source it follows the normal law."
        )
    text = (
        "The pooled value is the one to compare models by. It uses all events, but its models have learned from each "
        "other's hold-out events, so that without a source it scatters a little more than a significance should. "
    )
    if forward is None:
        reason = f"; here, {no_forward}" if no_forward else ""
        text += (
            "The value to quote would be the forward one, for which every group is judged by models of earlier groups "
            f"only{reason}. "
        )
    else:
        text += (
            f"The value to quote is the forward one, {forward.significance:.1f} sigma: there the selection of every "
            "group was fixed by earlier groups before the group was counted. "
        )
        if forward.significance < detection.significance:
            text += "It is smaller, as the first group is never judged and early models have little to learn from. "
    if len(detection.permuted_contrasts):
        text += "The permutation p-value answers another question: whether the features tell On from Off at all."
    return text


def thresholds_in_words(detection: Detection) -> str:
    """Say what selects the events of the result."""
    known = detection.thresholds[~np.isnan(detection.thresholds)]
    if len(known) == 0:
        return "The models of the result select by rules of their own, without a threshold on the score."
    low, high = (decimal(value, 4) for value in (known.min(), known.max()))
    if len(known) == 1:
        where = low
    elif low == high:
        where = f"{low} in all {len(known)} folds"
    else:
        where = f"each of {len(known)} folds its own, {low} to {high}"
    return f"The result belongs to the threshold that was tuned on training events alone ({where})."


def decimal(value: float, digits: int) -> str:
    """Return a number with so many digits; infinity as a sign."""
    return f"{value:.{digits}f}" if np.isfinite(value) else ("∞" if value > 0 else "−∞")
