"""The record of a run: what it was started with, and values as JSON takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from excess._core.files import sha256_of
from excess._core.version import versions

__all__ = ["as_json", "describe_run"]


def describe_run(
    command: str,
    seed: int,
    files: Mapping[str, Sequence[Path]],
    options: Mapping[str, Any],
    title: str | None = None,
) -> dict[str, Any]:
    """Return what a run was started with, and all that is needed to repeat it."""
    return {
        "title": title,
        "command": command,
        "seed": seed,
        "options": dict(options),
        "files": [
            {"kind": kind, "path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for kind, paths in files.items()
            for path in paths
        ],
        "versions": versions(),
    }


def as_json(value: Any) -> Any:
    """Return nested values as JSON takes them; NaN, which JSON lacks, becomes null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None if value != value else str(value)
    return value
