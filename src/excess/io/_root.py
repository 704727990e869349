"""ROOT files: trees with one number per event in a branch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._utils.errors import EventFileError, require
from excess.io._files import as_native, check_columns, check_expansion, slices

MAGIC = b"root"
_MOST_BASKETS = 1_000_000


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the branches with one number per event."""
    with _open(path) as (_, branches):
        return tuple(branches)


def count(path: Path) -> int:
    """Return the number of events."""
    with _open(path) as (tree, _):
        return int(tree.num_entries)


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    with _open(path) as (tree, branches):
        for name in names:
            _check_baskets(path, branches[name])
        for part in slices(int(tree.num_entries), chunk_rows):
            options = {"library": "np", "entry_start": part.start, "entry_stop": part.stop}
            found = {name: as_native(np.asarray(branches[name].array(**options))) for name in names}
            yield pd.DataFrame(found, index=range(part.stop - part.start), copy=False)


@contextmanager
def _open(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Open the tree of a file, with its numeric branches, after checking its declared size."""
    uproot = require("uproot", "reading ROOT", extra="root")
    # no links in names or files are followed; num_workers: no own threads
    with uproot.open(path, num_workers=1, object_cache=None, array_cache=None) as file:
        # classes in the file would be compiled from its content; those of flat trees are built in
        file.file._streamers = {}
        check_columns(path, len(file.keys(recursive=True)))
        kinds = file.classnames(recursive=True, cycle=False)
        names = [name for name, kind in kinds.items() if kind == "TTree"]
        if len(names) != 1:
            others = ", ".join(f"{name} ({kind})" for name, kind in list(kinds.items())[:8]) or "nothing"
            found = f"contains the trees {', '.join(names[:8])}" if names else f"contains no TTree, but {others}"
            raise EventFileError(f"{path}: {found}; write a single tree of events to a file")
        tree = file[names[0]]
        check_columns(path, len(tree.branches))
        dtype = uproot.interpretation.numerical.AsDtype
        branches = {
            branch.name: branch
            for branch in tree.branches
            if isinstance(kind := branch.interpretation, dtype)
            and kind.from_dtype.shape == ()
            and kind.from_dtype.kind in "biuf"  # that of records is V
        }
        if not branches:
            raise EventFileError(f"{path}: its tree {names[0]} has no branch with one number per event")
        width = sum(branch.interpretation.from_dtype.itemsize for branch in branches.values())
        check_expansion(path, int(tree.num_entries) * width)
        yield tree, branches


def _check_baskets(path: Path, branch: Any) -> None:
    """Raise EventFileError if the baskets of a branch declare far more than the file can contain."""
    if branch.num_entries != branch.tree.num_entries or branch.num_baskets > _MOST_BASKETS:
        raise EventFileError(f"{path}: the branch {branch.name!r} has another length than its tree; it may be damaged")
    check_expansion(path, sum(branch.basket_uncompressed_bytes(number) for number in range(branch.num_baskets)))
