"""Data of the reproduction: sets that are missing, FACT's files, and what is said about them."""

from __future__ import annotations

import numpy as np
import pytest

from excess.cli import main
from excess.events import write_events
from excess.observation.simulation import simulate_labelled, simulate_observation
from excess.reproduction import crab
from excess.reproduction.crab_data import crab_data, fact_files, labelled_events
from excess.reproduction.datasets import IMBALANCED_SETS, MissingDataError, imbalanced_set
from excess.reproduction.running import reproduce_targets
from excess.reproduction.settings import Settings
from excess.reproduction.trials import run_study


def run_cli(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return ended.value.code


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
    assert labelled_events("train", settings).clean.tolist() == [1] * 30 + [0] * 40
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
        ["crab-null"], tmp_path / "out", settings, n_trials=2, only_finished=True, report=said.append
    )
    assert said == ["crab-null: 4 of 16 trials are finished"]
    text = pages["crab-null"].read_text()
    assert "FACT&#x27;s files" in text
    assert "simulated" not in text.lower()


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
