"""The survey of all events before a fit: their number, their classes, and the edges of the bins.

The edges follow from the distinct values of a feature, as long as there are few, and otherwise from a sample: the
``N_SAMPLED`` rows whose numbers among all events have the smallest hashes. Both are sets that do not depend on how
events are divided into chunks, so that the edges are those of the fit in memory, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d, validate_data

from excess._core.checks import (
    FloatArray,
    as_binary_target,
    as_column,
    as_counts,
    as_labels,
    binary_classes,
    check_same_length,
)
from excess._core.errors import prefix_errors
from excess._core.rng import LARGEST_FACTOR, row_hashes
from excess.distributed.sources import Partition
from excess.estimators._forest.bags import Bag
from excess.estimators._forest.binning import N_SAMPLED, edges_of, few_distinct
from excess.estimators.event_weights import WeightSum, check_weights
from excess.estimators.forest import OnOffForestClassifier


@dataclass(frozen=True)
class CheckedChunk:
    """A chunk with at least one event: features, labels, names of the features, its own name, groups and weights."""

    X: NDArray[Any]
    labels: NDArray[Any]
    names: tuple[str, ...] | None
    source: str
    groups: NDArray[Any] | None = None
    weights: FloatArray | None = None

    def bag(self, names: list[Any], *, weighted: bool) -> Bag:
        """Return the numbers of the groups among all groups, which have these names in order, and the weights.

        Without names there are no groups.
        """
        weights = self.weights if weighted else None
        if weighted and weights is None:
            raise ValueError(f"{self.source}: has no weights as at first; leave it as it is while it is in use")
        if not names:
            return Bag(weights=weights)
        numbers = {name: number for number, name in enumerate(names)}
        try:
            groups = [numbers[name] for name in self.groups.tolist()]  # type: ignore[union-attr]
        except (KeyError, AttributeError) as error:
            raise ValueError(
                f"{self.source}: has other groups than at first; leave it as it is while it is in use"
            ) from error
        return Bag(np.array(groups, dtype=np.int32), len(names), weights)


def check_chunks(partition: Partition) -> Iterator[CheckedChunk]:
    """Yield the chunks of a partition as arrays; errors name the partition."""
    chunks = partition.chunks()
    number = 0
    while True:
        with prefix_errors(partition.name):
            pair = next(chunks, None)
        if pair is None:
            return
        source = f"{partition.name}, chunk {number}"
        with prefix_errors(source):
            X, y, given, sample_weight = _items_of(pair)
            number += 1
            if len(y) == 0:
                continue
            labels = as_labels(column_or_1d(y, warn=True))
            blank = OnOffForestClassifier()
            try:
                floats = validate_data(
                    blank, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", ensure_min_samples=1
                )
            except (ValueError, TypeError) as error:
                raise type(error)(f"{error}{_name_column(X)}") from error
            check_same_length(X=floats, y=labels)
            groups = None if given is None else as_labels(given, name="groups")
            if groups is not None:
                check_same_length(y=labels, groups=groups)
            weights = None
            if sample_weight is not None:
                weights = as_counts("sample_weight", as_column("sample_weight", sample_weight))
                check_same_length(y=labels, sample_weight=weights)
            names = getattr(blank, "feature_names_in_", None)
        yield CheckedChunk(floats, labels, None if names is None else tuple(names), source, groups, weights)


def _items_of(chunk: Any) -> tuple[Any, Any, Any, Any]:
    """Return features, labels, groups and weights of a chunk; the last two may be None."""
    # four rows in a list are more likely a mistake than a chunk with weights
    most = 4 if isinstance(chunk, tuple) else 3
    try:
        X, y, *further = chunk
    except (TypeError, ValueError):
        further = [None] * most
    if len(further) > most - 2:
        raise TypeError(
            "a chunk must be a pair of features and labels, or these with groups, or a tuple of these with groups (or "
            f"None) and weights, got {type(chunk).__name__}"
        )
    groups, weights = (*further, None, None)[:2]
    return X, y, groups, weights


def _name_column(X: Any) -> str:
    """Return the end of a message that names the column with values that cannot be used, if there is one."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return ""
    for name in columns:
        try:
            values = np.asarray(X[name], dtype=np.float64)
        except (ValueError, TypeError):
            return f" (column {name!r})"
        if np.isinf(values).any():
            return f" (column {name!r})"
    return ""


