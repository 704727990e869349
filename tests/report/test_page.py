"""The file of the report: its texts, size, identifiers, and what it is written from."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from conftest import SCRIPT

from excess.analysis import detect, read_run
from excess.detection._result import Detection, Fold, Outcome
from excess.report import write_report
from excess.stats._significance import OnOffCounts


def data_of(path):
    """Return the data that the script of a page reads."""
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL).group(1))


def test_page_has_verdict_and_numbers(report, detections, forward):
    text = report.read_text(encoding="utf-8")
    detection = detections["forest"]
    counts, likelihood = detection.counts, detection.likelihood
    assert detection.significance == likelihood.significance != counts.significance
    assert '<p class="headline">9.9 σ <small>forward: the one to quote</small></p>' in text
    assert f"<strong>{detection.significance:.1f} σ</strong> pooled: compares models" in text
    assert f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}" in text
    assert f"{likelihood.n_signal:,.1f} ± {likelihood.n_signal_error:,.1f}" in text
    for significance in detection.outcome.significances.values():
        assert f"({significance:.1f} σ)" in text
    assert "Crab &amp; co" in text
    assert "Quote the forward value, 9.9 sigma: " in text
    for words in ("Weights of references", "Simulation check", "Plotly"):
        assert words not in text


def test_identifiers_are_unique_and_every_reference_has_one(report):
    text = report.read_text(encoding="utf-8")
    names = Counter(re.findall(r'\bid="([^"]*)"', text))
    assert [name for name, n in names.items() if n > 1] == []
    used = set(re.findall(r'(?:url\(|href=")#([^)"]*)', text)) | set(re.findall(r'aria-controls="([^"]*)"', text))
    assert used <= set(names)
    assert len(used) > 50


def test_the_same_report_is_the_same_file_and_is_small(report, detections, tests_of_null, forward, tmp_path):
    options = {"null_test": tests_of_null, "forward": {"forest": forward}, "title": "Crab & co"}
    again = write_report(detections, tmp_path / "report.html", **options)
    assert again.read_bytes() == report.read_bytes()
    assert len(report.read_bytes()) < 2_000_000


@pytest.mark.slow
def test_many_models_and_groups_leave_the_page_small(detections, tmp_path):
    detection = replace(detections["tree"], features=None, sky=None)
    rows = np.arange(len(detection.on))
    for n_models, n_groups in ((3, 5), (1, 900)):
        found = replace(detection, groups=rows % n_groups, folds=detection.folds * n_groups)
        path = write_report({f"model {i}": found for i in range(n_models)}, tmp_path / "report.html")
        assert path.stat().st_size < 1_200_000, (n_models, n_groups)


def test_the_size_does_not_depend_on_the_number_of_events(detections, tmp_path):
    detection = replace(detections["tree"], features=None, sky=None)
    names = ("on", "score", "selected", "ratio", "fold", "groups", "nights", "time", "own_theta")
    tiled = {name: np.tile(getattr(detection, name), 4) for name in names}
    many = replace(detection, **tiled, theta=np.tile(detection.theta, (4, 1)))
    once = write_report(detection, tmp_path / "once.html").stat().st_size
    assert abs(write_report(many, tmp_path / "many.html").stat().st_size - once) < 0.03 * once


def test_a_report_of_many_events_is_small(tmp_path):
    rng = np.random.default_rng(0)
    n = 200_000
    score, on = rng.beta(2, 5, n), rng.random(n) < 1 / 6
    selected = score > 0.5
    detection = Detection(
        on=on,
        score=score,
        selected=selected,
        ratio=score,
        fold=np.zeros(n, dtype=np.int64),
        groups=np.sort(rng.integers(20131101, 20131106, n)),
        folds=(Fold(n, n, 0.5, None, OnOffCounts(int((selected & on).sum()), int((selected & ~on).sum()), 0.2)),),
        alpha=0.2,
        strategy="pooled",
        statistic="likelihood",
        repeats={"likelihood": np.zeros(1), "cut": np.zeros(1)},
        permutations={"likelihood": np.zeros(0), "cut": np.zeros(0)},
        time=np.sort(rng.uniform(0, 70_000, n)),
    ).annotated(theta=rng.uniform(0, 1, (n, 6)), theta_squared_cut=0.025)
    assert write_report(detection, tmp_path / "report.html").stat().st_size < 700_000


def test_values_of_models_that_were_applied_are_not_called_pooled(detections, tmp_path):
    plain = {name: replace(one, features=None, sky=None) for name, one in detections.items()}
    text = write_report(plain, tmp_path / "pooled.html").read_text(encoding="utf-8")
    assert "Bars are pooled values" in text
    assert ">Cut pooled σ</th>" in text
    mixed = {**plain, "tree": replace(plain["tree"], strategy="applied")}
    text = write_report(mixed, tmp_path / "mixed.html").read_text(encoding="utf-8")
    assert "Bars are pooled values" not in text
    assert ">Cut pooled σ</th>" not in text


def test_markup_in_names_stays_text(detections, hybrid, agreement, tmp_path):
    run = {"options": {"groups": SCRIPT, "estimators": {SCRIPT: SCRIPT}}, "versions": {"excess": "<b>1</b>"}}
    run["files"] = [{"path": f"/data/{SCRIPT}.hdf5", "bytes": 1, "sha256": SCRIPT}]
    named = replace(detections["tree"], feature_names=tuple(f"<b>{i}</b>{SCRIPT}" for i in range(22)))
    other = replace(named, groups=np.array([f"{SCRIPT}{night}" for night in named.groups]))
    models = {SCRIPT: named, "b": replace(other, features=None, sky=None), "hybrid": replace(hybrid, features=None)}
    options = {"title": SCRIPT, "config": SCRIPT, "simulation": agreement, "run": run}
    path = write_report(models, tmp_path / "report.html", **options)
    text = path.read_text(encoding="utf-8")
    assert SCRIPT not in text
    assert "<b>" not in text
    assert text.count("<script") == 3
    assert data_of(path)["models"][0]["name"] == SCRIPT
    assert "&lt;b&gt;0&lt;/b&gt;&lt;script&gt;" in text
    for words in ("Weights of references", "Simulation check"):
        assert words in text


def test_suspicious_null_test_is_a_warning(detections, tests_of_null, tmp_path):
    counts = {1: OnOffCounts(400, 100, 0.25), 2: OnOffCounts(20, 100, 0.25)}
    test = replace(
        tests_of_null["forest"], outcomes={region: Outcome(one, None, "cut") for region, one in counts.items()}
    )
    plain = replace(detections["forest"], features=None, sky=None)
    text = write_report(plain, tmp_path / "report.html", null_test=test).read_text(encoding="utf-8")
    assert "Do not claim" in text
    assert "Off region 1 shows" in text


def test_wrong_arguments(detections, tests_of_null, tmp_path):
    path, forest = tmp_path / "report.html", detections["forest"]
    by_cut = Outcome(OnOffCounts(90, 100, 0.2), None, "cut")
    for error, argument, given, options in (
        (TypeError, "detection", [forest], {}),
        (ValueError, "detection", {}, {}),
        (ValueError, "null_test", forest, {"null_test": tests_of_null}),
        (ValueError, "forward", forest, {"forward": by_cut}),
        (ValueError, "forward", forest, {"forward": replace(forest, strategy="pooled")}),
        (ValueError, "forward", forest, {"forward": replace(forest, strategy="applied")}),
        (TypeError, "simulation", forest, {"simulation": {}}),
    ):
        with pytest.raises(error, match=argument):
            write_report(given, path, **options)
    with pytest.raises(FileNotFoundError, match="absent"):
        write_report(forest, tmp_path / "absent" / "a.html")
    assert not path.exists()


def test_interrupted_report_leaves_nothing(detections, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", broken)
    with pytest.raises(OSError, match="No space"):
        write_report(replace(detections["tree"], features=None, sky=None), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_several_models_share_the_map_of_all_events(detections, tmp_path):
    plain = replace(detections["tree"], features=None)
    path = write_report({f"model {i}": plain for i in range(2)}, tmp_path / "report.html")
    layers = data_of(path)["layers"]
    assert set(layers) == {"0 all", "0 selected", "1 selected"}
    assert layers["0 all"]["counts"] == detections["tree"].sky.to_dict()["layers"]["all"]["counts"]
    assert "The maps of all events are those of model 0" in path.read_text(encoding="utf-8")


def test_a_finished_run_shows_all_of_it_again(observation, tmp_path):
    run = detect(observation, "tree", null_tests=False)
    run.write(tmp_path / "run", report=True)
    again = read_run(tmp_path / "run")
    found, read = run.detections["tree"], again.detections["tree"]
    assert [one.to_dict() for one in read.features] == [one.to_dict() for one in found.features]
    assert read.sky.to_dict() == found.sky.to_dict()
    assert read.exposure.to_dict() == found.exposure.to_dict()
    np.testing.assert_array_equal(read.nights, found.nights)
    written = (tmp_path / "run" / "report.html").read_bytes()
    assert again.report(tmp_path / "again.html").read_bytes() == written
