"""Chunks of events: files and tables as partitions, the survey that computes bin edges, and records of codes.

Edges follow from the distinct values of a feature if these are few, else from the ``N_SAMPLED`` rows with the smallest
hashes of their numbers. Neither depends on the chunks, so the edges equal those of the fit in memory, to the bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from os import PathLike
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d, validate_data

from excess._utils import checks
from excess._utils.checks import BoolArray, FloatArray
from excess._utils.errors import EventFileError, prefix_errors
from excess._utils.rng import LARGEST_FACTOR, N_SKETCHED, row_hashes, sketch_rows
from excess._utils.threads import progress_bar, read_ahead
from excess.config._model import NO_GROUPS, AnalysisConfig
from excess.dataset._build import Pipeline
from excess.dataset._dataset import OnOffDataset
from excess.estimators._base import ExposureRatios, WeightSum, as_groups, check_weights
from excess.estimators._forest.binning import N_SAMPLED, ON_BIT, as_codes, edges_of, empty_records, few_distinct
from excess.estimators._forest.ensemble import WHOLE, Bag, compile_kernels, encode_events, join_bags
from excess.estimators._random_forest import OnOffForestClassifier
from excess.io._reading import iter_events
from excess.out_of_core._executors import Executor, InMemory, read_only

Chunk = tuple[Any, ...]


@dataclass(frozen=True)
class EventFiles:
    r"""Files with one column per feature and one for the label: Parquet, HDF5, or any format of `read_events`.

    A worker reads whole files in chunks, so several workers require several files.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, whose order defines the numbering of events.
    features : sequence of str
        Columns of the features.
    label : str
        Column of the labels, such as 0 for Off and 1 for On.
    chunk_rows : int, default=200_000
        Number of events read at a time.
    groups : str or None, default=None
        Column of the groups, such as nights, if any; see `OnOffForestClassifier.fit`.
    sample_weight : str or None, default=None
        Column of the weights, such as those of `exposure_weights`, if any; see `fit_forest`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.out_of_core import EventFiles
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.csv")
    ...     _ = path.write_text("width,length,on\n1,2,0\n3,4,1\n5,6,0\n")
    ...     files = EventFiles(path, ["width", "length"], "on", chunk_rows=2)
    ...     [partition] = files.partitions()
    ...     [len(y) for X, y, *_ in partition.chunks()]
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
        if isinstance(self.features, str):
            raise TypeError(f"features must be a list of columns, got the text {self.features!r}")
        features = tuple(self.features)
        if not features:
            raise ValueError("features must name at least one column")
        for name, column in (("label", self.label), ("sample_weight", self.sample_weight)):
            if column in features:
                raise ValueError(f"features must not contain the {name}, {column!r}")
        return _partitions(self)

    def _read(self, path: str) -> Iterator[Chunk]:
        further = [name for name in (self.groups, self.sample_weight) if name is not None]
        columns = list(dict.fromkeys([*self.features, self.label, *further]))
        for table in iter_events(path, columns, chunk_rows=self.chunk_rows):
            names = self.label, self.groups, self.sample_weight
            yield table[list(self.features)], *(None if name is None else table[name].to_numpy() for name in names)


@dataclass(frozen=True)
class ObservedFiles:
    """Files of an observation: On and Off events from regions, features and cuts from a configuration.

    The events are those of `OnOffDataset.from_files`, but duplicates are not detected, which requires all events.

    Parameters
    ----------
    paths : path or sequence of paths
        The files, one partition each.
    config : AnalysisConfig
        Features, cuts and regions.
    chunk_rows : int, default=200_000
        Number of events read at a time.
    groups : str, default="none"
        Column of the groups, such as nights; ``"none"`` for none.
    exposure : ExposureRatios or None, default=None
        Exposure ratios of all events, for weights; `train_in_chunks` computes them if they vary.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.out_of_core import ObservedFiles
    >>> from excess.io import write_events
    >>> from excess.dataset import propose_config, simulate_observation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "night.hdf5")
    ...     write_events(simulate_observation(20_000, 100, random_state=0), path)
    ...     [partition] = ObservedFiles(path, propose_config(path).config).partitions()
    ...     [len(y) for X, y, *_ in partition.chunks()]
    [635]
    """

    paths: str | PathLike[str] | Sequence[str | PathLike[str]]
    config: AnalysisConfig
    chunk_rows: int = 200_000
    groups: str = NO_GROUPS
    exposure: ExposureRatios | None = None

    def partitions(self) -> list[Partition]:
        """Return one partition per file."""
        return _partitions(self)

    def observe(self, path: str, groups: str) -> Iterator[OnOffDataset]:
        """Yield the selected events of a file, with their groups if a column is named."""
        return Pipeline(self.config, groups, identify=False).read([Path(path)], self.chunk_rows)

    def _read(self, path: str) -> Iterator[Chunk]:
        for chunk in self.observe(path, self.groups):
            X = pd.DataFrame(chunk.X, columns=list(self.config.features), copy=False)
            weights = None if self.exposure is None else self.exposure.weights(chunk.regions.on, chunk.alphas)
            yield X, chunk.on, chunk.groups, weights


