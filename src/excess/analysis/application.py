"""A fitted model on files: scores and selection added to copies, chunk by chunk, in constant memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._core.checks import FloatArray
from excess._core.errors import naming
from excess._core.interrupts import interrupted_later
from excess.events import AnalysisConfig, EventWriter, Features, describe, iter_events, to_features

__all__ = ["Applied", "apply_model"]

SCORE_COLUMN, SELECTED_COLUMN = "gamma_prediction", "selected"
_MAX_WAITING = 16
"""Chunks of two columns that may wait while the file is copied."""


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

    def __str__(self) -> str:
        """Say it."""
        return f"{self.n_events:,} events, {self.n_scored:,} scored, {self.n_selected:,} selected"


def apply_model(
    model: Any,
    config: AnalysisConfig,
    path: Path,
    out: Path,
    *,
    chunk_rows: int = 200_000,
    tick: Callable[[int], None] = lambda steps: None,
) -> Applied:
    """Write a copy of a file with the columns ``gamma_prediction`` and ``selected``.

    Columns of these names that the file has already are replaced. A file in FACT's layout is copied as it is, tables of
    runs included. Events that fail the quality cuts, or that miss a
    feature, stay, with a score of NaN and not selected.

    Parameters
    ----------
    model : fitted classifier
        With ``predict_proba`` and ``threshold_``.
    config : AnalysisConfig
        Features and cuts, as the model was trained with.
    path, out : Path
        File to read, and file to write; its suffix decides the format. Nothing is left of it if anything fails.
    chunk_rows : int, default=200_000
        Events in memory at a time.
    tick : callable, optional
        Called with the number of events of each finished chunk.

    Returns
    -------
    Applied
        How many events were read, scored and selected.
    """
    # FACT's layout can take further columns, so that a copy of the file keeps all else that it holds
    adds = out.suffix.lower() in (".hdf5", ".h5") and describe(path).format == "FACT HDF5"
    columns = list(config.columns_needed()) if adds else None
    n_waiting = _MAX_WAITING if adds else 1
    n_events = n_scored = n_selected = 0
    # a thread each for reading and writing, because files take about as long as scores
    with (
        EventWriter(out, copy_of=path if adds else None) as writer,
        closing(_prepared(path, config, columns, chunk_rows)) as chunks,
        ThreadPoolExecutor(1) as reading,
        ThreadPoolExecutor(1) as writing,
    ):
        # the compiled predictor is loaded while the first events are read; an interrupt in there would be swallowed,
        # and one while a thread starts would leave it running
        nothing = np.zeros((2, len(config.features)), order="F")
        with interrupted_later():
            writing.submit(int)
            coming = reading.submit(next, chunks, None)
            _score(model, Features(nothing, np.ones(2, dtype=np.bool_), config.features))
        waiting: deque[Future[None]] = deque()
        while (chunk := coming.result()) is not None:
            coming = reading.submit(next, chunks, None)
            table, features = chunk
            score = _score(model, features)
            selected = score > model.threshold_
            found = {SCORE_COLUMN: score, SELECTED_COLUMN: selected}
            while len(waiting) >= n_waiting:
                waiting.popleft().result()
            waiting.append(writing.submit(writer.append, pd.DataFrame(found) if adds else table.assign(**found)))
            n_events += len(table)
            n_scored += int(np.count_nonzero(features.valid))
            n_selected += int(np.count_nonzero(selected))
            tick(len(table))
        for written in waiting:
            written.result()
    return Applied(n_events, n_scored, n_selected)


def _prepared(
    path: Path, config: AnalysisConfig, columns: list[str] | None, chunk_rows: int
) -> Generator[tuple[pd.DataFrame, Features]]:
    """Give chunks of events with their features."""
    for table in iter_events(path, columns, chunk_rows=chunk_rows):
        with naming(str(path)):
            features = to_features(table, config)
        yield table, features


def _score(model: Any, features: Features) -> FloatArray:
    """Return the scores of valid events, NaN for the others."""
    score = np.full(len(features.X), np.nan)
    if features.valid.any():
        X = features.X if features.valid.all() else features.X[features.valid]
        # by name, so that the model can tell whether these are its features
        score[features.valid] = model.predict_proba(pd.DataFrame(X, columns=list(features.names), copy=False))[:, 1]
    return score
