"""Output of commands: tables for users, JSON for scripts, and errors as one sentence."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from excess._utils.errors import with_error

if TYPE_CHECKING:
    from excess.analysis import Efficiency, Run


LONGEST_TEXT = 20_000  # maximum length of a list or message with names from files


def notify(text: str, silent: bool) -> None:
    """Print a message to standard error, unless only the result is requested."""
    if not silent:
        typer.echo(visible(text), err=True)


def visible(text: str) -> str:
    """Escape control characters: names from files may contain terminal commands."""
    controls = {one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Cs")}
    return "".join(one.encode("unicode_escape").decode("ascii") if one in controls else one for one in text)


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    from excess._utils.files import as_json  # imported here, because the help needs no file locks

    typer.echo(json.dumps(as_json(value), indent=2))


def _shown(text: str) -> str:
    """Escape a text for rich."""
    return escape(visible(text))


def _make_table(*numbers: str, label: str | None = None, title: str | None = None, min_width: int | None = None) -> Any:
    """Return a plain table with numeric columns, and a first column of labels that may be long."""
    plain: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}
    table = Table(title=title, min_width=min_width, **plain)
    if label is not None:
        table.add_column(label, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=name not in ("permutation p", "null tests"))
    return table


def shortened(value: Any, longest: int = 400) -> str:
    """Return a value as text of limited length."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def print_run(run: Run, models: Any) -> None:
    """Print the results of all models, one row of `models` each, and the verdict."""
    console = Console(highlight=False)
    console.print(_run_table(run, models))
    # of the first model, which was chosen beforehand
    name, first = next(iter(run.detections.items()))
    _print_warnings(console, run)
    console.print(f"{_shown(name)}: {_shown(run.verdict.sentence)}")
    console.print(*run.limit_sentences, _what_to_quote(first, run.quoted, run.verdict.feasible), sep="\n")
    for remark in first.remarks:
        console.print(f"{_shown(remark)}.")
    signal = first.likelihood
    if signal is not None and signal.n_signal > 0:
        number = with_error(signal.n_signal, signal.n_signal_error)
        where = ", inside and beyond the cut on theta^2" if (first.in_likelihood & ~first.held_out).any() else ""
        console.print(f"Signal events by the {first.strategy} likelihood: {number}{where}.")
    if run.verdict.feasible and first.containment_radius is not None:
        console.print(f"68 % of the signal within {with_error(*first.containment_radius, '.3f')} deg.")
    if len(first.outcomes_by_observation) > 1:
        title = f"Observations, by {_shown(name)}, {first.strategy}"
        console.print(_outcomes_table(title, "observation", first.outcomes_by_observation, first.outcome))
        console.print(_shown(first.best_observation))
    if first.bins is not None:
        title = f"Bins of {_shown(first.bins.column)}, by {_shown(name)}, {first.strategy}"
        outcomes = dict(zip(first.bins.labels, first.bins.outcomes, strict=True))
        console.print(_outcomes_table(title, "bin", outcomes, first.outcome))
        for label, note in zip(first.bins.labels, first.bins.notes, strict=True):
            if note:
                console.print(f"Bin {_shown(label)}: {note}")
    for name, found in run.detections.items():
        if found.reference_weights:
            console.print(f"{_shown(name)} weights: {_shown(weight_text(found.reference_weights))}")
    if run.simulation is not None:
        console.print(f"Simulation check: {_shown(run.simulation.verdict)}")


def _print_warnings(console: Any, run: Run) -> None:
    """Print warnings in red, before any verdict; those common to several models once."""
    said: set[str] = set()
    for name, verdict in run.verdicts.items():
        for one in verdict.warnings:
            if one.code not in said:
                console.print(f"Warning ({_shown(name)}): {_shown(one.sentence)}", style="bold red")
        said |= {one.code for one in verdict.warnings}


def weight_text(weights: Any) -> str:
    """Return the weight of each member: one number, or the mean over folds with its range."""
    texts = []
    for name, own in weights.items():
        mean = own if isinstance(own, float) else own.mean
        has_range = not isinstance(own, float) and own.high - own.low >= 0.005
        texts.append(f"{name} {mean:.2f}" + (f" ({own.low:.2f} to {own.high:.2f})" if has_range else ""))
    return ", ".join(texts)


