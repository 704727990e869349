"""A classifier that was trained elsewhere and comes as an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import _num_features, validate_data

from excess._core.checks import FloatArray
from excess._core.errors import prefix_errors
from excess._core.errors import require as require_library
from excess._core.inputs import kind_of_file
from excess._core.reading_watch import noted
from excess.estimators.model_file import ModelFileError
from excess.estimators.model_file import save as save_model
from excess.estimators.model_state import State, StoredArrays, require, saveable
from excess.estimators.onnx_graph import MAX_SIZE, OnnxGraph, OnnxValue

__all__ = ["OnnxClassifier"]

_N_BATCH = 65536  # events that are scored at once: with dictionaries as output, each takes some 300 bytes
_TOLERANCE = 1e-3
"""How far the probabilities of float32 sums may be from 0 to 1, and two of them from adding up to 1."""
_NO_PROBABILITIES = (
    "which are no probabilities; export the model with a sigmoid or softmax at its end, or give its scores to "
    "OnOffHybridClassifier as a column"
)


class _Content(bytes):
    """The bytes of a model, which are not shown."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@saveable
class OnnxClassifier(ClassifierMixin, BaseEstimator):
    """A classifier from an ONNX file, such as one that was trained on simulations by others.

    It is fitted from the beginning and stays as it is: ``fit`` and `sklearn.base.clone` return the classifier itself.
    As a reference of `OnOffHybridClassifier` it goes into the model file, so that the hybrid can be applied anywhere.

    Parameters
    ----------
    model : path or bytes
        An ONNX model of two classes, in a single file. It takes the features as one matrix, or as several inputs side
        by side, of float32 or float64. It gives probabilities: as skl2onnx writes them, with or without ``zipmap``, or
        as one output with a column for each class, or with that of the signal alone.
    feature_names : sequence of str or None, default=None
        Names of the features, in the order of the model. With them, tables are checked, and a hybrid takes the right
        columns from them. By default those that the file lists, as files of `export_onnx` do, or the names of the
        inputs, if each is one feature.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The classes that the model names, in sorted order; 0 and 1 if it names none.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they are known.

    Raises
    ------
    ModelFileError
        If the file is no ONNX model, is damaged, keeps values in other files, or is no classifier of two classes.

    See Also
    --------
    OnOffHybridClassifier : Learns how far to trust it.

    Notes
    -----
    The larger class in sorted order is the signal, as everywhere in this package.

    Most ONNX models compute with float32: features are rounded to 24 bits, so that an event next to a cut of a tree may
    be on its other side, and probabilities differ from those of the exported model by some 1e-6. Predictions use one
    thread, so that they do not depend on the number of cores.

    Where a file has no rule for missing values, they would go some way that nobody chose, so they are refused. Forests
    of scikit-learn lose their rule when skl2onnx (1.20) exports them.

    It needs ``pip install 'excess[onnx]'`` for predictions; reading and writing files does not. An ONNX model holds no
    code of Python, no library of operators is loaded for it, and values in other files are refused. Predictions
    interpret it with onnxruntime, which may take any time and memory; take models from those you trust.

    Examples
    --------
    >>> from excess import OnnxClassifier
    >>> try:
    ...     OnnxClassifier("forest.onnx")
    ... except ValueError as error:
    ...     print(error)
    forest.onnx does not exist
    """

    _in_state = ("model", "feature_names")

    def __init__(self, model: str | os.PathLike[str] | bytes, *, feature_names: Sequence[str] | None = None) -> None:
        self.model = _Content(model) if isinstance(model, bytes) else model
        self.feature_names = feature_names
        self._read()

    def _read(self) -> None:
        """Read the file and what it says about features and classes: there is nothing that ``fit`` could do later."""
        self._content = self.model if isinstance(self.model, bytes) else _read_file(self.model)
        self._session: Any = None
        # a single text is one name, and not a name for each letter
        given = [self.feature_names] if isinstance(self.feature_names, str) else self.feature_names
        names = None if given is None else list(given)
        try:
            graph = OnnxGraph.read(self._content)
            names = _names_in_file(graph) if names is None else names
            self._takes_missing = graph.takes_missing
            self._output = _find_probabilities(graph)
            self._labels = _find_classes(graph, self._output)
            self._inputs, widths = _find_inputs(graph, names)
        except ValueError as error:
            raise ModelFileError(f"{self._name} {error}") from error
        self._ends = np.cumsum(widths)
        self.classes_ = np.sort(self._labels)
        self.n_features_in_ = int(self._ends[-1])
        if names is None and len(widths) > 1 and max(widths) == 1:
            names = [value.name for value in self._inputs]
        if names is not None:
            _check_names(names, self.n_features_in_, self._name)
            self.feature_names_in_ = np.array(names, dtype=object)

    @property
    def _name(self) -> str:
        return "the ONNX model" if isinstance(self.model, bytes) else os.fspath(self.model)

    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> Self:
        """Do nothing: the model was trained elsewhere.

        Parameters
        ----------
        X, y, **fit_params
            Ignored.

        Returns
        -------
        self
        """
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of the two classes.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events. Missing values (NaN) are refused unless the model has a rule for them.

        Returns
        -------
        ndarray of shape (n_events, 2)
            One column for each of ``classes_``; they add up to 1.
        """
        finite = "allow-nan" if self._takes_missing else True
        with prefix_errors(self._name):
            n_given = _num_features(X)
            if n_given != self.n_features_in_:
                names = getattr(self, "feature_names_in_", None)
                wanted = "" if names is None else f": {', '.join(names)}"
                raise ValueError(
                    f"takes {self.n_features_in_} features, but X has {n_given}; give those that it was trained on, in "
                    f"their order{wanted}"
                )
            events = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], ensure_all_finite=finite)
        session = self._open()
        score = np.concatenate([self._score(session, events[part]) for part in gen_batches(len(events), _N_BATCH)])
        return np.column_stack([1 - score, score])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of events.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events.

        Returns
        -------
        ndarray of shape (n_events,)
            The second class where its probability is above 0.5.
        """
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(np.intp)]

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Write the classifier to a model file, as those of this package; `load` reads it.

        Parameters
        ----------
        path : str or path-like
            The file. One that exists is replaced, at once and only when the new one is complete.
        metadata : mapping or None, default=None
            What else to keep with the model, as for `OnOffHybridClassifier`.
        """
        save_model(self, path, metadata=metadata)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and read the model anew.

        Parameters
        ----------
        **params
            ``model`` and ``feature_names``.

        Returns
        -------
        self
        """
        super().set_params(**params)
        if params:
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            self._read()
        return self

    def __sklearn_clone__(self) -> Self:
        """Return the classifier itself, as frozen estimators of scikit-learn do."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Say that it was trained."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier, and whether it takes missing values."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = self._takes_missing
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the model itself, also where it came from a file, but no open session."""
        return {**super().__getstate__(), "_session": None}

    def _get_state(self) -> State:
        return {}, {"onnx": np.frombuffer(self._content, dtype=np.uint8)}

    @classmethod
    def _from_state(cls, header: dict[str, Any], arrays: StoredArrays) -> Self:
        """Return the classifier of a model file."""
        require(not header["parameters"] and not header["attributes"], "it has parameters that are not known")
        return cls(arrays.take("onnx", np.uint8, None).tobytes(), feature_names=header["feature_names"])

    def _open(self) -> Any:
        """Return the session of onnxruntime, which is opened once."""
        if self._session is None:
            runtime = require_library("onnxruntime", "applying an ONNX model", extra="onnx")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.use_deterministic_compute = True
            options.log_severity_level = 4  # errors are raised, and not printed as well
            options.add_session_config_entry("session.load_model_format", "ONNX")
            try:
                with noted(self._name):
                    self._session = runtime.InferenceSession(
                        self._content, sess_options=options, providers=["CPUExecutionProvider"]
                    )
            except Exception as error:  # onnxruntime has many types, all of them direct heirs of Exception
                raise ModelFileError(
                    f"{self._name} cannot be opened by onnxruntime {runtime.__version__}: {_first_line(error)}; if the "
                    "model was exported by newer software, upgrade onnxruntime"
                ) from error
        return self._session

    def _score(self, session: Any, X: NDArray[Any]) -> FloatArray:
        """Return the probabilities of the second class."""
        parts = np.split(X, self._ends[:-1], axis=1)
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and beyond any cut
            inputs = {
                value.name: np.ascontiguousarray(part, dtype=value.kind)
                for value, part in zip(self._inputs, parts, strict=True)
            }
        try:
            with noted(self._name):
                (found,) = session.run([self._output.name], inputs)
        except Exception as error:
            raise ModelFileError(f"{self._name} cannot be applied: {_first_line(error)}") from error
        if self._output.kind == "maps":
            found = self._from_maps(found)
        score = np.asarray(found, dtype=np.float64)
        if score.ndim == 2 and score.shape[1] == 2:
            if (abs(score.sum(axis=1) - 1) > _TOLERANCE).any():
                raise ModelFileError(f"{self._name} gives columns that do not add up to 1, {_NO_PROBABILITIES}")
            score = score[:, int(np.argmax(self._labels))]
        elif score.shape not in ((len(X),), (len(X), 1)):
            raise ModelFileError(
                f"{self._name} gives {self._output.name!r} of shape {score.shape} for {len(X)} events; a classifier of "
                "two classes gives a probability for each event, or two"
            )
        score = score.reshape(-1)
        if ((score < -_TOLERANCE) | (score > 1 + _TOLERANCE)).any():
            raise ModelFileError(
                f"{self._name} gives values from {np.nanmin(score):g} to {np.nanmax(score):g}, {_NO_PROBABILITIES}"
            )
        return np.clip(score, 0, 1)

    def _from_maps(self, maps: list[dict[Any, float]]) -> FloatArray:
        """Return the columns of dictionaries, in the order of the labels."""
        if set(maps[0]) != set(self._labels.tolist()):
            raise ModelFileError(
                f"{self._name} gives probabilities of {list(maps[0])!r:.80}, not of {self._labels.tolist()}; give a "
                "model of two classes"
            )
        return np.array([[one[label] for label in self._labels.tolist()] for one in maps])


