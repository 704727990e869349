"""Time of the exact threshold sweep and of the On/Off likelihood, as a ratio to sorting the scores, in one run.

Run with ``python benchmarks/bench_threshold.py``. Exits with an error if either of them costs more than three times
``np.argsort`` of the same array where all values are different.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_curve

from excess import assign_cells, on_off_likelihood, significance_curve, significance_threshold

N_EVENTS = 1_000_000
REPEATS = 7
LIMIT = 3.0


def best_times(tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Best of several interleaved runs, in seconds; interleaving shares the machine's moods fairly."""
    times = dict.fromkeys(tasks, np.inf)
    for _ in range(REPEATS):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> int:
    """Print the table; return 1 if the limit is exceeded."""
    rng = np.random.default_rng(0)
    y = (rng.random(N_EVENTS) < 0.3).astype(int)
    scores = {"continuous": rng.random(N_EVENTS), "1,000 distinct": rng.integers(0, 1000, N_EVENTS) / 1000}
    table = Table(title=f"{N_EVENTS:,} scores, best of {REPEATS}")
    for column in ("scores", "task", "time (ms)", "over argsort"):
        table.add_column(column, justify="left" if column in ("scores", "task") else "right")
    alphas = rng.choice([0.1, 0.2, 0.3], N_EVENTS)
    ratios = {}
    for kind, score in scores.items():
        times = best_times(
            {
                "np.argsort": lambda score=score: np.argsort(score),
                "significance_curve": lambda score=score: significance_curve(y, score, 0.2),
                "on_off_likelihood": lambda score=score: on_off_likelihood(y, score, 0.2),
                "on_off_likelihood, three alphas": lambda score=score: on_off_likelihood(y, score, alphas),
                "sklearn roc_curve": lambda score=score: roc_curve(y, score),
            }
        )
        for task, seconds in times.items():
            table.add_row(kind, task, f"{1e3 * seconds:.1f}", f"{seconds / times['np.argsort']:.2f}")
        if kind == "continuous":
            ratios = {task: times[task] / times["np.argsort"] for task in ("significance_curve", "on_off_likelihood")}
    score = scores["continuous"]
    n_on, n_off = rng.integers(0, 100, (2, 100_000))
    others = best_times(
        {
            "median of 10 resamples": lambda: significance_threshold(y, score, 0.2, n_bootstrap=10, random_state=0),
            "assign_cells, 100,000 cells": lambda: assign_cells(n_on, n_off, 0.2),
        }
    )
    for task, seconds in others.items():
        table.add_row("", task, f"{1e3 * seconds:.1f}", "")
    console = Console(width=100)
    console.print(table)
    for task, ratio in ratios.items():
        console.print(f"{task} / argsort = {ratio:.2f} (limit {LIMIT:g})")
    return int(max(ratios.values()) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
