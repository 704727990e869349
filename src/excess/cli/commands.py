"""The command line: from event files to a detection, and a model for the next night. It holds no science."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from excess.analysis.inputs import (
    check_new_files,
    configuration,
    detect_with,
    load_model,
    observe_files,
    output_of_each,
    reference_from_files,
    simulated_reference,
)
from excess.analysis.search import apply_here, describe_file, finish, report_run, search, train_here
from excess.cli.options import (
    Alpha,
    Config,
    Files,
    Groups,
    Jobs,
    Join,
    Json,
    Off,
    Seed,
    SourceDec,
    SourceRa,
)
from excess.cli.printing import fail, print_json, print_table, say, sentence_of, shortened
from excess.cli.reproduce import reproduce
from excess.cli.scale import ChunkRows, DaskAddress, apply_on_dask, train_at_scale

__all__ = ["app", "main"]

_INTERRUPTED = 130

app = typer.Typer(
    name="excess",
    help="Learn to detect a source from On and Off events alone.",
    epilog="Add --debug to any command to see the traceback of an error. Exit codes: 0 finished, 1 something is wrong "
    "with the input or the output, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from excess import __version__

        typer.echo(f"excess {__version__}")
        raise typer.Exit


@app.command()
def demo(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results.")] = None,
    events: Annotated[int, typer.Option(help="Events to simulate.", min=1000)] = 757_993,
    signal: Annotated[int, typer.Option(help="Gammas among them.", min=0)] = 1_242,
    seed: Seed = 0,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Simulate a night-sky observation like FACT's open Crab sample, and detect the source in it."""
    from excess._core.files import prepare_folder
    from excess.analysis.models import make_model
    from excess.analysis.run_folder import RunRecord
    from excess.events import load_config
    from excess.observation.pipeline import observe_table
    from excess.observation.simulation import simulate_observation

    if output is not None:
        prepare_folder(output)
    config = load_config()
    say(f"Simulating {events:,} events, {signal:,} of them gammas", as_json)
    observation = observe_table(simulate_observation(events, signal, random_state=seed), config, nearby=True)
    say(str(observation), as_json)
    models = {name: make_model(name, random_state=seed, n_jobs=jobs) for name in ("forest", "li-ma-tree", "k-means")}
    tested = dict(models)
    say("Training the supervised reference on 20,000 simulated events", as_json)
    models["supervised"] = simulated_reference(observation.names, seed, jobs)
    findings = search(observation, models, tested, seed=seed, shown=not as_json)
    options = {"events": events, "signal": signal, "estimators": {name: repr(one) for name, one in models.items()}}
    record = RunRecord("demo", seed, (), options, title="A simulated observation like FACT's of the Crab Nebula")
    finish(output, observation, findings, config, record, as_json)


