"""Significance beside gammapy and pyirf in the corners where they differ.

Run with ``python benchmarks/compare_significance.py`` in an environment with both (``make bench`` has them).
"""

from __future__ import annotations

import warnings

import gammapy
import pyirf
from gammapy.stats import WStatCountsStatistic
from pyirf.statistics import li_ma_significance as pyirf_significance
from rich.console import Console
from rich.table import Table

from excess import li_ma_significance

CASES = {
    "an ordinary one": (20, 25, 0.2),
    "a pure region": (10, 0, 0.2),
    "balance": (5, 25, 0.2),
    "one event too many": (1_000_001, 5_000_000, 0.2),
    "one in a billion": (1_000_000_001, 5_000_000_000, 0.2),
}


def main() -> None:
    """Print the table."""
    table = Table(title="Li & Ma significance")
    for column in ("case", "On, Off, alpha", "excess", f"gammapy {gammapy.__version__}", f"pyirf {pyirf.__version__}"):
        table.add_column(column)
    for name, counts in CASES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = (
                li_ma_significance(*counts),
                float(WStatCountsStatistic(*counts).sqrt_ts),
                float(pyirf_significance(*counts)),
            )
        table.add_row(name, ", ".join(map(str, counts)), *(f"{value:.6g}" for value in values))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
