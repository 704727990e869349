"""Nearby events of a run: their angles, scores and selection, in a file that maps and theta^2 plots are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.files import replacing
from excess.validation.detection import Detection
from excess.validation.detection_parts import Nearby

__all__ = ["NEARBY_FILE", "nearby_of", "read_nearby", "write_nearby"]

NEARBY_FILE = "nearby.npy"


def write_nearby(detections: Mapping[str, Detection], path: Path) -> None:
    """Write angles of nearby events, and scores and selection by each model; nothing where there are none."""
    known = {name: found.nearby for name, found in detections.items() if found.nearby is not None}
    theta = next((nearby.theta for nearby in known.values() if nearby.theta is not None), None)
    if theta is None:
        return
    fields: list[Any] = [("theta", np.float64, (theta.shape[1],))]
    for name in known:
        fields += [(f"{name}_score", np.float64), (f"{name}_selected", np.bool_)]
    rows = np.zeros(len(theta), dtype=fields)
    rows["theta"] = theta
    for name, nearby in known.items():
        rows[f"{name}_score"], rows[f"{name}_selected"] = nearby.score, nearby.selected
    with replacing(path) as temporary:
        np.save(temporary, rows, allow_pickle=False)


def read_nearby(path: Path, n_events: int) -> NDArray[Any] | None:
    """Read nearby events of all models; None where there is no such file. Raise ValueError where it has others."""
    # a memory map, because that compares the size that the file claims with the one that it has
    rows = np.array(np.lib.format.open_memmap(path, mode="r")) if path.is_file() else None
    if (0 if rows is None else len(rows)) != n_events:
        raise ValueError(f"{path.name} should hold {n_events} events")
    return rows


def nearby_of(model: str, rows: Any) -> Nearby | None:
    """Return the nearby events as a model sees them; None where it has not seen them."""
    if rows is None or f"{model}_score" not in rows.dtype.names:
        return None
    return Nearby(rows[f"{model}_score"], rows[f"{model}_selected"], rows["theta"])