def _run_table(run: Run, models: Any) -> Any:
    """Return a table with one row per model, for terminals of at least 80 columns unless names are long."""
    first = next(iter(run.detections.values()))
    how = f"{first.strategy} / forward" if run.forward else first.strategy
    title = f"Hold-out events, alpha = {run.alpha:.4g}; significances in sigma, {how}"
    columns = ["On", "Off", "excess", "cut", "likelihood"]
    columns += ["permutation p"] if first.n_permutations else []
    columns += ["null tests"] if run.null_tests else []
    # as wide as the title, which would be wrapped otherwise
    table = _make_table(*columns, label="model", title=title, min_width=len(title))
    row: Any
    for row in models.itertuples():
        cells = _count_cells(row)
        cells += [_significance_cell(row, statistic) for statistic in ("cut", "likelihood")]
        if first.n_permutations:
            cells.append(_text_if_known("{:.3g}", row.permutation_p_value))
        if run.null_tests:
            cells.append(_null_cell(row.null_significances))
        table.add_row(_shown(str(row.Index)), *cells)
    return table


def _outcomes_table(title: str, kind: str, outcomes: Any, joint: Any) -> Any:
    """Return a table with one row per part of the events for one model, and all together."""
    table = _make_table("alpha", "On", "Off", "excess", "cut", "likelihood", label=kind, title=title)
    for label, outcome in [*outcomes.items(), ("joint", joint)]:
        values = [outcome.significances[statistic] for statistic in ("cut", "likelihood")]
        significances = ["" if value != value else f"{value:.1f}" for value in values]
        table.add_row(_shown(str(label)), f"{outcome.counts.alpha:.4g}", *_count_cells(outcome.counts), *significances)
    return table


def _what_to_quote(found: Any, quoted: Any, detected: bool) -> str:
    """Describe the declared statistic, and its value to quote for a detection."""
    name = "likelihood of all events" if found.statistic == "likelihood" else "cut"
    declared, value = f"The {name} was declared beforehand", f"{quoted.value:.1f} sigma"
    pooled = ". Use pooled values to compare models" if found.strategy == "pooled" else ""
    if not detected:
        kind = "" if quoted.strategy == "applied" else f"{quoted.strategy} "
        return f"{declared}: its {kind}value is {value}{pooled}."
    if not quoted.quotable:
        return f"{declared}. Its pooled value only compares models; a detection requires a forward value."
    kind = "forward " if pooled else ""
    if quoted.strategy == "applied":
        value += ", if the model was chosen independently of these events"
    return f"{declared}: for a detection, quote its {kind}value, {value}{pooled}."


def _significance_cell(row: Any, statistic: str) -> str:
    """Return the significance by a statistic, with its spread over seeds and the forward value, if known."""
    value, spread, ahead = (getattr(row, f"{statistic}{part}") for part in ("", "_spread", "_forward"))
    return "".join(map(_text_if_known, ("{:.1f}", " +- {:.1f}", " / {:.1f}"), (value, spread, ahead)))


def _text_if_known(template: str, value: float) -> str:
    return "" if value != value else template.format(value)


def _null_cell(significances: tuple[float, ...]) -> str:
    """Return the range of the null tests by the declared statistic; a dash if no region has selected events."""
    known = [one for one in significances if one == one]
    if not known:
        return "-" if significances else ""
    return f"{min(known):.1f} to {max(known):.1f}"


def _count_cells(counts: Any) -> list[str]:
    return [f"{counts.n_on:.9g}", f"{counts.n_off:.9g}", with_error(counts.excess, counts.excess_error, ".0f")]