@dataclass(frozen=True)
class _File:
    """A partition: a file of a dataset, which workers can read without other paths."""

    name: str
    files: EventFiles | ObservedFiles

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, as `fit_forest` takes them."""
        return self.files._read(self.name)


@dataclass(frozen=True, eq=False)
class Pairs:
    """An iterable of chunks in the process of the caller."""

    pairs: Iterable[Chunk]
    name: str = "chunks"

    def chunks(self) -> Iterator[Chunk]:
        """Return the chunks."""
        return iter(self.pairs)


Partition = _File | Pairs  # has a name for messages, and chunks, the same in each call


def partitions_of(chunks: Any) -> list[Partition]:
    """Return the partitions of the ``chunks`` of `fit_forest`."""
    if callable(getattr(chunks, "partitions", None)):
        return list(chunks.partitions())
    # a Dask collection has partitions, which cannot be called
    if isinstance(chunks, Iterator) or not isinstance(chunks, Iterable) or hasattr(chunks, "partitions"):
        got = "an iterator, which is read only once" if isinstance(chunks, Iterator) else type(chunks).__name__
        raise TypeError(f"chunks must be a list of (X, y) pairs or a dataset of files such as EventFiles, got {got}")
    return [Pairs(chunks)]


def _partitions(files: EventFiles | ObservedFiles) -> list[Partition]:
    """Return one partition per file."""
    checks.as_int("chunk_rows", files.chunk_rows, minimum=1)
    given = [files.paths] if isinstance(files.paths, (str, PathLike)) else list(files.paths)
    if not given:
        raise ValueError("paths must contain at least one file")
    full = [Path(path).resolve() for path in given]  # workers have their own folders
    for path, times in Counter(full).items():
        if times > 1:
            raise EventFileError(f"{path}: was given {times} times; pass every file once")
    return [_File(str(path), replace(files, paths=())) for path in full]


@dataclass(frozen=True)
class CheckedChunk:
    """A chunk with at least one event."""

    X: NDArray[Any]
    labels: NDArray[Any]
    names: tuple[str, ...] | None  # of the features
    source: str  # name in messages
    groups: NDArray[Any] | None = None
    weights: FloatArray | None = None

    def bag(self, names: list[Any], *, weighted: bool) -> Bag:
        """Return the weights, and the indices of groups among the ``names`` of all groups, which may be empty."""
        if (weighted and self.weights is None) or (names and self.groups is None):
            raise ValueError(f"{self.source}: has fewer columns than at first; do not change it during the fit")
        weights = self.weights if weighted else None
        if not names or self.groups is None:
            return Bag(weights=weights)
        numbers = {name: number for number, name in enumerate(names)}
        groups = [numbers.get(name, -1) for name in self.groups.tolist()]
        if min(groups) < 0:
            raise ValueError(f"{self.source}: has other groups than at first; do not change it during the fit")
        return Bag(np.array(groups, dtype=np.int32), len(names), weights)


def check_chunks(partition: Partition) -> Iterator[CheckedChunk]:
    """Yield the chunks of a partition that have events as arrays; errors name the chunk."""
    with prefix_errors(partition.name):
        for number, chunk in enumerate(partition.chunks()):
            source = f"{partition.name}, chunk {number}"
            with prefix_errors(source):
                X, y, groups, weights = _items_of(chunk)
                checked = _check_chunk(X, y, groups, weights, source) if len(y) > 0 else None
            if checked is not None:
                yield checked


def _check_chunk(X: Any, y: Any, groups: Any, sample_weight: Any, source: str) -> CheckedChunk:
    labels = checks.as_labels(column_or_1d(y, warn=True))
    blank = OnOffForestClassifier()
    if any(getattr(dtype, "name", "") == "category" for dtype in getattr(X, "dtypes", ())):
        raise TypeError("X of a chunk must be numeric; categories require all events at once")
    try:
        floats = validate_data(blank, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
    except (ValueError, TypeError) as error:
        raise type(error)(f"{error}{_name_column(X)}") from error
    checks.check_same_length(X=floats, y=labels)
    weights = None
    if sample_weight is not None:
        weights = checks.as_counts("sample_weight", checks.as_column("sample_weight", sample_weight))
        checks.check_same_length(y=labels, sample_weight=weights)
    names = tuple(getattr(blank, "feature_names_in_", ())) or None
    return CheckedChunk(floats, labels, names, source, as_groups(groups, y=labels), weights)


def _items_of(chunk: Any) -> tuple[Any, Any, Any, Any]:
    """Return features, labels, groups and weights of a chunk; the last two may be None."""
    items = list(chunk) if isinstance(chunk, Iterable) else []
    # four rows in a list are more likely a mistake than a chunk with weights
    if not 2 <= len(items) <= (4 if isinstance(chunk, tuple) else 3):
        pair = "a pair of features and labels, or a tuple of these with groups (or None) and weights"
        raise TypeError(f"a chunk must be {pair}, got {type(chunk).__name__}")
    X, y, groups, weights = (*items, None, None)[:4]
    return X, y, groups, weights


def _name_column(X: Any) -> str:
    """Return the end of a message that names the column with unusable values, if there is one."""
    for name in getattr(X, "columns", ()):
        with suppress(ValueError, TypeError):
            if not np.isinf(np.asarray(X[name], dtype=np.float64)).any():
                continue
        return f" (column {name!r})"
    return ""


PartitionRows = tuple[Partition, int, int]  # a partition, the index of its first event among all, and its length
_BLOCK_ROWS = 1 << 17  # rows of a part


@dataclass
class Survey:
    """Summary of some events."""

    limit: int  # maximum number of distinct values for which a feature is searched exactly
    cutoff: int | None = None  # hashes above this are not in the sample; None if unknown beforehand
    n_rows: int = 0
    labels: Counter[Any] = field(default_factory=Counter)
    label_type: Any = None
    sources: dict[Any, str] = field(default_factory=dict)  # chunk in which each label occurred first
    source: str = ""  # chunk of the first event
    names: tuple[str, ...] | None = None  # of the features
    distinct: list[FloatArray | None] = field(default_factory=list)  # values of each feature; None for more than limit
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))  # of the sampled rows
    sample: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # values of the sampled rows
    groups: frozenset[Any] | None = None  # of all events, if they have any
    weights: dict[Any, WeightSum] | None = None  # of the events of each label, if they have any

    def add(self, chunk: CheckedChunk, first_row: int) -> None:
        """Add a chunk, given the index of its first event among all events."""
        n_rows, n_features = chunk.X.shape
        hashes = _hashes(first_row, n_rows)
        cutoff = self.cutoff if len(self.hashes) < N_SAMPLED else self.hashes.max()
        rows = np.arange(n_rows) if cutoff is None else np.flatnonzero(hashes < np.uint64(cutoff))
        if len(rows) > N_SAMPLED:
            rows = np.sort(np.argpartition(hashes, N_SAMPLED)[:N_SAMPLED])
        too_many = [j for j, values in enumerate(self.distinct) if values is None]
        distinct = [None if j in too_many else few_distinct(chunk.X[:, j], self.limit) for j in range(n_features)]
        found, counts = np.unique(chunk.labels, return_counts=True)
        labels, weights = found.tolist(), None
        if chunk.weights is not None:
            weights = {label: WeightSum.of(chunk.weights[chunk.labels == label]) for label in labels}
        groups = None if chunk.groups is None else frozenset(chunk.groups.tolist())
        self.merge(
            Survey(
                self.limit, self.cutoff, n_rows, Counter(dict(zip(labels, counts.tolist(), strict=True))), found.dtype,
                dict.fromkeys(labels, chunk.source), chunk.source, chunk.names, distinct, hashes[rows],
                chunk.X[rows].astype(np.float64), groups, weights,
            )
        )  # fmt: skip

    def merge(self, other: Survey) -> None:
        """Add other events."""
        if other.n_rows == 0:
            return
        if self.n_rows == 0:
            vars(self).update(vars(other))
            return
        ours, theirs = (f"{len(own.distinct)} features {list(own.names or ())}" for own in (self, other))
        if ours != theirs:
            raise ValueError(f"chunks differ: {ours} in {self.source}, {theirs} in {other.source}")
        for name in ("groups", "weights"):
            if (getattr(self, name) is None) != (getattr(other, name) is None):
                having, without = (self, other) if getattr(other, name) is None else (other, self)
                raise ValueError(f"chunks differ: {name} in {having.source}, none in {without.source}")
        self.n_rows += other.n_rows
        self.labels = self.labels + other.labels
        self.label_type = np.result_type(self.label_type, other.label_type)
        self.sources = other.sources | self.sources
        self.distinct = [_union(a, b, self.limit) for a, b in zip(self.distinct, other.distinct, strict=True)]
        self.hashes = np.concatenate([self.hashes, other.hashes])
        self.sample = np.concatenate([self.sample, other.sample])
        if len(self.hashes) > N_SAMPLED:
            kept = np.argpartition(self.hashes, N_SAMPLED)[:N_SAMPLED]
            self.hashes, self.sample = self.hashes[kept], self.sample[kept]
        if self.groups is not None and other.groups is not None:
            self.groups |= other.groups
        if self.weights is not None and other.weights is not None:
            for label, own in other.weights.items():
                self.weights = {**self.weights, label: self.weights.get(label, WeightSum()) + own}

    def classes(self) -> NDArray[Any]:
        """Return the labels of Off and On; raise ValueError unless there are two classes."""
        if self.n_rows == 0:
            raise ValueError("chunks contain no events: both On and Off events are required")
        if len(self.labels) > 2:
            seen = ", ".join(f"{label!r} in {self.sources[label]}" for label in list(self.labels)[:4])
            raise ValueError(f"Only binary classification is supported: there are {len(self.labels)} labels, {seen}")
        try:
            labels = np.array(sorted(self.labels), dtype=self.label_type)
        except TypeError as error:
            raise ValueError("y mixes labels that cannot be ordered") from error
        return np.array(checks.binary_classes(checks.as_binary_target(labels)))

    def sketch(self) -> NDArray[np.uint64]:
        """Return the hashes of some events, equal to those of all events in memory."""
        return sketch_rows(self.sample[np.argsort(self.hashes)[:N_SKETCHED]])

    def group_names(self) -> list[Any]:
        """Return the groups in order; empty if there are fewer than two, because a single one cannot be left out."""
        try:
            names = sorted(self.groups or ())
        except TypeError as error:
            raise ValueError("groups mixes values that cannot be ordered") from error
        return names if len(names) > 1 else []

    def weight_sums(self) -> tuple[WeightSum, WeightSum] | None:
        """Return the validated weights of On and of Off events; None if there are none, or all are 1."""
        if self.weights is None:
            return None
        off, on = (self.weights[label] for label in self.classes().tolist())
        both = check_weights(on, off, LARGEST_FACTOR)
        if both.all_one:
            return None
        if both.any_zero:
            raise ValueError("sample_weight must be positive for all events of chunks; remove events of weight 0")
        if both.all_whole:
            raise ValueError("integer sample_weight requires a fit in memory; or repeat these events in the chunks")
        return on, off

    def edges(self) -> list[FloatArray]:
        """Return the inner edges of each feature's bins."""
        return [edges_of(values, self.sample[:, j], self.limit) for j, values in enumerate(self.distinct)]


