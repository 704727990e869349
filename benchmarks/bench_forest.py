"""Speed, memory and quality of the forest compared with other libraries, defaults with defaults and alike settings.

    python benchmarks/bench_forest.py                      21,561 and 200,000 events
    python benchmarks/bench_forest.py --events 1000000     other numbers, separated by commas
    python benchmarks/bench_forest.py --signal 0.01        a weak signal: this share of the events, by default 0.1
    python benchmarks/bench_forest.py --events "" --growth 10000,100000,1000000    cost of our default per event

Every fit runs in a process of its own, on one thread, after a warm-up on 2,000 events: processor and wall time of fit
and prediction (of 200,000 new events), memory on top of the input, size of the model file, and the AUC and the average
precision for the hidden truth. ``defaults`` are the libraries as installed, ``fixed`` 100 trees of depth 8 with four
features per node. LightGBM, scikit-learn-intelex and YDF are measured where they are installed, and named where they
are not. A library whose AUC with fixed settings is more than 0.02 below the best is marked: its time is not comparable.

The last table is the cost of our default per event, which must not grow (exit code 1 if it does).

Result of 2026-11-18 (commit d795598; intelex and YDF from 100,000 events on 1845fd2, on another machine), CPU seconds
of fit and of prediction of 200,000 events on one thread, two cores shared with other processes. Defaults, means of two
data sets, at 10^6 one, weak (``--signal 0.01``) two:

    21,561 events       excess 1.81, 0.81    LightGBM 0.36, 0.60    intelex 1.53, 1.58    YDF 1.52, 0.07
    100,000             excess 1.83, 0.38    LightGBM 1.13, 0.52    intelex 5.56, 1.22    YDF 6.41, 0.05
    1,000,000           excess 3.48, 0.36    LightGBM 8.88, 0.57    intelex 87.6, 1.99    YDF 116, 0.08
    1,000,000, weak     excess 4.88, 0.43    LightGBM 7.46, 0.35

    average precision   21,561: excess 0.614, LightGBM 0.591, HistGradientBoosting 0.601, YDF 0.603
                        100,000: excess 0.625, LightGBM 0.626, HistGradientBoosting 0.628
                        1,000,000: excess 0.627, LightGBM 0.643, HistGradientBoosting 0.643, YDF 0.644
                        weak: excess 0.223, LightGBM 0.233, HistGradientBoosting 0.234
    model files of excess: 6.5, 8.8, 10.0 and, weak, 5.6 MB

100 trees of depth 8 (fit, prediction; commit 1845fd2), one data set; scikit-learn-intelex 2026.2, YDF 0.16.1, LightGBM
4.7.0:

    20,000      excess 0.09, 0.11   LightGBM 0.61, 0.97   scikit-learn 3.2, 0.50   intelex 0.29, 0.34   YDF 1.2, 0.56
    200,000     excess 0.46, 0.11   LightGBM 2.30, 0.97   scikit-learn 38, 0.50    intelex 2.65, 0.33   YDF 13.3, 0.54
    1,000,000   excess 2.10, 0.11   LightGBM 9.20, 1.01   scikit-learn 291, 0.55   intelex 16.5, 0.34   YDF 75.7, 0.59

Cost of our default per event: 149, 17.3, 3.6 and 2.9 microseconds and 2,730, 307, 53 and 40 bytes for 10^4, 10^5, 10^6
and 4 x 10^6 events. Fits of weaker signals (``--signal``) of the same shape, CPU seconds of excess and LightGBM:

    100,000     3 %: 1.7, 1.0    1 %: 1.9 to 3.9, 1.0    0.3 % and none: 3.1 to 3.2, 1.0
    1,000,000                    1 %: 4.3, 7.0           0.3 % and none: 6.1 to 6.2, 6.5

Before bags were thinned from 25,000 events on (commit 63979db): at 100,000 events 2.3 to 3.6 s with 10 %, 12 s without
a signal; at 1,000,000 events 8.4 s with 1 %, 20 s without a signal.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

N_FEATURES, N_TREES, DEPTH = 22, 100, 8
ALPHA = 1 / 5
N_NEW = 200_000
COLUMNS = ("fit CPU (s)", "fit wall (s)", "predict CPU (s)", "memory (MiB)", "model (MB)", "AUC", "average precision")


def make_events(n: int, seed: int = 0, signal_share: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, On labels and the hidden truth; six features are informative."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_FEATURES)).astype(np.float32)
    signal = rng.random(n) < signal_share
    X[signal, :6] += 0.8
    X[:, 6:10] = np.round(X[:, 6:10], 1)
    on = np.where(signal, rng.random(n) < 0.95, rng.random(n) < ALPHA / (1 + ALPHA))
    return X, on.astype(np.int32), signal


class _Ydf:
    """YDF's learners with the methods of scikit-learn."""

    def __init__(self, learner: str, **options: Any) -> None:
        import ydf

        ydf.verbose(0)
        self._learner = getattr(ydf, learner)(label="on", num_threads=1, **options)

    def fit(self, X: np.ndarray, on: np.ndarray) -> _Ydf:
        self._model = self._learner.train({"X": X, "on": on})
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        score = self._model.predict({"X": X})
        return np.column_stack([1 - score, score])

    def save(self, path: str) -> None:
        self._model.save(path)


