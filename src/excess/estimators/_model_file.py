"""Model files: a fitted estimator in one safetensors file, which contains only data and is fully validated.

The fitted state of an estimator is a component: a dataclass or named tuple of arrays, numbers and further components.
`to_state` writes its fields, and `StoredState.take` reads and validates them, by their types:

- an array, of the shape given by ``Annotated``: numbers, names of lengths (such as ``"nodes"``, which the arrays of a
  component share; ``"features"`` is known, and ``"trees+1"`` is one more), or any vector. An array of any dtype
  (``NDArray[Any]``) contains counts: int64, or float64 if events have weights;
- a list of vectors: one array for all of them, and one for their lengths;
- a dict of numbered arrays or components, and a component, whose prefix ``Annotated`` may give;
- a number or text, in the header of the file; a float with a shape is an array. ``alpha`` is that of the header.

A method ``check`` of a component raises ValueError for invalid values, such as those that kernels use as an index.

The arrays of a model are those of the file, together with ``sha256``. The only entry of its ``__metadata__``,
``excess``, is a JSON header (safetensors writes several entries in any order). The checksum covers the header and
the name, type, shape and bytes of every array; safetensors validates the positions of arrays in the file. Reading
interprets numbers and text, never code: the class must be registered by `saveable`.
"""

import hashlib
import json
import logging
import math
import os
import platform
import re
from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from dataclasses import is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import sklearn
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from sklearn.utils.validation import check_is_fitted

from excess._utils import files
from excess._utils.checks import as_scalar_alpha, as_threshold, binary_classes, kind_of_file
from excess._utils.errors import first_line
from excess._utils.rng import NO_SKETCH
from excess._utils.version import __version__

_logger = logging.getLogger("excess")

PathLike = str | os.PathLike[str]
Estimator = TypeVar("Estimator", bound=type)
State = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # numbers and arrays, by name

FORMAT_VERSION = 4  # of header and arrays; to be increased if an older package would misread them
SAVEABLE: dict[str, Any] = {}  # estimator classes supported by model files, by name
_FIELDS: dict[str, tuple[type, ...]] = {  # entries of a header besides its format version
    **dict.fromkeys(("class", "classes_dtype"), (str,)),
    **dict.fromkeys(("versions", "parameters", "attributes", "metadata"), (dict,)),
    "n_features": (int,),
    "classes": (list,),
    "feature_names": (list, NoneType),
    **dict.fromkeys(("alpha", "threshold"), (float, NoneType)),
}
_MAX_NESTING, _MOST_ARRAYS = 50, 1000
_MAX_LENGTH = 1 << 24  # maximum length of a header: the names of some ten thousand files and groups of the training
_DEEPEST = 4  # maximum depth of nested models: hybrids may have hybrids as references
_REPLACEMENTS = {"random_state": "None", "threshold": "model.threshold_"}  # of parameters that a file cannot store
_KEY = "excess"
_START = b'{"__metadata__":{"excess":"'
_LENGTH_SIZE = 8
_DTYPES = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F32", "F64"}
_CLASS_DTYPES = re.compile(r"\|b1|\|[iu]1|<[iu][248]|<f[48]|<U[1-9][0-9]{0,5}")
_depth: ContextVar[int] = ContextVar("depth", default=0)  # of a nested model


class ModelFileError(ValueError):
    """Error for a model file that cannot be written, read or validated; the message starts with its path.

    Examples
    --------
    >>> from excess import ModelFileError, load
    >>> try:
    ...     load("crab.excess")
    ... except ModelFileError as error:
    ...     print(error)
    crab.excess does not exist
    """


# Components and their state.


def saveable(estimator: Estimator) -> Estimator:
    """Register an estimator class, with ``_get_state`` and ``_set_state``, for model files."""
    SAVEABLE[estimator.__name__] = estimator
    return estimator


def ensure(holds: bool | np.bool_, otherwise: str) -> None:
    """Raise ValueError with a message unless a condition is true."""
    if not holds:
        raise ValueError(otherwise)