def _read_file(path: Any) -> bytes:
    """Return the bytes of a file that may be an ONNX model."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"model must be the path of an ONNX file, or its bytes, got {type(path).__name__}; a ModelProto gives them "
            "by SerializeToString()"
        )
    try:
        if (kind := kind_of_file(Path(path))) is not None:
            raise ModelFileError(f"{path} is {kind}")
        size = Path(path).stat().st_size
        if size > MAX_SIZE:
            raise ModelFileError(f"{path} has {size} bytes; an ONNX model has {MAX_SIZE} at most")
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise ModelFileError(f"{path} does not exist") from error
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error


def _find_inputs(graph: OnnxGraph, names: list[str] | None) -> tuple[tuple[OnnxValue, ...], list[int]]:
    """Return the inputs and the number of features in each."""
    require(bool(graph.inputs), "takes no input; give a classifier")
    widths = []
    for value in graph.inputs:
        require(
            value.kind in ("float32", "float64") and value.shape is not None and len(value.shape) == 2,
            f"takes {value}, but events are matrices of float32 or float64; export it with one matrix of all features",
        )
        n_events, width = value.shape or (None, None)
        require(
            n_events is None,
            f"takes {n_events} events at a time; export it with an input {value.name!r} of any number of events",
        )
        if width is None and names is not None and len(graph.inputs) == 1:
            width = len(names)
        require(width is not None, f"does not say how many features {value.name!r} has; give feature_names")
        widths.append(int(width or 0))
    return graph.inputs, widths


def _names_in_file(graph: OnnxGraph) -> list[str] | None:
    """Return the names of features that a file lists, if they can be those of its only input."""
    names = graph.feature_names
    if names is None or len(set(names)) < len(names) or len(graph.inputs) != 1:
        return None
    shape = graph.inputs[0].shape
    return list(names) if shape is not None and shape[-1:] in ((None,), (len(names),)) else None


def _find_probabilities(graph: OnnxGraph) -> OnnxValue:
    """Return the output with the probabilities."""
    found = [value for value in graph.outputs if value.kind in ("float32", "float64", "maps")]
    likely = [value for value in found if "prob" in value.name.lower()]
    if len(found) > 1 and len(likely) == 1:
        found = likely
    given = ", ".join(map(str, graph.outputs)) or "nothing"
    require(bool(found), f"gives no probabilities, only {given}; export a classifier with probabilities")
    require(
        len(found) == 1,
        f"gives several outputs, and none of them is known to hold the probabilities: {given}; export it with one, "
        "as skl2onnx does with options={'zipmap': False}",
    )
    return found[0]


def _find_classes(graph: OnnxGraph, output: OnnxValue) -> NDArray[Any]:
    """Return the classes in the order of the columns."""
    labels = graph.class_labels or (0, 1)
    n_columns = output.shape[1] if output.shape is not None and len(output.shape) == 2 else None
    n_classes = len(labels) if len(labels) != 2 else (n_columns or 2)
    # 1 column: the probability of the second class
    require(
        n_classes <= 2 and len(set(labels)) == 2,
        f"is no classifier of two classes, but of {n_classes}; train it to tell signal from background",
    )
    return np.array(labels)


def _check_names(names: list[Any], n_features: int, model: str) -> None:
    if len(names) != n_features or len(set(names)) != n_features or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"feature_names must be {n_features} different texts, the features of {model}; got {names!r:.200}"
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
