"""The page: its texts and numbers, and its size."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from excess.report import write_report
from excess.report.content import model_content
from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection, Fold

SCRIPT = "<script>document.title='broken'</script>"


@pytest.mark.slow
def test_page_stays_small(detections, tmp_path):
    detection = detections["forest"]
    rows = np.arange(len(detection.on))
    for n_models, n_groups in ((20, 5), (7, 300), (4, 900)):
        found = replace(detection, groups=rows % n_groups, folds=detection.folds * n_groups)
        path = write_report({f"model {i}": found for i in range(n_models)}, tmp_path / "report.html")
        assert path.stat().st_size < 6_000_000, (n_models, n_groups)


def test_page_says_verdict_and_numbers(report, detections):
    text = report.read_text(encoding="utf-8")
    counts = detections["forest"].counts
    assert f"{detections['forest'].significance:.1f} σ" in text
    assert f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}" in text
    assert "Crab &amp; co" in text
    assert f"quote is the forward one, {OnOffCounts(90, 100, 0.2).significance:.1f} sigma" in text
    assert len(text.encode()) < 6_000_000


def test_page_holds_no_events(report, detections, tmp_path):
    detection = detections["forest"]
    many = replace(
        detection,
        **{
            name: np.tile(getattr(detection, name), 4) for name in ("on", "score", "selected", "fold", "groups", "time")
        },
        theta=np.tile(detection.theta, (4, 1)),
    )
    once = write_report(detection, tmp_path / "once.html").stat().st_size
    assert abs(write_report(many, tmp_path / "many.html").stat().st_size - once) < 0.02 * once


def test_data_cannot_end_their_script(detections, tmp_path):
    path = write_report({SCRIPT: detections["tree"]}, tmp_path / "report.html", title=SCRIPT)
    text = path.read_text(encoding="utf-8")
    assert SCRIPT not in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data.group(1))["models"][0]["name"] == SCRIPT


def test_suspicious_null_test_is_a_warning(detections, tests_of_null, tmp_path):
    test = replace(tests_of_null["forest"], counts={1: OnOffCounts(400, 100, 0.25), 2: OnOffCounts(20, 100, 0.25)})
    text = write_report(detections["forest"], tmp_path / "report.html", null_test=test).read_text(encoding="utf-8")
    assert "Do not trust" in text
    assert "Off region 1 shows" in text


@pytest.mark.parametrize(
    ("change", "forward", "stamp", "sentence"),
    [
        ({}, None, "Source detected", "could be learned from these labels"),
        ({}, OnOffCounts(100, 480, 0.2), "Not confirmed", "but 0.4 sigma forward, which is the number to quote"),
        ({"required_significance": 100.0}, None, "No detection", "not shown that learning"),
        ({"strategy": "applied"}, None, "Source detected", ": a detection (5 required)."),
    ],
)
def test_verdict_is_one_sentence_of_what_was_found(detections, change, forward, stamp, sentence):
    content = model_content("", replace(detections["forest"], **change), forward)
    assert content["stamp"] == stamp
    assert sentence in content["verdict"]
    counts = detections["forest"].counts
    assert content["verdict"].startswith(f"An excess of {counts.excess:,.0f} ± {counts.excess_error:,.0f} events, ")
    assert content["verdict"].count(". ") == 0


def test_a_deficit_is_called_one(detections):
    flipped = replace(detections["forest"], on=~detections["forest"].on, alpha=5.0)
    assert flipped.significance < 0
    assert model_content("", flipped)["verdict"].startswith("A deficit of ")


def test_what_to_quote(detections):
    detection = detections["forest"]
    quotes = {
        strategy: model_content("", replace(detection, strategy=strategy))["quote"]
        for strategy in ("applied", "forward")
    }
    assert quotes["applied"].startswith(f"Quote {detection.significance:.1f} sigma, if this model")
    assert quotes["forward"].startswith(f"Quote this value, {detection.significance:.1f} sigma")
    larger = model_content("", detection, OnOffCounts(500, 100, 0.2))["quote"]
    assert "It is smaller" not in larger
    assert "there are no times" in model_content("", detection, no_forward="there are no times")["quote"]


def test_wrong_arguments(detections, tests_of_null, tmp_path):
    path = tmp_path / "report.html"
    with pytest.raises(TypeError, match="detection must be a Detection, or a dict of such, got list"):
        write_report([detections["forest"]], path)
    with pytest.raises(ValueError, match="null_test has 'forest', but detection has '' only"):
        write_report(detections["forest"], path, null_test=tests_of_null)
    with pytest.raises(ValueError, match="empty mapping"):
        write_report({}, path)
    with pytest.raises(FileNotFoundError, match=r"absent: there is no such folder to write a\.html to"):
        write_report(detections["forest"], tmp_path / "absent" / "a.html")
    assert not path.exists()
    assert "Versions" in write_report(detections["forest"], path, run={"seed": 1}).read_text(encoding="utf-8")


def test_a_report_of_many_events_is_small(tmp_path):
    rng = np.random.default_rng(0)
    n = 200_000
    score, on = rng.beta(2, 5, n), rng.random(n) < 1 / 6
    selected = score > 0.5
    detection = Detection(
        on=on,
        score=score,
        selected=selected,
        fold=np.zeros(n, dtype=np.int64),
        groups=np.sort(rng.integers(20131101, 20131106, n)),
        folds=(Fold(n, n, 0.5, None, OnOffCounts(int((selected & on).sum()), int((selected & ~on).sum()), 0.2)),),
        alpha=0.2,
        strategy="pooled",
        significances=np.zeros(1),
        permuted_contrasts=np.zeros(0),
        time=np.sort(rng.uniform(0, 70_000, n)),
    ).annotated(theta=rng.uniform(0, 1, (n, 6)), theta_squared_cut=0.025)
    path = write_report(detection, tmp_path / "report.html")
    assert path.stat().st_size < 6_000_000


def test_interrupted_report_leaves_nothing(detections, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", broken)
    with pytest.raises(OSError, match="No space"):
        write_report(detections["tree"], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
