"""Sentences of the page: the verdict, the value to quote, the bins of the likelihood, and the thresholds."""

from __future__ import annotations

import numpy as np

from excess.validation.detection import Detection
from excess.validation.outcome import Outcome
from excess.validation.verdict import Verdict

LABELS = {
    "detected": ("found", "Source detected"),
    "not confirmed": ("unconfirmed", "Not confirmed"),
    "no detection": ("nothing", "No detection"),
    "doubtful": ("doubt", "Do not trust this"),
}
"""The kind of a page, which sets its colour, and its label, by the status of the verdict."""


def describe_strategy(detection: Detection, forward: Outcome | None) -> str:
    """Return which significance the headline shows, with the forward one and that by the other statistic, if known."""
    how = {"pooled": "pooled", "forward": "forward", "applied": "new events"}[detection.strategy]
    parts = [f"{detection.statistic} · {how}"]
    if detection.strategy == "pooled" and forward is not None:
        parts.append(f"forward {forward.significance:.1f} σ")
    for name, value in detection.outcome.significances.items():
        if name != detection.statistic and not np.isnan(value):
            parts.append(f"{name} {value:.1f} σ")
    return "; ".join(parts)


def describe_verdict(detection: Detection, verdict: Verdict) -> str:
    """Return the verdict, after how many events were found."""
    return f"{_describe_amount(detection)}, {verdict.sentence}"


def _describe_amount(detection: Detection) -> str:
    """Return how many events the declared statistic finds: signal events of the likelihood, or the excess of a cut."""
    counts, likelihood = detection.counts, detection.likelihood
    if detection.statistic == "likelihood" and likelihood is not None:
        word, amount, error = "A signal", likelihood.n_signal, likelihood.n_signal_error
    elif counts.n_on + counts.n_off == 0:
        return "Nothing was selected"
    else:
        word, amount, error = "An excess", counts.excess, counts.excess_error
    return f"{word if amount >= 0 else 'A deficit'} of {abs(amount):,.0f} ± {error:,.0f} events"


def describe_value_to_quote(detection: Detection, forward: Outcome | None, no_forward: str) -> str:
    """Return which number to quote, and why: that of the declared statistic, forward if there is one."""
    declared = _describe_statistic(detection)
    by_cut = detection.statistic == "cut"
    if detection.strategy == "applied":
        chosen = "this model and its threshold were" if by_cut else "this model was"
        return (
            f"Quote {detection.significance:.1f} sigma, if {chosen} chosen before these events were looked at, and "
            f"none of these events was used for training. {declared}"
        )
    fixed = "the selection of every group was fixed by earlier groups before the group was counted"
    if not by_cut:
        fixed = "the signal ratio of every event was fixed by models of earlier groups before its group was looked at"
    if detection.strategy == "forward":
        return (
            f"Quote this value, {detection.significance:.1f} sigma: {fixed}, so without a source it follows the normal "
            f"distribution. {declared}"
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
        text += f"The value to quote is the forward one, {forward.significance:.1f} sigma: there {fixed}. "
        if forward.significance < detection.significance:
            text += "It is smaller, because the first group is never judged and early models have few training events. "
    text += declared
    if detection.n_permutations:
        text += "The permutation p-value tests something else: whether the features separate On from Off at all."
    return text


def _describe_statistic(detection: Detection) -> str:
    """Return which statistic was declared beforehand; nothing if there is only one."""
    if detection.likelihood is None:
        return ""
    other = "cut" if detection.statistic == "likelihood" else "likelihood"
    return (
        f"The {detection.statistic} was declared beforehand; the {other} stands beside it. To quote the larger of the "
        "two would be biased. "
    )


def describe_bins(detection: Detection) -> str:
    """Return how bins of the signal ratio make up the two significances."""
    found = detection.outcome.significances
    if detection.likelihood is None:
        return ""
    return (
        f"Cut: the filled bins, most of whose events it selects, as one bin ({found['cut']:.1f} σ). Likelihood: all "
        f"bins, each by its weight ({found['likelihood']:.1f} σ)."
    )


def describe_thresholds(detection: Detection) -> str:
    """Return which thresholds select the events of the result."""
    known = detection.thresholds[~np.isnan(detection.thresholds)]
    if len(known) == 0:
        return "The models select events by their own rules, without a threshold on the score."
    low, high = (format_number(value) for value in (known.min(), known.max()))
    if len(known) == 1:
        where = low
    elif low == high:
        where = f"{low} in all {len(known)} folds"
    else:
        where = f"each of {len(known)} folds its own, {low} to {high}"
    return f"The cut uses thresholds that were tuned on training events only ({where})."


def format_number(value: float) -> str:
    """Return a number with four decimals; infinity as a symbol."""
    return f"{value:.4f}" if np.isfinite(value) else ("∞" if value > 0 else "−∞")
