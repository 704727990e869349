"""ONNX: import of third-party classifiers, and export of fitted On/Off classifiers."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import singledispatch
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import gen_batches
from sklearn.utils.validation import _num_features, check_is_fitted, validate_data

from excess._utils.checks import FloatArray, as_choice, kind_of_file
from excess._utils.errors import first_line, prefix_errors, require
from excess._utils.files import replacing
from excess._utils.version import __version__
from excess.estimators._base import OnOffMixin, SignalCalibration
from excess.estimators._binned import CUT, OnOffBinnedClassifier, score_end
from excess.estimators._boosting import BoostedClassifier
from excess.estimators._hybrid import LABELS, OnOffHybridClassifier
from excess.estimators._kmeans import OnOffKMeansClassifier, OnOffKMeansEnsembleClassifier
from excess.estimators._model_file import ModelFileError, ensure, saveable
from excess.estimators._model_file import save as save_model
from excess.estimators._threshold import SignificanceThresholdClassifier
from excess.estimators._tree import BaseOnOffTrees, ScoringTrees

_logger = logging.getLogger("excess")

MAX_SIZE = 2**31 - 1  # bytes; protobuf has no larger messages
_MAX_PARTS = 1_000_000  # maximum number of messages in a model; nodes of a forest are stored as numbers
_KINDS = {1: "float32", 7: "int64", 8: "text", 9: "bool", 10: "float16", 11: "float64"}
_CLASS_LABELS = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
_DAMAGED = "is damaged or not an ONNX model"
_N_BATCH = 65536  # events scored at once: with dictionaries as output, each takes about 300 bytes
_TOLERANCE = 1e-3  # tolerance of float32 probabilities beyond 0 and 1, and of the sum of two of them
_NO_PROBABILITIES = "which are not probabilities; add a sigmoid or softmax, or use the scores as a reference column"
_IN_OTHER_FILES = "stores values in other files, which are never opened; export it with save_as_external_data=False"


class _Value(NamedTuple):
    """An input or an output of a model."""

    name: str
    kind: str  # element type, "maps" for a dictionary of probabilities per event, or "other"
    shape: tuple[int | None, ...] | None  # known dimensions

    @classmethod
    def of(cls, info: Any) -> _Value:
        """Parse a ValueInfoProto."""
        ensure(isinstance(info.name, str), _DAMAGED)  # protobuf returns invalid UTF-8 as bytes
        if info.type.WhichOneof("value") != "tensor_type":
            is_maps = info.type.sequence_type.elem_type.WhichOneof("value") == "map_type"
            return cls(info.name, "maps" if is_maps else "other", None)
        tensor = info.type.tensor_type
        shape = tuple(max(own.dim_value, 0) or None for own in tensor.shape.dim) if tensor.HasField("shape") else None
        return cls(info.name, _KINDS.get(tensor.elem_type, "other"), shape)

    def __str__(self) -> str:
        """Return a description for messages."""
        shape = "" if self.shape is None else " of shape " + str([n or "any" for n in self.shape]).replace("'", "")
        return f"{self.name!r} ({self.kind}{shape})"


def _parse(content: bytes) -> Any:
    """Return the ModelProto of a file; messages of ValueError continue after its name."""
    ensure(len(content) > 0, "is empty; use an ONNX model")
    ensure(len(content) <= MAX_SIZE, f"has {len(content)} bytes; an ONNX model has {MAX_SIZE} at most")
    ensure(content[4:8] != b"ORTM", "is in the format of onnxruntime, not in that of ONNX; use the .onnx file")
    onnx = require("onnx", "reading an ONNX model", extra="onnx")
    protobuf = require("google.protobuf.message", "reading an ONNX model", extra="onnx")
    try:
        model = onnx.load_model_from_string(content)
    except protobuf.DecodeError as error:
        raise ValueError(_DAMAGED) from error
    ensure(model.HasField("graph") and len(model.opset_import) > 0, _DAMAGED)
    _check_tensors(model)
    return model


def _check_tensors(model: Any) -> None:
    """Raise ValueError for a tensor with external data, anywhere in a model, or for too many messages."""
    waiting, n_parts = [model], 0
    while waiting:
        message = waiting.pop()
        if message.DESCRIPTOR.name == "TensorProto":
            ensure(not message.external_data and message.data_location == 0, _IN_OTHER_FILES)
        for field, value in message.ListFields():
            if field.message_type is not None:
                parts = (value,) if hasattr(value, "ListFields") else value
                n_parts += len(parts)
                ensure(n_parts <= _MAX_PARTS, f"has too many parts, above the maximum of {_MAX_PARTS:,}")
                waiting.extend(parts)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Prepend the name of a model to messages of ValueError."""
    try:
        yield
    except ValueError as error:
        raise ModelFileError(f"{name} {error}") from error


