"""Sentences of the page: the verdict, the value to quote, the bins of the likelihood, and the thresholds."""

from __future__ import annotations

import numpy as np

from excess.report.headline import forward_value
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
_NOTHING_TO_QUOTE = {
    "not confirmed": "There is no confirmed detection to quote.",
    "no detection": "There is no detection to quote.",
    "compared": "This model is for comparison: a detection is quoted by the first model of the list.",
    "doubtful": "Quote nothing before the warnings are explained.",
}
"""What is said first unless a source is detected."""


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


def describe_value_to_quote(
    detection: Detection, forward: Outcome | None, no_forward: str, status: str
) -> tuple[str, str]:
    """Return a title, and which number to quote and why: that of the declared statistic, forward if there is one.

    Where nothing is detected, or by a model that is compared, the text says what the numbers mean.
    """
    title = "Which one to quote." if status == "detected" else "What these numbers mean."
    lead = _NOTHING_TO_QUOTE.get(status, "")
    tests = ""
    if detection.n_permutations:
        tests = "The permutation p-value tests something else: whether the features separate On from Off at all."
    parts = [*_describe_values(detection, forward, no_forward, status), _describe_statistic(detection), tests]
    return title, " ".join(part for part in (lead, *parts) if part)


def _describe_values(detection: Detection, forward: Outcome | None, no_forward: str, status: str) -> list[str]:
    """Return a sentence about the value to quote, and one about the pooled value."""
    by_cut, value = detection.statistic == "cut", f"{detection.significance:.1f} sigma"
    if detection.strategy == "applied":
        chosen = "this model and its threshold were" if by_cut else "this model was"
        what = f"Quote {value}," if status == "detected" else f"{value} counts"
        return [
            f"{what} if {chosen} chosen before these events were looked at, and none of these events was used for "
            "training."
        ]
    fixed = "the selection of every group was fixed by earlier groups before the group was counted"
    if not by_cut:
        fixed = "the signal ratio of every event was fixed by models of earlier groups before its group was looked at"
    normal = "so without a source it follows the normal distribution"
    if detection.strategy == "forward":
        what = f"Quote this value, {value}" if status == "detected" else f"This value, {value}, is a forward one"
        return [f"{what}: {fixed}, {normal}."]
    pooled = (
        f"The pooled value, {value}, compares models: it uses all events, but its models were trained on each other's "
        "hold-out events, so without a source it scatters a little more than a significance should."
    )
    ahead = forward_value(detection, forward, detection.statistic)
    if ahead is None:
        reason = no_forward.strip().rstrip(".") or "it was not computed"
        what = "The value to quote would be the forward one" if status == "detected" else "There is no forward value"
        return [f"{what}, for which every group is judged by models of earlier groups only; here, {reason}.", pooled]
    what = f"The forward value, {ahead:.1f} sigma, is the one that counts"
    if status == "detected":
        what = f"Quote the forward value, {ahead:.1f} sigma"
    smaller = ""
    if ahead < detection.significance:
        smaller = (
            "It is smaller than the pooled one, because the first group is never judged and early models have few "
            "training events."
        )
    return [f"{what}: {fixed}, {normal}.", smaller, pooled]


def _describe_statistic(detection: Detection) -> str:
    """Return which statistic was declared beforehand; nothing if there is only one."""
    if detection.likelihood is None:
        return ""
    other = "cut" if detection.statistic == "likelihood" else "likelihood"
    return (
        f"The {detection.statistic} was declared beforehand; the {other} stands beside it. To quote the larger of the "
        "two would be biased."
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
