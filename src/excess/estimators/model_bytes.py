"""The frame of a model file: bytes in, header and arrays out, and back; data only, checked to the last bit.

A file is, in this order and without anything between or after:

1. the line ``excess model``;
2. the length of the header in bytes, as a little-endian 64-bit integer;
3. the header, JSON in ASCII, filled up with spaces so that what follows starts at a multiple of 64 bytes;
4. the arrays that the header lists, raw and little-endian, each from the next multiple of 64 bytes on;
5. the SHA-256 of all bytes before it.

This frame is the same in every format version; the header says which version its contents have.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core import files
from excess._core.version import __version__

FORMAT_VERSION = 1
"""Version of what a header and its arrays mean; to be raised when an older package would misread them."""

MAGIC = b"excess model\n"
_LENGTH_SIZE = 8
_DIGEST_SIZE = 32
_ALIGNMENT = 64
_DTYPES = re.compile(r"\|b1|\|[iu]1|<[iu][248]|<f[48]|<U[1-9][0-9]{0,5}")
"""Bool, integers, floats and text of a fixed width."""
_FIELDS: dict[str, tuple[type, ...]] = {
    "class": (str,),
    "versions": (dict,),
    "parameters": (dict,),
    "n_features": (int,),
    "feature_names": (list, NoneType),
    "alpha": (float,),
    "threshold": (float,),
    "attributes": (dict,),
    "metadata": (dict,),
    "arrays": (list,),
}
"""What a header holds besides its format version."""


class ModelFileError(ValueError):
    """A model file that cannot be written, read or trusted; the message starts with its path.

    Examples
    --------
    >>> from excess.estimators.model_file import ModelFileError, load
    >>> try:
    ...     load("crab.excess")
    ... except ModelFileError as error:
    ...     print(error)
    crab.excess does not exist
    """


def write_model(path: Path, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a file under a temporary name and rename it, so that there is never a part of one."""
    raw = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    for name, array in raw.items():
        if not _DTYPES.fullmatch(array.dtype.str):
            raise TypeError(f"{name} of the dtype {array.dtype} cannot be saved; use whole numbers, bools or text")
    try:
        # a link stays a link: what it points to is replaced
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise ModelFileError(f"{path} is {_what(target)}; give the name of a file")
        with files.replacing(target) as temporary, temporary.open("wb") as file:
            digest = hashlib.sha256()
            for part in _pieces(header, raw):
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
    except ModelFileError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{path} cannot be written: {_reason(error)}") from error


def _pieces(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Iterator[Any]:
    """Give all bytes of a file but the checksum, piece by piece."""
    entries: list[dict[str, Any]] = []
    offset = 0
    for name, array in arrays.items():
        # offsets count from the end of the header, whose length depends on what they are
        entries.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "offset": offset})
        offset = _aligned(offset + array.nbytes)
    text = json.dumps({**header, "arrays": entries}, allow_nan=False).encode("ascii")
    before = len(MAGIC) + _LENGTH_SIZE
    text = text.ljust(_aligned(before + len(text)) - before)
    yield MAGIC
    yield len(text).to_bytes(_LENGTH_SIZE, "little")
    yield text
    position = 0
    for entry, array in zip(entries, arrays.values(), strict=True):
        yield bytes(entry["offset"] - position)
        yield array.reshape(-1).view(np.uint8).data
        position = entry["offset"] + array.nbytes


