"""One verdict of a run: the same in Python, the terminal, result.json and the report; null tests by default."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import run_command

from excess import OnOffForestClassifier, OnOffTreeClassifier, assess
from excess.analysis import detect, read_run
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import write_events

TREE = {"tree": OnOffTreeClassifier(max_depth=3, random_state=0)}
SHIFTED_FEATURE = "A feature differs between On and Off for another reason"


@pytest.fixture(scope="module")
def table():
    return simulate_observation(20_000, 300, n_nights=4, n_runs=40, random_state=0)


@pytest.fixture(scope="module")
def observation(table):
    return OnOffDataset.from_files(table, nearby=False)


@pytest.fixture(scope="module")
def shifted():
    """Events without a source, and a feature shifted in half of the On events."""
    background = simulate_observation(40_000, 0, n_nights=4, n_runs=40, random_state=0)
    chosen = (background["theta_deg"] ** 2 < 0.025) & (np.random.default_rng(0).random(len(background)) < 0.5)
    return background.assign(width=background["width"] + 3 * background["width"].std() * chosen)


@pytest.mark.slow
def test_a_quick_null_test_is_made_by_default(observation):
    models = {**TREE, "other": OnOffTreeClassifier(max_depth=2, random_state=0)}
    run = detect(observation, models)
    assert list(run.null_tests) == ["tree"]
    assert list(run.null_tests["tree"].outcomes) == [1, 2, 3, 4, 5]
    first_half = {found.strategy for found in run.null_tests["tree"].detections.values()}
    assert first_half == {"forward"}
    assert all(len(found.folds) == 2 for found in run.null_tests["tree"].detections.values())
    assert run.record["options"]["null_test"] == "auto"
    assert not detect(observation, TREE, null_tests=False).null_tests
    assert list(detect(observation, models, null_tests=True).null_tests) == ["tree", "other"]
    with pytest.raises(ValueError, match="must be True, False or 'auto', got 'quick'"):
        detect(observation, TREE, null_tests="quick")


def test_no_null_test_where_there_is_one_off_region_or_one_group(table):
    run = detect(OnOffDataset.from_files(table, AnalysisConfig(regions={"n_regions": 2}), nearby=False), TREE)
    assert not run.null_tests
    assert run.verdict.status == "detected"
    ungrouped = detect(OnOffDataset.from_files(table, groups="none", nearby=False), TREE)
    assert {found.strategy for found in ungrouped.null_tests["tree"].detections.values()} == {"forward"}


def test_verdict_of_a_run_takes_forward_values_and_null_tests(observation, tmp_path):
    run = detect(observation, TREE)
    assert run.verdict == run.verdicts["tree"]
    assert run.verdict == assess(run.detections["tree"], run.forward["tree"], run.null_tests["tree"])
    assert f"{run.forward['tree'].significance:.1f} forward" in run.verdict.sentence
    result = run.result()["models"]["tree"]
    assert (result["status"], result["verdict"]) == (run.verdict.status, run.verdict.sentence)
    assert result["feasible"] == run.verdict.feasible
    assert result["warnings"] == []
    again = read_run(run.write(tmp_path))
    assert again.verdict == run.verdict


def test_a_status_that_the_events_contradict_is_refused(observation, tmp_path):
    detect(observation, TREE).write(tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    result["models"]["tree"]["status"] = "no detection"
    (tmp_path / "result.json").write_text(json.dumps(result))
    with pytest.raises(ValueError, match=r"result\.json was changed"):
        read_run(tmp_path)


@pytest.mark.slow
def test_a_warning_is_everywhere_before_the_verdict(shifted, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("NO_COLOR", raising=False)
    write_events(shifted, tmp_path / "events.csv")
    assert run_command("detect", tmp_path / "events.csv", "-o", tmp_path / "out", "-m", "tree") == 0
    said = capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "result.json").read_text())["models"]["tree"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert result["significance"] > 5
    assert result["status"] == "doubtful"
    assert result["feasible"] is False
    assert [one["code"] for one in result["warnings"]] == ["rejected-deficit"]
    sentence = result["warnings"][0]["sentence"]
    assert SHIFTED_FEATURE in sentence
    red = said.index("\x1b[1;31mWarning (tree): ")
    assert red < said.index(sentence) < said.index(f"tree: {result['verdict']}")
    shown = sentence.replace("'", "&#39;").replace("+-", "±")
    assert page.index('class="warnings"') < page.index(shown) < page.index(result["verdict"])
    assert "Do not claim this" in page
    assert "Source detected" not in page
    assert "classifier learned it" not in said + page
    assert read_run(tmp_path / "out").verdict.status == "doubtful"


@pytest.mark.slow
def test_not_confirmed_is_said_everywhere(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    weak = simulate_observation(20_000, 66, n_nights=4, n_runs=40, random_state=3)
    write_events(weak, tmp_path / "events.csv")
    assert run_command("detect", tmp_path / "events.csv", "-o", tmp_path / "out", "-m", "tree") == 0
    said = capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "result.json").read_text())["models"]["tree"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert result["forward"]["significance"] < 5 <= result["significance"]
    assert (result["status"], result["feasible"]) == ("not confirmed", False)
    assert f"tree: {result['verdict']}" in said
    assert result["verdict"] in page
    assert "Not confirmed" in page
    assert "classifier learned it" not in said + page


def test_a_name_of_the_registry_wins_over_a_file(table, tmp_path, capsys, monkeypatch):
    write_events(table, tmp_path / "events.csv")
    (tmp_path / "tree").write_text("not a model")
    monkeypatch.chdir(tmp_path)
    assert run_command("detect", "events.csv", "-o", "out", "-m", "tree", "--no-null-test", "--json") == 0
    assert json.loads(capsys.readouterr().out)["null_tests"] == {}


def test_angles_show_a_wrong_alpha_next_to_a_source():
    right = OnOffDataset.from_files(simulate_observation(60_000, 300, random_state=2))
    halo = replace(right.halo, event_alpha=right.halo.alphas / 10)
    wrong = replace(right, regions=replace(right.regions, alpha=0.02), halo=halo)
    forest = {"forest": OnOffForestClassifier(60, min_samples_leaf=20, random_state=0)}
    assert detect(right, forest).verdict.status == "detected"
    verdict = detect(wrong, forest, null_tests=False).verdict
    assert [one.code for one in verdict.warnings] == ["alpha"]
    assert verdict.warnings[0].numbers["background_alpha"] > 0.06
