"""Sentences of the page: the verdict, the value to quote, and the thresholds."""

from __future__ import annotations

import numpy as np

from excess.validation.detection import Detection, Outcome
from excess.validation.null_tests import NullTest


def classify_result(detection: Detection, forward: Outcome | None, null_test: NullTest | None) -> tuple[str, str]:
    """Return the kind of the result, which sets the colour of the page, and its label."""
    if null_test is not None and null_test.suspicious:
        return "doubt", "Do not trust this"
    if not detection.feasible:
        return "nothing", "No detection"
    if forward is not None and forward.significance < detection.required_significance:
        return "unconfirmed", "Not confirmed"
    return "found", "Source detected"


def describe_strategy(detection: Detection, forward: Outcome | None) -> str:
    """Return which significance the headline shows, with the forward one if it is another."""
    if detection.strategy != "pooled":
        return {"forward": "forward", "applied": "new events"}[detection.strategy]
    return "pooled" if forward is None else f"pooled; forward {forward.significance:.1f} σ"


def describe_verdict(detection: Detection, forward: Outcome | None, null_test: NullTest | None) -> str:
    """Return one sentence: the excess, whether it is a detection, and whether learning was feasible."""
    counts, required = detection.counts, f"{detection.required_significance:g} required"
    found = f"{detection.significance:.1f} sigma in events that the models had not seen"
    if counts.n_on + counts.n_off == 0:
        amount = "Nothing was selected"
    else:
        word = "An excess" if counts.excess >= 0 else "A deficit"
        amount = f"{word} of {abs(counts.excess):,.0f} ± {counts.excess_error:,.0f} events"
    if not detection.feasible:
        end = (
            f": no detection ({required}), and it is not shown that learning from these labels is feasible, because On "
            "has no more signal than Off, or too few events."
        )
    elif forward is not None and forward.significance < detection.required_significance:
        end = (
            f", but {forward.significance:.1f} sigma forward, which is the number to quote: no detection until the "
            f"forward value confirms it ({required})."
        )
    elif detection.strategy == "applied":
        end = f": a detection ({required})."
    elif detection.significance <= detection.uncut.significance:
        end = (
            f": a detection ({required}), but all events without a cut are as significant "
            f"({detection.uncut.significance:.1f} sigma), so the features did not help to find the source."
        )
    else:
        end = f": a detection ({required}), so On has more signal than Off, and it could be learned from these labels."
    warning = f" But: {null_test.verdict}" if null_test is not None and null_test.suspicious else ""
    return f"{amount}, {found}{end}{warning}"


def describe_value_to_quote(detection: Detection, forward: Outcome | None, no_forward: str) -> str:
    """Return which number to quote, and why."""
    if detection.strategy == "applied":
        return (
            f"Quote {detection.significance:.1f} sigma, if this model and its threshold were chosen before these "
            "events were looked at, and none of these events was used for training."
        )
    if detection.strategy == "forward":
        return (
            f"Quote this value, {detection.significance:.1f} sigma: the selection of every group was fixed by earlier "
            "groups before the group was counted, so without a source it follows the normal distribution."
        )
    text = (
        "The pooled value is for comparing models. It uses all events, but its models were trained on each other's "
        "hold-out events, so without a source it scatters a little more than a significance should. "
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
            text += "It is smaller, because the first group is never judged and early models have few training events. "
    if detection.n_permutations:
        text += "The permutation p-value tests something else: whether the features separate On from Off at all."
    return text


def describe_thresholds(detection: Detection) -> str:
    """Return which thresholds select the events of the result."""
    known = detection.thresholds[~np.isnan(detection.thresholds)]
    if len(known) == 0:
        return "The models of the result select events by their own rules, without a threshold on the score."
    low, high = (format_number(value) for value in (known.min(), known.max()))
    if len(known) == 1:
        where = low
    elif low == high:
        where = f"{low} in all {len(known)} folds"
    else:
        where = f"each of {len(known)} folds its own, {low} to {high}"
    return f"The result uses thresholds that were tuned on training events only ({where})."


def format_number(value: float) -> str:
    """Return a number with four decimals; infinity as a symbol."""
    return f"{value:.4f}" if np.isfinite(value) else ("∞" if value > 0 else "−∞")
