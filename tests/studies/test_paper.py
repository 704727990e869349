"""The reproduction of the paper: published values, tables, methods, and resumed runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("scikit_posthocs")

from excess import OnOffForestClassifier, OnOffTreeClassifier, cross_val_detect, significance_threshold
from excess.dataset import simulate_labelled, simulate_observation
from excess.io import write_events
from studies.paper import calibration, crab, imbalanced, published
from studies.paper.__main__ import TARGETS, main
from studies.paper.data import IMBALANCED_SETS, crab_data, fact_files, imbalanced_set, labelled_events
from studies.paper.methods import METHODS, cross_validate, threshold_rules
from studies.paper.tables import compare, show
from studies.paper.trials import Settings, Study, read_rows, run_study

ROOT = Path(__file__).parents[2]
SMALL = Settings(small=True)
NAMES = {"li-ma-forest": "LiMa", "noisy-forest": "Noisy", "menon-forest": "Menon", "mithal-forest": "Mithal"}


def table_of(cells):
    return cells.pivot_table("published", "set", "method").loc[list(IMBALANCED_SETS), list(NAMES)].rename(columns=NAMES)


# Published values and ranks.


def test_published_tables_are_as_printed():
    assert published.CRAB.loc[("mithal-8", 100)].tolist() == [26.4465, 0.1804]
    assert published.CRAB.loc[("supervised-small", 1)].tolist() == [21.7351, 0.0]
    assert published.AGREEMENT.loc[("li-ma-4", 100, "spearman")].tolist() == [0.7364, 0.0106]
    assert published.CRAB_NULL.loc[("k-means-128", 100)].tolist() == [0.3162, 0.6247]
    assert len(published.CRAB) == 58
    assert published.CRAB["published"].idxmax() == ("mithal-8", 100)  # bold in the paper
    assert len(published.IMBALANCED) == len(published.MORE_NOISE) == 40
    # the averages that the paper prints follow from its cells, but for the LiMa Forest, where it prints 0.658 and 0.566
    np.testing.assert_allclose(table_of(published.IMBALANCED).mean(), [0.6517, 0.667, 0.596, 0.554], atol=5e-4)
    np.testing.assert_allclose(table_of(published.MORE_NOISE).mean(), [0.5600, 0.562, 0.426, 0.383], atol=5e-4)


def test_the_published_table_gives_the_published_diagram():
    table = table_of(published.IMBALANCED)
    ranks, p_values = imbalanced.mean_ranks(table), imbalanced.pairwise_p_values(table)
    np.testing.assert_allclose(ranks, [2.5, 1.55, 2.85, 3.1])  # the paper prints 2.5, 1.6, 2.8 and 3.1
    assert p_values.loc["Noisy", "Mithal"] == pytest.approx(0.082, abs=5e-4)
    assert p_values.loc["Noisy", "Menon"] == pytest.approx(0.098, abs=5e-4)
    _, drawn = imbalanced.draw_critical_difference(ranks, p_values)
    bars = sorted((min(bar.get_xdata()), max(bar.get_xdata())) for (bar,) in drawn["crossbars"])
    np.testing.assert_allclose(bars, [(1.55, 2.5), (2.5, 3.1)])  # Noisy and LiMa; LiMa, Menon and Mithal
    more = imbalanced.mean_ranks(table_of(published.MORE_NOISE))
    np.testing.assert_allclose(more, published.AVERAGES["imbalanced-more-noise"]["rank"])


def test_ties_do_not_depend_on_rounding():
    table = pd.DataFrame({"a": [0.1 + 0.2, 0.5, 0.6], "b": [0.3, 0.4, 0.7], "c": [0.3, 0.4, 0.7]})
    np.testing.assert_allclose(imbalanced.mean_ranks(table), [2, 2, 2])
    assert imbalanced.pairwise_p_values(table).loc["b", "c"] == 1.0


# Tables.


def test_differences_and_their_errors():
    rows = pd.DataFrame({"line": list("aabccc"), "value": [1.0, 3.0, 2.0, 0.1, 0.1, 0.1]})
    theirs = pd.DataFrame({"published": 1.0, "published_std": 2.0}, pd.Index(["a", "b"], name="line"))
    found = compare(rows, ["line"], "value", theirs, 4)
    np.testing.assert_allclose(found["difference"], [1.0, 1.0, np.nan])
    np.testing.assert_allclose(found["error"], [np.sqrt(2 / 2 + 4 / 4), np.nan, np.nan])
    assert found.loc["c", "std"] == 0.0
    assert show(found, 2).loc["a"].tolist() == ["1.00 ± 2.00", "2.00 ± 1.41", "+1.00 ± 1.41"]
    assert show(found, 2).loc["c"].tolist() == ["", "0.10", ""]


def test_forests_are_compared_on_common_trials():
    """Three trials of the paper's four on all sets; ours has two of them on one set, and one on another."""
    cells = {(name, method): {0: j, 1: j, 2: 5 - j} for name in IMBALANCED_SETS for j, method in enumerate(NAMES)}
    cells |= {(name, "default-forest"): {0: 1.5, 1: 1.5, 2: 1.5} for name in IMBALANCED_SETS}
    cells["letter_img", "default-forest"] = {0: 1.5, 1: 1.5}
    cells["protein_homo", "default-forest"] = {2: 1.5}
    rows = pd.DataFrame(
        [
            {"set": name, "method": method, "trial": trial, "f1": f1 / 10, "f1_of_folds": f1 / 10}
            for (name, method), values in cells.items()
            for trial, f1 in values.items()
        ]
    )
    five = (*NAMES, "default-forest")
    means = imbalanced.common_means(rows, five)
    assert list(means.index) == [name for name in IMBALANCED_SETS if name != "protein_homo"]
    np.testing.assert_allclose(means.loc["letter_img"], [0.0, 0.1, 0.2, 0.3, 0.15])
    assert len(imbalanced.common_means(rows, tuple(NAMES))) == 10
    once = imbalanced.common_means(rows[rows["trial"] == 2], five)
    assert list(once.index) == [name for name in IMBALANCED_SETS if name != "letter_img"]
    (line,) = imbalanced.our_methods(rows).to_numpy().tolist()
    assert line[:4] == ["Our default forest", "9 sets (left out: protein_homo)", "2 to 3", "0.150 (4.78)"]
    page = imbalanced.critical_difference_page({"imbalanced": rows}, "")
    assert page.summary.groupby("table", sort=False)["n_sets"].first().tolist() == [10, 10, 9]


