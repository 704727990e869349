"""Every target on small stand-ins; methods against cross_val_detect; data that are missing, and FACT's files."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

from excess import OnOffForestClassifier, OnOffTreeClassifier, cross_val_detect, null_test
from excess.cli import main
from excess.cli import reproduce as command
from excess.events import write_events
from excess.observation.simulation import simulate_labelled, simulate_observation
from excess.reproduction import crab, crab_page, imbalanced, imbalanced_page, published
from excess.reproduction.calibration import false_alarms, power
from excess.reproduction.crab_data import crab_data, fact_files, labelled_events
from excess.reproduction.critical_difference import plot_critical_difference
from excess.reproduction.datasets import IMBALANCED_SETS, MissingDataError, imbalanced_set
from excess.reproduction.imbalanced import IMBALANCED
from excess.reproduction.imbalanced import run as run_imbalanced
from excess.reproduction.methods import METHODS, MODELS, RULES, judge_folds, judge_scores
from excess.reproduction.pages import Page, Table, as_html, as_markdown, compare, pm
from excess.reproduction.published import Value
from excess.reproduction.ranking import compare_ranks
from excess.reproduction.running import chosen_targets, reproduce_targets
from excess.reproduction.settings import Settings
from excess.reproduction.targets import TARGETS
from excess.reproduction.trials import locked, run_study

SMALL = Settings(small=True)


def run_cli(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return ended.value.code


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    assert run_cli("reproduce", "all", "--trials", 1, "--small", "--jobs", 1, "--out", folder) == 0
    return folder


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_its_files_and_says_what_data(everything, target):
    folder = everything / target
    results = pd.read_csv(folder / "results.csv")
    pd.testing.assert_frame_equal(results, pd.read_parquet(folder / "results.parquet"), check_dtype=False)
    assert results["data"].str.contains("stand-in").all()
    markdown, page = (folder / "page.md").read_text(), (folder / "page.html").read_text()
    for text in (markdown, page):
        assert "numbers mean nothing" in text
    assert pd.read_csv(folder / "summary.csv")["data"].str.contains("stand-in").all()
    assert "<script" not in page
    assert 'src="http' not in page
    for figure in folder.glob("*.png"):
        assert f"({figure.name})" in markdown
    assert page.count("data:image/png;base64,") == len(list(folder.glob("*.png")))


def test_the_crab_table_has_every_published_line(everything):
    summary = pd.read_csv(everything / "crab" / "summary.csv")
    found = set(zip(summary["line"], summary["n_models"].astype(str), strict=True))
    without_clusters = {key for key in published.CRAB if not key[0].startswith("k-means")}
    assert without_clusters <= found
    assert {("default-forest", "100"), ("default-k-means-ensemble", "100"), ("k-means-8", "1")} <= found
    both = summary[["published", "mean", "difference"]].dropna()
    np.testing.assert_allclose(both["difference"], both["mean"] - both["published"])


def test_full_plans_have_every_published_cell():
    trials = crab.CRAB.plan(Settings(), 10)
    assert len({trial.name for trial in trials}) == len(trials) == 400
    cells = set()
    for trial in trials:
        model, size = trial.parameters["model"], trial.parameters["size"]
        n_models = "1" if model in ("k-means", "li-ma-tree", "noisy-tree", "supervised-tree") else "100"
        cells |= {(crab.label_of(key, size), n_models) for key in crab.METHODS_OF[model]}
    assert set(published.CRAB) <= cells
    assert len(IMBALANCED.plan(Settings(), 20)) == 400
    assert {trial.parameters["region"] for trial in crab.CRAB_NULL.plan(SMALL, 10)} == {1, 2, 3, 4, 5}


def test_agreement_needs_a_part_of_the_crab_trials_only():
    wanted = [trial for trial in crab.CRAB.plan(Settings(), 1) if TARGETS["agreement"].wants(trial)]
    assert {(trial.parameters["model"], trial.parameters["size"]) for trial in wanted} == {
        *((model, depth) for model in ("li-ma-tree", "li-ma-forest") for depth in (4, 6)),
        *((model, k) for model in ("k-means", "k-means-ensemble") for k in (32, 128)),
        ("default-forest", 0),
        ("default-k-means-ensemble", 0),
    }


def test_published_tables_are_as_printed():
    assert published.CRAB["mithal-8", "100"] == (26.4465, 0.1804)
    assert published.CRAB["supervised-small", "1"] == (21.7351, 0.0)
    assert published.AGREEMENT["100"]["li-ma-4", "spearman"] == (0.7364, 0.0106)
    assert published.CRAB_NULL["k-means-128", "100"] == (0.3162, 0.6247)
    assert len(published.CRAB) == 58
    best = {line: published.CRAB[line, "100"].mean for line, _ in published.CRAB}
    assert max(best, key=best.get) == "mithal-8"  # bold in the paper


@pytest.mark.parametrize("name", ["li-ma-forest", "noisy-forest", "li-ma-tree", "default-forest"])
def test_judging_is_cross_val_detect(name):
    """The shared loop against the package's own cross-validation, which knows nothing of it."""
    data = crab_data(SMALL)
    model = MODELS[METHODS[name].model](4)
    if isinstance(model, OnOffForestClassifier):
        model.set_params(n_estimators=20)
    rule = METHODS[name].rule
    judged = judge_folds(model, [rule], data.X, data.on, data.folds(), alpha=data.alpha, seed=3)[rule]
    found = cross_val_detect(
        model.set_params(random_state=3), data.X, data.on.astype(int), alpha=data.alpha, groups=data.groups
    )
    np.testing.assert_array_equal(judged.selected, found.selected)
    np.testing.assert_allclose(judged.score, found.score)
    np.testing.assert_allclose(judged.thresholds, [fold.threshold for fold in found.folds])


