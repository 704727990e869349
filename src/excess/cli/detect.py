"""The command ``excess detect``: the significance of a source, by cross-validated models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.analysis.models import MODELS
from excess.cli.configuration import assume_config
from excess.cli.finish import finish_run
from excess.cli.inputs import given_files, observe_events
from excess.cli.options import EventOptions, ReferenceOptions, RunOptions, ValidationOptions, grouped
from excess.cli.printing import say

__all__ = ["detect"]


@grouped
def detect(
    events: EventOptions,
    references: ReferenceOptions,
    validation: ValidationOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help=f"One of {', '.join(MODELS)}. May be given several times; the verdict is about the first. By default "
            "forest; with references hybrid, and forest beside it.",
        ),
    ] = None,
    model_file: Annotated[
        list[Path] | None,
        typer.Option(help="Model of 'excess train', applied as it is. May be given several times."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="What was observed, for the report.")] = None,
    *,
    run: RunOptions,
) -> None:
    """Cross-validate models on On and Off events, and say how significant the source is."""
    with exit_at_interrupts():
        from excess.analysis import claim_run_folder, load_model, make_model, search, split_references

    names = model or ([] if model_file else ["forest"])
    if references.given and "hybrid" not in names:
        names = [*names, "hybrid"] if model or model_file else ["hybrid", *names]
    if len(set(names)) < len(names):
        raise typer.BadParameter("is given twice", param_hint=f"--model {max(names, key=names.count)}")
    for name in names:
        if name not in MODELS and Path(name).is_file():
            raise typer.BadParameter("is a file; give a trained model by --model-file", param_hint=f"--model {name}")
    # whatever is wrong with the models shows before the events are read
    for name in names:
        make_model(name)
    inputs = [*given_files(events, references), *(model_file or [])]
    with claim_run_folder(output, inputs, overwrite=run.overwrite):
        trained = [load_model(path, n_jobs=run.jobs) for path in model_file or []]
        config = assume_config(events, run.as_json, like=trained[0].config if trained else None)
        columns, others = split_references(references.reference or [], n_jobs=run.jobs)
        columns += [name for one in trained for name in one.config.references if name not in columns]
        observation = observe_events(events, config, columns, nearby=True)
        say(str(observation), run.as_json)
        found = search(
            observation,
            names,
            model_files=trained,
            simulated=references.simulated,
            references=others,
            folds=validation.folds,
            strategy=validation.strategy,
            statistic=validation.statistic,
            repeats=validation.repeats,
            permutations=validation.permutations,
            null_tests="auto" if validation.null_test is None else validation.null_test,
            title=title,
            seed=run.seed,
            n_jobs=run.jobs,
            verbose=not run.as_json,
        )
        finish_run(found, output, run)
