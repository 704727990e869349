"""Checks of what plots are given."""

from __future__ import annotations

import os
from typing import Any

from excess.validation.detection import Detection

__all__ = ["PathLike", "check_detection", "pick_one"]

PathLike = str | os.PathLike[str]


def check_detection(detection: Any) -> None:
    """Raise TypeError unless this is a detection."""
    if not isinstance(detection, Detection):
        raise TypeError(f"detection must be a Detection, got {type(detection).__name__}{pick_one(detection)}")


def pick_one(value: Any) -> str:
    """Return a hint for results of several models."""
    return f"; pick one of {', '.join(map(repr, value))}" if isinstance(value, dict) and value else ""