def test_a_fake_on_region_is_null_test():
    data = crab_data(SMALL)
    tree = OnOffTreeClassifier(criterion="li_ma", max_depth=4, max_bins=None, random_state=SMALL.trial_seed(0))
    tested = null_test(tree, data.X, data.region, n_regions=data.n_regions, groups=data.groups)
    for region in (1, 4):
        row = crab.null_run(SMALL, {"model": "li-ma-tree", "size": 4, "trial": 0, "region": region})[0]
        assert row["significance"] == pytest.approx(tested.detections[region].significance)


def test_scores_of_a_trained_model_are_tuned_on_other_nights():
    on = np.array([1, 0, 1, 0, 1, 0, 0, 1], dtype=bool)
    score = np.array([0.9, 0.1, 0.8, 0.2, 0.1, 0.9, 0.8, 0.2])  # the second half has it the wrong way round
    half = np.arange(4)
    folds = [(half, half + 4), (half + 4, half)]
    judged = judge_scores(score, ["significance"], on, folds, alpha=1.0, seed=0)["significance"]
    assert judged.selected[4:].tolist() == [False, True, True, False]
    assert judged.thresholds[0] == pytest.approx(0.5)


def test_methods_name_known_models_and_rules():
    assert {method.model for method in METHODS.values()} == set(MODELS)
    assert {method.rule for method in METHODS.values()} <= set(RULES)


def test_all_forests_of_a_trial_see_the_same_noise_and_folds(monkeypatch):
    seen = {}

    def spy(model, rules, X, on, folds, **options):
        seen.setdefault(current, []).append((on.tolist(), [(a.tolist(), b.tolist()) for a, b in folds]))
        return judge_folds(model, rules, X, on, folds, **options)

    monkeypatch.setattr(imbalanced, "judge_folds", spy)
    for number in (0, 1):
        for part in ("paper", "ours"):
            current = (part, number)
            run_imbalanced(SMALL, {"set": "abalone", "p_plus": 0.1, "trial": number, "part": part})
    for number in (0, 1):
        first, *others = seen["paper", number] + seen["ours", number]
        assert len(others) == 2  # LiMa and Noisy Forest, and ours
        assert all(other == first for other in others)
    assert seen["paper", 0][0][0] != seen["paper", 1][0][0]
    assert seen["paper", 0][0][1] != seen["paper", 1][0][1]


