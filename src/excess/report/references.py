"""Content of the page about references: how far they are trusted, and where the simulation differs from the events."""

from __future__ import annotations

from typing import Any

import numpy as np

from excess.estimators.hybrid import LABELS, LABELS_AND_REFERENCES
from excess.validation.detection import Detection
from excess.validation.feature_comparison import FeatureComparison
from excess.validation.simulation_agreement import SimulationAgreement

__all__ = ["MAX_PANELS", "simulation_content", "trust_rows"]

MAX_PANELS = 8
"""Largest number of features of a sample that are drawn; the table has all of them."""
_KINDS = {
    LABELS: "learned from the labels alone",
    LABELS_AND_REFERENCES: "learned from the labels, with the references as further features",
}
_SAMPLES = {
    "signal": ("Simulated gammas", "gammas", "excess, by P(signal)", "simulated gammas, by P(signal)"),
    "background": ("Simulated protons", "protons", "Off", "simulated protons"),
}
"""Title of a sample, what is simulated, and the names of observed and of simulated events in plots."""


def trust_rows(detection: Detection) -> list[dict[str, Any]]:
    """Return one row of texts for each member of a hybrid, with its trust in percent for a bar; none for others."""
    return [
        {
            "name": name,
            "kind": _KINDS.get(name, "reference"),
            "mean": f"{trust.mean:.2f}",
            "range": f"{trust.low:.2f} to {trust.high:.2f}" if len(detection.folds) > 1 else "",
            "percent": f"{100 * trust.mean:.1f}",
        }
        for name, trust in detection.trust.items()
    ]


def simulation_content(agreement: SimulationAgreement) -> dict[str, Any]:
    """Return the content of the simulation check: texts for the template, and ``panels``, for JSON, for the plots."""
    samples: list[dict[str, Any]] = []
    panels: list[dict[str, Any]] = []
    for sample, (title, what, observed, simulated) in _SAMPLES.items():
        own = agreement.of_sample(sample)
        if not own:
            continue
        rows = [_row(one) for one in own]
        drawn = own[:MAX_PANELS]
        n_simulated = agreement.n_simulated_signal if sample == "signal" else agreement.n_simulated_background
        samples.append(
            {
                "sample": sample,
                "title": title,
                "what": what,
                "n_simulated": f"{n_simulated:,}",
                "rows": rows,
                "panels": [{**row, "number": len(panels) + i} for i, row in enumerate(rows[:MAX_PANELS])],
            }
        )
        panels += [_panel(one, observed, simulated) for one in drawn]
    return {
        "verdict": agreement.verdict,
        "n_flagged": sum(one.flagged for one in agreement.comparisons),
        "confidence": f"{100 * agreement.confidence:g} %",
        "excess": f"{agreement.excess:,.1f} ± {agreement.excess_error:,.1f}",
        "samples": samples,
        "panels": panels,
    }


def _row(one: FeatureComparison) -> dict[str, Any]:
    known = np.isfinite([one.shift, one.shift_error]).all()
    return {
        "feature": one.feature,
        "shift": f"{one.shift:+.2f} ± {one.shift_error:.2f}".replace("-", "−") if known else "",
        "p_value": _p_text(one.p_value),
        "adjusted": _p_text(one.adjusted_p_value),
        "flagged": one.flagged,
    }


def _p_text(value: float) -> str:
    return f"{value:.2g}" if value > 1e-300 else "below 1e-300"


def _panel(one: FeatureComparison, observed: str, simulated: str) -> dict[str, Any]:
    numbers = {
        name: getattr(one, name).round(5).tolist()
        for name in ("observed", "observed_error", "simulated", "simulated_error")
    }
    edges = [float(f"{edge:.6g}") for edge in one.edges]
    labels = {"observed_name": observed, "simulated_name": simulated}
    return {
        "sample": one.sample,
        "feature": one.feature,
        "edges": edges,
        "log": bool(one.logarithmic),
        **numbers,
        **labels,
    }
