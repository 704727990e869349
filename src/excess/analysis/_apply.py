"""Trained models, their application to event files in chunks, and the columns that they add."""

from __future__ import annotations

import json
import logging
import re
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import BoolArray, FloatArray
from excess._utils.errors import ArgumentError, EventFileError, MismatchError, prefix_errors
from excess._utils.files import check_outputs, has_mark, prepare_folder, sha256_of
from excess._utils.threads import n_threads, progress_bar, read_ahead
from excess._utils.version import __version__
from excess.config._model import AnalysisConfig, Features, parse_config, to_features
from excess.dataset._dataset import Census, OnOffDataset
from excess.estimators._base import score_events
from excess.estimators._binned import learner_of
from excess.estimators._hybrid import OnOffHybridClassifier
from excess.estimators._model_file import ModelFileError, load, read_header, save
from excess.estimators._onnx import export_onnx
from excess.io._files import FileCopy
from excess.io._fits import RunIndex, find_run_index, is_copied_index, is_same_content
from excess.io._reading import FileInfo, describe, iter_events
from excess.io._writing import EventWriter, copy_format
from excess.out_of_core._executors import open_executor
from excess.stats._significance import OnOffCounts


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A fitted model, with everything needed to apply it.

    Attributes
    ----------
    model : On/Off classifier
        Fitted classifier.
    config : AnalysisConfig
        Features and cuts of the training.
    groups, record : list and dict
        Groups of the training, such as nights, and the settings of the training.
    census : Census or None
        Numbers of read and selected events; None for a model from a file.
    path : Path or None
        File of the model.
    """

    model: Any
    config: AnalysisConfig
    groups: list[Any]
    record: dict[str, Any]
    census: Census | None = None
    path: Path | None = None

    @property
    def n_events(self) -> int:
        """Number of training events."""
        return 0 if self.census is None else self.census.n_on + self.census.n_off

    def __str__(self) -> str:
        """Describe the training."""
        if self.census is None:
            return f"{self.path}: {self.model}"
        return f"{self.census}; {OnOffCounts(self.census.n_on, self.census.n_off, self.model.alpha)}"

    @property
    def seen_groups(self) -> list[Any]:
        """Groups used to train the model or its references."""
        learner = learner_of(self.model)
        inside = (learner.trained_on or {}) if isinstance(learner, OnOffHybridClassifier) else {}
        return sorted({*self.groups, *(group for groups in inside.values() for group in groups)})

    def has_seen(self, path: Path) -> bool:
        """Return whether it was trained on a file; the content is only read if the size matches."""
        entries = self.record.get("files", [])
        if not path.is_file() or path.stat().st_size not in {entry.get("bytes") for entry in entries}:
            return False
        return sha256_of(path) in {entry["sha256"] for entry in entries}

    @property
    def reference_weights(self) -> dict[str, float] | None:
        """Weight of each member, by name; None for a model without references."""
        learner = learner_of(self.model)
        return learner.reference_weights_ if isinstance(learner, OnOffHybridClassifier) else None

    def check_unseen(self, observation: OnOffDataset, instead: str = "") -> None:
        """Raise ModelFileError if the model was trained on files or groups of an observation."""
        for path in (path for paths in observation.files.values() for path in paths):
            if self.has_seen(path):
                raise ModelFileError(f"{self.path}: was trained on {path}; pass other events{instead}")
        present = set() if observation.groups is None else set(observation.groups.tolist())
        if self.config.groups in observation.table:  # identifies nights even if they are not the groups
            present |= set(observation.table[self.config.groups].tolist())
        shared = sorted(present & set(self.seen_groups))
        if shared:
            raise ModelFileError(
                f"{self.path}: was trained on events of group {shared[0]!r}, which these files also contain"
            )

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the model to a file atomically, and return its path."""
        metadata = {"config": self.config.to_yaml(), "groups": self.groups, "run": self.record, "angles": "deg"}
        save(self.model, path, metadata=metadata)
        return Path(path)

    def export_onnx(self, path: str | PathLike[str], *, precision: str = "float64", overwrite: bool = False) -> Path:
        """Write the model as an ONNX file, see `excess.export_onnx`, and return its path.

        The input consists of all features including derived ones, since ONNX has no expressions. The metadata of the
        file contain ``derived_features`` and ``quality_cuts`` as JSON. Without ``overwrite``, only exported files are
        replaced.
        """
        target = Path(path)
        if target.suffix.lower() != ".onnx":
            raise EventFileError(f"{target}: the name of an ONNX file must end in .onnx")
        inputs = [] if self.path is None else [self.path]
        check_outputs([target], inputs, overwrite=overwrite, is_own=partial(has_mark, mark=b"excess", n_bytes=64))
        prepare_folder(target.parent)
        computed = {
            name: self.config.derived_features[name]
            for feature in self.config.features
            for name in (*self.config.inputs_of(feature), feature)
            if name in self.config.derived_features
        }
        metadata = {"derived_features": json.dumps(computed), "quality_cuts": json.dumps(self.config.quality_cuts)}
        names = self.config.features
        try:
            export_onnx(self.model, target, feature_names=names, precision=precision, metadata=metadata)
        except TypeError as error:
            raise ModelFileError(f"{self.path or 'the model'}: {error}") from error
        return target


