"""Content of the page about one model: numbers, tables, data of plots, and a list of what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from excess.report.exploration import MAX_BYTES, counts_text, explore
from excess.report.sentences import (
    classify_result,
    describe_strategy,
    describe_thresholds,
    describe_value_to_quote,
    describe_verdict,
    format_number,
)
from excess.report.series import (
    OnOffHistogram,
    has_score,
    largest_importances,
    score_histogram,
    significance_over_time,
    theta_squared_histogram,
)
from excess.validation.detection import Detection, Outcome
from excess.validation.null_tests import NullTest

__all__ = ["MAX_ROWS", "model_content"]

MAX_ROWS = 300
"""Largest number of rows in a table of groups or folds; CSV files next to the report hold all of them."""
_MAX_FEATURES = 20
_MAX_MARKS = 100
"""Largest number of tuned thresholds that are marked in plots."""


def model_content(
    name: str,
    detection: Detection,
    forward: Outcome | None = None,
    null_test: NullTest | None = None,
    *,
    no_forward: str = "",
    max_bytes: int = MAX_BYTES,
    max_rows: int = MAX_ROWS,
) -> dict[str, Any]:
    """Return the content of the page about one model.

    ``data``, for JSON, is the input of the plots and the slider; the rest are texts for the template.
    """
    missing: list[str] = []
    judged = detection.held_out
    if n_without := int(np.count_nonzero(judged & ~np.isfinite(detection.score))):
        missing.append(
            f"{n_without:,} judged events have no score. They count in the result if they were selected, but are "
            "left out of the score histogram and of everything that follows the slider."
        )
    if n_unjudged := int(np.count_nonzero(~judged)):
        missing.append(f"{n_unjudged:,} of {len(judged):,} events were used for training only, and are not counted.")
    explored = explore(detection, max_bytes)
    groups = _groups(detection, missing)
    marks = np.unique(detection.thresholds[np.isfinite(detection.thresholds)].round(6))
    level, stamp = classify_result(detection, forward, null_test)
    tuned = counts_text(detection.counts)
    return {
        "name": name,
        "level": level,
        "stamp": stamp,
        "headline": f"{detection.significance:.1f} σ",
        "strategy": describe_strategy(detection, forward),
        "verdict": describe_verdict(detection, forward, null_test),
        "numbers": _numbers(detection, forward, null_test, no_forward),
        "quote": describe_value_to_quote(detection, forward, no_forward),
        "tuned": tuned,
        "thresholds": describe_thresholds(detection),
        "groups": groups[:max_rows],
        "n_groups": len(groups),
        "groups_follow": explored is not None and explored["groups"] is not None,
        "folds": _folds(detection)[:max_rows],
        "n_folds": len(detection.folds),
        "cross_validated": detection.strategy != "applied",
        "data": {
            "name": name,
            "alpha": detection.alpha,
            "significance": detection.significance,
            "tuned": tuned,
            "explore": explored,
            "thresholds": marks[:: -(-len(marks) // _MAX_MARKS) or 1].tolist(),
            "start": _start(detection, explored),
            "groups": groups[:max_rows],
            "theta": _theta(detection, missing),
            "scores": _scores(detection, missing),
            "time": _time(detection, missing),
            "importances": _importances(detection, missing),
            "null": _null(detection, null_test, missing),
        },
        "missing": missing,
    }


def _numbers(
    detection: Detection, forward: Outcome | None, null_test: NullTest | None, no_forward: str
) -> list[dict[str, str]]:
    """Return the numbers of the result, each with a label and a note."""
    counts, uncut = detection.counts, detection.uncut
    label, note = {
        "pooled": ("Pooled significance", "every event judged by a model that has not seen it"),
        "forward": ("Forward significance", "every event judged by a model of earlier groups only"),
        "applied": ("Significance", "new events, judged by a model that was trained before"),
    }[detection.strategy]
    spread = ""
    if (n_repeats := len(detection.significances)) > 1:
        spread = f" ± {detection.spread:.2f}"
        note += f"; ± is the scatter over {n_repeats} seeds"
    rows = [
        ("On", f"{counts.n_on:,.0f}", "selected events from the On region"),
        ("Off", f"{counts.n_off:,.0f}", "selected events from the Off regions"),
        ("alpha", f"{detection.alpha:.4g}", "exposure ratio On/Off"),
        ("Excess", f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}", "On − alpha × Off"),
        (label, f"{detection.significance:.2f}{spread} σ", note),
    ]
    if detection.strategy == "pooled":
        value = "not computed" if forward is None else f"{forward.significance:.2f} σ"
        note = "every event judged by a model of earlier groups only" if forward is not None else no_forward
        rows.append(("Forward significance", value, note))
    if detection.strategy != "applied":
        n = detection.n_permutations
        value = f"{detection.permutation_p_value:.3g}" if n else "not computed"
        note = f"{n:,} permutations of On and Off; the smallest possible value is {1 / (n + 1):.2g}"
        rows.append(("Permutation p-value", value, note if n else "see excess detect --permutations"))
        value, note = "not made", "see excess detect --null-test; it needs two Off regions"
        if null_test is not None:
            value, note = f"{', '.join(null_test.texts)} σ", "significance of the same search in each Off region"
        rows.append(("Null tests", value, note))
    rows.append(("Without a cut", f"{uncut.significance:.2f} σ", f"On {uncut.n_on:,.0f}, Off {uncut.n_off:,.0f}"))
    return [{"label": label, "value": value, "note": note} for label, value, note in rows]


def _start(detection: Detection, explored: dict[str, Any] | None) -> int:
    """Return the first position of the slider: the stop nearest to the median of the tuned thresholds."""
    known = np.sort(detection.thresholds[np.isfinite(detection.thresholds)])
    if explored is None or len(known) == 0:
        return 0
    stops = np.array([float(text) for text in explored["threshold"]])
    return int(np.abs(stops - known[(len(known) - 1) // 2]).argmin())


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
        missing.append(f"There is one group only, {rows[0]['group']}, so groups cannot be compared.")
    return rows


def _folds(detection: Detection) -> list[dict[str, str]]:
    """Return one row of texts per fold."""
    return [
        {
            **counts_text(fold.held_out),
            "fold": str(number),
            "n_train": f"{fold.n_train:,}" if fold.n_train else "elsewhere",
            "n_held_out": f"{fold.n_held_out:,}",
            "threshold": "" if np.isnan(fold.threshold) else format_number(fold.threshold),
            "tuned": "" if fold.tuned is None else f"{fold.tuned.significance:.2f}",
        }
        for number, fold in enumerate(detection.folds)
    ]


def _histogram(found: OnOffHistogram) -> dict[str, Any]:
    return {"edges": found.edges.tolist(), "on": found.on.tolist(), "off": found.off.tolist(), "alpha": found.alpha}


def _theta(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    if detection.theta is None or detection.theta_squared_cut is None:
        missing.append("Angles between events and regions are not known, so there is no θ² plot.")
        return None
    if detection.nearby is None or detection.nearby.theta is None:
        missing.append("Events around the regions are not known, so the θ² plot ends at the cut.")
    found = theta_squared_histogram(detection)
    return {**_histogram(found._replace(edges=found.edges.round(9))), "cut": detection.theta_squared_cut}


def _scores(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    if not has_score(detection).any():
        missing.append("No event has a score, so there is no threshold to explore and no score histogram.")
        return None
    return _histogram(score_histogram(detection))


def _time(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    if not detection.held_out.any():
        missing.append("No event was judged.")
        return None
    found = significance_over_time(detection)
    if found.unit != "h":
        missing.append("Times of the events are not known, so the significance is shown against hold-out events.")
    return {
        "exposure": found.exposure.round(6).tolist(),
        "significance": found.significance.round(4).tolist(),
        "unit": found.unit,
    }


def _importances(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    if detection.importances is None:
        missing.append("This model has no importances of features.")
        return None
    found = largest_importances(detection, _MAX_FEATURES)
    return {**found._asdict(), "values": found.values.round(5).tolist()}


def _null(detection: Detection, null_test: NullTest | None, missing: list[str]) -> dict[str, Any] | None:
    if null_test is None:
        if detection.strategy != "applied":
            missing.append("No null test was made, which searches in the Off regions, where there is no source.")
        return None
    return {
        "regions": [f"Off {region}" for region in null_test.counts],
        "significances": [
            round(counts.significance, 4) if counts.n_on + counts.n_off else None
            for counts in null_test.counts.values()
        ],
        "verdict": null_test.verdict,
    }
