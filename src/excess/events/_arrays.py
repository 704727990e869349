"""Arrays as files hold them, turned into columns of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_native", "slices"]


def as_native(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in the byte order of this machine, and bytes as text.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.events._arrays import as_native
    >>> as_native(np.array([1, 2], dtype=">i4")).dtype.isnative
    True
    >>> as_native(np.array([b"On", b"Off"])).tolist()
    ['On', 'Off']
    """
    if values.dtype.kind == "S":
        return np.array([value.decode("utf-8", "replace") for value in values.tolist()], dtype=object)
    if values.dtype.kind == "U":
        return values.astype(object)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def slices(n_rows: int, chunk_rows: int | None) -> Iterator[slice]:
    """Cut ``n_rows`` rows into slices of at most ``chunk_rows``; no rows give one empty slice.

    Examples
    --------
    >>> from excess.events._arrays import slices
    >>> [(part.start, part.stop) for part in slices(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(n_rows, 1) if chunk_rows is None else chunk_rows
    for start in range(0, max(n_rows, 1), step):
        yield slice(start, min(start + step, n_rows))
