"""The application: its commands and its entry point."""

from __future__ import annotations

import faulthandler
import inspect
import logging
import re
import shlex
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import wraps
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from excess import analysis
from excess._utils.errors import ArgumentError, MismatchError, handle_once
from excess.cli import _options as opt
from excess.cli import _printing as out

_MODEL_NAMES = ", ".join(analysis.MODELS)
_HELP = {
    "aeff": "FITS files with an effective area; copies with that area times the efficiency are written to the output "
    "folder, with their selected events if these are scored. All files up to the next option.",
    "energy": "Column of true energies, or an expression of columns, in TeV; by default one that is known.",
    "models": f"One of {_MODEL_NAMES}. May be given several times; the verdict is about the first. By default forest; "
    "with references hybrid, and forest beside it.",
    "of": "What the plot and the effective area take the fraction of: all simulated gammas, or those that pass the "
    "quality cuts (quality).",
    "prefix": "Name the new columns PREFIX_score, PREFIX_signal_probability and PREFIX_selected.",
    "trained": "Model file of 'excess train', or output folder of 'excess detect --write-events'.",
    "write_events": "Folder for copies of the event files, each event scored by the model that was not trained on its "
    "group; keeps the models for 'excess efficiency'.",
}
_OUTPUT, _SIMULATED = ("--output", "-o"), ("hdf5", "parquet", "csv")

