"""Data of the plots on the page, as JSON takes it; what is missing is added to a list of sentences."""

from __future__ import annotations

from typing import Any

from excess.report.histograms import OnOffHistogram, has_score, score_histogram, theta_squared_histogram
from excess.report.likelihood_bins import likelihood_bins
from excess.report.series import has_light_curve, largest_importances, light_curve, significance_over_time
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest

__all__ = ["importance_data", "light_data", "likelihood_data", "null_data", "score_data", "theta_data", "time_data"]

_MAX_FEATURES = 20


def _histogram(found: OnOffHistogram) -> dict[str, Any]:
    """Return a histogram; ``scale`` is the factor of Off, which is 1 if each event was scaled by its own alpha."""
    off, scale = (found.off, found.alpha) if found.alpha is not None else (found.background.round(2), 1)
    return {"edges": found.edges.tolist(), "on": found.on.tolist(), "off": off.tolist(), "scale": scale}


def likelihood_data(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
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


def light_data(detection: Detection, missing: list[str], max_rows: int) -> dict[str, Any] | None:
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


def theta_data(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    """Return the histogram of squared angles."""
    if detection.theta is None or detection.theta_squared_cut is None:
        missing.append("Angles between events and regions are not known, so there is no θ² plot.")
        return None
    if detection.nearby is None or detection.nearby.theta is None:
        missing.append("Events around the regions are not known, so the θ² plot ends at the cut.")
    found = theta_squared_histogram(detection)
    return {**_histogram(found._replace(edges=found.edges.round(9))), "cut": detection.theta_squared_cut}


def score_data(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    """Return the histogram of scores."""
    if not has_score(detection).any():
        missing.append("No event has a score, so there is no threshold to explore and no score histogram.")
        return None
    return _histogram(score_histogram(detection))


def time_data(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    """Return the significance up to each moment."""
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


def importance_data(detection: Detection, missing: list[str]) -> dict[str, Any] | None:
    """Return the largest importances of features."""
    if detection.importances is None:
        missing.append("This model has no importances of features.")
        return None
    found = largest_importances(detection, _MAX_FEATURES)
    return {**found._asdict(), "values": found.values.round(5).tolist()}


def null_data(detection: Detection, null_test: NullTest | None, missing: list[str]) -> dict[str, Any] | None:
    """Return the significance in each Off region."""
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