def to_state(component: Any) -> State:
    """Return the numbers and arrays of a component, by name."""
    state: State = {}, {}
    _store(state, "", component, ("",))
    return state


def _store(state: State, name: str, value: Any, marks: tuple[Any, ...]) -> None:
    numbers, arrays = state
    if is_dataclass(value) or hasattr(value, "_fields"):
        prefix = marks[0] if marks else f"{name}_"
        for field, hint in get_type_hints(type(value), include_extras=True).items():
            if field == "alpha":
                continue
            own = getattr(value, field)
            if isinstance(own, list):
                arrays[f"{prefix}n_{field}"] = np.array([len(part) for part in own], dtype=np.int64)
                own = np.concatenate(own)
            _store(state, prefix + field, own, getattr(hint, "__metadata__", ()))
    elif isinstance(value, dict):
        for number, own in value.items():
            _store(state, f"{name}_{number}", own, ())
    elif isinstance(value, np.ndarray) or (isinstance(value, float) and marks):
        arrays[name] = np.atleast_1d(value)
    else:
        numbers[name] = value


class StoredState:
    """State in a file, whose entries are validated and taken once."""

    def __init__(self, numbers: dict[str, Any], arrays: dict[str, NDArray[Any]], n_features: int, alpha: Any) -> None:
        self._numbers, self._arrays = dict(numbers), dict(arrays)
        self._n_features, self._alpha = n_features, alpha

    def take(self, kind: Any, prefix: str = "") -> Any:
        """Return a component."""
        return self._take_component(kind, prefix, {"features": self._n_features})

    def check_all_taken(self) -> None:
        """Raise ValueError if entries remain."""
        left = [*self._numbers, *self._arrays]
        ensure(not left, f"unknown entries {', '.join(left):.200}")

    def _take_component(self, kind: Any, prefix: str, lengths: dict[str, int]) -> Any:
        fields = {}
        for field, hint in get_type_hints(kind, include_extras=True).items():
            marks = getattr(hint, "__metadata__", ())
            hint = hint.__origin__ if marks else hint
            if get_origin(hint) is list:
                sizes = self._take_array(f"{prefix}n_{field}", np.int64, marks, lengths)
                whole = self._take_array(prefix + field, _dtype(get_args(hint)[0]), (None,), lengths)
                fields[field] = cut_array(whole, sizes)
            else:
                fields[field] = self._alpha if field == "alpha" else self._take(hint, prefix + field, marks, lengths)
        component = kind(**fields)
        if hasattr(component, "check"):
            component.check()
        return component

    def _take(self, hint: Any, name: str, marks: tuple[Any, ...], lengths: dict[str, int]) -> Any:
        origin = get_origin(hint)
        if origin is np.ndarray:
            return self._take_array(name, _dtype(hint), marks or (None,), lengths)
        if origin is dict:
            number = re.compile(re.escape(name) + "_(0|[1-9][0-9]{0,3})(?:_|$)")
            found = sorted({int(match[1]) for match in map(number.match, self._arrays) if match})
            return {own: self._take(get_args(hint)[1], f"{name}_{own}", (), lengths) for own in found}
        if is_dataclass(hint) or hasattr(hint, "_fields"):
            return self._take_component(hint, *((marks[0], lengths) if marks else (f"{name}_", {})))
        if marks:
            return float(self._take_array(name, np.float64, marks, lengths)[0])
        ensure(name in self._numbers, f"{name} is missing")
        value = self._numbers.pop(name)
        ensure(type(value) is hint, f"{name} is a {type(value).__name__}")
        return value

    def _take_array(self, name: str, dtype: Any, shape: tuple[Any, ...], lengths: dict[str, int]) -> NDArray[Any]:
        ensure(name in self._arrays, f"{name} is missing")
        array = self._arrays.pop(name)
        fits = array.ndim == len(shape)
        for wanted, length in zip(shape, array.shape, strict=False):
            if isinstance(wanted, str):
                wanted, _, more = wanted.partition("+")
                length -= int(more or 0)
                wanted = lengths.setdefault(wanted, length)
            fits &= wanted in (None, length)
        known = array.dtype in (np.int64, np.float64) if dtype is Any else array.dtype == dtype
        ensure(fits and known, f"{name} is an array of {array.dtype} of shape {array.shape}")
        if dtype is Any:
            ensure(((array >= 0) & (array < np.inf)).all(), f"{name} contains invalid counts")
        return array