def _excess(**options: Any) -> Any:
    from excess import OnOffForestClassifier

    return OnOffForestClassifier(alpha=ALPHA, n_jobs=1, random_state=0, **options)


def _lightgbm(**options: Any) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_jobs=1, verbose=-1, random_state=0, **options)


def _sklearn(name: str, **options: Any) -> Any:
    import sklearn.ensemble

    return getattr(sklearn.ensemble, name)(random_state=0, **options)


def _intelex(**options: Any) -> Any:
    from sklearnex.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=0, n_jobs=1, **options)


_BAGS = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.632, "min_child_samples": 1}


def fixed_forest(criterion: str = "information", n_jobs: int = 1) -> Any:
    """Return our forest with fixed settings."""
    return _excess(
        n_estimators=N_TREES, criterion=criterion, max_depth=DEPTH, min_samples_leaf=1, max_features=4
    ).set_params(n_jobs=n_jobs)


ENGINES: dict[str, dict[str, Callable[[], Any]]] = {
    "defaults": {
        "excess": lambda: _excess(),
        "LightGBM": lambda: _lightgbm(),
        "scikit-learn HistGradientBoosting": lambda: _sklearn("HistGradientBoostingClassifier"),
        "scikit-learn ExtraTrees": lambda: _sklearn("ExtraTreesClassifier"),
        "scikit-learn-intelex": lambda: _intelex(),
        "YDF": lambda: _Ydf("GradientBoostedTreesLearner"),
    },
    "fixed": {
        "excess": fixed_forest,
        "LightGBM": lambda: _lightgbm(
            n_estimators=N_TREES, max_depth=DEPTH, num_leaves=2**DEPTH, feature_fraction_bynode=4 / N_FEATURES, **_BAGS
        ),
        "scikit-learn": lambda: _sklearn(
            "RandomForestClassifier", n_estimators=N_TREES, criterion="entropy", max_depth=DEPTH, max_features=4
        ),
        "scikit-learn-intelex": lambda: _intelex(n_estimators=N_TREES, max_depth=DEPTH, max_features=4),
        "YDF": lambda: _Ydf(
            "RandomForestLearner", num_trees=N_TREES, max_depth=DEPTH, num_candidate_attributes=4, min_examples=1
        ),
    },
}
NEEDS = {"scikit-learn-intelex": "sklearnex", "YDF": "ydf", "LightGBM": "lightgbm"}
SLOW = {"scikit-learn": 1_000_000, "scikit-learn ExtraTrees": 200_000}
"""Engines that are left out above so many events: they take minutes."""