def load_model(path: str | PathLike[str], *, n_jobs: int = -1) -> TrainedModel:
    """Read a model written by `TrainedModel.save` or `excess train`.

    Parameters
    ----------
    path, n_jobs : path and int
        The file, and the number of cores for predictions, by default all.

    Returns
    -------
    TrainedModel
        The model, with the path of the file.
    """
    fitted, metadata = load(path), read_header(path)["metadata"]
    if "config" not in metadata:
        raise ModelFileError(f"{path}: contains no features and cuts; create it with 'excess train'")
    _check_metadata(path, metadata)
    if "n_jobs" in fitted.get_params():
        fitted.set_params(n_jobs=n_jobs)
    config = parse_config(metadata["config"], str(path))
    return TrainedModel(fitted, config, metadata.get("groups", []), metadata.get("run", {}), path=Path(path))


def export(
    model: TrainedModel | str | PathLike[str],
    output: str | PathLike[str],
    *,
    precision: str = "float64",
    overwrite: bool = False,
) -> Path:
    """Write a trained model, or that of a file, as an ONNX file; see `TrainedModel.export_onnx`."""
    trained = model if isinstance(model, TrainedModel) else load_model(model)
    return trained.export_onnx(output, precision=precision, overwrite=overwrite)


def _check_metadata(path: str | PathLike[str], metadata: Any) -> None:
    """Raise ModelFileError if the metadata of the training cannot be from `TrainedModel.save`."""
    groups, record = metadata.get("groups", []), metadata.get("run", {})
    files = record.get("files", []) if isinstance(record, dict) else None
    holds = {
        "config": isinstance(metadata["config"], str),
        "groups": isinstance(groups, list) and all(isinstance(group, (str, int, float)) for group in groups),
        "run": isinstance(record, dict),
        "files": isinstance(files, list)
        and all(isinstance(entry, dict) and isinstance(entry.get("sha256"), str) for entry in files),
    }
    if wrong := [name for name, right in holds.items() if not right]:
        raise ModelFileError(
            f"{path}: has an invalid value of {wrong[0]} in its metadata; create it with 'excess train'"
        )


class EventScores(NamedTuple):
    """Scores of events, signal probabilities, selection, and the fold of the model."""

    score: FloatArray
    signal_probability: FloatArray
    selected: BoolArray
    fold: NDArray[np.integer] | None = None


