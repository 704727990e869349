"""Floats that ctapipe stores as scaled integers, as the attributes of a table describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FixedPoint", "fixed_point"]


class FixedPoint(NamedTuple):
    """Floats that are stored as scaled integers, with three integers kept for -inf, NaN and inf.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.events._fixed_point import FixedPoint
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
        floats = np.dtype(_as_text(source))
        if floats.kind != "f":
            raise ValueError(f"{prefix}TRANSFORM_DTYPE must be a type of floats, got {floats}")
        return FixedPoint(float(scale), offset, floats, special)
    return None


def _as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
