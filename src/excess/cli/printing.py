"""What commands say: tables for people, JSON for scripts."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from excess.analysis import Run

LONGEST_TEXT = 20_000
"""Characters of a list, or of a message, that holds names from files."""


def say(text: str, silent: bool) -> None:
    """Tell people on the way; scripts want the result alone."""
    if not silent:
        typer.echo(visible(text), err=True)


def visible(text: str) -> str:
    r"""Return a text whose control characters are written out: names from files may hold commands for the terminal.

    Examples
    --------
    >>> from excess.cli.printing import visible
    >>> print(visible("width\x1b[2J"))
    width\x1b[2J
    """
    return "".join(
        letter if letter == "\n" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs") else _written_out(letter)
        for letter in text
    )


def _written_out(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    from excess.analysis.run_record import as_json

    typer.echo(json.dumps(as_json(value), indent=2))


def _shown(text: str) -> str:
    """Return a text as rich prints it as it is."""
    from rich.markup import escape

    return escape(visible(text))


def print_table(title: str, rows: dict[str, Any]) -> None:
    """Print names and values."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=_shown(title), show_header=False)
    for key, value in rows.items():
        table.add_row(_shown(shortened(str(key))), _shown(shortened(str(value), LONGEST_TEXT)))
    Console().print(table)


def describe_content(found: dict[str, Any]) -> dict[str, str]:
    """Return what a file of events holds, as lines of a table: format, telescope, and how many events of what."""
    rows = {"format": found["format"]}
    if found["telescope"] is not None:
        rows["telescope"] = found["telescope"]
    rows["events"] = f"{found['n_events']:,}" + (", simulated" if found["is_simulated"] else "")
    for key, name in (("n_array_events", "array events"), ("n_images", "telescope images"), ("n_runs", "runs")):
        if found[key] is not None:
            rows[name] = f"{found[key]:,}"
    if found["nights"]:
        rows["nights"] = ", ".join(f"{night:.0f}" for night in found["nights"])
    return rows


def shortened(value: Any, longest: int = 400) -> str:
    """Return a value as text of bearable length."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def print_run(run: Run) -> None:
    """Print what every model found, and what it means."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_run_table(run))
    # of the first model, which was chosen before anything was seen
    name, first = next(iter(run.detections.items()))
    _print_warnings(console, run)
    console.print(f"{_shown(name)}: {_shown(run.verdict.sentence)}")
    console.print(_what_to_quote(first, run.forward.get(name), run.verdict.feasible))
    signal = first.likelihood
    if signal is not None and signal.n_signal > 0:
        console.print(
            f"By the likelihood, {signal.n_signal:.0f} +- {signal.n_signal_error:.0f} of the On events are signal."
        )
    if len(first.outcomes_by_observation) > 1:
        title = f"Observations, by {_shown(name)}, {first.strategy}"
        console.print(_outcomes_table(title, "observation", first.outcomes_by_observation, first.outcome))
    if first.bins is not None:
        title = f"Bins of {_shown(first.bins.column)}, by {_shown(name)}, {first.strategy}"
        outcomes = dict(zip(first.bins.labels, first.bins.outcomes, strict=True))
        console.print(_outcomes_table(title, "bin", outcomes, first.outcome))
        for label, note in zip(first.bins.labels, first.bins.notes, strict=True):
            if note:
                console.print(f"Bin {_shown(label)}: {note}")
    n_unjudged = int((~first.held_out).sum())
    if n_unjudged:
        console.print(f"{n_unjudged:,} events of the first block were only trained on.")
    for name, found in run.detections.items():
        if found.trust:
            console.print(f"{_shown(name)} trusts: {_shown(trust_text(found.trust))}")
    if run.simulation is not None:
        console.print(f"Simulation check: {_shown(run.simulation.verdict)}")


def _print_warnings(console: Any, run: Run) -> None:
    """Print what no source explains in red, before any verdict; what several models show, of the first of them."""
    said: set[str] = set()
    for name, verdict in run.verdicts.items():
        for one in verdict.warnings:
            if one.code not in said:
                console.print(f"Warning ({_shown(name)}): {_shown(one.sentence)}", style="bold red")
        said |= {one.code for one in verdict.warnings}


def trust_text(trust: Any) -> str:
    """Return how far each member is trusted: one number each, or the mean over folds with its range."""
    return ", ".join(f"{name} {_trust_number(own)}" for name, own in trust.items())


def _trust_number(own: Any) -> str:
    if isinstance(own, float):
        return f"{own:.2f}"
    return f"{own.mean:.2f}" + (f" ({own.low:.2f} to {own.high:.2f})" if own.high - own.low >= 0.005 else "")


def _run_table(run: Run) -> Any:
    """Return a row of each model; it fits into a terminal of 80 columns, unless names are long."""
    from rich import box
    from rich.table import Table

    first = next(iter(run.detections.values()))
    how = f"{first.strategy} / forward" if run.forward else first.strategy
    title = f"Hold-out events, alpha = {run.alpha:.4g}; significances in sigma, {how}"
    # as wide as the title, which would be broken into lines otherwise
    table = Table(
        title=title, min_width=len(title), box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("model", overflow="fold")
    columns = ["On", "Off", "excess", "cut", "likelihood"]
    columns += ["permutation p"] if first.n_permutations else []
    columns += ["null tests"] if run.null_tests else []
    for column in columns:
        table.add_column(column, justify="right", no_wrap=column not in ("permutation p", "null tests"))
    table.add_row("no cut", *_count_cells(first.uncut), f"{first.uncut.significance:.1f}")
    for name, found in run.detections.items():
        cells = [*_count_cells(found.counts)]
        cells += [_significance_cell(found, run.forward.get(name), statistic) for statistic in ("cut", "likelihood")]
        if first.n_permutations:
            cells.append(f"{found.permutation_p_value:.3g}" if found.n_permutations else "")
        if run.null_tests:
            cells.append(_null_cell(run.null_tests.get(name)))
        table.add_row(_shown(name), *cells)
    return table


def _outcomes_table(title: str, kind: str, outcomes: Any, joint: Any) -> Any:
    """Return a row of each part of the events as one model sees it, and of all together."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(kind, overflow="fold")
    for column in ("alpha", "On", "Off", "excess", "cut", "likelihood"):
        table.add_column(column, justify="right", no_wrap=True)
    for label, outcome in [*outcomes.items(), ("joint", joint)]:
        values = [outcome.significances[statistic] for statistic in ("cut", "likelihood")]
        significances = ["" if value != value else f"{value:.1f}" for value in values]
        table.add_row(_shown(str(label)), f"{outcome.counts.alpha:.4g}", *_count_cells(outcome.counts), *significances)
    return table


def _what_to_quote(found: Any, forward: Any, detected: bool) -> str:
    """Say which statistic was declared, and which of its numbers a detection is quoted by; else what it is."""
    name = "likelihood of all events" if found.statistic == "likelihood" else "cut"
    declared = f"The {name} was declared beforehand"
    if not detected:
        result = found if forward is None else forward
        kind = "" if found.strategy == "applied" else f"{found.strategy if forward is None else 'forward'} "
        more = "" if found.strategy != "pooled" else ". Pooled values compare models"
        return f"{declared}: its {kind}value is {result.significance:.1f} sigma{more} (docs/honesty.md)."
    if forward is not None:
        return (
            f"{declared}: for a detection, quote its forward value, {forward.significance:.1f} sigma. Pooled values "
            "compare models (docs/honesty.md)."
        )
    if found.strategy == "pooled":
        return f"{declared}. Its pooled value compares models; a detection wants a forward value (docs/honesty.md)."
    value = f"{found.significance:.1f} sigma"
    if found.strategy == "applied":
        value += ", if the model was chosen before these events were looked at"
    return f"{declared}: for a detection, quote its value, {value} (docs/honesty.md)."


def _significance_cell(found: Any, forward: Any, statistic: str) -> str:
    """Return the significance by a statistic, with its scatter over seeds and the forward value, if known."""
    values = found.repeats[statistic]
    significance = found.outcome.significances[statistic]
    if significance != significance:
        return ""
    spread = f" +- {values.std(ddof=1):.1f}" if len(values) > 1 else ""
    after = "" if forward is None else f" / {forward.significances[statistic]:.1f}"
    return f"{significance:.1f}{spread}{after}"


def _null_cell(test: Any) -> str:
    """Return the range of the null tests by the declared statistic; a dash where nothing was selected in any region."""
    known = [] if test is None else [one.significance for one in test.outcomes.values() if not one.empty]
    if not known:
        return "" if test is None else "-"
    return f"{min(known):.1f} to {max(known):.1f}"


def _count_cells(counts: Any) -> list[str]:
    return [f"{counts.n_on:g}", f"{counts.n_off:g}", f"{counts.excess:.0f} +- {counts.excess_error:.0f}"]
