"""Coverage of intervals and upper limits of a signal: how often they contain the true value.

    python -m studies.limit_coverage                      ten minutes

Off events are a Poisson number with a standard normal feature; On events are alpha times as many of the same, and a
Poisson number of signal events whose feature has the mean 1.5. The ratio of densities is exact. With ``--alpha-error``
the true alpha of each data set is drawn around the given one.

Result of 2026-11-18 (commit eea7458; with an error of alpha 5b5ada4), 2,000 data sets of 1,000 expected Off and 40
expected signal events, alpha 0.2; the statistical error is 0.010, 0.007 and 0.005:

                                      68 %     90 %     95 %
    interval, n_signal                0.683    0.903    0.955
    interval, strength                0.680    0.898    0.951
    upper limit, profile, n_signal    0.686    0.902    0.953
    upper limit, profile, strength    0.682    0.904    0.951
    upper limit, CLs, n_signal        0.686    0.902    0.953
    upper limit, CLs, strength        0.682    0.904    0.951
  with --alpha-error 0.1
    interval, n_signal                0.675    0.895    0.946
    interval, strength                0.674    0.888    0.944
    upper limit, profile, n_signal    0.673    0.899    0.952
    upper limit, profile, strength    0.675    0.901    0.948
    upper limit, CLs, n_signal        0.673    0.900    0.952
    upper limit, CLs, strength        0.675    0.901    0.948
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from excess.stats._likelihood import Signal, as_nuisance

LEVELS = (0.68, 0.90, 0.95)
ALPHA, SHIFT, N_OFF, N_SIGNAL = 0.2, 1.5, 1000, 40


def measure_coverage(n_data_sets: int, alpha_error: float | None, seed: int = 0) -> Iterator[tuple[str, float, float]]:
    """Yield the name of an interval or a limit, its level, and its share of data sets with the true value."""
    rng = np.random.default_rng([seed, 20_261_118])
    nuisance = as_nuisance(alpha_error, None, 0)
    hits: Counter[tuple[str, float]] = Counter()
    truth = {"strength": N_SIGNAL / N_OFF, "n_signal": N_SIGNAL}
    for _ in range(n_data_sets):
        alpha = ALPHA * (1 + (alpha_error or 0.0) * rng.normal())
        n_off, n_background, n_signal = rng.poisson([N_OFF, alpha * N_OFF, N_SIGNAL])
        x = rng.normal(size=n_off + n_background + n_signal) + np.repeat([0, SHIFT], [n_off + n_background, n_signal])
        on = np.arange(len(x)) >= n_off
        signal = Signal(on, np.exp(SHIFT * x - SHIFT**2 / 2), ALPHA, nuisance)
        for level in LEVELS:
            for method in ("profile", "cls"):
                for name, limits in signal.limits(level, method)._asdict().items():
                    hits[f"upper limit, {method}, {name}", level] += limits.upper >= truth[name]
                    if method == "profile":
                        hits[f"interval, {name}", level] += limits.low <= truth[name] <= limits.high
    for (name, level), number in sorted(hits.items()):
        yield name, level, number / n_data_sets


def main() -> None:
    """Print the coverage of all intervals and limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=2000)
    parser.add_argument("--alpha-error", type=float)
    arguments = parser.parse_args()
    table = Table("what", "level", "coverage", title=f"{arguments.data_sets} data sets, error {arguments.alpha_error}")
    for name, level, share in measure_coverage(arguments.data_sets, arguments.alpha_error):
        table.add_row(name, f"{level:g}", f"{share:.3f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
