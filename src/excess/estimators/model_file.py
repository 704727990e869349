"""Model files: a fitted estimator in one safetensors file, which holds data only and is checked to the last bit.

The arrays of a model are those of the file, together with ``sha256``. The only entry of its ``__metadata__``,
``excess``, is a header in JSON (safetensors writes several entries in any order). The checksum covers the header and
the name, type, shape and bytes of every array; where an array lies in the file, safetensors checks.

Reading interprets numbers and text, never code: the class is one that was entered by `saveable`, and an estimator
checks in its ``_set_state`` what the compiled kernels use as an index.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from sklearn.utils.validation import check_is_fitted

from excess._core import files
from excess._core.checks import as_scalar_alpha, as_threshold, binary_classes
from excess._core.inputs import kind_of_file
from excess._core.reading_watch import noted
from excess._core.version import __version__
from excess.estimators.calibration import SignalCalibration
from excess.estimators.model_header import FORMAT_VERSION, as_json, as_number, as_parameter, check_length, parse_header
from excess.estimators.model_state import SAVEABLE, StoredArrays, require
from excess.stats.curve import ThresholdCurve

__all__ = ["FORMAT_VERSION", "ModelFileError", "is_model_file", "load", "read_header", "save"]

PathLike = str | os.PathLike[str]

_KEY = "excess"
_START = b'{"__metadata__":{"excess":"'
_START_OF_VERSION_1 = b"excess model\n"
_LENGTH_SIZE = 8
_DTYPES = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F32", "F64"}
_MOST_ARRAYS = 1000
_DEEPEST = 4
"""Models that may be inside of each other: a hybrid may have hybrids as references, but not without end."""
_CLASS_DTYPES = re.compile(r"\|b1|\|[iu]1|<[iu][248]|<f[48]|<U[1-9][0-9]{0,5}")
_depth: ContextVar[int] = ContextVar("depth", default=0)  # of a model inside of others
_CURVE = ("thresholds", "n_on", "n_off", "significance")


class ModelFileError(ValueError):
    """A model file that cannot be written, read or trusted; the message starts with its path.

    Examples
    --------
    >>> from excess import load
    >>> from excess.estimators import ModelFileError
    >>> try:
    ...     load("crab.excess")
    ... except ModelFileError as error:
    ...     print(error)
    crab.excess does not exist
    """


def save(model: Any, path: PathLike, *, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator to a file, as its method ``save`` does."""
    if SAVEABLE.get(type(model).__name__) is not type(model):
        raise TypeError(
            f"a model file holds one of {', '.join(sorted(SAVEABLE))}, not {type(model).__name__}; use joblib for "
            "other estimators, at your own risk, because loading its files runs code from them"
        )
    tuned = _is_tuned(type(model))
    check_is_fitted(model, "curve_" if tuned else None)
    dtype = model.classes_.dtype.newbyteorder("<").str
    if not _CLASS_DTYPES.fullmatch(dtype):
        raise TypeError(
            f"classes of the dtype {model.classes_.dtype} cannot be saved; use whole numbers, bools or text"
        )
    attributes, arrays = model._get_state()
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in model._in_state}
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
        "parameters": {name: as_parameter(name, value) for name, value in parameters.items()},
        "n_features": int(model.n_features_in_),
        "feature_names": None if features is None else [str(name) for name in features],
        "classes": model.classes_.tolist(),
        "classes_dtype": dtype,
        "alpha": model.curve_.alpha if tuned else None,
        "threshold": as_number(model.threshold_) if tuned else None,
        "attributes": {name: as_number(value) for name, value in attributes.items()},
        "metadata": as_json({} if metadata is None else metadata),
    }
    if tuned:
        curve = {f"curve_{name}": getattr(model.curve_, name) for name in ("scores", *_CURVE)}
        arrays = {**curve, **model.calibration_.to_arrays(), **arrays}
    _write(Path(path), json.dumps(header, allow_nan=False), arrays)