def _dtype(hint: Any) -> Any:
    """Return the dtype of ``NDArray[dtype]``."""
    return get_args(get_args(hint)[1])[0]


def cut_array(array: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Split an array into parts of these lengths, which must sum to its length."""
    ensure(((lengths >= 0) & (lengths <= len(array))).all(), "the parts of an array have no valid length")
    ends = np.cumsum(lengths, dtype=np.int64)
    ensure(int(ends[-1]) == len(array), "the parts of an array do not add up")
    return np.split(array, ends[:-1])


# Files.


def save(model: Any, path: PathLike, *, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator to a file, as its method ``save`` does."""
    if SAVEABLE.get(type(model).__name__) is not type(model):
        known = f"model files support {', '.join(sorted(SAVEABLE))}, not {type(model).__name__}"
        raise TypeError(f"{known}; use joblib for others, at your own risk: loading its files runs code from them")
    tuned = _is_tuned(type(model))
    check_is_fitted(model, "curve_" if tuned else None)
    dtype = model.classes_.dtype.newbyteorder("<").str
    if not _CLASS_DTYPES.fullmatch(dtype):
        raise TypeError(f"classes of the dtype {dtype} cannot be saved; use integers, bools or strings")
    numbers, arrays = to_state(model._get_state())
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in model._in_state}
    features = getattr(model, "feature_names_in_", None)
    versions = {"excess": __version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}
    header = {
        "format_version": FORMAT_VERSION,
        "class": type(model).__name__,
        "versions": {**versions, "python": platform.python_version()},
        "parameters": {name: _as_parameter(name, value) for name, value in parameters.items()},
        "n_features": int(model.n_features_in_),
        "feature_names": None if features is None else [str(name) for name in features],
        "classes": model.classes_.tolist(),
        "classes_dtype": dtype,
        "alpha": model.curve_.alpha if tuned else None,
        "threshold": _as_number(model.threshold_) if tuned else None,
        "attributes": {name: _as_number(value) for name, value in numbers.items()},
        "metadata": as_json({} if metadata is None else metadata),
    }
    if categories := getattr(model, "_categories", None):
        header["categories"] = as_json({str(number): values for number, values in categories.items()}, "categories")
    if tuned:
        arrays |= to_state(model._get_tuned())[1]
    _write(Path(path), json.dumps(header, allow_nan=False), arrays)


def load(path: PathLike) -> Any:
    """Read a fitted estimator from a file written by its method ``save``.

    Parameters
    ----------
    path : str or path-like
        Path of the file.

    Returns
    -------
    estimator
        Fitted estimator with the saved parameters, except ``n_jobs``, and without ``oob_decision_function_``.

    Raises
    ------
    ModelFileError
        If it is not a model file, has another format, or is corrupt. No code from the file is ever run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess import OnOffKMeansClassifier, load
    >>> X, y = [[0.0], [1.0], [8.0], [9.0]], ["off", "off", "on", "on"]
    >>> model = OnOffKMeansClassifier(2, alpha=1 / 5, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "clusters.excess"
    ...     model.save(path)
    ...     again = load(path)
    >>> again
    OnOffKMeansClassifier(alpha=0.2, n_clusters=2, random_state=0)
    >>> print(again.predict([[0.5], [8.5]]))
    ['off' 'on']
    """
    header, arrays = _read(Path(path))
    name = header["class"]
    if name not in SAVEABLE:
        problem = f"a model of class {name!r:.40}, unknown to excess {__version__}"
        raise ModelFileError(f"{path} contains {problem}, only {', '.join(sorted(SAVEABLE))}; upgrade excess")
    try:
        return _restore(SAVEABLE[name], header, arrays)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ModelFileError(f"{path} does not contain a valid {name}: {error}") from error


