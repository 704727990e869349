"""Time and memory of ``excess detect`` on ten million events in a file.

Run with ``python benchmarks/bench_detect.py`` (some minutes, 1.3 GB of disk), ``--events 1_000_000`` for fewer. Twenty
nights of a simulated observation are written to one Parquet file, and searched by the command line in a process of its
own. Files are read in chunks, of which only events in regions and a sample of the field stay in memory.

Result of 2026-11-18 (commit 281ecd4), one thread of a shared machine: reading ten million events takes 6.2 s of CPU
and 1.5 GiB; 283,270 events in regions and 797,233 of the field stay. The search that follows trains on these in 20
folds, 20 blocks forward and 5 null regions; it was not finished after 120 s of CPU, with a peak of 2.1 GiB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from excess.dataset import simulate_observation

PART = 1_000_000
RUN = "from excess.cli import main; raise SystemExit(main())"


def write_events(path: Path, n_events: int) -> None:
    """Write an observation of two nights for each million events."""
    writer = None
    for part in range(n_events // PART):
        first = 20131101 + 2 * part
        events = simulate_observation(PART, 1640, n_nights=2, n_runs=80, first_night=first, random_state=part)
        wide = [name for name in events.columns if events[name].dtype == np.float64 and name != "unix_time"]
        table = pa.Table.from_pandas(events.astype(dict.fromkeys(wide, np.float32)), preserve_index=False)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def main() -> None:
    """Print wall time, CPU time and peak memory of a search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    n_events = parser.parse_args().events
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.parquet")
        write_events(path, n_events)
        for command in (["info", path], ["detect", path, "-o", Path(folder, "run")]):
            start = time.perf_counter()
            process = subprocess.Popen([sys.executable, "-c", RUN, *map(str, command)])
            _, status, used = os.wait4(process.pid, 0)
            wall, cpu = time.perf_counter() - start, used.ru_utime + used.ru_stime
            print(f"excess {command[0]}: {n_events:,} events, status {status}, {wall:.0f} s, ", end="")
            print(f"{cpu:.0f} s of CPU, {used.ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
