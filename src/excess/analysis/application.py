"""A trained model on files: its columns added to copies, chunk by chunk, in constant memory."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
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

from excess._core.errors import EventFileError, MismatchError, prefix_errors
from excess._core.files import prepare_folder
from excess._core.interrupts import defer_interrupts
from excess._core.progress import progress_bar
from excess._core.threads import n_threads, read_ahead
from excess._core.version import __version__
from excess.analysis.event_scores import EventScores, score_features, score_showers
from excess.analysis.output_columns import PREFIX, OutputColumns
from excess.analysis.output_paths import check_outputs
from excess.analysis.trained_model import TrainedModel, load_model
from excess.distributed.fit import open_executor
from excess.events import (
    AnalysisConfig,
    EventWriter,
    Features,
    FileCopy,
    FileInfo,
    copy_format,
    describe,
    iter_events,
    to_features,
)
from excess.events.run_index import RunIndex, find_run_index, is_copied_index, is_same_content

__all__ = ["Applied", "apply"]

logger = logging.getLogger("excess.analysis")

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
        Events that were read; all of them are written, unless only selected ones are asked for.
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
    selected_only: bool = False,
    verbose: bool = False,
) -> dict[Path, Applied]:
    """Write copies of event files with score, probability of signal and selection by a model.

    The new columns are ``excess_score``, the score that the threshold cuts; ``excess_signal_probability``, which
    `predict_signal_proba` returns; and ``excess_selected``. All columns of the file stay as they are: where a file has
    a column of such a name, all is refused before anything is written. FITS and HDF5 files are copied as they are, with
    all other tables: FITS tables of events get the columns in upper case, FACT's and lstchain's tables as they are
    called, and ctapipe's files a DL2 table of their own. There, and in lstchain's table, images of a shower have the
    mean score of these images. Events that fail the quality cuts, or that miss a feature,
    stay, with NaN and not selected. Nothing is left of a copy if anything fails.

    Parameters
    ----------
    model : TrainedModel or path
        From `train`, or its file.
    files : path or sequence of paths
        Event files.
    output : path
        File to write; a folder, where there are several files. Its format is that of the file that is read, unless the
        suffix is that of another one: ``.hdf5``, ``.parquet`` or ``.csv``.
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
    selected_only : bool, default=False
        Leave events out that are not selected; for FITS, Parquet and CSV files.
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
    into_folder = Path(output) not in targets.values()
    index = _find_index(described, targets, overwrite) if into_folder else None
    for target in targets.values():
        prepare_folder(target.parent)
    _warn_of_seen(trained, paths)
    history = _history(trained, columns)
    jobs = [
        _make_job(described[path], target, columns, chunk_rows, history, selected_only, trained.config)
        for path, target in targets.items()
    ]
    done = {}
    if executor is not None:
        done = _apply_on_workers(trained, jobs, executor, verbose)
    else:
        title = f"Applying to {jobs[0].path.name}" if len(jobs) == 1 else f"Applying to {len(jobs)} files"
        n_events = sum(found.n_events for found in described.values())
        with progress_bar(title, n_events, shown=verbose) as tick:
            for job in jobs:
                done[job.path] = _apply_to_file(trained.model, trained.config, job, tick)
    if index is not None:
        index.write(jobs[0].target.parent, targets)
    return done


@dataclass(frozen=True)
class _Job:
    """What is to be done to a file.

    ``copy`` says how columns are added to a copy; where it is None, the ``stored`` columns are written anew, in
    ``format``.
    """

    path: Path
    target: Path
    columns: OutputColumns
    chunk_rows: int
    copy: FileCopy | None
    keys: tuple[str, ...]
    stored: tuple[str, ...]
    format: str | None
    selected_only: bool

    def resolved(self) -> _Job:
        """Return the same with full paths."""
        path, target = self.path.resolve(), self.target.resolve()
        return replace(self, path=path, target=target, copy=self.copy and replace(self.copy, source=path))

    def open(self) -> EventWriter:
        """Return the file to write."""
        return EventWriter(self.target, copy_of=self.copy, format=self.format)

    def columns_to_read(self, config: AnalysisConfig) -> tuple[str, ...]:
        """Return the columns that are needed of the file."""
        others = self.keys if self.copy is not None else self.stored
        return tuple(dict.fromkeys((*others, *config.columns_needed())))

    def of_showers(self, model: Any, table: pd.DataFrame, judged: EventScores) -> tuple[pd.DataFrame, EventScores]:
        """Return a chunk with a row for each shower, where its rows are images and its copy has scores of showers."""
        if not self.keys or not (again := table.duplicated(list(self.keys))).any():
            return table, judged
        shower = table.groupby(list(self.keys), sort=False).ngroup().to_numpy()
        return table[~again], score_showers(model, judged, shower, int(np.count_nonzero(~again)))

    def rows_to_write(self, table: pd.DataFrame, judged: EventScores) -> pd.DataFrame:
        """Return what a chunk of the file adds to what is written."""
        found = dict(zip(self.columns, judged, strict=True))
        if self.copy is not None:
            return table[list(self.keys)].assign(**found) if self.keys else pd.DataFrame(found)
        # what is computed while a file is read does not belong into its copy
        # put together at once: pandas warns where columns are added to a table of many, one after the other
        new = pd.concat([table[list(self.stored)], pd.DataFrame(found, index=table.index)], axis=1)
        return new[found[self.columns.selected]] if self.selected_only else new


