"""Event lists whose events are each scored by the model of a cross-validation that was not trained on their group."""

import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from gadf_file import N_EVENTS, SOURCE, write_gadf_run
from helpers import run_command

from excess import ModelFileError
from excess.analysis import FoldModels, OnOffDataset, apply, detect, efficiency, load_models, read_run
from excess.dataset import simulate_observation
from excess.io import EventFileError, read_events, write_events
from excess.stats import event_fraction


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a run and of its scored events, by the command line."""
    folder = tmp_path_factory.mktemp("scored")
    write_events(simulate_observation(40_000, 400, random_state=0), folder / "events.parquet")
    options = ["-o", folder / "run", "--write-events", folder / "scored", "-m", "li-ma-tree", "--no-null-test"]
    assert run_command("detect", folder / "events.parquet", *options) == 0
    return folder


def test_each_event_has_the_score_of_its_fold(folder):
    scored = read_events(folder / "scored" / "events.parquet")
    run = read_run(folder / "run")
    found, used = run.detections["li-ma-tree"], scored.iloc[run.events["row"]]
    assert len(scored) == 40_000
    assert scored["excess_score"].notna().all()  # events outside all regions as well
    np.testing.assert_array_equal(used["excess_score"], found.score)
    np.testing.assert_array_equal(used["excess_fold"], found.fold)
    inside = run.events["core"].to_numpy()
    np.testing.assert_array_equal(used["excess_selected"][inside], found.selected[inside])


def test_models_have_not_seen_the_groups_that_they_score(folder):
    models = load_models(folder / "run")
    scored = read_events(folder / "scored" / "events.parquet")
    assert len(models.models) == scored["night"].nunique() == 5
    for number, trained in enumerate(models.models):
        own = scored.loc[scored["excess_fold"] == number, "night"]
        assert len(own) > 0
        assert not set(own) & set(trained.groups)


def test_a_run_folder_is_applied_like_a_model(folder, tmp_path):
    apply(folder / "run", folder / "events.parquet", tmp_path / "again.parquet")
    written, again = (read_events(path) for path in (folder / "scored" / "events.parquet", tmp_path / "again.parquet"))
    assert again.equals(written)


def test_folds_without_groups_are_rejected(tmp_path):
    observation = OnOffDataset.from_files(simulate_observation(20_000, 200, random_state=0), groups="none")
    with pytest.raises(ValueError, match=r"write_events.*groups"):
        detect(observation, "li-ma-tree", keep_models=True)


def test_a_changed_archive_is_rejected(folder, tmp_path):
    source = folder / "run" / "fold_models.zip"
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(tmp_path / "twice.zip", "w", zipfile.ZIP_DEFLATED) as twice:
        for name in given.namelist():
            twice.writestr(name, given.read(name))
    (tmp_path / "cut.zip").write_bytes(source.read_bytes()[:-100])
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    for name in ("twice.zip", "cut.zip", "empty.zip"):
        with pytest.raises(ModelFileError, match=name):
            FoldModels.load(tmp_path / name)
    with pytest.raises(ModelFileError, match="write-events"):
        load_models(tmp_path)


@pytest.fixture(scope="module")
def scored_runs(tmp_path_factory):
    """The folder of a run on three FITS runs, each its own fold, with their scored copies and simulated gammas."""
    fits = pytest.importorskip("astropy.io.fits")
    folder = tmp_path_factory.mktemp("runs")
    runs = [folder / f"run_{number}.fits" for number in (1, 2, 3)]
    for number, path in enumerate(runs, start=1):
        write_gadf_run(path, obs_id=number, seed=number)
        with fits.open(path, mode="update") as hdus:
            hdus["EVENTS"].data["HIL_MSW"][: N_EVENTS // 10] -= 2  # events of the source
    (folder / "config.yaml").write_text(
        "features: [energy, hil_msw]\nderived_features: {}\nquality_cuts: [energy > 0.6]\ngroups: obs_id\n"
    )
    options = ["-c", folder / "config.yaml", "--source-ra", SOURCE[0], "--source-dec", SOURCE[1], "-m", "forest"]
    options += ["--no-null-test", "-o", folder / "run", "--write-events", folder / "scored"]
    assert run_command("detect", *runs, *options) == 0
    rng = np.random.default_rng(0)
    energy = rng.uniform(0.4, 20, 3000)
    gammas = pd.DataFrame({"true_energy": energy, "energy": energy, "hil_msw": rng.normal(-2, 1, 3000)})
    write_events(gammas, folder / "gammas.parquet")
    return folder


def _tables(fits, path):
    """Return events and effective area of a run."""
    return [fits.getdata(path, name) for name in ("EVENTS", "EFFECTIVE AREA")]


class TestEfficiencyByFold:
    def test_each_fold_has_the_efficiency_of_its_model(self, scored_runs):
        models = load_models(scored_runs / "run")
        found = efficiency(models, scored_runs / "gammas.parquet", energy_bins=[0.4, 2, 20])
        alone = [efficiency(one, scored_runs / "gammas.parquet", energy_bins=[0.4, 2, 20]) for one in models.models]
        for own, expected in zip(found.folds, alone, strict=True):
            pd.testing.assert_frame_equal(own.table, expected.table)
        selected = np.array([one.counts["selected"] for one in alone])
        assert len(np.unique(selected.sum(axis=(1, 2)))) > 1
        np.testing.assert_allclose(found.counts["selected"], selected.mean(axis=0))
        # the same gammas for all folds, so the error of the mean is that of one sample
        one = event_fraction(found.mean().value * 3000, 3000)
        assert found.mean().error == pytest.approx(one.error)

    def test_the_area_of_a_run_is_that_of_its_fold(self, scored_runs, tmp_path):
        fits = pytest.importorskip("astropy.io.fits")
        found = efficiency(scored_runs / "run", scored_runs / "gammas.parquet")
        for path in sorted((scored_runs / "scored").glob("*.fits")):
            copy = found.correct_effective_area(path, tmp_path / path.name, of="quality")
            (events, area), (kept, corrected) = (_tables(fits, one) for one in (path, copy))
            [fold] = np.unique(events["EXCESS_FOLD"])
            energy = np.sqrt(area["ENERG_LO"] * area["ENERG_HI"])[0]
            expected = area["EFFAREA"][0] * found.folds[fold].at(energy, of="quality")
            np.testing.assert_allclose(corrected["EFFAREA"][0], expected, rtol=1e-6)
            selected = events["EXCESS_SELECTED"]
            assert 0 < selected.sum() < len(selected)
            np.testing.assert_array_equal(kept["EVENT_ID"], events["EVENT_ID"][selected])

    def test_a_response_shared_by_runs_is_found_by_the_index(self, scored_runs, tmp_path):
        """As in public data releases: files of events, an index, and a file with the response of several runs."""
        fits, folder = pytest.importorskip("astropy.io.fits"), tmp_path / "store"
        (folder / "events").mkdir(parents=True)
        paths, rows, shared = sorted((scored_runs / "scored").glob("*.fits")), [], [fits.PrimaryHDU()]
        for number, path in enumerate(paths, start=1):
            with fits.open(path) as hdus:
                hdus["EVENTS"].header.update({"CALDB": "1dc", "IRF": "North"})
                fits.HDUList(hdus[:3]).writeto(folder / "events" / path.name)
                for hdu in hdus[3:]:
                    hdu.name = f"{hdu.name[:6]}_{number % 2}"  # runs 1 and 3 have the same response
                shared += [hdu.copy() for hdu in hdus[3:] if number < 3]
            names = [("events", "events", path.name, "EVENTS"), ("gti", "events", path.name, "GTI")]
            names += [(kind, ".", "irf.fits", hdu.name) for kind, hdu in zip(("aeff", "edisp"), hdus[3:], strict=True)]
            rows += [(number, *own) for own in names]
        fits.HDUList(shared).writeto(folder / "irf.fits")
        forms = {"OBS_ID": "K", "HDU_TYPE": "10A", "FILE_DIR": "10A", "FILE_NAME": "20A", "HDU_NAME": "20A"}
        of_column = zip(forms.items(), zip(*rows, strict=True), strict=True)
        index = [fits.Column(name, form, array=np.array(own)) for (name, form), own in of_column]
        fits.BinTableHDU.from_columns(index).writeto(folder / "hdu-index.fits.gz")
        copies = sorted((folder / "events").iterdir())
        arguments = ["efficiency", scored_runs / "run", scored_runs / "gammas.parquet", "--aeff", *copies]
        assert run_command(*arguments, "-o", tmp_path / "selected") == 0
        found = efficiency(scored_runs / "run", scored_runs / "gammas.parquet")
        for number, path in zip((1, 0, 1), paths, strict=True):
            events, area = fits.getdata(path, "EVENTS"), fits.getdata(folder / "irf.fits", f"EFFECT_{number}")
            kept, corrected = _tables(fits, tmp_path / "selected" / path.name)
            np.testing.assert_array_equal(kept["EVENT_ID"], events["EVENT_ID"][events["EXCESS_SELECTED"]])
            energy = np.sqrt(area["ENERG_LO"] * area["ENERG_HI"])[0]
            expected = area["EFFAREA"] * found.folds[events["EXCESS_FOLD"][0]].at(energy)
            np.testing.assert_allclose(corrected["EFFAREA"], expected, rtol=1e-6)
            with fits.open(tmp_path / "selected" / path.name) as hdus:
                assert [hdu.name for hdu in hdus[1:]] == ["EVENTS", "GTI", "EFFECTIVE AREA", "ENERGY DISPERSION"]
                assert "CALDB" not in hdus[1].header

    def test_event_types_divide_events_and_area(self, scored_runs, tmp_path):
        fits = pytest.importorskip("astropy.io.fits")
        path = scored_runs / "scored" / "run_2.fits"
        arguments = ["efficiency", scored_runs / "run", scored_runs / "gammas.parquet", "--aeff", path]
        assert run_command(*arguments, "--event-types", 2, "--of", "quality", "-o", tmp_path) == 0
        every, whole = _tables(fits, path)
        events, areas = zip(*(_tables(fits, tmp_path / f"type_{number}" / path.name) for number in (1, 2)), strict=True)
        assert not (tmp_path / path.name).exists()
        probabilities = [own["EXCESS_SIGNAL_PROBABILITY"] for own in events]
        assert [np.unique(own["EVENT_TYPE"]).tolist() for own in events] == [[1], [2]]
        assert probabilities[0].min() > probabilities[1].max()
        assert sum(map(len, events)) == np.isfinite(every["EXCESS_SCORE"]).sum() < len(every)
        # all gammas that pass the quality cuts have a type
        np.testing.assert_allclose(areas[0]["EFFAREA"] + areas[1]["EFFAREA"], whole["EFFAREA"], rtol=1e-6)
        table = pd.read_csv(tmp_path / "efficiency_by_fold.csv")
        shares = (
            table.groupby(["fold", "event_type"])["n_selected"].sum() / table.groupby("fold")["n_quality"].sum() * 2
        )
        assert shares.between(0.1, 0.9).all()

    def test_files_without_folds_are_rejected(self, scored_runs, tmp_path):
        found = efficiency(scored_runs / "run", scored_runs / "gammas.parquet")
        with pytest.raises(EventFileError, match=r"run_1.fits.*--write-events"):
            found.correct_effective_area(scored_runs / "run_1.fits", tmp_path / "out.fits")
        fewer = replace(found, folds=found.folds[:1])
        with pytest.raises(EventFileError, match=r"run_2.fits.*1 folds"):
            fewer.correct_effective_area(scored_runs / "scored" / "run_2.fits", tmp_path / "out.fits")
        with pytest.raises(ValueError, match="event_types"):
            efficiency(scored_runs / "run", scored_runs / "gammas.parquet", event_types=500)
