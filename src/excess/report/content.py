"""Content of the page about one model: numbers, tables, data of plots, and a list of what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from excess.report.exploration import MAX_BYTES, counts_text, explore
from excess.report.references import trust_rows
from excess.report.sentences import (
    LABELS,
    describe_bins,
    describe_strategy,
    describe_thresholds,
    describe_value_to_quote,
    describe_verdict,
    format_number,
)
from excess.report.series import (
    OnOffHistogram,
    has_light_curve,
    has_score,
    largest_importances,
    light_curve,
    likelihood_bins,
    score_histogram,
    significance_over_time,
    theta_squared_histogram,
)
from excess.stats.likelihood import OnOffLikelihood
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest
from excess.validation.outcome import STATISTICS, Outcome
from excess.validation.verdict import Verdict, judge

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
    verdict: Verdict | None = None,
    no_forward: str = "",
    max_bytes: int = MAX_BYTES,
    max_rows: int = MAX_ROWS,
) -> dict[str, Any]:
    """Return the content of the page about one model.

    The verdict is that on this model alone, unless it is given. ``data``, for JSON, is the input of the plots and the
    slider; the rest are texts for the template.
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
        missing.append(
            "Exposure ratios differ between events. The significances take each event's own; the slider and the "
            "histograms scale Off by the mean."
        )
    explored = explore(detection, max_bytes)
    groups = _groups(detection, missing)
    marks = np.unique(detection.thresholds[np.isfinite(detection.thresholds)].round(6))
    verdict = judge(detection, forward, null_test) if verdict is None else verdict
    level, stamp = LABELS[verdict.status]
    tuned = counts_text(detection.counts)
    return {
        "name": name,
        "level": level,
        "stamp": stamp,
        "headline": f"{detection.significance:.1f} σ",
        "strategy": describe_strategy(detection, forward),
        "verdict": describe_verdict(detection, verdict),
        "warnings": [{"code": one.code, "sentence": one.sentence} for one in verdict.warnings],
        "statistic": detection.statistic,
        "with_likelihood": detection.likelihood is not None,
        "numbers": _numbers(detection, forward, null_test, no_forward),
        "trust": trust_rows(detection),
        "quote": describe_value_to_quote(detection, forward, no_forward),
        "bins": describe_bins(detection),
        "tuned": tuned,
        "thresholds": describe_thresholds(detection),
        "groups": groups[:max_rows],
        "n_groups": len(groups),
        "observations": _observations(detection)[:max_rows],
        "groups_follow": explored is not None and explored["groups"] is not None,
        "folds": _folds(detection)[:max_rows],
        "n_folds": len(detection.folds),
        "cross_validated": detection.strategy != "applied",
        "data": {
            "name": name,
            "alpha": detection.alpha,
            "statistic": detection.statistic,
            "significance": detection.significance,
            "cut_significance": detection.counts.significance,
            "tuned": tuned,
            "explore": explored,
            "thresholds": marks[:: -(-len(marks) // _MAX_MARKS) or 1].tolist(),
            "start": _start(detection, explored),
            "groups": groups[:max_rows],
            "likelihood": _likelihood(detection, missing),
            "light": _light(detection, missing, max_rows),
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
        rows = [*_significance_numbers(detection, forward, no_forward, name), *own, *tests]
        declared = "declared beforehand" if name == detection.statistic else "for comparison"
        groups.append((name.capitalize(), declared, about[name], rows))
    rows = [
        ("Hold-out events", f"{held_out:,}", f"On {uncut.n_on:,.0f}, Off {uncut.n_off:,.0f}"),
        ("alpha", f"{detection.alpha:.4g}", "exposure ratio On/Off"),
        ("Without a cut", f"{uncut.significance:.2f} σ", "all hold-out events as one bin"),
    ]
    groups.append(("Events", "", "", rows))
    return [
        {
            "title": title,
            "declared": declared,
            "about": text,
            "rows": [{"label": label, "value": value, "note": note} for label, value, note in rows],
        }
        for title, declared, text, rows in groups
    ]


def _significance_numbers(
    detection: Detection, forward: Outcome | None, no_forward: str, statistic: str
) -> list[tuple[str, str, str]]:
    """Return label, value and note of the significances by one statistic, and of its p-value."""
    label, note = {
        "pooled": ("Pooled significance", "every event judged by a model that has not seen it"),
        "forward": ("Forward significance", "every event judged by a model of earlier groups only"),
        "applied": ("Significance", "new events, judged by a model that was trained before"),
    }[detection.strategy]
    repeats, spread = detection.repeats[statistic], ""
    if len(repeats) > 1:
        spread = f" ± {repeats.std(ddof=1):.2f}"
        note += f"; ± is the scatter over {len(repeats)} seeds"
    best, which = detection.outcome.significances[statistic], label.lower()
    rows = [(label, f"{best:.2f}{spread} σ", note)]
    if detection.strategy == "pooled":
        value, note = "not computed", no_forward
        if forward is not None and not np.isnan(forward.significances[statistic]):
            best, which = forward.significances[statistic], "forward significance"
            value, note = f"{best:.2f} σ", "every event judged by a model of earlier groups only"
        rows.append(("Forward significance", value, note))
    rows.append(("p-value", _p_value_text(best), f"of the {which}: upper tail of the normal law"))
    return rows


def _p_value_text(significance: float) -> str:
    p_value = float(ndtr(-significance))
    return f"{p_value:.2g}" if p_value > 1e-300 else "below 1e-300"


def _likelihood_numbers(likelihood: OnOffLikelihood | None) -> list[tuple[str, str, str]]:
    """Return label, value and note of the signal that the likelihood finds."""
    if likelihood is None:
        return []
    low, high = likelihood.strength_interval
    return [
        (
            "Signal events",
            f"{likelihood.n_signal:,.1f} ± {likelihood.n_signal_error:,.1f}",
            "expected number among the On events",
        ),
        (
            "Signal strength",
            f"{likelihood.strength:.3g} ({low:.3g} to {high:.3g})".replace("inf", "∞"),
            "signal events per Off event, with the interval of one sigma",
        ),
    ]


def _cut_numbers(detection: Detection) -> list[tuple[str, str, str]]:
    """Return label, value and note of the counts that are left by the cut."""
    counts = detection.counts
    return [
        ("On", f"{counts.n_on:,.0f}", "selected events from the On region"),
        ("Off", f"{counts.n_off:,.0f}", "selected events from the Off regions"),
        ("Excess", f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}", "On − alpha × Off"),
    ]


def _test_numbers(detection: Detection, null_test: NullTest | None, statistic: str) -> list[tuple[str, str, str]]:
    """Return label, value and note of permutations and null tests by one statistic."""
    n = detection.n_permutations
    value = f"{detection.permutation_p_values[statistic]:.3g}" if n else "not computed"
    note = f"{n:,} permutations of On and Off; the smallest possible value is {1 / (n + 1):.2g}"
    rows = [("Permutation p-value", value, note if n else "see excess detect --permutations")]
    value, note = "not made", "see excess detect --null-test; it needs two Off regions"
    if null_test is not None:
        value, note = f"{', '.join(null_texts(null_test, statistic))} σ", "a search in each Off region"
    return [*rows, ("Null tests", value, note)]


def null_texts(null_test: NullTest, statistic: str) -> list[str]:
    """Return the significance in each Off region by one statistic; a dash where there is none."""
    found = [replace(outcome, statistic=statistic) for outcome in null_test.outcomes.values()]
    return ["-" if one.empty or np.isnan(one.significance) else f"{one.significance:.1f}" for one in found]


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
    found = detection.groups_frame().to_dict("records")
    rows = [
        {
            "group": str(group),
            **counts_text(counts),
            "bar": round(counts.excess, 3),
            "bar_error": round(counts.excess_error, 3),
            "likelihood": _text_if_known("{:.2f}", numbers["likelihood_significance"]),
            "strength": _text_if_known(
                "{:.2f} ({:.2f} to {:.2f})", *(numbers[f"relative_strength{end}"] for end in ("", "_low", "_high"))
            ),
        }
        for (group, counts), numbers in zip(detection.counts_by_group.items(), found, strict=True)
    ]
    if len(rows) == 1:
        missing.append(f"There is one group only, {rows[0]['group']}, so groups cannot be compared.")
    return rows


def _observations(detection: Detection) -> list[dict[str, str]]:
    """Return one row of texts per observation, and one for all together; nothing unless there are several."""
    found = detection.outcomes_by_observation
    if len(found) < 2:
        return []
    return [
        {
            "observation": str(name),
            "alpha": f"{outcome.counts.alpha:.4g}",
            **counts_text(outcome.counts),
            "likelihood": _text_if_known("{:.2f}", outcome.significances["likelihood"]),
        }
        for name, outcome in [*found.items(), ("joint", detection.outcome)]
    ]


def _text_if_known(template: str, *values: float) -> str:
    """Return numbers as text; nothing where one of them is not a number."""
    return "" if np.isnan(values).any() else template.format(*values).replace("inf", "∞").replace("-", "−")


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
            "likelihood": _text_if_known("{:.2f}", fold.likelihood_significance),
        }
        for number, fold in enumerate(detection.folds)
    ]


def _histogram(found: OnOffHistogram) -> dict[str, Any]:
    return {"edges": found.edges.tolist(), "on": found.on.tolist(), "off": found.off.tolist(), "alpha": found.alpha}


def _likelihood(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    """Return bins of the signal ratio: On, scaled Off, fitted signal, and the significance of each bin."""
    if detection.likelihood is None:
        missing.append(
            "This model has no signal ratio, which says how much more likely signal is at an event. So there is no "
            "likelihood, no plot of it, and no light curve."
        )
        return None
    if not detection.held_out.any():
        return None
    found = likelihood_bins(detection)
    ticks = found.ticks()
    texts = [
        f"On {found.n_on[i]:,}, Off × alpha {found.background[i]:,.1f} ± {found.background_error[i]:,.1f}, "
        f"fitted signal {found.signal[i]:,.1f}, {found.significance[i]:.2f} σ"
        for i in range(len(found.n_on))
    ]
    return {
        "ticks": {"at": list(ticks), "text": list(ticks.values())},
        "on": found.n_on.tolist(),
        "off": found.background.round(3).tolist(),
        "off_error": found.background_error.round(3).tolist(),
        "signal": found.signal.round(3).tolist(),
        "significance": found.significance.round(3).tolist(),
        "selected": found.mostly_selected.tolist(),
        "texts": texts,
    }


def _light(detection: Detection, missing: list[str], max_rows: int) -> dict[str, Any] | None:
    """Return the strength of the source by group, in units of its mean."""
    if not has_light_curve(detection):
        if detection.likelihood is not None and len(detection.counts_by_group) > 1:
            missing.append("The mean strength of the source is not a positive number, so there is no light curve.")
        return None
    found = light_curve(detection)
    if n_left_out := found.n_groups - len(found.groups):
        missing.append(
            f"The strength of the source is not bounded in {n_left_out:,} of {found.n_groups:,} groups, which are left "
            "out of the light curve."
        )
    values = {"strength": found.strength, "low": found.low, "high": found.high}
    return {
        "groups": [str(group) for group in found.groups[:max_rows]],
        **{name: value[:max_rows].round(4).tolist() for name, value in values.items()},
    }


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
        "regions": [f"Off {region}" for region in null_test.outcomes],
        "significances": [
            None if outcome.empty else round(outcome.significance, 4) for outcome in null_test.outcomes.values()
        ],
        "verdict": null_test.verdict,
    }
