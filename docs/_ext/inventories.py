"""Inventories of other projects' names, for links to their documentation without a network."""

from __future__ import annotations

import zlib
from pathlib import Path

__all__ = ["write_inventories"]

_HEADER = """# Sphinx inventory version 2
# Project: {name}
# Version:
# The remainder of this file is compressed using zlib.
"""


def write_inventories(listing: Path, folder: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory for each project of a list; return the mapping that intersphinx takes.

    A line of the list is the name and address of a project, or, indented below it, the domain and role of an object,
    its name, and the page that describes it. A ``$`` at the end of a page stands for the name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    projects: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in listing.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        if line.startswith(" "):
            role, name, page = words
            lines.append(f"{name} {role} 1 {page} -")
        else:
            name, address = words
            lines = []
            projects[name] = (address, lines)
    mapping = {}
    for name, (address, own) in projects.items():
        path = folder / f"{name}.inv"
        content = zlib.compress(("\n".join(own) + "\n").encode())
        path.write_bytes(_HEADER.format(name=name).encode() + content)
        mapping[name] = (address, str(path))
    return mapping
