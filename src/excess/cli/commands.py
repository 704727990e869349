"""The commands: arguments in, a call of the analysis, words out. They hold no science.

Every failure is one sentence and an exit code.
"""

from __future__ import annotations

import logging
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excess._core.errors import ArgumentError
from excess._core.interrupts import INTERRUPTED, exit_at_interrupts, record_signals, words_for
from excess.analysis.models import MODELS
from excess.cli.configuration import assume_config, assumed_rows, init
from excess.cli.efficiency import efficiency
from excess.cli.export import export
from excess.cli.options import (
    ChunkRows,
    Config,
    DaskAddress,
    EventOptions,
    Files,
    FilesCommand,
    Jobs,
    Json,
    Overwrite,
    ReferenceOptions,
    RunOptions,
    Seed,
    Source,
    TrainingDaskAddress,
    ValidationOptions,
    grouped,
    one_of,
)
from excess.cli.printing import (
    LONGEST_TEXT,
    describe_content,
    print_json,
    print_run,
    print_table,
    say,
    shortened,
    trust_text,
    visible,
)
from excess.cli.reproduce import reproduce

if TYPE_CHECKING:
    with exit_at_interrupts():
        from excess.analysis import Run

__all__ = ["app", "run"]

app = typer.Typer(
    name="excess",
    help="Learn to detect a source from On and Off events alone.",
    epilog="Add --debug to any command to see the traceback of an error. Exit codes: 0 finished, 1 something is wrong "
    "with the input or the output, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_MODEL_HELP = f"One of {', '.join(MODELS)}"


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from excess import __version__

        typer.echo(f"excess {__version__}")
        raise typer.Exit


@app.command()
@grouped
def demo(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results.")] = None,
    events: Annotated[int, typer.Option(help="Events to simulate.", min=1000)] = 757_993,
    signal: Annotated[int, typer.Option(help="Gammas among them.", min=0)] = 1_242,
    *,
    run: RunOptions,
) -> None:
    """Simulate a night-sky observation like FACT's open Crab sample, and detect the source in it."""
    with exit_at_interrupts():
        from excess.analysis import claim_run_folder, run_demo

    with nullcontext() if output is None else claim_run_folder(output, overwrite=run.overwrite):
        found = run_demo(
            events,
            signal,
            seed=run.seed,
            n_jobs=run.jobs,
            verbose=not run.as_json,
            tell=lambda text: say(text, run.as_json),
        )
        _finish(found, output, run)


@app.command()
def simulate(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")],
    events: Annotated[int, typer.Option(help="Events of the observation.", min=1)] = 757_993,
    signal: Annotated[int, typer.Option(help="Gammas among them.", min=0)] = 1_242,
    nights: Annotated[int, typer.Option(help="Nights.", min=1)] = 5,
    first_night: Annotated[int, typer.Option(help="Date of the first night.")] = 20131101,
    labelled: Annotated[int, typer.Option(help="Labelled gammas, and as many protons.", min=0)] = 10_000,
    suffix: Annotated[
        str,
        typer.Option(
            "--format", help="hdf5 (FACT's layout), parquet or csv.", callback=one_of(("hdf5", "parquet", "csv"))
        ),
    ] = "hdf5",
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Simulate a wobble observation, and labelled gammas and protons, into files."""
    with exit_at_interrupts():
        from excess.analysis import simulate_files

    written = simulate_files(
        output,
        n_events=events,
        n_signal=signal,
        n_nights=nights,
        first_night=first_night,
        n_labelled=labelled,
        suffix=suffix,
        seed=seed,
        overwrite=overwrite,
    )
    for file in written.values():
        say(f"{file['path']}: {file['n_events']:,} events", as_json)
    if as_json:
        print_json(written)


@app.command()
def info(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Event file, or model file.")],
    config: Config = None,
    source: Source = None,
    as_json: Json = False,
) -> None:
    """Say what a file holds: its format, events, columns, and On and Off counts; or the header of a model."""
    with exit_at_interrupts():
        from excess.analysis import describe_file

    if len(files) > 1:
        raise typer.BadParameter(
            f"takes one file, got {len(files)}; 'excess init' and 'excess detect' look at several", param_hint="FILE"
        )
    file = files[0]
    found = describe_file(file, config, source=source)
    if as_json:
        print_json(found)
    elif "format" not in found:
        print_table(str(file), {key: shortened(value) for key, value in found.items()})
    else:
        rows = describe_content(found) | found["on_off"] | assumed_rows(found["assumed"])
        rows[f"{len(found['columns'])} columns"] = ", ".join(found["columns"])
        print_table(str(file), rows)


app.command(cls=FilesCommand)(init)


@app.command(cls=FilesCommand)
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
            help=f"{_MODEL_HELP}. May be given several times; the verdict is about the first. By default forest; with "
            "references hybrid, and forest beside it.",
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
    inputs = [*_inputs(events, references), *(model_file or [])]
    with claim_run_folder(output, inputs, overwrite=run.overwrite):
        trained = [load_model(path, n_jobs=run.jobs) for path in model_file or []]
        config = assume_config(events, run.as_json, like=trained[0].config if trained else None)
        columns, others = split_references(references.reference or [], n_jobs=run.jobs)
        columns += [name for one in trained for name in one.config.references if name not in columns]
        observation = _observe(events, config, columns, nearby=True)
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
        _finish(found, output, run)


def _inputs(events: EventOptions, references: ReferenceOptions) -> list[Path]:
    """Return all files that a command is given, those of a list of observations included."""
    from excess.analysis import listed_files

    given = [*events.files, *(events.off or []), *(events.join or []), *(references.simulated or ())]
    given += [Path(one) for one in references.reference or [] if Path(one).exists()]
    if events.config is not None:
        given.append(events.config)
    return given + (listed_files(events.files[0]) if events.lists_observations else [])


def _observe(events: EventOptions, config: Any, references: list[str], *, nearby: bool) -> Any:
    """Return the observation that the options describe, or all of a list of observations."""
    with exit_at_interrupts():
        from excess.analysis import observe, observe_several

    settings: Any = {
        "groups": events.groups,
        "references": references,
        "nearby": nearby,
        # a proposed configuration has them already
        "features": [] if config is not events.config else events.features or [],
        "exclude": [] if config is not events.config else events.exclude or [],
    }
    if events.lists_observations:
        for option in ("off", "alpha", "join", "source", "source_ra", "source_dec", "bins"):
            if getattr(events, option) not in (None, []):
                raise typer.BadParameter(
                    "goes with event files; a list of observations has its own", param_hint=_as_option(option)
                )
        return observe_several(events.files[0], config, **settings)
    return observe(
        events.files,
        config,
        off=events.off or None,
        alpha=events.alpha,
        join=events.join or None,
        source=events.position,
        bins=events.bins,
        **settings,
    )


def _finish(found: Run, output: Path | None, run: RunOptions) -> None:
    """Write a run and its report, and print it as a table or as JSON."""
    if found.no_forward:
        say(f"No forward significance: {found.no_forward}", run.as_json)
    look = ""
    if output is not None:
        try:
            found.write(output, report=True, overwrite=run.overwrite)
            look = f"; look at {output / 'report.html'}"
        except ImportError as error:
            found.write(output, overwrite=run.overwrite)
            say(f"No report was written: {error}; then 'excess report {output}' writes it", run.as_json)
    if run.as_json:
        print_json(found.result())
    else:
        print_run(found)
        if output is not None:
            say(f"Results in {output}{look}", run.as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of 'excess detect' or 'excess demo'.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="HTML file to write; by default report.html in the folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What was observed; by default as the run was told.")] = None,
    plots: Annotated[
        str | None,
        typer.Option(
            help="Write the plots as files of their own as well: png, pdf or svg.",
            callback=one_of(("png", "pdf", "svg")),
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write the report of a finished run again, and its plots for a paper."""
    with exit_at_interrupts():
        from excess.analysis import check_report_path, prepare_folder, read_run

    target = folder / "report.html" if output is None else output
    finished = read_run(folder)
    check_report_path(target, folder, overwrite=overwrite)
    prepare_folder(target.parent)
    written = [finished.report(target, title)]
    if plots is not None:
        written += finished.write_plots(target.parent / "plots", plots)
    for path in written:
        say(f"{path}", as_json)
    if as_json:
        print_json([str(path) for path in written])


def _check_chunked(events: EventOptions, references: ReferenceOptions) -> None:
    """Refuse options that do not go with training in chunks."""
    if events.lists_observations:
        raise typer.BadParameter("do not go with a list of observations", param_hint="--chunk-rows and --dask")
    for option, given in (vars(events) | vars(references)).items():
        if given and option in ("join", "off", "alpha", "bins", "simulated", "reference"):
            raise typer.BadParameter("does not go with --chunk-rows or --dask", param_hint=f"--{option}")


@app.command(cls=FilesCommand)
@grouped
def train(
    events: EventOptions,
    references: ReferenceOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help=f"{_MODEL_HELP}. By default forest; with references hybrid."),
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

    check_model_path(output, _inputs(events, references), overwrite=run.overwrite)
    replaces = output.exists()
    name = model or ("hybrid" if references.given else "forest")
    make_model(name)
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
        observation = _observe(events, config, columns, nearby=False)
        say(str(observation), run.as_json)
        trained = train(observation, name, simulated=references.simulated, references=others, **settings)
    else:
        trained = train_in_chunks(
            events.files,
            config,
            name,
            groups=events.groups,
            source=events.position,
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


@app.command()
def apply(
    model: Annotated[Path, typer.Argument(help="Model file of 'excess train'.")],
    files: Files,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; a folder, where there are several files.")
    ],
    prefix: Annotated[
        str,
        typer.Option(
            help="Name the new columns PREFIX_score, PREFIX_signal_probability and PREFIX_selected.", metavar="PREFIX"
        ),
    ] = "excess",
    selected_only: Annotated[
        bool, typer.Option("--selected-only", help="Write selected events only, to FITS, Parquet or CSV files.")
    ] = False,
    chunk_rows: Annotated[int, typer.Option(help="Events read at a time.", min=1)] = 200_000,
    dask: DaskAddress = None,
    jobs: Jobs = -1,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Add score, probability of signal and selection to copies of event files, in constant memory.

    Columns of the files stay as they are.
    """
    with exit_at_interrupts():
        from excess.analysis import apply

    settings: dict[str, Any] = {"prefix": prefix, "chunk_rows": chunk_rows, "executor": dask, "n_jobs": jobs}
    settings |= {"overwrite": overwrite, "selected_only": selected_only}
    done = apply(model, files, output, **settings, verbose=not as_json)
    for applied in done.values():
        say(str(applied), as_json)
    if len(done) > 1:
        totals = {
            name: sum(getattr(one, name) for one in done.values()) for name in ("n_events", "n_scored", "n_selected")
        }
        words = "{n_events:,} events, {n_scored:,} scored, {n_selected:,} selected".format(**totals)
        say(f"{len(done)} files: {words}", as_json)
    if as_json:
        print_json([{**vars(applied), "path": str(applied.path)} for applied in done.values()])


app.command()(efficiency)
app.command()(export)
app.command()(reproduce)


def run(arguments: list[str] | None = None) -> None:
    """Run a command; every failure is one sentence and an exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in given
    # what Dask has to tell is for --debug
    logging.getLogger("distributed").setLevel(logging.NOTSET if debug else logging.CRITICAL + 1)
    with record_signals() as received:
        try:
            code = app([word for word in given if word != "--debug"], prog_name="excess", standalone_mode=False)
        except (Exception, KeyboardInterrupt) as error:
            if received or isinstance(error, KeyboardInterrupt):
                code = INTERRUPTED
            elif debug and not _is_usage(error):
                raise
            else:
                sys.exit(_fail(error))
    if code == INTERRUPTED:
        number = received[0] if received else INTERRUPTED - 128
        typer.echo(words_for(number), err=True)
        code = 128 + number
    sys.exit(code if isinstance(code, int) else 0)


def _as_option(argument: str) -> str:
    """Return the option of an argument; several have the singular on the command line, where they are repeated."""
    others = {"models": "model", "null_tests": "null-test", "references": "reference", "model_files": "model-file"}
    return "--" + (others | {"executor": "dask"}).get(argument, argument).replace("_", "-")


def _is_usage(error: BaseException) -> bool:
    """Say whether an error is about options, which are shown with the usage of the command."""
    return isinstance(error, ArgumentError) or (hasattr(error, "exit_code") and hasattr(error, "show"))


def _fail(error: Exception) -> int:
    """Say what went wrong, and return the exit code."""
    if isinstance(error, ArgumentError):
        problem = re.sub("`([a-z_]+)`", lambda name: _as_option(name[1]), error.problem)
        error = typer.BadParameter(visible(problem), param_hint=_as_option(error.argument))
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        return int(error.exit_code)
    typer.echo(f"excess: {visible(shortened(_sentence_of(error), LONGEST_TEXT))}", err=True)
    return 1


def _sentence_of(error: Exception) -> str:
    """Return an error as one sentence."""
    if isinstance(error, MemoryError):
        where = f" ({error})" if type(error) is MemoryError and str(error) else ""
        return f"not enough memory{where}; give fewer events, or smaller chunks"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return " ".join(str(error).split())
    return f"unexpected {type(error).__name__}: {error}. This is a defect of excess; --debug shows where"