def _union(first: FloatArray | None, second: FloatArray | None, limit: int) -> FloatArray | None:
    if first is None or second is None:
        return None
    values = np.union1d(first, second)
    return values if len(values) <= limit else None


def survey_events(
    executor: Executor, partitions: Sequence[Partition], limit: int, *, shown: bool
) -> tuple[Survey, list[PartitionRows]]:
    """Return the survey of all events, and the rows of each partition."""
    total = Survey(limit)
    if _reads_here(executor, partitions):
        rows = []
        with progress_bar("Inspecting events", None, shown=shown) as tick:
            for partition in partitions:
                first = total.n_rows
                for chunk in read_ahead(check_chunks(partition)):
                    total.add(chunk, total.n_rows)
                    tick(len(chunk.labels))
                rows.append((partition, first, total.n_rows - first))
        return total, rows
    with progress_bar("Inspecting files", 2 * len(partitions), shown=shown) as tick:
        counts = executor.run(_count_rows, [(partition,) for partition in partitions], tick)
        rows = list(zip(partitions, accumulate([0, *counts[:-1]]), counts, strict=True))
        cutoff = _sample_cutoff(sum(counts), N_SAMPLED)
        for survey in executor.run(_survey_partition, [(*own, limit, cutoff) for own in rows], tick):
            total.merge(survey)
    return total, rows