@dataclass
class Survey:
    """Summary of some events."""

    limit: int  # distinct values up to which a feature is searched exactly
    cutoff: int | None = None  # hashes from here on are surely not in the sample; None if that is not known beforehand
    n_rows: int = 0
    labels: dict[Any, int] = field(default_factory=dict)  # events of each label
    label_type: Any = None
    sources: dict[Any, str] = field(default_factory=dict)  # chunk in which each label was seen first
    source: str = ""  # chunk of the first event
    names: tuple[str, ...] | None = None  # of the features
    distinct: list[FloatArray | None] = field(default_factory=list)  # values of each feature; None for more than limit
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))  # of the sampled rows
    sample: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # values of the sampled rows
    groups: frozenset[Any] | None = None  # of all events, if they have any
    weights: dict[Any, WeightSum] | None = None  # of the events of each label, if they have any

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.distinct)

    def add(self, chunk: CheckedChunk, first_row: int) -> None:
        """Add a chunk, whose first event has this number among all events."""
        if self.n_rows > 0:
            self._check_features(chunk.X.shape[1], chunk.names, chunk.source)
        groups = None if chunk.groups is None else frozenset(chunk.groups.tolist())
        hashes = np.empty(len(chunk.X), dtype=np.uint64)
        row_hashes(first_row, hashes)
        cutoff = self.cutoff if len(self.hashes) < N_SAMPLED else self.hashes.max()
        rows = np.arange(len(hashes)) if cutoff is None else np.flatnonzero(hashes < np.uint64(cutoff))
        if len(rows) > N_SAMPLED:
            rows = np.sort(np.argpartition(hashes, N_SAMPLED)[:N_SAMPLED])
        known = self.distinct or [np.empty(0)] * chunk.X.shape[1]
        distinct = [
            None if seen is None else few_distinct(chunk.X[:, feature], self.limit)
            for feature, seen in enumerate(known)
        ]
        labels, counts = np.unique(chunk.labels, return_counts=True)
        weights = None
        if chunk.weights is not None:
            weights = {label: WeightSum.of(chunk.weights[chunk.labels == label]) for label in labels.tolist()}
        self.merge(
            Survey(
                self.limit,
                self.cutoff,
                len(chunk.X),
                dict(zip(labels.tolist(), counts.tolist(), strict=True)),
                labels.dtype,
                dict.fromkeys(labels.tolist(), chunk.source),
                chunk.source,
                chunk.names,
                distinct,
                hashes[rows],
                chunk.X[rows].astype(np.float64),
                groups,
                weights,
            )
        )

    def merge(self, other: Survey) -> None:
        """Add other events."""
        if other.n_rows == 0:
            return
        if self.n_rows == 0:
            self.names, self.distinct, self.sample = other.names, list(other.distinct), other.sample
            self.hashes, self.label_type, self.source = other.hashes, other.label_type, other.source
            self.groups, self.weights = other.groups, None if other.weights is None else dict(other.weights)
        else:
            self._check_features(other.n_features, other.names, other.source)
            self.distinct = [_union(a, b, self.limit) for a, b in zip(self.distinct, other.distinct, strict=True)]
            self.hashes = np.concatenate([self.hashes, other.hashes])
            self.sample = np.concatenate([self.sample, other.sample])
            if self.label_type != other.label_type:
                self.label_type = np.result_type(self.label_type, other.label_type)
            for name in ("groups", "weights"):
                if (getattr(self, name) is None) != (getattr(other, name) is None):
                    having, without = (self, other) if getattr(other, name) is None else (other, self)
                    raise ValueError(f"chunks differ: {name} in {having.source}, none in {without.source}")
            if self.groups is not None and other.groups is not None:
                self.groups |= other.groups
            if self.weights is not None and other.weights is not None:
                for label, own in other.weights.items():
                    self.weights[label] = self.weights.get(label, WeightSum()) + own
        if len(self.hashes) > N_SAMPLED:
            kept = np.argpartition(self.hashes, N_SAMPLED)[:N_SAMPLED]
            self.hashes, self.sample = self.hashes[kept], self.sample[kept]
        self.n_rows += other.n_rows
        for label, count in other.labels.items():
            self.labels[label] = self.labels.get(label, 0) + count
            self.sources.setdefault(label, other.sources[label])

    def _check_features(self, n_features: int, names: tuple[str, ...] | None, source: str) -> None:
        if (n_features, names) != (self.n_features, self.names):
            ours, theirs = _describe(self.n_features, self.names), _describe(n_features, names)
            raise ValueError(f"chunks differ: {ours} in {self.source}, {theirs} in {source}")

    def classes(self) -> NDArray[Any]:
        """Return the labels of Off and On; ValueError unless there are two classes."""
        if self.n_rows == 0:
            raise ValueError("chunks hold no events: On and Off events are both needed")
        if len(self.labels) > 2:
            seen = ", ".join(f"{label!r} in {self.sources[label]}" for label in list(self.labels)[:4])
            raise ValueError(f"Only binary classification is supported: there are {len(self.labels)} labels, {seen}")
        try:
            labels = np.array(sorted(self.labels), dtype=self.label_type)
        except TypeError as error:
            raise ValueError("y mixes labels that cannot be ordered") from error
        return np.array(binary_classes(as_binary_target(labels)))

    def n_on(self) -> int:
        """Return the number of On events."""
        return self.labels[self.classes()[1].item()]

    def group_names(self) -> list[Any]:
        """Return the groups in order; none where there are fewer than two, because a single one cannot be left out."""
        try:
            names = sorted(self.groups or ())
        except TypeError as error:
            raise ValueError("groups mixes values that cannot be ordered") from error
        return names if len(names) > 1 else []

    def weight_sums(self) -> tuple[WeightSum, WeightSum] | None:
        """Return the weights of On and of Off events; None where there are none, or all are 1.

        Raise ValueError where they cannot be used.
        """
        if self.weights is None:
            return None
        off, on = (self.weights[label] for label in self.classes().tolist())
        both = check_weights(on, off, LARGEST_FACTOR)
        if both.all_one:
            return None
        if both.any_zero:
            raise ValueError("sample_weight must be positive for all events of chunks; leave out events of weight 0")
        if both.all_whole:
            raise ValueError(
                "sample_weight of whole numbers stands for repeated events; repeat them in the chunks, or fit in memory"
            )
        return on, off

    def edges(self) -> list[FloatArray]:
        """Return the inner edges of each feature's bins."""
        return [edges_of(values, self.sample[:, j], self.limit) for j, values in enumerate(self.distinct)]


