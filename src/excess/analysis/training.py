"""Training on the files of an observation that need not fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from excess._core.errors import naming
from excess._core.files import sha256_of
from excess._core.progress import progress_bar
from excess.distributed.fit import START_AGAIN, fit_forest, open_executor
from excess.distributed.sources import ObservedFiles
from excess.estimators.base import n_threads, with_alpha
from excess.estimators.forest import OnOffForestClassifier
from excess.events import AnalysisConfig, EventFileError, to_features
from excess.observation.pipeline import Census
from excess.stats.significance import OnOffCounts

__all__ = ["TrainedOnFiles", "train_on_files"]


@dataclass
class _Counted(Census):
    """What files hold: how many events, and in which groups."""

    groups: set[Any] = field(default_factory=set)

    def add(self, other: _Counted) -> None:
        self.n_read += other.n_read
        self.n_inside += other.n_inside
        self.n_overlapping += other.n_overlapping
        self.n_on += other.n_on
        self.n_off += other.n_off
        self.groups |= other.groups


@dataclass(frozen=True)
class TrainedOnFiles:
    """A forest that was trained on files.

    Attributes
    ----------
    model : OnOffForestClassifier
        Fitted.
    counts : OnOffCounts
        The events it was trained on.
    groups : list
        Their groups, such as nights.
    n_read, n_outside, n_cut : int
        Events that were read, that lie in no region, and that lie in one and fail the quality cuts.
    """

    model: OnOffForestClassifier
    counts: OnOffCounts
    groups: list[Any]
    n_read: int
    n_outside: int
    n_cut: int

    @property
    def n_events(self) -> int:
        """Events it was trained on."""
        return int(self.counts.n_on + self.counts.n_off)

    def __str__(self) -> str:
        """Say what was read and what was left."""
        left_out = f"{self.n_outside:,} outside all regions, {self.n_cut:,} cut away"
        return f"{self.n_read:,} events read, {left_out}; {self.counts}"


def train_on_files(
    estimator: OnOffForestClassifier,
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    config: AnalysisConfig,
    *,
    groups: str | None = None,
    chunk_rows: int = 200_000,
    executor: Any = None,
) -> TrainedOnFiles:
    """Train a forest on the On and Off events of files, chunk by chunk.

    The model is that of a fit on `excess.observation.observe`, to the bit. Files are read once more than by
    `fit_forest`, to count events and groups. Events that are there twice are not looked for.

    Parameters
    ----------
    estimator : OnOffForestClassifier
        What to fit; its ``alpha`` is set to that of the regions.
    paths : path or sequence of paths
        Event files of one format.
    config : AnalysisConfig
        Features, cuts, regions and groups.
    groups : str or None, default=None
        Column of the groups; by default that of the configuration. ``"none"`` is for no groups.
    chunk_rows : int, default=200_000
        Events that are read at a time.
    executor : None, dask.distributed.Client, str or Executor, default=None
        What runs the work; as for `fit_forest`. A worker reads whole files, which it must see under the same names.

    Returns
    -------
    TrainedOnFiles
        The model, and what it was trained on.
    """
    if not isinstance(estimator, OnOffForestClassifier):
        raise TypeError(f"only forests can be trained in chunks, got {type(estimator).__name__}")
    column = config.groups if groups is None else groups
    files = ObservedFiles(paths, config, chunk_rows)
    partitions = files.partitions()
    _refuse_copies(files.paths_in_full())
    alpha = 1 / (config.regions.n_regions - 1)
    census = _Counted()
    with open_executor(executor, n_threads(estimator.n_jobs), START_AGAIN) as executor:
        with progress_bar("Counting events in files", len(partitions), shown=estimator.verbose > 0) as tick:
            for found in executor.run(_count, [(partition, column) for partition in partitions], tick):
                census.add(found)
        others = "" if len(partitions) == 1 else " and others"
        census.check(f"{partitions[0].name}{others}: ", config)
        model = fit_forest(with_alpha(estimator, alpha), files, executor=executor)
    counts = OnOffCounts(census.n_on, census.n_off, alpha)
    n_cut = census.n_inside - census.n_on - census.n_off
    return TrainedOnFiles(model, counts, sorted(census.groups), census.n_read, census.n_read - census.n_inside, n_cut)


def _count(partition: Any, column: str) -> _Counted:
    """Count the events of a file."""
    census = _Counted()
    with naming(partition.name):
        _count_tables(partition, column, census)
    return census


def _count_tables(partition: Any, column: str, census: _Counted) -> None:
    for table, found in partition.tables(*([] if column == "none" else [column])):
        inside = found.inside
        census.n_read += len(inside)
        census.n_inside += len(table)
        census.n_overlapping += found.n_overlapping
        valid = to_features(table, partition.config).valid
        n_on = int(np.count_nonzero(valid & (found.region[inside] == 0)))
        census.n_on += n_on
        census.n_off += int(np.count_nonzero(valid)) - n_on
        if column != "none":
            if column not in table:
                raise ValueError(f"groups: there is no column {column!r}; choose another, or 'none'")
            labels = table.loc[valid, column]
            if labels.isna().any():
                raise ValueError(f"groups: column {column!r} has missing values")
            census.groups |= set(labels.unique().tolist())


def _refuse_copies(paths: list[Path]) -> None:
    """Raise EventFileError if files are the same; events that are in different files twice are not looked for."""
    by_size: dict[int, list[Path]] = {}
    for path in paths:
        if path.is_file():
            by_size.setdefault(path.stat().st_size, []).append(path)
    for same_size in by_size.values():
        seen: dict[str, Path] = {}
        for path in same_size if len(same_size) > 1 else ():
            first = seen.setdefault(sha256_of(path), path)
            if first != path:
                raise EventFileError(f"{path}: has the same content as {first}; give every file once")