def test_a_trial_of_the_sets_has_the_methods_of_its_part():
    rows = {
        part: run_imbalanced(SMALL, {"set": "abalone", "p_plus": 0.1, "trial": 0, "part": part})
        for part in ("paper", "ours")
    }
    assert [row["method"] for row in rows["paper"]] == [
        "li-ma-forest",
        "noisy-forest",
        "menon-forest",
        "mithal-forest",
        "noisy-forest-near-best",
    ]
    assert rows["ours"][0]["method"] == "default-forest"
    again = run_imbalanced(SMALL, {"set": "abalone", "p_plus": 0.1, "trial": 0, "part": "paper"})
    assert again == rows["paper"]
    other = run_imbalanced(SMALL, {"set": "abalone", "p_plus": 0.1, "trial": 1, "part": "paper"})
    assert other != rows["paper"]
    row = rows["paper"][0]
    harmonic = 2 * row["precision"] * row["recall"] / (row["precision"] + row["recall"])
    assert row["f1"] == pytest.approx(harmonic)


def test_missing_sets_are_named_with_where_to_get_them(tmp_path, capsys):
    with pytest.raises(MissingDataError, match=r"x5data\.npz \(abalone\) is missing.*zenodo\.org.*crab-null"):
        imbalanced_set("abalone", Settings(data=tmp_path))
    (tmp_path / "zenodo").mkdir()
    (tmp_path / "zenodo" / "x6data.npz").touch()
    assert run_cli("reproduce", "imbalanced", "--data", tmp_path, "--out", tmp_path / "out") == 1
    said = capsys.readouterr().err
    for name, number in IMBALANCED_SETS.items():  # all at once
        assert (f"zenodo/x{number}data.npz ({name})" in said) == (name != "sick_euthyroid")
    assert not (tmp_path / "out" / "trials").exists()


def test_a_failed_download_is_one_sentence(monkeypatch):
    datasets = pytest.importorskip("imblearn.datasets")

    def offline(**options):
        raise OSError("no network")

    monkeypatch.setattr(datasets, "fetch_datasets", offline)
    imbalanced_set.cache_clear()
    with pytest.raises(MissingDataError, match=r"abalone: cannot be downloaded from .*no network.*--data"):
        imbalanced_set("abalone", Settings())


def test_local_sets_are_read(tmp_path):
    pytest.importorskip("imblearn")
    folder = tmp_path / "imblearn" / "zenodo"
    folder.mkdir(parents=True)
    X = np.arange(12.0).reshape(6, 2)
    np.savez(folder / f"x{IMBALANCED_SETS['abalone']}data.npz", data=X, label=np.array([-1, -1, 1, -1, 1, -1]))
    imbalanced_set.cache_clear()
    found = imbalanced_set("abalone", Settings(data=tmp_path))
    np.testing.assert_array_equal(found.X, X)
    assert found.clean.tolist() == [0, 0, 1, 0, 1, 0]


def test_fact_files_take_the_place_of_the_simulation(tmp_path):
    events = simulate_observation(40_000, 400, random_state=5)
    keys = ["night", "run_id", "event_num"]
    angles = [name for name in events if name.startswith("theta")]
    write_events(events.drop(columns=[*angles, "is_signal"]), tmp_path / "open_crab_sample_facttools_dl2.hdf5")
    write_events(events[[*keys, *angles]], tmp_path / "open_crab_sample_dl3.hdf5")
    settings = Settings(data=tmp_path)
    assert set(fact_files(settings)) == {"dl2", "dl3"}
    data = crab_data(settings)
    assert data.on.sum() == (events["theta_deg"] ** 2 < 0.025).sum()
    assert labelled_events("train", settings) is None
    rows = crab.run(settings, {"model": "noisy-tree", "size": 4, "trial": 0})
    assert [row["line"] for row in rows] == ["noisy-4", "menon-4", "mithal-4"]
    assert "pearson" not in rows[0]  # nothing to compare with
    assert not any(trial.parameters["model"].startswith("supervised") for trial in crab.CRAB.plan(settings, 1))
    labelled = simulate_labelled(60, 80, random_state=1)
    for kind, part in labelled.groupby("is_signal"):
        write_events(part.drop(columns="is_signal"), tmp_path / f"{'gamma' if kind else 'proton'}.hdf5")
    labelled_events.cache_clear()
    assert labelled_events("train", settings).is_signal.tolist() == [True] * 30 + [False] * 40
    assert crab.CRAB.identify(settings)["crab"].keys() == {"dl2", "dl3", "gamma", "proton"}


