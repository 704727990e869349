"""What several test files share."""

import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from excess import OnOffForestClassifier
from excess.cli import main
from excess.dataset._simulate import simulate_observation
from excess.io import write_events

SHARED = Path(__file__).parents[2] / "shared"
"""Public data and figures beside the project; tests that want them are skipped where they are not."""


def run_command(*arguments) -> int:
    """Run the command line and return its exit code."""
    with pytest.raises(SystemExit) as finished:
        main([str(argument) for argument in arguments])
    return finished.value.code or 0


def make_forest(**parameters) -> OnOffForestClassifier:
    """Return a small forest with a fixed seed."""
    return OnOffForestClassifier(**({"n_estimators": 8, "alpha": 2 / 3, "random_state": 3} | parameters))


def model_bits(model, folder) -> tuple[bytes, bytes]:
    """Return the bytes of the model file, which holds the calibration, and of the out-of-bag scores."""
    model.save(Path(folder) / "model")
    return (Path(folder) / "model").read_bytes(), model.oob_decision_function_.tobytes()


def signal_bits(model, X) -> list[bytes]:
    """Return the bytes of the calibration, of signal ratios and of probabilities of signal."""
    calibration = model.calibration_
    ratio, probability = model.likelihood_ratio(X), model.predict_signal_proba(X)
    assert ratio.max() > 1 > ratio.min()  # the model has learned something
    found = (calibration.score, calibration.on_probability, calibration.alpha, calibration.strength, ratio, probability)
    return [np.asarray(values).tobytes() for values in found]


def write_nights(folder, n_nights, n_events):
    """Write an observation, one file per night; return the paths."""
    paths = [folder / f"{night}.hdf5" for night in range(n_nights)]
    for night, path in enumerate(paths):
        table = simulate_observation(n_events, 400, n_nights=1, first_night=20131101 + night, random_state=night)
        write_events(table, path)
    return paths


def unmeasured_environment():
    """Return the environment for a process whose lines are not to be counted by ``make coverage``."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")}


@contextmanager
def files_limited_to(n_bytes):
    """Let the system refuse to write more than that to any file, as a full disk does."""
    resource = pytest.importorskip("resource")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