def to_bytes(model: Any) -> NDArray[np.uint8]:
    """Return a fitted estimator as the bytes of its model file, to embed it in another file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save(model, path)
        return np.frombuffer(path.read_bytes(), dtype=np.uint8)


def from_bytes(content: NDArray[np.uint8]) -> Any:
    """Return the fitted estimator of `to_bytes`; raise ModelFileError if invalid."""
    depth = _depth.get() + 1
    ensure(depth < _DEEPEST, f"its models are nested more than {_DEEPEST} deep")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(content.tobytes())
        inside = copy_context()
        inside.run(_depth.set, depth)
        return inside.run(load, path)


def read_header(path: PathLike) -> dict[str, Any]:
    """Return the header of a model file, a dict with the keys of ``save``; the whole file is validated as by `load`."""
    return _read(Path(path))[0]


def is_model_file(path: PathLike) -> bool:
    """Return whether a file starts like a model file; False if it cannot be read."""
    try:
        return _read_start(Path(path))[_LENGTH_SIZE:] == _START
    except (OSError, ValueError):
        return False


def _write(path: Path, text: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Write a file under a temporary name and rename it, which is atomic."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        too_long = f"it has a header of {len(text):,} characters, above {_MAX_LENGTH:,}; reduce the metadata"
        ensure(len(text) <= _MAX_LENGTH, too_long)
        target = path.resolve()  # a link is kept, and its target is replaced
        if target.exists() and not target.is_file():
            kind = "a folder" if target.is_dir() else "not a regular file"
            raise ModelFileError(f"{path} is {kind}; pass the name of a file")
        with files.replacing(target) as temporary:
            save_file({**arrays, "sha256": _checksum(text, arrays)}, temporary, metadata={_KEY: text})
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
    except ModelFileError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelFileError(f"{path} cannot be written: {first_line(error)}") from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a file after validation."""
    try:
        start, size = _read_start(path), path.stat().st_size
        if start[_LENGTH_SIZE:] != _START:
            what = "is not a model file of excess" if start else "is empty"
            raise ModelFileError(f"{path} {what}; pass a file written by save")
        # safetensors compares header and arrays with the size of the file before reading
        _logger.debug("%s: reading the model", path)
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(_KEY, "")
            names = list(file.keys())
            if len(names) > _MOST_ARRAYS:
                raise ModelFileError(f"{path} has {len(names):,} arrays, above the maximum of {_MOST_ARRAYS:,}")
            arrays = {name: _read_array(path, file, name, size) for name in names}
    except ModelFileError:
        raise
    except FileNotFoundError as error:
        raise ModelFileError(f"{path} does not exist") from error
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is damaged or incomplete: its arrays do not fit; copy or save it again"
        ) from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {first_line(error)}") from error
    if not np.array_equal(arrays.pop("sha256", np.empty(0)), _checksum(text, arrays)):
        raise ModelFileError(f"{path} is damaged or incomplete: its checksum does not match; copy or save it again")
    try:
        return _parse_header(text), arrays
    except ValueError as error:
        raise ModelFileError(f"{path} {error}") from error


def _read_start(path: Path) -> bytes:
    """Return the first bytes of a regular file."""
    if (kind := kind_of_file(path)) is not None:
        raise ModelFileError(f"{path} is {kind}")
    with path.open("rb") as file:
        return file.read(_LENGTH_SIZE + len(_START))


def _read_array(path: Path, file: Any, name: str, size: int) -> NDArray[Any]:
    """Return an array of an open file, whose size bounds all lengths."""
    entry = file.get_slice(name)
    dtype, shape = entry.get_dtype(), entry.get_shape()
    if dtype not in _DTYPES or len(shape) > 2 or any(length > size for length in shape):
        raise ModelFileError(f"{path} has an array {name} with an invalid dtype or shape: {dtype}, {shape}")
    # aligned and writable like any array, so no kernel is compiled again for it
    array = np.require(file.get_tensor(name), requirements=["ALIGNED", "WRITEABLE"])
    if dtype == "BOOL" and (array.view(np.uint8) > 1).any():
        raise ModelFileError(f"{path} has an array {name} with invalid bools")
    return array


