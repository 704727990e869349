"""What the page says about a detection: its sentences, numbers and plots, and what is missing for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from excess.detection import Detection
from excess.null_tests import NullTest
from excess.report.exploration import MAX_CELLS, MAX_GROUPS, counts_text, explore
from excess.report.series import has_score, score_histogram, significance_over_time, theta_squared_histogram
from excess.significance import OnOffCounts

__all__ = ["model_content"]

_MAX_FEATURES = 20


def model_content(
    name: str,
    detection: Detection,
    forward: OnOffCounts | None = None,
    null_test: NullTest | None = None,
    *,
    max_cells: int = MAX_CELLS,
) -> dict[str, Any]:
    """Return all that the page shows of one model, ready for JSON.

    ``data`` is what plots and slider need; the rest is text for the page itself.
    """
    missing: list[str] = []
    n_without = int(np.count_nonzero(detection.judged & ~np.isfinite(detection.score)))
    if n_without:
        missing.append(
            f"{n_without:,} judged events have no score. They count in the result where they were selected, and are "
            "left out of the score histogram and of everything that follows the slider."
        )
    content = {
        "name": name,
        "level": _level(detection, null_test),
        "headline": f"{_decimal(detection.significance, 1)} σ",
        "beside": _beside(detection, forward),
        "verdict": _verdict(detection, null_test),
        "numbers": _numbers(detection, forward, null_test),
        "quote": _quote(detection, forward),
        "tuned": counts_text(detection.counts),
        "thresholds": _thresholds(detection),
        "groups": _groups(detection, missing),
        "folds": _folds(detection),
        "data": {
            "name": name,
            "alpha": detection.alpha,
            "required": detection.required,
            "significance": detection.significance,
            "explore": explore(detection, max_cells),
            "thresholds": [value for value in detection.thresholds.tolist() if np.isfinite(value)],
            "theta": _theta(detection, missing),
            "scores": _scores(detection, missing),
            "time": _time(detection, missing),
            "importances": _importances(detection, missing),
            "null": _null(detection, null_test, missing),
        },
        "missing": missing,
    }
    data: Any = content["data"]
    data["tuned"] = content["tuned"]
    data["groups"] = content["groups"]
    return content


def _level(detection: Detection, null_test: NullTest | None) -> str:
    if null_test is not None and null_test.suspicious:
        return "doubt"
    return "found" if detection.feasible else "nothing"


def _beside(detection: Detection, forward: OnOffCounts | None) -> str:
    """Say which significance the large one is."""
    if detection.strategy != "pooled":
        return {"forward": "forward", "applied": "new events"}[detection.strategy]
    return "pooled" if forward is None else f"pooled; forward {forward.significance:.1f} σ"


def _verdict(detection: Detection, null_test: NullTest | None) -> str:
    counts = detection.counts
    text = (
        f"An excess of {counts.excess:,.0f} ± {counts.excess_error:,.0f} events over what Off leads to expect. "
        f"{detection.verdict}"
    )
    return f"{text} But: {null_test.verdict}" if null_test is not None and null_test.suspicious else text


def _numbers(detection: Detection, forward: OnOffCounts | None, null_test: NullTest | None) -> list[dict[str, str]]:
    """Return the numbers of the result, each with what it is."""
    counts, uncut = detection.counts, detection.uncut
    spread = f" ± {detection.spread:.2f}" if len(detection.significances) > 1 else ""
    own = {
        "pooled": ("Pooled significance", "every event judged by a model that has not seen it"),
        "forward": ("Forward significance", "every event judged by a model of earlier groups only"),
        "applied": ("Significance", "new events, judged by a model that was ready before"),
    }[detection.strategy]
    rows = [
        ("On", f"{counts.n_on:,.0f}", "selected events from the On region"),
        ("Off", f"{counts.n_off:,.0f}", "selected events from the Off regions"),
        ("alpha", f"{detection.alpha:.4g}", "exposure of On to that of Off"),
        ("Excess", f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}", "On − alpha × Off"),
        (own[0], f"{detection.significance:.2f}{spread} σ", own[1]),
    ]
    if detection.strategy == "pooled":
        value = "not computed" if forward is None else f"{forward.significance:.2f} σ"
        rows.append(("Forward significance", value, "every event judged by a model of earlier groups only"))
    if detection.strategy != "applied":
        n = len(detection.permuted_contrasts)
        value = f"{detection.permutation_p_value:.3g}" if n else "not computed"
        rows.append(
            ("Permutation p-value", value, f"{n:,} permutations of On and Off" if n else "add --permutations 199")
        )
        value = "not computed"
        note = "add --null-test"
        if null_test is not None:
            value = ", ".join(f"{one:.1f}" for one in null_test.significances) + " σ"
            note = "what the same search finds in each Off region"
        rows.append(("Null tests", value, note))
    rows.append(("Without a cut", f"{uncut.significance:.2f} σ", f"On {uncut.n_on:,.0f}, Off {uncut.n_off:,.0f}"))
    return [{"label": label, "value": value, "note": note} for label, value, note in rows]


def _quote(detection: Detection, forward: OnOffCounts | None) -> str:
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
    if forward is not None:
        text += (
            f"For a detection, quote the forward value, {forward.significance:.1f} sigma: there the selection of every "
            "group was fixed by earlier groups before the group was counted. It is smaller, because the first group is "
            "never judged and early models have little to learn from. "
        )
    else:
        text += "For a detection, quote the forward value instead (excess detect --strategy forward). "
    if len(detection.permuted_contrasts):
        text += "The permutation p-value answers another question: whether the features tell On from Off at all."
    return text


def _thresholds(detection: Detection) -> str:
    known = detection.thresholds[~np.isnan(detection.thresholds)]
    if len(known) == 0:
        return "The models select by rules of their own, without a threshold on the score."
    low, high = (_decimal(value, 4) for value in (known.min(), known.max()))
    if len(known) == 1:
        return f"threshold {low}"
    if low == high:
        return f"threshold {low} in all {len(known)} folds"
    return f"each of {len(known)} folds at its own threshold, {low} to {high}"


def _decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else ("∞" if value > 0 else "−∞")


def _groups(detection: Detection, missing: list[str]) -> list[dict[str, Any]]:
    """Return one row per group, as texts and as numbers for bars."""
    if detection.groups is None:
        missing.append("There are no groups, such as nights, so there is no table of them.")
        return []
    rows = [
        {
            "group": str(group),
            **counts_text(counts),
            "bar": round(counts.excess, 3),
            "bar_error": round(counts.excess_error, 3),
        }
        for group, counts in detection.counts_by_group.items()
    ]
    if len(rows) == 1:
        missing.append(f"There is one group only, {rows[0]['group']}, so that nothing can be said about other nights.")
    if len(rows) > MAX_GROUPS:
        missing.append(f"The table of {len(rows):,} groups is that of the result and does not follow the slider.")
    return rows


def _folds(detection: Detection) -> list[dict[str, str]]:
    rows = []
    for number, fold in enumerate(detection.folds):
        tuned = "" if fold.tuned is None else f"{fold.tuned.significance:.2f}"
        text = "" if np.isnan(fold.threshold) else _decimal(fold.threshold, 4)
        n_train = f"{fold.n_train:,}" if fold.n_train else "elsewhere"
        held_out = fold.held_out
        rows.append(
            {
                "fold": str(number),
                "n_train": n_train,
                "n_held_out": f"{fold.n_held_out:,}",
                "threshold": text,
                "tuned": tuned,
                "n_on": f"{held_out.n_on:,.0f}",
                "n_off": f"{held_out.n_off:,.0f}",
                "significance": f"{held_out.significance:.2f}",
            }
        )
    return rows


def _theta(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    if detection.theta is None or detection.theta_squared_cut is None:
        missing.append("Angles between events and regions are not known, so there is no θ² plot.")
        return None
    found = theta_squared_histogram(detection)
    if detection.nearby is None or detection.nearby.theta is None:
        missing.append("Events around the regions are not known, so the θ² plot ends at the cut.")
    return {
        "edges": found.edges.round(9).tolist(),
        "on": found.on.tolist(),
        "off": found.off.tolist(),
        "alpha": found.alpha,
        "cut": found.cut,
    }


def _scores(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    if not has_score(detection).any():
        missing.append("No event has a score, so there is no threshold to explore and no score histogram.")
        return None
    found = score_histogram(detection)
    return {"edges": found.edges.tolist(), "on": found.on.tolist(), "off": found.off.tolist(), "alpha": found.alpha}


def _time(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    if not detection.judged.any():
        missing.append("No event was judged.")
        return None
    found = significance_over_time(detection)
    if found.unit != "h":
        missing.append("Times of the events are not known, so significance is shown against recorded events.")
    return {
        "exposure": found.exposure.round(6).tolist(),
        "significance": found.significance.round(4).tolist(),
        "unit": found.unit,
    }


def _importances(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    if detection.importances is None:
        missing.append("This model does not say how important its features are.")
        return None
    names = detection.feature_names or tuple(f"x{number}" for number in range(len(detection.importances)))
    order = np.argsort(-detection.importances, kind="stable")[:_MAX_FEATURES]
    return {
        "names": [names[number] for number in order],
        "values": detection.importances[order].round(5).tolist(),
        "n_features": len(names),
    }


def _null(detection: Detection, null_test: NullTest | None, missing: list[str]) -> dict[str, Any] | None:
    if null_test is None:
        if detection.strategy != "applied":
            missing.append("No null test was made: nobody has looked where there is no source.")
        return None
    return {
        "regions": [f"Off {region}" for region in null_test.counts],
        "significances": null_test.significances.round(4).tolist(),
        "verdict": null_test.verdict,
    }
