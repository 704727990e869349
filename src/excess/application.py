"""A fitted model on files: scores and selection added to copies, chunk by chunk, in constant memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from excess.events import AnalysisConfig, EventWriter, iter_events, to_features

__all__ = ["Applied", "apply_model"]

SCORE_COLUMN, SELECTED_COLUMN = "gamma_prediction", "selected"


@dataclass(frozen=True)
class Applied:
    """What a model did to a file.

    Attributes
    ----------
    n_events : int
        Events that were read and written.
    n_scored : int
        Events that pass the quality cuts and have all features; the others have a score of NaN.
    n_selected : int
        Events whose score exceeds the threshold.
    """

    n_events: int
    n_scored: int
    n_selected: int


def apply_model(
    model: Any,
    config: AnalysisConfig,
    path: Path,
    out: Path,
    *,
    chunk_rows: int = 100_000,
    tick: Callable[[int], None] = lambda steps: None,
) -> Applied:
    """Write a copy of a file with the columns ``gamma_prediction`` and ``selected``.

    Columns of these names that the file has already are replaced. Events that fail the quality cuts, or that miss a
    feature, stay, with a score of NaN and not selected.

    Parameters
    ----------
    model : fitted classifier
        With ``predict_proba`` and ``threshold_``.
    config : AnalysisConfig
        Features and cuts, as the model was trained with.
    path, out : Path
        File to read, and file to write; its suffix decides the format. Nothing is left of it if anything fails.
    chunk_rows : int, default=100_000
        Events in memory at a time.
    tick : callable, optional
        Called with the number of events of each finished chunk.

    Returns
    -------
    Applied
        How many events were read, scored and selected.
    """
    import pandas as pd

    n_events = n_scored = n_selected = 0
    with EventWriter(out) as writer:
        for table in iter_events(path, chunk_rows=chunk_rows):
            features = to_features(table, config)
            score = np.full(len(table), np.nan)
            everything = features.valid.all()
            if features.valid.any():
                X = features.X if everything else features.X[features.valid]
                # by name, so that the model can tell whether these are its features
                score[features.valid] = model.predict_proba(pd.DataFrame(X, columns=list(features.names)))[:, 1]
            selected = score > model.threshold_
            writer.append(table.assign(**{SCORE_COLUMN: score, SELECTED_COLUMN: selected}))
            n_events += len(table)
            n_scored += int(np.count_nonzero(features.valid))
            n_selected += int(np.count_nonzero(selected))
            tick(len(table))
    return Applied(n_events, n_scored, n_selected)
