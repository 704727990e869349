"""The command ``excess efficiency``: the fraction of simulated gammas that a model selects."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.options import Jobs, Json, Overwrite, one_of
from excess.cli.printing import print_json, say, visible

if TYPE_CHECKING:
    with exit_at_interrupts():
        from excess.analysis import Efficiency

__all__ = ["efficiency"]


def _parse_bins(text: str | None) -> int | list[float] | None:
    """Return a number of bins, or their edges."""
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")] if "," in text else int(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"must be a number of bins, or edges such as 0.5,1,2,5, got {visible(text)!r}"
        ) from error


def _bins_option(what: str) -> Any:
    return typer.Option(help=what, metavar="N|EDGES", callback=lambda text: _check_bins(text))


def _check_bins(text: str | None) -> str | None:
    _parse_bins(text)
    return text


def efficiency(
    model: Annotated[Path, typer.Argument(help="Model file of 'excess train'.")],
    files: Annotated[list[Path], typer.Argument(help="Files of simulated gammas.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for efficiency.csv, efficiency.fits and efficiency.png."),
    ] = None,
    energy: Annotated[
        str | None,
        typer.Option(
            help="Column of true energies, or an expression of columns, in TeV; by default one that is known.",
            metavar="COLUMN",
        ),
    ] = None,
    zenith: Annotated[str | None, typer.Option(help="The same for zenith distances, in deg.", metavar="COLUMN")] = None,
    weights: Annotated[
        str | None, typer.Option(help="Column or expression of weights of events.", metavar="COLUMN")
    ] = None,
    energy_bins: Annotated[
        str | None, _bins_option("Bins of energy, or edges in TeV, with commas; by default five per decade.")
    ] = None,
    zenith_bins: Annotated[
        str | None, _bins_option("Bins of zenith distance, or edges in deg; by default 10 deg each.")
    ] = None,
    aeff: Annotated[
        list[Path] | None,
        typer.Option(
            help="FITS file with an effective area; a copy with that area times the efficiency is written to the "
            "output folder. May be given several times."
        ),
    ] = None,
    of: Annotated[
        str,
        typer.Option(
            help="What the plot and the effective area take the fraction of: all simulated gammas, or those that pass "
            "the quality cuts (quality).",
            callback=one_of(("all", "quality")),
        ),
    ] = "all",
    pdf: Annotated[bool, typer.Option("--pdf", help="Write the plot as PDF as well.")] = False,
    chunk_rows: Annotated[int, typer.Option(help="Events read at a time.", min=1)] = 200_000,
    jobs: Jobs = -1,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Say which fraction of simulated gammas a model selects, by energy and zenith distance."""
    with exit_at_interrupts():
        from excess.analysis import claim_efficiency_folder, efficiency, load_model

    if aeff and output is None:
        raise typer.BadParameter("needs a folder to write to: --output", param_hint="--aeff")
    for name, times in Counter(path.name for path in aeff or []).items():
        if times > 1:
            raise typer.BadParameter(
                f"{times} files are called {visible(name)}, so that one copy would replace the other; give an output "
                "folder each",
                param_hint="--aeff",
            )
    trained = load_model(model, n_jobs=jobs)
    claimed = (
        nullcontext()
        if output is None
        else claim_efficiency_folder(output, trained, files, areas=aeff or [], plots=_plots(pdf), overwrite=overwrite)
    )
    with claimed:
        found = efficiency(
            trained,
            files,
            energy=energy,
            zenith=zenith,
            weights=weights,
            energy_bins=_parse_bins(energy_bins),
            zenith_bins=_parse_bins(zenith_bins),
            chunk_rows=chunk_rows,
            verbose=not as_json,
        )
        written = [] if output is None else _write(found, output, aeff or [], of, pdf, overwrite, as_json)
    if as_json:
        print_json({**found.describe(), "files": [str(path) for path in written]})
    else:
        _print(found)
    for path in written:
        say(f"{path}", as_json)


def _plots(pdf: bool) -> tuple[str, ...]:
    return ("png", "pdf") if pdf else ("png",)


def _write(
    found: Efficiency, output: Path, aeff: list[Path], of: str, pdf: bool, overwrite: bool, silent: bool
) -> list[Path]:
    """Write all files and return their names; without matplotlib all but the plots."""
    try:
        written = found.write(output, of=of, plots=_plots(pdf), overwrite=overwrite)
    except ImportError as error:
        if "plotting" not in str(error):
            raise
        written = found.write(output, of=of, plots=(), overwrite=True)
        say(f"No plot was written: {error}", silent)
    return written + [found.correct_effective_area(path, output, of=of, overwrite=overwrite) for path in aeff]


def _print(found: Efficiency) -> None:
    """Print the efficiency by energy and by zenith distance, and the means."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_table(found, "energy / TeV", found.energy_edges, found.by_energy, 0))
    if len(found.zenith_edges) > 2:
        console.print()
        console.print(_table(found, "zenith / deg", found.zenith_edges, found.by_zenith, 1))
    if found.model_bins is not None:
        console.print()
        console.print(_bin_table(found))
    console.print(
        f"Selected of all simulated gammas: {found.mean('all')}; of those that pass the quality cuts: "
        f"{found.mean('quality')}; for the simulated spectrum."
    )
    if found.n_outside:
        console.print(f"{found.n_outside:,} simulated gammas are in no bin.")


def _bin_table(found: Efficiency) -> Any:
    """Return the bins of a model with a threshold for each as rows."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    bins, fraction = found.model_bins, found.by_model_bin()
    assert bins is not None
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in (escape(visible(bins.column)), "pass cuts", "selected", "of those passing"):
        table.add_column(column, justify="right", no_wrap=True)
    for number, label in enumerate(bins.labels):
        shown = f"{fraction.value[number]:.3f} +- {fraction.error[number]:.3f}"
        numbers = (f"{bins.counts[kind][number]:.6g}" for kind in ("quality", "selected"))
        table.add_row(label, *numbers, "-" if "nan" in shown else shown)
    return table


def _table(found: Efficiency, name: str, edges: Any, fractions: Any, axis: int) -> Any:
    """Return the bins of one axis as rows, added up over the other one."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in (name, "gammas", "pass cuts", "selected", "efficiency", "of those passing"):
        table.add_column(column, justify="right", no_wrap=True)
    counts = [found.counts[kind].sum(axis=axis) for kind in ("all", "quality", "selected")]
    both = [fractions(of) for of in ("all", "quality")]
    for number in range(len(edges) - 1):
        if counts[0][number] > 0:
            shown = [f"{own.value[number]:.3f} +- {own.error[number]:.3f}" for own in both]
            table.add_row(
                f"{edges[number]:.3g} to {edges[number + 1]:.3g}",
                *(f"{own[number]:.6g}" for own in counts),
                *("-" if "nan" in text else text for text in shown),
            )
    return table