def load(path: PathLike) -> Any:
    """Read a fitted estimator from a file that its method ``save`` has written.

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
        If there is no such file, it is not a model file, a single bit of it has changed, or it was written in another
        format. No code from the file is run, whatever it holds.

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
        raise ModelFileError(
            f"{path} holds a model of the class {name!r:.40}, which excess {__version__} does not know, only "
            f"{', '.join(sorted(SAVEABLE))}; upgrade excess"
        )
    try:
        return _restore(SAVEABLE[name], header, StoredArrays(arrays))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ModelFileError(f"{path} does not hold a valid {name}: {error}") from error


def to_bytes(model: Any) -> NDArray[np.uint8]:
    """Return a fitted estimator as the bytes of its model file, for a file that holds several."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save(model, path)
        return np.frombuffer(path.read_bytes(), dtype=np.uint8)


def from_bytes(content: NDArray[np.uint8]) -> Any:
    """Return the fitted estimator of `to_bytes`; ModelFileError if there is none."""
    depth = _depth.get() + 1
    require(depth < _DEEPEST, f"it has models inside of each other, more than {_DEEPEST} deep")
    outside = _depth.set(depth)
    try:
        return _from_bytes(content)
    finally:
        _depth.reset(outside)


def _from_bytes(content: NDArray[np.uint8]) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(content.tobytes())
        return load(path)


def read_header(path: PathLike) -> dict[str, Any]:
    """Read what a model file says about its model; the whole file is checked, with the errors of `load`.

    Its keys: ``format_version``, ``class``, ``versions`` (of excess, numpy, scikit-learn and python), ``parameters``,
    ``n_features``, ``feature_names`` (in order; None if there were none), ``classes`` (Off and On) and their
    ``classes_dtype``, ``alpha``, ``threshold`` (both None for a model that was trained elsewhere), ``attributes``
    (numbers that the estimator learnt besides) and ``metadata`` as given to `save`.
    """
    return _read(Path(path))[0]


def is_model_file(path: PathLike) -> bool:
    """Say whether a file begins as a model file of any format does; False as well if it cannot be read."""
    try:
        start = _read_start(Path(path))
    except (OSError, ValueError):
        return False
    return start[_LENGTH_SIZE:] == _START or start.startswith(_START_OF_VERSION_1)


# Files of arrays and a text.


