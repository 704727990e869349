"""Export of fitted On/Off classifiers to ONNX: score, probability of signal and selection, for other software."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from excess._core.checks import FloatArray, as_choice
from excess._core.errors import require as require_library
from excess._core.files import replacing
from excess._core.version import __version__
from excess.estimators.base import OnOffMixin
from excess.estimators.binned import OnOffBinnedClassifier
from excess.estimators.calibration import SignalCalibration
from excess.estimators.cluster import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier
from excess.estimators.cluster_cells import ClusterCells
from excess.estimators.grown_trees import BaseOnOffTrees, GrownTrees
from excess.estimators.hybrid import LABELS, OnOffHybridClassifier
from excess.estimators.model_file import ModelFileError
from excess.estimators.onnx_builder import EventMatrix, OnnxBuilder
from excess.estimators.score_bins import CUT, score_ends
from excess.estimators.threshold import SignificanceThresholdClassifier

__all__ = ["export_onnx"]

PRECISIONS = ("float64", "float32")
_INPUT = "features"
_BITS_OF_FLOAT32 = 24
"""Whole numbers up to 2 to this power are exact in float32, and so are their sums."""
_CAN_EXPORT = "trees, forests, k-means, and hybrids, bins and tuned thresholds of these"


def export_onnx(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    precision: str = "float64",
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Export a fitted On/Off classifier to ONNX, so that it can be applied without this package, or without Python.

    The model takes one matrix, ``features``, and gives three values for each event: ``score``, the probability of
    being On that the threshold cuts; ``signal_probability``, as `predict_signal_proba`; and ``selected``, whether the
    score exceeds the threshold.

    Parameters
    ----------
    model : On/Off classifier
        Fitted: a tree, a forest, k-means, or a hybrid, bins or a tuned threshold of these.
    path : path-like or None, default=None
        File to write, whole or not at all; one that exists is replaced.
    feature_names : sequence of str or None, default=None
        Names of the features, for the metadata; by default those that the model was fitted with.
    precision : {"float64", "float32"}, default="float64"
        Type of the features and of the results. With float32, cuts of trees are rounded down to float32, so that an
        event whose features are float32 numbers goes the same way as in the model itself.
    metadata : mapping of str to str or None, default=None
        What else the file is to say.

    Returns
    -------
    bytes
        The ONNX model.

    Raises
    ------
    TypeError
        If the model, or one inside it, cannot be exported.
    ModelFileError
        If the file cannot be written.

    See Also
    --------
    OnnxClassifier : Reads it back, as the probability of signal.

    Notes
    -----
    The metadata of the file has ``feature_names``, as JSON, if they are known, ``threshold``, ``alpha`` and
    ``classes``. All arithmetic is in float64, whatever the precision of the features. Trees and forests treat missing
    values (NaN) as the model does; k-means has no rule for them. Building needs ``pip install 'excess[onnx]'``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnnxClassifier, OnOffForestClassifier, export_onnx
    >>> X, on = make_classification(2000, random_state=0)
    >>> forest = OnOffForestClassifier(20, alpha=1.0, random_state=0).fit(X, on)
    >>> exported = OnnxClassifier(export_onnx(forest))
    >>> float(abs(exported.predict_proba(X)[:, 1] - forest.predict_signal_proba(X)).max()) < 1e-9
    True
    """
    as_choice("precision", precision, PRECISIONS)
    if not isinstance(model, OnOffMixin):
        raise TypeError(f"model must be an On/Off classifier, {_CAN_EXPORT}; got {type(model).__name__}")
    check_is_fitted(model)
    require_library("onnx", "exporting a model to ONNX", extra="onnx")
    n_features = int(model.n_features_in_)  # type: ignore[attr-defined]
    names = _names_of(model, feature_names, n_features)
    dtype = np.dtype(precision).type
    graph = OnnxBuilder()
    events = graph.input(_INPUT, dtype, n_features, "One row per event; the metadata feature_names lists the columns.")
    score, probability = add_results(model, graph, events)
    selected = graph.add("Greater", score, graph.constant(np.float64(model.threshold_)))
    outputs = (
        ("score", score, dtype, "Estimated probability that an event is On; the threshold cuts it."),
        ("signal_probability", probability, dtype, "Probability that an event of the On and Off regions is signal."),
        ("selected", selected, np.bool_, "Whether the score exceeds the threshold."),
    )
    for output in outputs:
        graph.output(*output)
    described = {
        **({} if names is None else {"feature_names": json.dumps(names)}),
        "threshold": repr(float(model.threshold_)),
        "alpha": repr(float(model.curve_.alpha)),
        "classes": json.dumps(np.asarray(model.classes_).tolist()),
        "model": type(model).__name__,
        **_describe_bins(model),
        **(metadata or {}),
    }
    content = graph.build(described, producer="excess", version=__version__)
    if path is not None:
        _write(Path(path), content)
    return content


def _names_of(model: Any, given: Sequence[str] | None, n_features: int) -> list[str] | None:
    """Return the names of the features, if they are known."""
    known = getattr(model, "feature_names_in_", None) if given is None else given
    if known is None:
        return None
    names = [str(name) for name in known]
    if len(names) != n_features or len(set(names)) != n_features:
        raise ValueError(f"feature_names must be {n_features} different names, those of the features of the model")
    return names


