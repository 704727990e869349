"""A trained model on files: its columns added to copies, chunk by chunk, in constant memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.errors import EventFileError, prefix_errors
from excess._core.files import prepare_folder
from excess._core.interrupts import defer_interrupts
from excess._core.progress import progress_bar
from excess._core.threads import n_threads, read_ahead
from excess.analysis.judging import judge_events
from excess.analysis.output_columns import PREFIX, OutputColumns
from excess.analysis.output_paths import check_outputs
from excess.analysis.trained_model import TrainedModel, load_model
from excess.distributed.fit import open_executor
from excess.events import AnalysisConfig, EventWriter, Features, FileInfo, describe, iter_events, to_features

__all__ = ["Applied", "apply"]

_MAX_WAITING = 16
"""Chunks of three columns that may wait while the file is copied."""
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
        Events that pass the quality cuts and have all features; the others have NaN.
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
    prefix: str = PREFIX,
    chunk_rows: int = 200_000,
    executor: Any = None,
    n_jobs: int = -1,
    overwrite: bool = False,
    verbose: bool = False,
) -> dict[Path, Applied]:
    """Write copies of event files with score, probability of signal and selection by a model.

    The new columns are ``excess_score``, the score that the threshold cuts; ``excess_signal_probability``, which
    `predict_signal_proba` returns; and ``excess_selected``. All columns of the file stay as they are: where a file has
    a column of such a name, all is refused before anything is written. A file in FACT's layout is copied as it is,
    tables of runs included. Events that fail the quality cuts, or that miss a feature, stay, with NaN and not selected.
    Nothing is left of a copy if anything fails.

    Parameters
    ----------
    model : TrainedModel or path
        From `train`, or its file.
    files : path or sequence of paths
        Event files.
    output : path
        File to write; a folder, where there are several files. Suffixes decide the format.
    prefix : str, default="excess"
        What the names of the new columns begin with, so that several models can be applied one after the other.
    chunk_rows : int, default=200_000
        Events in memory at a time.
    executor : None, dask.distributed.Client, str or Executor, default=None
        As for `fit_forest`: the workers of a Dask cluster take one file each, which they must see under these names.
    n_jobs : int, default=-1
        Cores, for a model that is read from its file.
    overwrite : bool, default=False
        Replace files that are there. Without it, only files with columns of these names are replaced, which an earlier
        call has written. The model and the event files are never replaced.
    verbose : bool, default=False
        Show progress bars.

    Returns
    -------
    dict of Path to Applied
        What was done to each file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.analysis import apply, observe, train
    >>> from excess.events import read_events, write_events
    >>> from excess.observation import simulate_observation
    >>> trained = train(observe(simulate_observation(60_000, 400, random_state=0)), "li-ma-tree")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_events(simulate_observation(1_000, 20, random_state=1), Path(folder, "tonight.csv"))
    ...     done = apply(trained, Path(folder, "tonight.csv"), Path(folder, "scored.csv"))
    ...     scored = read_events(Path(folder, "scored.csv"))
    >>> list(scored)[-3:]
    ['excess_score', 'excess_signal_probability', 'excess_selected']
    """
    columns = OutputColumns.of(prefix)
    trained = model if isinstance(model, TrainedModel) else load_model(model, n_jobs=n_jobs)
    paths = [Path(path) for path in ([files] if isinstance(files, (str, PathLike)) else files)]
    described = {path: describe(path) for path in paths}
    for found in described.values():
        _refuse_present(columns, found)
    targets = _targets(paths, Path(output))
    inputs = paths if trained.path is None else [*paths, trained.path]
    check_outputs(targets.values(), inputs, overwrite=overwrite, is_own=partial(_was_applied, columns))
    for target in targets.values():
        prepare_folder(target.parent)
    jobs = [_Job(path, target, _adds(described[path], target), columns, chunk_rows) for path, target in targets.items()]
    if executor is not None:
        return _apply_on_workers(trained, jobs, executor, verbose)
    done = {}
    for job in jobs:
        n_events = described[job.path].n_events
        with progress_bar(f"Applying to {job.path.name}", n_events, shown=verbose) as tick:
            done[job.path] = _apply_to_file(trained.model, trained.config, job, tick)
    return done


@dataclass(frozen=True)
class _Job:
    """What is to be done to a file; ``adds`` says whether columns are added to a copy, or all columns written anew."""

    path: Path
    target: Path
    adds: bool
    columns: OutputColumns
    chunk_rows: int


def _refuse_present(columns: OutputColumns, found: FileInfo) -> None:
    """Raise EventFileError if a file has a column that would be written."""
    for name in columns:
        if name in found.columns:
            raise EventFileError(
                f"{found.path}: has a column {name!r} already, and no column is replaced; give the new ones another "
                "name by prefix (--prefix on the command line)"
            )


def _adds(found: FileInfo, target: Path) -> bool:
    # FACT's layout can take further columns, so that a copy of the file keeps all else that it holds
    return target.suffix.lower() in (".hdf5", ".h5") and found.format == "FACT HDF5"


def _targets(files: list[Path], output: Path) -> dict[Path, Path]:
    """Return which file goes where."""
    if len(files) == 1 and not output.is_dir():
        return {files[0]: output}
    for name, times in Counter(path.name for path in files).items():
        if times > 1:
            raise ValueError(
                f"{times} files are called {name}, so that one copy would replace the other; apply the model to "
                "one after the other, with an output each"
            )
    return {path: output / path.name for path in files}


def _was_applied(columns: OutputColumns, path: Path) -> bool:
    """Say whether a file has the columns that are to be written, so that it is from an earlier call."""
    try:
        return set(columns) <= set(describe(path).columns)
    except ValueError:
        return False


def _apply_on_workers(trained: TrainedModel, jobs: list[_Job], executor: Any, verbose: bool) -> dict[Path, Applied]:
    model, config = trained.model, trained.config
    # workers have folders of their own
    arguments = [(config, replace(job, path=job.path.resolve(), target=job.target.resolve())) for job in jobs]
    bar = progress_bar("Applying to files", len(jobs), shown=verbose)
    with open_executor(executor, n_threads(getattr(model, "n_jobs", None)), _START_AGAIN) as workers, bar as tick:
        if workers.remote and "n_jobs" in model.get_params():  # the threads of workers are for other files
            model = copy(model).set_params(n_jobs=1)
        done = workers.run(_apply_to_file, arguments, tick, shared=(model,))
    return {job.path: applied for job, applied in zip(jobs, done, strict=True)}


def _apply_to_file(
    model: Any, config: AnalysisConfig, job: _Job, tick: Callable[[int], None] = lambda steps: None
) -> Applied:
    """Write the copy of one file; ``tick`` is called with the number of events of each finished chunk."""
    columns = config.columns_needed()
    if not job.adds:  # what is computed while a file is read does not belong into its copy
        columns = tuple(dict.fromkeys((*describe(job.path).stored_columns, *columns)))
    n_waiting = _MAX_WAITING if job.adds else 1
    n_events = n_scored = n_selected = 0
    # a thread each for reading and writing, because files take about as long as scores
    with (
        EventWriter(job.target, copy_of=job.path if job.adds else None) as writer,
        closing(_prepared(job.path, config, columns, job.chunk_rows)) as prepared,
        ThreadPoolExecutor(1) as writing,
    ):
        # the compiled predictor is loaded while the first events are read; an interrupt in there would be swallowed,
        # and one while a thread starts would leave it running
        nothing = np.zeros((2, len(config.features)), order="F")
        with defer_interrupts():
            writing.submit(int)
            chunks = read_ahead(prepared)
            _judge(model, Features(nothing, np.ones(2, dtype=np.bool_), config.features), job.columns)
        waiting: deque[Future[None]] = deque()
        for table, features in chunks:
            found = _judge(model, features, job.columns)
            while len(waiting) >= n_waiting:
                waiting.popleft().result()
            new = pd.DataFrame(found) if job.adds else table.assign(**found)
            waiting.append(writing.submit(writer.append, new))
            n_events += len(table)
            n_scored += int(np.count_nonzero(features.valid))
            n_selected += int(np.count_nonzero(found[job.columns.selected]))
            tick(len(table))
        for written in waiting:
            written.result()
    return Applied(job.target, n_events, n_scored, n_selected)


def _prepared(
    path: Path, config: AnalysisConfig, columns: tuple[str, ...], chunk_rows: int
) -> Generator[tuple[pd.DataFrame, Features]]:
    """Yield chunks of events with their features."""
    for table in iter_events(path, columns, chunk_rows=chunk_rows):
        with prefix_errors(str(path)):
            features = to_features(table, config)
        yield table, features


def _judge(model: Any, features: Features, columns: OutputColumns) -> dict[str, NDArray[Any]]:
    """Return the new columns: NaN, and not selected, for events that are not valid."""
    return dict(zip(columns, judge_events(model, features), strict=True))
