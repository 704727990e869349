"""Detections, null tests, the report of them, and a browser: made once for all tests of the report."""

import os
import shutil

import numpy as np
import pytest

from excess import (
    OnOffForestClassifier,
    OnOffHybridClassifier,
    OnOffTreeClassifier,
    cross_val_detect,
    null_test,
    simulation_agreement,
)
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.dataset._simulate import simulate_labelled
from excess.detection._result import Outcome
from excess.report import write_report
from excess.stats._likelihood import OnOffLikelihood
from excess.stats._significance import OnOffCounts

CRAB = (83.6333, 22.0133)
SCRIPT = "<script>document.title='broken'</script>"


@pytest.fixture(scope="session")
def observation():
    return OnOffDataset.from_files(
        simulate_observation(60_000, 400, source=CRAB, random_state=1), AnalysisConfig().with_source(*CRAB)
    )


@pytest.fixture(scope="session")
def models():
    return {
        "forest": OnOffForestClassifier(20, min_samples_leaf=20, random_state=0),
        "tree": OnOffTreeClassifier(max_depth=3, min_samples_leaf=30),
    }


@pytest.fixture(scope="session")
def detections(observation, models):
    nearby = (observation.nearby.X, observation.nearby.groups)
    options = {"alpha": observation.alpha, "groups": observation.groups, "nearby": nearby, "strategy": "pooled"}
    found = cross_val_detect(models, observation.X, observation.on, **options)
    return {name: observation.annotate(one) for name, one in found.items()}


@pytest.fixture(scope="session")
def uneven(observation):
    """A detection whose exposure ratio differs from night to night: 0.1, 0.2 and so on up to 0.5."""
    night = np.unique(observation.groups, return_inverse=True)[1]
    alpha = 0.1 * (1 + night)
    tree, nearby = OnOffTreeClassifier(max_depth=3, min_samples_leaf=30), observation.nearby
    shared = {"groups": observation.groups, "nearby": (nearby.X, nearby.groups), "strategy": "pooled"}
    return observation.annotate(cross_val_detect(tree, observation.X, observation.on, alpha=alpha, **shared))


@pytest.fixture(scope="session")
def tests_of_null(observation, models):
    return null_test(
        models, observation.X, observation.regions.region, n_regions=6, groups=observation.groups, random_state=0
    )


@pytest.fixture(scope="session")
def simulated(observation):
    """Simulated gammas and protons; the protons are too wide."""
    truth = simulate_labelled(1500, 1500, random_state=5)
    X, signal = truth[list(observation.names)].to_numpy(), truth["is_signal"].to_numpy()
    X[~signal, observation.names.index("width")] *= 1.3
    return X[signal], X[~signal]


@pytest.fixture(scope="session")
def hybrid(observation, simulated):
    """A detection by a model with a reference, whose name is markup."""
    labels = np.repeat([1, 0], [len(part) for part in simulated])
    forest = OnOffForestClassifier(30, 1.0, min_samples_leaf=10, random_state=0).fit(np.concatenate(simulated), labels)
    learner = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    model = OnOffHybridClassifier({f"simulation {SCRIPT}": forest}, learner, random_state=0)
    shared = {"alpha": observation.alpha, "groups": observation.groups, "strategy": "pooled"}
    return observation.annotate(cross_val_detect(model, observation.X, observation.on, **shared))


@pytest.fixture(scope="session")
def agreement(observation, simulated):
    forest = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    options = {"groups": observation.groups, "feature_names": observation.names, "random_state": 0}
    shared = {"alpha": observation.alpha, "estimator": forest, **options}
    return simulation_agreement(observation.X, observation.on, *simulated, **shared)


@pytest.fixture(scope="session")
def browser():
    """A real Chromium; without one, these tests are skipped."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("no Chromium on this machine; install one, or say where it is with CHROMIUM=/path/to/it")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def forward():
    """Both statistics of a forward search, which differ from each other and from those of the detections."""
    return Outcome(OnOffCounts(90, 100, 0.2), OnOffLikelihood(9.87, 0.05, (0.04, 0.06), 81.0, 9.0), "likelihood")


@pytest.fixture(scope="session")
def report(detections, tests_of_null, forward, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(detections, path, null_test=tests_of_null, forward={"forest": forward}, title="Crab & co")