def print_efficiency(found: Efficiency) -> None:
    """Print the efficiency by energy and by zenith distance, and the means."""
    console = Console(highlight=False)
    console.print(_axis_table(found, "energy / TeV", found.energy_edges, found.by_energy, 0))
    if len(found.zenith_edges) > 2:
        console.print()
        console.print(_axis_table(found, "zenith / deg", found.zenith_edges, found.by_zenith, 1))
    if found.model_bins is not None:
        table = _make_table(_shown(found.model_bin_column), "pass cuts", "selected", "of those passing")
        counts = [found.model_bins.counts[kind] for kind in ("quality", "selected")]
        for number, label in enumerate(found.model_bin_labels):
            table.add_row(label, *_bin_cells(counts, [found.by_model_bin()], number))
        console.print()
        console.print(table)
    console.print(
        f"Selected of all simulated gammas: {found.mean('all')}; of those that pass the quality cuts: "
        f"{found.mean('quality')}; for the simulated spectrum."
    )
    for name, parts in (("Folds", found.folds), ("Event types", found.types)):
        if parts:
            values = ", ".join(f"{one.mean('quality').value:.3f}" for one in parts)
            console.print(f"{name}, of those that pass the quality cuts: {values}.")
    if found.n_outside:
        console.print(f"{found.n_outside:,} simulated gammas are in no bin.")


def _bin_cells(counts: list[Any], fractions: list[Any], number: int) -> list[str]:
    """Return the counts and fractions of a bin as text."""
    shown = [with_error(own.value[number], own.error[number], ".3f") for own in fractions]
    return [*(f"{round(own[number], 1):.9g}" for own in counts), *("-" if "nan" in text else text for text in shown)]


def _axis_table(found: Efficiency, name: str, edges: Any, fractions: Any, axis: int) -> Any:
    """Return the bins of one axis as rows, summed over the other one."""
    table = _make_table(name, "gammas", "pass cuts", "selected", "efficiency", "of those passing")
    counts = [found.counts[kind].sum(axis=axis) for kind in ("all", "quality", "selected")]
    both = [fractions(of) for of in ("all", "quality")]
    for number in range(len(edges) - 1):
        if counts[0][number] > 0:
            table.add_row(f"{edges[number]:.3g} to {edges[number + 1]:.3g}", *_bin_cells(counts, both, number))
    return table


def print_info(title: str, found: dict[str, Any], columns: bool = False) -> None:
    """Print the description of event files, with or without columns, or the header of a model file."""
    if "format" not in found:
        _print_table(title, {key: shortened(value) for key, value in found.items()})
        return
    rows = _describe_content(found) | found["on_off"] | _assumed_rows(found["assumed"])
    reasons = {} if found["assumed"] is None else found["assumed"]["not_features"]
    if columns:
        rows |= {f"column {name}": reasons.get(name, "") for name in found["columns"]}
    else:
        others = f", {len(reasons)} of them not features" if reasons else ""
        rows["columns"] = f"{len(found['columns'])}{others}; --columns lists them"
    _print_table(title, rows)


def _print_table(title: str, rows: dict[str, Any]) -> None:
    """Print names and values."""
    table = Table(title=_shown(title), show_header=False)
    for key, value in rows.items():
        table.add_row(_shown(shortened(str(key))), _shown(shortened(str(value), LONGEST_TEXT)))
    Console().print(table)


def _describe_content(found: dict[str, Any]) -> dict[str, str]:
    """Return the content of an event file as rows of a table: format, telescope, and number of events."""
    rows = {"format": found["format"]}
    if found["telescope"] is not None:
        rows["telescope"] = found["telescope"]
    if found["n_files"] > 1:
        rows["files"] = f"{found['n_files']:,}"
    rows["events"] = f"{found['n_events']:,}" + (", simulated" if found["is_simulated"] else "")
    for key, name in (("n_array_events", "array events"), ("n_images", "telescope images"), ("n_runs", "runs")):
        if found[key] is not None:
            rows[name] = f"{found[key]:,}"
    if found["nights"]:
        rows["nights"] = ", ".join(f"{night:.0f}" for night in found["nights"])
    return rows


def _assumed_rows(assumed: dict[str, Any] | None) -> dict[str, str]:
    """Return assumptions about a file as names and values to print; empty for the usual ones."""
    if assumed is None:
        return {}
    features = [] if assumed["config"] is None else assumed["config"]["features"]
    rows = {"telescope": assumed["telescope"], "preset": assumed["preset"]}
    rows |= {"features": ", ".join(features) or "none", "other scores": ", ".join(assumed["references"])}
    rows |= {"energy": assumed["energy"], "On and Off": assumed["on_off"], "groups": assumed["groups"]}
    return {name: value for name, value in {**rows, "no detection": assumed["obstacle"]}.items() if value}