def _make_job(
    found: FileInfo,
    target: Path,
    columns: OutputColumns,
    chunk_rows: int,
    history: tuple[str, ...],
    selected_only: bool,
    config: AnalysisConfig,
) -> _Job:
    way = copy_format(found.format, found.path, target)
    if way is None:
        same = target.suffix.lower() == found.path.suffix.lower() and found.format in ("Parquet", "CSV")
        kind = found.format if same else None
        of_images = bool(found.telescope_columns) and not set(config.columns_needed()) <= set(found.columns)
        stored = found.telescope_columns if of_images else found.stored_columns
        return _Job(found.path, target, columns, chunk_rows, None, (), stored, kind, selected_only)
    if selected_only and not way.selects:
        raise MismatchError(
            "selected_only",
            f"goes with FITS, Parquet and CSV files; {found.path} is {found.format}, whose tables have a row for each "
            f"event: leave it out, and take the events with {columns.selected}",
        )
    copy = FileCopy(found.path, columns.prefix, history, columns.selected if selected_only else None)
    return _Job(found.path, target, columns, chunk_rows, copy, way.keys, (), None, selected_only)


def _history(trained: TrainedModel, columns: OutputColumns) -> tuple[str, ...]:
    """Return what a file says of its new columns."""
    name = type(trained.model).__name__ if trained.path is None else Path(trained.path).name
    threshold = float(trained.model.threshold_)
    return (
        f"excess {__version__} apply: {columns.score}, {columns.signal_probability} and {columns.selected} are by the "
        f"model {name}, which selects scores above {threshold:.17g}.",
    )


def _refuse_present(columns: OutputColumns, found: FileInfo) -> None:
    """Raise EventFileError if a file has a column that would be written."""
    present = {name.lower() for name in found.columns}  # names in FITS are the same in any case
    for name in columns:
        if name.lower() in present:
            raise EventFileError(
                f"{found.path}: has a column {name!r} already, and no column is replaced; give the new ones another "
                "name by prefix (--prefix on the command line)"
            )


def _warn_of_seen(trained: TrainedModel, paths: list[Path]) -> None:
    """Say which files the model was trained on: what it selects of them is no result."""
    seen = [path for path in paths if trained.has_seen(path)]
    if seen:
        more = f" and {len(seen) - 1} more of these files" if len(seen) > 1 else ""
        logger.warning(
            "the model was trained on %s%s; a significance of the events that it selects there is too large, so quote "
            "what 'excess detect' finds by cross-validation",
            seen[0],
            more,
        )


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


def _find_index(described: Mapping[Path, FileInfo], targets: Mapping[Path, Path], overwrite: bool) -> RunIndex | None:
    """Return the index of FITS runs whose copies go to a folder, None if there is none.

    Raises EventFileError where its copy, or that of a file it names, would replace another file.
    """
    copies = {path: target for path, target in targets.items() if described[path].format == "FITS event list"}
    index = find_run_index(copies)
    if index is not None:
        folder = next(iter(copies.values())).parent
        companions = index.companions(folder, copies)
        check_outputs(index.tables(folder), [*described, *companions], overwrite=overwrite, is_own=is_copied_index)
        for source, target in companions.items():
            check_outputs(
                [target], [*described, source], overwrite=overwrite, is_own=partial(is_same_content, other=source)
            )
    return index


def _was_applied(columns: OutputColumns, path: Path) -> bool:
    """Say whether a file has the columns that are to be written, so that it is from an earlier call."""
    try:
        return {name.lower() for name in columns} <= {name.lower() for name in describe(path).columns}
    except ValueError:
        return False


def _apply_on_workers(trained: TrainedModel, jobs: list[_Job], executor: Any, verbose: bool) -> dict[Path, Applied]:
    model, config = trained.model, trained.config
    # workers have folders of their own
    arguments = [(config, job.resolved()) for job in jobs]
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
    columns = job.columns_to_read(config)
    n_waiting = _MAX_WAITING if job.copy is not None else 1
    n_events = n_scored = n_selected = 0
    # a thread each for reading and writing, because files take about as long as scores
    with (
        job.open() as writer,
        closing(_prepared(job.path, config, columns, job.chunk_rows)) as prepared,
        ThreadPoolExecutor(1) as writing,
    ):
        # the compiled predictor is loaded while the first events are read; an interrupt in there would be swallowed,
        # and one while a thread starts would leave it running
        nothing = np.zeros((2, len(config.features)), order="F")
        with defer_interrupts():
            writing.submit(int)
            chunks = read_ahead(prepared)
            score_features(model, Features(nothing, np.ones(2, dtype=np.bool_), config.features))
        waiting: deque[Future[None]] = deque()
        for table, features in chunks:
            rows, judged = job.of_showers(model, table, score_features(model, features))
            while len(waiting) >= n_waiting:
                waiting.popleft().result()
            waiting.append(writing.submit(writer.append, job.rows_to_write(rows, judged)))
            n_events += len(rows)
            n_scored += int(np.count_nonzero(np.isfinite(judged.score)))
            n_selected += int(np.count_nonzero(judged.selected))
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
