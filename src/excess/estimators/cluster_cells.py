"""Clusters of events with the counts of On and Off events in each: the cells that k-means classifiers score by."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import ThreadpoolController

from excess._core.checks import BoolArray, FloatArray
from excess.estimators.model_state import StoredArrays, cut_array, require
from excess.stats.curve import compute_cell_curve

_BATCH = 8192
_FEW = 256
_find_thread_pools = cache(ThreadpoolController)  # it takes longer than to score a few events
_JOINED = {"centers": np.float64, "n_on": np.int64, "n_off": np.int64, "fraction": np.float64, "values": np.float64}
"""Arrays of which a model file holds those of all clusterings one after the other."""


@dataclass(frozen=True)
class ClusterCells:
    """The clusters of some features, in scaled units, with what their training events say."""

    features: NDArray[np.int64]  # that the clusters are made of
    centers: FloatArray  # of shape (n_clusters, n_used)
    n_on: NDArray[np.int64]  # training events in each cluster, bootstrap weights included
    n_off: NDArray[np.int64]
    fraction: FloatArray  # of On; that of all events for a cluster without any
    values: FloatArray  # what a cluster says about its events: the On fraction, or 0 and 1

    def numbers(self, X: FloatArray) -> NDArray[np.int64]:
        """Return the nearest centre of each event."""
        if len(X) == 0:
            return np.zeros(0, dtype=np.int64)
        # to start threads takes longer than to compare a few events
        with use_one_thread("openmp") if len(X) <= _FEW else nullcontext():
            return pairwise_distances_argmin(X[:, self.features], self.centers).astype(np.int64)

    def score(self, X: FloatArray) -> FloatArray:
        """Return the value of the nearest cluster of each event."""
        return self.values[self.numbers(X)]

    def with_votes(self, alpha: float) -> ClusterCells:
        """Return the same clusters with 0 and 1 by their assignment in place of On fractions."""
        threshold = compute_cell_curve(self.fraction, self.n_on, self.n_off, alpha).best_threshold
        return replace(self, values=(self.fraction > threshold).astype(np.float64))


def use_one_thread(user_api: str) -> AbstractContextManager[Any]:
    """Let OpenMP or BLAS run on one thread, so that sums have the same bits on every machine."""
    return _find_thread_pools().limit(limits=1, user_api=user_api)


def find_cells(
    X: FloatArray,
    on: BoolArray,
    features: NDArray[np.int64],
    weights: NDArray[np.uint8],
    n_clusters: int,
    algorithm: str,
    seed: int,
) -> ClusterCells:
    """Cluster weighted events in some features and count On and Off in each cluster."""
    in_bag = np.flatnonzero(weights)
    events = np.ascontiguousarray(X[np.ix_(in_bag, features)])
    weight = weights[in_bag].astype(np.float64)
    shared: dict[str, Any] = {"n_clusters": min(n_clusters, len(events)), "n_init": 1, "random_state": seed}
    kmeans = KMeans(**shared) if algorithm == "lloyd" else MiniBatchKMeans(batch_size=_BATCH, **shared)
    with use_one_thread("openmp"):
        number = kmeans.fit(events, sample_weight=weight).labels_
    n_on, n_off, fraction = count_clusters(number, on[in_bag], len(kmeans.cluster_centers_), weight)
    return ClusterCells(features, kmeans.cluster_centers_, n_on, n_off, fraction, fraction)


class CellCounts(NamedTuple):
    """Events in each cluster, and the On fraction: that of all events for a cluster without any."""

    n_on: NDArray[np.int64]
    n_off: NDArray[np.int64]
    fraction: FloatArray


def count_clusters(
    number: NDArray[Any], on: BoolArray, n_clusters: int, weight: FloatArray | None = None
) -> CellCounts:
    """Count On and Off events, or their weights, in each cluster."""
    weight = np.ones(len(number)) if weight is None else weight
    n_on = np.bincount(number, weights=weight * on, minlength=n_clusters).astype(np.int64)
    n = np.bincount(number, weights=weight, minlength=n_clusters).astype(np.int64)
    fraction = np.divide(n_on, n, out=np.full(n_clusters, n_on.sum() / n.sum()), where=n > 0)
    return CellCounts(n_on, n - n_on, fraction)


def cells_to_arrays(members: list[ClusterCells]) -> dict[str, NDArray[Any]]:
    """Return clusterings as arrays of a model file, by name."""
    return {
        "features": np.stack([cells.features for cells in members]),
        "n_clusters": np.array([len(cells.centers) for cells in members], dtype=np.int64),
        **{name: np.concatenate([getattr(cells, name) for cells in members]) for name in _JOINED},
    }


def cells_from_arrays(arrays: StoredArrays, n_features: int) -> list[ClusterCells]:
    """Make clusterings from the arrays of a model file; ValueError unless they are clusterings."""
    features = arrays.take("features", np.int64, None, None)
    require(bool(((features >= 0) & (features < n_features)).all()), "it clusters a feature that does not exist")
    # each once: events are copied with the features of a clustering
    require(bool((np.diff(np.sort(features, axis=1), axis=1) > 0).all()), "it clusters a feature more than once")
    n_clusters = arrays.take("n_clusters", np.int64, len(features))
    require(len(n_clusters) > 0 and bool((n_clusters > 0).all()), "it has no clusters")
    centers = arrays.take("centers", np.float64, None, features.shape[1])
    others = [arrays.take(name, dtype, len(centers)) for name, dtype in list(_JOINED.items())[1:]]
    # copies, so that linear algebra finds them in memory as it did before
    members = zip(features, *(cut_array(array, n_clusters) for array in (centers, *others)), strict=True)
    return [ClusterCells(*(array.copy() for array in member)) for member in members]
