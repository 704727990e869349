"""The survey of all events before a fit: how many, which classes, and the edges of the bins.

What is kept of a chunk does not depend on how events are cut into chunks: the distinct values of a feature, as long as
they are few, and the values in the rows whose numbers have the smallest hashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d, validate_data

from excess._checks import FloatArray, as_binary_target, as_labels, binary_classes, check_same_length
from excess._forest.binning import N_SAMPLED, edges_of, few_distinct
from excess._rng import row_hashes
from excess.distributed.sources import Partition

__all__ = ["CheckedChunk", "Survey", "checked_chunks", "count_rows", "survey_partition"]


@dataclass(frozen=True)
class CheckedChunk:
    """A chunk with at least one event: floats, labels, and the names of the features if there are any."""

    X: NDArray[Any]
    labels: NDArray[Any]
    names: tuple[str, ...] | None


def checked_chunks(partition: Partition) -> Iterator[CheckedChunk]:
    """Give the chunks of a partition in one form; errors name the partition."""
    from excess.forest import OnOffForestClassifier

    chunks = partition.chunks()
    number = 0
    while True:
        with _naming(f"{partition.name}: "):
            pair = next(chunks, None)
        if pair is None:
            return
        with _naming(f"{partition.name}, chunk {number}: "):
            try:
                X, y = pair
            except (TypeError, ValueError) as error:
                raise TypeError(f"a chunk must be a pair of features and labels, got {type(pair).__name__}") from error
            number += 1
            if len(y) == 0:
                continue
            labels = as_labels(column_or_1d(y, warn=True))
            blank = OnOffForestClassifier()
            X = validate_data(
                blank, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", ensure_min_samples=1
            )
            check_same_length(X=X, y=labels)
            names = getattr(blank, "feature_names_in_", None)
        yield CheckedChunk(X, labels, None if names is None else tuple(names))


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Put the place in front of what errors about events say, unless they say it."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if where.rstrip(": ").split(", chunk ")[0] in str(error):
            raise
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{where}{error}") from error


@dataclass
class Survey:
    """What is known of some events.

    Attributes
    ----------
    limit : int
        Distinct values up to which a feature is searched exactly.
    n_rows : int
        Events.
    labels : dict
        Events of each label.
    names : tuple of str or None
        Names of the features.
    distinct : list of (ndarray or None)
        The distinct values of each feature; None if there are more than ``limit``.
    hashes, sample : ndarray
        The rows with the smallest hashes.
    """

    limit: int
    n_rows: int = 0
    labels: dict[Any, int] = field(default_factory=dict)
    label_type: Any = None
    names: tuple[str, ...] | None = None
    distinct: list[FloatArray | None] = field(default_factory=list)
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    sample: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.distinct)

    def add(self, chunk: CheckedChunk, first_row: int) -> None:
        """Take account of a chunk, whose first event has this number among all."""
        if self.n_rows > 0:
            self._check_same(chunk.X.shape[1], chunk.names)
        hashes = np.empty(len(chunk.X), dtype=np.uint64)
        row_hashes(first_row, hashes)
        rows = np.arange(len(hashes)) if len(self.hashes) < N_SAMPLED else np.flatnonzero(hashes < self.hashes.max())
        if len(rows) > N_SAMPLED:
            rows = np.sort(np.argpartition(hashes, N_SAMPLED)[:N_SAMPLED])
        known = self.distinct or [np.empty(0)] * chunk.X.shape[1]
        distinct = [
            None if seen is None else few_distinct(chunk.X[:, feature], self.limit)
            for feature, seen in enumerate(known)
        ]
        labels, counts = np.unique(chunk.labels, return_counts=True)
        self.merge(
            Survey(
                self.limit,
                len(chunk.X),
                dict(zip(labels.tolist(), counts.tolist(), strict=True)),
                labels.dtype,
                chunk.names,
                distinct,
                hashes[rows],
                chunk.X[rows].astype(np.float64),
            )
        )

    def merge(self, other: Survey) -> None:
        """Take account of other events."""
        if other.n_rows == 0:
            return
        if self.n_rows == 0:
            self.names, self.distinct, self.sample = other.names, list(other.distinct), other.sample
            self.hashes, self.label_type = other.hashes, other.label_type
        else:
            self._check_same(other.n_features, other.names)
            self.distinct = [_union(a, b, self.limit) for a, b in zip(self.distinct, other.distinct, strict=True)]
            self.hashes = np.concatenate([self.hashes, other.hashes])
            self.sample = np.concatenate([self.sample, other.sample])
            if self.label_type != other.label_type:
                self.label_type = np.result_type(self.label_type, other.label_type)
        if len(self.hashes) > N_SAMPLED:
            kept = np.argpartition(self.hashes, N_SAMPLED)[:N_SAMPLED]
            self.hashes, self.sample = self.hashes[kept], self.sample[kept]
        self.n_rows += other.n_rows
        for label, count in other.labels.items():
            self.labels[label] = self.labels.get(label, 0) + count

    def _check_same(self, n_features: int, names: tuple[str, ...] | None) -> None:
        if (n_features, names) != (self.n_features, self.names):
            raise ValueError(
                f"chunks differ: {self.n_features} features {list(self.names or ())} in the first, "
                f"{n_features} features {list(names or ())} in another"
            )

    def classes(self) -> NDArray[Any]:
        """Return Off and On; ValueError unless there are two classes."""
        if self.n_rows == 0:
            raise ValueError("chunks hold no events: On and Off events are both needed")
        try:
            labels = np.array(sorted(self.labels), dtype=self.label_type)
        except TypeError as error:
            raise ValueError("y mixes labels that cannot be ordered") from error
        return np.array(binary_classes(as_binary_target(labels)))

    def n_on(self) -> int:
        """Return the number of On events."""
        return self.labels[self.classes()[1].item()]

    def edges(self) -> list[FloatArray]:
        """Return the inner edges of each feature's bins."""
        return [edges_of(values, self.sample[:, j], self.limit) for j, values in enumerate(self.distinct)]


def _union(first: FloatArray | None, second: FloatArray | None, limit: int) -> FloatArray | None:
    if first is None or second is None:
        return None
    values = np.union1d(first, second)
    return values if len(values) <= limit else None


def count_rows(partition: Partition) -> int:
    """Return the number of events of a partition."""
    return sum(len(chunk.labels) for chunk in checked_chunks(partition))


def survey_partition(partition: Partition, first_row: int, limit: int) -> Survey:
    """Survey the events of a partition, the first of which has this number among all."""
    survey = Survey(limit)
    for chunk in checked_chunks(partition):
        with _naming(f"{partition.name}: "):
            survey.add(chunk, first_row + survey.n_rows)
    return survey
