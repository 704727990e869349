"""What commands say: tables for people, JSON for scripts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from excess.analysis import Run


def say(text: str, silent: bool) -> None:
    """Tell people on the way; scripts want the result alone."""
    if not silent:
        typer.echo(text, err=True)


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    from excess.analysis.run_folder import as_json

    typer.echo(json.dumps(as_json(value), indent=2))


def print_table(title: str, rows: dict[str, Any]) -> None:
    """Print names and values."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), show_header=False)
    for key, value in rows.items():
        table.add_row(escape(str(key)), escape(str(value)))
    Console().print(table)


def shortened(value: Any) -> str:
    """Return a value as text of bearable length."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 400 else text[:397] + "..."


def print_run(run: Run) -> None:
    """Print what every model found, and what it means."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    detections, forward, null_tests = run.detections, run.forward, run.null_tests
    first = next(iter(detections.values()))
    how = f"{first.strategy} / forward" if forward else first.strategy
    table = Table(title=f"Hold-out events, alpha = {run.alpha:.4g}; significances in sigma, {how}")
    columns = ["model", "On", "Off", "excess", "cut", "signal", "likelihood"]
    columns += ["permutation p"] if first.n_permutations else []
    columns += ["null tests"] if null_tests else []
    for column in columns:
        table.add_column(column, justify="left" if column == "model" else "right")
    uncut = first.uncut
    table.add_row("no cut", *_count_cells(uncut), f"{uncut.significance:.1f}")
    for name, found in detections.items():
        by_statistic = {
            statistic: _significance_cell(found, forward.get(name), statistic) for statistic in ("cut", "likelihood")
        }
        likelihood = found.likelihood
        signal = "" if likelihood is None else f"{likelihood.n_signal:.0f} +- {likelihood.n_signal_error:.0f}"
        cells = [*_count_cells(found.counts), by_statistic["cut"], signal, by_statistic["likelihood"]]
        if first.n_permutations:
            cells.append(f"{found.permutation_p_value:.3g}" if found.n_permutations else "")
        if null_tests:
            cells.append(", ".join(null_tests[name].texts) if name in null_tests else "")
        table.add_row(escape(name), *cells)
    console = Console()
    console.print(table)
    # of the first model, which was chosen before anything was seen
    name = next(iter(detections))
    console.print(f"{escape(name)}: {escape(detections[name].verdict)}")
    n_unjudged = int((~first.held_out).sum())
    if n_unjudged:
        console.print(f"{n_unjudged:,} events of the first block were only trained on.")
    if forward:
        console.print("Pooled values compare models; for a detection, quote the forward value (docs/honesty.md).")
    for name, test in null_tests.items():
        if test.suspicious:
            console.print(f"{escape(name)}: {escape(test.verdict)}")


def _significance_cell(found: Any, forward: Any, statistic: str) -> str:
    """Return the significance by a statistic, with its scatter over seeds and the forward value, if known."""
    values = found.repeats[statistic]
    significance = found.outcome.significances[statistic]
    if significance != significance:
        return ""
    spread = f" +- {values.std(ddof=1):.1f}" if len(values) > 1 else ""
    after = "" if forward is None else f" / {forward.significances[statistic]:.1f}"
    return f"{significance:.1f}{spread}{after}"


def _count_cells(counts: Any) -> list[str]:
    return [f"{counts.n_on:g}", f"{counts.n_off:g}", f"{counts.excess:.0f} +- {counts.excess_error:.0f}"]