def calibration_rows(n_signal, cut, likelihood, p_values, uncut):
    shared = [{"rule": "largest", "n_signal": n_signal, "trial": i, "uncut": value} for i, value in enumerate(uncut)]
    return [
        {**shared[i], "statistic": name, "pooled": values[i], "forward": values[i], "p_value": p, "p_value_spread": p}
        for i, own in enumerate(p_values)
        for name, values, p in (("cut", cut, own), ("likelihood", likelihood, None if own is None else own / 2))
    ]


def test_calibration_has_its_false_alarms_and_power_at_critical_values():
    null = calibration_rows(0, [-1.0, 0.0, 1.0, 2.0], [-2.0, -1.0, 0.0, 1.5], [0.9, 0.5, 0.05, None], [0.0] * 4)
    source = calibration_rows(20, [5.0, 1.0, 1.0], [1.0, 1.4, 1.6], [0.08, 0.08, None], [2.0, -1.0, -1.0])
    rows = pd.DataFrame(null + source).astype({"p_value": float, "p_value_spread": float})
    lines = calibration.false_alarms(rows).set_index(["statistic", "value"])
    assert lines.loc[("cut, largest rule", "pooled")].tolist()[3:6] == ["0.2500", "0.0000", "0.0000"]
    assert lines.loc[("cut, largest rule", "permutation")].tolist()[3:6] == ["0.3333", "", ""]  # 1/20 at best
    critical = calibration.critical_values(rows)
    assert critical["pooled", "cut"] == pytest.approx(np.quantile([-1.0, 0.0, 1.0, 2.0], 0.95))
    found = calibration.power(rows).set_index(["signal", "value"])
    pooled, permuted = found.loc[20, "pooled"], found.loc[20, "permutation"]
    assert (pooled["cut"], pooled["likelihood"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))  # 1.4 is above 1.275
    assert pooled["error"] == pytest.approx(np.std([-1, 1, 1], ddof=1) / np.sqrt(3))  # of pairs
    assert pooled["no cut"] == pytest.approx(1 / 3)
    assert (permuted["data sets"], permuted["cut"], permuted["likelihood"]) == (2, 0, 1)


# Plans and trials.