def _describe_bins(model: Any) -> dict[str, str]:
    """Return the bins of a model that has a threshold for each, for the metadata."""
    if not isinstance(model, OnOffBinnedClassifier):
        return {}
    # JSON has no infinity: the threshold of a bin in which all events, or none, are selected
    thresholds = [own.threshold if math.isfinite(own.threshold) else repr(own.threshold) for own in model.bins_]
    bins = {"column": model._column_of_names(), "edges": list(model.edges), "thresholds": thresholds}
    return {"bins": json.dumps(bins)}


def _write(path: Path, content: bytes) -> None:
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be written: {error.strerror or error}") from error


@singledispatch
def add_results(model: Any, graph: OnnxBuilder, events: EventMatrix) -> tuple[str, str]:
    """Add the nodes of a model, and return the names of scores and of probabilities of signal, both float64 vectors."""
    score = add_score(model, graph, events)
    return score, _add_signal_probability(graph, model.calibration_, score)


@add_results.register
def _(model: OnOffBinnedClassifier, graph: OnnxBuilder, events: EventMatrix) -> tuple[str, str]:
    """Return scores that are moved to the threshold of each bin, and probabilities by the calibration of each."""
    column = model._column_of_names()
    value = graph.as_vector(graph.select(events, [column]))
    kept = [number for number in range(events.n_columns) if model.passthrough or number != column]
    raw = add_score(model.estimator_, graph, graph.select(events, kept))
    results: list[str] = []
    for edge, tuned, calibration in zip((-np.inf, *model.edges), model.bins_, model.calibrations_, strict=True):
        # where nothing was learned, no event is signal
        has_signal = calibration.strength > 0
        probability = _add_signal_probability(graph, calibration, raw) if has_signal else graph.scale(raw, 0.0, 0.0)
        of_bin = [_add_moved(graph, raw, tuned.threshold), probability]
        if results:
            # an event at an edge belongs to the bin above it
            is_above = graph.add("GreaterOrEqual", value, graph.constant(np.float64(edge)))
            results = [graph.add("Where", is_above, *pair) for pair in zip(of_bin, results, strict=True)]
        else:
            results = of_bin
    return results[0], results[1]


def _add_moved(graph: OnnxBuilder, score: str, threshold: float) -> str:
    """Return scores with a threshold at 0.5, as `OnOffBinnedClassifier` moves them."""
    low, high = score_ends(threshold)
    lower = graph.scale(score, CUT / low, 0.0) if low > 0 else graph.scale(score, 0.0, 0.0)
    slope = (1 - CUT) / (1 - high) if high < 1 else 0.0
    upper = graph.scale(score, slope, CUT - slope * high if high < 1 else 1.0)
    # rounding must not move an event across
    lower = graph.add("Min", lower, graph.constant(np.float64(CUT)))
    upper = graph.add("Max", upper, graph.constant(np.nextafter(CUT, 1.0)))
    return graph.add("Where", graph.add("Greater", score, graph.constant(np.float64(threshold))), upper, lower)


@singledispatch
def add_score(model: Any, graph: OnnxBuilder, events: EventMatrix) -> str:
    """Add the nodes that score events by a model, and return the name of the float64 scores, of shape (n_events,)."""
    raise TypeError(f"a {type(model).__name__} cannot be exported to ONNX; {_CAN_EXPORT} can")


@add_score.register
def _(model: BaseOnOffTrees, graph: OnnxBuilder, events: EventMatrix) -> str:
    """Return the mean over trees of the value of an event's leaf."""
    trees = model._trees
    n_trees = len(trees.flat.depths)
    # onnxruntime gives sums over trees as float32. The values are cut into a part whose sums float32 holds exactly, and
    # a small rest, whose rounding error is some 1e-12.
    grid = float(2 ** (_BITS_OF_FLOAT32 - int(n_trees).bit_length()))
    coarse = np.rint(trees.values * grid)
    weights = np.column_stack([coarse, trees.values - coarse / grid])
    sums = graph.as_float64(graph.add_trees(_tree_nodes(trees, events.dtype), weights, events))
    mean = graph.constant(np.array([1 / (grid * n_trees), 1 / n_trees]))
    return graph.add("MatMul", sums.name, mean)


