"""Significance compared with gammapy and pyirf in edge cases where they differ.

    python -m studies.significance_peers                 needs gammapy and pyirf; two seconds

Result of 2026-11-18 (commit 2a0b213), gammapy 2.1 and pyirf 0.13.0: all agree on 20, 25, 0.2 (4.3543) and 10, 0, 0.2
(5.98625); balance is 0, 0 and NaN; one event in a million too many 0.000912871, 0.000913491 and 0.000912384; one in a
billion 2.88675e-05, 0 and NaN. excess comes first, then gammapy, then pyirf.
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