def _reads_here(executor: Executor, partitions: Iterable[Partition]) -> bool:
    """Return whether this process reads the events: always, except for files with a remote executor."""
    return not executor.remote or any(isinstance(partition, Pairs) for partition in partitions)


def _count_rows(partition: Partition) -> int:
    return sum(len(chunk.labels) for chunk in check_chunks(partition))


def _survey_partition(partition: Partition, first_row: int, n_rows: int, limit: int, cutoff: int | None) -> Survey:
    survey = Survey(limit, cutoff)
    for chunk in check_chunks(partition):
        survey.add(chunk, first_row + survey.n_rows)
    _check_unchanged(partition, n_rows, survey.n_rows)
    return survey


def _hashes(first_row: int, n_rows: int) -> NDArray[np.uint64]:
    hashes = np.empty(n_rows, dtype=np.uint64)
    row_hashes(first_row, hashes)
    return hashes


def _sample_cutoff(n_rows: int, n_sampled: int) -> int | None:
    """Return a hash with enough rows below it for the sample, so workers send few others; None for all rows."""
    wanted = n_sampled + 10 * n_sampled**0.5  # hashes are uniform over 64 bits: ten standard deviations more
    return None if wanted >= n_rows else int(2**64 * (wanted / n_rows))


def _check_unchanged(partition: Partition, n_before: int, n_now: int) -> None:
    """Raise ValueError if the number of events of a partition has changed since the first pass."""
    if n_before != n_now:
        gave = f"had {n_before} events at first and {n_now} when read again"
        raise ValueError(f"{partition.name}: {gave}; do not change it during the fit")


