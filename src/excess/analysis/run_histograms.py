"""Histograms of a run: On and Off in every feature and on the sky, in a file that reports are drawn from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from excess._core.files import write_text
from excess.validation.detection import Detection
from excess.validation.feature_histograms import FeatureHistogram
from excess.validation.sky_map import SkyMap

__all__ = ["HISTOGRAMS_FILE", "read_histograms", "write_histograms"]

HISTOGRAMS_FILE = "histograms.json"
_VERSION = 1


def write_histograms(detections: Mapping[str, Detection], path: Path) -> None:
    """Write the histograms of all models; nothing where there are none. The file has no events, so it stays small."""
    models = {
        name: {
            "features": None if found.features is None else [one.to_dict() for one in found.features],
            "sky": None if found.sky is None else found.sky.to_dict(),
        }
        for name, found in detections.items()
    }
    if any(value is not None for own in models.values() for value in own.values()):
        content = {"version": _VERSION, "models": models}
        write_text(path, json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n")


def read_histograms(path: Path) -> dict[str, dict[str, Any]]:
    """Return fields of the detection of each model; nothing where there is no such file, as in older runs."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["version"] != _VERSION:
        raise ValueError(f"{path.name} has version {content['version']}, and this version of excess reads {_VERSION}")
    return {
        name: {
            "features": None if own["features"] is None else tuple(map(FeatureHistogram.from_dict, own["features"])),
            "sky": None if own["sky"] is None else SkyMap.from_dict(own["sky"]),
        }
        for name, own in content["models"].items()
    }
