"""Model files: a fitted estimator in one file that holds data only.

Reading one interprets numbers and text, never code: the class is one of four, an array has one of a few types and lies
within the file, and what the compiled kernels use as an index is checked. The bytes are the matter of ``_model_file``.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from excess._core.checks import as_scalar_alpha, as_threshold, binary_classes
from excess._core.version import __version__
from excess.estimators._forest.ensemble import edges_code_type
from excess.estimators._forest.predictor import FlatTrees, leaf_mask
from excess.estimators.cluster import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier, _Cells
from excess.estimators.forest import OnOffForestClassifier
from excess.estimators.grown_trees import GrownTrees
from excess.estimators.model_bytes import FORMAT_VERSION, MAGIC, ModelFileError, read_model, require, write_model
from excess.estimators.tree import OnOffTreeClassifier
from excess.stats.curve import ThresholdCurve

__all__ = ["FORMAT_VERSION", "ModelFileError", "is_model_file", "load", "read_header", "save"]

PathLike = str | os.PathLike[str]

_MAX_NESTING = 50
_WAYS_OUT = {"random_state": "None", "threshold": "model.threshold_"}
"""Values by which parameters that a file cannot hold may be replaced."""


class State(NamedTuple):
    """What an estimator has learnt beyond what all On/Off classifiers share.

    Attributes
    ----------
    attributes : dict
        Numbers, by name.
    arrays : dict of ndarray
        Arrays, by name.
    """

    attributes: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def save(model: Any, path: PathLike, *, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator to a file.

    Parameters
    ----------
    model : estimator
        A fitted `OnOffTreeClassifier`, `OnOffForestClassifier`, `OnOffKMeansClassifier` or
        `OnOffKMeansEnsembleClassifier`.
    path : str or path-like
        The file. One that exists is replaced, at once and only when the new one is complete.
    metadata : mapping or None, default=None
        What else to keep with the model, such as units, training groups or the configuration of the analysis: text as
        keys; text, finite numbers, bools, None, lists and further mappings as values.

    Raises
    ------
    ModelFileError
        If the file cannot be written; one that was there before is left as it was.
    NotFittedError
        If the model is not fitted.
    TypeError
        If the model is another estimator, a parameter is an object (a function as ``threshold``, a ``RandomState``), or
        metadata is not JSON.

    See Also
    --------
    load : Reads the file.
    read_header : Reads what it says about the model.

    Notes
    -----
    The loaded model scores, selects and explains events to the same bits. It lacks ``oob_decision_function_``, which is
    as large as the training set; ``curve_`` is kept. The file does not say when it was written, so that the same fit
    with the same versions of the packages gives the same bytes; put a date into ``metadata`` if you want one. The
    parameters, ``n_jobs`` and ``verbose`` among them, are in the file as they are now.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess import OnOffTreeClassifier
    >>> from excess.estimators.model_file import load, save
    >>> tree = OnOffTreeClassifier(alpha=0.2).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "tree.excess"
    ...     save(tree, path, metadata={"source": "Crab Nebula", "nights": [20131001, 20131002]})
    ...     again = load(path)
    >>> again.predict([[0.5], [2.5]])
    array([0, 1])
    """
    kind = _KINDS.get(type(model).__name__)
    if kind is None or type(model) is not kind.estimator:
        raise TypeError(
            f"a model file holds one of {', '.join(_KINDS)}, not {type(model).__name__}; use joblib for other "
            "estimators, at your own risk, because loading its files runs code from them"
        )
    check_is_fitted(model, "curve_")
    own = kind.state_of(model)
    features = getattr(model, "feature_names_in_", None)
    header = {
        "format_version": FORMAT_VERSION,
        "class": type(model).__name__,
        "versions": {
            "excess": __version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "python": platform.python_version(),
        },
        "parameters": {name: _parameter(name, value) for name, value in model.get_params(deep=False).items()},
        "n_features": int(model.n_features_in_),
        "feature_names": None if features is None else [str(name) for name in features],
        "alpha": model.curve_.alpha,
        "threshold": _number(model.threshold_),
        "attributes": {name: _number(value) for name, value in own.attributes.items()},
        "metadata": _metadata({} if metadata is None else metadata),
    }
    names = ("scores", "thresholds", "n_on", "n_off", "significance")
    curve = {f"curve_{name}": getattr(model.curve_, name) for name in names}
    write_model(Path(path), header, {"classes": model.classes_, **curve, **own.arrays})