def test_real_data_make_a_page_that_does_not_say_simulated(tmp_path):
    events = simulate_observation(40_000, 400, random_state=5).drop(columns="is_signal")
    (tmp_path / "fact").mkdir()
    write_events(events, tmp_path / "fact" / "crab_dl2.hdf5")
    settings = Settings(data=tmp_path)
    folder = tmp_path / "out" / "trials" / "crab-null"
    crab_data.cache_clear()
    trials = [trial for trial in crab.CRAB_NULL.plan(settings, 2) if trial.parameters["model"] == "li-ma-tree"]
    run_study(crab.CRAB_NULL, trials, settings, folder)
    said = []
    pages = reproduce_targets(
        ["crab-null"], tmp_path / "out", settings, n_trials=2, only_finished=True, tell=said.append
    )
    assert said == ["crab-null: 4 of 16 trials are finished"]
    text = pages["crab-null"].read_text()
    assert "FACT&#x27;s files" in text
    assert "simulated" not in text.lower()


def test_finished_trials_of_other_settings_make_no_page(everything, capsys):
    assert run_cli("reproduce", "crab", "--finished", "--out", everything) == 1
    assert "small is true there and false now" in capsys.readouterr().err


def test_unknown_targets_and_folders(tmp_path, capsys):
    assert chosen_targets(["all"]) == list(TARGETS)
    assert run_cli("reproduce", "crabs", "--out", tmp_path) == 1
    assert "did you mean 'crab'" in capsys.readouterr().err
    assert run_cli("reproduce", "crab", "--data", tmp_path / "nowhere", "--out", tmp_path) == 2


def test_a_missing_library_is_named_before_any_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run_cli("reproduce", "calibration", "--small", "--out", tmp_path) == 1
    assert "needs pyarrow: pip install 'excess[experiments]'" in capsys.readouterr().err
    assert not (tmp_path / "trials").exists()


def test_json_names_the_pages(tmp_path, capsys):
    assert run_cli("reproduce", "calibration", "--trials", 1, "--small", "-j", 1, "--out", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"calibration": str(tmp_path / "calibration" / "page.html")}


@pytest.mark.parametrize(
    ("values", "theirs", "n", "expected"),
    [
        ([1.0, 3.0], Value(1.0, 2.0), 4, (1.0, np.sqrt(2 / 2 + 4 / 4))),
        ([2.0], Value(1.0, 2.0), 4, (1.0, np.nan)),
        ([1.0, 3.0], None, 4, (np.nan, np.nan)),
    ],
)
def test_differences_and_their_errors(values, theirs, n, expected):
    found = compare(values, theirs, n)
    np.testing.assert_allclose((found.difference, found.error), expected)


def test_pages_escape_what_they_show():
    page = Page("a < b", "made up", ["1 & 2"], [Table("t", ("x", "y"), [("<i>", "2")])])
    text = as_html(page, {})
    assert "a &lt; b" in text
    assert "&lt;i&gt;" in text
    assert "<i>" not in text
    assert "| x | y |\n| --- | --: |\n| <i> | 2 |" in as_markdown(page)


def test_calibration_tables_count_what_exceeds():
    rows = [
        {"rule": "largest", "n_signal": 0, "pooled": s, "forward": s, "p_value": p, "p_value_spread": p, "uncut": s}
        for s, p in zip([-1.0, 0.0, 1.0, 2.0], [0.9, 0.5, 0.2, 0.05], strict=True)
    ]
    rows.append({**rows[0], "n_signal": 20, "pooled": 5.0, "forward": 1.0, "p_value": 0.025, "uncut": 2.0})
    frame = pd.DataFrame(rows)
    lines = {line[1]: line for line in false_alarms(frame).lines}
    assert lines["pooled"][4:7] == ("0.250", "0.000", "0.000")
    assert lines["permutation"][4] == "0.250"
    found = power(frame).set_index("signal").loc[20]
    assert found["no cut"] == found["pooled, true level"] == found["permutation"] == 1
    assert found["forward"] == 0


