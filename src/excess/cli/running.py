"""What commands do: search for a source, write what was found, describe a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from excess.cli.printing import print_findings, print_json, say

if TYPE_CHECKING:
    from excess.events import AnalysisConfig
    from excess.observation import Observation
    from excess.results import Findings, RunRecord


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
    from excess.results import Findings
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
    forward = {}
    if options.get("strategy", "pooled") == "pooled":
        try:
            later = cross_val_detect(
                models, observation.X, observation.on, alpha=observation.alpha, **{**shared, "strategy": "forward"}
            )
            forward = {name: found.counts for name, found in later.items()}
        except ValueError as error:
            # the first nights may lack On or Off events to start from, which is no reason to lose the rest
            say(f"no forward significance: {error}", not shown)
    tests = {}
    if tested:
        regions = observation.regions
        tests = null_test(tested, observation.X, regions.region, n_regions=regions.n_regions, **shared)
    annotated = {name: observation.annotate(found) for name, found in detections.items()}
    return Findings(annotated, forward, tests)


def finish(
    output: Path | None,
    observation: Observation,
    findings: Findings,
    config: AnalysisConfig,
    record: RunRecord,
    as_json: bool,
) -> None:
    """Write the results and their report, and print them as a table or as JSON."""
    from excess.results import result_of, write_results

    if output is None:
        result = result_of(observation, findings, record)
    else:
        result = write_results(output, observation, findings, config, record)
        _report(output, findings, config, result, as_json)
    if as_json:
        print_json(result)
    else:
        print_findings(observation, findings)
        if output is not None:
            say(f"Results in {output}; look at {output / 'report.html'}", as_json)


def _report(output: Path, findings: Findings, config: AnalysisConfig, result: dict[str, Any], as_json: bool) -> None:
    """Write the report of a run; where its libraries are missing, say how to get them, and go on."""
    from excess.report import write_report

    try:
        write_report(
            findings.detections,
            output / "report.html",
            forward=findings.forward,
            null_test=findings.null_tests,
            title=result["run"]["title"],
            run=result["run"],
            config=config.to_yaml(),
        )
    except ImportError as error:
        say(f"no report was written: {error}; then 'excess report {output}' writes it", as_json)


def describe_file(file: Path, config: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
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