def record_bytes(n_features: int) -> int:
    """Return the size of a record: one byte per feature and one for the label, in whole words of eight bytes."""
    return 8 * -(-(n_features + 1) // 8)


@dataclass(frozen=True)
class EventRecords:
    """Events as records of codes."""

    records: NDArray[np.uint64]  # of shape (n_events, n_words)
    first_row: int  # index of the first event among all events, which keys bootstrap weights
    n_features: int
    bag: Bag = WHOLE  # groups and weights of the events, if any

    def __post_init__(self) -> None:
        """Make the records read-only."""
        object.__setattr__(self, "records", read_only(self.records))

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The records as codes."""
        return as_codes(self.records, np.uint8)

    @property
    def on(self) -> BoolArray:
        """Whether each event is On."""
        return (self.codes[:, self.n_features] >> ON_BIT).astype(np.bool_)


class SampledRecords(NamedTuple):
    """Records of a sample, with the hashes of their rows."""

    hashes: NDArray[np.uint64]
    records: NDArray[np.uint64]
    bag: Bag


@dataclass(frozen=True)
class RowSample:
    """Selection of the rows with the smallest hashes of a part, with a margin if their number is unknown."""

    n_events: int  # of all parts
    n_sampled: int

    def __call__(self, events: EventRecords) -> SampledRecords:
        """Return the sampled records of a part."""
        hashes = _hashes(events.first_row, len(events.records))
        cutoff = _sample_cutoff(self.n_events, self.n_sampled)
        rows = np.arange(len(hashes)) if cutoff is None else np.flatnonzero(hashes < np.uint64(cutoff))
        return SampledRecords(hashes[rows], events.records[rows], events.bag.part(rows))


@dataclass(frozen=True)
class Binning:
    """Conversion of events to records."""

    on: Any  # the class of On
    edges: list[FloatArray]  # inner edges of each feature's bins
    groups: list[Any]  # names of all groups, in order; empty without groups
    weighted: bool  # whether event weights are used

    def records(self, chunk: CheckedChunk, threads: int) -> tuple[NDArray[np.uint64], Bag]:
        """Return the events of a chunk as records, with their groups and weights."""
        compile_kernels(chunk.X, 255)
        records = encode_events(chunk.X, np.asarray(chunk.labels == self.on), self.edges, threads)
        return records, chunk.bag(self.groups, weighted=self.weighted)

    def bin_partition(self, partition: Partition, first_row: int, n_rows: int) -> EventRecords:
        """Return the events of a partition as records."""
        found = [self.records(chunk, 1) for chunk in check_chunks(partition)]
        _check_unchanged(partition, n_rows, sum(len(records) for records, _ in found))
        n_features = len(self.edges)
        joined = np.concatenate([empty_records(0, n_features, np.uint8), *(records for records, _ in found)])
        return EventRecords(joined, first_row, n_features, join_bags([bag for _, bag in found]))

    @contextmanager
    def open_parts(
        self, executor: Executor, rows: list[PartitionRows], memory: int, threads: int, *, shown: bool
    ) -> Iterator[list[Any]]:
        """Return parts with the records of all events; temporary files are removed at the end."""
        n_events = sum(n_rows for _, _, n_rows in rows)
        if not _reads_here(executor, (partition for partition, _, _ in rows)):
            with progress_bar("Binning files", len(rows), shown=shown) as tick:
                parts = executor.create_parts(self.bin_partition, rows, tick)
            yield parts
            return
        store = _RecordStore(n_events, len(self.edges), memory, len(self.groups), self.weighted)
        with closing(store):
            with progress_bar("Binning events", n_events, shown=shown) as tick:
                for partition, first, n_rows in rows:
                    for chunk in read_ahead(check_chunks(partition)):
                        store.append(*self.records(chunk, threads))
                        tick(len(chunk.labels))
                    _check_unchanged(partition, n_rows, store.n_rows - first)
            yield executor.scatter(store.parts())


class _RecordStore:
    """Records appended in order; in temporary files if they take more than a sixteenth of the memory."""

    def __init__(self, n_rows: int, n_features: int, memory: int, n_groups: int, has_weights: bool) -> None:
        self._n_features, self._n_groups, self._has_weights = n_features, n_groups, has_weights
        self.n_rows, self._blocks = 0, list[Any]()
        self._temporary: TemporaryDirectory[str] | None = None
        n_bytes = n_rows * (record_bytes(n_features) + 4 * (n_groups > 0) + 8 * has_weights)
        if n_bytes > memory // 16:
            self._temporary = TemporaryDirectory(prefix="excess-")
            self._folder = Path(self._temporary.name)
            free = disk_usage(self._folder).free
            if free < n_bytes:
                self.close()
                sizes = f"binned events take {n_bytes / 1e9:.2f} GB, {free / 1e9:.2f} GB are free"
                raise OSError(f"{self._folder.parent}: {sizes}; set TMPDIR to a folder with more space")

    def close(self) -> None:
        """Remove the files."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def append(self, records: NDArray[np.uint64], bag: Bag) -> None:
        """Add records, with their groups and weights if the store has any."""
        if self._temporary is None:
            for start in range(0, len(records), _BLOCK_ROWS):
                rows = slice(start, start + _BLOCK_ROWS)
                events = EventRecords(records[rows], self.n_rows + start, self._n_features, bag.part(rows))
                self._blocks.append(InMemory(events))
        else:
            try:
                for name, column in (("records", records), ("groups", bag.groups), ("weights", bag.weights)):
                    if column is not None:
                        with (self._folder / name).open("ab") as file:
                            column.tofile(file)
            except OSError as error:
                problem = f"the binned events cannot be written ({error}); check the free space."
                raise OSError(f"{self._folder.parent}: {problem} TMPDIR sets another folder") from error
        self.n_rows += len(records)

    def parts(self) -> list[Any]:
        """Return all records as parts."""
        if self._temporary is None:
            return self._blocks
        return [_InFile(self, row) for row in range(0, self.n_rows, _BLOCK_ROWS)]

    def read(self, first_row: int) -> EventRecords:
        """Return the records of a part."""
        records = self._read("records", np.uint64, first_row, record_bytes(self._n_features) // 8)
        groups = self._read("groups", np.int32, first_row) if self._n_groups > 0 else None
        weights = self._read("weights", np.float64, first_row) if self._has_weights else None
        return EventRecords(records, first_row, self._n_features, Bag(groups, self._n_groups, weights))

    def _read(self, name: str, dtype: Any, first_row: int, *shape: int) -> NDArray[Any]:
        n_rows, width = min(_BLOCK_ROWS, self.n_rows - first_row), math.prod(shape)
        offset = first_row * width * np.dtype(dtype).itemsize
        found = np.fromfile(self._folder / name, dtype=dtype, count=n_rows * width, offset=offset)
        if len(found) != n_rows * width:
            raise OSError(f"{self._folder / name}: the file was truncated during the fit")
        return found.reshape(n_rows, *shape)


@dataclass(frozen=True)
class _InFile:
    """A part in the files of a store."""

    store: _RecordStore
    first_row: int

    def load(self) -> EventRecords:
        return self.store.read(self.first_row)