def test_diagram_has_a_bar_for_each_group_and_the_best_on_the_right():
    table = np.array([[published.IMBALANCED[name, m].mean for m in published.FORESTS] for name in IMBALANCED_SETS])
    axes = plot_critical_difference(compare_ranks(table, ["LiMa", "Noisy", "Menon", "Mithal"]))
    left, right = axes.get_xlim()
    assert left > right  # ranks go down to the right
    bars = [line for line in axes.lines if line.get_linewidth() == 4]
    ends = sorted((round(min(bar.get_xdata()), 9), round(max(bar.get_xdata()), 9)) for bar in bars)
    assert ends == [(1.55, 2.5), (2.5, 3.1)]  # at the ranks of their groups, and no cap beyond them
    assert {bar.get_solid_capstyle() for bar in bars} == {"butt"}
    assert len({bar.get_ydata()[0] for bar in bars}) == 2  # not on each other
    sides = {text.get_text().split()[0]: text.get_ha() for text in axes.texts if "  " in text.get_text()}
    assert sides == {"Noisy": "left", "LiMa": "left", "Menon": "right", "Mithal": "right"}


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_pages_of_nothing_are_refused_and_leave_nothing(tmp_path, capsys):
    assert run_cli("reproduce", "all", "--finished", "--out", tmp_path) == 1
    assert "no page could be made" in capsys.readouterr().err
    assert files_of(tmp_path) == []
    assert run_cli("reproduce", "crab", "--finished", "--out", tmp_path / "nowhere") == 1
    assert "is not a folder" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_pages_need_no_data_and_go_along_with_a_run(everything, tmp_path, monkeypatch, capsys):
    """Trials of downloaded sets and FACT's sample, on a machine that has neither."""
    trials = tmp_path / "trials"
    shutil.copytree(everything / "trials", trials)
    for study in ("imbalanced", "imbalanced-more-noise", "crab", "crab-null", "roc"):
        path = trials / study / "settings.json"
        known = {**json.loads(path.read_text()), "small": False}
        known |= (
            {"sets": {"abalone": "ff"}} if "sets" in known else {"crab": {"dl2": "aa", "gamma": "b", "proton": "c"}}
        )
        path.write_text(json.dumps(known))
    before = {path: path.read_bytes() for path in trials.rglob("*") if path.is_file()}

    def refuse(*arguments, **options):
        raise AssertionError("no data are needed")

    for module, name in (("datasets", "imbalanced_set"), ("crab_data", "crab_data"), ("crab_page", "crab_data")):
        monkeypatch.setattr(f"excess.reproduction.{module}.{name}", refuse)
    names = ("imbalanced", "imbalanced-more-noise", "critical-difference", "crab", "crab-null", "agreement", "roc")
    with locked(tmp_path):  # a run is going on
        assert run_cli("reproduce", *names, "--finished", "--trials", 1, "--out", tmp_path) == 0
    assert before == {path: path.read_bytes() for path in trials.rglob("*") if path.is_file()}
    text = (tmp_path / "crab" / "page.md").read_text()
    assert "FACT's files of the Crab Nebula, labelled events from files of gammas and of protons" in text
    assert "simulated" not in text.lower()
    assert run_cli("reproduce", "crab", "--finished", "--seed", 1, "--out", tmp_path) == 1
    assert "seed is 0 there and 1 now" in capsys.readouterr().err


def test_pages_compare_data_that_are_given(everything, tmp_path, capsys):
    """Simulated trials must not become a page of FACT's sample."""
    shutil.copytree(everything / "trials" / "crab-null", tmp_path / "trials" / "crab-null")
    path = tmp_path / "trials" / "crab-null" / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "small": False}))
    (tmp_path / "data").mkdir()
    arguments = ("reproduce", "crab-null", "--finished", "--data", tmp_path / "data", "--out", tmp_path)
    assert run_cli(*arguments) == 0  # the folder has nothing to compare with
    (tmp_path / "data" / "crab_dl2.h5").write_bytes(b"other")
    assert run_cli(*arguments) == 1
    assert 'crab is "simulated" there' in capsys.readouterr().err


