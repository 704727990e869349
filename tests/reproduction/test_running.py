"""Every target on small stand-ins: files, refusals, and pages of finished trials."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

from excess.cli import main
from excess.cli import reproduce as command
from excess.reproduction import published
from excess.reproduction.running import chosen_targets
from excess.reproduction.settings import Settings
from excess.reproduction.targets import TARGETS
from excess.reproduction.trials import locked

SMALL = Settings(small=True)


def run_cli(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return ended.value.code


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


def test_every_line_of_the_crab_table_has_a_likelihood(everything):
    """All On/Off classifiers and the supervised reference have signal ratios."""
    summary = pd.read_csv(everything / "crab" / "summary.csv")
    assert np.isfinite(summary["mean_likelihood"]).all()
    by_line = summary[summary["n_models"] == 100].set_index("line")["mean_likelihood"]
    assert by_line["noisy-6"] == by_line["menon-6"] == by_line["mithal-6"]
    assert by_line["noisy-6"] != by_line["li-ma-6"]
    assert np.isfinite(pd.read_csv(everything / "crab-null" / "summary.csv")["mean_likelihood"]).all()


def test_finished_trials_of_other_settings_make_no_page(everything, capsys):
    assert run_cli("reproduce", "crab", "--finished", "--out", everything) == 1
    assert "small is true there and false now" in capsys.readouterr().err


def test_unknown_targets_and_folders(tmp_path, capsys):
    assert chosen_targets(["all"]) == list(TARGETS)
    assert run_cli("reproduce", "crabs", "--out", tmp_path) == 2
    assert "did you mean 'crab'" in capsys.readouterr().err
    assert run_cli("reproduce", "crab", "--data", tmp_path / "nowhere", "--out", tmp_path) == 2


def test_a_missing_library_is_named_before_any_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run_cli("reproduce", "calibration", "--small", "--out", tmp_path) == 1
    assert "needs pyarrow: pip install pyarrow" in capsys.readouterr().err
    assert not (tmp_path / "trials").exists()


@pytest.mark.slow
def test_json_names_the_pages(tmp_path, capsys):
    assert run_cli("reproduce", "calibration", "--trials", 1, "--small", "-j", 1, "--out", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"calibration": str(tmp_path / "calibration" / "page.html")}


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_pages_of_nothing_are_refused_and_leave_nothing(tmp_path, capsys):
    assert run_cli("reproduce", "all", "--finished", "--out", tmp_path) == 1
    assert "no page could be made" in capsys.readouterr().err
    assert files_of(tmp_path) == []
    assert run_cli("reproduce", "crab", "--finished", "--out", tmp_path / "nowhere") == 1
    assert "is not a folder" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_an_interrupted_run_says_how_to_resume_it(tmp_path, capsys, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("excess.reproduction.running.run_study", interrupt)
    assert run_cli("reproduce", "calibration", "--small", "--out", tmp_path) == 130
    assert "the same command resumes the run" in capsys.readouterr().err


def test_the_command_names_all_targets():
    assert ", ".join(TARGETS) + ", or all" == command._TARGETS
