"""Run the studies and benchmarks of the validation page, and write the page from their results.

    python -m studies                       run everything (hours), then write docs/validation.md
    python -m studies verdicts speed        run some of them
    python -m studies --page                write the page from the results that are there

Studies of real data expect the folder of these data in the environment variable EXCESS_DATA, and are left out without
it. The output of a study is stored in ``studies/results`` with date, commit, version and command. A study that was not
run this way is shown with the dated result in its docstring.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from datetime import date
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import excess

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "studies" / "results"
PAGE = ROOT / "docs" / "validation.md"
DATA = "$EXCESS_DATA"


class Study(NamedTuple):
    """A section of the page: its heading, the claim that it supports, and its command."""

    heading: str
    claim: str
    command: tuple[str, ...]
    needs: str = ""  # data that are not named in the command

    @property
    def script(self) -> Path:
        """The file of the script."""
        name = self.command[0]
        path = ROOT / (name if name.endswith(".py") else f"{name.replace('.', '/')}.py")
        return path if path.is_file() else path.with_suffix("") / "__main__.py"

    @property
    def is_possible(self) -> bool:
        """Whether the data of the study are available."""
        return "EXCESS_DATA" in os.environ or not any(DATA in word for word in (*self.command, self.needs))


STUDIES = {
    "quoted": Study(
        "Quoted significance",
        "Forward and pooled significances of simulated and real observations.",
        ("studies.quoted_significance", "--seeds", "30", "40", "--crab", f"{DATA}/fact/joint-crab"),
    ),
    "verdicts": Study(
        "Null distribution and verdicts",
        "Forward significances are standard normal without a source; sources are detected without warnings.",
        ("studies.verdicts", "--first", "2000", "--n", "2000"),
    ),
    "misuse": Study(
        "Wrong input",
        "Wrong input leads to an error or a warning in most cases; correct input has no warning.",
        ("studies.misuse", "--first", "1100", "--n", "20", "--data", DATA),
    ),
    "learning": Study(
        "Learning curve",
        "The gain over counting grows with the exposure.",
        ("studies.learning_curve", "--seeds", "60", "62", "--save", "curve.jsonl"),
    ),
    "coverage": Study(
        "Coverage of intervals and limits",
        "Intervals and upper limits contain the true value as often as stated.",
        ("studies.limit_coverage",),
    ),
    "alpha": Study(
        "Exposure ratios that differ between runs",
        "Values are calibrated if each event has the exposure ratio of its run.",
        ("studies.varying_alpha",),
    ),
    "intervals": Study(
        "Intervals of phase and mass",
        "A pulsar and the Upsilon, with labels by phase and by mass.",
        ("studies.intervals",),
        DATA,
    ),
    "scan": Study(
        "Scans",
        "Global p-values of scans are uniform without a signal.",
        ("studies.scan_calibration", "null", "0", "200"),
    ),
    "spectrum": Study(
        "Spectra",
        "Spectra of cross-validated events recover the simulated spectrum.",
        ("studies.spectrum", "--first", "401"),
    ),
    "shift": Study(
        "Wrong simulations",
        "A hybrid uses a correct simulation, and loses little with a wrong one.",
        ("studies.simulation_shift", "--noise"),
    ),
    "check": Study(
        "Comparison of simulated and observed features",
        "False alarms are as rare as stated.",
        ("studies.simulation_check",),
    ),
    "noise": Study(
        "Uninformative features",
        "The forest eliminates uninformative features.",
        ("studies.noise_features", "--data", DATA, "--first", "110"),
    ),
    "quality": Study(
        "Quality of the forest",
        "Average precision and F1 on clean labels, compared with scikit-learn.",
        ("studies.forest_quality", "--data", DATA, "--first", "80"),
    ),
    "levels": Study(
        "Levels of label noise",
        "F1 at six noise levels, compared with a random forest and published values.",
        ("studies.noise_levels", "--data", f"{DATA}/imblearn", "--first", "30"),
    ),
    "paper": Study(
        "Tables of the paper",
        "F1 on the ten imbalanced sets, and the significance of a simulated Crab observation.",
        ("studies.paper", "all", "--data", DATA),
    ),
    "speed": Study(
        "Speed of the forest", "Fit and prediction compared with other libraries.", ("benchmarks/bench_forest.py",)
    ),
    "peers": Study(
        "Li & Ma in edge cases", "Values are exact where other packages differ.", ("studies.significance_peers",)
    ),
    "faults": Study("Faults", "No fault leaves a half-written result.", ("studies.faults", "--moments", "50")),
    "mutations": Study(
        "Damaged files",
        "Damaged files are read or rejected, without a crash.",
        ("studies.mutations", "--events", "2000"),
    ),
}


def run(name: str) -> int:
    """Run a study, and store what it prints; return its exit code."""
    command = STUDIES[name].command
    how = [command[0]] if command[0].endswith(".py") else ["-m", command[0]]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    words = [os.path.expandvars(word) for word in command[1:]]
    done = subprocess.run([sys.executable, *how, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode == 0:
        RESULTS.mkdir(exist_ok=True)
        head = f"{date.today()}, version {excess.__version__}, commit {commit.strip()}"
        (RESULTS / f"{name}.txt").write_text(f"{head}\n\n{done.stdout.rstrip()}\n", encoding="utf-8")
    return done.returncode


def section(name: str) -> str:
    """Return a section of the page: the claim, the command, and the stored or recorded result."""
    study = STUDIES[name]
    stored = RESULTS / f"{name}.txt"
    if stored.is_file():
        head, _, result = stored.read_text(encoding="utf-8").partition("\n\n")
    else:
        text = ast.get_docstring(ast.parse(study.script.read_text(encoding="utf-8"))) or ""
        _, found, recorded = text.partition("Result of ")
        head, _, result = recorded.partition("\n\n")
        # the block of numbers; what follows is about alternatives
        result = dedent("\n".join(takewhile(lambda line: not line or line[0] == " ", result.splitlines())))
        if not found:
            head, result = "", "not recorded yet"
        elif not result:
            head, result = head[:10], head
    module = study.command[0]
    shown = "python " + ("" if module.endswith(".py") else "-m ") + " ".join(study.command)
    lines = [f"## {study.heading}", "", study.claim, "", f"Command: `{shown}`", ""]
    lines += [f"Result of {' '.join(head.split()).rstrip(':')}:", ""] if head else []
    return "\n".join([*lines, "```text", result.rstrip(), "```", ""])


def write_page() -> None:
    """Write the validation page."""
    top = "# Validation\n\nMeasured properties with date, commit and command. `make studies` repeats them.\n"
    PAGE.write_text("\n".join([top, *map(section, STUDIES)]), encoding="utf-8")


def main() -> int:
    """Run studies and write the page; return the number of failures."""
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*STUDIES, []], help="studies to run, by default all")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page only")
    given = parser.parse_args()
    names = [] if given.page else given.names or list(STUDIES)
    left_out = [name for name in names if not STUDIES[name].is_possible]
    for name in left_out:
        print(f"{name} is left out: it requires a folder of data in EXCESS_DATA", file=sys.stderr)
    failed = [name for name in names if name not in left_out and run(name)] + (left_out if given.names else [])
    write_page()
    for name in failed:
        print(f"{name} has failed", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
