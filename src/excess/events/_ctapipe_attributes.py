"""What ctapipe notes about its tables in HDF5 attributes, read without running anything stored there."""

from __future__ import annotations

import pickletools
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess.events._errors import EventFileError, require

__all__ = ["FixedPoint", "check_pickles", "fixed_point"]

#: Operations of a pickle that fetch Python objects by name; without one, a pickle cannot run code.
FETCHING = frozenset({"GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"})


class FixedPoint(NamedTuple):
    """Floats that are stored as scaled integers, with three integers kept for -inf, NaN and inf.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.events._ctapipe_attributes import FixedPoint
    >>> stored = FixedPoint(scale=10.0, offset=5.0, dtype=np.dtype("f4"), special={65534: np.nan})
    >>> stored.undo(np.array([5, 20, 65534], dtype="u2"))
    array([0. , 1.5, nan], dtype=float32)
    """

    scale: float
    offset: float
    dtype: np.dtype[Any]
    special: dict[int, float]

    def undo(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return the floats."""
        values = (stored.astype(self.dtype) - self.dtype.type(self.offset)) / self.dtype.type(self.scale)
        for code, meaning in self.special.items():
            values[stored == code] = meaning
        return values


def fixed_point(attributes: Mapping[str, Any], position: int, name: str, dtype: np.dtype[Any]) -> FixedPoint | None:
    """Return how a column is to be scaled back, None where it is stored as it is.

    Since version 4 of its data model ctapipe notes that by the position of the column, before that by its name.
    """
    for prefix in (f"CTAFIELD_{position}_", f"{name}_"):
        scale = attributes.get(f"{prefix}TRANSFORM_SCALE")
        if scale is None or dtype.kind not in "iu":
            continue
        source = attributes.get(f"{prefix}TRANSFORM_DTYPE", "float32")
        limits = np.iinfo(dtype)
        unsigned = dtype.kind == "u"
        codes = {
            "NEGINF_VALUE": (limits.max - 2 if unsigned else limits.min, -np.inf),
            "NAN_VALUE": (limits.max - 1 if unsigned else limits.min + 1, np.nan),
            "POSINF_VALUE": (limits.max, np.inf),
        }
        special = {int(attributes.get(prefix + key, code)): value for key, (code, value) in codes.items()}
        offset = float(attributes.get(f"{prefix}TRANSFORM_OFFSET", 0))
        return FixedPoint(float(scale), offset, np.dtype(_as_text(source)), special)
    return None


def check_pickles(path: Path, tables: Iterable[str]) -> None:
    """Raise EventFileError if opening one of the tables would run code from the file.

    PyTables unpickles each attribute of each node that it opens, and a pickle can call anything. The attributes
    are looked at with h5py, which does not, before PyTables sees the file.
    """
    h5py = require("h5py", "reading HDF5")
    nodes = {"/"}
    for table in tables:
        nodes |= {table, *map(str, PurePosixPath(table).parents)}
    with h5py.File(path, "r") as file:
        for node in sorted(nodes):
            for name, value in file[node].attrs.items():
                if _fetches(value):
                    raise EventFileError(
                        f"{path}: the attribute {name!r} of {node} is a Python pickle that could run code; "
                        "remove it or write the file with a current ctapipe"
                    )


def _fetches(value: Any) -> bool:
    """Return whether an attribute is a pickle that fetches Python objects."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not isinstance(value, bytes):
        return False
    try:
        return any(operation.name in FETCHING for operation, _, _ in pickletools.genops(value))
    except Exception:  # not a pickle, and none up to the place where reading it fails
        return False


def _as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
