"""Texts, numbers and tables of the page."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from excess import assess
from excess.detection._diagnostics import Verdict
from excess.detection._result import DetectionBins, Exposure, Outcome
from excess.report._content import ModelContent, models_table, simulation_content
from excess.stats._likelihood import OnOffLikelihood
from excess.stats._significance import OnOffCounts


def values_of(content, title):
    """Return the numbers of one group of the page by their labels."""
    return {row.label: row.value for group in content.numbers if group["title"] == title for row in group["rows"]}


def quoted_of(content):
    return [row for group in content.numbers for row in group["rows"] if row.quoted]


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
def test_numbers_are_those_of_both_statistics_with_the_declared_one_first(
    detections, tests_of_null, forward, statistic
):
    permutations = {"likelihood": np.array([-1.0, 99.0]), "cut": np.zeros(2)}
    detection = replace(detections["forest"], statistic=statistic, permutations=permutations)
    test = tests_of_null["forest"]
    content = ModelContent("", detection, replace(forward, statistic=statistic), test)
    titles = [(group["title"], group["declared"]) for group in content.numbers]
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
    [quoted] = quoted_of(content)
    assert quoted.value == f"{replace(forward, statistic=statistic).significance:.2f} σ"
    assert quoted.note.startswith("the one to quote: ")


def test_a_model_without_signal_ratios_has_a_cut_only(detections):
    bare = replace(detections["forest"], ratio=None, statistic="cut")
    content = ModelContent("", bare)
    assert content.headline["notes"][-1] == "By the cut."
    assert [group["title"] for group in content.numbers] == ["Cut", "Events"]
    assert "declared beforehand" not in content.quote
    assert any("no likelihood ratio" in sentence for sentence in content.missing)
    assert not any("Likelihood" in head for table in content.tables.values() for head in table.heads)


def test_tables_have_the_numbers_of_the_detection(detections):
    detection = detections["forest"]
    content, frame = ModelContent("", detection), detection.groups_frame()
    table = content.tables["groups"]
    assert table.heads[-4:] == ["Likelihood / σ", "Signal strength / mean", "Hours", "Signal / h"]
    for row, (group, counts) in zip(table.rows, detection.counts_by_group.items(), strict=True):
        found = frame.loc[group]
        excess = f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}"
        assert row[:5] == [str(group), f"{counts.significance:.2f}", f"{counts.n_on:,}", f"{counts.n_off:,}", excess]
        assert row[5] == f"{found['likelihood_significance']:.2f}".replace("-", "−")
        assert row[6].startswith(f"{found['relative_strength']:.2f} (".replace("-", "−"))
        assert row[7] == f"{found['hours']:.2f}"
        assert row[8].startswith(f"{found['rate']:.2f} (".replace("-", "−"))
    folds = [row[-1] for row in content.tables["folds"].rows]
    assert folds == [f"{fold.likelihood_significance:.2f}".replace("-", "−") for fold in detection.folds]
    assert "weights" not in content.tables


def test_bins_have_a_row_each_and_a_joint_one(detections):
    outcomes = tuple(Outcome(OnOffCounts(n, 30, 0.2), None, "cut") for n in (8, 20, 7))
    bins = DetectionBins("energy", (float("-inf"), 1.0, 5.0, float("inf")), outcomes, ("borrows from 1 to 5", "", ""))
    table = ModelContent("", replace(detections["tree"], bins=bins)).tables["bins"]
    assert table.heads[0] == "energy"
    assert [row[0] for row in table.rows] == ["below 1", "1 to 5", "above 5", "joint"]
    assert table.rows[0][-1] == "borrows from 1 to 5"
    assert table.rows[1][1] == f"{OnOffCounts(20, 30, 0.2).significance:.2f}"


def test_models_are_compared_by_both_statistics(detections, forward, tests_of_null):
    table = models_table(detections, {"forest": forward}, tests_of_null, pooled=True)
    assert table.heads[:4] == ["Model", "Likelihood pooled σ", "Likelihood forward σ", "Signal events"]
    assert [row[0] for row in table.rows] == ["no cut", *detections]
    assert table.rows[0][4] == f"{detections['tree'].uncut.significance:.1f}"
    for row, (name, detection) in zip(table.rows[1:], detections.items(), strict=True):
        found, ahead, signal = detection.outcome.significances, forward.significances, detection.likelihood
        assert row[1:7] == [
            f"{found['likelihood']:.1f}",
            f"{ahead['likelihood']:.1f}" if name == "forest" else "",
            f"{signal.n_signal:,.0f} ± {signal.n_signal_error:,.0f}",
            f"{found['cut']:.1f}",
            f"{ahead['cut']:.1f}" if name == "forest" else "",
            f"{detection.counts.n_on:,}",
        ]
    bare = {name: replace(one, ratio=None, statistic="cut") for name, one in detections.items()}
    assert models_table(bare, {}, {}, pooled=False).heads[:2] == ["Model", "Cut σ"]


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
@pytest.mark.parametrize(
    ("change", "weak_forward", "stamp", "sentence"),
    [
        ({}, False, "Source detected", "learned it from these labels"),
        ({}, True, "Not confirmed", "0.4 forward, 5 required: not confirmed"),
        (
            {"required_significance": 100.0},
            False,
            "No detection",
            "100 required: no detection. The labels do not suffice to learn a signal",
        ),
        ({"strategy": "applied"}, False, "Source detected", "5 required: On has more signal than Off."),
    ],
)
def test_verdict_is_that_of_the_search(detections, statistic, change, weak_forward, stamp, sentence):
    detection = replace(detections["forest"], statistic=statistic, **change)
    weak = OnOffLikelihood(0.4, 0.001, (-0.001, 0.003), 4.0, 9.0)
    forward = Outcome(OnOffCounts(100, 480, 0.2), weak, statistic) if weak_forward else None
    content = ModelContent("", detection, forward)
    assert content.stamp == stamp
    assert sentence in content.sentence
    counts, likelihood = detection.counts, detection.likelihood
    start = {
        "cut": f"An excess of {counts.excess:,.1f} ± {counts.excess_error:,.1f} events, ",
        "likelihood": f"A signal of {likelihood.n_signal:,.1f} ± {likelihood.n_signal_error:,.1f} events, ",
    }
    assert content.sentence.startswith(f"{start[statistic]}{detection.significance:.1f} sigma")
    assert ("by the likelihood" in content.sentence) == (statistic == "likelihood")
    assert content.sentence.endswith(assess(detection, forward).sentence)
    assert list(content.warnings) == []


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
def test_a_deficit_is_called_one(detections, statistic):
    flipped = replace(detections["forest"], on=~detections["forest"].on, alpha=5.0, statistic=statistic)
    assert flipped.significance < 0
    content = ModelContent("", flipped)
    assert content.sentence.startswith("A deficit of ")
    assert content.limits[0].startswith("Upper limit at 95 % (CLs): ")
    untimed = ModelContent("", replace(flipped, exposure=None))
    assert any("is not positive" in sentence for sentence in untimed.missing)


def test_nothing_selected_is_said_of_a_cut_only(detections):
    nothing = replace(detections["forest"], selected=np.zeros_like(detections["forest"].selected))
    assert ModelContent("", replace(nothing, statistic="cut")).sentence.startswith("No event was selected, 0.0 sigma")
    assert ModelContent("", nothing).sentence.startswith("A signal of ")


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
def test_the_largest_number_is_the_one_to_quote(detections, forward, statistic):
    detection, ahead = replace(detections["forest"], statistic=statistic), replace(forward, statistic=statistic)
    other = {"likelihood": "cut", "cut": "likelihood"}[statistic]
    pooled = detection.outcome.significances
    shown = ModelContent("", detection, ahead).headline
    assert (shown["value"], shown["label"]) == (f"{ahead.significance:.1f} σ", "forward: the one to quote")
    assert shown["beside"] == [(f"{pooled[statistic]:.1f} σ", "pooled: compares models")]
    values = f"{ahead.significances[other]:.1f} σ forward, {pooled[other]:.1f} σ pooled."
    assert shown["notes"][0].endswith(f"declared beforehand. By the {other}, for comparison: {values}")
    # the value of the search itself, where it is the only one
    for strategy, label in (
        ("forward", "forward: the one to quote"),
        ("applied", "new events: the one to quote, if the model was chosen independently of these events"),
        ("pooled", "pooled: compares models, not the one to quote"),
    ):
        content = ModelContent("", replace(detection, strategy=strategy), no_forward="there are no times.")
        shown = content.headline
        assert (shown["value"], shown["label"]) == (f"{detection.significance:.1f} σ", label)
        assert shown["beside"] == []
        reason = "No forward value, which would be the one to quote: there are no times."
        assert (reason in shown["notes"]) == (strategy == "pooled")
        first = content.numbers[0]["rows"][0]
        assert quoted_of(content) == ([first] if strategy != "pooled" else [])
        assert ("if the model was chosen independently of these events" in first.note) == (strategy == "applied")


def test_a_forward_search_without_a_likelihood_is_none(detections):
    unknown = Outcome(OnOffCounts(0, 0, 0.2), None, "likelihood")
    shown = ModelContent("", detections["forest"], unknown).headline
    assert shown["value"] == f"{detections['forest'].significance:.1f} σ"
    assert shown["notes"][0] == "No forward value: it was not computed."


@pytest.mark.parametrize(
    ("status", "label", "start"),
    [
        ("detected", "for comparison with the first model", "This model is for comparison: "),
        ("no detection", "no detection", "There is no detection to quote."),
        ("not confirmed", "not confirmed", "There is no confirmed detection to quote."),
        (
            "doubtful",
            "not to be quoted before the warnings are explained",
            "Do not quote a significance before the warnings are explained.",
        ),
    ],
)
@pytest.mark.parametrize("strategy", ["pooled", "forward", "applied"])
def test_nothing_is_to_be_quoted_unless_a_source_is_detected_by_the_first_model(
    detections, forward, status, label, start, strategy
):
    detection, verdict = replace(detections["forest"], strategy=strategy), Verdict(status, "")
    for ahead in (forward, None):
        content = ModelContent("", detection, ahead, verdict=verdict, number=int(status == "detected"))
        name = "new events" if strategy == "applied" else "forward" if ahead is not None else strategy
        assert content.headline["label"] == f"{name}: {label}"
        assert not content.quotable
        assert content.quote.startswith(start)
        assert "Quote the" not in content.quote
        assert "Quote this" not in content.quote
        assert "one to quote" not in " ".join(content.headline["notes"])
        assert quoted_of(content) == []


@pytest.mark.parametrize(
    ("statistic", "fixed"),
    [("likelihood", "likelihood ratio of every event"), ("cut", "selection of every block of events")],
)
def test_what_to_quote(detections, statistic, fixed):
    detection = replace(detections["forest"], statistic=statistic)
    applied, alone = (
        ModelContent("", replace(detection, strategy=strategy)).quote for strategy in ("applied", "forward")
    )
    assert applied.startswith(f"Quote {detection.significance:.1f} sigma, if this model")
    assert alone.startswith(f"Quote this value, {detection.significance:.1f} sigma: the {fixed} was fixed")
    strong = Outcome(OnOffCounts(500, 100, 0.2), OnOffLikelihood(40.0, 1.0, (0.9, 1.1), 400, 9), statistic)
    larger = ModelContent("", detection, strong).quote
    assert f"Quote the forward value, {strong.significance:.1f} sigma: the {fixed} was fixed" in larger
    assert f"Use the pooled value, {detection.significance:.1f} sigma, to compare models" in larger
    assert "It is smaller" not in larger
    assert f"The {statistic} was declared beforehand" in larger
    assert "there are no times" in ModelContent("", detection, no_forward="there are no times").quote
    assert "Blocks were drawn." in ModelContent("", replace(detection, remarks=("Blocks were drawn",))).quote


def test_what_is_missing_is_listed(detections):
    detection = detections["forest"]
    score = detection.score.copy()
    score[np.flatnonzero(detection.held_out)[:7]] = np.nan
    runs = np.array([f"run {i % 8}" for i in range(len(detection.on))])
    first = detection.groups[0]
    cases = [
        ({"score": score}, "7 hold-out events have no score"),
        ({"score": np.full_like(score, np.nan)}, "no event has a score"),
        ({"fold": np.where(detection.fold == 0, -1, detection.fold)}, "were used for training only"),
        ({"groups": None}, "No table of groups"),
        ({"groups": np.full(len(score), 20131101)}, "there is only one, 20131101"),
        ({"ratio": np.where(detection.groups == first, 0.0, detection.ratio)}, "1 of 5 groups"),
        ({"theta": None}, "No θ² plot"),
        ({"nearby": None}, "The θ² plot ends at the cut"),
        ({"time": None}, "times are unknown"),
        ({"importances": None}, "no feature importances"),
        ({"features": None}, "older runs lack them"),
        ({"sky": None}, "No sky map"),
        ({"sky": replace(detection.sky, layers={"all": detection.sky.layers["all"]})}, "No sky map of selected events"),
        ({"exposure": None}, "No rates per hour"),
        (
            {"groups": runs, "exposure": Exposure("ontime", ("run 0",), ("",), np.array([0.5]))},
            "7 of 8 groups without a bound or an observation time",
        ),
    ]
    for change, sentence in cases:
        missing = "\n".join(ModelContent("", replace(detection, **change)).missing)
        assert sentence in missing, sentence
    assert list(ModelContent("", detection).missing) == [
        "No null test was run, which searches for a source in the Off regions."
    ]
    many = ModelContent("", detection, number=4, n_models=5)
    assert "On and Off are compared in 6 of 22 features; result.json has all of them." in many.missing
    assert "Sky maps are shown for the first 4 models." in many.missing


def test_thresholds_are_described(detections):
    detection = detections["forest"]
    infinite = tuple(fold._replace(threshold=np.inf) for fold in detection.folds)
    assert ModelContent("", replace(detection, folds=infinite)).thresholds.endswith("(∞ in all 5 folds).")
    assert ModelContent("", replace(detection, folds=infinite)).tables["folds"].rows[0][3] == "∞"
    none = tuple(fold._replace(threshold=np.nan) for fold in detection.folds)
    assert "by their own rules" in ModelContent("", replace(detection, folds=none)).thresholds


def test_trust_is_that_of_the_folds(hybrid):
    rows = ModelContent("", hybrid).tables["weights"].rows
    assert [row[1] for row in rows] == [
        "reference",
        "trained on the labels, with the references as additional features",
        "trained on the labels only",
    ]
    for row, name in zip(rows, hybrid.folds[0].reference_weights, strict=True):
        values = [fold.reference_weights[name] for fold in hybrid.folds]
        assert row[2:] == [f"{np.mean(values):.2f}", f"{min(values):.2f} to {max(values):.2f}"]
    assert ModelContent("", replace(hybrid, folds=hybrid.folds[:1])).tables["weights"].rows[0][3] == ""


def test_the_simulation_check_has_the_numbers_of_the_agreement(agreement):
    content = simulation_content(agreement)
    assert (content["title"], content["verdict"]) == ("Differences found.", agreement.verdict)
    assert [sample["title"] for sample in content["samples"]] == ["Simulated gammas", "Simulated protons"]
    for sample, name in zip(content["samples"], ("signal", "background"), strict=True):
        own = agreement.table[agreement.table["sample"] == name]
        assert [row[0] for row in sample["table"].rows] == own["feature"].tolist()
        assert [row[-1] == "yes" for row in sample["table"].rows] == own["flagged"].tolist()
    worst = content["samples"][1]["table"].rows[0]
    assert (worst[0], worst[-1]) == ("width", "yes")
    assert worst[1].startswith("−")
    for left, title in ((agreement.of_sample("background"), "Differences found."), ((), "Not checked.")):
        found = replace(agreement, comparisons=left, remark="No excess to compare with simulated gammas.")
        content = simulation_content(found)
        assert content["title"] == title
        assert content["verdict"].startswith("No excess to compare with simulated gammas.")
