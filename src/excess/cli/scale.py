"""Training and applying on more events than fit into memory, or on a Dask cluster, as the commands ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excess.cli.printing import say
from excess.cli.running import Trained

if TYPE_CHECKING:
    from excess.application import Applied
    from excess.cli.inputs import SavedModel
    from excess.events import AnalysisConfig

ChunkRows = Annotated[
    int | None,
    typer.Option(help="Train a forest on more events than fit into memory, reading so many at a time.", min=1),
]
DaskAddress = Annotated[
    str | None,
    typer.Option("--dask", metavar="ADDRESS", help="Let the workers of the Dask scheduler at this address do it."),
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
    from excess.distributed import train_on_files
    from excess.forest import OnOffForestClassifier

    for option, value in not_possible.items():
        if value:
            raise typer.BadParameter("does not go with --chunk-rows or --dask", param_hint=option)
    if not isinstance(estimator, OnOffForestClassifier):
        raise typer.BadParameter("must be a forest with --chunk-rows or --dask", param_hint="--model")
    estimator.set_params(verbose=int(not as_json))
    trained = train_on_files(
        estimator, files, config, groups=groups, chunk_rows=200_000 if chunk_rows is None else chunk_rows, client=dask
    )
    say(str(trained), as_json)
    # the file of a model is the same whether its progress was shown or not
    return Trained(trained.model.set_params(verbose=0), trained.n_events, trained.groups)


def apply_on_dask(
    saved: SavedModel, targets: dict[Path, Path], chunk_rows: int, dask: str, as_json: bool
) -> dict[Path, Applied]:
    """Apply a model to files, one worker per file; workers must see the files under these names."""
    from excess.distributed import apply_to_files

    done = apply_to_files(
        saved.fitted, saved.config, targets, client=dask, chunk_rows=chunk_rows, verbose=int(not as_json)
    )
    for path, target in targets.items():
        say(f"{target}: {done[path]}", as_json)
    return done
