"""The header of a model file: from Python objects to JSON and back, with checks in both directions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np

from excess._core.version import __version__
from excess.estimators.model_state import require

FORMAT_VERSION = 4
"""Version of what a header and its arrays mean; to be raised when an older package would misread them."""

_FIELDS: dict[str, tuple[type, ...]] = {
    "class": (str,),
    "versions": (dict,),
    "parameters": (dict,),
    "n_features": (int,),
    "feature_names": (list, NoneType),
    "classes": (list,),
    "classes_dtype": (str,),
    "alpha": (float, NoneType),
    "threshold": (float, NoneType),
    "attributes": (dict,),
    "metadata": (dict,),
}
"""What a header holds besides its format version."""
_MAX_NESTING = 50
MAX_LENGTH = 1 << 24
"""Characters of a header; the names of some ten thousand files and groups that a model was trained on."""
_REPLACEMENTS = {"random_state": "None", "threshold": "model.threshold_"}
"""Values by which parameters that a file cannot hold may be replaced."""


def parse_header(text: str) -> dict[str, Any]:
    """Return a header from its JSON; errors go on from the path."""
    check_length(text)
    try:
        header = json.loads(text.encode("ascii"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError("has a header that is not JSON") from error
    version = header.get("format_version", 0) if isinstance(header, dict) else 0
    require(type(version) is int and version >= 1, "has a header without a format version")
    require(
        version <= FORMAT_VERSION,
        f"has format version {version}, but excess {__version__} reads versions up to {FORMAT_VERSION}; upgrade "
        "excess, or save the model again with this release",
    )
    require(version == FORMAT_VERSION, f"has format version {version}, an older one; train the model again and save it")
    missing = [name for name in _FIELDS if name not in header]
    require(not missing, f"has a header without {', '.join(missing)}")
    for name in ("parameters", "attributes"):
        if isinstance(header[name], dict):
            header[name] = {key: _parse_number(value) for key, value in header[name].items()}
    header["threshold"] = _parse_number(header["threshold"])
    unknown = [name for name in header if name not in _FIELDS and name != "format_version"]
    require(not unknown, f"has a header with {len(unknown):,} entries that are not known, such as {unknown[:1]!r:.40}")
    wrong = [name for name, types in _FIELDS.items() if type(header[name]) not in types]
    require(not wrong, f"has a header with an impossible value of {', '.join(wrong)}")
    return header


def check_length(text: str) -> None:
    """Raise ValueError if a header is too long; the message goes on from the path."""
    require(len(text) <= MAX_LENGTH, f"has a header of {len(text):,} characters; {MAX_LENGTH:,} are the most")


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _parse_number(value: Any) -> Any:
    if isinstance(value, dict):
        word = str(value.get("float"))
        require(word in ("inf", "-inf", "nan"), "has an impossible number in its header")
        return float(word)
    require(not isinstance(value, list), "has a list in its header where a number or text should be")
    return value


def _as_scalar(value: Any) -> bool | int | float | str | None:
    """Return a value as JSON knows it; TypeError if it is none of these."""
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 and value.dtype.kind in "biufUO":
        value = float(value) if value.dtype.kind == "f" else value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError


def as_number(value: Any) -> Any:
    """Return a scalar for the header; JSON has no words for infinity and NaN, so they are wrapped."""
    value = _as_scalar(value)
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def as_parameter(name: str, value: Any) -> Any:
    """Return a parameter of an estimator for the header."""
    try:
        return as_number(value)
    except TypeError as error:
        new = _REPLACEMENTS.get(name, "...")
        raise TypeError(
            f"{name} is a {type(value).__name__}, which a model file cannot hold; call "
            f"model.set_params({name}={new}) before saving, which leaves the fitted model as it is"
        ) from error


def as_json(metadata: Any, where: str = "metadata", depth: int = 0) -> Any:
    """Return metadata as JSON knows it; NumPy numbers and arrays become numbers and lists."""
    if depth > _MAX_NESTING:
        raise ValueError(f"metadata must be nested at most {_MAX_NESTING} deep")
    if isinstance(metadata, Mapping):
        if not all(isinstance(key, str) for key in metadata):
            raise TypeError(f"{where} must have text as keys, got {list(metadata)!r:.60}")
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
        raise TypeError(
            f"{where} is a {type(metadata).__name__}, which a model file cannot hold; give text or numbers"
        ) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which JSON cannot hold; give None or text")
    return value