def load(path: PathLike) -> Any:
    """Read a fitted estimator from a file that `save` has written.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        Fitted, of the class and with the parameters that were saved. It lacks ``oob_decision_function_``.

    Raises
    ------
    ModelFileError
        If there is no such file, it is not a model file, a single bit of it has changed, or it was written in a newer
        format. No code from the file is run, whatever it holds.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess import OnOffKMeansClassifier
    >>> from excess.estimators.model_file import load
    >>> model = OnOffKMeansClassifier(2, random_state=0).fit([[0.0], [1.0], [8.0], [9.0]], ["off", "off", "on", "on"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "clusters.excess"
    ...     model.save(path)
    ...     again = load(path)
    >>> again
    OnOffKMeansClassifier(n_clusters=2, random_state=0)
    >>> print(again.predict([[0.5], [8.5]]))
    ['off' 'on']
    """
    header, arrays = read_model(Path(path))
    name = header["class"]
    if name not in _KINDS:
        raise ModelFileError(
            f"{path} holds a model of the class {name!r}, which excess {__version__} does not know, only "
            f"{', '.join(_KINDS)}; upgrade excess"
        )
    try:
        return _restored(_KINDS[name], header, _Arrays(arrays))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ModelFileError(f"{path} does not hold a valid {name}: {error}") from error


def read_header(path: PathLike) -> dict[str, Any]:
    """Read what a model file says about its model; the whole file is checked.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    dict
        ``format_version``, ``class``, ``versions`` (of excess, numpy, scikit-learn and python), ``parameters``,
        ``n_features``, ``feature_names`` (in order; None if there were none), ``classes`` (Off and On), ``alpha``,
        ``threshold``, ``attributes`` (numbers that the estimator learnt besides) and ``metadata`` as given to `save`.

    Raises
    ------
    ModelFileError
        As for `load`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess import OnOffTreeClassifier
    >>> from excess.estimators.model_file import read_header
    >>> tree = OnOffTreeClassifier(alpha=0.2).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "tree.excess"
    ...     tree.save(path, metadata={"units": {"width": "mm"}})
    ...     header = read_header(path)
    >>> header["class"], header["alpha"], header["classes"], header["metadata"]
    ('OnOffTreeClassifier', 0.2, [0, 1], {'units': {'width': 'mm'}})
    """
    header, arrays = read_model(Path(path))
    if "classes" not in arrays:
        raise ModelFileError(f"{path} does not hold a valid model: classes is missing")
    return {**header, "classes": arrays["classes"].tolist()}


def is_model_file(path: PathLike) -> bool:
    """Say whether a file begins as a model file does; whether it is whole, `load` and `read_header` find out.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    bool
        False as well if there is no such file, or it cannot be read.

    Examples
    --------
    >>> from excess.estimators.model_file import is_model_file
    >>> is_model_file("crab.excess")
    False
    """
    path = Path(path)
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


# What estimators are made of.