def _write(path: Path, text: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Write a file under a temporary name and rename it, so that there is never a part of one."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        check_length(text)
    except ValueError as error:
        raise ModelFileError(f"{path} cannot be written: it {error}; give less metadata") from error
    try:
        target = path.resolve()  # a link stays a link: what it points to is replaced
        if target.exists() and not target.is_file():
            raise ModelFileError(f"{path} is {_kind_of_path(target)}; give the name of a file")
        with files.replacing(target) as temporary:
            save_file({**arrays, "sha256": _checksum(text, arrays)}, temporary, metadata={_KEY: text})
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
    except ModelFileError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelFileError(f"{path} cannot be written: {_reason(error)}") from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a file once all of it is checked."""
    try:
        start, size = _read_start(path), path.stat().st_size
        if start.startswith(_START_OF_VERSION_1):
            raise ModelFileError(f"{path} is a model file of an older format; train the model again and save it")
        if start[_LENGTH_SIZE:] != _START:
            what = "is not a model file of excess" if start else "is empty"
            raise ModelFileError(f"{path} {what}; give a file that save has written")
        # safetensors compares header and arrays with the size of the file before it reads them
        with noted(path), safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(_KEY, "")
            names = list(file.keys())
            if len(names) > _MOST_ARRAYS:
                raise ModelFileError(f"{path} has {len(names):,} arrays; {_MOST_ARRAYS:,} are the most")
            arrays = {name: _read_array(path, file, name, size) for name in names}
    except ModelFileError:
        raise
    except FileNotFoundError as error:
        raise ModelFileError(f"{path} does not exist") from error
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is damaged or incomplete: its arrays do not fit into it; copy or save it again"
        ) from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {_reason(error)}") from error
    if not np.array_equal(arrays.pop("sha256", np.empty(0)), _checksum(text, arrays)):
        raise ModelFileError(f"{path} is damaged or incomplete: its checksum does not match; copy or save it again")
    try:
        return parse_header(text), arrays
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
        raise ModelFileError(f"{path} has an array {name} of a wrong dtype or an impossible shape: {dtype}, {shape}")
    # aligned and writable as any array, so that no kernel is compiled anew for it
    array = np.require(file.get_tensor(name), requirements=["ALIGNED", "WRITEABLE"])
    if dtype == "BOOL" and (array.view(np.uint8) > 1).any():
        raise ModelFileError(f"{path} has an array {name} of wrong bools")
    return array


def _checksum(text: str, arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def _kind_of_path(path: Path) -> str:
    return "a folder" if path.is_dir() else "not a regular file"


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


def _is_tuned(estimator: Any) -> bool:
    """Say whether a class has a threshold that was tuned on On and Off events; others are made of their state alone."""
    return not hasattr(estimator, "_from_state")


def _restore(estimator: Any, header: dict[str, Any], arrays: StoredArrays) -> Any:
    """Make the estimator that a file describes."""
    if not _is_tuned(estimator):
        model = estimator._from_state(header, arrays)
        classes = _restore_classes(header["classes"], header["classes_dtype"])
        require(
            model.n_features_in_ == header["n_features"] and np.array_equal(model.classes_, classes),
            "its features or classes are not those of the model inside",
        )
        arrays.check_all_taken()
        return model
    unknown = set(header["parameters"]) - set(estimator._get_param_names())
    require(not unknown, f"this release does not know its parameters {', '.join(sorted(unknown))}; upgrade excess")
    # a parameter that an older release did not have yet takes its default
    model = estimator(**header["parameters"])
    n_features, names = header["n_features"], header["feature_names"]
    require(n_features >= 1, f"n_features is {n_features}")
    model.n_features_in_ = n_features
    if names is not None:
        require(
            len(names) == n_features and all(type(name) is str for name in names),
            f"feature_names are not {n_features} texts",
        )
        model.feature_names_in_ = np.array(names, dtype=object)
    model.classes_ = _restore_classes(header["classes"], header["classes_dtype"])
    require(header["alpha"] is not None and header["threshold"] is not None, "it has no alpha or no threshold")
    model.threshold_ = as_threshold("threshold", header["threshold"])
    scores = arrays.take("curve_scores", np.float64, None)
    n_cuts = len(scores) + 1
    thresholds, significance = (
        arrays.take(f"curve_{name}", np.float64, n_cuts) for name in ("thresholds", "significance")
    )
    n_on, n_off = (arrays.take_counts(f"curve_{name}", n_cuts) for name in ("n_on", "n_off"))
    model.curve_ = ThresholdCurve(scores, thresholds, n_on, n_off, significance, as_scalar_alpha(header["alpha"]))
    model.calibration_ = SignalCalibration.from_arrays(arrays, model.curve_.alpha)
    model._set_state(header["attributes"], arrays)
    arrays.check_all_taken()
    return model


def _restore_classes(values: list[Any], dtype: str) -> NDArray[Any]:
    require(_CLASS_DTYPES.fullmatch(dtype) is not None, f"its classes have the dtype {dtype!r:.20}")
    classes = np.array(values, dtype=np.dtype(dtype).newbyteorder("="))
    same = classes.shape == (2,) and [(type(v), v) for v in classes.tolist()] == [(type(v), v) for v in values]
    require(same, f"its classes are not two labels of the dtype {dtype!r}")
    require(tuple(classes) == binary_classes(classes, name="classes"), "its classes are not in sorted order")
    return classes
