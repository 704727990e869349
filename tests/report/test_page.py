"""The page: its texts and numbers, and its size."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from excess.report import write_report
from excess.report.content import model_content
from excess.report.likelihood_bins import likelihood_bins
from excess.stats.counts import OnOffCounts
from excess.stats.likelihood import OnOffLikelihood
from excess.validation.detection import Detection, Fold
from excess.validation.outcome import Outcome
from excess.validation.verdict import Verdict, judge

SCRIPT = "<script>document.title='broken'</script>"


@pytest.mark.slow
def test_page_stays_small(detections, tmp_path):
    detection = detections["forest"]
    rows = np.arange(len(detection.on))
    for n_models, n_groups in ((20, 5), (7, 300), (4, 900)):
        found = replace(detection, groups=rows % n_groups, folds=detection.folds * n_groups)
        path = write_report({f"model {i}": found for i in range(n_models)}, tmp_path / "report.html")
        assert path.stat().st_size < 6_500_000, (n_models, n_groups)


def test_page_says_verdict_and_numbers(report, detections, forward):
    text = report.read_text(encoding="utf-8")
    detection = detections["forest"]
    counts, likelihood = detection.counts, detection.likelihood
    assert detection.significance == likelihood.significance != counts.significance
    assert '<p class="headline">9.9 σ <small>forward: the one to quote</small></p>' in text
    assert f"<strong>{detection.significance:.1f} σ</strong> pooled: compares models" in text
    assert f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}" in text
    assert f"{likelihood.n_signal:,.1f} ± {likelihood.n_signal_error:,.1f}" in text
    low, high = likelihood.strength_interval
    assert f"{likelihood.strength:.3g} ({low:.3g} to {high:.3g})" in text
    assert "Crab &amp; co" in text
    assert "Quote the forward value, 9.9 sigma: " in text
    assert len(text.encode()) < 6_000_000


def values_of(content: dict, title: str) -> dict[str, str]:
    """Return the numbers of one group of the page by their labels."""
    return {
        row["label"]: row["value"] for group in content["numbers"] if group["title"] == title for row in group["rows"]
    }


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
def test_numbers_are_those_of_both_statistics_with_the_declared_one_first(
    detections, tests_of_null, forward, statistic
):
    permutations = {"likelihood": np.array([-1.0, 99.0]), "cut": np.zeros(2)}
    detection = replace(detections["forest"], statistic=statistic, permutations=permutations)
    test = tests_of_null["forest"]
    content = model_content("", detection, replace(forward, statistic=statistic), test)
    titles = [(group["title"], group["declared"]) for group in content["numbers"]]
    other = {"likelihood": "Cut", "cut": "Likelihood"}[statistic]
    assert titles == [(statistic.capitalize(), "declared beforehand"), (other, "for comparison"), ("Events", "")]
    expected = {"Likelihood": (detection.likelihood, 9.87), "Cut": (detection.counts, forward.counts.significance)}
    for title, (found, ahead) in expected.items():
        values = values_of(content, title)
        assert values["Pooled significance"] == f"{found.significance:.2f} σ"
        assert values["Forward significance"] == f"{ahead:.2f} σ"
        assert float(values["p-value"]) == pytest.approx(norm.sf(ahead), rel=0.05)
        name = title.lower()
        assert float(values["Permutation p-value"]) == pytest.approx(detection.permutation_p_values[name], abs=1e-3)
        null = [
            "-" if name == "cut" and one.counts.n_on + one.counts.n_off == 0 else f"{one.significances[name]:.1f}"
            for one in test.outcomes.values()
        ]
        assert values["Null tests"] == f"{', '.join(null)} σ"
    assert values_of(content, "Cut")["On"] == f"{detection.counts.n_on:,}"
    assert values_of(content, "Events")["Without a cut"] == f"{detection.uncut.significance:.2f} σ"
    [quoted] = [row for group in content["numbers"] for row in group["rows"] if row["quoted"]]
    assert quoted["value"] == f"{replace(forward, statistic=statistic).significance:.2f} σ"
    assert quoted["note"].startswith("the one to quote: ")
    assert content["data"]["null"]["significances"] == test.significances.round(4).tolist()


def test_a_model_without_signal_ratios_has_a_cut_only(detections, tmp_path):
    bare = replace(detections["forest"], ratio=None, statistic="cut")
    content = model_content("", bare)
    assert content["headline"]["notes"][-1] == "By the cut."
    assert [group["title"] for group in content["numbers"]] == ["Cut", "Events"]
    assert "declared beforehand" not in content["quote"]
    assert content["data"]["likelihood"] is content["data"]["light"] is None
    assert any("no signal ratio" in sentence for sentence in content["missing"])
    assert content["data"]["time"]["significance"][-1] == round(bare.counts.significance, 4)
    assert all(row["likelihood"] == row["strength"] == "" for row in content["groups"])
    text = write_report({"bare": bare, "other": bare}, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Signal events" not in text
    assert "Likelihood" not in text
    mixed = write_report({"bare": bare, "forest": replace(detections["forest"], statistic="cut")}, tmp_path / "b.html")
    assert "Signal events" in mixed.read_text(encoding="utf-8")


def test_bins_of_the_page_are_those_of_the_series(detections):
    detection = detections["forest"]
    content, shown = model_content("", detection), likelihood_bins(detection)
    bins = content["data"]["likelihood"]
    assert (sum(bins["on"]), len(bins["on"])) == (detection.uncut.n_on, len(shown.n_on))
    assert sum(bins["off"]) == pytest.approx(detection.uncut.background, abs=0.01)
    assert sum(bins["signal"]) == pytest.approx(detection.likelihood.n_signal, abs=0.01)
    np.testing.assert_allclose(bins["significance"], shown.significance, atol=1e-3)
    assert bins["selected"] == shown.mostly_selected.tolist()
    assert f"On {shown.n_on[-1]:,}, " in bins["texts"][-1]
    assert f"{shown.significance[-1]:.2f} σ" in bins["texts"][-1]
    for significance in detection.outcome.significances.values():
        assert f"({significance:.1f} σ)" in content["bins"]


def test_groups_of_the_page_are_those_of_the_detection(detections):
    detection = detections["forest"]
    content, frame = model_content("", detection), detection.groups_frame()
    light = content["data"]["light"]
    assert light["groups"] == [str(group) for group in frame.index]
    for name, column in {"strength": "", "low": "_low", "high": "_high"}.items():
        np.testing.assert_allclose(light[name], frame[f"relative_strength{column}"], atol=1e-4)
    for row, significance, strength in zip(
        content["groups"], frame["likelihood_significance"], frame["relative_strength"], strict=True
    ):
        assert row["likelihood"] == f"{significance:.2f}".replace("-", "−")
        assert row["strength"].startswith(f"{strength:.2f} (".replace("-", "−"))
    folds = [row["likelihood"] for row in content["folds"]]
    assert folds == [f"{fold.likelihood_significance:.2f}".replace("-", "−") for fold in detection.folds]


def test_no_light_curve_of_a_deficit_and_not_of_groups_without_a_bound(detections):
    detection = detections["forest"]
    flipped = model_content("", replace(detection, on=~detection.on, alpha=5.0))
    assert flipped["data"]["light"] is None
    assert any("not a positive number" in sentence for sentence in flipped["missing"])
    ratio = np.where(detection.groups == detection.groups[0], 0.0, detection.ratio)
    unbound = model_content("", replace(detection, ratio=ratio))
    assert len(unbound["data"]["light"]["groups"]) == len(np.unique(detection.groups)) - 1
    assert any("not bounded in 1 of 5 groups" in sentence for sentence in unbound["missing"])


def test_models_are_compared_by_both_statistics(report, detections, forward):
    text = report.read_text(encoding="utf-8")
    for name, detection in detections.items():
        row = re.search(rf'<tr><th scope="row">{name}</th>(.*?)</tr>', text).group(1)
        cells = re.findall("<td>(.*?)</td>", row)
        found, ahead = detection.outcome.significances, forward.significances
        assert cells[0] == f"{found['likelihood']:.1f}"
        assert cells[1] == (f"{ahead['likelihood']:.1f}" if name == "forest" else "")
        assert cells[2] == f"{detection.likelihood.n_signal:,.0f} ± {detection.likelihood.n_signal_error:,.0f}"
        assert cells[3] == f"{found['cut']:.1f}"
        assert cells[4] == (f"{ahead['cut']:.1f}" if name == "forest" else "")
        assert cells[5] == f"{detection.counts.n_on:,}"


def test_values_of_models_that_were_applied_are_not_called_pooled(detections, tmp_path):
    pooled = {name: replace(one, strategy="pooled") for name, one in detections.items()}
    text = write_report(pooled, tmp_path / "pooled.html").read_text(encoding="utf-8")
    assert "Bars are pooled values" in text
    assert ">Pooled σ</th>" in text
    one, *_, last = pooled
    mixed = {**pooled, last: replace(pooled[last], strategy="applied")}
    assert one != last
    text = write_report(mixed, tmp_path / "mixed.html").read_text(encoding="utf-8")
    assert "Bars are pooled values" not in text
    assert ">Pooled σ</th>" not in text


def test_page_holds_no_events(report, detections, tmp_path):
    detection = detections["forest"]
    many = replace(
        detection,
        **{
            name: np.tile(getattr(detection, name), 4)
            for name in ("on", "score", "selected", "ratio", "fold", "groups", "nights", "time")
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
    counts = {1: OnOffCounts(400, 100, 0.25), 2: OnOffCounts(20, 100, 0.25)}
    test = replace(
        tests_of_null["forest"], outcomes={region: Outcome(one, None, "cut") for region, one in counts.items()}
    )
    text = write_report(detections["forest"], tmp_path / "report.html", null_test=test).read_text(encoding="utf-8")
    assert "Do not trust" in text
    assert "Off region 1 shows" in text


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
@pytest.mark.parametrize(
    ("change", "weak_forward", "stamp", "sentence"),
    [
        ({}, False, "Source detected", "could be learned from these labels"),
        ({}, True, "Not confirmed", "0.4 forward, 5 required: not confirmed"),
        (
            {"required_significance": 100.0},
            False,
            "No detection",
            "100 required: no detection. Learning from these labels is not shown to be feasible",
        ),
        ({"strategy": "applied"}, False, "Source detected", "5 required: On has more signal than Off."),
    ],
)
def test_verdict_is_that_of_the_search(detections, statistic, change, weak_forward, stamp, sentence):
    detection = replace(detections["forest"], statistic=statistic, **change)
    weak = OnOffLikelihood(0.4, 0.001, (-0.001, 0.003), 4.0, 9.0, 0.4)
    forward = Outcome(OnOffCounts(100, 480, 0.2), weak, statistic) if weak_forward else None
    content = model_content("", detection, forward)
    assert content["stamp"] == stamp
    assert sentence in content["verdict"]
    counts, likelihood = detection.counts, detection.likelihood
    start = {
        "cut": f"An excess of {counts.excess:,.0f} ± {counts.excess_error:,.0f} events, ",
        "likelihood": f"A signal of {likelihood.n_signal:,.0f} ± {likelihood.n_signal_error:,.0f} events, ",
    }
    assert content["verdict"].startswith(f"{start[statistic]}{detection.significance:.1f} sigma")
    assert ("by the likelihood" in content["verdict"]) == (statistic == "likelihood")
    assert content["verdict"].endswith(judge(detection, forward).sentence)
    assert content["warnings"] == []


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
def test_a_deficit_is_called_one(detections, statistic):
    flipped = replace(detections["forest"], on=~detections["forest"].on, alpha=5.0, statistic=statistic)
    assert flipped.significance < 0
    assert model_content("", flipped)["verdict"].startswith("A deficit of ")


def test_nothing_selected_is_said_of_a_cut_only(detections):
    nothing = replace(detections["forest"], selected=np.zeros_like(detections["forest"].selected))
    assert model_content("", replace(nothing, statistic="cut"))["verdict"].startswith("Nothing was selected, 0.0 sigma")
    assert model_content("", nothing)["verdict"].startswith("A signal of ")


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
def test_the_largest_number_is_the_one_to_quote(detections, forward, statistic):
    detection, ahead = replace(detections["forest"], statistic=statistic), replace(forward, statistic=statistic)
    other = {"likelihood": "cut", "cut": "likelihood"}[statistic]
    pooled = detection.outcome.significances
    shown = model_content("", detection, ahead)["headline"]
    assert (shown["value"], shown["label"]) == (f"{ahead.significance:.1f} σ", "forward: the one to quote")
    assert shown["beside"] == ((f"{pooled[statistic]:.1f} σ", "pooled: compares models"),)
    values = f"{ahead.significances[other]:.1f} σ forward, {pooled[other]:.1f} σ pooled."
    assert shown["notes"][0].endswith(f"declared beforehand. By the {other}, for comparison: {values}")
    # the value of the search itself, where it is the only one
    for strategy, label in (
        ("forward", "forward: the one to quote"),
        ("applied", "new events: the one to quote, if the model was chosen before they were looked at"),
        ("pooled", "pooled: compares models, not the one to quote"),
    ):
        content = model_content("", replace(detection, strategy=strategy), no_forward="there are no times.")
        shown, quoted = content["headline"], [row["quoted"] for group in content["numbers"] for row in group["rows"]]
        assert (shown["value"], shown["label"]) == (f"{detection.significance:.1f} σ", label)
        assert shown["beside"] == ()
        reason = "There is no forward value, which would be the one to quote: there are no times."
        assert (reason in shown["notes"]) == (strategy == "pooled")
        assert quoted[0] == (strategy != "pooled")
        condition = "if the model was chosen before they were looked at"
        assert (condition in content["numbers"][0]["rows"][0]["note"]) == (strategy == "applied")
        assert not any(quoted[1:])


def test_a_forward_search_without_a_likelihood_is_none(detections):
    unknown = Outcome(OnOffCounts(0, 0, 0.2), None, "likelihood")
    shown = model_content("", detections["forest"], unknown)["headline"]
    assert shown["value"] == f"{detections['forest'].significance:.1f} σ"
    assert shown["notes"][0] == "There is no forward value: it was not computed."


@pytest.mark.parametrize(
    ("status", "label", "start"),
    [
        ("detected", "for comparison with the first model", "This model is for comparison: "),
        ("no detection", "no detection", "There is no detection to quote."),
        ("not confirmed", "not confirmed", "There is no confirmed detection to quote."),
        (
            "doubtful",
            "not to be quoted before the warnings are explained",
            "Quote nothing before the warnings are explained.",
        ),
    ],
)
@pytest.mark.parametrize("strategy", ["pooled", "forward", "applied"])
def test_nothing_is_to_be_quoted_unless_a_source_is_detected_by_the_first_model(
    detections, forward, status, label, start, strategy
):
    detection, verdict = replace(detections["forest"], strategy=strategy), Verdict(status, "")
    for ahead in (forward, None):
        content = model_content("", detection, ahead, verdict=verdict, number=int(status == "detected"))
        name = "new events" if strategy == "applied" else "forward" if ahead is not None else strategy
        assert content["headline"]["label"] == f"{name}: {label}"
        assert content["quote_title"] == "What these numbers mean."
        assert content["quote"].startswith(start)
        assert "Quote the" not in content["quote"]
        assert "Quote this" not in content["quote"]
        assert "one to quote" not in " ".join(content["headline"]["notes"])
        assert not any(row["quoted"] for group in content["numbers"] for row in group["rows"])


@pytest.mark.parametrize(
    ("statistic", "fixed"), [("likelihood", "signal ratio of every event"), ("cut", "selection of every group")]
)
def test_what_to_quote(detections, statistic, fixed):
    detection = replace(detections["forest"], statistic=statistic)
    quotes = {
        strategy: model_content("", replace(detection, strategy=strategy))["quote"]
        for strategy in ("applied", "forward")
    }
    assert quotes["applied"].startswith(f"Quote {detection.significance:.1f} sigma, if this model")
    assert quotes["forward"].startswith(f"Quote this value, {detection.significance:.1f} sigma: the {fixed} was fixed")
    strong = Outcome(OnOffCounts(500, 100, 0.2), OnOffLikelihood(40.0, 1.0, (0.9, 1.1), 400, 9, 40.0), statistic)
    larger = model_content("", detection, strong)["quote"]
    assert f"Quote the forward value, {strong.significance:.1f} sigma: the {fixed} was fixed" in larger
    assert f"The pooled value, {detection.significance:.1f} sigma, compares models" in larger
    assert "It is smaller" not in larger
    assert f"The {statistic} was declared beforehand" in larger
    assert "there are no times" in model_content("", detection, no_forward="there are no times")["quote"]


def test_wrong_arguments(detections, tests_of_null, tmp_path):
    path = tmp_path / "report.html"
    with pytest.raises(TypeError, match="detection must be a Detection, or a dict of such, got list"):
        write_report([detections["forest"]], path)
    with pytest.raises(ValueError, match="null_test has 'forest', but detection has '' only"):
        write_report(detections["forest"], path, null_test=tests_of_null)
    by_cut = Outcome(OnOffCounts(90, 100, 0.2), None, "cut")
    with pytest.raises(ValueError, match="forward has the statistic 'cut', but detection has 'likelihood'"):
        write_report(detections["forest"], path, forward=by_cut)
    for strategy in ("pooled", "applied"):
        other = replace(detections["forest"], strategy=strategy)
        with pytest.raises(ValueError, match=rf"forward must be a search with strategy='forward'.* is '{strategy}'"):
            write_report(detections["forest"], path, forward=other)
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
    path = write_report(detection, tmp_path / "report.html")
    assert path.stat().st_size < 6_000_000


def test_interrupted_report_leaves_nothing(detections, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", broken)
    with pytest.raises(OSError, match="No space"):
        write_report(detections["tree"], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
