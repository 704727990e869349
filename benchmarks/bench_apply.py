"""Throughput and memory of ``excess apply``, files included, compared with scikit-learn's prediction.

Run with ``python benchmarks/bench_apply.py`` (a few minutes and 4 GB of disk). Five million events with 22 features are
written in FACT's layout and as Parquet; a forest of 100 trees of depth 8 is applied to each by the command line, in a
process of its own whose peak memory is measured for one and for five million events. Scikit-learn's forest of the same
size predicts the same events in memory on two cores. Exits with an error if FACT's layout is less than twice as
fast as that, or if memory grows with the number of events. Rates are medians of three runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

from excess import OnOffForestClassifier
from excess.config import load_config
from excess.dataset import OnOffDataset
from excess.dataset._simulate import simulate_observation
from excess.io import EventWriter

N_EVENTS, BLOCK, N_JOBS, N_RUNS = 5_000_000, 500_000, 2, 3
MEASURED = """
import sys, time
import excess.analysis._apply  # what is imported is not timed
from excess.cli import main
start = time.perf_counter()
try:
    main(sys.argv[1:])
except SystemExit:
    print("seconds", time.perf_counter() - start)
    # not getrusage, whose peak a process inherits from the one that started it
    print("peak", int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024)
"""


def write_files(folder: Path) -> None:
    """Write one million and five million events in both formats."""
    for suffix in ("hdf5", "parquet"):
        with EventWriter(folder / f"one.{suffix}") as one, EventWriter(folder / f"five.{suffix}") as five:
            for number in range(N_EVENTS // BLOCK):
                block = simulate_observation(BLOCK, 800, random_state=number)
                five.append(block)
                if number * BLOCK < 1_000_000:
                    one.append(block)


def apply(model: Path, path: Path, out: Path) -> tuple[float, float]:
    """Return events per second of the whole process' work on a file, and its peak memory in MiB."""
    os.sync()  # what the preparation has written is not to be waited for later
    command = [sys.executable, "-c", MEASURED, "apply", str(model), str(path), "-o", str(out), "--jobs", str(N_JOBS)]
    done = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
    text, seconds, _, peak = done.stdout.rsplit(maxsplit=3)
    [applied] = json.loads(text.removesuffix("seconds"))
    out.unlink()
    return applied["n_events"] / float(seconds), float(peak)


def main() -> None:
    """Measure and print."""
    console = Console(width=110)
    config = load_config()
    training = OnOffDataset.from_files(simulate_observation(random_state=99), config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        console.print("Writing events", style="dim")
        write_files(folder)
        import pandas as pd

        frame = pd.DataFrame(training.X, columns=list(training.names))
        ours = OnOffForestClassifier(100, 1 / 5, max_depth=8, min_samples_leaf=10, n_jobs=N_JOBS, random_state=0)
        ours.fit(frame, training.on).save(folder / "forest.excess", metadata={"config": config.to_yaml()})

        peer = RandomForestClassifier(100, max_depth=8, n_jobs=N_JOBS, random_state=0).fit(training.X, training.on)
        block = observe_block(config)
        start = time.perf_counter()
        for _ in range(N_EVENTS // BLOCK):
            peer.predict_proba(block)
        reference = N_EVENTS / (time.perf_counter() - start)

        table = Table(title="5,000,000 events, 100 trees of depth 8, two cores")
        for column in ("", "events per second", "ratio", "peak MiB, 1 M events", "peak MiB, 5 M events"):
            table.add_column(column, justify="left" if column == "" else "right")
        table.add_row("scikit-learn predict_proba, in memory", f"{reference:,.0f}", "1.0", "", "")
        missed = []
        for suffix in ("hdf5", "parquet"):
            out = folder / f"out.{suffix}"
            _, small = apply(folder / "forest.excess", folder / f"one.{suffix}", out)
            runs = [apply(folder / "forest.excess", folder / f"five.{suffix}", out) for _ in range(N_RUNS)]
            rate, large = np.median(runs, axis=0)
            table.add_row(
                f"excess apply, {suffix} in and out",
                f"{rate:,.0f}",
                f"{rate / reference:.1f}",
                f"{small:.0f}",
                f"{large:.0f}",
            )
            if suffix == "hdf5" and rate < 2 * reference:
                missed.append("less than twice scikit-learn")
            if large > 1.1 * small:
                missed.append(f"{suffix}: memory grows with the number of events")
        console.print(table)
        if missed:
            sys.exit("; ".join(missed))


def observe_block(config) -> np.ndarray:
    """Return the features of one block of events."""
    from excess.config import to_features

    return to_features(simulate_observation(BLOCK, 800, random_state=0), config).X


if __name__ == "__main__":
    main()