@app.command()
def simulate(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")],
    events: Annotated[int, typer.Option(help="Events of the observation.", min=1)] = 757_993,
    signal: Annotated[int, typer.Option(help="Gammas among them.", min=0)] = 1_242,
    nights: Annotated[int, typer.Option(help="Nights.", min=1)] = 5,
    first_night: Annotated[int, typer.Option(help="Date of the first night.")] = 20131101,
    labelled: Annotated[int, typer.Option(help="Labelled gammas, and as many protons.", min=0)] = 10_000,
    suffix: Annotated[str, typer.Option("--format", help="hdf5 (FACT's layout), parquet or csv.")] = "hdf5",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Simulate a wobble observation, and labelled gammas and protons, into files."""
    from excess._core.files import prepare_folder
    from excess.events import write_events
    from excess.observation.simulation import simulate_labelled, simulate_observation

    if suffix not in ("hdf5", "parquet", "csv"):
        raise typer.BadParameter(f"must be hdf5, parquet or csv, got {suffix!r}", param_hint="--format")
    folder = prepare_folder(output)
    written = {}
    observation = simulate_observation(
        events, signal, n_nights=nights, n_runs=43 * nights, first_night=first_night, random_state=seed
    )
    truth = simulate_labelled(labelled, labelled, random_state=seed)
    for name, table in {
        "observation": observation,
        "gamma": truth[truth["is_signal"]],
        "proton": truth[~truth["is_signal"]],
    }.items():
        path = folder / f"{name}.{suffix}"
        write_events(table, path)
        written[name] = {"path": str(path), "n_events": len(table)}
        say(f"{path}: {len(table):,} events", as_json)
    if as_json:
        print_json(written)


@app.command()
def info(
    file: Annotated[Path, typer.Argument(help="Event file, or model file.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say what a file holds: its format, events, columns, and On and Off counts; or the header of a model."""
    from excess.estimators.model_file import is_model_file, read_header

    if is_model_file(file):
        header = read_header(file)
        if as_json:
            print_json(header)
        else:
            print_table(f"{file}", {key: shortened(value) for key, value in header.items()})
        return
    found, counts = describe_file(file, config)
    if as_json:
        print_json({**found, "on_off": counts})
        return
    rows = {"format": found["format"], "events": f"{found['n_events']:,}"}
    if found["n_array_events"] is not None:
        rows["array events"] = f"{found['n_array_events']:,}"
    rows.update(counts)
    rows[f"{len(found['columns'])} columns"] = ", ".join(found["columns"])
    print_table(str(file), rows)


@app.command()
def detect(
    files: Files,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="forest, li-ma-forest, noisy-forest, tree, li-ma-tree, k-means, k-means-ensemble; or a model file of "
            "'excess train', which is applied as it is. May be given several times.",
        ),
    ] = None,
    config: Config = None,
    groups: Groups = None,
    join: Join = None,
    off: Off = None,
    alpha: Alpha = None,
    source_ra: SourceRa = None,
    source_dec: SourceDec = None,
    simulation: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Files of simulated gammas and of protons, for a supervised reference beside the others."),
    ] = None,
    folds: Annotated[int | None, typer.Option(help="Number of folds; by default one per group.", min=2)] = None,
    strategy: Annotated[
        str,
        typer.Option(help="pooled, with the forward value beside it; or forward alone: train on earlier groups only."),
    ] = "pooled",
    repeats: Annotated[int, typer.Option(help="Repeat with other seeds.", min=1)] = 1,
    permutations: Annotated[int, typer.Option(help="Permute On and Off so often, for a p-value.", min=0)] = 0,
    null_test: Annotated[bool, typer.Option("--null-test", help="Look in every Off region, too.")] = False,
    title: Annotated[str | None, typer.Option(help="What was observed, for the report.")] = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Cross-validate models on On and Off events, and say how significant the source is."""
    from excess._core.files import prepare_folder
    from excess.analysis.models import make_model
    from excess.analysis.run_folder import RunRecord
    from excess.validation.cross_validation import STRATEGIES

    prepare_folder(output)
    settings = configuration(config, source_ra, source_dec)
    names = model or ["forest"]
    if len(set(names)) < len(names):
        raise typer.BadParameter("is given twice", param_hint=f"--model {max(names, key=names.count)}")
    saved = [name for name in names if Path(name).is_file()]
    models = {name: make_model(name, random_state=seed, n_jobs=jobs) for name in names if name not in saved}
    if strategy not in STRATEGIES:
        raise typer.BadParameter(f"must be {' or '.join(STRATEGIES)}, got {strategy!r}", param_hint="--strategy")
    for given, option in ((null_test, "--null-test"), (permutations, "--permutations")):
        if given and not models:
            raise typer.BadParameter("needs a model to train; a model file is applied as it is", param_hint=option)
    if null_test and off:
        raise typer.BadParameter("needs at least two Off regions", param_hint="--null-test")
    events = {"events": files, "joined events": join or [], "Off events": off or []}
    ready = {name: load_model(Path(name), jobs) for name in saved}
    for one in ready.values():
        check_new_files(one, settings, [path for paths in events.values() for path in paths])
    observation = observe_files(files, settings, groups, join, off, alpha, nearby=True)
    say(str(observation), as_json)
    gammas, protons = ([path] for path in simulation) if simulation is not None else ([], [])
    inputs = {**events, "model": [*map(Path, saved)], "simulated gammas": gammas, "simulated protons": protons}
    tested = dict(models)
    if simulation is not None:
        models["supervised"] = reference_from_files(simulation, settings, observation.names, seed, jobs)
    applied = {name: detect_with(one, observation) for name, one in ready.items()}
    findings = search(
        observation,
        models,
        tested if null_test else {},
        seed=seed,
        shown=not as_json,
        cv=folds,
        strategy=strategy,
        n_repeats=repeats,
        n_permutations=permutations,
    )
    found = {**findings.detections, **applied}
    asked = [*names, *(name for name in found if name not in names)]  # the first that was asked for comes first
    findings = replace(findings, detections={name: found[name] for name in asked})
    options = {
        "models": names,
        "estimators": {
            **{name: repr(one) for name, one in models.items()},
            **{name: repr(one.fitted) for name, one in ready.items()},
        },
        "groups": groups or settings.groups,
        "folds": folds,
        "strategy": strategy,
        "repeats": repeats,
        "permutations": permutations,
        "null_test": null_test,
        "alpha": alpha,
    }
    finish(output, observation, findings, settings, RunRecord("detect", seed, inputs, options, title), as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of 'excess detect' or 'excess demo'.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="HTML file to write; by default report.html in the folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What was observed; by default as the run was told.")] = None,
    plots: Annotated[
        str | None, typer.Option(help="Write the plots as files of their own as well: png, pdf or svg.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a finished run again, and its plots for a paper."""
    from excess._core.files import prepare_folder
    from excess.analysis.finished_run import read_results
    from excess.report import PLOT_FORMATS, write_plots

    if plots is not None and plots not in PLOT_FORMATS:
        raise typer.BadParameter(f"must be {', '.join(PLOT_FORMATS)}, got {plots!r}", param_hint="--plots")
    finished = read_results(folder)
    target = folder / "report.html" if output is None else output
    prepare_folder(target.parent)
    written = [report_run(finished, target, title)]
    if plots is not None:
        written += write_plots(finished.findings, target.parent / "plots", plots)
    for path in written:
        say(f"{path}", as_json)
    if as_json:
        print_json([str(path) for path in written])


