"""The command line: from event files to a detection, and a model for the next night. It holds no science."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excess.cli.inputs import (
    check_new_files,
    configuration,
    detect_with,
    load_model,
    observe_files,
    output_of_each,
    reference_from_files,
    simulated_reference,
)
from excess.cli.printing import fail, print_detections, print_json, print_table, say, sentence_of, shortened
from excess.cli.reproduce import reproduce

if TYPE_CHECKING:
    from excess.detection import Detection, NullTest
    from excess.events import AnalysisConfig
    from excess.observation import Observation

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

Files = Annotated[list[Path], typer.Argument(help="Event files: FACT or ctapipe HDF5, FITS, Parquet or CSV.")]
Config = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with features, cuts and regions.")]
Groups = Annotated[str | None, typer.Option(help="Column that must not be split, such as night; 'none' for no groups.")]
Join = Annotated[
    list[Path] | None, typer.Option(help="Files to join event by event, such as DL3 files beside DL2 files.")
]
Off = Annotated[list[Path] | None, typer.Option(help="Files of Off events, where FILES hold On events alone.")]
Alpha = Annotated[float | None, typer.Option(help="Exposure ratio On/Off; needed with --off.")]
SourceRa = Annotated[float | None, typer.Option(help="Right ascension of the source in deg, for sky positions.")]
SourceDec = Annotated[float | None, typer.Option(help="Declination of the source in deg, for sky positions.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**31 - 1)]


def _check_jobs(jobs: int) -> int:
    if jobs == 0:
        raise typer.BadParameter("must not be 0; -1 is all cores")
    return jobs


Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Cores; -1 is all of them.", callback=_check_jobs)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and no progress.")]


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
    from excess.events import load_config
    from excess.models import make_model
    from excess.observation import observe_table
    from excess.results import RunRecord, prepare_folder
    from excess.simulate import simulate_observation

    if output is not None:
        prepare_folder(output)
    config = load_config()
    say(f"Simulating {events:,} events, {signal:,} of them gammas", as_json)
    observation = observe_table(simulate_observation(events, signal, random_state=seed), config)
    say(str(observation), as_json)
    models = {name: make_model(name, random_state=seed, n_jobs=jobs) for name in ("forest", "li-ma-tree", "k-means")}
    tested = dict(models)
    say("Training the supervised reference on 20,000 simulated events", as_json)
    models["supervised"] = simulated_reference(observation.names, seed, jobs)
    detections, null_tests = _search(observation, models, tested, seed=seed, shown=not as_json)
    record = RunRecord("demo", seed, (), {"events": events, "signal": signal})
    _finish(output, observation, detections, null_tests, config, record, as_json)


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
    from excess.events import write_events
    from excess.results import prepare_folder
    from excess.simulate import simulate_labelled, simulate_observation

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
    from excess.persistence import is_model_file, read_header

    if is_model_file(file):
        header = read_header(file)
        if as_json:
            print_json(header)
        else:
            print_table(f"{file}", {key: shortened(value) for key, value in header.items()})
        return
    found, counts = _describe(file, config)
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
    strategy: Annotated[str, typer.Option(help="pooled, or forward: train on earlier groups only.")] = "pooled",
    repeats: Annotated[int, typer.Option(help="Repeat with other seeds.", min=1)] = 1,
    permutations: Annotated[int, typer.Option(help="Permute On and Off so often, for a p-value.", min=0)] = 0,
    null_test: Annotated[bool, typer.Option("--null-test", help="Look in every Off region, too.")] = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Cross-validate models on On and Off events, and say how significant the source is."""
    from excess.models import make_model
    from excess.results import RunRecord, prepare_folder
    from excess.validation import STRATEGIES

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
    events = [*files, *(join or []), *(off or [])]
    ready = {name: load_model(Path(name), jobs) for name in saved}
    for one in ready.values():
        check_new_files(one, settings, events)
    observation = observe_files(files, settings, groups, join, off, alpha)
    say(str(observation), as_json)
    inputs = [*events, *map(Path, saved), *(simulation or [])]
    tested = dict(models)
    if simulation is not None:
        models["supervised"] = reference_from_files(simulation, settings, observation.names, seed, jobs)
    applied = {name: detect_with(one, observation) for name, one in ready.items()}
    trained, null_tests = _search(
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
    detections = {**trained, **applied}
    options = {
        "models": names,
        "groups": groups or settings.groups,
        "folds": folds,
        "strategy": strategy,
        "repeats": repeats,
        "permutations": permutations,
        "null_test": null_test,
        "alpha": alpha,
    }
    _finish(output, observation, detections, null_tests, settings, RunRecord("detect", seed, inputs, options), as_json)


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
    seed: Seed = 0,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Train a model on all On and Off events, to be applied to others."""
    from excess.models import make_model
    from excess.persistence import save
    from excess.results import RunRecord, prepare_folder

    prepare_folder(output.parent)
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; give the name of a file")
    settings = configuration(config, source_ra, source_dec)
    estimator = make_model(model, random_state=seed, n_jobs=jobs)
    observation = observe_files(files, settings, groups, join, off, alpha)
    say(str(observation), as_json)
    shown = {"verbose"} & set(estimator.get_params()) if not as_json else set()
    estimator.set_params(alpha=observation.alpha, **dict.fromkeys(shown, 1))
    # the file of a model is the same whether its progress was shown or not
    fitted = estimator.fit(observation.frame, observation.on).set_params(**dict.fromkeys(shown, 0))
    record = RunRecord("train", seed, [*files, *(join or []), *(off or [])], {"model": model}).to_dict()
    trained_on = [] if observation.groups is None else sorted(set(observation.groups.tolist()))
    save(
        fitted,
        output,
        metadata={"config": settings.to_yaml(), "groups": trained_on, "run": record, "angles": "deg"},
    )
    tuned = fitted.tuned_counts_
    say(f"{output}: tuned on {tuned}. Not a result to quote: these are the events it was tuned on.", as_json)
    if as_json:
        print_json({"model": str(output), "n_events": len(observation.X), "threshold": fitted.threshold_})


@app.command()
def apply(
    model: Annotated[Path, typer.Argument(help="Model file of 'excess train'.")],
    files: Files,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; a folder, where there are several files.")
    ],
    chunk_rows: Annotated[int, typer.Option(help="Events read at a time.", min=1)] = 200_000,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Add gamma_prediction and the selection to copies of event files, in constant memory."""
    from time import perf_counter

    from excess._progress import progress_bar
    from excess.application import apply_model
    from excess.events import describe

    saved = load_model(model, jobs)
    targets = output_of_each(files, output)
    found = []
    for path, target in targets.items():
        n_events = describe(path).n_events
        start = perf_counter()
        with progress_bar(f"Applying to {path.name}", n_events, shown=not as_json) as tick:
            applied = apply_model(saved.fitted, saved.config, path, target, chunk_rows=chunk_rows, tick=tick)
        rate = applied.n_events / max(perf_counter() - start, 1e-9)
        say(
            f"{target}: {applied.n_events:,} events, {applied.n_scored:,} scored, {applied.n_selected:,} selected "
            f"({rate:,.0f} events per second)",
            as_json,
        )
        found.append({"path": str(target), **vars(applied), "events_per_second": rate})
    if as_json:
        print_json(found)


app.command()(reproduce)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure is one sentence and an exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in given
    try:
        code = app([word for word in given if word != "--debug"], prog_name="excess", standalone_mode=False)
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):
            error.show()
            sys.exit(error.exit_code)
        if debug:
            raise
        sys.exit(fail(sentence_of(error), 1))
    if code == _INTERRUPTED:
        fail("interrupted; no half-written file is left", code)
    sys.exit(code if isinstance(code, int) else 0)