def test_plans_have_every_published_cell():
    trials = crab.CRAB.plan(Settings(), 10)
    assert len({json.dumps(trial) for trial in trials}) == len(trials) == 400
    cells = set()
    for trial in trials:
        n_models = 1 if trial["model"] in ("k-means", "li-ma-tree", "noisy-tree", "supervised-tree") else 100
        cells |= {(crab.line_of(key, trial["size"]), n_models) for key in crab.METHODS_OF[trial["model"]]}
    assert set(published.CRAB.index) <= cells
    assert sum(map(crab.is_in_agreement, trials)) == 100
    assert {trial["region"] for trial in crab.CRAB_NULL.plan(SMALL, 10)} == {1, 2, 3, 4, 5}
    assert len(imbalanced.IMBALANCED.plan(Settings(), 20)) == 400
    short, long = (calibration.CALIBRATION.plan(Settings(), n) for n in (60, 2_000))
    assert all(trial in long for trial in short)  # a short run is the beginning of a long one
    assert len(long) == 3_000


@pytest.mark.parametrize("name", ["forest", "tree"])
def test_rules_see_the_training_part_alone(name, noisy_data):
    X, on, groups, alpha = noisy_data.X, noisy_data.y == 1, noisy_data.groups, noisy_data.alpha
    model = {
        "forest": OnOffForestClassifier(15, max_depth=4, min_samples_leaf=10, random_state=0),
        "tree": OnOffTreeClassifier(max_depth=4, min_samples_leaf=10, random_state=0),
    }[name]
    folds = [(np.flatnonzero(groups != group), np.flatnonzero(groups == group)) for group in range(6)]
    found = cross_validate(model, X, on, {"largest": significance_threshold, "own": None}, alpha, folds)
    train, held_out = folds[2]
    fitted = model.__class__(**{**model.get_params(), "alpha": alpha}).fit(X[train], on[train])
    scores = fitted.oob_decision_function_[:, 1] if name == "forest" else fitted.predict_proba(X[train])[:, 1]
    known = ~np.isnan(scores)
    threshold = significance_threshold(on[train][known], scores[known], alpha)
    np.testing.assert_array_equal(found.selected["largest"][held_out], found.score[held_out] > threshold)
    detected = cross_val_detect(model, X, on, alpha=alpha, groups=groups)
    np.testing.assert_array_equal(found.selected["own"], detected.selected)
    np.testing.assert_array_equal(found.score, detected.score)
    np.testing.assert_array_equal(found.ratio, detected.ratio)


def test_our_threshold_is_the_default_of_the_forest():
    defaults, rule = OnOffForestClassifier(), threshold_rules(["noisy-forest-near-best"], 7)["noisy-forest-near-best"]
    options = {"tolerance": defaults.threshold_tolerance, "n_bootstrap": defaults.n_threshold_bootstrap}
    assert rule.keywords == {**options, "random_state": 7}
    assert all(key in threshold_rules(METHODS, 0) for key in METHODS)


@pytest.mark.slow
def test_a_trial_is_a_function_of_its_parameters():
    trial = {"set": "abalone", "p_plus": 0.1, "trial": 0, "part": "paper"}
    rows = imbalanced.run(SMALL, trial)
    assert [row["method"] for row in rows] == [*NAMES, "noisy-forest-near-best"]
    assert imbalanced.run(SMALL, trial) == rows != imbalanced.run(SMALL, {**trial, "trial": 1})


def test_local_data_are_read(tmp_path):
    pytest.importorskip("imblearn")
    with pytest.raises(FileNotFoundError, match=r"x5data\.npz"):
        imbalanced_set("abalone", Settings(data=tmp_path))
    (tmp_path / "imblearn" / "zenodo").mkdir(parents=True)
    X, labels = np.arange(12.0).reshape(6, 2), np.array([-1, -1, 1, -1, 1, -1])
    np.savez(tmp_path / "imblearn" / "zenodo" / "x5data.npz", data=X, label=labels)
    found = imbalanced_set("abalone", Settings(data=tmp_path))
    np.testing.assert_array_equal(found.X, X)
    assert found.clean.tolist() == [0, 0, 1, 0, 1, 0]


def test_fact_files_replace_the_simulation(tmp_path):
    events = simulate_observation(40_000, 400, random_state=5)
    angles = [name for name in events if name.startswith("theta")]
    write_events(events.drop(columns=[*angles, "is_signal"]), tmp_path / "open_crab_sample_facttools_dl2.hdf5")
    write_events(events[["night", "run_id", "event_num", *angles]], tmp_path / "open_crab_sample_dl3.hdf5")
    settings = Settings(data=tmp_path)
    assert set(fact_files(settings)) == {"dl2", "dl3"}
    assert crab_data(settings).on.sum() == (events["theta_deg"] ** 2 < 0.025).sum()
    assert labelled_events("train", settings) is None
    rows = crab.run(settings, {"model": "noisy-tree", "size": 4, "trial": 0})
    assert [row["line"] for row in rows] == ["noisy-4", "menon-4", "mithal-4"]
    assert "pearson" not in rows[0]
    assert not any(trial["model"].startswith("supervised") for trial in crab.CRAB.plan(settings, 1))
    for kind, part in simulate_labelled(60, 80, random_state=1).groupby("is_signal"):
        write_events(part.drop(columns="is_signal"), tmp_path / f"{'gamma' if kind else 'proton'}.hdf5")
    labelled_events.cache_clear()
    assert labelled_events("train", settings).clean.tolist() == [1] * 30 + [0] * 40


