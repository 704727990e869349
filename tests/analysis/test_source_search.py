"""The search as a library: what the command does, file for file, and what it refuses."""

import runpy
import sys
from pathlib import Path

import pytest
from helpers import run_command

from excess import OnOffTreeClassifier
from excess.analysis import observe, read_run, search, train
from excess.events import AnalysisConfig, EventFileError, write_events
from excess.observation import simulate_observation

EXAMPLE = Path(__file__).parents[2] / "examples" / "detect.py"


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """A file with the events of a small observation."""
    path = tmp_path_factory.mktemp("search") / "crab.csv"
    write_events(simulate_observation(20_000, 300, n_nights=3, random_state=0), path)
    return path


@pytest.fixture(scope="module")
def observation(events):
    return observe(events)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_the_example_writes_what_the_command_writes(events, tmp_path, monkeypatch):
    models = ("-m", "forest", "-m", "li-ma-tree", "--null-test", "-j", 1)
    assert run_command("detect", events, "-o", tmp_path / "command", *models, "--json") == 0
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(events), str(tmp_path / "library")])
    runpy.run_path(str(EXAMPLE))
    by_command, by_library = contents(tmp_path / "command"), contents(tmp_path / "library")
    assert sorted(by_command) == [
        "config.yaml",
        "events.csv",
        "folds.csv",
        "groups.csv",
        "nearby.npy",
        "report.html",
        "result.json",
    ]
    assert by_library == by_command


def test_a_run_is_read_as_it_was_written(observation, tmp_path):
    tree = OnOffTreeClassifier(criterion="li_ma", max_depth=3, random_state=0)
    run = search(observation, {"mine": tree}, null_tests=True, title="Crab")
    run.write(tmp_path / "first")
    again = read_run(tmp_path / "first")
    again.write(tmp_path / "second")
    assert contents(tmp_path / "second") == contents(tmp_path / "first")
    assert again.record["title"] == "Crab"
    assert again.null_tests["mine"].counts == run.null_tests["mine"].counts


def test_models_in_memory_are_applied(events, observation):
    trained = train(observe(events, groups="none"), "li-ma-tree")
    new = observe(simulate_observation(20_000, 300, n_nights=1, first_night=20140101, random_state=1))
    run = search(new, [], model_files=[trained])
    [found] = run.detections.values()
    assert (found.strategy, run.forward) == ("applied", {})
    with pytest.raises(ValueError, match=r"was trained on .*crab\.csv"):
        search(observation, [], model_files=[trained])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": ["forest", "forest"]}, "models hold 'forest' twice"),
        ({"models": "forrest"}, "model must be one of .* did you mean 'forest'"),
        ({"models": [], "null_tests": True}, "null_tests needs a model to train"),
        ({"models": [], "permutations": 9}, "permutations needs a model to train"),
        ({"models": []}, "models must hold at least one"),
        ({"strategy": "backward"}, "strategy must be"),
    ],
)
def test_arguments_that_are_refused(observation, arguments, message):
    with pytest.raises(ValueError, match=message):
        search(observation, **arguments)


def test_null_tests_need_regions(tmp_path):
    for name in ("on", "off"):
        write_events(simulate_observation(50, 5, random_state=0)[["width", "length"]], tmp_path / f"{name}.csv")
    config = AnalysisConfig(features=["width", "length"], derived_features={}, quality_cuts=[], groups="none")
    observation = observe(tmp_path / "on.csv", config, off=tmp_path / "off.csv", alpha=1.0)
    with pytest.raises(ValueError, match="null_tests needs at least two Off regions"):
        search(observation, "tree", null_tests=True)


def test_a_reference_needs_events(events, observation, tmp_path):
    simulated = simulate_observation(100, 5, random_state=0).assign(width=1e9)
    write_events(simulated, tmp_path / "gamma.csv")
    with pytest.raises(EventFileError, match=r"gamma\.csv: no event passes the quality cuts"):
        search(observation, "tree", reference=(tmp_path / "gamma.csv", events))


def test_the_readme_shows_the_example():
    code = EXAMPLE.read_text().partition('"""\n\n')[2]
    assert f"```python\n{code}```" in (EXAMPLE.parents[1] / "README.md").read_text()