@dataclass(frozen=True, eq=False)
class FoldModels:
    """Models of a cross-validation; an event is scored by a model that was not trained on its group."""

    models: tuple[TrainedModel, ...]
    path: Path | None = None

    @property
    def config(self) -> AnalysisConfig:
        """Features, cuts and groups, common to all models."""
        return self.models[0].config

    @cached_property
    def fold_of(self) -> dict[Any, int]:
        """Fold in which each group was held out."""
        known = [set(one.groups) for one in self.models]
        return {group: [group in own for own in known].index(False) for group in set().union(*known)}

    @property
    def threshold_(self) -> FloatArray:
        """Threshold of each fold."""
        return np.array([one.model.threshold_ for one in self.models])

    def score(self, features: Features, groups: pd.Series) -> EventScores:
        """Score events by the model of their fold; unknown groups belong to the first fold."""
        if any(isinstance(group, str) for group in self.fold_of):  # of several observations, some with text
            groups = groups.astype(str)
        fold = groups.map(self.fold_of).fillna(0).to_numpy(dtype=np.int16)
        score, probability = np.full((2, len(fold)), np.nan)
        for number in np.unique(fold):
            rows = fold == number
            own_features = Features(features.X[rows], features.valid[rows], features.names)
            own = score_features(self.models[number].model, own_features)
            score[rows], probability[rows] = own.score, own.signal_probability
        return EventScores(score, probability, exceeds_threshold(self, score, fold), fold)

    def save(self, path: Path) -> None:
        """Write the models as the files of a ZIP archive."""
        with zipfile.ZipFile(path, "w") as archive, TemporaryDirectory() as folder:
            for number, one in enumerate(self.models):
                archive.write(one.save(Path(folder, "model")), f"fold_{number:03d}.excess")

    @classmethod
    def load(cls, path: Path, *, n_jobs: int = -1) -> FoldModels:
        """Read the models of an archive."""
        try:
            with zipfile.ZipFile(path) as archive, TemporaryDirectory() as folder:
                entries = sorted(archive.infolist(), key=lambda entry: entry.filename)
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                    raise ModelFileError(f"{path}: its models are compressed, so it was not written by 'excess detect'")
                found = []
                for entry in entries:
                    file = Path(folder, "model")
                    file.write_bytes(archive.read(entry))
                    found.append(replace(load_model(file, n_jobs=n_jobs), path=path))
            models, settings = (
                cls(tuple(found), path),
                {(*one.config.columns_needed(), one.config.groups) for one in found},
            )
            if len(settings) != 1 or not models.fold_of:
                raise ValueError("they are not the models of one cross-validation")
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise ModelFileError(f"{path}: cannot be read as the models of a run: {error}") from error
        return models


FOLD_MODELS = "fold_models.zip"  # file of a run folder with the models of its folds


def load_models(
    model: TrainedModel | FoldModels | str | PathLike[str], *, n_jobs: int = -1
) -> TrainedModel | FoldModels:
    """Return a model, that of a file, or the models of the folds of a run folder."""
    if isinstance(model, (TrainedModel, FoldModels)):
        return model
    path = Path(model)
    if not path.is_dir():
        return load_model(path, n_jobs=n_jobs)
    if not (path / FOLD_MODELS).is_file():
        needed = "pass a model file, or the output folder of 'excess detect --write-events'"
        raise ModelFileError(f"{path}: has no {FOLD_MODELS}; {needed}")
    return FoldModels.load(path / FOLD_MODELS, n_jobs=n_jobs)


def score_features(model: Any, features: Features) -> EventScores:
    """Score events, and apply the threshold of a model."""
    score, probability = np.full((2, len(features.X)), np.nan)
    if features.valid.any():
        events: Any = features.X if features.valid.all() else features.X[features.valid]
        if hasattr(model, "feature_names_in_"):  # compared with those of the events
            events = pd.DataFrame(events, columns=list(features.names), copy=False)
        found = score_events(model, events)
        score[features.valid] = found
        probability[features.valid] = model.calibration_of(events).signal_probability(found)
    return EventScores(score, probability, exceeds_threshold(model, score))