# Runs.


def pure(settings, trial):
    if trial["trial"] == 7:
        raise RuntimeError("no more")
    return [{"value": 0.1 * trial["trial"], "seed": settings.trial_seed(trial["trial"])}]


STUDY = Study("pure", 3, lambda settings, n: [{"trial": i} for i in range(n)], pure, lambda header: "")


def test_finished_trials_are_not_repeated(tmp_path):
    path = tmp_path / "pure.jsonl"
    run_study(STUDY, STUDY.plan(Settings(), 2), Settings(), path, n_jobs=1)
    before = path.read_bytes()
    path.write_bytes(before + b'{"trial": {"tri')  # of a killed run
    assert len(read_rows(path, STUDY.plan(Settings(), 4))) == 2
    with pytest.raises(RuntimeError, match="no more"):
        run_study(STUDY, STUDY.plan(Settings(), 9), Settings(), path, n_jobs=1)
    assert path.read_bytes().startswith(before)
    rows = read_rows(path, STUDY.plan(Settings(), 9))
    assert rows["trial"].tolist() == list(range(7))
    assert rows["seed"].tolist() == [Settings().trial_seed(i) for i in range(7)]


@pytest.mark.parametrize(
    ("study", "settings", "key"),
    [
        (STUDY, Settings(seed=1), "seed"),
        (STUDY, SMALL, "small"),
        (replace(STUDY, revision=2), Settings(), "revision"),
        (replace(STUDY, identify=lambda settings: {"sets": "ff"}), Settings(), "sets"),
    ],
    ids=["seed", "small", "revision", "data"],
)
def test_trials_of_other_settings_are_not_mixed(tmp_path, study, settings, key):
    path = tmp_path / "pure.jsonl"
    run_study(STUDY, STUDY.plan(Settings(), 1), Settings(), path, n_jobs=1)
    with pytest.raises(ValueError, match=key):
        run_study(study, study.plan(settings, 1), settings, path, n_jobs=1)


@pytest.mark.campaign
def test_a_killed_run_ends_in_the_tables_of_a_whole_run(tmp_path):
    arguments = ["calibration", "--small", "--trials", "15", "--jobs"]
    assert main([*arguments, "1", "--out", str(tmp_path / "whole")]) == 0
    trials = tmp_path / "broken" / "trials" / "calibration.jsonl"
    command = [sys.executable, "-m", "studies.paper", *arguments, "2", "--out", str(tmp_path / "broken")]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if trials.exists() and trials.read_bytes().count(b"\n") > 3:
            break
        time.sleep(0.01)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finished = trials.read_bytes()
    assert 3 < finished.count(b"\n") < 22
    assert main([*arguments, "2", "--out", str(tmp_path / "broken")]) == 0
    assert trials.read_bytes().startswith(finished[: finished.rfind(b"\n") + 1])
    for file in ("results.csv", "summary.csv", "page.md"):
        whole, broken = (tmp_path / name / "calibration" / file for name in ("whole", "broken"))
        assert whole.read_bytes() == broken.read_bytes()


@pytest.mark.campaign
def test_every_target_has_its_files(tmp_path):
    arguments = ["all", "--trials", "1", "--small", "--out", str(tmp_path)]
    assert main([*arguments, "--finished"]) == 1
    assert main([*arguments, "--jobs", "1"]) == 0
    for target in TARGETS:
        page = (tmp_path / target / "page.md").read_text(encoding="utf-8")
        assert "numbers mean nothing" in page
        assert pd.read_csv(tmp_path / target / "results.csv")["data"].str.contains("stand-in").all()
        for figure in (tmp_path / target).glob("*.png"):
            assert f"({figure.name})" in page
    summary = pd.read_csv(tmp_path / "crab" / "summary.csv").set_index(["line", "n_models"])
    assert {key for key in published.CRAB.index if not key[0].startswith("k-means")} <= set(summary.index)
    assert np.isfinite(summary["mean_likelihood"]).all()
    likelihood = summary["mean_likelihood"]
    assert likelihood["noisy-6", 100] == likelihood["menon-6", 100] != likelihood["li-ma-6", 100]