def read_model(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a file once all of it is checked."""
    data = _file_bytes(path)
    body = data[:-_DIGEST_SIZE]
    if hashlib.sha256(body.data).digest() != data[-_DIGEST_SIZE:].tobytes():
        raise ModelFileError(f"{path} is damaged or incomplete: its checksum does not match; copy or save it again")
    try:
        return _unpacked(body)
    except ValueError as error:
        raise ModelFileError(f"{path} {error}") from error


def _file_bytes(path: Path) -> NDArray[np.uint8]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelFileError(f"{path} is {_what(path)}; give the name of a model file")
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
            if start != MAGIC:
                what = "is not a model file of excess" if start else "is empty"
                raise ModelFileError(f"{path} {what}; give a file that save has written")
            file.seek(0)
            return np.fromfile(file, dtype=np.uint8)
    except FileNotFoundError as error:
        raise ModelFileError(f"{path} does not exist") from error
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {_reason(error)}") from error


def _unpacked(body: NDArray[np.uint8]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays from all bytes before the checksum; errors go on from the path."""
    start = len(MAGIC) + _LENGTH_SIZE
    length = int.from_bytes(body[len(MAGIC) : start].tobytes(), "little")
    require(start + length <= len(body), "ends before its header does")
    require((start + length) % _ALIGNMENT == 0, "has a header of a wrong length")
    try:
        header = json.loads(body[start : start + length].tobytes().decode("ascii"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError("has a header that is not JSON") from error
    version = header.get("format_version", 0) if isinstance(header, dict) else 0
    require(type(version) is int and version >= 1, "has a header without a format version")
    require(
        version <= FORMAT_VERSION,
        f"has format version {version}, but excess {__version__} reads versions up to {FORMAT_VERSION}; upgrade "
        "excess, or save the model again with this release",
    )
    missing = [name for name in _FIELDS if name not in header]
    require(not missing, f"has a header without {', '.join(missing)}")
    for name in ("parameters", "attributes"):
        if isinstance(header[name], dict):
            header[name] = {key: _restored_number(value) for key, value in header[name].items()}
    header["threshold"] = _restored_number(header["threshold"])
    wrong = [name for name, types in _FIELDS.items() if type(header[name]) not in types]
    require(not wrong, f"has a header with an impossible value of {', '.join(wrong)}")
    return header, _cut_out(body[start + length :], header.pop("arrays"))


def _cut_out(data: NDArray[np.uint8], entries: list[Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays that entries describe: one after the other, without gap or overlap, to the end of the data."""
    arrays: dict[str, NDArray[Any]] = {}
    end = 0
    for entry in entries:
        require(isinstance(entry, dict) and set(entry) == {"name", "dtype", "shape", "offset"}, "lists no valid array")
        name, dtype, shape, offset = (entry[key] for key in ("name", "dtype", "shape", "offset"))
        require(type(name) is str and name not in arrays, "lists an array without a name or twice")
        require(type(dtype) is str and _DTYPES.fullmatch(dtype) is not None, f"has an array {name} of a wrong dtype")
        lengths = shape if isinstance(shape, list) else [None]
        require(
            len(lengths) <= 2 and all(type(n) is int and 0 <= n <= len(data) for n in lengths),
            f"has an array {name} of an impossible shape",
        )
        start, end = _aligned(end), _aligned(end) + np.dtype(dtype).itemsize * math.prod(lengths)
        require(type(offset) is int and offset == start, f"has an array {name} in a wrong place")
        require(end <= len(data), f"has an array {name} that is larger than the file")
        array = data[start:end].view(dtype).reshape(lengths)
        require(array.dtype.kind != "b" or bool((data[start:end] <= 1).all()), f"has an array {name} of wrong bools")
        require(
            array.dtype.kind != "U" or bool((data[start:end].view("<u4") <= 0x10FFFF).all()),
            f"has an array {name} of wrong text",
        )
        # views of one buffer: aligned and writable as any array, so that no kernel is compiled anew for them
        arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    require(end == len(data), "holds bytes that its header does not list")
    return arrays


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _what(path: Path) -> str:
    return "a folder" if path.is_dir() else "not a regular file"


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


def _restored_number(value: Any) -> Any:
    if isinstance(value, dict):
        word = str(value.get("float"))
        require(word in ("inf", "-inf", "nan"), "has an impossible number in its header")
        return float(word)
    require(not isinstance(value, list), "has a list in its header where a number or text should be")
    return value


def require(holds: bool, otherwise: str) -> None:
    """Raise ValueError with a sentence unless a condition holds."""
    if not holds:
        raise ValueError(otherwise)