@app.command()
def train(
    files: Files,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    model: Annotated[str, typer.Option("--model", "-m", help="As for 'excess detect'.")] = "forest",
    config: Config = None,
    groups: Groups = None,
    join: Join = None,
    off: Off = None,
    alpha: Alpha = None,
    source_ra: SourceRa = None,
    source_dec: SourceDec = None,
    max_depth: Annotated[
        int | None, typer.Option(help="Largest depth of trees; without it that of the model.", min=1)
    ] = None,
    chunk_rows: ChunkRows = None,
    dask: DaskAddress = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Train a model on all On and Off events, to be applied to others."""
    from excess._core.files import prepare_folder
    from excess.analysis.models import make_model
    from excess.analysis.run_folder import RunRecord
    from excess.estimators.model_file import save

    prepare_folder(output.parent)
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; give the name of a file")
    settings = configuration(config, source_ra, source_dec)
    estimator = make_model(model, random_state=seed, n_jobs=jobs)
    if max_depth is not None:
        if "max_depth" not in estimator.get_params(deep=False):
            raise typer.BadParameter(f"does not go with {model}, which has no trees", param_hint="--max-depth")
        estimator.set_params(max_depth=max_depth)
    if chunk_rows is None and dask is None:
        observation = observe_files(files, settings, groups, join, off, alpha)
        trained = train_here(estimator, observation, as_json)
    else:
        others = {"--join": join, "--off": off, "--alpha": alpha}
        trained = train_at_scale(files, settings, estimator, groups, others, chunk_rows, dask, as_json)
    record = RunRecord("train", seed, [*files, *(join or []), *(off or [])], {"model": model}).to_dict()
    metadata = {"config": settings.to_yaml(), "groups": trained.groups, "run": record, "angles": "deg"}
    save(trained.model, output, metadata=metadata)
    tuned = trained.model.tuned_counts_
    say(f"{output}: tuned on {tuned}. Not a result to quote: these are the events it was tuned on.", as_json)
    if as_json:
        print_json({"model": str(output), "n_events": trained.n_events, "threshold": trained.model.threshold_})


@app.command()
def apply(
    model: Annotated[Path, typer.Argument(help="Model file of 'excess train'.")],
    files: Files,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; a folder, where there are several files.")
    ],
    chunk_rows: Annotated[int, typer.Option(help="Events read at a time.", min=1)] = 200_000,
    dask: DaskAddress = None,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Add gamma_prediction and the selection to copies of event files, in constant memory."""
    saved = load_model(model, jobs)
    targets = output_of_each(files, output)
    if dask is None:
        done = apply_here(saved, targets, chunk_rows, as_json)
    else:
        done = apply_on_dask(saved, targets, chunk_rows, dask, as_json)
    if as_json:
        print_json([{"path": str(targets[path]), **vars(applied)} for path, applied in done.items()])


app.command()(reproduce)


@contextmanager
def _terminated_as_interrupted() -> Iterator[list[int]]:
    """Let SIGTERM, which batch systems send, end a command as the keyboard does, with all temporary files removed.

    The list that is given has the signal in it afterwards.
    """
    received: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    usual = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, usual)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure is one sentence and an exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in given
    try:
        with _terminated_as_interrupted() as received:
            code = app([word for word in given if word != "--debug"], prog_name="excess", standalone_mode=False)
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):
            error.show()
            sys.exit(error.exit_code)
        if debug:
            raise
        sys.exit(fail(sentence_of(error), 1))
    if code == _INTERRUPTED:
        code = 128 + received[0] if received else code
        fail(f"{'terminated' if received else 'interrupted'}; no half-written file is left", code)
    sys.exit(code if isinstance(code, int) else 0)
