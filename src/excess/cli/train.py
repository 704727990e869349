"""The command ``excess train``: one model on all events, in memory, in chunks or on workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.analysis.models import MODELS
from excess.cli.configuration import assume_config
from excess.cli.inputs import given_files, observe_events
from excess.cli.options import ChunkRows, EventOptions, ReferenceOptions, RunOptions, TrainingDaskAddress, grouped
from excess.cli.printing import print_json, say, trust_text

__all__ = ["train"]


@grouped
def train(
    events: EventOptions,
    references: ReferenceOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help=f"One of {', '.join(MODELS)}. By default forest; with references hybrid."),
    ] = None,
    max_depth: Annotated[
        int | None, typer.Option(help="Largest depth of trees; without it that of the model.", min=1)
    ] = None,
    chunk_rows: ChunkRows = None,
    dask: TrainingDaskAddress = None,
    *,
    run: RunOptions,
) -> None:
    """Train a model on all On and Off events, to be applied to others."""
    with exit_at_interrupts():
        from excess.analysis import (
            check_chunked_model,
            check_model_path,
            make_model,
            split_references,
            train,
            train_in_chunks,
        )

    name = model or ("hybrid" if references.given else "forest")
    make_model(name)  # an unknown name shows before anything is looked at
    check_model_path(output, given_files(events, references), overwrite=run.overwrite)
    replaces = output.exists()
    settings: dict[str, Any] = {
        "max_depth": max_depth,
        "seed": run.seed,
        "n_jobs": run.jobs,
        "verbose": not run.as_json,
    }
    if chunk_rows is not None or dask is not None:
        _check_chunked(events, references)
        check_chunked_model(name)
    config = assume_config(events, run.as_json)
    if chunk_rows is None and dask is None:
        columns, others = split_references(references.reference or [], n_jobs=run.jobs)
        observation = observe_events(events, config, columns, nearby=False)
        say(str(observation), run.as_json)
        trained = train(observation, name, simulated=references.simulated, references=others, **settings)
    else:
        trained = train_in_chunks(
            events.files,
            config,
            name,
            groups=events.groups,
            source=events.position,
            regions=events.regions,
            features=[] if config is not events.config else events.features or [],
            exclude=[] if config is not events.config else events.exclude or [],
            chunk_rows=chunk_rows or 200_000,
            executor=dask,
            **settings,
        )
        say(str(trained), run.as_json)
    trained.save(output)
    if replaces:
        say(f"{output}: replaces the file that was there", run.as_json)
    tuned = trained.model.tuned_counts_
    say(f"{output}: tuned on {tuned}. Not a result to quote: these are the events it was tuned on.", run.as_json)
    if trained.trust is not None:
        say(f"{output} trusts: {trust_text(trained.trust)}", run.as_json)
    if run.as_json:
        found = {"n_events": trained.n_events, "threshold": trained.model.threshold_, "trust": trained.trust}
        print_json({"model": str(output), **found})


def _check_chunked(events: EventOptions, references: ReferenceOptions) -> None:
    """Refuse options that do not go with training in chunks."""
    if events.lists_observations:
        raise typer.BadParameter("do not go with a list of observations", param_hint="--chunk-rows and --dask")
    for option, given in (vars(events) | vars(references)).items():
        if given and option in ("join", "off", "alpha", "bins", "simulated", "reference"):
            raise typer.BadParameter("does not go with --chunk-rows or --dask", param_hint=f"--{option}")
