"""The lowest supported version of every dependency, as constraints for pip: `make test-oldest` installs them."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
_BOUND = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?\s*>=\s*(?P<version>[0-9][0-9a-z.]*)")


def oldest(requirements: Iterable[str]) -> list[str]:
    """Return ``name==version`` of every requirement with a lower bound, in order, each once.

    Parameters
    ----------
    requirements : iterable of str
        Requirements as in pyproject.toml. Two bounds of one name must agree.

    Examples
    --------
    >>> oldest(["numpy>=1.26", "typer>=0.12,<1", "types-PyYAML", "excess[dask]"])
    ['numpy==1.26', 'typer==0.12']
    """
    pins: dict[str, str] = {}
    for requirement in requirements:
        bound = _BOUND.match(requirement)
        if bound is None:
            continue
        name, version = bound["name"].lower(), bound["version"]
        if pins.setdefault(name, version) != version:
            raise ValueError(f"{name} has two lower bounds: {pins[name]} and {version}")
    return [f"{name}=={version}" for name, version in pins.items()]


def requirements(pyproject: Path, extras: Iterable[str]) -> list[str]:
    """Return the requirements of the package and of some of its extras, with those of extras that these name."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"])
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[(.*)\]", line)
            found += requirements(pyproject, own[1].split(",")) if own else [line]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    print("\n".join(oldest(requirements(PYPROJECT, sys.argv[1:]))))
