"""The kernels as Python, without numba, agree with the compiled ones: run in a process of their own."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import excess
from excess.out_of_core import InProcess, fit_forest

DISABLED = {"NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore::RuntimeWarning"}  # of uint64, which wraps around


def results():
    """Fit and apply every kind of tree to a few events, and return numbers that depend on all kernels."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3)).round(2)
    X[::9, 1] = np.nan
    y = (rng.random(90) < 0.2 + 0.5 * (X[:, 0] > 0)).astype(int)
    wide = np.linspace(0, 1, 300)[:, None] ** 2
    wide_y = (np.arange(300) % 3 == 0).astype(int)
    found = {}
    with np.errstate(over="ignore"):
        for name, settings in {
            "li_ma": {"criterion": "li_ma", "max_bins": None},
            "information": {"criterion": "information", "max_bins": 16},
            "random": {"splitter": "random", "max_features": 2},
        }.items():
            tree = excess.OnOffTreeClassifier(alpha=0.2, max_depth=3, random_state=1, **settings).fit(X, y)
            found[name] = tree.predict_proba(np.asfortranarray(X))[:, 1]
            found[f"{name} selected"] = tree.predict(X)
        tree = excess.OnOffTreeClassifier(alpha=0.5, max_depth=2, max_bins=None).fit(wide, wide_y)
        found["more than 255 values"] = tree.predict_proba(wide)[::7, 1]
        forest = excess.OnOffForestClassifier(7, alpha=0.2, max_depth=3, random_state=0, n_jobs=1)
        forest.fit(X, y, groups=np.arange(90) % 5)
        found["forest"] = forest.predict_proba(X)[:, 1]
        found["ratio"] = forest.likelihood_ratio(X)
        found["threshold"] = np.array([forest.threshold_])
        # five features, counted in chunks, and small nodes whose events are moved
        five = np.column_stack([X, X[:, ::2] ** 2])
        settings = {"alpha": 0.2, "max_depth": 3, "max_features": 5, "random_state": 0, "n_jobs": 1}
        chunks = [(five[:40], y[:40]), (five[40:], y[40:])]
        in_place = InProcess(1)
        in_place.max_moved = 20
        forest_of_chunks = fit_forest(excess.OnOffForestClassifier(4, **settings), chunks, executor=in_place)
        found["forest of chunks"] = forest_of_chunks.predict_proba(five)[:, 1]
        many = rng.gamma(1.0, size=2500)
        own = 0.2 + 0.001 * rng.integers(0, 1000, 2500)
        is_on = rng.random(2500) < 0.3
        for name, alpha in (("one alpha", 0.2), ("many alphas", own)):
            found[name] = np.array([excess.on_off_likelihood(is_on, many, alpha=alpha).significance])
        likelihood = excess.on_off_likelihood(
            y, forest.likelihood_ratio(X), alpha=np.where(np.arange(90) % 2, 0.2, 0.25)
        )
        found["likelihood"] = np.array([likelihood.significance])
    return {name: np.asarray(value, dtype=float).tolist() for name, value in found.items()}


@pytest.mark.slow
def test_python_and_compiled_kernels_agree():
    environment = {**os.environ, **DISABLED}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    interpreted, compiled = json.loads(done.stdout), results()
    assert interpreted.keys() == compiled.keys()
    for name, value in compiled.items():
        np.testing.assert_allclose(interpreted[name], value, rtol=1e-9, err_msg=name)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(results()))
