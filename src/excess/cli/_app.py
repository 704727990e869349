"""Commands of the command-line interface, and its entry point."""

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
    "aeff": "FITS files with an effective area; copies with the area multiplied by the efficiency are written to the "
    "output folder, with the selected events if these are scored. Takes all files up to the next option.",
    "energy": "Column of true energies, or an expression of columns, in TeV; by default a known column.",
    "models": f"One of {_MODEL_NAMES}. Repeatable; the verdict refers to the first. By default forest; "
    "with references, hybrid and forest.",
    "of": "Denominator of fractions in the plot and the effective area: all simulated gammas, or those that pass the "
    "quality cuts (quality).",
    "prefix": "Name the new columns PREFIX_score, PREFIX_signal_probability and PREFIX_selected.",
    "trained": "Model file of 'excess train', or output folder of 'excess detect --write-events'.",
    "write_events": "Folder for copies of the event files with scores; each event is scored by a model that was not "
    "trained on its group. Stores the models for 'excess efficiency'.",
}
_OUTPUT, _SIMULATED = ("--output", "-o"), ("hdf5", "parquet", "csv")

app = typer.Typer(
    name="excess",
    help="Learn to detect a source from On and Off events only.",
    epilog="Add --debug to any command to show the traceback of an error. Exit codes: 0 success, 1 invalid input or "
    "output, 2 invalid usage, 130 interrupted, 143 terminated.",
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
    """A command that reports an invalid argument of the analysis as a wrong option, with its usage."""

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
        """Parse the arguments, with one option per file."""
        taking = [parameter for parameter in self.params if parameter.name in ("off", "join", "aeff")]
        several = tuple(name for parameter in taking for name in parameter.opts)
        if not ctx.resilient_parsing:  # used for shell completion of an unfinished line
            _check_files(args, several)
        try:
            return super().parse_args(ctx, _repeat_options(args, several))
        except typer.BadParameter as error:
            name = next((word for word in args if word in several), None)
            if name is None or error.param is None or error.param.name != "files":
                raise
            missing = f"are missing: {name} takes all files up to the next option; put FILES first, or after '--'"
            raise typer.BadParameter(missing, param_hint="FILES") from error


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _check_files(words: list[str], several: tuple[str, ...]) -> None:
    """Reject an option without a file; the parser would take the next option for one."""
    for word, following in pairwise([*words, "--"]):
        if word == "--":
            return
        if word in several and _is_option(following):
            raise typer.BadParameter("requires at least one file", param_hint=word)


def _repeat_options(words: list[str], several: tuple[str, ...]) -> list[str]:
    """Repeat an option before each of its values: ``--off a --off b``."""
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
    """Add groups of options to a command: each parameter whose type is a dataclass is expanded to its options."""
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
    output: Annotated[Path | None, typer.Option(*_OUTPUT, help="YAML file to write; by default print it.")] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Inspect event files, and propose a configuration: features, regions and groups, with reasons."""
    if events.lists_observations:
        raise typer.BadParameter("is a list of observations; pass event files", param_hint="FILES")
    settings = {"groups": events.groups, **events.proposal_settings}
    proposal = analysis.init(events.files, output, overwrite=overwrite, **settings)
    out.notify(proposal.describe(), as_json)
    if proposal.reasons:
        out.notify(proposal.describe_rejected(), as_json)
    if proposal.references:
        out.notify(f"Scores of other classifiers, for --reference: {', '.join(proposal.references)}", as_json)
    if proposal.obstacle is not None:
        out.notify(f"No detection yet: {proposal.obstacle}", as_json)
    if as_json:
        out.print_json({**proposal.to_dict(), "path": None if output is None else str(output)})
    elif output is None:
        typer.echo(proposal.to_yaml(), nl=False)
    else:
        then = "" if proposal.obstacle else f", then 'excess detect FILES -c {output} -o FOLDER'"
        out.notify(f"{output}: written; review it{then}", as_json)


def assume_config(events: opt.EventOptions, silent: bool, *, like: Any = None) -> Any:
    """Return the configuration of options: the given one, or a proposal, which is summarised in three lines."""
    if events.lists_observations:
        if events.config is None:
            features, exclude = events.features or [], events.exclude or []
            listed = analysis.propose_listed(events.files[0], features=features, exclude=exclude)
            _notify_assumed(listed, events, silent)
        return events.config
    settings = events.proposal_settings  # validated here
    if events.config is not None:
        return events.config
    analysis.check_input(events.files, off=events.off_files, alpha=events.given_alpha, join=events.join or None)
    proposal = analysis.propose_config(events.files, **settings)
    if like is not None and proposal.obstacle is None:
        return proposal.with_features_of(like)
    if proposal.config is None and proposal.obstacle is None and not events.off_files:
        counts = analysis.count_on_off(events.files, proposal.regions)
        out.notify(f"{proposal.no_features()}.", silent)
        if silent:
            numbers = {name: getattr(counts, name) for name in ("n_on", "n_off", "alpha", "significance")}
            out.print_json({"observation": numbers, "models": {}, "no_models": proposal.no_features()})
        else:
            typer.echo(f"{counts}")
        raise typer.Exit
    config = analysis.config_of(proposal)
    _notify_assumed(proposal, events, silent)
    return config


def _notify_assumed(proposal: analysis.Proposal, events: opt.EventOptions, silent: bool) -> None:
    """Print the assumptions, unless these are the usual ones."""
    if not proposal.usual:
        shown = proposal if events.groups is None else replace(proposal, grouping=events.groups)
        out.notify(f"No -c given; assuming: {shown.describe()}", silent)


def info(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Event files, folders of them, or one model file.")
    ],
    config: opt.Config = None,
    source: opt.Source = None,
    method: opt.RegionMethod = None,
    exclusion: opt.Exclusions = None,
    theta2: opt.Theta2 = None,
    columns: Annotated[bool, typer.Option("--columns", help="List all columns, with reasons for rejection.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Describe files: format, events, columns, and On and Off counts; or the header of a model."""
    found = analysis.info(files, config, source=source, regions=opt.region_settings(method, exclusion, theta2=theta2))
    if as_json:
        out.print_json(found)
    else:
        out.print_info(str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more", found, columns)


_OF_ALL = ("files", "config", "features", "exclude", "groups")  # options accepted with a list of observations


def given_files(events: opt.EventOptions, references: opt.ReferenceOptions) -> list[Path]:
    """Return all input files of a command, including those of a list of observations."""
    given = [*events.files, *(events.off_files or []), *(events.join or []), *(references.simulated or ())]
    given += [Path(one) for one in references.reference or [] if Path(one).exists()]
    if events.config is not None:
        given.append(events.config)
    return given + (analysis.listed_files(events.files[0]) if events.lists_observations else [])


def observe_events(events: opt.EventOptions, config: Any, references: list[str], *, nearby: bool) -> Any:
    """Return the observation described by the options, or all of a list of observations."""
    settings = {"references": references, "nearby": nearby, **events.settings_beside(config)}
    if events.lists_observations:
        for option, given in vars(events).items():
            if option not in _OF_ALL and given not in (None, []):
                own = "requires event files; a list of observations has its own"
                raise typer.BadParameter(own, param_hint=opt.as_option(option))
        return analysis.OnOffDataset.from_list(events.files[0], config, **settings)
    settings |= {"off": events.off_files, "alpha": events.given_alpha, "join": events.join or None}
    settings |= {"source": events.position, "bins": events.bins, "regions": events.regions}
    return analysis.OnOffDataset.from_files(events.files, config, **settings)


_given: list[str] = []  # arguments of the running command


def finish_run(found: analysis.Run, output: Path | None, run: opt.RunOptions) -> None:
    """Write a run and its report, and print it as a table or as JSON."""
    if found.no_forward:
        out.notify(f"No forward significance: {found.no_forward}", run.as_json)
    look = ""
    found.record["command_line"] = shlex.join(["excess", *_given])
    if output is not None:
        try:
            found.write(output, report=True, overwrite=run.overwrite)
            look = f"; see {output / 'report.html'}"
        except ImportError as error:
            found.write(output, overwrite=run.overwrite)
            out.notify(f"No report was written: {error}; then write it with 'excess report {output}'", run.as_json)
    if run.as_json:
        out.print_json(found.result())
    else:
        out.print_run(found, found.models_table())
        if output is not None:
            out.notify(f"Results in {output}{look}", run.as_json)


@grouped
def detect(
    events: opt.EventOptions,
    references: opt.ReferenceOptions,
    validation: opt.ValidationOptions,
    output: Annotated[Path, typer.Option(*_OUTPUT, help="Folder for the results.")],
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help=_HELP["models"])] = None,
    model_file: Annotated[
        list[Path] | None, typer.Option(help="Model of 'excess train', applied without training. Repeatable.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report, such as the observed source.")] = None,
    write_events: Annotated[Path | None, typer.Option(help=_HELP["write_events"], metavar="FOLDER")] = None,
    *,
    run: opt.RunOptions,
) -> None:
    """Cross-validate models on On and Off events, and compute the significance of the source."""
    names = model or ([] if model_file else ["forest"])
    if references.given and "hybrid" not in names:
        names = [*names, "hybrid"] if model or model_file else ["hybrid", *names]
    if len(set(names)) < len(names):
        raise typer.BadParameter("is given twice", param_hint=f"--model {max(names, key=names.count)}")
    for name in names:  # report errors of models before the events are read
        if name not in analysis.MODELS and Path(name).is_file():
            raise typer.BadParameter("is a file; pass a trained model with --model-file", param_hint=f"--model {name}")
    analysis.check_names(names)
    inputs = [*given_files(events, references), *(model_file or [])]
    with analysis.claim_run_folder(output, inputs, overwrite=run.overwrite):
        trained = [analysis.load_model(path, n_jobs=run.jobs) for path in model_file or []]
        config = assume_config(events, run.as_json, like=trained[0].config if trained else None)
        columns, others = analysis.split_references(references.reference or [], n_jobs=run.jobs)
        columns += [name for one in trained for name in one.config.references if name not in columns]
        observation = observe_events(events, config, columns, nearby=True)
        out.notify(str(observation), run.as_json)
        if write_events is not None:
            analysis.check_application(observation.files, write_events, overwrite=run.overwrite)
        null_test = (settings := dict(vars(validation))).pop("null_test")
        settings |= {"model_files": trained, "simulated": references.simulated, "references": others, "title": title}
        settings |= {"null_tests": "auto" if null_test is None else null_test, "keep_models": write_events is not None}
        settings |= {"seed": run.seed, "n_jobs": run.jobs, "verbose": not run.as_json}
        found = analysis.detect(observation, names, **settings)
        if write_events is not None:
            written = found.write_events(write_events, overwrite=run.overwrite, verbose=not run.as_json)
            out.notify(summarise(written), run.as_json)
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
        float | None, typer.Option(help="Maximum distance of sky positions from --source in deg; without --along.")
    ] = None,
    config: opt.Config = None,
    features: Annotated[list[str] | None, typer.Option(help="As for 'excess detect'.", metavar="COLUMNS")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="As for 'excess detect'.", metavar="COLUMNS")] = None,
    toys: Annotated[int, typer.Option(help="Number of repetitions of the scan without a signal.", min=10)] = 100,
    *,
    run: opt.RunOptions,
) -> None:
    """Scan a column or the sky for an excess, and compute the global significance of the largest one."""
    settings: dict[str, Any] = {"width": width, "step": step, "source": source, "radius": radius, "config": config}
    settings |= {"features": features or [], "exclude": exclude or [], "toys": toys, "seed": run.seed}
    found = analysis.scan(files, along, **settings, n_jobs=run.jobs, verbose=not run.as_json)
    try:
        written = found.write(output, overwrite=run.overwrite)
    except ImportError as error:
        written = found.write(output, overwrite=run.overwrite, plot=False)
        out.notify(f"No plot was written: {error}", run.as_json)
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
    title: Annotated[str | None, typer.Option(help="Title of the report; by default that of the run.")] = None,
    plots: Annotated[
        str | None, typer.Option(help="Write the plots as png, pdf or svg.", callback=opt.one_of(("png", "pdf", "svg")))
    ] = None,
    tables: Annotated[Path | None, typer.Option("--csv", help="Folder for the tables of the run as CSV.")] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Write the report of a finished run again, its plots for a publication, and its tables as CSV."""
    written = analysis.report(folder, output, title=title, plots=plots, tables=tables, overwrite=overwrite)
    for path in written:
        out.notify(f"{path}", as_json)
    if as_json:
        out.print_json([str(path) for path in written])


@grouped
def demo(
    output: Annotated[Path | None, typer.Option(*_OUTPUT, help="Folder for the results.")] = None,
    events: Annotated[int, typer.Option(help="Number of simulated events.", min=1000)] = 757_993,
    signal: Annotated[int, typer.Option(help="Number of gammas among them.", min=0)] = 1_242,
    *,
    run: opt.RunOptions,
) -> None:
    """Simulate an observation like FACT's open Crab sample, and detect the source in it."""
    with nullcontext() if output is None else analysis.claim_run_folder(output, overwrite=run.overwrite):
        settings: dict[str, Any] = {"seed": run.seed, "n_jobs": run.jobs, "verbose": not run.as_json}
        found = analysis.demo(events, signal, **settings, notify=lambda text: out.notify(text, run.as_json))
        finish_run(found, output, run)


