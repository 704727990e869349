"""Annotations of a detection: what plots want to know beside it, checked against its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from excess._core.checks import FloatArray, as_counts, as_scalar, check_same_length
from excess.validation.detection_parts import Nearby
from excess.validation.feature_histograms import FeatureBinning, FeatureHistogram
from excess.validation.judged import JudgedDetection, alphas_of

__all__ = ["AnnotatedDetection", "check_annotations"]

# A protocol, because a detection annotates itself: the other way round would be an import cycle.


class AnnotatedDetection(JudgedDetection, Protocol):
    """A `Detection`, whose documentation says what each attribute is."""

    @property
    def nearby(self) -> Nearby | None: ...  # noqa: D102
    @property
    def importances(self) -> FloatArray | None: ...  # noqa: D102
    @property
    def feature_names(self) -> tuple[str, ...] | None: ...  # noqa: D102


def check_annotations(
    detection: AnnotatedDetection,
    *,
    theta: ArrayLike | None,
    theta_squared_cut: float | None,
    nearby_theta: ArrayLike | None,
    time: ArrayLike | None,
    feature_names: Sequence[str] | None,
    features: FeatureBinning | ArrayLike | None,
    nights: ArrayLike | None,
) -> dict[str, Any]:
    """Return the attributes that a detection gets from the arguments of `Detection.annotated` which are given."""
    found: dict[str, Any] = {}
    n_events = len(detection.on)
    if theta is not None:
        found["theta"] = _as_theta("theta", theta, n_events)
    if theta_squared_cut is not None:
        found["theta_squared_cut"] = _as_theta_squared_cut(theta_squared_cut)
    if nearby_theta is not None:
        found["nearby"] = _place_nearby(detection.nearby, nearby_theta, found.get("theta", detection.theta))
    if time is not None:
        found["time"] = np.asarray(time, dtype=np.float64)
        check_same_length(on=detection.on, time=found["time"])
    if feature_names is not None:
        found["feature_names"] = _as_feature_names(feature_names, detection.importances)
    if features is not None:
        binning = _as_binning(features, found.get("feature_names", detection.feature_names), n_events)
        found["features"] = _histograms(detection, binning)
    if nights is not None:
        found["nights"] = np.asarray(nights)
        check_same_length(on=detection.on, nights=found["nights"])
    return found


def _as_theta(name: str, theta: ArrayLike, n_events: int) -> FloatArray:
    angles = np.asarray(theta, dtype=np.float64)
    if angles.ndim != 2 or len(angles) != n_events or angles.shape[1] < 2:
        raise ValueError(f"{name} must have {n_events} rows and one column per region, got shape {angles.shape}")
    return angles


def _as_theta_squared_cut(given: float) -> float:
    cut = as_scalar("theta_squared_cut", as_counts("theta_squared_cut", given))
    if cut == 0:
        raise ValueError("theta_squared_cut must be positive, got 0")
    return cut


def _place_nearby(nearby: Nearby | None, theta: ArrayLike, regions: FloatArray | None) -> Nearby:
    """Return nearby events with their angles to the regions, of which the other events have angles, too."""
    if nearby is None:
        raise ValueError("nearby_theta must not be given without nearby events; pass them to cross_val_detect")
    angles = _as_theta("nearby_theta", theta, len(nearby.score))
    if regions is not None and regions.shape[1] != angles.shape[1]:
        raise ValueError(
            f"nearby_theta must have one column per region, {regions.shape[1]} as theta, got {angles.shape[1]}"
        )
    return nearby._replace(theta=angles)


def _as_feature_names(given: Sequence[str], importances: FloatArray | None) -> tuple[str, ...]:
    names = tuple(map(str, given))
    if importances is not None and len(names) != len(importances):
        raise ValueError(f"feature_names must name {len(importances)} features, got {len(names)}")
    return names


def _as_binning(features: Any, names: tuple[str, ...] | None, n_events: int) -> FeatureBinning:
    """Return the bin of every event in every feature."""
    if not isinstance(features, FeatureBinning):
        n_features = features.shape[1] if hasattr(features, "shape") else len(features[0])
        features = FeatureBinning(features, names or tuple(f"x{number}" for number in range(n_features)))
    if features.n_events != n_events:
        raise ValueError(f"features must have {n_events} rows, got {features.n_events}")
    return features


def _histograms(detection: AnnotatedDetection, binning: FeatureBinning) -> tuple[FeatureHistogram, ...]:
    """Return On against scaled Off in each feature."""
    return binning.histograms(
        detection.on, detection.held_out, detection.selected, alphas_of(detection), detection.importances
    )