def test_real_data_without_labels_are_said_before_any_work(tmp_path, capsys, monkeypatch):
    (tmp_path / "crab_dl2.h5").write_bytes(b"events")
    out = tmp_path / "out"
    for name in ("roc", "agreement"):
        assert run_cli("reproduce", name, "--data", tmp_path, "--out", out) == 1
        assert f"{name}: needs files gamma*.hdf5 and proton*.hdf5" in capsys.readouterr().err
    assert not (out / "trials").exists()
    done = []
    monkeypatch.setattr("excess.reproduction.running.run_study", lambda study, *_, **__: done.append(study.name))
    monkeypatch.setattr("excess.reproduction.running._write_pages", lambda names, *_: dict.fromkeys(names, out))
    monkeypatch.setattr("excess.reproduction.datasets._check_files", lambda *_: None)
    monkeypatch.setattr("excess.reproduction.datasets.imbalanced_set", lambda *_: (np.zeros(1), np.zeros(1)))
    assert run_cli("reproduce", "all", "--data", tmp_path, "--out", out) == 0
    said = capsys.readouterr().err
    assert "roc: needs files" in said
    assert "agreement: needs files" in said
    assert done == ["crab", "crab-null", "imbalanced", "imbalanced-more-noise", "calibration"]


def test_labelled_files_without_the_sample_are_said_to_be_ignored(tmp_path, capsys, monkeypatch):
    for name in ("gamma.h5", "proton.h5"):
        (tmp_path / name).touch()
    monkeypatch.setattr("excess.reproduction.running.reproduce_targets", lambda *_, **__: {"roc": tmp_path})
    assert run_cli("reproduce", "roc", "--data", tmp_path, "--out", tmp_path / "out") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "https://factdata.app.tu-dortmund.de/ has the real sample" in said
    assert "files of gammas and protons are ignored" in said


