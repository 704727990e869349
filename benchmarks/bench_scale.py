"""Fits on more events than memory: time and peak memory from Parquet compared with the fit in memory, and Dask workers.

Run with ``python benchmarks/bench_scale.py``; the files (90 MB per million events) are written into ``--data DIR``
once, or into a folder that is removed afterwards. ``--quick`` takes a tenth of the events. Every fit runs in a process
of its own, after a warm-up. Nothing is printed for a size before the model files of all ways to fit it are equal, byte
for byte. Exits with an error if a limit is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
from bench_forest import N_FEATURES, fixed_forest, make_events
from costs import LevelCost
from rich.console import Console
from rich.table import Table

from excess.out_of_core import Dask, EventFiles, fit_forest
from excess.out_of_core._fit import Histograms

NAMES = [f"x{j}" for j in range(N_FEATURES)]
PER_FILE = 500_000
GIB = 2**30


def write_files(folder: Path, n: int) -> list[Path]:
    """Write events into files, unless they are there; return their paths."""
    paths = [folder / f"events-{number:03d}.parquet" for number in range(n // PER_FILE)]
    for number, path in enumerate(paths):
        if not path.exists():
            X, on, _ = make_events(PER_FILE, seed=number)
            table = pd.DataFrame(X, columns=NAMES).assign(on=on.astype(np.int8))
            table.to_parquet(path.with_suffix(".part"), compression=None)
            path.with_suffix(".part").rename(path)
    return paths


def dataset(paths: list[Path]) -> EventFiles:
    """Return the files as a dataset."""
    return EventFiles(paths, NAMES, "on")


def warm_up(executor: Any = None) -> None:
    """Compile, and load what is loaded late; also what only large fits need."""
    X, on, _ = make_events(20_000)
    chunks = [(X[start : start + 5000], on[start : start + 5000]) for start in range(0, len(X), 5000)]
    fixed_forest("information", n_jobs=2).fit(X, on)
    for memory in (2**16, 2**30):
        fit_forest(fixed_forest("information", n_jobs=2), chunks, executor=executor, memory=memory)


def digest(model: Any) -> str:
    """Return a checksum of the model file and of the out-of-bag scores."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        content = (Path(folder) / "model").read_bytes()
    return hashlib.sha256(content + model.oob_decision_function_[:1000].tobytes()).hexdigest()


def measure(way: str, paths: list[Path], address: str) -> dict[str, Any]:
    """Fit in this process; return seconds, peak memory, a checksum, and bytes sent per level."""
    found: dict[str, Any] = {}
    model = fixed_forest("information", n_jobs=2)
    if way == "memory":
        warm_up()
        tables = [pd.read_parquet(path) for path in paths]
        on = np.concatenate([table["on"].to_numpy() for table in tables]).astype(np.int8)
        X = np.empty((len(on), N_FEATURES), dtype=np.float32, order="F")
        first = 0
        for table in tables:
            X[first : first + len(table)] = table[NAMES].to_numpy()
            first += len(table)
        del tables
        X = pd.DataFrame(X, columns=NAMES, copy=False)
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(X, on)
        found["seconds"], found["cpu"] = time.perf_counter() - start, time.process_time() - cpu
    elif way == "chunks":
        warm_up()
        start, cpu = time.perf_counter(), time.process_time()
        model = fit_forest(model, dataset(paths))
        found["seconds"], found["cpu"] = time.perf_counter() - start, time.process_time() - cpu
    else:
        executor = MeasuredDask(address)
        warm_up(executor)
        executor.sent.clear()
        before = executor.cpu_seconds()
        start = time.perf_counter()
        model = fit_forest(model, dataset(paths), executor=executor)
        found["seconds"] = time.perf_counter() - start
        found["sent"] = executor.sent
        found["cpu"] = [now - then for now, then in zip(executor.cpu_seconds(), before, strict=True)]
        executor.close()
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found["digest"] = digest(model)
    return found


class MeasuredDask(Dask):
    """Dask that records the bytes which every level sends over loopback, and those of the cost model."""

    def __init__(self, address: str) -> None:
        super().__init__(address, max_moved=20_000)
        self.sent: list[tuple[int, int]] = []

    def cpu_seconds(self) -> list[float]:
        """Return the processor time of this process and of each worker."""
        return [time.process_time(), *dict(sorted(self._client.run(time.process_time).items())).values()]

    def reduce(self, reduction: Any, parts: Any) -> Any:
        """Reduce, and read the counter of the network."""
        if not isinstance(reduction, Histograms):
            return super().reduce(reduction, parts)
        before = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
        result = super().reduce(reduction, parts)
        sent = psutil.net_io_counters(pernic=True)["lo"].bytes_sent - before
        n_slots, n_chosen = reduction.chosen.shape
        cost = LevelCost(n_slots, len(reduction.routes.slots), n_chosen, sum(self.threads))
        self.sent.append((sent, cost.total))
        return result


def in_process(way: str, paths: list[Path], address: str = "") -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--measure", way, "--address", address, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


