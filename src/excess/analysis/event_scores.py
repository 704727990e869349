"""What a model says about events: score, probability of signal, and whether they are selected."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.holdout import score_events
from excess.events import Features

__all__ = ["EventScores", "exceeds_threshold", "score_features", "score_showers"]


class EventScores(NamedTuple):
    """What a model says about the events of a table.

    Attributes
    ----------
    score : ndarray of shape (n_events,)
        NaN for events that fail the quality cuts or miss a feature.
    signal_probability : ndarray of shape (n_events,)
        NaN for the same events.
    selected : ndarray of bool of shape (n_events,)
        Whether the score exceeds the threshold; False for the same events.
    """

    score: FloatArray
    signal_probability: FloatArray
    selected: BoolArray


def score_features(model: Any, features: Features) -> EventScores:
    """Score events, and cut by the threshold of a model.

    Parameters
    ----------
    model : On/Off classifier
        Fitted.
    features : Features
        Of the events, with the names that the model was trained on.
    """
    score, probability = np.full((2, len(features.X)), np.nan)
    if features.valid.any():
        X = features.X if features.valid.all() else features.X[features.valid]
        # by name, so that the model can tell whether these are its features
        events = pd.DataFrame(X, columns=list(features.names), copy=False)
        found = score_events(model, events)
        score[features.valid] = found
        probability[features.valid] = model.calibration_of(events).signal_probability(found)
    return EventScores(score, probability, exceeds_threshold(model, score))


def score_showers(model: Any, images: EventScores, shower: NDArray[np.integer], n_showers: int) -> EventScores:
    """Return what a model of images says about showers: the mean over the images of each that have a score.

    Parameters
    ----------
    model : On/Off classifier
        Fitted.
    images : EventScores
        What it says about images.
    shower : ndarray of int of shape (n_images,)
        The number of the shower of each image.
    n_showers : int
        Number of showers.

    Returns
    -------
    EventScores
        Mean score and mean probability of signal of each shower, which is selected if that score exceeds the threshold;
        NaN, and not selected, where no image has a score.
    """
    used = np.isfinite(images.score)
    n_used = np.bincount(shower[used], minlength=n_showers)
    score, probability = (
        np.divide(
            np.bincount(shower[used], weights=values[used], minlength=n_showers),
            n_used,
            out=np.full(n_showers, np.nan),
            where=n_used > 0,
        )
        for values in (images.score, images.signal_probability)
    )
    return EventScores(score, probability, exceeds_threshold(model, score))


def exceeds_threshold(model: Any, score: FloatArray) -> BoolArray:
    """Say which scores a model selects: the one place where it decides about new events."""
    return np.asarray(score > model.threshold_)