def test_an_interrupted_run_says_how_it_goes_on(tmp_path, capsys, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("excess.reproduction.running.run_study", interrupt)
    assert run_cli("reproduce", "calibration", "--small", "--out", tmp_path) == 130
    assert "the same command goes on where it was" in capsys.readouterr().err


def test_the_command_names_all_targets():
    assert ", ".join(TARGETS) + ", or all" == command._TARGETS


def test_a_plan_simulates_nothing(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("events were made")

    for name in ("labelled_events", "crab_data"):
        monkeypatch.setattr(crab, name, refuse)
    assert any(trial.parameters["model"] == "supervised-forest" for trial in crab.CRAB.plan(Settings(), 1))
    assert len(crab.CRAB_NULL.plan(Settings(), 10)) == 80


def f1_rows(cells):
    """Rows of F1 from (set, method): {trial: F1}."""
    return pd.DataFrame(
        [
            {"set": name, "method": method, "trial": trial, "f1": f1, "f1_of_folds": f1}
            for (name, method), values in cells.items()
            for trial, f1 in values.items()
        ]
    )


@pytest.fixture
def uneven():
    """Three trials of the paper's four on all sets; ours has two of them on one set, and one on another."""
    cells = {}
    for name in IMBALANCED_SETS:
        for j, method in enumerate(imbalanced.PAPER_METHODS):
            cells[name, method] = {0: 0.1 + 0.1 * j, 1: 0.1 + 0.1 * j, 2: 0.9 - 0.1 * j}
        cells[name, "default-forest"] = {0: 0.25, 1: 0.25, 2: 0.25}
    cells["letter_img", "default-forest"] = {0: 0.25, 1: 0.25}
    cells["protein_homo", "default-forest"] = {2: 0.25}
    return f1_rows(cells)


def test_forests_are_compared_on_common_trials(uneven):
    five = (*imbalanced.PAPER_METHODS, "default-forest")
    means = imbalanced_page.common_means(uneven, five)
    assert list(means.index) == [name for name in IMBALANCED_SETS if name != "protein_homo"]
    np.testing.assert_allclose(means.loc["letter_img"], [0.1, 0.2, 0.3, 0.4, 0.25])  # not the third trial of the four
    np.testing.assert_allclose(means.loc["abalone"].iloc[0], (0.1 + 0.1 + 0.9) / 3)
    assert len(imbalanced_page.common_means(uneven, imbalanced.PAPER_METHODS)) == 10
    once = imbalanced_page.common_means(uneven[uneven["trial"] == 2], five)
    assert list(once.index) == [name for name in IMBALANCED_SETS if name != "letter_img"]  # one trial is all there is


def test_tables_say_their_sets_and_what_they_rank_among(uneven):
    page = imbalanced_page.imbalanced_page({"imbalanced": uneven}, Settings(), {})
    averages, further, glance, cells = page.tables
    assert averages.title == "Averages over 10 sets"
    assert [line[0] for line in averages.lines] == ["LiMa Forest", "Noisy Forest", "Menon Forest", "Mithal Forest"]
    assert averages.lines[0][3] == "0.367"
    assert "rank among the paper's four, ours" in averages.columns
    assert further.columns[3] == "its mean F1 (rank of five)"
    (line,) = further.lines
    assert line[:4] == ("Our default forest", "9 sets (left out: protein_homo)", "2 to 3", "0.250 (4.78)")
    assert "10 sets" in glance.title
    assert "10 sets" in cells.title
    differences = imbalanced_page.critical_difference_page({"imbalanced": uneven}, Settings(), {})
    captions = [figure.caption for figure in differences.figures]
    assert ["10 sets;" in caption for caption in captions] == [True, True, False]
    assert "9 sets (left out: protein_homo)" in captions[2]
    assert differences.summary.groupby("table")["n_sets"].first().to_dict() == {
        "ours": 10,
        "ours, with our default": 9,
        "published": 10,
    }


def test_one_trial_has_no_spread_to_speak_of(uneven):
    one = imbalanced_page.imbalanced_page({"imbalanced": uneven[uneven["trial"] == 0]}, Settings(), {})
    assert "standard deviations" not in one.text[1]
    more = imbalanced_page.imbalanced_page({"imbalanced": uneven}, Settings(), {})
    assert "within two of our standard deviations" in more.text[1]


def test_errors_of_fake_regions_are_from_regions():
    part = pd.DataFrame({"region": [1, 2, 3] * 4, "significance": [1.0, -1.0, 2.0] * 4})
    found, signed = crab_page._without_source(part, Value(0.0, 0.0))
    assert found.n == 12
    assert found.mean == pytest.approx(1.0)
    assert found.error == pytest.approx(np.std([1.0, 0.0, 2.0], ddof=1) / np.sqrt(3))
    assert signed.mean == pytest.approx(2 / 3)


def test_equal_repetitions_have_no_error():
    third = 17.1 / 3
    assert compare([third] * 10, Value(5.0, 0.0), 10).cells(2) == ("5.00", "5.70", "+0.70")
    assert pm(1.0, 0.001, 2) == "1.00 ± 0.00"  # small, but not none


def crab_rows(n_of_lines):
    return pd.DataFrame(
        [
            {"line": line, "n_models": n_models, "significance": 20.0 + 0.1 * number}
            for (line, n_models), n in n_of_lines.items()
            for number in range(n)
        ]
    )


def test_the_crab_page_names_models_and_marks_few_repetitions():
    rows = crab_rows({("li-ma-4", 1): 10, ("li-ma-4", 100): 10, ("k-means-8", 100): 3, ("default-forest", 100): 10})
    page = crab_page.crab_page({"crab": rows}, SMALL, {"crab": "simulated"})
    assert [line[0] for line in page.tables[0].lines] == [
        "k-means / ensemble, 8 clusters",
        "LiMa Tree / Forest, depth 4",
        "Our default forest",
    ]
    assert any("one observation" in paragraph for paragraph in page.text)
    (axes,) = page.figures[0].drawing.axes
    circles = [line for line in axes.lines if line.get_marker() == "o"]
    fills = {tuple(map(float, line.get_ydata())): line.get_markerfacecolor() for line in circles}
    assert [at for at, fill in fills.items() if fill == "white"] == [(0.0,)]
    assert "ours on" not in page.figures[0].caption
    assert "Open circles" in page.figures[0].caption


def test_wide_tables_scroll_inside_the_page():
    text = as_html(Page("t", "d", tables=[Table("t", ("x",), [("1",)])]), {})
    assert '<div class="wide"><table>' in text
    assert ".wide { overflow-x: scroll" in text


def test_our_threshold_is_the_default_of_the_forest(monkeypatch):
    called = {}
    monkeypatch.setattr(
        "excess.reproduction.methods.significance_threshold", lambda *_, **options: called.update(options) or 0.5
    )
    RULES["near-best"](None, None, None, 1.0, 7)
    defaults = OnOffForestClassifier()
    assert called == {
        "tolerance": defaults.threshold_tolerance,
        "n_bootstrap": defaults.n_threshold_bootstrap,
        "random_state": 7,
    }
