"""A trained model on files: scores and selection added to copies, chunk by chunk, in constant memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._core.checks import FloatArray
from excess._core.errors import prefix_errors
from excess._core.files import prepare_folder
from excess._core.interrupts import defer_interrupts
from excess._core.progress import progress_bar
from excess._core.threads import n_threads, read_ahead
from excess.analysis.training import TrainedModel, load_model
from excess.distributed.fit import open_executor
from excess.events import AnalysisConfig, EventWriter, Features, describe, iter_events, to_features

__all__ = ["Applied", "apply"]

SCORE_COLUMN, SELECTED_COLUMN = "gamma_prediction", "selected"
_MAX_WAITING = 16
"""Chunks of two columns that may wait while the file is copied."""
_START_AGAIN = "files that are there are whole, the others were not written; apply the model again"


@dataclass(frozen=True)
class Applied:
    """What a model did to a file.

    Attributes
    ----------
    path : Path
        The copy that was written.
    n_events : int
        Events that were read and written.
    n_scored : int
        Events that pass the quality cuts and have all features; the others have a score of NaN.
    n_selected : int
        Events whose score exceeds the threshold.
    """

    path: Path
    n_events: int
    n_scored: int
    n_selected: int

    def __str__(self) -> str:
        """Say it."""
        return f"{self.path}: {self.n_events:,} events, {self.n_scored:,} scored, {self.n_selected:,} selected"


def apply(
    model: TrainedModel | str | PathLike[str],
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    output: str | PathLike[str],
    *,
    chunk_rows: int = 200_000,
    executor: Any = None,
    n_jobs: int = -1,
    verbose: bool = False,
) -> dict[Path, Applied]:
    """Write copies of event files with the columns ``gamma_prediction`` and ``selected``.

    Columns of these names that a file has already are replaced. A file in FACT's layout is copied as it is, tables of
    runs included. Events that fail the quality cuts, or that miss a feature, stay, with a score of NaN and not
    selected. Nothing is left of a copy if anything fails.

    Parameters
    ----------
    model : TrainedModel or path
        From `train`, or its file.
    files : path or sequence of paths
        Event files.
    output : path
        File to write; a folder, where there are several files. Suffixes decide the format.
    chunk_rows : int, default=200_000
        Events in memory at a time.
    executor : None, dask.distributed.Client, str or Executor, default=None
        As for `fit_forest`: the workers of a Dask cluster take one file each, which they must see under these names.
    n_jobs : int, default=-1
        Cores, for a model that is read from its file.
    verbose : bool, default=False
        Show progress bars.

    Returns
    -------
    dict of Path to Applied
        What was done to each file.
    """
    trained = model if isinstance(model, TrainedModel) else load_model(model, n_jobs=n_jobs)
    paths = [Path(path) for path in ([files] if isinstance(files, (str, PathLike)) else files)]
    targets = _targets(paths, Path(output))
    if executor is not None:
        return _apply_on_workers(trained, targets, chunk_rows, executor, verbose)
    done = {}
    for path, target in targets.items():
        with progress_bar(f"Applying to {path.name}", describe(path).n_events, shown=verbose) as tick:
            done[path] = apply_to_file(trained.model, trained.config, path, target, chunk_rows=chunk_rows, tick=tick)
    return done


def _targets(files: list[Path], output: Path) -> dict[Path, Path]:
    """Return which file goes where."""
    if len(files) == 1 and not output.is_dir():
        prepare_folder(output.parent)
        targets = {files[0]: output}
    else:
        for name, times in Counter(path.name for path in files).items():
            if times > 1:
                raise ValueError(
                    f"{times} files are called {name}, so that one copy would replace the other; apply the model to "
                    "one after the other, with an output each"
                )
        folder = prepare_folder(output)
        targets = {path: folder / path.name for path in files}
    for path, target in targets.items():
        if target.exists() and path.exists() and path.samefile(target):
            raise ValueError(f"{path} would be written onto itself; give another output")
    return targets


def _apply_on_workers(
    trained: TrainedModel, targets: dict[Path, Path], chunk_rows: int, executor: Any, verbose: bool
) -> dict[Path, Applied]:
    for path in targets:
        if not path.exists():
            raise FileNotFoundError(f"{path}: does not exist")
    model, config = trained.model, trained.config
    # workers have folders of their own
    arguments = [(config, path.resolve(), target.resolve(), chunk_rows) for path, target in targets.items()]
    bar = progress_bar("Applying to files", len(targets), shown=verbose)
    with open_executor(executor, n_threads(getattr(model, "n_jobs", None)), _START_AGAIN) as workers, bar as tick:
        if workers.remote and "n_jobs" in model.get_params():  # the threads of workers are for other files
            model = copy(model).set_params(n_jobs=1)
        done = workers.run(_apply_chunks, arguments, tick, shared=(model,))
    return dict(zip(targets, done, strict=True))


def _apply_chunks(model: Any, config: AnalysisConfig, path: Path, target: Path, chunk_rows: int) -> Applied:
    return apply_to_file(model, config, path, target, chunk_rows=chunk_rows)


def apply_to_file(
    model: Any,
    config: AnalysisConfig,
    path: Path,
    target: Path,
    *,
    chunk_rows: int = 200_000,
    tick: Callable[[int], None] = lambda steps: None,
) -> Applied:
    """Write the copy of one file; ``tick`` is called with the number of events of each finished chunk."""
    # FACT's layout can take further columns, so that a copy of the file keeps all else that it holds
    adds = target.suffix.lower() in (".hdf5", ".h5") and describe(path).format == "FACT HDF5"
    columns = list(config.columns_needed()) if adds else None
    n_waiting = _MAX_WAITING if adds else 1
    n_events = n_scored = n_selected = 0
    # a thread each for reading and writing, because files take about as long as scores
    with (
        EventWriter(target, copy_of=path if adds else None) as writer,
        closing(_prepared(path, config, columns, chunk_rows)) as prepared,
        ThreadPoolExecutor(1) as writing,
    ):
        # the compiled predictor is loaded while the first events are read; an interrupt in there would be swallowed,
        # and one while a thread starts would leave it running
        nothing = np.zeros((2, len(config.features)), order="F")
        with defer_interrupts():
            writing.submit(int)
            chunks = read_ahead(prepared)
            _score(model, Features(nothing, np.ones(2, dtype=np.bool_), config.features))
        waiting: deque[Future[None]] = deque()
        for table, features in chunks:
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
    return Applied(target, n_events, n_scored, n_selected)


def _prepared(
    path: Path, config: AnalysisConfig, columns: list[str] | None, chunk_rows: int
) -> Generator[tuple[pd.DataFrame, Features]]:
    """Yield chunks of events with their features."""
    for table in iter_events(path, columns, chunk_rows=chunk_rows):
        with prefix_errors(str(path)):
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
