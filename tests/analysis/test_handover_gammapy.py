"""Scored FITS runs in gammapy: event lists, data stores and spectra of selected events."""

import warnings

import numpy as np
import pytest
from gadf_file import N_EVENTS, SOURCE, write_gadf_run
from helpers import SHARED, run_command

from excess.analysis import apply, train
from excess.config import AnalysisConfig, RegionConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import EventFileError, read_events

fits = pytest.importorskip("astropy.io.fits")
pytest.importorskip("gammapy")

JOINT_CRAB = SHARED / "data" / "fact" / "joint-crab"
RADIUS = np.sqrt(0.025)


@pytest.fixture(scope="module")
def trained():
    """A model of the columns of the small run."""
    names = {"width": "energy", "length": "hil_msw"}
    table = simulate_observation(20_000, 400, random_state=0).rename(columns=names)
    config = AnalysisConfig(features=["energy", "hil_msw"], derived_features={}, quality_cuts=[])
    return train(OnOffDataset.from_files(table, config), "li-ma-tree")


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    for number in (1, 2, 3):
        write_gadf_run(folder / f"run_{number}.fits", obs_id=number, seed=number)
    return sorted(folder.iterdir())


def write_index(folder, irf_dir="."):
    """Write the index that gammapy makes, with the instrument response in a file of its own."""
    from gammapy.data import DataStore

    store = DataStore.from_events_files(sorted(folder.glob("run_*.fits")))
    hdus, observations = store.hdu_table, store.obs_table
    is_irf = np.isin(hdus["HDU_TYPE"], ["aeff", "edisp"])
    hdus["FILE_DIR"] = [irf_dir if irf else "." for irf in is_irf]
    hdus["FILE_NAME"] = ["irf.fits" if irf else name for irf, name in zip(is_irf, hdus["FILE_NAME"], strict=True)]
    hdus["SIZE"] = 1
    hdus.write(folder / "hdu-index.fits.gz")
    observations.write(folder / "obs-index.fits.gz")
    (folder / irf_dir).mkdir(exist_ok=True)
    with fits.open(folder / "run_1.fits") as given:
        fits.HDUList([fits.PrimaryHDU(), *given[3:]]).writeto(folder / irf_dir / "irf.fits")


def make_spectrum(observations, radius=RADIUS):
    """Return On and Off counts around the source by gammapy, of all observations."""
    import astropy.units as u
    from astropy.coordinates import SkyCoord
    from gammapy.datasets import Datasets, SpectrumDataset
    from gammapy.makers import ReflectedRegionsBackgroundMaker, SpectrumDatasetMaker
    from gammapy.maps import MapAxis, RegionGeom
    from regions import CircleSkyRegion

    region = CircleSkyRegion(SkyCoord(*SOURCE, unit="deg"), radius * u.deg)
    energy = MapAxis.from_energy_bounds("0.1 TeV", "100 TeV", nbin=5)
    true = MapAxis.from_energy_bounds("0.1 TeV", "100 TeV", nbin=8, name="energy_true")
    empty = SpectrumDataset.create(geom=RegionGeom.create(region, axes=[energy]), energy_axis_true=true)
    maker = SpectrumDatasetMaker(selection=["counts", "exposure", "edisp"], containment_correction=False)
    background = ReflectedRegionsBackgroundMaker(max_region_number=5, min_distance=1 * u.deg)
    found = Datasets()
    for observation in observations:
        dataset = maker.run(empty.copy(name=str(observation.obs_id)), observation)
        found.append(background.run(dataset, observation))
    return found.stack_reduce()


def test_event_list_data_store_and_spectrum(trained, runs, tmp_path):
    from gammapy.data import DataStore, EventList

    applied = apply(trained, runs, tmp_path / "scored")
    chosen = apply(trained, runs, tmp_path / "selected", selected_only=True)
    for path, found in applied.items():
        events = EventList.read(found.path)
        table = read_events(found.path)
        assert len(events) == N_EVENTS
        np.testing.assert_array_equal(events.table["EXCESS_SCORE"], table["excess_score"])
        assert events.table["EXCESS_SELECTED"].sum() == found.n_selected == chosen[path].n_selected
        selected = EventList.read(chosen[path].path)
        assert len(selected) == found.n_selected < N_EVENTS
        by_gammapy = events.select_parameter("EXCESS_SELECTED", [True], is_range=False)
        np.testing.assert_array_equal(selected.table["EVENT_ID"], by_gammapy.table["EVENT_ID"])
    spectra = {}
    for name in ("scored", "selected"):
        store = DataStore.from_events_files(sorted((tmp_path / name).iterdir()))
        observations = store.get_observations(required_irf=["aeff", "edisp"])
        assert [observation.obs_id for observation in observations] == [1, 2, 3]
        assert observations[0].gti.time_sum.to_value("s") == pytest.approx(1200)
        spectra[name] = make_spectrum(observations)
    scored = np.concatenate([read_events(found.path, ["ra", "dec", "excess_selected"]) for found in applied.values()])
    inside = _separation(scored[:, 0], scored[:, 1]) < RADIUS
    selected = scored[:, 2].astype(bool)
    assert spectra["scored"].counts.data.sum() == inside.sum()
    assert spectra["selected"].counts.data.sum() == (inside & selected).sum()
    assert 0 < (inside & selected).sum() < inside.sum()
    assert spectra["selected"].counts_off.data.sum() < spectra["scored"].counts_off.data.sum()
    np.testing.assert_array_equal(spectra["selected"].exposure.data, spectra["scored"].exposure.data)