app = typer.Typer(
    name="excess",
    help="Learn to detect a source from On and Off events alone.",
    epilog="Add --debug to any command to see the traceback of an error. Exit codes: 0 finished, 1 something is wrong "
    "with the input or the output, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from excess._utils.version import __version__

        typer.echo(f"excess {__version__}")
        raise typer.Exit


class Command(TyperCommand):
    """A command that shows an argument which the analysis refuses as a wrong option, with its usage."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except MismatchError:
            raise
        except ArgumentError as error:
            usage = typer.BadParameter(out.visible(_problem_of(error)), param_hint=opt.as_option(error.argument))
            usage.ctx = ctx
            raise usage from error


class FilesCommand(Command):
    """A command whose options --off, --join and --aeff take all files up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with an option for each file."""
        taking = [parameter for parameter in self.params if parameter.name in ("off", "join", "aeff")]
        several = tuple(name for parameter in taking for name in parameter.opts)
        if not ctx.resilient_parsing:  # which is for completion in a shell, while the line is not finished
            _check_files(args, several)
        try:
            return super().parse_args(ctx, _repeat_options(args, several))
        except typer.BadParameter as error:
            name = next((word for word in args if word in several), None)
            if name is None or error.param is None or error.param.name != "files":
                raise
            missing = f"are missing: {name} takes all files up to the next option; put FILES first, or behind '--'"
            raise typer.BadParameter(missing, param_hint="FILES") from error


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _check_files(words: list[str], several: tuple[str, ...]) -> None:
    """Refuse an option without a file; the parser would take the next option for one."""
    for word, following in pairwise([*words, "--"]):
        if word == "--":
            return
        if word in several and _is_option(following):
            raise typer.BadParameter("needs at least one file", param_hint=word)


def _repeat_options(words: list[str], several: tuple[str, ...]) -> list[str]:
    """Return the words of a command line with the option in front of each of its values: ``--off a --off b``."""
    found: list[str] = []
    option = None
    for number, word in enumerate(words):
        if word == "--":
            return found + words[number:]
        if _is_option(word):
            option = word if word in several else None
            if option is None or number == len(words) - 1:
                found.append(word)
        else:
            found += [word] if option is None else [option, word]
    return found


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: each parameter whose type is a dataclass becomes the options in it."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if hasattr(kind, "__dataclass_fields__")}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            default = inspect.Parameter.empty if field.default is field.default_factory else field.default
            settings = {"default": default, "annotation": types[field.name]}
            parameters.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, **settings))

    @wraps(command)
    def expanded(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


@grouped
def init(
    events: opt.InputOptions,
    output: Annotated[Path | None, typer.Option(*_OUTPUT, help="YAML file to write; by default it is printed.")] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Look at event files, and write a configuration for them: features, regions and groups, with reasons."""
    if events.lists_observations:
        raise typer.BadParameter("is a list of observations; give event files", param_hint="FILES")
    settings = {"groups": events.groups, **events.proposal_settings}
    proposal = analysis.init(events.files, output, overwrite=overwrite, **settings)
    out.say(proposal.describe(), as_json)
    if proposal.reasons:
        out.say(proposal.describe_rejected(), as_json)
    if proposal.references:
        out.say(f"Scores of other classifiers, for --reference: {', '.join(proposal.references)}", as_json)
    if proposal.obstacle is not None:
        out.say(f"No detection yet: {proposal.obstacle}", as_json)
    if as_json:
        out.print_json({**proposal.to_dict(), "path": None if output is None else str(output)})
    elif output is None:
        typer.echo(proposal.to_yaml(), nl=False)
    else:
        then = "" if proposal.obstacle else f", then 'excess detect FILES -c {output} -o FOLDER'"
        out.say(f"{output}: written; look at it{then}", as_json)


def assume_config(events: opt.EventOptions, silent: bool, *, like: Any = None) -> Any:
    """Return the configuration of options: the given one, or what the files suggest, of which three lines tell."""
    if events.lists_observations:
        if events.config is None:
            features, exclude = events.features or [], events.exclude or []
            listed = analysis.propose_listed(events.files[0], features=features, exclude=exclude)
            _say_assumed(listed, events, silent)
        return events.config
    settings = events.proposal_settings  # which may be given wrongly
    if events.config is not None:
        return events.config
    analysis.check_input(events.files, off=events.off_files, alpha=events.given_alpha, join=events.join or None)
    proposal = analysis.propose_config(events.files, **settings)
    if like is not None and proposal.obstacle is None:
        return proposal.with_features_of(like)
    if proposal.config is None and proposal.obstacle is None and not events.off_files:
        counts = analysis.count_on_off(events.files, proposal.regions)
        out.say(f"{proposal.no_features()}.", silent)
        if silent:
            numbers = {name: getattr(counts, name) for name in ("n_on", "n_off", "alpha", "significance")}
            out.print_json({"observation": numbers, "models": {}, "no_models": proposal.no_features()})
        else:
            typer.echo(f"{counts}")
        raise typer.Exit
    config = analysis.config_of(proposal)
    _say_assumed(proposal, events, silent)
    return config


def _say_assumed(proposal: analysis.Proposal, events: opt.EventOptions, silent: bool) -> None:
    """Say what is assumed, unless that is as usual."""
    if not proposal.usual:
        shown = proposal if events.groups is None else replace(proposal, grouping=events.groups)
        out.say(f"No -c, so assumed: {shown.describe()}", silent)


def info(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Event files, folders of them, or one model file.")
    ],
    config: opt.Config = None,
    source: opt.Source = None,
    method: opt.RegionMethod = None,
    exclusion: opt.Exclusions = None,
    theta2: opt.Theta2 = None,
    columns: Annotated[bool, typer.Option("--columns", help="List all columns, and why one is not a feature.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Describe files: format, events, columns, and On and Off counts; or the header of a model."""
    found = analysis.info(files, config, source=source, regions=opt.region_settings(method, exclusion, theta2=theta2))
    if as_json:
        out.print_json(found)
    else:
        out.print_info(str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more", found, columns)


_OF_ALL = ("files", "config", "features", "exclude", "groups")  # options that go with a list of observations


def given_files(events: opt.EventOptions, references: opt.ReferenceOptions) -> list[Path]:
    """Return all files that a command is given, those of a list of observations included."""
    given = [*events.files, *(events.off_files or []), *(events.join or []), *(references.simulated or ())]
    given += [Path(one) for one in references.reference or [] if Path(one).exists()]
    if events.config is not None:
        given.append(events.config)
    return given + (analysis.listed_files(events.files[0]) if events.lists_observations else [])


def observe_events(events: opt.EventOptions, config: Any, references: list[str], *, nearby: bool) -> Any:
    """Return the observation that the options describe, or all of a list of observations."""
    settings = {"references": references, "nearby": nearby, **events.settings_beside(config)}
    if events.lists_observations:
        for option, given in vars(events).items():
            if option not in _OF_ALL and given not in (None, []):
                own = "goes with event files; a list of observations has its own"
                raise typer.BadParameter(own, param_hint=opt.as_option(option))
        return analysis.OnOffDataset.from_list(events.files[0], config, **settings)
    settings |= {"off": events.off_files, "alpha": events.given_alpha, "join": events.join or None}
    settings |= {"source": events.position, "bins": events.bins, "regions": events.regions}
    return analysis.OnOffDataset.from_files(events.files, config, **settings)


_given: list[str] = []  # arguments of the command that is running


def finish_run(found: analysis.Run, output: Path | None, run: opt.RunOptions) -> None:
    """Write a run and its report, and print it as a table or as JSON."""
    if found.no_forward:
        out.say(f"No forward significance: {found.no_forward}", run.as_json)
    look = ""
    found.record["command_line"] = shlex.join(["excess", *_given])
    if output is not None:
        try:
            found.write(output, report=True, overwrite=run.overwrite)
            look = f"; look at {output / 'report.html'}"
        except ImportError as error:
            found.write(output, overwrite=run.overwrite)
            out.say(f"No report was written: {error}; then 'excess report {output}' writes it", run.as_json)
    if run.as_json:
        out.print_json(found.result())
    else:
        out.print_run(found, found.models_table())
        if output is not None:
            out.say(f"Results in {output}{look}", run.as_json)


@grouped
def detect(
    events: opt.EventOptions,
    references: opt.ReferenceOptions,
    validation: opt.ValidationOptions,
    output: Annotated[Path, typer.Option(*_OUTPUT, help="Folder for the results.")],
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help=_HELP["models"])] = None,
    model_file: Annotated[
        list[Path] | None, typer.Option(help="Model of 'excess train', applied as it is. May be given several times.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What was observed, for the report.")] = None,
    write_events: Annotated[Path | None, typer.Option(help=_HELP["write_events"], metavar="FOLDER")] = None,
    *,
    run: opt.RunOptions,
) -> None:
    """Cross-validate models on On and Off events, and say how significant the source is."""
    names = model or ([] if model_file else ["forest"])
    if references.given and "hybrid" not in names:
        names = [*names, "hybrid"] if model or model_file else ["hybrid", *names]
    if len(set(names)) < len(names):
        raise typer.BadParameter("is given twice", param_hint=f"--model {max(names, key=names.count)}")
    for name in names:  # whatever is wrong with the models shows before the events are read
        if name not in analysis.MODELS and Path(name).is_file():
            raise typer.BadParameter("is a file; give a trained model by --model-file", param_hint=f"--model {name}")
    analysis.check_names(names)
    inputs = [*given_files(events, references), *(model_file or [])]
    with analysis.claim_run_folder(output, inputs, overwrite=run.overwrite):
        trained = [analysis.load_model(path, n_jobs=run.jobs) for path in model_file or []]
        config = assume_config(events, run.as_json, like=trained[0].config if trained else None)
        columns, others = analysis.split_references(references.reference or [], n_jobs=run.jobs)
        columns += [name for one in trained for name in one.config.references if name not in columns]
        observation = observe_events(events, config, columns, nearby=True)
        out.say(str(observation), run.as_json)
        if write_events is not None:
            analysis.check_application(observation.files, write_events, overwrite=run.overwrite)
        null_test = (settings := dict(vars(validation))).pop("null_test")
        settings |= {"model_files": trained, "simulated": references.simulated, "references": others, "title": title}
        settings |= {"null_tests": "auto" if null_test is None else null_test, "keep_models": write_events is not None}
        settings |= {"seed": run.seed, "n_jobs": run.jobs, "verbose": not run.as_json}
        found = analysis.detect(observation, names, **settings)
        if write_events is not None:
            written = found.write_events(write_events, overwrite=run.overwrite, verbose=not run.as_json)
            out.say(summarise(written), run.as_json)
        finish_run(found, output, run)


@grouped
def scan(
    files: opt.Files,
    output: Annotated[Path, typer.Option(*_OUTPUT, help="Folder for scan.csv, scan.json and scan.png.")],
    along: Annotated[
        str | None, typer.Option(help='Column and range to scan, such as "mass 9:10.6".', metavar="COLUMN LOW:HIGH")
    ] = None,
    width: Annotated[float | None, typer.Option(help="Width of the On interval, in units of the column.")] = None,
    step: Annotated[float | None, typer.Option(help="Distance of positions; by default a quarter of --width.")] = None,
    source: opt.Source = None,
    radius: Annotated[
        float | None,
        typer.Option(help="Largest distance of positions on the sky from --source in deg; without --along."),
    ] = None,
    config: opt.Config = None,
    features: Annotated[list[str] | None, typer.Option(help="As for 'excess detect'.", metavar="COLUMNS")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="As for 'excess detect'.", metavar="COLUMNS")] = None,
    toys: Annotated[int, typer.Option(help="Repetitions of the scan without a signal.", min=10)] = 100,
    *,
    run: opt.RunOptions,
) -> None:
    """Move On along a column or across the sky, and say how significant the largest excess is after all trials."""
    settings: dict[str, Any] = {"width": width, "step": step, "source": source, "radius": radius, "config": config}
    settings |= {"features": features or [], "exclude": exclude or [], "toys": toys, "seed": run.seed}
    found = analysis.scan(files, along, **settings, n_jobs=run.jobs, verbose=not run.as_json)
    try:
        written = found.write(output, overwrite=run.overwrite)
    except ImportError as error:
        written = found.write(output, overwrite=run.overwrite, plot=False)
        out.say(f"No plot was written: {error}", run.as_json)
    if run.as_json:
        out.print_json({**found.summary(), "files": [str(path) for path in written]})
    else:
        typer.echo(found.table.to_string(index=False, float_format="%.4g"))
        typer.echo(str(found))


def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of 'excess detect' or 'excess demo'.")],
    output: Annotated[
        Path | None, typer.Option(*_OUTPUT, help="HTML file to write; by default report.html in the folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What was observed; by default as the run was told.")] = None,
    plots: Annotated[
        str | None, typer.Option(help="Write the plots as png, pdf or svg.", callback=opt.one_of(("png", "pdf", "svg")))
    ] = None,
    tables: Annotated[Path | None, typer.Option("--csv", help="Folder for the tables of the run as CSV.")] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Write the report of a finished run again, its plots for a paper, and its tables as CSV."""
    written = analysis.report(folder, output, title=title, plots=plots, tables=tables, overwrite=overwrite)
    for path in written:
        out.say(f"{path}", as_json)
    if as_json:
        out.print_json([str(path) for path in written])


@grouped
def demo(
    output: Annotated[Path | None, typer.Option(*_OUTPUT, help="Folder for the results.")] = None,
    events: Annotated[int, typer.Option(help="Events to simulate.", min=1000)] = 757_993,
    signal: Annotated[int, typer.Option(help="Gammas among them.", min=0)] = 1_242,
    *,
    run: opt.RunOptions,
) -> None:
    """Simulate a night-sky observation like FACT's open Crab sample, and detect the source in it."""
    with nullcontext() if output is None else analysis.claim_run_folder(output, overwrite=run.overwrite):
        settings: dict[str, Any] = {"seed": run.seed, "n_jobs": run.jobs, "verbose": not run.as_json}
        found = analysis.demo(events, signal, **settings, tell=lambda text: out.say(text, run.as_json))
        finish_run(found, output, run)


def simulate(
    output: Annotated[Path, typer.Option(*_OUTPUT, help="Folder for the files.")],
    events: Annotated[int, typer.Option(help="Events of the observation.", min=1)] = 757_993,
    signal: Annotated[int, typer.Option(help="Gammas among them.", min=0)] = 1_242,
    nights: Annotated[int, typer.Option(help="Nights.", min=1)] = 5,
    first_night: Annotated[int, typer.Option(help="Date of the first night.")] = 20131101,
    labelled: Annotated[int, typer.Option(help="Labelled gammas, and as many protons.", min=0)] = 10_000,
    suffix: Annotated[
        str, typer.Option("--format", help="hdf5 (as FACT's), parquet or csv.", callback=opt.one_of(_SIMULATED))
    ] = "hdf5",
    seed: opt.Seed = 0,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Simulate a wobble observation, and labelled gammas and protons, into files."""
    settings: dict[str, Any] = {"n_events": events, "n_signal": signal, "n_nights": nights, "n_labelled": labelled}
    settings |= {"first_night": first_night, "suffix": suffix, "seed": seed, "overwrite": overwrite}
    written = analysis.simulate(output, **settings)
    for file in written.values():
        out.say(f"{file['path']}: {file['n_events']:,} events", as_json)
    if as_json:
        out.print_json(written)


@grouped
def train(
    events: opt.EventOptions,
    references: opt.ReferenceOptions,
    output: Annotated[Path, typer.Option(*_OUTPUT, help="Model file to write.")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help=f"One of {_MODEL_NAMES}. By default forest, or with references hybrid."),
    ] = None,
    max_depth: Annotated[
        int | None, typer.Option(help="Largest depth of trees; by default the model's.", min=1)
    ] = None,
    chunk_rows: opt.ChunkRows = None,
    dask: opt.TrainingDaskAddress = None,
    *,
    run: opt.RunOptions,
) -> None:
    """Train a model on all On and Off events, to be applied to others."""
    name = model or ("hybrid" if references.given else "forest")
    analysis.make_model(name)  # an unknown name shows before anything is looked at
    analysis.check_model_path(output, given_files(events, references), overwrite=run.overwrite)
    replaces = output.exists()
    settings: dict[str, Any] = {"max_depth": max_depth, "seed": run.seed, "n_jobs": run.jobs}
    settings["verbose"] = not run.as_json
    if chunk_rows is not None or dask is not None:
        _check_chunked(events, references)
        analysis.check_chunked_model(name)
    config = assume_config(events, run.as_json)
    if chunk_rows is None and dask is None:
        columns, others = analysis.split_references(references.reference or [], n_jobs=run.jobs)
        observation = observe_events(events, config, columns, nearby=False)
        out.say(str(observation), run.as_json)
        trained = analysis.train(observation, name, simulated=references.simulated, references=others, **settings)
    else:
        settings |= {"source": events.position, "regions": events.regions, **events.settings_beside(config)}
        settings |= {"chunk_rows": chunk_rows or 200_000, "executor": dask}
        trained = analysis.train_in_chunks(events.files, config, name, **settings)
        out.say(str(trained), run.as_json)
    trained.save(output)
    if replaces:
        out.say(f"{output}: replaces the file that was there", run.as_json)
    tuned = trained.model.tuned_counts_
    out.say(f"{output}: tuned on {tuned}. Not a result to quote: these are the events it was tuned on.", run.as_json)
    if trained.trust is not None:
        out.say(f"{output} trusts: {out.trust_text(trained.trust)}", run.as_json)
    if run.as_json:
        found = {"n_events": trained.n_events, "threshold": trained.model.threshold_, "trust": trained.trust}
        out.print_json({"model": str(output), **found})


def _check_chunked(events: opt.EventOptions, references: opt.ReferenceOptions) -> None:
    """Refuse options that do not go with training in chunks."""
    if events.lists_observations:
        raise typer.BadParameter("do not go with a list of observations", param_hint="--chunk-rows and --dask")
    for option, given in (vars(events) | vars(references)).items():
        if given and option in ("join", "on", "off", "alpha", "bins", "simulated", "reference"):
            raise typer.BadParameter("does not go with --chunk-rows or --dask", param_hint=f"--{option}")


def summarise(done: dict[Path, analysis.Applied]) -> str:
    """Return one line for a file, or for all files of a folder together."""
    applied = list(done.values())
    if len(applied) == 1:
        return str(applied[0])
    totals = (sum(getattr(one, name) for one in applied) for name in ("n_events", "n_scored", "n_selected"))
    words = "{:,} events, {:,} scored, {:,} selected".format(*totals)
    return f"{applied[0].path.parent}: {len(applied)} files, {words}"


def apply(
    model: Annotated[Path, typer.Argument(help=_HELP["trained"])],
    files: opt.Files,
    output: Annotated[Path, typer.Option(*_OUTPUT, help="File to write, or folder for several files.")],
    prefix: Annotated[str, typer.Option(help=_HELP["prefix"], metavar="PREFIX")] = "excess",
    selected_only: Annotated[
        bool, typer.Option("--selected-only", help="Write selected events only, to FITS, Parquet or CSV files.")
    ] = False,
    chunk_rows: Annotated[int, typer.Option(help="Events read at a time.", min=1)] = 200_000,
    dask: opt.DaskAddress = None,
    jobs: opt.Jobs = -1,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Add score, probability of signal and selection to copies of event files, whose columns stay as they are."""
    settings: dict[str, Any] = {"prefix": prefix, "chunk_rows": chunk_rows, "executor": dask, "n_jobs": jobs}
    settings |= {"overwrite": overwrite, "selected_only": selected_only}
    done = analysis.apply(model, files, output, **settings, verbose=not as_json)
    out.say(summarise(done), as_json)
    if as_json:
        out.print_json([{**vars(applied), "path": str(applied.path)} for applied in done.values()])


def export(
    model: Annotated[Path, typer.Argument(help="Model file of 'excess train'.")],
    output: Annotated[Path, typer.Option(*_OUTPUT, help="ONNX file to write.")],
    float32: Annotated[bool, typer.Option("--float32", help="Take features as float32, not as float64.")] = False,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Export a model to ONNX, to be applied by other software: score, probability of signal and selection."""
    trained = analysis.load_model(model)
    precision = "float32" if float32 else "float64"
    written = analysis.export(trained, output, precision=precision, overwrite=overwrite)
    features, n_bytes = trained.config.features, written.stat().st_size
    out.say(f"{written}: {n_bytes:,} bytes; takes {len(features)} features as {precision}", as_json)
    if as_json:
        found = {"precision": precision, "features": features, "threshold": trained.model.threshold_}
        out.print_json({"path": str(written), "n_bytes": n_bytes, **found})


def _parse_bins(text: str) -> int | list[float]:
    """Return a number of bins, or their edges."""
    try:
        return [float(word) for word in text.split(",")] if "," in text else int(text)
    except ValueError as error:
        problem = f"must be a number of bins, or edges such as 0.5,1,2,5, got {out.visible(text)!r}"
        raise typer.BadParameter(problem) from error


def _bins_option(what: str) -> Any:
    return typer.Option(help=what, metavar="N|EDGES", parser=_parse_bins)


def efficiency(
    model: Annotated[Path, typer.Argument(help=_HELP["trained"])],
    files: Annotated[list[Path], typer.Argument(help="Files of simulated gammas.")],
    output: Annotated[
        Path | None, typer.Option(*_OUTPUT, help="Folder for efficiency.csv, efficiency.fits and efficiency.png.")
    ] = None,
    energy: Annotated[str | None, typer.Option(help=_HELP["energy"], metavar="COLUMN")] = None,
    zenith: Annotated[str | None, typer.Option(help="The same for zenith distances, in deg.", metavar="COLUMN")] = None,
    weights: Annotated[str | None, typer.Option(help="Column or expression of weights.", metavar="COLUMN")] = None,
    energy_bins: Annotated[Any, _bins_option("Bins of energy, or edges in TeV; by default five per decade.")] = None,
    zenith_bins: Annotated[Any, _bins_option("Bins of zenith distance, or edges in deg; by default of 10 deg.")] = None,
    aeff: Annotated[list[Path] | None, typer.Option(help=_HELP["aeff"], metavar="FILES...")] = None,
    event_types: Annotated[
        int, typer.Option(help="Divide events into so many types; --aeff writes each to a folder type_1, ...", min=0)
    ] = 0,
    of: Annotated[str, typer.Option(help=_HELP["of"], callback=opt.one_of(("all", "quality")))] = "all",
    pdf: Annotated[bool, typer.Option("--pdf", help="Write the plot as PDF as well.")] = False,
    chunk_rows: Annotated[int, typer.Option(help="Events read at a time.", min=1)] = 200_000,
    jobs: opt.Jobs = -1,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Say which fraction of simulated gammas a model selects, by energy and zenith distance."""
    if aeff and output is None:
        raise typer.BadParameter("needs a folder to write to: --output", param_hint="--aeff")
    for name, times in Counter(path.name for path in aeff or []).items():
        if times > 1:
            problem = f"{times} files are called {out.visible(name)}; give them an output folder each"
            raise typer.BadParameter(problem, param_hint="--aeff")
    trained = analysis.load_models(model, n_jobs=jobs)
    to_write: dict[str, Any] = {
        "areas": aeff or [],
        "plots": ("png", "pdf") if pdf else ("png",),
        "overwrite": overwrite,
    }
    claimed: Any = nullcontext()
    if output is not None:
        claimed = analysis.claim_efficiency_folder(output, trained, files, event_types=event_types, **to_write)
    settings: dict[str, Any] = {"event_types": event_types, "energy": energy, "zenith": zenith, "weights": weights}
    settings |= {"energy_bins": energy_bins, "zenith_bins": zenith_bins, "chunk_rows": chunk_rows}
    with claimed:
        found = analysis.efficiency(trained, files, **settings, verbose=not as_json)
        written = [] if output is None else _write(found, output, as_json, of=of, **to_write)
    if as_json:
        out.print_json({**found.describe(), "files": [str(path) for path in written]})
    else:
        out.print_efficiency(found)
    for path in written:
        out.say(f"{path}", as_json)


def _write(found: analysis.Efficiency, output: Path, silent: bool, **settings: Any) -> list[Path]:
    """Write all files and return their names; without matplotlib all but the plots."""
    try:
        return found.write(output, **settings)
    except ImportError as error:
        if "plotting" not in str(error):
            raise
        out.say(f"No plot was written: {error}", silent)
        return found.write(output, **{**settings, "plots": ()})


# in the order of the help
for _command in (demo, simulate, info, init, detect, scan, report, train, apply, efficiency, export):
    app.command(cls=FilesCommand if _command in (init, detect, train, efficiency) else Command)(_command)


_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_INTERRUPTED = 128 + signal.SIGINT


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure is one sentence and an exit code."""
    if arguments is None:
        faulthandler.enable()  # a library that crashes at a damaged file shows where; --debug shows the file
    received: list[int] = []
    hook, usual = sys.unraisablehook, _install_handlers(received)
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments), received)
    finally:
        sys.unraisablehook = hook
        if received and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        # until the process ends, a signal must not change the exit code of a finished command
        last = signal.SIG_DFL if received else signal.SIG_IGN
        for number, handler in usual.items():
            signal.signal(number, last if arguments is None else handler)
    if received or code == _INTERRUPTED:
        code = 128 + (received or [signal.SIGINT])[0]
        sys.stderr.write(f"excess: {_WORDS[signal.Signals(code - 128)]}; no half-written file is left\n")
    sys.exit(code)


def _install_handlers(received: list[int]) -> dict[int, Any]:
    """Let the first signal raise KeyboardInterrupt and the second one end the process; return the former handlers."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for handled in _WORDS:
            signal.signal(handled, signal.SIG_DFL)
        raise KeyboardInterrupt

    def repeat(found: Any, usual: Any = sys.unraisablehook) -> None:
        if found.exc_type is not KeyboardInterrupt or not hasattr(signal, "setitimer"):
            return usual(found)
        # Python drops exceptions of destructors and of callbacks of weak references: raise it again a moment later
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        return None

    if threading.current_thread() is not threading.main_thread():
        return {}
    sys.unraisablehook = repeat
    # a signal that is ignored, as in the background of a shell script, stays ignored
    numbers = [number for number in _WORDS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    return {number: handle_once(number, interrupt) for number in numbers}


def _run(words: list[str], received: list[int]) -> int:
    """Run a command and return its exit code; unexpected errors are raised with --debug."""
    debug = "--debug" in words
    _given[:] = words
    try:
        if debug:
            logging.basicConfig(format="%(name)s: %(message)s")
            logging.getLogger("excess").setLevel(logging.DEBUG)
        # messages of Dask are for --debug
        logging.getLogger("distributed").setLevel(logging.NOTSET if debug else logging.CRITICAL + 1)
        code = app([word for word in words if word != "--debug"], prog_name="excess", standalone_mode=False)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if received:  # a library that is interrupted may raise an exception of another type
            return _INTERRUPTED
        if debug and not _is_usage(error):
            raise
        return _fail(error)
    return code if isinstance(code, int) else 0


def _problem_of(error: ArgumentError) -> str:
    """Return what is wrong with an argument, with options in the place of other arguments."""
    return re.sub("`([a-z_]+)`", lambda name: opt.as_option(name[1]), error.problem)


def _is_usage(error: BaseException) -> bool:
    """Return whether an error is about options, which typer raises under several names and shows with the usage."""
    return hasattr(error, "exit_code") and hasattr(error, "show")


def _fail(error: Any) -> int:
    """Print what went wrong, and return the exit code."""
    if _is_usage(error):
        error.show()
        return int(error.exit_code)
    typer.echo(f"excess: {out.visible(out.shortened(_sentence_of(error), out.LONGEST_TEXT))}", err=True)
    return 1


def _sentence_of(error: Exception) -> str:
    """Return an error as one sentence."""
    if isinstance(error, ArgumentError):
        return f"{opt.as_option(error.argument)}: {_problem_of(error)}"
    if isinstance(error, MemoryError):
        where = f" ({error})" if type(error) is MemoryError and str(error) else ""
        return f"not enough memory{where}; give fewer events, or smaller chunks"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return " ".join(str(error).split())
    return f"unexpected {type(error).__name__}: {error}. This is a defect of excess; --debug shows where"
