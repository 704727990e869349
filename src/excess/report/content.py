"""Content of the page about one model: numbers, tables, data of plots, and a list of what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from excess.report.exploration import MAX_BYTES, counts_text, explore
from excess.report.field_data import bin_data, bin_rows, feature_data, rate_data, sky_data
from excess.report.headline import make_headline
from excess.report.numbers import result_numbers
from excess.report.plot_data import (
    importance_data,
    light_data,
    likelihood_data,
    null_data,
    score_data,
    theta_data,
    time_data,
)
from excess.report.references import trust_rows
from excess.report.sentences import (
    LABELS,
    describe_bins,
    describe_thresholds,
    describe_value_to_quote,
    describe_verdict,
)
from excess.report.tables import fold_rows, group_rows, observation_rows
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest
from excess.validation.outcome import Outcome
from excess.validation.verdict import Verdict, judge

__all__ = ["MAX_ROWS", "model_content"]

MAX_ROWS = 300
"""Largest number of rows in a table of groups or folds; CSV files next to the report hold all of them."""
_MAX_MARKS = 100
"""Largest number of tuned thresholds that are marked in plots."""


def model_content(
    name: str,
    detection: Detection,
    forward: Outcome | None = None,
    null_test: NullTest | None = None,
    *,
    verdict: Verdict | None = None,
    no_forward: str = "",
    max_bytes: int = MAX_BYTES,
    max_rows: int = MAX_ROWS,
    number: int = 0,
    n_models: int = 1,
) -> dict[str, Any]:
    """Return the content of the page about one model.

    The verdict is that on this model alone, unless it is given. ``number`` is that of the model among ``n_models``.
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
    if detection.event_alpha is not None:
        beyond = (
            "Those of events beyond the cut in θ² are not known, so the θ² plot scales them by the mean there. "
            if detection.theta is not None
            else ""
        )
        missing.append(
            f"Exposure ratios differ between events, and each event counts with its own. {beyond}The curve above the "
            "slider has the significance at the stops of the slider."
        )
    explored = explore(detection, max_bytes)
    groups = group_rows(detection, missing)
    marks = np.unique(detection.thresholds[np.isfinite(detection.thresholds)].round(6))
    verdict = judge(detection, forward, null_test) if verdict is None else verdict
    level, stamp = LABELS[verdict.status]
    # a detection is quoted by the first model, which was chosen before anything was seen
    status = "compared" if verdict.feasible and number > 0 else verdict.status
    quote_title, quote = describe_value_to_quote(detection, forward, no_forward, status)
    tuned = counts_text(detection.counts)
    rates = rate_data(detection, missing, max_rows)
    features = feature_data(detection, missing, n_models)
    sky = sky_data(detection, missing, number)
    return {
        "name": name,
        "level": level,
        "stamp": stamp,
        "headline": make_headline(detection, forward, no_forward, status)._asdict(),
        "strategy": detection.strategy,
        "verdict": describe_verdict(detection, verdict),
        "warnings": [{"code": one.code, "sentence": one.sentence} for one in verdict.warnings],
        "statistic": detection.statistic,
        "with_likelihood": detection.likelihood is not None,
        "numbers": result_numbers(detection, forward, null_test, no_forward, quotable=status == "detected"),
        "trust": trust_rows(detection),
        "quote_title": quote_title,
        "quote": quote,
        "bins": describe_bins(detection),
        "tuned": tuned,
        "thresholds": describe_thresholds(detection),
        "groups": groups[:max_rows],
        "n_groups": len(groups),
        "observations": observation_rows(detection)[:max_rows],
        "groups_follow": explored is not None and explored["groups"] is not None,
        "with_hours": any(row["hours"] for row in groups),
        "rates": rates,
        "sky": sky,
        "features": None if features is None else [one["name"] for one in features],
        "binned": bin_rows(detection)[:max_rows],
        "bin_column": "" if detection.bins is None else detection.bins.column,
        "folds": fold_rows(detection)[:max_rows],
        "n_folds": len(detection.folds),
        "cross_validated": detection.strategy != "applied",
        "data": {
            "name": name,
            "off_name": "Off × alpha" if detection.event_alpha is not None else f"Off × {detection.alpha:.4g}",
            "statistic": detection.statistic,
            "strategy": detection.strategy,
            "significance": detection.significance,
            "cut_significance": detection.counts.significance,
            "tuned": tuned,
            "explore": explored,
            "thresholds": marks[:: -(-len(marks) // _MAX_MARKS) or 1].tolist(),
            "start": _start(detection, explored),
            "groups": groups[:max_rows],
            "likelihood": likelihood_data(detection, missing),
            "light": light_data(detection, missing, max_rows),
            "theta": theta_data(detection, missing),
            "scores": score_data(detection, missing),
            "time": time_data(detection, missing),
            "importances": importance_data(detection, missing),
            "null": null_data(detection, null_test, missing),
            "rates": rates,
            "features": features,
            "sky": sky,
            "binned": bin_data(detection),
        },
        "missing": missing,
    }


def _start(detection: Detection, explored: dict[str, Any] | None) -> int:
    """Return the first position of the slider: the stop nearest to the median of the tuned thresholds."""
    known = np.sort(detection.thresholds[np.isfinite(detection.thresholds)])
    if explored is None or len(known) == 0:
        return 0
    stops = np.array([float(text) for text in explored["threshold"]])
    return int(np.abs(stops - known[(len(known) - 1) // 2]).argmin())
