"""Reproduce the tables and figures of the paper.

Pfahler, Bunse & Morik, "Noisy labels for weakly supervised gamma hadron classification".

    python -m studies.paper all                            from the root of the repository, or: make reproduce
    python -m studies.paper crab roc --data DIR --trials 3
    python -m studies.paper all --small --trials 1         substitutes for data and models: tests that everything runs

Targets: crab (Table I, full version), crab-null (a fake On region), agreement (correlation with the supervised forest),
roc, imbalanced and imbalanced-more-noise (F1 on ten sets), critical-difference, calibration (not in the paper), all.

Result of 2026-11-18 (commit 1845fd2, seed 0; the paper's methods 2026-11-16, e8541be, likelihoods c1526fa), mean F1 on
ten sets with p_minus = 0.5, and significance of a simulated Crab observation by cut and likelihood:

                    p_plus 0.1: paper, here    p_plus 0.25: paper, here    Crab: paper, here, likelihood
    LiMa Forest           0.658  0.650               0.566  0.539             25.1  18.6  20.6
    Noisy Forest          0.667  0.651               0.562  0.537             26.3  18.1  20.9
    Menon Forest          0.596  0.658               0.426  0.544             26.0  18.3  20.9
    Mithal Forest         0.554  0.617               0.383  0.456             26.5  17.5  20.9
    default forest               0.676                      0.603                   18.5  21.4
    supervised                                                                26.3  21.2  25.4

The paper's Crab sample is real, the one here is simulated, so only the order of methods can be compared. Values of the
paper's forests are those of the best depth. All tables are in studies/paper/results.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from studies.paper import calibration, crab, imbalanced
from studies.paper.data import has_labels
from studies.paper.tables import Page, write_page
from studies.paper.trials import Settings, Study, Trial, check_header, read_file, read_rows, run_study


class Target(NamedTuple):
    """One table or figure. Targets that share a study share its trials."""

    studies: tuple[Study, ...]
    page: Callable[..., Page]  # from the rows of each study by name, and a description of the data
    is_wanted: Callable[[Trial], bool] = lambda trial: True
    needs_labels: bool = False


TARGETS = {
    "roc": Target((crab.ROC,), crab.roc_page, needs_labels=True),
    "agreement": Target((crab.CRAB,), crab.agreement_page, crab.is_in_agreement, needs_labels=True),
    "crab": Target((crab.CRAB,), crab.crab_page),
    "crab-null": Target((crab.CRAB_NULL,), crab.null_page),
    "imbalanced": Target((imbalanced.IMBALANCED,), imbalanced.imbalanced_page),
    "imbalanced-more-noise": Target((imbalanced.MORE_NOISE,), imbalanced.imbalanced_page),
    "critical-difference": Target((imbalanced.IMBALANCED, imbalanced.MORE_NOISE), imbalanced.critical_difference_page),
    "calibration": Target((calibration.CALIBRATION,), calibration.calibration_page),
}
"""Targets by name, in the order in which they are run."""


def reproduce(
    names: Sequence[str],
    out: Path,
    settings: Settings,
    *,
    n_trials: int | None = None,
    n_jobs: int = -1,
    finished: bool = False,
) -> dict[str, Path]:
    """Run the missing trials of some targets, or none if ``finished``; write and return the page of each."""
    pages = {}
    for name in (name for name in TARGETS if name in names or "all" in names):
        target, frames, data = TARGETS[name], {}, ""
        if target.needs_labels and not finished and not has_labels(target.studies[0].identify(settings)["crab"]):
            print(f"{name}: left out, needs files gamma*.hdf5 and proton*.hdf5 next to FACT's sample", file=sys.stderr)
            continue
        for study in target.studies:
            path = out / "trials" / f"{study.name}.jsonl"
            plan = study.plan(settings, n_trials or study.n_trials)
            trials = [trial for trial in plan if target.is_wanted(trial)]
            if not finished:
                run_study(study, trials, settings, path, n_jobs=n_jobs)
            header, known = read_file(path)
            if known:
                check_header(path, header, study.header(settings))
                frames[study.name], data = read_rows(path, trials), study.describe_data(header)
        if len(frames) < len(target.studies) or any(frame.empty for frame in frames.values()):
            print(f"{name}: no trial is finished", file=sys.stderr)
            continue
        results = pd.concat(frames.values(), ignore_index=True).assign(data=data)
        pages[name] = write_page(target.page(frames, data), results, out / name)
    return pages


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; return 1 if there is no page."""
    parser = argparse.ArgumentParser(
        "python -m studies.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="+", choices=[*TARGETS, "all"], metavar="TARGET")
    parser.add_argument("--data", type=Path, help="folder of local data, see studies/paper/data.py")
    parser.add_argument("--trials", type=int, help="repetitions; by default as many as in the paper")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 for all cores")
    parser.add_argument("--out", type=Path, default=Path("reproduction"), help="folder for trials and pages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="small substitutes for data and models")
    parser.add_argument("--finished", action="store_true", help="run nothing; make pages of the finished trials")
    given = parser.parse_args(arguments)
    options: dict[str, Any] = {"n_trials": given.trials, "n_jobs": given.jobs, "finished": given.finished}
    pages = reproduce(given.targets, given.out, Settings(given.seed, given.data, given.small), **options)
    for name, page in pages.items():
        print(f"{name}: {page}")
    return int(not pages)


if __name__ == "__main__":
    sys.exit(main())