def measure(settings: str, engine: str, n: int, share: float, seed: int) -> dict[str, float]:
    """Return the columns of one fit, in this process."""
    import psutil
    from sklearn.metrics import average_precision_score, roc_auc_score

    make = ENGINES[settings][engine]
    few = make_events(2000, seed=2)
    make().fit(*few[:2]).predict_proba(few[0])
    X, on, _ = make_events(n, 10 * seed, share)
    X_new, _, truth = make_events(N_NEW, 10 * seed + 1, share)
    gc.collect()
    process, done = psutil.Process(), threading.Event()
    before = peak = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu, wall = time.process_time(), time.perf_counter()
    model = make().fit(X, on)
    fit_cpu, fit_wall = time.process_time() - cpu, time.perf_counter() - wall
    done.set()
    watcher.join()
    cpu = time.process_time()
    score = model.predict_proba(X_new)[:, 1]
    predict_cpu = time.process_time() - cpu
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        if hasattr(model, "save"):
            model.save(str(path))
        else:
            path.write_bytes(pickle.dumps(model))
        size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    quality = roc_auc_score(truth, score), average_precision_score(truth, score)
    return dict(
        zip(COLUMNS, (fit_cpu, fit_wall, predict_cpu, (peak - before) / 2**20, size / 1e6, *quality), strict=True)
    )


def run_apart(settings: str, engine: str, n: int, share: float, seed: int = 0) -> dict[str, float] | None:
    """Return the columns of one fit in a process of its own; None where it fails."""
    command = [sys.executable, __file__, "--one", settings, engine, str(n), "--signal", str(share), "--seed", str(seed)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **one_thread}, check=False)
    if done.returncode != 0:
        print(f"{engine} ({settings}, {n:,}): {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(settings: str, n: int, repeats: int, share: float) -> dict[str, dict[str, float]]:
    """Print and return the columns of all engines, means over some data sets."""
    found = {}
    for engine in ENGINES[settings]:
        if find_spec(NEEDS.get(engine, "sklearn")) is None:
            print(f"{engine} is left out: it is not installed", file=sys.stderr)
            continue
        if n > SLOW.get(engine, n):
            print(f"{engine} is left out: it takes minutes for {n:,} events", file=sys.stderr)
            continue
        runs = [own for seed in range(repeats) if (own := run_apart(settings, engine, n, share, seed)) is not None]
        if runs:
            found[engine] = {name: fmean(own[name] for own in runs) for name in COLUMNS}
    best = max(own["AUC"] for own in found.values())
    print(f"\n{settings}, {n:,} events x {N_FEATURES}, one thread, data sets: {repeats}\n| | {' | '.join(COLUMNS)} |")
    print("|---" * (1 + len(COLUMNS)) + "|")
    for engine, own in found.items():
        mark = " (worse by more than 0.02)" if settings == "fixed" and own["AUC"] < best - 0.02 else ""
        cells = [f"{own[name]:.3g}" if i < 5 else f"{own[name]:.4f}" for i, name in enumerate(COLUMNS)]
        print(f"| {engine}{mark} | {' | '.join(cells)} |", flush=True)
    return found


def main() -> int:
    """Print the tables; return 1 if the cost per event of our default grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", default="21561,200000", help="numbers of events, separated by commas")
    parser.add_argument("--growth", default="", help="numbers of events for the cost per event of our default")
    parser.add_argument("--signal", type=float, default=0.1, help="share of signal among the events")
    parser.add_argument("--settings", default=",".join(ENGINES), help="defaults, fixed or both, separated by a comma")
    parser.add_argument("--repeats", type=int, default=2, help="number of data sets, seeds 0, 1, ...")
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=3, metavar=("SETTINGS", "ENGINE", "N"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        settings, engine, n = arguments.one
        print(json.dumps(measure(settings, engine, int(n), arguments.signal, arguments.seed)))
        return 0
    for n in (int(number) for number in arguments.events.split(",") if number):
        for settings in arguments.settings.split(","):
            compare(settings, n, arguments.repeats, arguments.signal)
    per_event: list[tuple[float, float]] = []
    for n in (int(number) for number in arguments.growth.split(",") if number):
        own = run_apart("defaults", "excess", n, arguments.signal) or {}
        per_event.append((1e6 * own["fit CPU (s)"] / n, own["memory (MiB)"] * 2**20 / n))
        print(
            f"{n:,} events: {per_event[-1][0]:.2f} microseconds and {per_event[-1][1]:.0f} bytes per event", flush=True
        )
    grows = any(later[0] > 1.05 * earlier[0] for earlier, later in pairwise(per_event))
    return int(grows)


if __name__ == "__main__":
    sys.exit(main())
