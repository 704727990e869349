"""Numbers of the result on the page, each with a label and a note."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from excess.report.headline import COMPARES, forward_value, to_quote
from excess.stats.likelihood import OnOffLikelihood
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest
from excess.validation.outcome import STATISTICS, Outcome

__all__ = ["null_texts", "result_numbers"]

_FORWARD = "every event judged by a model of earlier groups only"


class _Number(NamedTuple):
    """A number of the result, and whether it is the one to quote."""

    label: str
    value: str
    note: str
    quoted: bool = False


def result_numbers(
    detection: Detection, forward: Outcome | None, null_test: NullTest | None, no_forward: str, *, quotable: bool
) -> list[dict[str, Any]]:
    """Return the numbers of the result in groups, each number with a label and a note; the declared statistic first."""
    held_out, uncut = int(np.count_nonzero(detection.held_out)), detection.uncut
    about = {
        "likelihood": "all hold-out events, each by its signal ratio: how much more likely signal is there",
        "cut": "hold-out events above the tuned thresholds, all with the same weight",
    }
    groups = []
    for name in sorted(STATISTICS, key=lambda one: one != detection.statistic):
        if name == "likelihood" and detection.likelihood is None:
            continue
        own = _likelihood_numbers(detection.likelihood) if name == "likelihood" else _cut_numbers(detection)
        tests = _test_numbers(detection, null_test, name) if detection.strategy != "applied" else []
        quoted = quotable and name == detection.statistic
        significances = _significance_numbers(detection, forward, no_forward, name, quoted=quoted)
        declared = "declared beforehand" if name == detection.statistic else "for comparison"
        groups.append((name.capitalize(), declared, about[name], [*significances, *own, *tests]))
    rows = [
        _Number("Hold-out events", f"{held_out:,}", f"On {uncut.n_on:,.0f}, Off {uncut.n_off:,.0f}"),
        _Number("alpha", f"{detection.alpha:.4g}", _describe_alpha(detection)),
        _Number("Without a cut", f"{uncut.significance:.2f} σ", "all hold-out events as one bin"),
    ]
    groups.append(("Events", "", "", rows))
    return [
        {"title": title, "declared": declared, "about": text, "rows": [number._asdict() for number in rows]}
        for title, declared, text, rows in groups
    ]


def _significance_numbers(
    detection: Detection, forward: Outcome | None, no_forward: str, statistic: str, *, quoted: bool
) -> list[_Number]:
    """Return the significances by one statistic, the forward one first, and its p-value."""
    label, note = {
        "pooled": ("Pooled significance", f"{COMPARES}: every event judged by a model that has not seen it"),
        "forward": ("Forward significance", _FORWARD),
        "applied": ("Significance", "new events, judged by a model that was trained before"),
    }[detection.strategy]
    repeats, spread = detection.repeats[statistic], ""
    if len(repeats) > 1:
        spread = f" ± {repeats.std(ddof=1):.2f}"
        note += f"; ± is the scatter over {len(repeats)} seeds"
    best, which = detection.outcome.significances[statistic], label.lower()
    rows = [_Number(label, f"{best:.2f}{spread} σ", note)]
    ahead = forward_value(detection, forward, statistic)
    if ahead is not None:
        best, which = ahead, "forward significance"
        rows.insert(0, _Number("Forward significance", f"{best:.2f} σ", _FORWARD))
    elif detection.strategy == "pooled":
        rows.append(_Number("Forward significance", "not computed", no_forward))
        quoted = False
    if quoted:
        first = rows[0]
        rows[0] = first._replace(note=f"{to_quote(detection)}: {first.note}", quoted=True)
    return [*rows, _Number("p-value", _p_value_text(best), f"of the {which}: upper tail of the normal law")]


def _describe_alpha(detection: Detection) -> str:
    """Return what alpha is: one for all events, or the mean."""
    if detection.event_alpha is None:
        return "exposure ratio On/Off"
    low, high = detection.event_alpha.min(), detection.event_alpha.max()
    return f"mean exposure ratio On/Off; each event counts with its own, {low:.4g} to {high:.4g}"


def _p_value_text(significance: float) -> str:
    p_value = float(ndtr(-significance))
    return f"{p_value:.2g}" if p_value > 1e-300 else "below 1e-300"


def _likelihood_numbers(likelihood: OnOffLikelihood | None) -> list[_Number]:
    """Return label, value and note of the signal that the likelihood finds."""
    if likelihood is None:
        return []
    low, high = likelihood.strength_interval
    return [
        _Number(
            "Signal events",
            f"{likelihood.n_signal:,.1f} ± {likelihood.n_signal_error:,.1f}",
            "expected number among the On events",
        ),
        _Number(
            "Signal strength",
            f"{likelihood.strength:.3g} ({low:.3g} to {high:.3g})".replace("inf", "∞"),
            "signal events per Off event, with the interval of one sigma",
        ),
    ]


def _cut_numbers(detection: Detection) -> list[_Number]:
    """Return label, value and note of the counts that are left by the cut."""
    counts = detection.counts
    return [
        _Number("On", f"{counts.n_on:,.0f}", "selected events from the On region"),
        _Number("Off", f"{counts.n_off:,.0f}", "selected events from the Off regions"),
        _Number("Excess", f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}", "On − alpha × Off"),
    ]


def _test_numbers(detection: Detection, null_test: NullTest | None, statistic: str) -> list[_Number]:
    """Return label, value and note of permutations and null tests by one statistic."""
    n = detection.n_permutations
    value = f"{detection.permutation_p_values[statistic]:.3g}" if n else "not computed"
    note = f"{n:,} permutations of On and Off; the smallest possible value is {1 / (n + 1):.2g}"
    rows = [_Number("Permutation p-value", value, note if n else "see excess detect --permutations")]
    value, note = "not made", "see excess detect --null-test; it needs two Off regions"
    if null_test is not None:
        value, note = f"{', '.join(null_texts(null_test, statistic))} σ", "a search in each Off region"
    return [*rows, _Number("Null tests", value, note)]


def null_texts(null_test: NullTest, statistic: str) -> list[str]:
    """Return the significance in each Off region by one statistic; a dash where there is none."""
    found = [replace(outcome, statistic=statistic) for outcome in null_test.outcomes.values()]
    return ["-" if one.empty or np.isnan(one.significance) else f"{one.significance:.1f}" for one in found]