class _Content(bytes):
    """The bytes of a model, which are not shown."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


class _OnnxState(NamedTuple):
    """The bytes of an ONNX model."""

    onnx: NDArray[np.uint8]


@saveable
class OnnxClassifier(ClassifierMixin, BaseEstimator):
    """Third-party classifier from an ONNX file, such as one trained on simulations.

    It is already fitted: ``fit`` and `sklearn.base.clone` return the classifier itself. A model file can contain it as
    a reference of `OnOffHybridClassifier`.

    Parameters
    ----------
    model : path or bytes
        ONNX model of two classes, in a single file. Its input is float32 or float64 features, as one matrix or as
        several inputs; its output probabilities as from skl2onnx, or a column for each class or for the signal only.
    feature_names : sequence of str or None, default=None
        Names of the features, in the order of the model, used to check tables and to select columns in a hybrid. By
        default those listed in the file, as by `export_onnx`, or of the inputs, if each is one feature.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Classes named in the model, in sorted order; 0 and 1 if there are none.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if known.

    Raises
    ------
    ModelFileError
        If the file is not a valid ONNX model, uses external data, or is not a classifier of two classes.

    Notes
    -----
    Requires ``pip install 'excess[onnx]'``. The larger class in sorted order is the signal. Predictions use one thread,
    so they do not depend on the number of cores; most models use float32, so an event close to a cut may be on its
    other side. Missing values are an error unless the model defines a rule for them. An ONNX model contains no Python
    code, and no operator library is loaded, but applying it with onnxruntime may take any time and memory.

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
        """Read the file, its features and classes, since ``fit`` does nothing."""
        self._content = self.model if isinstance(self.model, bytes) else _read_file(self.model)
        self._session: Any = None
        # a single string is one name, not one name per letter
        given = [self.feature_names] if isinstance(self.feature_names, str) else self.feature_names
        names = None if given is None else list(given)
        with _named(self._name):
            model = _parse(self._content)
            # files of early versions list the weights among the inputs
            weights = {tensor.name for tensor in model.graph.initializer}
            self._inputs = tuple(_Value.of(own) for own in model.graph.input if own.name not in weights)
            names = _names_in_file(model, self._inputs) if names is None else names
            self._takes_missing = any(map(_handles_missing, model.graph.node))
            self._output = _find_probabilities([_Value.of(own) for own in model.graph.output])
            self._labels = _find_classes(model.graph.node, self._output)
            self._ends = np.cumsum(_find_widths(self._inputs, names))
        self.classes_ = np.sort(self._labels)
        self.n_features_in_ = int(self._ends[-1])
        if names is None and len(self._inputs) == self.n_features_in_ > 1:
            names = [value.name for value in self._inputs]
        if names is not None:
            known = len(names) == len(set(names)) == self.n_features_in_ and all(isinstance(own, str) for own in names)
            wanted = f"{self.n_features_in_} different strings, the features of {self._name}"
            ensure(known, f"feature_names must be {wanted}; got {names!r:.200}")
            self.feature_names_in_ = np.array(names, dtype=object)

    @property
    def _name(self) -> str:
        return "the ONNX model" if isinstance(self.model, bytes) else os.fspath(self.model)

    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> Self:
        """Return the classifier unchanged; arguments are ignored."""
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of ``classes_``, of shape (n_events, 2); NaN requires a model with a rule for it."""
        finite = "allow-nan" if self._takes_missing else True
        with prefix_errors(self._name):
            n_given, wanted = _num_features(X), ", ".join(getattr(self, "feature_names_in_", ()))
            given = f"requires {self.n_features_in_} features, but X has {n_given}; pass those of its training"
            ensure(n_given == self.n_features_in_, f"{given}, in their order{wanted and ': '}{wanted}")
            events = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], ensure_all_finite=finite)
        session = self._open()
        with _named(self._name):
            score = np.concatenate([self._score(session, events[part]) for part in gen_batches(len(events), _N_BATCH)])
        return np.column_stack([1 - score, score])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of events, the second one above a probability of 0.5; shape (n_events,)."""
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(np.intp)]

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Write the classifier to a model file, which `load` reads, with metadata as those of other models."""
        save_model(self, path, metadata=metadata)

    def set_params(self, **params: Any) -> Self:
        """Set ``model`` or ``feature_names``, and read the model again."""
        super().set_params(**params)
        if params:
            self.__dict__.pop("feature_names_in_", None)
            self._read()
        return self

    def __sklearn_clone__(self) -> Self:
        """Return the classifier itself, like frozen estimators of scikit-learn."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return True, because it was trained elsewhere."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Declare a binary classifier, and whether it supports missing values."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = self._takes_missing
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled state: the model itself, even from a file, without an open session."""
        return {**super().__getstate__(), "_session": None}

    def _get_state(self) -> _OnnxState:
        return _OnnxState(np.frombuffer(self._content, dtype=np.uint8))

    @classmethod
    def _from_state(cls, state: _OnnxState, feature_names: list[str] | None, _: NDArray[Any]) -> Self:
        return cls(state.onnx.tobytes(), feature_names=feature_names)

    def _open(self) -> Any:
        """Return the session of onnxruntime, opened once."""
        if self._session is None:
            runtime = require("onnxruntime", "applying an ONNX model", extra="onnx")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.use_deterministic_compute = True
            options.log_severity_level = 4  # errors are raised, and not printed as well
            options.add_session_config_entry("session.load_model_format", "ONNX")
            try:
                _logger.debug("%s: opening the ONNX model", self._name)
                self._session = runtime.InferenceSession(self._content, options, ["CPUExecutionProvider"])
            except Exception as error:  # onnxruntime has many types, all derived directly from Exception
                problem = f"cannot be opened by onnxruntime {runtime.__version__}: {first_line(error)}"
                remedy = "if the model was exported by newer software, upgrade onnxruntime"
                raise ModelFileError(f"{self._name} {problem}; {remedy}") from error
        return self._session

    def _score(self, session: Any, X: NDArray[Any]) -> FloatArray:
        """Return the probabilities of the second class."""
        parts = zip(self._inputs, np.split(X, self._ends[:-1], axis=1), strict=True)
        with np.errstate(over="ignore"):  # values beyond float32 are infinite, and beyond any cut
            inputs = {value.name: np.ascontiguousarray(part, dtype=value.kind) for value, part in parts}
        try:
            (found,) = session.run([self._output.name], inputs)
        except Exception as error:
            raise ValueError(f"cannot be applied: {first_line(error)}") from error
        if self._output.kind == "maps":  # one dictionary per event: columns in the order of the labels
            labels = self._labels.tolist()
            given = f"gives probabilities of {list(found[0])!r:.80}, not of {labels}"
            ensure(set(found[0]) == set(labels), f"{given}; use a model of two classes")
            found = [[one[label] for label in labels] for one in found]
        score = np.asarray(found, dtype=np.float64)
        shape = f"gives {self._output.name!r} of shape {score.shape} for {len(X)} events"
        if score.ndim == 2 and score.shape[1] == 2:
            adds_up = (abs(score.sum(axis=1) - 1) <= _TOLERANCE).all()
            ensure(adds_up, f"gives columns that do not add up to 1, {_NO_PROBABILITIES}")
            score = score[:, [int(np.argmax(self._labels))]]
        known = score.shape in ((len(X),), (len(X), 1))
        ensure(known, f"{shape}; a classifier of two classes gives a probability for each event, or two")
        beyond = ((score < -_TOLERANCE) | (score > 1 + _TOLERANCE)).any()
        ensure(not beyond, f"gives values from {score.min():g} to {score.max():g}, {_NO_PROBABILITIES}")
        return np.clip(score.reshape(-1), 0, 1)


def _read_file(path: Any) -> bytes:
    """Return the bytes of a file that may be an ONNX model."""
    if not isinstance(path, (str, os.PathLike)):
        remedy = "use SerializeToString() of a ModelProto"
        raise TypeError(f"model must be the path of an ONNX file, or its bytes, got {type(path).__name__}; {remedy}")
    try:
        with _named(os.fspath(path)):
            ensure((kind := kind_of_file(Path(path))) is None, f"is {kind}")
            size = Path(path).stat().st_size
            ensure(size <= MAX_SIZE, f"has {size} bytes; an ONNX model has {MAX_SIZE} at most")
        return Path(path).read_bytes()
    except OSError as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise ModelFileError(f"{path} {reason}") from error


def _find_widths(inputs: tuple[_Value, ...], names: list[str] | None) -> list[int]:
    """Return the number of features in each input."""
    ensure(bool(inputs), "takes no input; use a classifier")
    widths = []
    for value in inputs:
        known = value.kind in ("float32", "float64") and value.shape is not None and len(value.shape) == 2
        other = f"takes {value}, but events are matrices of float32 or float64"
        ensure(known, f"{other}; export it with one matrix of all features")
        n_events, width = value.shape or (None, None)
        advice = f"export it with an input {value.name!r} of any number of events"
        ensure(n_events is None, f"takes {n_events} events at a time; {advice}")
        if width is None and names is not None and len(inputs) == 1:
            width = len(names)
        ensure(width is not None, f"does not declare how many features {value.name!r} has; specify feature_names")
        widths.append(int(width or 0))
    return widths


def _names_in_file(model: Any, inputs: tuple[_Value, ...]) -> list[str] | None:
    """Return the feature names in the metadata, if they are consistent with the only input."""
    try:
        names = json.loads(next(own.value for own in model.metadata_props if own.key == "feature_names"))
    except (ValueError, RecursionError, StopIteration):
        return None
    # third-party files may use that name for other content
    known = isinstance(names, list) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    if not known or len(inputs) != 1 or inputs[0].shape is None:
        return None
    return names if inputs[0].shape[-1:] in ((None,), (len(names),)) else None


def _handles_missing(node: Any) -> bool:
    """Return whether a node has a rule for missing values: trees in which they go left, or an imputer."""
    if node.op_type in ("Imputer", "IsNaN"):
        return True
    return any(own.name == "nodes_missing_value_tracks_true" and any(own.ints) for own in node.attribute)


def _find_probabilities(outputs: list[_Value]) -> _Value:
    """Return the output with the probabilities."""
    found = [value for value in outputs if value.kind in ("float32", "float64", "maps")]
    likely = [value for value in found if "prob" in value.name.lower()]
    if len(found) > 1 and len(likely) == 1:
        found = likely
    given = ", ".join(map(str, outputs)) or "nothing"
    ensure(bool(found), f"returns no probabilities, only {given}; export a classifier with probabilities")
    several = f"has several outputs, none of which is known to contain the probabilities: {given}"
    ensure(len(found) == 1, f"{several}; export it with one, as skl2onnx does with options={{'zipmap': False}}")
    return found[0]


def _find_classes(nodes: Any, output: _Value) -> NDArray[Any]:
    """Return the classes in the order of the columns: those of the last classifier, or 0 and 1."""
    labels: list[Any] = [0, 1]
    for own in (own for node in nodes for own in node.attribute if own.name in _CLASS_LABELS):
        labels = list(own.ints) or [text.decode("utf-8", "replace") for text in own.strings] or labels
    n_columns = output.shape[1] if output.shape is not None and len(output.shape) == 2 else None
    n_classes = len(labels) if len(labels) != 2 else (n_columns or 2)
    # 1 column: the probability of the second class
    advice = "train it to separate signal from background"
    ensure(n_classes <= 2 and len(set(labels)) == 2, f"is not a classifier of two classes but of {n_classes}; {advice}")
    return np.array(labels)


_OPSET, _ML_OPSET, _IR_VERSION = 17, 3, 8  # of 2022, supported by current software; trees in float64 require version 3
_ML = "ai.onnx.ml"
PRECISIONS = ("float64", "float32")
_BITS_OF_FLOAT32 = 24  # integers up to 2 to this power, and their sums, are exact in float32
_CAN_EXPORT = "trees, forests, k-means, boosted trees, and hybrids, bins and tuned thresholds of these"


class _Matrix(NamedTuple):
    """A matrix of events in a graph."""

    name: str
    dtype: Any
    n_columns: int


class _Graph:
    """A graph built node by node. Vectors are float64, with one value per event."""

    def __init__(self) -> None:
        self._onnx = require("onnx", "exporting a model to ONNX", extra="onnx")
        self._nodes: list[Any] = []
        self._constants: dict[Any, Any] = {}
        self._outputs: list[Any] = []

    def _kind(self, dtype: Any) -> int:
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def add(self, operator: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its result; inputs are names, or constant numbers and arrays."""
        names = [own if isinstance(own, str) else self.constant(own) for own in inputs]
        name = f"{operator.lower()}_{len(self._nodes)}"
        make = self._onnx.helper.make_node
        self._nodes.append(make(operator, names, [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, values: Any) -> str:
        """Return the name of a constant; equal constants are stored once."""
        array = np.asarray(values)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self._onnx.numpy_helper.from_array(array, name)
        return str(self._constants[key].name)

    def output(self, name: str, value: str, dtype: Any, description: str) -> None:
        """Declare an output with one value per event."""
        helper, kind = self._onnx.helper, self._kind(dtype)
        self._nodes.append(helper.make_node("Cast", [value], [name], name=name, to=kind))
        self._outputs.append(helper.make_tensor_value_info(name, kind, ["n_events"], doc_string=description))

    def as_float64(self, matrix: _Matrix) -> str:
        """Return the name of a matrix with elements of float64."""
        if matrix.dtype == np.float64:
            return matrix.name
        return self.add("Cast", matrix.name, to=self._kind(np.float64))

    def select(self, matrix: _Matrix, numbers: Sequence[int]) -> _Matrix:
        """Return some columns of a matrix."""
        if list(numbers) == list(range(matrix.n_columns)):
            return matrix
        name = self.add("Gather", matrix.name, np.array(numbers, dtype=np.int64), axis=1)
        return matrix._replace(name=name, n_columns=len(numbers))

    def column(self, matrix: _Matrix, number: int) -> str:
        """Return a column of a matrix as a vector."""
        return self.add("Squeeze", self.as_float64(self.select(matrix, [number])), np.array([1]))

    def append(self, matrix: _Matrix, vectors: Sequence[str]) -> _Matrix:
        """Return a matrix of float64 with vectors as further columns."""
        if not vectors:
            return matrix
        columns = [self.add("Unsqueeze", vector, np.array([1])) for vector in vectors]
        name = self.add("Concat", self.as_float64(matrix), *columns, axis=1)
        return _Matrix(name, np.float64, matrix.n_columns + len(vectors))

    def scale(self, vector: str, factor: float, offset: float) -> str:
        """Return a vector times a factor, plus an offset."""
        return self.add("Add", self.add("Mul", vector, float(factor)), float(offset))

    def total(self, vectors: Sequence[str]) -> str:
        """Return the sum of vectors."""
        return vectors[0] if len(vectors) == 1 else self.add("Sum", *vectors)

    def trees(self, trees: ScoringTrees, weights: FloatArray, events: _Matrix) -> str:
        """Add trees, and return the sums over trees of the leaf weights of an event, one column each, in float32."""
        nodes = _tree_nodes(trees, events.dtype)
        own, n_targets = np.flatnonzero(trees.leaves), weights.shape[1]
        numbers = {"nodes_values": nodes.pop("nodes_values"), "target_weights": weights[own].reshape(-1)}
        # float attributes are float32; float64 values are tensors instead
        attributes = {name: values.astype(np.float32).tolist() for name, values in numbers.items()}
        if events.dtype == np.float64:
            to_tensor = self._onnx.numpy_helper.from_array
            attributes = {f"{name}_as_tensor": to_tensor(values, name) for name, values in numbers.items()}
        for name in ("treeids", "nodeids"):
            nodes[f"target_{name}"] = np.repeat(nodes[f"nodes_{name}"][own], n_targets)
        nodes["target_ids"] = np.tile(np.arange(n_targets), len(own))
        attributes |= {name: values.tolist() for name, values in nodes.items()}
        how = {"n_targets": n_targets, "aggregate_function": "SUM", "post_transform": "NONE"}
        return self.add("TreeEnsembleRegressor", events.name, domain=_ML, **how, **attributes)

    def interpolate(self, value: str, x: FloatArray, y: FloatArray) -> str:
        """Return `numpy.interp` of float64 values, for ascending ``x``."""
        if len(x) == 1:
            return self.scale(value, 0.0, y[0])
        below = self.add("Sub", self._segment(value, x), np.int64(1))
        inside = self.add("Max", self.add("Min", value, x[-1]), x[0])
        distance = self.add("Sub", inside, self.add("Gather", x, below))
        slope, start = self.add("Gather", np.diff(y) / np.diff(x), below), self.add("Gather", y, below)
        return self.add("Add", self.add("Mul", slope, distance), start)

    def _segment(self, value: str, x: FloatArray) -> str:
        """Return the index of the element of x above each value, at least 1 and at most the last one."""
        width = 1 << len(x).bit_length()
        padded, position = self.constant(np.append(x, np.full(width - len(x), np.inf))), ""
        nothing = self.constant(np.int64(0))
        step = width // 2
        while step > 0:
            # number of elements below: the next block is, if its last element is
            last = np.int64(step - 1)
            border = self.add("Gather", padded, self.add("Add", position, last) if position else last)
            moved = self.add("Where", self.add("Less", border, value), np.int64(step), nothing)
            position = self.add("Add", position, moved) if position else moved
            step //= 2
        return self.add("Max", self.add("Min", position, np.int64(len(x) - 1)), np.int64(1))

    def build(self, events: _Matrix, metadata: Mapping[str, str]) -> bytes:
        """Return the bytes of the model, reproducible for the same nodes."""
        helper = self._onnx.helper
        described = "One row per event; the metadata feature_names lists the columns."
        shape = ["n_events", events.n_columns]
        inputs = [helper.make_tensor_value_info(events.name, self._kind(events.dtype), shape, doc_string=described)]
        graph = helper.make_graph(self._nodes, "excess", inputs, self._outputs, list(self._constants.values()))
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_ML, _ML_OPSET)]
        producer = {"producer_name": "excess", "producer_version": __version__}
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, **producer)
        helper.set_model_props(model, dict(metadata))
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))