def score_showers(model: Any, images: EventScores, shower: NDArray[np.integer], n_showers: int) -> EventScores:
    """Return predictions of showers from an image model: the mean over the images with a score."""
    used = np.isfinite(images.score)
    n_used = np.bincount(shower[used], minlength=n_showers)
    sums = (np.bincount(shower[used], own[used], minlength=n_showers) for own in images[:2])
    score, probability = (np.divide(own, n_used, out=np.full(n_showers, np.nan), where=n_used > 0) for own in sums)
    fold = None
    if images.fold is not None:
        fold = np.zeros(n_showers, dtype=np.int16)
        fold[shower] = images.fold
    return EventScores(score, probability, exceeds_threshold(model, score, fold), fold)


def exceeds_threshold(model: Any, score: FloatArray, fold: NDArray[np.integer] | None = None) -> BoolArray:
    """Return the scores selected by a model, or by the model of the fold of each event."""
    return np.asarray(score > (model.threshold_ if fold is None else model.threshold_[fold]))


PREFIX = "excess"  # default prefix of column names


class OutputColumns(NamedTuple):
    """Names of the columns that an applied model adds."""

    score: str
    signal_probability: str
    selected: str

    @property
    def prefix(self) -> str:
        """Prefix of the names."""
        return self.score.removesuffix("_score")

    @property
    def fold(self) -> str:
        """Name of the fold column, if the models of a cross-validation are applied."""
        return f"{self.prefix}_fold"

    @classmethod
    def of(cls, prefix: str) -> OutputColumns:
        """Return the names with a prefix, which must be valid in expressions of the configuration."""
        if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z]\w*", prefix, re.ASCII):
            needed = "must be letters, digits and underscores, a letter first, such as 'excess'"
            raise ArgumentError("prefix", f"{needed}, got {prefix!r}")
        return cls(*(f"{prefix}_{name}" for name in cls._fields))

    @classmethod
    def found_in(cls, columns: Iterable[str]) -> list[OutputColumns]:
        """Return the names of all models whose columns are present."""
        known = list(columns)
        prefixes = [name.removesuffix("_selected") for name in known if name.endswith("_selected")]
        every = (cls(*(f"{prefix}_{name}" for name in cls._fields)) for prefix in prefixes)
        return [names for names in every if set(names) <= set(known)]


logger = logging.getLogger("excess.analysis")

_MAX_WAITING = 16  # maximum number of chunks queued while the file is copied
_START_AGAIN = "existing files are complete, the others were not written; apply the model again"


@dataclass(frozen=True)
class Applied:
    """Result of applying a model to a file."""

    path: Path
    n_events: int
    n_scored: int
    n_selected: int

    def __str__(self) -> str:
        """Return path and numbers of events."""
        return f"{self.path}: {self.n_events:,} events, {self.n_scored:,} scored, {self.n_selected:,} selected"