def _separation(ra, dec):
    from astropy.coordinates import angular_separation

    ra, dec, to_ra, to_dec = (np.radians(np.asarray(value, dtype=float)) for value in (ra, dec, *SOURCE))
    return np.degrees(angular_separation(ra, dec, to_ra, to_dec))


@pytest.mark.parametrize("irf_dir", [".", "irfs"])
def test_the_index_of_a_folder_goes_with_its_runs(trained, runs, tmp_path, irf_dir):
    from gammapy.data import DataStore

    write_index(runs[0].parent, irf_dir)
    target = tmp_path / "scored"
    apply(trained, runs[:2], target)
    names = {"run_1.fits", "run_2.fits", "hdu-index.fits.gz", "obs-index.fits.gz"}
    assert {path.name for path in target.iterdir()} == names | {irf_dir if irf_dir != "." else "irf.fits"}
    assert (target / irf_dir / "irf.fits").read_bytes() == (runs[0].parent / irf_dir / "irf.fits").read_bytes()
    store = DataStore.from_dir(target)
    assert list(store.obs_ids) == [1, 2]
    assert "SIZE" not in store.hdu_table.colnames
    [first, _] = store.get_observations(required_irf=["aeff", "edisp"])
    assert "EXCESS_SCORE" in first.events.table.colnames
    assert first.aeff.data.shape == (10, 2)
    # another run joins them, and what was written by an earlier call is replaced
    apply(trained, runs[2], target)
    assert list(DataStore.from_dir(target).obs_ids) == [1, 2, 3]
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    apply(trained, runs, target)
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before


def test_an_index_of_another_origin_stays(trained, runs, tmp_path):
    write_index(runs[0].parent)
    target = tmp_path / "scored"
    target.mkdir()
    for name in ("hdu-index.fits.gz", "irf.fits"):
        (target / name).write_text("mine")
        with pytest.raises(EventFileError, match=f"{name}: already exists"):
            apply(trained, runs, target)
        assert [path.name for path in target.iterdir()] == [name]
        (target / name).unlink()


def test_the_command_line(trained, runs, tmp_path, capsys):
    trained.save(tmp_path / "model.excess")
    out = tmp_path / "scored.fits.gz"
    assert (
        run_command("apply", tmp_path / "model.excess", runs[0], "-o", out, "--selected-only", "--prefix", "night") == 0
    )
    capsys.readouterr()
    assert run_command("info", out) == 0
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")] for line in said.splitlines()]
    counts = [row[2] for row in rows if len(row) > 2 and row[1] in ("without a cut", "night_selected")]
    assert len(counts) == 2, said
    assert counts[0] == counts[1]  # all events are selected ones
    assert "On " in counts[0]
    with fits.open(out) as hdus:
        header = hdus["EVENTS"].header
        assert (header["EVTSEL"], header["EVTALL"]) == ("NIGHT_SELECTED", N_EVENTS)
        assert "model.excess" in " ".join(header["HISTORY"])
        assert [hdu.name for hdu in hdus][2:] == ["GTI", "EFFECTIVE AREA", "ENERGY DISPERSION"]


@pytest.mark.skipif(not JOINT_CRAB.is_dir(), reason="FACT's joint-crab runs are not there")
def test_joint_crab(tmp_path):
    """Real runs: gammapy counts as many On and Off events among the selected ones as we do."""
    from gammapy.data import DataStore

    paths = sorted(JOINT_CRAB.glob("*_dl3.fits"))[::16]
    regions = RegionConfig(source_ra=SOURCE[0], source_dec=SOURCE[1], theta_squared_cut=0.03)  # as in their response
    config = AnalysisConfig(features=["energy"], derived_features={}, quality_cuts=[], groups="obs_id", regions=regions)
    trained = train(OnOffDataset.from_files(paths, config), "li-ma-tree")
    apply(trained, paths, tmp_path / "scored", selected_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old spellings of units and systems of time in these files
        observations = DataStore.from_dir(tmp_path / "scored").get_observations(required_irf=["aeff", "edisp"])
        spectrum = make_spectrum(observations, np.sqrt(0.03))
    ours = OnOffDataset.from_files(sorted((tmp_path / "scored").glob("*_dl3.fits")), config).census
    assert len(observations) == len(paths)
    assert spectrum.counts.data.sum() == pytest.approx(ours.n_on, abs=1)
    # gammapy has other places for its five Off regions
    assert spectrum.acceptance_off.data.sum() == pytest.approx(5 * spectrum.acceptance.data.sum())
    assert spectrum.counts_off.data.sum() == pytest.approx(ours.n_off, abs=4 * np.sqrt(2 * ours.n_off))
    assert ours.n_on > 20