def export_onnx(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    precision: str = "float64",
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Export a fitted On/Off classifier to ONNX, to apply it without this package or without Python.

    The input of the model is a matrix, ``features``; its outputs are ``score``, ``signal_probability``, as
    `predict_signal_proba`, and ``selected``, whether the score exceeds the threshold.

    Parameters
    ----------
    model : On/Off classifier
        Fitted tree, forest or k-means, or a hybrid, bins or a tuned threshold of these.
    path : path-like or None, default=None
        File to write atomically; an existing file is replaced.
    feature_names : sequence of str or None, default=None
        Names of the features, for the metadata; by default those of ``fit``.
    precision : {"float64", "float32"}, default="float64"
        Type of features and results. For ``"float32"``, cuts are rounded such that float32 events pass the same cuts.
    metadata : mapping of str to str or None, default=None
        Further metadata of the file.

    Returns
    -------
    bytes
        The ONNX model. TypeError if the model, or one inside it, cannot be exported; ModelFileError for the file.

    Notes
    -----
    Requires ``pip install 'excess[onnx]'``. The metadata contain ``feature_names``, if known, ``threshold``, ``alpha``
    and ``classes``. All arithmetic is in float64. Trees treat NaN as the model does; k-means does not support it.

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
    graph, dtype = _Graph(), np.dtype(precision).type
    n_features = int(model.n_features_in_)  # type: ignore[attr-defined]
    known = getattr(model, "feature_names_in_", None) if feature_names is None else feature_names
    names = None if known is None else [str(name) for name in known]
    if names is not None and not len(names) == len(set(names)) == n_features:
        raise ValueError(f"feature_names must be {n_features} different names, those of the features of the model")
    events = _Matrix("features", dtype, n_features)
    score, probability = _add_results(model, graph, events)
    selected = graph.add("Greater", score, float(model.threshold_))
    graph.output("score", score, dtype, "Estimated probability that an event is On; the threshold applies to it.")
    meaning = "Probability that an event of the On and Off regions is signal."
    graph.output("signal_probability", probability, dtype, meaning)
    graph.output("selected", selected, np.bool_, "Whether the score exceeds the threshold.")
    described = {
        **({} if names is None else {"feature_names": json.dumps(names)}),
        "threshold": repr(float(model.threshold_)),
        "alpha": repr(float(model.curve_.alpha)),
        "classes": json.dumps(np.asarray(model.classes_).tolist()),
        "model": type(model).__name__,
    }
    if isinstance(model, OnOffBinnedClassifier):
        # JSON has no infinity: the threshold of a bin in which all events, or none, are selected
        thresholds = [own.threshold if math.isfinite(own.threshold) else repr(own.threshold) for own in model.bins_]
        bins = {"column": model._column_in_training(), "edges": list(model.edges), "thresholds": thresholds}
        described["bins"] = json.dumps(bins)
    content = graph.build(events, {**described, **(metadata or {})})
    if path is not None:
        try:
            with replacing(Path(path)) as temporary:
                temporary.write_bytes(content)
        except OSError as error:
            raise ModelFileError(f"{path} cannot be written: {error.strerror or error}") from error
    return content


def _add_results(model: Any, graph: _Graph, events: _Matrix) -> tuple[str, str]:
    """Add the nodes of a model, and return the names of scores and of signal probabilities."""
    if not isinstance(model, OnOffBinnedClassifier):
        score = add_score(model, graph, events)
        return score, _add_signal_probability(graph, model.calibration_, score)
    # scores shifted to the threshold of each bin, and probabilities by the calibration of each
    column = model._column_in_training()
    value = graph.column(events, column)
    kept = [number for number in range(events.n_columns) if model.passthrough or number != column]
    raw = add_score(model.estimator_, graph, graph.select(events, kept))
    results: list[str] = []
    for edge, tuned, calibration in zip((-np.inf, *model.edges), model.bins_, model.calibrations_, strict=True):
        # if no signal was learned, no event is signal
        has_signal = calibration.strength > 0
        probability = _add_signal_probability(graph, calibration, raw) if has_signal else graph.scale(raw, 0.0, 0.0)
        of_bin = [_add_moved(graph, raw, tuned.threshold), probability]
        if results:
            # an event at an edge belongs to the bin above it
            is_above = graph.add("GreaterOrEqual", value, float(edge))
            of_bin = [graph.add("Where", is_above, *pair) for pair in zip(of_bin, results, strict=True)]
        results = of_bin
    return results[0], results[1]


def _add_moved(graph: _Graph, score: str, threshold: float) -> str:
    """Return scores with a threshold at 0.5, as shifted by `OnOffBinnedClassifier`."""
    end = score_end(threshold)
    lower = graph.scale(score, CUT / end if end > 0 else 0.0, 0.0)
    slope = (1 - CUT) / (1 - end) if end < 1 else 0.0
    upper = graph.scale(score, slope, CUT - slope * end if end < 1 else 1.0)
    # rounding must not move an event across
    lower, upper = graph.add("Min", lower, CUT), graph.add("Max", upper, np.nextafter(CUT, 1.0))
    return graph.add("Where", graph.add("Greater", score, float(threshold)), upper, lower)


def _add_signal_probability(graph: _Graph, calibration: SignalCalibration, score: str) -> str:
    """Return the signal probability, as computed by `SignalCalibration.signal_probability`."""
    on_probability = graph.interpolate(score, calibration.score, calibration.on_probability)
    odds = graph.add("Div", on_probability, graph.add("Sub", 1.0, on_probability))
    excess = graph.add("Max", graph.add("Sub", odds, float(calibration.alpha)), 0.0)
    return graph.add("Div", excess, graph.add("Add", excess, float(1 + calibration.alpha)))


@singledispatch
def add_score(model: Any, graph: _Graph, events: _Matrix) -> str:
    """Add the nodes that score events by a model, and return the name of the scores."""
    raise TypeError(f"a {type(model).__name__} cannot be exported to ONNX; {_CAN_EXPORT} can")


@add_score.register
def _(model: BaseOnOffTrees, graph: _Graph, events: _Matrix) -> str:
    """Return the mean over trees of the value of an event's leaf."""
    if model._categories:
        raise TypeError("a model of categories cannot be exported to ONNX; encode them as numbers before the fit")
    return _add_mean(model._trees, graph, events)


@add_score.register(BoostedClassifier)
@add_score.register(HistGradientBoostingClassifier)
def _(model: Any, graph: _Graph, events: _Matrix) -> str:
    """Return the probability of the second class."""
    trees = (model if isinstance(model, BoostedClassifier) else BoostedClassifier(model)).trees_
    mean = _add_mean(trees, graph, events)
    return graph.add("Sigmoid", graph.scale(mean, len(trees.flat.depths), trees.baseline))


def _add_mean(trees: ScoringTrees, graph: _Graph, events: _Matrix) -> str:
    """Return the mean over trees of the value of an event's leaf."""
    n_trees = len(trees.flat.depths)
    # onnxruntime returns sums over trees as float32. The values are split into a part with exact sums in float32, and a
    # small remainder with a rounding error of about 1e-12 for values up to 1.
    exponent = math.ceil(math.log2(max(1.0, float(abs(trees.values).max()))))
    grid = 2.0 ** (_BITS_OF_FLOAT32 - int(n_trees).bit_length() - exponent)
    coarse = np.rint(trees.values * grid)
    weights = np.column_stack([coarse, trees.values - coarse / grid])
    sums = graph.as_float64(_Matrix(graph.trees(trees, weights, events), np.float32, 2))
    return graph.add("MatMul", sums, np.array([1 / (grid * n_trees), 1 / n_trees]))


def _tree_nodes(trees: ScoringTrees, dtype: Any) -> dict[str, NDArray[Any]]:
    """Return the nodes of all trees as attributes: an event goes left if its feature is at most the value."""
    nodes, roots, _ = trees.flat
    sizes, leaves = np.diff(roots), trees.leaves
    feature, shift, limit, left = (column.astype(np.int64) for column in nodes.T)
    # codes start at 1, so with missing values on the left (shift 0) a limit of k means k bins
    n_bins_left = np.where(shift == 0, limit, limit + 1)
    values = np.full(len(nodes), np.inf)  # missing values right, all others left
    for number, edges in enumerate(trees.edges):
        own = (feature == number) & (n_bins_left <= len(edges))
        values[own] = np.append(edges, -np.inf)[n_bins_left[own] - 1]  # 0 bins: missing values left, all others right
    # the largest numbers of the type that are not above the values: x <= both is equivalent for such x
    with np.errstate(over="ignore"):
        nearest = values.astype(dtype)
    values = np.where(nearest > values, np.nextafter(nearest, dtype(-np.inf)), nearest)
    first = np.repeat(roots[:-1], sizes)
    return {
        "nodes_treeids": np.repeat(np.arange(len(sizes)), sizes),
        "nodes_nodeids": np.arange(len(nodes)) - first,
        "nodes_featureids": np.where(leaves, 0, feature),
        "nodes_values": np.where(leaves, 0.0, values).astype(dtype),
        "nodes_modes": np.where(leaves, "LEAF", "BRANCH_LEQ"),
        "nodes_truenodeids": np.where(leaves, 0, left - first),
        "nodes_falsenodeids": np.where(leaves, 0, left + 1 - first),
        # leaves have no split, but declare a rule for missing values
        "nodes_missing_value_tracks_true": (leaves | (shift == 0)).astype(int),
    }


@add_score.register(OnOffKMeansClassifier)
@add_score.register(OnOffKMeansEnsembleClassifier)
def _(model: Any, graph: _Graph, events: _Matrix) -> str:
    """Return the mean over clusterings of the value of the nearest cluster."""
    scaled = graph.add("Div", graph.add("Sub", graph.as_float64(events), model._mean), model._scale)
    values = []
    for cells in model._members:
        own = graph.add("Gather", scaled, cells.features, axis=1)
        # |x - c|^2 without |x|^2, which is common to all centres
        products = graph.add("MatMul", own, np.ascontiguousarray(-2 * cells.centers.T))
        distances = graph.add("Add", products, (cells.centers**2).sum(axis=1))
        values.append(graph.add("Gather", cells.values, graph.add("ArgMin", distances, axis=1, keepdims=0)))
    return graph.add("Div", graph.total(values), float(len(values)))


@add_score.register
def _(model: OnOffBinnedClassifier, graph: _Graph, events: _Matrix) -> str:
    """Return the shifted scores."""
    return _add_results(model, graph, events)[0]


@add_score.register(SignificanceThresholdClassifier)
@add_score.register(FrozenEstimator)
def _(model: Any, graph: _Graph, events: _Matrix) -> str:
    """Return the score of the inner classifier."""
    return add_score(model.estimator if isinstance(model, FrozenEstimator) else model.estimator_, graph, events)


@add_score.register
def _(model: OnOffHybridClassifier, graph: _Graph, events: _Matrix) -> str:
    """Return the weighted mean of the members' probabilities of On."""
    names = getattr(model, "feature_names_in_", None)
    columns, kept = model._find_columns(names, events.n_columns)
    features = graph.select(events, kept)
    scores: dict[str, str] = {}
    for name, reference in (model.references or {}).items():
        if name in columns:
            scores[name] = graph.column(events, columns[name])
            continue
        wanted, known = getattr(reference, "feature_names_in_", None), features
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
        own = model._calibrations[member.name]
        on_probability = graph.interpolate(scores[member.name], own.score, own.on_probability)
        parts.append(graph.add("Mul", on_probability, float(member.weight)))
    return graph.total(parts)