def _tree_nodes(trees: GrownTrees, dtype: Any) -> dict[str, Any]:
    """Return the nodes of all trees as columns: an event goes left where its feature is at most the value."""
    nodes, roots, _ = trees.flat
    sizes = np.diff(roots)
    feature, shift, limit, left = (column.astype(np.int64) for column in nodes.T)
    # codes start at 1, so that with missing values on the left (shift 0) a limit of k means k bins
    n_bins_left = np.where(shift == 0, limit, limit + 1)
    values = np.full(len(nodes), np.inf)  # missing values right, all others left
    for number, edges in enumerate(trees.edges):
        own = (feature == number) & (n_bins_left <= len(edges))
        values[own] = np.append(edges, -np.inf)[n_bins_left[own] - 1]  # 0 bins: missing values left, all others right
    leaves = trees.leaves
    first = np.repeat(roots[:-1], sizes)
    return {
        "tree": np.repeat(np.arange(len(sizes)), sizes),
        "node": np.arange(len(nodes)) - first,
        "feature": np.where(leaves, 0, feature),
        "value": np.where(leaves, 0.0, _rounded_down(values, dtype)).astype(dtype),
        "leaf": leaves,
        "left": np.where(leaves, 0, left - first),
        "right": np.where(leaves, 0, left + 1 - first),
        # leaves have no way to choose, but say that there is a rule for missing values
        "missing_left": leaves | (shift == 0),
    }


def _rounded_down(values: FloatArray, dtype: Any) -> Any:
    """Return the largest numbers of a type that are not above the values: x <= both means the same for such x."""
    with np.errstate(over="ignore"):
        nearest = values.astype(dtype)
    return np.where(nearest > values, np.nextafter(nearest, dtype(-np.inf)), nearest)


@add_score.register(OnOffKMeansClassifier)
@add_score.register(OnOffKMeansEnsembleClassifier)
def _(model: Any, graph: OnnxBuilder, events: EventMatrix) -> str:
    """Return the mean over clusterings of the value of the nearest cluster."""
    centred = graph.add("Sub", graph.as_float64(events).name, graph.constant(model._mean))
    scaled = graph.add("Div", centred, graph.constant(model._scale))
    values = [_add_clusters(graph, cells, scaled) for cells in model._members]
    return graph.add("Div", graph.total(values), graph.constant(np.float64(len(values))))


def _add_clusters(graph: OnnxBuilder, cells: ClusterCells, scaled: str) -> str:
    """Return the value of the nearest cluster."""
    own = graph.add("Gather", scaled, graph.constant(cells.features), axis=1)
    # |x - c|^2 without |x|^2, which all centres have in common
    products = graph.add("MatMul", own, graph.constant(np.ascontiguousarray(-2 * cells.centers.T)))
    distances = graph.add("Add", products, graph.constant((cells.centers**2).sum(axis=1)))
    nearest = graph.add("ArgMin", distances, axis=1, keepdims=0)
    return graph.add("Gather", graph.constant(cells.values), nearest)


@add_score.register
def _(model: OnOffBinnedClassifier, graph: OnnxBuilder, events: EventMatrix) -> str:
    """Return the moved scores."""
    return add_results(model, graph, events)[0]


@add_score.register
def _(model: SignificanceThresholdClassifier, graph: OnnxBuilder, events: EventMatrix) -> str:
    """Return the score of the classifier inside."""
    return add_score(model.estimator_, graph, events)


@add_score.register
def _(model: FrozenEstimator, graph: OnnxBuilder, events: EventMatrix) -> str:
    """Return the score of the classifier inside."""
    return add_score(model.estimator, graph, events)


@add_score.register
def _(model: OnOffHybridClassifier, graph: OnnxBuilder, events: EventMatrix) -> str:
    """Return the mean over the members' probabilities of On, by their trust."""
    names = getattr(model, "feature_names_in_", None)
    columns, kept = model._find_columns(names, events.n_columns)
    features = graph.select(events, kept)
    scores: dict[str, str] = {}
    for name, reference in (model.references or {}).items():
        if name in columns:
            scores[name] = graph.as_vector(graph.select(events, [columns[name]]))
            continue
        wanted = getattr(reference, "feature_names_in_", None)
        known = features
        if wanted is not None and names is not None:
            known = graph.select(events, [list(names).index(feature) for feature in wanted])
        try:
            scores[name] = add_score(reference, graph, known)
        except TypeError as error:
            raise TypeError(f"reference {name!r}: {error}; train the hybrid without it") from error
    with_references = graph.append(features, list(scores.values()))
    for name, learner in model.estimators_.items():
        scores[name] = add_score(learner, graph, features if name == LABELS else with_references)
    parts = []
    for member in model.members_:
        on_probability = _add_on_probability(graph, model._calibrations[member.name], scores[member.name])
        parts.append(graph.add("Mul", on_probability, graph.constant(np.float64(member.trust))))
    return graph.total(parts)


def _add_signal_probability(graph: OnnxBuilder, calibration: SignalCalibration, score: str) -> str:
    """Return the probability of signal, as `SignalCalibration.signal_probability` computes it."""
    on_probability = _add_on_probability(graph, calibration, score)
    odds = graph.add("Div", on_probability, graph.add("Sub", graph.constant(np.float64(1)), on_probability))
    above = graph.add("Sub", odds, graph.constant(np.float64(calibration.alpha)))
    excess = graph.add("Max", above, graph.constant(np.float64(0)))
    return graph.add("Div", excess, graph.add("Add", excess, graph.constant(np.float64(1 + calibration.alpha))))


def _add_on_probability(graph: OnnxBuilder, calibration: SignalCalibration, score: str) -> str:
    """Return the probability of On, interpolated between the steps of a calibration."""
    return graph.interpolate(score, calibration.score, calibration.on_probability)
