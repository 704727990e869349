"""Training and applying on more events than fit into memory, or on a Dask cluster, as the commands ask for it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excess.analysis.search import Trained, to_be_saved
from excess.cli.printing import say

if TYPE_CHECKING:
    from excess.analysis.application import Applied
    from excess.analysis.inputs import SavedModel
    from excess.distributed import Dask
    from excess.events import AnalysisConfig

ChunkRows = Annotated[
    int | None,
    typer.Option(
        help="Train a forest on more events than fit into memory, reading so many at a time; without --join and "
        "--off, and without looking for events that are there twice.",
        min=1,
    ),
]
DaskAddress = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Let the workers of the Dask scheduler at this address do it, such as tcp://host:8786. They must see the "
        "files under the same names. Models to train: as with --chunk-rows.",
    ),
]


def train_at_scale(
    files: list[Path],
    config: AnalysisConfig,
    estimator: Any,
    groups: str | None,
    not_possible: dict[str, Any],
    chunk_rows: int | None,
    dask: str | None,
    as_json: bool,
) -> Trained:
    """Train a forest chunk by chunk, or on Dask; ``not_possible`` are the options that do not go with that."""
    from excess.analysis.models import MODELS
    from excess.analysis.training import train_on_files
    from excess.estimators.forest import OnOffForestClassifier

    for option, value in not_possible.items():
        if value:
            raise typer.BadParameter("does not go with --chunk-rows or --dask", param_hint=option)
    if not isinstance(estimator, OnOffForestClassifier):
        forests = ", ".join(name for name in MODELS if name.endswith("forest"))
        raise typer.BadParameter(f"must be one of {forests} with --chunk-rows or --dask", param_hint="--model")
    estimator.set_params(verbose=int(not as_json))
    rows = 200_000 if chunk_rows is None else chunk_rows
    with _workers(dask, as_json) as executor:
        trained = train_on_files(estimator, files, config, groups=groups, chunk_rows=rows, executor=executor)
    say(str(trained), as_json)
    return Trained(to_be_saved(trained.model), trained.n_events, trained.groups)


def apply_on_dask(
    saved: SavedModel, targets: dict[Path, Path], chunk_rows: int, dask: str, as_json: bool
) -> dict[Path, Applied]:
    """Apply a model to files, one worker per file; workers must see the files under these names."""
    from excess.analysis.workers import apply_to_files

    for path in targets:
        if not path.exists():
            raise FileNotFoundError(f"{path}: does not exist")
    with _workers(dask, as_json) as executor:
        done = apply_to_files(
            saved.fitted, saved.config, targets, executor=executor, chunk_rows=chunk_rows, verbose=int(not as_json)
        )
    for path, target in targets.items():
        say(f"{target}: {done[path]}", as_json)
    return done


@contextmanager
def _workers(address: str | None, as_json: bool) -> Iterator[Dask | None]:
    """Give the workers of a Dask cluster; None without an address. What Dask has to tell is for ``--debug``."""
    if address is None:
        yield None
        return
    from excess.distributed import Dask

    if "--debug" not in sys.argv:
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    executor = Dask(address)
    try:
        if not executor.threads():
            say(f"The Dask scheduler at {address} has no workers yet; waiting for some", as_json)
        yield executor
    finally:
        executor.close()
