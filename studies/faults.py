"""Results after faults: signals at random moments of detect, train and apply, and a full disk.

    python -m studies.faults --moments 50

Each command runs once without a fault, for its time and the bytes of its files. Then it is started again and again, and
gets SIGINT, SIGTERM or SIGKILL in turn at a random moment of that time. Afterwards its output must be nothing or the
whole result to the byte. A command that was interrupted or terminated writes one line, has exit code 130 or 143, and
leaves no temporary file. The same command then runs to its end, and must give the same bytes. The full disk is a limit
on the size of files, by which the system fails a write in the middle of a file.

Result of 2026-11-17 (commit a9c600a): after each fault there is nothing or the whole result (docs/trust.md); counts
were not recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
Found = tuple[Counter[str], list[str]]
"""How often each state was found, and what was wrong."""
COMMAND = [sys.executable, "-c", "from excess.cli import main; main()"]


@dataclass
class Case:
    """A command, and where it writes: ``{out}`` in its arguments."""

    name: str
    arguments: list[str]
    seconds: float = 0.0
    expected: dict[str, str] = field(default_factory=dict)

    def command(self, folder: Path) -> list[str]:
        """Return the command line for an output in a folder."""
        return [*COMMAND, *(word.format(out=folder / "out") for word in self.arguments)]


def run_to_the_end(case: Case, folder: Path, max_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command, with files of at most so many bytes."""

    def limit() -> None:
        if max_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))

    return subprocess.run(case.command(folder), capture_output=True, text=True, preexec_fn=limit, check=False)


def run_until(case: Case, folder: Path, seconds: float, number: int) -> tuple[int, str]:
    """Run a command, send it a signal after some seconds, and return its exit code and what it said."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(case.command(folder), stdout=subprocess.DEVNULL, stderr=errors)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, number)
            process.wait(120)
        errors.seek(0)
        return process.returncode, errors.read()


def contents(folder: Path) -> dict[str, str]:
    """Return the checksum of each file that a user sees."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            found[str(name)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def hidden(folder: Path) -> list[str]:
    """Return temporary files."""
    return [path.name for path in folder.rglob(".*")]


def state_of(case: Case, folder: Path) -> str:
    """Say whether nothing, a whole result, or half of one is there."""
    found = contents(folder)
    if not found:
        return "nothing"
    if found == case.expected:
        return "whole"
    return "half"


def make_cases(folder: Path) -> list[Case]:
    """Simulate events, train a model, and return the commands."""
    data, other, model = folder / "data", folder / "other", folder / "model.excess"
    small = ["--events", "20000", "--signal", "600", "--labelled", "100", "--json"]
    events = str(data / "observation.hdf5")
    for arguments in (
        ["simulate", "-o", str(data), *small],
        ["simulate", "-o", str(other), *small, "--first-night", "20131201", "--seed", "1"],
        ["train", events, "-o", str(model), "-m", "tree", "--json"],
    ):
        subprocess.run([*COMMAND, *arguments], check=True, capture_output=True)
    night = str(other / "observation.hdf5")
    quiet = ["-j", "1", "--json"]
    return [
        Case("detect", ["detect", events, "-o", "{out}", "-m", "tree", "--null-test", *quiet]),
        Case("train", ["train", events, "-o", "{out}/model.excess", "--chunk-rows", "4000", *quiet]),
        Case("apply", ["apply", str(model), night, "-o", "{out}/scored.hdf5", "--chunk-rows", "500", *quiet]),
    ]