def _describe(n_features: int, names: tuple[str, ...] | None) -> str:
    return f"{n_features} features" if names is None else f"{n_features} features {list(names)}"


def _union(first: FloatArray | None, second: FloatArray | None, limit: int) -> FloatArray | None:
    if first is None or second is None:
        return None
    values = np.union1d(first, second)
    return values if len(values) <= limit else None


def count_rows(partition: Partition) -> int:
    """Return the number of events of a partition."""
    return sum(len(chunk.labels) for chunk in check_chunks(partition))


def survey_partition(partition: Partition, first_row: int, n_rows: int, limit: int, cutoff: int | None) -> Survey:
    """Return the survey of a partition, which must still have ``n_rows`` events."""
    survey = Survey(limit, cutoff)
    for chunk in check_chunks(partition):
        survey.add(chunk, first_row + survey.n_rows)
    check_unchanged(partition, n_rows, survey.n_rows)
    return survey


def check_unchanged(partition: Partition, n_before: int, n_now: int) -> None:
    """Raise ValueError if the number of events of a partition has changed since it was read first."""
    if n_before != n_now:
        raise ValueError(
            f"{partition.name}: gave {n_before} events at first and {n_now} when read again; leave it as it is while "
            "it is in use"
        )


def sample_cutoff(n_rows: int) -> int | None:
    """Return a hash with enough rows below it for the sample, and not many more; None if all rows are needed.

    With it, workers do not send more rows than needed. Hashes are uniform over 64 bits.
    """
    wanted = N_SAMPLED + 10 * N_SAMPLED**0.5  # ten standard deviations more than enough
    return None if wanted >= n_rows else int(2**64 * (wanted / n_rows))
