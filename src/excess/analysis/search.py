"""What commands do: search for a source, write what was found, train and apply a model, describe a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from excess.cli.printing import print_findings, print_json, say

if TYPE_CHECKING:
    from excess.analysis.application import Applied
    from excess.analysis.finished_run import FinishedRun
    from excess.analysis.inputs import SavedModel
    from excess.analysis.run_folder import Findings, RunRecord
    from excess.events import AnalysisConfig
    from excess.observation.pipeline import Observation
    from excess.stats.significance import OnOffCounts


def search(
    observation: Observation,
    models: dict[str, Any],
    tested: dict[str, Any],
    *,
    seed: int,
    shown: bool,
    n_permutations: int = 0,
    **options: Any,
) -> Findings:
    """Cross-validate models, forward as well as pooled, and test some of them in the Off regions."""
    from excess.analysis.run_folder import Findings
    from excess.validation import cross_val_detect, null_test

    if not models:
        return Findings({})
    shared: dict[str, Any] = {"groups": observation.groups, "random_state": seed, "verbose": int(shown), **options}
    nearby = observation.nearby
    detections = cross_val_detect(
        models,
        observation.X,
        observation.on,
        alpha=observation.alpha,
        nearby=None if nearby is None else (nearby.X, nearby.groups),
        n_permutations=n_permutations,
        **shared,
    )
    forward: dict[str, OnOffCounts] = {}
    no_forward = ""
    if options.get("strategy", "pooled") == "pooled":
        forward, no_forward = _search_forward(observation, models, shared)
        if no_forward:
            say(f"No forward significance: {no_forward}", not shown)
    tests = {}
    if tested:
        regions = observation.regions
        tests = null_test(tested, observation.X, regions.region, n_regions=regions.n_regions, **shared)
    annotated = {name: observation.annotate(found) for name, found in detections.items()}
    return Findings(annotated, forward, tests, no_forward)


def _search_forward(
    observation: Observation, models: dict[str, Any], shared: dict[str, Any]
) -> tuple[dict[str, OnOffCounts], str]:
    """Cross-validate forward in time; or say why that cannot be done, which is no reason to lose the rest."""
    import numpy as np

    from excess.validation.cross_validation import cross_val_detect

    order: Any = slice(None)
    if observation.groups is None:
        time = observation.time
        if time is None or not np.isfinite(time).all():
            return {}, "there are neither groups nor times, so that what came first is not known"
        order = np.argsort(time, kind="stable")
    try:
        found = cross_val_detect(
            models,
            observation.X[order],
            observation.on[order],
            alpha=observation.alpha,
            **{**shared, "strategy": "forward"},
        )
    except ValueError as error:
        return {}, str(error)
    return {name: one.counts for name, one in found.items()}, ""


def finish(
    output: Path | None,
    observation: Observation,
    findings: Findings,
    config: AnalysisConfig,
    record: RunRecord,
    as_json: bool,
) -> None:
    """Write the results and their report, and print them as a table or as JSON."""
    from excess.analysis.finished_run import FinishedRun
    from excess.analysis.run_folder import result_of, write_results

    look = ""
    if output is None:
        result = result_of(observation, findings, record)
    else:
        result = write_results(output, observation, findings, config, record)
        finished = FinishedRun(findings, result["observation"], result["run"], config.to_yaml())
        try:
            look = f"; look at {report_run(finished, output / 'report.html')}"
        except ImportError as error:
            say(f"No report was written: {error}; then 'excess report {output}' writes it", as_json)
    if as_json:
        print_json(result)
    else:
        print_findings(observation, findings)
        if output is not None:
            say(f"Results in {output}{look}", as_json)


def report_run(finished: FinishedRun, path: Path, title: str | None = None) -> Path:
    """Write the report of a run."""
    from excess.report import write_report

    return write_report(
        finished.findings.detections,
        path,
        forward=finished.findings.forward,
        null_test=finished.findings.null_tests,
        no_forward=finished.findings.no_forward,
        title=title or finished.run["title"],
        observed=finished.observed,
        run=finished.run,
        config=finished.config,
    )


def describe_file(file: Path, config: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a file holds, and On and Off counts where it says enough for them."""
    from excess.events import describe, iter_events, load_config
    from excess.observation.regions import find_regions, theta_columns
    from excess.stats.significance import OnOffCounts

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


class Trained(NamedTuple):
    """A fitted model, and what it was trained on."""

    model: Any
    n_events: int
    groups: list[Any]


def train_here(estimator: Any, observation: Observation, as_json: bool) -> Trained:
    """Train a model on events in memory."""
    say(str(observation), as_json)
    shown = {"verbose"} & set(estimator.get_params()) if not as_json else set()
    estimator.set_params(alpha=observation.alpha, **dict.fromkeys(shown, 1))
    fitted = estimator.fit(observation.frame, observation.on)
    groups = [] if observation.groups is None else sorted(set(observation.groups.tolist()))
    return Trained(to_be_saved(fitted), len(observation.X), groups)


def to_be_saved(fitted: Any) -> Any:
    """Return a model without what does not belong into its file: how many cores it had, whether progress was shown."""
    usual = {"verbose": 0, "n_jobs": None}
    return fitted.set_params(**{name: value for name, value in usual.items() if name in fitted.get_params(deep=False)})


def apply_here(saved: SavedModel, targets: dict[Path, Path], chunk_rows: int, as_json: bool) -> dict[Path, Applied]:
    """Apply a model to one file after the other."""
    from time import perf_counter

    from excess._core.progress import progress_bar
    from excess.analysis.application import apply_model
    from excess.events import describe

    done = {}
    for path, target in targets.items():
        n_events = describe(path).n_events
        start = perf_counter()
        with progress_bar(f"Applying to {path.name}", n_events, shown=not as_json) as tick:
            done[path] = apply_model(saved.fitted, saved.config, path, target, chunk_rows=chunk_rows, tick=tick)
        rate = n_events / max(perf_counter() - start, 1e-9)
        say(f"{target}: {done[path]} ({rate:,.0f} events per second)", as_json)
    return done