class Cluster:
    """A scheduler and workers with one thread each, as processes on loopback."""

    def __init__(self, n_workers: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        file = Path(self.folder.name) / "scheduler.json"
        options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
        self.processes = [self._start("scheduler", "--port", "0", "--scheduler-file", str(file), *options)]
        while not file.exists() or not file.read_text():
            time.sleep(0.05)
        self.address = json.loads(file.read_text())["address"]
        limits = ["--nthreads", "1", "--no-nanny", "--local-directory", self.folder.name]
        self.processes += [self._start("worker", self.address, *limits, *options) for _ in range(n_workers)]

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))

    def __enter__(self) -> str:
        """Return the address of the scheduler."""
        return self.address

    def __exit__(self, *error: object) -> None:
        """Stop all processes."""
        for process in reversed(self.processes):
            process.kill()
        for process in self.processes:
            process.wait(30)
        self.folder.cleanup()


def bench_files(folder: Path, sizes: list[int], console: Console) -> list[tuple[str, float, float]]:
    """Print the table of fits from files; return what has limits: a name, a value, and the largest allowed."""
    table = Table(title="From Parquet, in chunks, compared with the fit in memory (events read already)")
    table.add_column("events", justify="right")
    for way in ("in memory", "chunks"):
        for column in ("(s)", "processor (s)", "peak (GiB)"):
            table.add_column(f"{way} {column}", justify="right")
    for column in ("ratio", "ratio of processor time", "processor time per event (us)"):
        table.add_column(column, justify="right")
    per_event, limits = {}, []
    for n in sizes:
        paths = write_files(folder, n)
        memory, chunks = in_process("memory", paths), in_process("chunks", paths)
        if memory["digest"] != chunks["digest"]:
            sys.exit(f"the models of {n} events differ")
        ratio, of_cpu = (chunks[unit] / memory[unit] for unit in ("seconds", "cpu"))
        per_event[n] = 1e6 * chunks["cpu"] / n
        row = [
            text
            for found in (memory, chunks)
            for text in (f"{found['seconds']:.1f}", f"{found['cpu']:.1f}", f"{found['memory'] / GIB:.2f}")
        ]
        table.add_row(f"{n:,}", *row, f"{ratio:.2f}", f"{of_cpu:.2f}", f"{per_event[n]:.2f}")
        if n == sizes[-1]:
            limits = [
                ("chunks / in memory", ratio, 2.5),
                ("chunks / in memory, processor time", of_cpu, 2.5),
                ("peak memory (GiB)", chunks["memory"] / GIB, 2.0),
            ]
    console.print(table)
    limits.append(("processor time per event, largest / smallest", per_event[sizes[-1]] / per_event[sizes[0]], 1.25))
    return limits


def bench_dask(folder: Path, n: int, console: Console) -> list[tuple[str, float, float]]:
    """Print what one and two workers take and send; return what has limits."""
    paths = write_files(folder, n)
    found = {}
    for n_workers in (1, 2):
        with Cluster(n_workers) as address:
            found[n_workers] = in_process("dask", paths, address)
    if found[1]["digest"] != found[2]["digest"]:
        sys.exit("the models of one and two workers differ")
    table = Table(title=f"{n:,} events on two Dask workers: bytes sent per level")
    for column in ("level", "sent (MB)", "cost model (MB)", "ratio"):
        table.add_column(column, justify="right")
    worst = 0.0
    for level, (sent, expected) in enumerate(found[2]["sent"]):
        table.add_row(str(level), f"{sent / 1e6:.2f}", f"{expected / 1e6:.2f}", f"{sent / expected:.2f}")
        worst = max(worst, abs(sent / expected - 1))
    console.print(table)
    for n_workers in (1, 2):
        here, *workers = (f"{seconds:.1f}" for seconds in found[n_workers]["cpu"])
        console.print(f"processor time with {n_workers}: caller {here} s, workers {', '.join(workers)} s")
    seconds = [found[n_workers]["seconds"] for n_workers in (1, 2)]
    console.print(f"one worker {seconds[0]:.1f} s, two workers {seconds[1]:.1f} s: {seconds[0] / seconds[1]:.2f} times")
    return [("two workers / one worker", seconds[1] / seconds[0], 1 / 1.5), ("bytes off the cost model", worst, 0.2)]


def main() -> int:
    """Run the requested benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder for the files; by default a temporary one")
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    parser.add_argument("--only", choices=("files", "dask"))
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure, given.paths, given.address)))
        return 0
    if given.data is None:
        with tempfile.TemporaryDirectory() as folder:
            return bench(Path(folder), given.only, quick=given.quick)
    given.data.mkdir(parents=True, exist_ok=True)
    return bench(given.data, given.only, quick=given.quick)


def bench(folder: Path, only: str | None, *, quick: bool) -> int:
    """Print the tables; return 1 if a limit is missed."""
    console = Console(width=120)
    million = 1_000_000
    limits = []
    if only != "dask":
        sizes = [million, 2 * million] if quick else [2 * million, 5 * million, 10 * million, 20 * million]
        limits += bench_files(folder, sizes, console)
    if only != "files":
        limits += bench_dask(folder, million if quick else 4 * million, console)
    missed = False
    for name, value, limit in limits:
        missed |= value > limit
        console.print(f"{name}: {value:.2f} (at most {limit:.2f})" + ("  MISSED" if value > limit else ""))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
