"""Sources of the chunks of a fit: datasets and their partitions, which can be read several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from excess._core.checks import as_int
from excess.estimators.event_weights import ExposureRatios
from excess.events import AnalysisConfig, EventFileError, iter_events
from excess.observation.pipeline import NO_GROUPS, ObservedChunk, Pipeline

__all__ = ["EventFiles", "ObservedFiles", "Partition", "partitions_of"]

Chunk = tuple[Any, Any] | tuple[Any, Any, Any] | tuple[Any, Any, Any, Any]


class Partition(Protocol):
    """Events that are read by one worker, chunk by chunk."""

    @property
    def name(self) -> str:
        """Name in messages."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the events, the same ones in each call, as the chunks that `fit_forest` takes."""


@dataclass(frozen=True)
class EventFiles:
    r"""Files with a column for each feature and one for the label: Parquet, HDF5, or any that `read_events` knows.

    A worker reads whole files, a chunk at a time, so that several workers need several files.

    Parameters
    ----------
    paths : path or sequence of paths
        The files. The order matters: it numbers the events.
    features : sequence of str
        Columns of the features.
    label : str
        Column of the labels, such as 0 for Off and 1 for On.
    chunk_rows : int, default=200_000
        Events that are read at a time.
    groups : str or None, default=None
        Column of the groups, such as nights, if there is one; see `OnOffForestClassifier.fit`.
    sample_weight : str or None, default=None
        Column of the weights, such as those of `exposure_weights`, if there is one; see `fit_forest`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.distributed import EventFiles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.csv")
    ...     _ = path.write_text("width,length,on\n1,2,0\n3,4,1\n5,6,0\n")
    ...     files = EventFiles(path, ["width", "length"], "on", chunk_rows=2)
    ...     [partition] = files.partitions()
    ...     [len(y) for X, y in partition.chunks()]
    [2, 1]
    """

    paths: str | PathLike[str] | Sequence[str | PathLike[str]]
    features: Sequence[str]
    label: str
    chunk_rows: int = 200_000
    groups: str | None = None
    sample_weight: str | None = None

    def partitions(self) -> list[Partition]:
        """Return one partition per file."""
        as_int("chunk_rows", self.chunk_rows, minimum=1)
        if isinstance(self.features, str):
            raise TypeError(f"features must be a list of columns, got the text {self.features!r}")
        features = tuple(self.features)
        if not features:
            raise ValueError("features must name at least one column")
        for name, column in (("label", self.label), ("sample_weight", self.sample_weight)):
            if column in features:
                raise ValueError(f"features must not hold the {name}, {column!r}")
        options = features, self.label, self.chunk_rows, self.groups, self.sample_weight
        return [_File(str(path), *options) for path in _as_paths(self.paths)]


@dataclass(frozen=True)
class _File:
    name: str
    features: tuple[str, ...]
    label: str
    chunk_rows: int
    groups: str | None
    sample_weight: str | None

    def chunks(self) -> Iterator[Chunk]:
        further = [name for name in (self.groups, self.sample_weight) if name is not None]
        columns = list(dict.fromkeys([*self.features, self.label, *further]))
        for table in iter_events(self.name, columns, chunk_rows=self.chunk_rows):
            X, y = table[list(self.features)], table[self.label].to_numpy()
            groups, weights = (
                None if name is None else table[name].to_numpy() for name in (self.groups, self.sample_weight)
            )
            yield _as_chunk(X, y, groups, weights)


def _as_chunk(X: Any, y: Any, groups: Any, weights: Any) -> Chunk:
    """Return what `fit_forest` takes as a chunk; groups and weights may be None."""
    if weights is not None:
        return X, y, groups, weights
    return (X, y) if groups is None else (X, y, groups)


@dataclass(frozen=True)
class ObservedFiles:
    """Files of an observation: On and Off events by their regions, features and cuts by a configuration.

    The events are those of `observe`. Events that are there twice are not looked for, because that
    needs all of them at once.

    Parameters
    ----------
    paths : path or sequence of paths
        The files, one partition each.
    config : AnalysisConfig
        Features, cuts and regions.
    chunk_rows : int, default=200_000
        Events that are read at a time.
    groups : str, default="none"
        Column of the groups, such as nights; ``"none"`` for none.
    exposure : ExposureRatios or None, default=None
        For `train_in_chunks`, which finds the exposure ratios of all events and gives events weights by them where they
        differ. Without it, events have no weights: where ratios differ, use `train_in_chunks`.
    """

    paths: str | PathLike[str] | Sequence[str | PathLike[str]]
    config: AnalysisConfig
    chunk_rows: int = 200_000
    groups: str = NO_GROUPS
    exposure: ExposureRatios | None = None

    def paths_in_full(self) -> list[Path]:
        """Return the files, as workers in other folders need them."""
        return _as_paths(self.paths)

    def partitions(self) -> list[Partition]:
        """Return one partition per file."""
        as_int("chunk_rows", self.chunk_rows, minimum=1)
        options = self.config, self.chunk_rows, self.groups, self.exposure
        return [_ObservedFile(path, *options) for path in self.paths_in_full()]


@dataclass(frozen=True)
class _ObservedFile:
    path: Path
    config: AnalysisConfig
    chunk_rows: int
    groups: str = NO_GROUPS
    exposure: ExposureRatios | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def chunks(self) -> Iterator[Chunk]:
        import pandas as pd

        for chunk in self.observed():
            X = pd.DataFrame(chunk.X, columns=list(self.config.features), copy=False)
            weights = None if self.exposure is None else self.exposure.weights(chunk.region == 0, chunk.alpha)
            yield _as_chunk(X, chunk.on, chunk.groups, weights)

    def observed(self, groups: str | None = None) -> Iterator[ObservedChunk]:
        """Yield the events that are used, with their groups if a column is named, here or for all files."""
        return Pipeline(self.config, self.groups if groups is None else groups, identify=False).read(
            [self.path], self.chunk_rows
        )


@dataclass(frozen=True, eq=False)
class Pairs:
    """An iterable of chunks, which stays in the process of the caller."""

    pairs: Iterable[Chunk]
    name: str = "chunks"

    def chunks(self) -> Iterator[Chunk]:
        """Return the pairs."""
        return iter(self.pairs)


def partitions_of(chunks: Any) -> list[Partition]:
    """Return the partitions of the ``chunks`` of `fit_forest`."""
    if callable(getattr(chunks, "partitions", None)):
        return list(chunks.partitions())
    if hasattr(chunks, "partitions"):  # a collection of Dask
        raise TypeError(
            f"chunks must be a list of (X, y) pairs or a dataset such as EventFiles, got {type(chunks).__name__}; give "
            "the files it is made of"
        )
    if isinstance(chunks, Iterator) or not isinstance(chunks, Iterable):
        raise TypeError(
            "chunks must be something that can be read again, such as a list of (X, y) pairs or EventFiles, got "
            f"{'an iterator' if isinstance(chunks, Iterator) else type(chunks).__name__}"
        )
    return [Pairs(chunks)]


def _as_paths(paths: Any) -> list[Path]:
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise ValueError("paths must hold at least one file")
    full = [Path(path).resolve() for path in given]  # workers have folders of their own
    for path, times in Counter(full).items():
        if times > 1:
            raise EventFileError(f"{path}: was given {times} times; give every file once")
    return full