def apply(
    model: TrainedModel | FoldModels | str | PathLike[str],
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
    """Write copies of event files with score, signal probability and selection by a model.

    The new columns are ``excess_score``, to which the threshold applies; ``excess_signal_probability``, as returned by
    `predict_signal_proba`; and ``excess_selected``. Existing columns are unchanged: if a file already has a column of
    such a name, an error is raised before writing. FITS and HDF5 files are copied with all other tables: FITS event
    tables get the columns in upper case, tables of FACT and lstchain in lower case, and ctapipe files get a separate
    DL2 table. In the latter and in tables of lstchain, images of a shower have the mean score of these images. Events
    that fail the quality cuts or lack a feature are kept, with NaN and not selected. If an error occurs, no partial
    copy remains.

    Parameters
    ----------
    model : TrainedModel, FoldModels or path
        From `train`, or its file; or the folder of a run with ``write_events``, in which case each event is scored by
        the model that was not trained on its group, with its number in ``excess_fold``.
    files : path or sequence of paths
        Event files.
    output : path
        File to write, or folder for several files; a suffix ``.hdf5``, ``.parquet`` or ``.csv`` converts the format.
    prefix : str, default="excess"
        Prefix of the new columns, to apply several models one after the other.
    chunk_rows : int, default=200_000
        Number of events in memory at a time.
    executor : None, dask.distributed.Client, str or Executor, default=None
        As for `fit_forest`: workers of a Dask cluster process one file each, which they must access by the same path.
    n_jobs : int, default=-1
        Number of cores, for a model that is read from its file.
    overwrite : bool, default=False
        Replace any file, not only those of a previous call; the model and the event files are never replaced.
    selected_only : bool, default=False
        Write selected events only; for FITS, Parquet and CSV files.
    verbose : bool, default=False
        Show progress bars.

    Returns
    -------
    dict of Path to Applied
        Result for each file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.analysis import OnOffDataset, apply, train
    >>> from excess.io import read_events, write_events
    >>> from excess.dataset import simulate_observation
    >>> trained = train(OnOffDataset.from_files(simulate_observation(60_000, 400, random_state=0)), "li-ma-tree")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_events(simulate_observation(1_000, 20, random_state=1), Path(folder, "tonight.csv"))
    ...     done = apply(trained, Path(folder, "tonight.csv"), Path(folder, "scored.csv"))
    ...     scored = read_events(Path(folder, "scored.csv"))
    >>> list(scored)[-3:]
    ['excess_score', 'excess_signal_probability', 'excess_selected']
    """
    columns = OutputColumns.of(prefix)
    trained = load_models(model, n_jobs=n_jobs)
    paths = [Path(path) for path in ([files] if isinstance(files, (str, PathLike)) else files)]
    described = {path: describe(path) for path in paths}
    targets = _targets(paths, Path(output))
    index = _check_application(described, targets, Path(output), columns, trained.path, overwrite)
    _warn_of_seen(trained, paths)
    settings: dict[str, Any] = {"columns": columns, "chunk_rows": chunk_rows, "selected_only": selected_only}
    jobs = [_make_job(trained, described[path], target, **settings) for path, target in targets.items()]
    done = {}
    if executor is not None:
        done = _apply_on_workers(trained, jobs, executor, verbose)
    else:
        title = f"Applying to {jobs[0].path.name}" if len(jobs) == 1 else f"Applying to {len(jobs)} files"
        n_events = sum(found.n_events for found in described.values())
        with progress_bar(title, n_events, shown=verbose) as tick:
            for job in jobs:
                done[job.path] = _apply_to_file(_applied(trained), trained.config, job, tick)
    if index is not None:
        index.write(jobs[0].target.parent, targets)
    return done


@dataclass(frozen=True)
class _Job:
    """Application of a model to one file."""

    path: Path
    target: Path
    columns: OutputColumns
    chunk_rows: int
    selected_only: bool
    copy: FileCopy | None = None
    keys: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    format: str | None = None

    def resolved(self) -> _Job:
        """Return the same with full paths."""
        path, target = self.path.resolve(), self.target.resolve()
        return replace(self, path=path, target=target, copy=self.copy and replace(self.copy, source=path))

    def open(self) -> EventWriter:
        """Return the file to write."""
        return EventWriter(self.target, copy_of=self.copy, format=self.format)

    def columns_to_read(self, model: Any, config: AnalysisConfig) -> tuple[str, ...]:
        """Return the required columns of the file."""
        others = self.keys if self.copy is not None else self.stored
        groups = (config.groups,) if isinstance(model, FoldModels) else ()
        return tuple(dict.fromkeys((*others, *config.columns_needed(), *groups)))

    def of_showers(self, model: Any, table: pd.DataFrame, scored: EventScores) -> tuple[pd.DataFrame, EventScores]:
        """Aggregate a chunk to one row per shower, if its rows are images and its copy has scores of showers."""
        if not self.keys or not (again := table.duplicated(list(self.keys))).any():
            return table, scored
        shower = table.groupby(list(self.keys), sort=False).ngroup().to_numpy()
        return table[~again], score_showers(model, scored, shower, int(np.count_nonzero(~again)))

    def rows_to_write(self, table: pd.DataFrame, scored: EventScores) -> pd.DataFrame:
        """Return the columns that a chunk adds to the output."""
        found: dict[str, Any] = dict(zip(self.columns, scored[:3], strict=True))
        if scored.fold is not None:
            found[self.columns.fold] = scored.fold
        if self.copy is not None:
            return table[list(self.keys)].assign(**found) if self.keys else pd.DataFrame(found)
        # columns computed while reading are not copied
        # concatenate at once: pandas warns if columns are added one by one to a large table
        new = pd.concat([table[list(self.stored)], pd.DataFrame(found, index=table.index)], axis=1)
        return new[found[self.columns.selected]] if self.selected_only else new


def _applied(trained: TrainedModel | FoldModels) -> Any:
    """Return the predictor: a fitted classifier, or the models of all folds."""
    return trained if isinstance(trained, FoldModels) else trained.model


def _make_job(trained: TrainedModel | FoldModels, found: FileInfo, target: Path, **settings: Any) -> _Job:
    job = _Job(found.path, target, **settings)
    columns = job.columns
    way = copy_format(found.format, found.path, target)
    if way is None:
        same = target.suffix.lower() == found.path.suffix.lower() and found.format in ("Parquet", "CSV")
        kind = found.format if same else None
        of_images = bool(found.telescope_columns) and not set(trained.config.columns_needed()) <= set(found.columns)
        stored = found.telescope_columns if of_images else found.stored_columns
        return replace(job, stored=stored, format=kind)
    if job.selected_only and not way.selects:
        other = f"{found.path} is {found.format}: exclude it, and select the events with {columns.selected}"
        raise MismatchError("selected_only", f"requires FITS, Parquet or CSV files; {other}")
    made = f"excess {__version__} apply: {', '.join(columns[:2])} and {columns.selected} are by the"
    if isinstance(trained, FoldModels):
        history = f"{made} model of a cross-validation that was not trained on the event's {trained.config.groups}."
    else:
        name = type(trained.model).__name__ if trained.path is None else Path(trained.path).name
        history = f"{made} model {name}, which selects scores above {float(trained.model.threshold_):.17g}."
    copy = FileCopy(found.path, columns.prefix, (history,), columns.selected if job.selected_only else None)
    return replace(job, copy=copy, keys=way.keys)


def _warn_of_seen(trained: TrainedModel | FoldModels, paths: list[Path]) -> None:
    """Warn about files used to train the model: their selection is not a result."""
    seen = [path for path in paths if isinstance(trained, TrainedModel) and trained.has_seen(path)]
    if seen:
        more = f" and {len(seen) - 1} more of these files" if len(seen) > 1 else ""
        quote = "the significance of its selected events is too large; quote that of 'excess detect'"
        logger.warning("the model was trained on %s%s; %s", seen[0], more, quote)


def _targets(files: list[Path], output: Path) -> dict[Path, Path]:
    """Return the output path of each file."""
    if len(files) == 1 and not output.is_dir():
        return {files[0]: output}
    for name, times in Counter(path.name for path in files).items():
        if times > 1:
            raise ValueError(f"{times} files are named {name}; apply the model to each, with separate outputs")
    return {path: output / path.name for path in files}


def is_of_events(kind: str) -> bool:
    """Return whether files of this kind, such as "Off events of Crab", are separate event lists."""
    return kind.split(" of ")[0] in ("events", "Off events")


def check_application(files: Mapping[str, Sequence[Path]], output: Path, *, overwrite: bool = False) -> None:
    """Raise an error if copies of event files, by kind, cannot be written to a folder."""
    prepare_folder(output)
    paths = [path for kind, own in files.items() if is_of_events(kind) for path in own]
    described, columns = {path: describe(path) for path in paths}, OutputColumns.of(PREFIX)
    _check_application(described, _targets(paths, output), output, columns, None, overwrite)


def _check_application(
    described: Mapping[Path, FileInfo],
    targets: Mapping[Path, Path],
    output: Path,
    columns: OutputColumns,
    model: Path | None,
    overwrite: bool,
) -> RunIndex | None:
    """Raise an error if a copy cannot be written; return the index of the runs, if any."""
    for path, found in described.items():
        present = {name.lower() for name in found.columns}  # FITS column names are case-insensitive
        for name in (*columns, columns.fold):
            if name.lower() in present:
                other = "choose another prefix (--prefix on the command line)"
                raise EventFileError(f"{path}: already has a column {name!r}; {other}")
    inputs = [*described, *([] if model is None else [model])]
    check_outputs(targets.values(), inputs, overwrite=overwrite, is_own=partial(_was_applied, columns))
    index = _find_index(described, targets, overwrite) if output not in targets.values() else None
    for target in targets.values():
        prepare_folder(target.parent)
    return index


def _find_index(described: Mapping[Path, FileInfo], targets: Mapping[Path, Path], overwrite: bool) -> RunIndex | None:
    """Return the index of FITS runs whose copies are written to a folder, None if there is none."""
    copies = {path: target for path, target in targets.items() if described[path].format == "FITS event list"}
    index = find_run_index(copies)
    if index is not None:
        folder = next(iter(copies.values())).parent
        companions = index.companions(folder, copies)
        check_outputs(index.tables(folder), [*described, *companions], overwrite=overwrite, is_own=is_copied_index)
        for source, target in companions.items():
            is_own = partial(is_same_content, other=source)
            check_outputs([target], [*described, source], overwrite=overwrite, is_own=is_own)
    return index


def _was_applied(columns: OutputColumns, path: Path) -> bool:
    """Return whether a file has the output columns, so it is from a previous call."""
    try:
        return {name.lower() for name in columns} <= {name.lower() for name in describe(path).columns}
    except ValueError:
        return False


def _apply_on_workers(
    trained: TrainedModel | FoldModels, jobs: list[_Job], executor: Any, verbose: bool
) -> dict[Path, Applied]:
    model, config = _applied(trained), trained.config
    # workers have their own folders
    arguments = [(config, job.resolved()) for job in jobs]
    bar = progress_bar("Applying to files", len(jobs), shown=verbose)
    with open_executor(executor, n_threads(getattr(model, "n_jobs", None)), _START_AGAIN) as workers, bar as tick:
        if workers.remote and hasattr(model, "n_jobs"):  # the threads of workers are used for other files
            model = copy(model).set_params(n_jobs=1)
        done = workers.run(_apply_to_file, arguments, tick, shared=(model,))
    return {job.path: applied for job, applied in zip(jobs, done, strict=True)}


def _apply_to_file(
    model: Any, config: AnalysisConfig, job: _Job, tick: Callable[[int], None] = lambda steps: None
) -> Applied:
    """Write the copy of one file; ``tick`` is called with the number of events of each finished chunk."""
    columns = job.columns_to_read(model, config)
    by_fold = isinstance(model, FoldModels)
    n_waiting = _MAX_WAITING if job.copy is not None else 1
    n_events = n_scored = n_selected = 0
    # one thread each for reading and writing, since files take about as long as scores
    with (
        job.open() as writer,
        closing(_prepared(job.path, config, columns, job.chunk_rows)) as prepared,
        ThreadPoolExecutor(1) as writing,
    ):
        # load the compiled predictor while the first events are read
        nothing = np.zeros((2, len(config.features)), order="F")
        chunks = read_ahead(prepared)
        first = model.models[0].model if by_fold else model
        score_features(first, Features(nothing, np.ones(2, dtype=np.bool_), config.features))
        waiting: deque[Future[None]] = deque()
        for table, features in chunks:
            scores = model.score(features, table[config.groups]) if by_fold else score_features(model, features)
            rows, scored = job.of_showers(model, table, scores)
            while len(waiting) >= n_waiting:
                waiting.popleft().result()
            waiting.append(writing.submit(writer.append, job.rows_to_write(rows, scored)))
            n_events += len(rows)
            n_scored += int(np.count_nonzero(np.isfinite(scored.score)))
            n_selected += int(np.count_nonzero(scored.selected))
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