def simulate(
    output: Annotated[Path, typer.Option(*_OUTPUT, help="Folder for the files.")],
    events: Annotated[int, typer.Option(help="Number of events.", min=1)] = 757_993,
    signal: Annotated[int, typer.Option(help="Number of gammas among them.", min=0)] = 1_242,
    nights: Annotated[int, typer.Option(help="Nights.", min=1)] = 5,
    first_night: Annotated[int, typer.Option(help="Date of the first night.")] = 20131101,
    labelled: Annotated[int, typer.Option(help="Number of labelled gammas, and of protons.", min=0)] = 10_000,
    suffix: Annotated[
        str, typer.Option("--format", help="hdf5 (as FACT's), parquet or csv.", callback=opt.one_of(_SIMULATED))
    ] = "hdf5",
    seed: opt.Seed = 0,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Write files with a simulated wobble observation, and with labelled gammas and protons."""
    settings: dict[str, Any] = {"n_events": events, "n_signal": signal, "n_nights": nights, "n_labelled": labelled}
    settings |= {"first_night": first_night, "suffix": suffix, "seed": seed, "overwrite": overwrite}
    written = analysis.simulate(output, **settings)
    for file in written.values():
        out.notify(f"{file['path']}: {file['n_events']:,} events", as_json)
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
        int | None, typer.Option(help="Maximum depth of trees; by default that of the model.", min=1)
    ] = None,
    chunk_rows: opt.ChunkRows = None,
    dask: opt.TrainingDaskAddress = None,
    *,
    run: opt.RunOptions,
) -> None:
    """Train a model on all On and Off events, to apply it to other events."""
    name = model or ("hybrid" if references.given else "forest")
    analysis.make_model(name)  # report an unknown name before reading files
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
        out.notify(str(observation), run.as_json)
        trained = analysis.train(observation, name, simulated=references.simulated, references=others, **settings)
    else:
        settings |= {"source": events.position, "regions": events.regions, **events.settings_beside(config)}
        settings |= {"chunk_rows": chunk_rows or 200_000, "executor": dask}
        trained = analysis.train_in_chunks(events.files, config, name, **settings)
        out.notify(str(trained), run.as_json)
    trained.save(output)
    if replaces:
        out.notify(f"{output}: replaced", run.as_json)
    tuned, weights = trained.model.tuned_counts_, trained.reference_weights
    out.notify(f"{output}: tuned on {tuned}. Do not quote this: the model was tuned on these events.", run.as_json)
    if weights is not None:
        out.notify(f"{output} weights: {out.weight_text(weights)}", run.as_json)
    if run.as_json:
        found = {"n_events": trained.n_events, "threshold": trained.model.threshold_, "reference_weights": weights}
        out.print_json({"model": str(output), **found})


def _check_chunked(events: opt.EventOptions, references: opt.ReferenceOptions) -> None:
    """Reject options that cannot be combined with training in chunks."""
    if events.lists_observations:
        raise typer.BadParameter("cannot be combined with a list of observations", param_hint="--chunk-rows and --dask")
    for option, given in (vars(events) | vars(references)).items():
        if given and option in ("join", "on", "off", "alpha", "bins", "simulated", "reference"):
            raise typer.BadParameter("cannot be combined with --chunk-rows or --dask", param_hint=f"--{option}")


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
    chunk_rows: Annotated[int, typer.Option(help="Number of events read at a time.", min=1)] = 200_000,
    dask: opt.DaskAddress = None,
    jobs: opt.Jobs = -1,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Add score, signal probability and selection to copies of event files; existing columns are unchanged."""
    settings: dict[str, Any] = {"prefix": prefix, "chunk_rows": chunk_rows, "executor": dask, "n_jobs": jobs}
    settings |= {"overwrite": overwrite, "selected_only": selected_only}
    done = analysis.apply(model, files, output, **settings, verbose=not as_json)
    out.notify(summarise(done), as_json)
    if as_json:
        out.print_json([{**vars(applied), "path": str(applied.path)} for applied in done.values()])


def export(
    model: Annotated[Path, typer.Argument(help="Model file of 'excess train'.")],
    output: Annotated[Path, typer.Option(*_OUTPUT, help="ONNX file to write.")],
    float32: Annotated[bool, typer.Option("--float32", help="Use float32 features instead of float64.")] = False,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Export a model to ONNX for other software: score, signal probability and selection."""
    trained = analysis.load_model(model)
    precision = "float32" if float32 else "float64"
    written = analysis.export(trained, output, precision=precision, overwrite=overwrite)
    features, n_bytes = trained.config.features, written.stat().st_size
    out.notify(f"{written}: {n_bytes:,} bytes; {len(features)} features as {precision}", as_json)
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
    zenith: Annotated[str | None, typer.Option(help="The same for zenith distance, in deg.", metavar="COLUMN")] = None,
    weights: Annotated[str | None, typer.Option(help="Column or expression of weights.", metavar="COLUMN")] = None,
    energy_bins: Annotated[Any, _bins_option("Bins of energy, or edges in TeV; by default ten per decade.")] = None,
    zenith_bins: Annotated[Any, _bins_option("Bins of zenith distance, or edges in deg; by default of 10 deg.")] = None,
    aeff: Annotated[list[Path] | None, typer.Option(help=_HELP["aeff"], metavar="FILES...")] = None,
    event_types: Annotated[
        int, typer.Option(help="Number of event types; --aeff writes each to a folder type_1, ...", min=0)
    ] = 0,
    of: Annotated[str, typer.Option(help=_HELP["of"], callback=opt.one_of(("all", "quality")))] = "all",
    pdf: Annotated[bool, typer.Option("--pdf", help="Also write the plot as PDF.")] = False,
    chunk_rows: Annotated[int, typer.Option(help="Number of events read at a time.", min=1)] = 200_000,
    jobs: opt.Jobs = -1,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> None:
    """Compute the fraction of simulated gammas selected by a model, by energy and zenith distance."""
    if aeff and output is None:
        raise typer.BadParameter("requires an output folder: --output", param_hint="--aeff")
    for name, times in Counter(path.name for path in aeff or []).items():
        if times > 1:
            problem = f"{times} files are named {out.visible(name)}; use a separate output folder for each"
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
        out.notify(f"{path}", as_json)


def _write(found: analysis.Efficiency, output: Path, silent: bool, **settings: Any) -> list[Path]:
    """Write all files and return their names; without matplotlib, skip the plots."""
    try:
        return found.write(output, **settings)
    except ImportError as error:
        if "plotting" not in str(error):
            raise
        out.notify(f"No plot was written: {error}", silent)
        return found.write(output, **{**settings, "plots": ()})


# in the order of the help
for _command in (demo, simulate, info, init, detect, scan, report, train, apply, efficiency, export):
    app.command(cls=FilesCommand if _command in (init, detect, train, efficiency) else Command)(_command)


_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_INTERRUPTED = 128 + signal.SIGINT


def main(arguments: list[str] | None = None) -> None:
    """Run the command-line interface; every failure is reported as one sentence and an exit code."""
    if arguments is None:
        faulthandler.enable()  # shows where a library crashes on a damaged file; --debug shows the file
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
        sys.stderr.write(f"excess: {_WORDS[signal.Signals(code - 128)]}; no partial file remains\n")
    sys.exit(code)


def _install_handlers(received: list[int]) -> dict[int, Any]:
    """Raise KeyboardInterrupt at the first signal and end the process at the second; return the former handlers."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for handled in _WORDS:
            signal.signal(handled, signal.SIG_DFL)
        raise KeyboardInterrupt

    def repeat(found: Any, usual: Any = sys.unraisablehook) -> None:
        if found.exc_type is not KeyboardInterrupt or not hasattr(signal, "setitimer"):
            return usual(found)
        # Python ignores exceptions in destructors and weak-reference callbacks: raise it again later
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        return None

    if threading.current_thread() is not threading.main_thread():
        return {}
    sys.unraisablehook = repeat
    # keep ignoring a signal that is ignored, as in the background of a shell script
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
        # messages of Dask are shown with --debug
        logging.getLogger("distributed").setLevel(logging.NOTSET if debug else logging.CRITICAL + 1)
        code = app([word for word in words if word != "--debug"], prog_name="excess", standalone_mode=False)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if received:  # an interrupted library may raise an exception of another type
            return _INTERRUPTED
        if debug and not _is_usage(error):
            raise
        return _fail(error)
    return code if isinstance(code, int) else 0


def _problem_of(error: ArgumentError) -> str:
    """Describe an invalid argument, with command-line names of other arguments."""
    return re.sub("`([a-z_]+)`", lambda name: opt.as_option(name[1]), error.problem)


def _is_usage(error: BaseException) -> bool:
    """Return whether an error is about options; typer raises these under several names and shows the usage."""
    return hasattr(error, "exit_code") and hasattr(error, "show")


def _fail(error: Any) -> int:
    """Print the error, and return the exit code."""
    if _is_usage(error):
        error.show()
        return int(error.exit_code)
    typer.echo(f"excess: {out.visible(out.shortened(_sentence_of(error), out.LONGEST_TEXT))}", err=True)
    return 1


def _sentence_of(error: Exception) -> str:
    """Describe an error in one sentence."""
    if isinstance(error, ArgumentError):
        return f"{opt.as_option(error.argument)}: {_problem_of(error)}"
    if isinstance(error, MemoryError):
        where = f" ({error})" if type(error) is MemoryError and str(error) else ""
        return f"not enough memory{where}; use fewer events or smaller chunks"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return " ".join(str(error).split())
    return f"unexpected {type(error).__name__}: {error}. This is a bug in excess; --debug shows the traceback"