def try_signals(case: Case, n_moments: int, folder: Path, chosen: random.Random, until: float) -> Found:
    """Send signals at random moments; return what became of the results."""
    states: Counter[str] = Counter()
    wrong: list[str] = []
    for moment in range(n_moments):
        if time.monotonic() > until:
            break
        number = SIGNALS[moment % len(SIGNALS)]
        seconds = chosen.uniform(0.0, case.seconds)
        own = folder / f"{case.name}-{moment}"
        (own / "out").mkdir(parents=True)
        code, said = run_until(case, own, seconds, number)
        state = state_of(case, own)
        states[state] += 1
        at = f"{number.name} after {seconds:.2f} of {case.seconds:.2f} s"
        if state == "half":
            wrong.append(f"{at}: half a result: {sorted(contents(own))}")
        if number != signal.SIGKILL and code != 0:
            if code != 128 + number or len(said.strip().splitlines()) != 1:
                wrong.append(f"{at}: exit code {code}, {said.strip()[-300:]!r}")
            if hidden(own):
                wrong.append(f"{at}: left {hidden(own)}")
        if state != "whole":
            again = run_to_the_end(case, own)
            if again.returncode != 0 or contents(own) != case.expected:
                wrong.append(f"{at}: the second run gave {again.returncode} {again.stderr.strip()[-300:]!r}")
        shutil.rmtree(own)
    return states, wrong


def try_full_disks(case: Case, n_sizes: int, folder: Path, sizes: list[int], until: float) -> Found:
    """Let files be of limited size; return what became of the results."""
    states: Counter[str] = Counter()
    wrong: list[str] = []
    largest = max(sizes)
    for step in range(n_sizes):
        if time.monotonic() > until:
            break
        limit = int(largest * (step + 0.5) / n_sizes) if step % 2 else max(int(sorted(sizes)[step % len(sizes)]) - 1, 1)
        own = folder / f"{case.name}-full-{step}"
        (own / "out").mkdir(parents=True)
        done = run_to_the_end(case, own, limit)
        state = state_of(case, own)
        states[state] += 1
        if state == "half" or (done.returncode != 0 and str(own / "out") not in done.stderr):
            wrong.append(f"{limit} bytes: {state}, {done.returncode}, {done.stderr.strip()[-300:]!r}")
        if "Traceback" in done.stderr or hidden(own):
            wrong.append(f"{limit} bytes: {done.stderr.strip()[-300:]!r}, left {hidden(own)}")
        shutil.rmtree(own)
    return states, wrong


def main() -> int:
    """Print a row for each command and fault; return whether anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", type=int, default=50, help="signals to each command")
    parser.add_argument("--sizes", type=int, default=10, help="full disks for each command")
    parser.add_argument("--command", action="append", help="detect, train or apply; all by default")
    parser.add_argument("--minutes", type=float, default=30.0, help="for each command; no fault is begun after these")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    failures = 0
    print(f"{'command':10} {'seconds':>7}  {'fault':12} {'tried':>5}  left behind")
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        for case in make_cases(folder):
            if options.command and case.name not in options.command:
                continue
            for part in ("warm", "reference"):  # the first may compile
                (folder / part / case.name / "out").mkdir(parents=True)
                started = time.monotonic()
                done = run_to_the_end(case, folder / part / case.name)
                if done.returncode:
                    raise SystemExit(f"{case.name}: {done.stderr}")
                case.seconds = time.monotonic() - started
            reference = folder / "reference" / case.name
            case.expected = contents(reference)
            if contents(folder / "warm" / case.name) != case.expected:
                raise SystemExit(f"{case.name}: two runs without a fault differ")
            sizes = [path.stat().st_size for path in reference.rglob("*") if path.is_file()]
            until = time.monotonic() + options.minutes * 60
            faults: dict[str, Callable[[], Found]] = {
                "full disk": partial(try_full_disks, case, options.sizes, folder, sizes, until),
                "signals": partial(try_signals, case, options.moments, folder, chosen, until),
            }
            for fault, attempt in faults.items():
                states, wrong = attempt()
                left = ", ".join(f"{word} {n}" for word, n in sorted(states.items()))
                print(f"{case.name:10} {case.seconds:7.2f}  {fault:12} {states.total():5}  {left}", flush=True)
                for line in wrong:
                    print(f"    {line}", flush=True)
                failures += len(wrong)
    print(f"{failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