def _search(
    observation: Observation,
    models: dict[str, Any],
    tested: dict[str, Any],
    *,
    seed: int,
    shown: bool,
    **options: Any,
) -> tuple[dict[str, Detection], dict[str, NullTest]]:
    """Cross-validate models, and test some of them in the Off regions."""
    from excess.validation import cross_val_detect, null_test

    shared: dict[str, Any] = {"groups": observation.groups, "random_state": seed, "verbose": int(shown)}
    detections = {}
    if models:
        detections = cross_val_detect(
            models, observation.X, observation.on, alpha=observation.alpha, **shared, **options
        )
    if not tested:
        return detections, {}
    options.pop("n_permutations", None)
    tests = null_test(
        tested,
        observation.X,
        observation.regions.region,
        n_regions=observation.regions.n_regions,
        **shared,
        **options,
    )
    return detections, tests


def _finish(
    output: Path | None,
    observation: Observation,
    detections: dict[str, Detection],
    null_tests: dict[str, NullTest],
    config: AnalysisConfig,
    record: Any,
    as_json: bool,
) -> None:
    """Write the results, and print them as a table or as JSON."""
    from excess.results import result_of, write_results

    if output is None:
        result = result_of(observation, detections, null_tests, record)
    else:
        result = write_results(output, observation, detections, null_tests, config, record)
    if as_json:
        print_json(result)
        return
    print_detections(observation, detections, null_tests)
    if output is not None:
        say(f"Results in {output}", as_json)


def _describe(file: Path, config: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a file holds, and On and Off counts where it says enough for them."""
    from excess.events import describe, iter_events, load_config
    from excess.regions import find_regions, theta_columns
    from excess.significance import OnOffCounts

    found = describe(file)
    regions = load_config(config).regions
    names = theta_columns(regions.n_regions)
    counts: dict[str, Any] = {}
    if all(name in found.columns for name in names):
        extra = [name for name in ("night", "selected") if name in found.columns]
        everything, chosen, nights = [], [], set()
        for table in iter_events(file, [*names, *extra]):
            parts = find_regions(table, regions)
            everything.append(parts.counts)
            if "selected" in table:
                chosen.append(parts.take(table["selected"].to_numpy(dtype=bool)).counts)
            if "night" in table:
                nights |= set(table["night"].unique().tolist())
        empty = OnOffCounts(0, 0, 1 / (regions.n_regions - 1))
        counts["without a cut"] = str(sum(everything, start=empty))
        if chosen:
            counts["selected"] = str(sum(chosen, start=empty))
        if nights:
            counts["nights"] = ", ".join(map(str, sorted(nights)))
    fields = ("format", "n_events", "n_array_events", "columns")
    return {name: getattr(found, name) for name in fields} | {"columns": list(found.columns)}, counts