class _Arrays:
    """The arrays of a file, handed out once each and as what they are expected to be."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._left = dict(arrays)

    def take(self, name: str, dtype: Any, *shape: int | None) -> NDArray[Any]:
        """Return an array of a dtype (None for any) and a shape, in which None is any length."""
        if name not in self._left:
            raise ValueError(f"{name} is missing")
        array = self._left.pop(name)
        fits = array.ndim == len(shape) and all(
            wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
        )
        if not fits or (dtype is not None and array.dtype != dtype):
            raise ValueError(f"{name} is an array of {array.dtype} of shape {array.shape}")
        return array

    def check_all_taken(self) -> None:
        require(not self._left, f"nothing is known of {', '.join(self._left)}")


def _restored(kind: _Kind, header: dict[str, Any], arrays: _Arrays) -> Any:
    """Make the estimator that a file describes."""
    unknown = set(header["parameters"]) - set(kind.estimator._get_param_names())
    require(not unknown, f"this release does not know its parameters {', '.join(sorted(unknown))}; upgrade excess")
    # a parameter that an older release did not have yet takes its default
    model = kind.estimator(**header["parameters"])
    n_features, names = header["n_features"], header["feature_names"]
    require(n_features >= 1, f"n_features is {n_features}")
    model.n_features_in_ = n_features
    if names is not None:
        require(
            len(names) == n_features and all(type(name) is str for name in names),
            f"feature_names are not {n_features} texts",
        )
        model.feature_names_in_ = np.array(names, dtype=object)
    model.classes_ = arrays.take("classes", None, 2).copy()
    require(
        tuple(model.classes_) == binary_classes(model.classes_, name="classes"), "its classes are not in sorted order"
    )
    model.threshold_ = as_threshold("threshold", header["threshold"])
    scores = arrays.take("curve_scores", np.float64, None)
    model.curve_ = ThresholdCurve(
        scores,
        thresholds=arrays.take("curve_thresholds", np.float64, len(scores) + 1),
        n_on=arrays.take("curve_n_on", np.int64, len(scores) + 1),
        n_off=arrays.take("curve_n_off", np.int64, len(scores) + 1),
        significance=arrays.take("curve_significance", np.float64, len(scores) + 1),
        alpha=as_scalar_alpha(header["alpha"]),
    )
    kind.restore(model, header["attributes"], arrays)
    arrays.check_all_taken()
    return model


def _trees_state(trees: GrownTrees) -> dict[str, NDArray[Any]]:
    return {
        **trees.flat._asdict(),
        "n_on": trees.n_on,
        "n_off": trees.n_off,
        "values": trees.values,
        "n_edges": np.array([len(edges) for edges in trees.edges], dtype=np.int64),
        "edges": np.concatenate(trees.edges),
    }


def _restored_trees(arrays: _Arrays, n_features: int) -> GrownTrees:
    nodes = arrays.take("nodes", np.uint32, None, 4)
    depths = arrays.take("depths", np.int64, None)
    flat = FlatTrees(nodes, arrays.take("roots", np.int64, len(depths) + 1), depths)
    edges = _parts(arrays.take("edges", np.float64, None), arrays.take("n_edges", np.int64, n_features))
    trees = GrownTrees(
        flat,
        list(edges),
        n_on=arrays.take("n_on", np.int64, len(nodes)),
        n_off=arrays.take("n_off", np.int64, len(nodes)),
        values=arrays.take("values", np.float64, len(nodes)),
    )
    _check_nodes(trees, n_features)
    return trees


def _check_nodes(trees: GrownTrees, n_features: int) -> None:
    """Check what the kernels rely on, because they read memory at these numbers without looking."""
    nodes, roots, depths = trees.flat
    require(len(nodes) < 2**32 and len(depths) > 0, "it has no trees, or too many nodes")
    require(bool((roots >= 0).all() and (roots <= len(nodes)).all()), "a root is none of its nodes")
    sizes = np.diff(roots)
    require(roots[0] == 0 and roots[-1] == len(nodes) and bool((sizes > 0).all()), "its roots do not span its nodes")
    require(bool((depths >= 0).all() and (depths < sizes).all()), "a tree is deeper than it is large")
    feature, shift, limit, left = nodes.T
    last = np.repeat((roots[1:] - 1).astype(np.uint32), sizes)
    goes_on = (left > np.arange(len(nodes), dtype=np.uint32)) & (left < last)
    stays = leaf_mask(trees.flat) & (shift == 0) & (limit == np.iinfo(edges_code_type(trees.edges)).max)
    require(bool((goes_on | stays).all()), "a node has a child that is not of its tree")
    require(bool((feature < n_features).all()), "a node cuts on a feature that does not exist")


def _tree_state(model: OnOffTreeClassifier) -> State:
    return State({}, {**_trees_state(model._trees), "has_missing": model._has_missing})


def _restore_tree(model: OnOffTreeClassifier, attributes: dict[str, Any], arrays: _Arrays) -> None:
    model._trees = _restored_trees(arrays, model.n_features_in_)
    require(len(model._trees.flat.depths) == 1, "it has several trees")
    model._has_missing = arrays.take("has_missing", np.bool_, model.n_features_in_)


def _forest_state(model: OnOffForestClassifier) -> State:
    attributes = {"min_samples_leaf": model.min_samples_leaf_, "oob_significance": model.oob_significance_}
    return State(attributes, _trees_state(model._trees))


def _restore_forest(model: OnOffForestClassifier, attributes: dict[str, Any], arrays: _Arrays) -> None:
    model._trees = _restored_trees(arrays, model.n_features_in_)
    model.min_samples_leaf_ = int(attributes["min_samples_leaf"])
    model.oob_significance_ = float(attributes["oob_significance"])


def _cells_state(model: Any, members: list[_Cells]) -> dict[str, NDArray[Any]]:
    joined = ("centers", "n_on", "n_off", "fraction", "values")
    return {
        "mean": model._mean,
        "scale": model._scale,
        "features": np.stack([cells.features for cells in members]),
        "n_clusters": np.array([len(cells.centers) for cells in members], dtype=np.int64),
        **{name: np.concatenate([getattr(cells, name) for cells in members]) for name in joined},
    }


def _restored_cells(model: Any, arrays: _Arrays) -> list[_Cells]:
    """Set the scale of the features; return the clusterings."""
    model._mean = arrays.take("mean", np.float64, model.n_features_in_)
    model._scale = arrays.take("scale", np.float64, model.n_features_in_)
    features = arrays.take("features", np.int64, None, None)
    require(
        bool(((features >= 0) & (features < model.n_features_in_)).all()), "it clusters a feature that does not exist"
    )
    n_clusters = arrays.take("n_clusters", np.int64, len(features))
    require(len(n_clusters) > 0 and bool((n_clusters > 0).all()), "it has no clusters")
    centers = arrays.take("centers", np.float64, None, features.shape[1])
    joined = [
        centers,
        arrays.take("n_on", np.int64, len(centers)),
        arrays.take("n_off", np.int64, len(centers)),
        arrays.take("fraction", np.float64, len(centers)),
        arrays.take("values", np.float64, len(centers)),
    ]
    # copies, so that linear algebra finds them in memory as it did before
    members = zip(features, *(_parts(array, n_clusters) for array in joined), strict=True)
    return [_Cells(*(array.copy() for array in member)) for member in members]


def _kmeans_state(model: OnOffKMeansClassifier) -> State:
    public = {"cluster_centers": model.cluster_centers_, "assignment": model.assignment_}
    return State({}, {**_cells_state(model, [model._cells]), **public})


def _restore_kmeans(model: OnOffKMeansClassifier, attributes: dict[str, Any], arrays: _Arrays) -> None:
    members = _restored_cells(model, arrays)
    require(len(members) == 1, "it has several clusterings")
    model._cells = members[0]
    model.n_on_, model.n_off_ = model._cells.n_on, model._cells.n_off
    model.cluster_centers_ = arrays.take("cluster_centers", np.float64, len(model.n_on_), model.n_features_in_)
    model.assignment_ = arrays.take("assignment", np.bool_, len(model.n_on_))


def _kmeans_ensemble_state(model: OnOffKMeansEnsembleClassifier) -> State:
    return State({"oob_significance": model.oob_significance_}, _cells_state(model, model._members))


def _restore_kmeans_ensemble(model: OnOffKMeansEnsembleClassifier, attributes: dict[str, Any], arrays: _Arrays) -> None:
    model._members = _restored_cells(model, arrays)
    model.oob_significance_ = float(attributes["oob_significance"])


class _Kind(NamedTuple):
    """An estimator that can be saved: its class, what it has learnt, and how to give that back to a new one."""

    estimator: Any
    state_of: Callable[[Any], State]
    restore: Callable[[Any, dict[str, Any], _Arrays], None]


_KINDS = {
    kind.estimator.__name__: kind
    for kind in (
        _Kind(OnOffTreeClassifier, _tree_state, _restore_tree),
        _Kind(OnOffForestClassifier, _forest_state, _restore_forest),
        _Kind(OnOffKMeansClassifier, _kmeans_state, _restore_kmeans),
        _Kind(OnOffKMeansEnsembleClassifier, _kmeans_ensemble_state, _restore_kmeans_ensemble),
    )
}


def _parts(array: NDArray[Any], lengths: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """Cut an array into parts of these lengths, which must use it up."""
    ends = np.cumsum(lengths, dtype=np.int64)
    require(bool((lengths >= 0).all() and (lengths <= len(array)).all()), "the parts of an array have no valid length")
    require(int(ends[-1]) == len(array), "the parts of an array do not add up")
    return (array[start:end] for start, end in pairwise([0, *ends.tolist()]))


# What may stand in a header.


def _scalar(value: Any) -> bool | int | float | str | None:
    """Return a value as JSON knows it; TypeError if it is none of these."""
    if type(value) is np.ndarray and value.ndim == 0:
        value = value[()]
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    raise TypeError


def _number(value: Any) -> Any:
    """Return a scalar for the header; JSON has no words for infinity and NaN, so they are wrapped."""
    value = _scalar(value)
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _parameter(name: str, value: Any) -> Any:
    try:
        return _number(value)
    except TypeError as error:
        new = _WAYS_OUT.get(name, "...")
        raise TypeError(
            f"{name} is a {type(value).__name__}, which a model file cannot hold; call "
            f"model.set_params({name}={new}) before saving, which leaves the fitted model as it is"
        ) from error


def _metadata(metadata: Any, where: str = "metadata", depth: int = 0) -> Any:
    """Return metadata as JSON knows it; NumPy numbers and arrays become numbers and lists."""
    if depth > _MAX_NESTING:
        raise ValueError(f"metadata must be nested at most {_MAX_NESTING} deep")
    if isinstance(metadata, Mapping):
        if not all(isinstance(key, str) for key in metadata):
            raise TypeError(f"{where} must have text as keys, got {list(metadata)!r:.60}")
        return {key: _metadata(value, f"{where}[{key!r}]", depth + 1) for key, value in metadata.items()}
    if depth == 0:
        raise TypeError(f"metadata must be a mapping, got a {type(metadata).__name__}")
    if isinstance(metadata, np.ndarray) and metadata.ndim > 0 and metadata.dtype.kind in "biufUO":
        metadata = metadata.tolist()
    if isinstance(metadata, (list, tuple)):
        return [_metadata(value, f"{where}[{i}]", depth + 1) for i, value in enumerate(metadata)]
    try:
        value = _scalar(metadata)
    except TypeError as error:
        raise TypeError(
            f"{where} is a {type(metadata).__name__}, which a model file cannot hold; give text or numbers"
        ) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which JSON cannot hold; give None or text")
    return value