def _checksum(text: str, arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest(), dtype=np.uint8)


# From a header to an estimator.


def _is_tuned(estimator: Any) -> bool:
    """Return whether a class has a threshold tuned on On and Off events; others are created from their state."""
    return not hasattr(estimator, "_from_state")


def _restore(estimator: Any, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    """Create the estimator described by a file."""
    n_features, names, alpha = header["n_features"], header["feature_names"], header["alpha"]
    classes = _restore_classes(header["classes"], header["classes_dtype"])
    if _is_tuned(estimator):  # not in files of older releases
        arrays.setdefault("sketch", NO_SKETCH)
    stored = StoredState(header["attributes"], arrays, n_features, alpha)
    kind = get_type_hints(estimator._get_state)["return"]
    if not _is_tuned(estimator):
        ensure(not header["parameters"], "it has unknown parameters")
        model = estimator._from_state(stored.take(kind), names, classes)
        same = model.n_features_in_ == n_features and np.array_equal(model.classes_, classes)
        ensure(same, "its features or classes are not those of the model inside")
        stored.check_all_taken()
        return model
    unknown = set(header["parameters"]) - set(estimator._get_param_names())
    ensure(not unknown, f"its parameters {', '.join(sorted(unknown))} are unknown to this release; upgrade excess")
    # parameters missing in an older release have defaults; the file does not define the number of threads
    model = estimator(**{name: value for name, value in header["parameters"].items() if name != "n_jobs"})
    ensure(n_features >= 1, f"n_features is {n_features}")
    model.n_features_in_, model.classes_ = n_features, classes
    if names is not None:
        known = len(names) == n_features and all(type(name) is str for name in names)
        ensure(known, f"feature_names are not {n_features} strings")
        model.feature_names_in_ = np.array(names, dtype=object)
    categories, has_categories = header.get("categories", {}), hasattr(model, "_categories")
    ensure(isinstance(categories, dict) and (has_categories or not categories), "its categories are not those of trees")
    numbers = [own == str(int(own)) and 0 <= int(own) < n_features for own in categories]
    scalar = [type(own) in (str, int, float, bool) for values in categories.values() for own in values]
    differ = [type(values) is list and len(set(values)) == len(values) for values in categories.values()]
    ensure(all(numbers) and all(differ) and all(scalar), "its categories are not those of its features")
    if has_categories:
        model._categories = {int(own): values for own, values in categories.items()}
    ensure(alpha is not None and header["threshold"] is not None, "it has no alpha or no threshold")
    as_scalar_alpha(alpha)
    model.threshold_ = as_threshold("threshold", header["threshold"])
    tuned = stored.take(get_type_hints(estimator._get_tuned)["return"])
    model.curve_, model.calibration_, model.training_sketch_ = curve, *_ = tuned
    columns = (curve.thresholds, curve.significance, curve.n_on, curve.n_off)
    ensure({len(own) for own in columns} == {len(curve.scores) + 1}, "the columns of its curve have different lengths")
    model._set_state(stored.take(kind))
    stored.check_all_taken()
    return model


def _restore_classes(values: list[Any], dtype: str) -> NDArray[Any]:
    ensure(_CLASS_DTYPES.fullmatch(dtype) is not None, f"its classes have the dtype {dtype!r:.20}")
    classes = np.array(values, dtype=np.dtype(dtype).newbyteorder("="))
    same = classes.shape == (2,) and [(type(v), v) for v in classes.tolist()] == [(type(v), v) for v in values]
    ensure(same, f"its classes are not two labels of the dtype {dtype!r}")
    ensure(tuple(classes) == binary_classes(classes, name="classes"), "its classes are not in sorted order")
    return classes


def _parse_header(text: str) -> dict[str, Any]:
    """Return a header from its JSON; error messages continue after the path."""
    ensure(len(text) <= _MAX_LENGTH, f"has a header of {len(text):,} characters, above the maximum of {_MAX_LENGTH:,}")
    try:
        header = json.loads(text.encode("ascii"), parse_constant=lambda word: ensure(False, f"{word} is not JSON"))
    except (ValueError, RecursionError) as error:
        raise ValueError("has a header that is not JSON") from error
    version = header.get("format_version", 0) if isinstance(header, dict) else 0
    ensure(type(version) is int and version >= 1, "has a header without a format version")
    newer = f"but excess {__version__} reads versions up to {FORMAT_VERSION}"
    ours = f"has format version {version}"
    ensure(version <= FORMAT_VERSION, f"{ours}, {newer}; upgrade excess, or save the model again with this release")
    ensure(version == FORMAT_VERSION, f"{ours}, an older one; train the model again and save it")
    missing = [name for name in _FIELDS if name not in header]
    ensure(not missing, f"has a header without {', '.join(missing)}")
    for name in ("parameters", "attributes"):
        if isinstance(header[name], dict):
            header[name] = {key: _parse_number(value) for key, value in header[name].items()}
    header["threshold"] = _parse_number(header["threshold"])
    unknown = [name for name in header if name not in (*_FIELDS, "format_version", "categories")]
    ensure(not unknown, f"has a header with {len(unknown):,} unknown entries, such as {unknown[:1]!r:.40}")
    wrong = [name for name, types in _FIELDS.items() if type(header[name]) not in types]
    ensure(not wrong, f"has a header with an invalid value of {', '.join(wrong)}")
    return header


def _parse_number(value: Any) -> Any:
    if isinstance(value, dict):
        word = str(value.get("float"))
        ensure(word in ("inf", "-inf", "nan"), "has an invalid number in its header")
        return float(word)
    ensure(not isinstance(value, list), "has a list in its header where a number or text should be")
    return value


def _as_scalar(value: Any) -> bool | int | float | str | None:
    """Return a value as JSON; raise TypeError for other types."""
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 and value.dtype.kind in "biufUO":
        value = float(value) if value.dtype.kind == "f" else value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError


def _as_number(value: Any) -> Any:
    """Return a scalar for the header; infinity and NaN, which JSON lacks, are wrapped."""
    value = _as_scalar(value)
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _as_parameter(name: str, value: Any) -> Any:
    """Return a parameter of an estimator for the header."""
    try:
        return _as_number(value)
    except TypeError as error:
        new = _REPLACEMENTS.get(name, "...")
        problem = f"{name} is a {type(value).__name__}, which a model file cannot store"
        raise TypeError(
            f"{problem}; call model.set_params({name}={new}) first, which does not change the fit"
        ) from error


def as_json(metadata: Any, where: str = "metadata", depth: int = 0) -> Any:
    """Return metadata as JSON; NumPy numbers and arrays become numbers and lists."""
    if depth > _MAX_NESTING:
        raise ValueError(f"metadata must be nested at most {_MAX_NESTING} deep")
    if isinstance(metadata, Mapping):
        if not all(isinstance(key, str) for key in metadata):
            raise TypeError(f"{where} must have string keys, got {list(metadata)!r:.60}")
        return {key: as_json(value, f"{where}[{key!r}]", depth + 1) for key, value in metadata.items()}
    if depth == 0:
        raise TypeError(f"metadata must be a mapping, got a {type(metadata).__name__}")
    if isinstance(metadata, np.ndarray) and metadata.ndim > 0 and metadata.dtype.kind in "biufUO":
        metadata = metadata.tolist()
    if isinstance(metadata, (list, tuple)):
        return [as_json(value, f"{where}[{i}]", depth + 1) for i, value in enumerate(metadata)]
    try:
        value = _as_scalar(metadata)
    except TypeError as error:
        kind = type(metadata).__name__
        raise TypeError(f"{where} is a {kind}, which a model file cannot store; use text or numbers") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which JSON cannot represent; use None or text")
    return value
