"""The efficiency of a model on simulated gammas: counts, errors, bins, tables, effective areas, and the command."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import SHARED, run_command

from excess import ModelFileError, OnOffTreeClassifier
from excess.analysis import apply, efficiency, load_model, train
from excess.analysis._apply import TrainedModel
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_labelled, simulate_observation
from excess.io import EventFileError, read_events, write_events

FACT_GAMMAS = SHARED / "data" / "fact" / "gamma.hdf5"
CTA_GAMMAS = SHARED / "data" / "cta" / "cta_gammas_diffuse.dl1.h5"


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tree.excess"
    return train(OnOffDataset.from_files(simulate_observation(20_000, 400, random_state=0)), "li-ma-tree").save(path)


@pytest.fixture(scope="module")
def gammas():
    """Simulated gammas with energies that belong to their size, zenith distances, and weights."""
    rng = np.random.default_rng(1)
    table = simulate_labelled(4_000, 0, random_state=1)
    table["true_energy"] = 0.01 * table["size"] * rng.lognormal(0, 0.3, len(table))
    table["true_alt"] = rng.uniform(45, 85, len(table))
    table["weight"] = table["true_energy"] ** -0.5
    table.loc[::50, "num_pixel_in_shower"] = 5  # these fail the quality cuts
    return table


@pytest.fixture(scope="module")
def gamma_path(gammas, tmp_path_factory):
    path = tmp_path_factory.mktemp("gammas") / "gammas.parquet"
    write_events(gammas, path)
    return path


def test_counts_are_those_of_the_applied_model(model_path, gammas, gamma_path, tmp_path):
    found = efficiency(model_path, gamma_path, energy_bins=[0.5, 1, 2, 4], zenith_bins=[5, 20, 45], chunk_rows=700)
    apply(model_path, gamma_path, tmp_path / "scored.parquet")
    scored = read_events(tmp_path / "scored.parquet")
    bins = [
        pd.cut(90 - scored["true_alt"], found.zenith_edges, right=False),
        pd.cut(scored["true_energy"], found.energy_edges, right=False),
    ]
    groups = scored.groupby(bins, observed=False)
    expected = {
        "n_all": groups.size(),
        "n_quality": groups["excess_score"].count(),
        "n_selected": groups["excess_selected"].sum(),
    }
    table = found.table
    for name, numbers in expected.items():
        np.testing.assert_array_equal(table[name], numbers.to_numpy(), err_msg=name)
    assert found.n_outside == len(gammas) - table["n_all"].sum() > 0
    assert 0 < table["n_quality"].sum() < table["n_all"].sum()
    np.testing.assert_allclose(table["efficiency"], table["n_selected"] / table["n_all"])
    np.testing.assert_allclose(table["cut_efficiency"], table["n_selected"] / table["n_quality"])
    assert found.mean().value == table["n_selected"].sum() / table["n_all"].sum()
    np.testing.assert_allclose(found.by_energy("quality").value, _sums(table, "energy_low"))
    np.testing.assert_allclose(found.by_zenith("quality").value, _sums(table, "zenith_low"))
    assert found.expressions == {"energy": "true_energy", "zenith": "90 - true_alt"}


def _sums(table, by):
    sums = table.groupby(by)[["n_selected", "n_quality"]].sum()
    return sums["n_selected"] / sums["n_quality"]


def test_weights_change_the_mean_and_lengthen_errors(model_path, gamma_path, gammas):
    settings = {"energy_bins": [0.001, 1000], "zenith_bins": [0, 90]}
    plain = efficiency(model_path, gamma_path, **settings)
    weighted = efficiency(model_path, gamma_path, weights="weight", **settings)
    assert weighted.counts["all"].sum() == pytest.approx(gammas["weight"].sum())
    n_effective = gammas["weight"].sum() ** 2 / (gammas["weight"] ** 2).sum()
    error = np.sqrt(weighted.mean().value * (1 - weighted.mean().value) / n_effective)
    assert weighted.mean().error == pytest.approx(error, rel=0.01)
    assert weighted.mean().value != pytest.approx(plain.mean().value, abs=0.005)
    # a constant weight is none
    constant = efficiency(model_path, gamma_path, weights="0 * size + 3", **settings)
    assert constant.mean() == pytest.approx(plain.mean())


def test_default_bins_hold_all_events(model_path, gamma_path, gammas):
    found = efficiency(model_path, gamma_path)
    assert found.n_outside == 0
    np.testing.assert_allclose(found.zenith_edges, [0, 10, 20, 30, 40, 50])
    inner = np.diff(np.log10(found.energy_edges))
    np.testing.assert_allclose(inner, 0.1, rtol=1e-9)
    found = efficiency(model_path, gamma_path, energy_bins=7, zenith_bins=3)
    assert found.counts["all"].shape == (3, 7)
    assert found.n_outside == 0
    assert found.energy_edges[0] == gammas["true_energy"].min()


def test_events_without_an_energy_are_in_no_bin(model_path, gammas, tmp_path):
    table = gammas.drop(columns="true_alt").assign(true_energy=gammas["true_energy"].where(gammas.index % 4 > 0))
    write_events(table, tmp_path / "gammas.csv")
    found = efficiency(model_path, tmp_path / "gammas.csv")
    assert found.n_outside == 1000
    assert "zenith" not in found.expressions
    assert found.counts["all"].shape[0] == 1


def test_a_model_with_bins_has_an_efficiency_for_each(gamma_path, gammas, tmp_path, capsys):
    observation = OnOffDataset.from_files(
        simulate_observation(20_000, 400, random_state=0), bins="log_size:4.5,6", nearby=False
    )
    path = train(observation, "li-ma-tree").save(tmp_path / "binned.excess")
    found = efficiency(path, gamma_path, chunk_rows=1500)
    assert found.model_bin_labels == ("below 4.5", "4.5 to 6", "above 6")
    apply(path, gamma_path, tmp_path / "scored.parquet")
    scored = read_events(tmp_path / "scored.parquet")
    scored = scored[scored["excess_score"].notna()]
    groups = scored["excess_selected"].groupby(np.digitize(np.log(scored["size"]), [4.5, 6]))
    np.testing.assert_allclose(found.by_model_bin().value, groups.mean())
    np.testing.assert_array_equal(found.model_bins.counts["quality"], groups.size())
    assert found.by_model_bin().value.std() > 0.01
    assert run_command("efficiency", path, gamma_path, "-o", tmp_path / "out") == 0
    assert "4.5 to 6" in capsys.readouterr().out
    assert pd.read_csv(tmp_path / "out" / "efficiency_by_bin.csv")["log_size"].tolist() == list(found.model_bin_labels)


def test_a_model_without_bins_has_none(found):
    assert found.model_bins is None
    with pytest.raises(ValueError, match="one threshold for all events"):
        found.by_model_bin()


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ({"energy": "mc_energy"}, "energy must be a column of the simulated events: has no column 'mc_energy'"),
            ({"energy": "import os"}, "energy is neither a column nor an expression of columns"),
            ({"weights": "heavy"}, "weights must be a column"),
            ({"weights": "0 * size - 1"}, "must be finite and non-negative"),
            ({"energy_bins": [2, 1]}, "energy_bins must be a number of bins, or ascending positive edges"),
            ({"energy_bins": [0, 1]}, "energy_bins must be a number of bins, or ascending positive edges"),
            ({"energy_bins": [1000, 2000]}, "none of 4,000 simulated events is in the bins; energies are from"),
            ({"zenith": "true_alt * 60"}, "which are not angles in deg"),
            ({"energy": "0 * size"}, "no simulated event has a finite energy above 0"),
            ({"confidence": 2}, "confidence must be"),
        ],
    )
    def test_wrong_arguments(self, model_path, gamma_path, given, sentence):
        with pytest.raises(ValueError, match=sentence):
            efficiency(model_path, gamma_path, **given)

    def test_files_without_truth_or_features(self, model_path, gammas, tmp_path):
        write_events(gammas.drop(columns=["true_energy", "true_alt"]), tmp_path / "nothing.csv")
        with pytest.raises(
            ValueError, match="energy is required: the simulated events have none of true_energy, mc_energy"
        ):
            efficiency(model_path, tmp_path / "nothing.csv")
        write_events(gammas.drop(columns="width"), tmp_path / "narrow.csv")
        with pytest.raises(EventFileError, match=r"narrow.csv: has no column width, required by features"):
            efficiency(model_path, tmp_path / "narrow.csv")

    @pytest.mark.slow
    def test_gammas_that_the_model_was_trained_on(self, gamma_path, tmp_path):
        write_events(simulate_labelled(0, 2_000, random_state=3), tmp_path / "protons.csv")
        observation = OnOffDataset.from_files(simulate_observation(20_000, 400, random_state=0))
        trained = train(observation, "hybrid", simulated=(gamma_path, tmp_path / "protons.csv"))
        with pytest.raises(ModelFileError, match=r"was trained on .*gammas.parquet; use other simulated gammas"):
            efficiency(trained, gamma_path)


@pytest.fixture(scope="module")
def found(model_path, gamma_path):
    return efficiency(model_path, gamma_path, energy_bins=[0.2, 0.5, 1, 2, 5, 10, 20], zenith_bins=[0, 20, 45, 60])


class TestFiles:
    def test_tables_hold_the_same_numbers(self, found, tmp_path):
        pytest.importorskip("matplotlib")
        written = found.write(tmp_path, plots=("png", "pdf"))
        assert [path.name for path in written] == [f"efficiency.{end}" for end in ("csv", "fits", "png", "pdf")]
        assert all(path.stat().st_size > 500 for path in written)
        pd.testing.assert_frame_equal(pd.read_csv(written[0]), found.table)
        table = pytest.importorskip("astropy.table").QTable.read(written[1], mask_invalid=False)[0]
        np.testing.assert_array_equal(table["EFFICIENCY"], found.fractions().value)
        np.testing.assert_array_equal(table["CUT_EFF_HIGH"], found.fractions("quality").high)
        np.testing.assert_array_equal(table["N_SELECTED"], found.counts["selected"])
        np.testing.assert_allclose(table["ENERG_HI"].to_value("GeV"), 1000 * found.energy_edges[1:])
        assert np.isnan(table["EFF_ERR"][2]).all()  # no gammas in there
        before = written[1].read_bytes()
        with pytest.raises(EventFileError, match="already exists"):
            found.write(tmp_path)
        found.write(tmp_path, overwrite=True)
        assert written[1].read_bytes() == before

    def test_the_plot_has_a_line_for_each_zenith_bin_with_events(self, found):
        pytest.importorskip("matplotlib")
        ax = found.plot(of="quality")
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == [
            f"all events: {found.mean('quality').value:.3f}",
            *(f"zenith {a} to {b} deg" for a, b in ((0, 20), (20, 45))),
        ]
        assert ax.get_ylabel() == "efficiency after quality cuts"

    def test_interpolation_between_bins(self, found):
        centres = np.sqrt(found.energy_edges[1:] * found.energy_edges[:-1])
        np.testing.assert_allclose(found.at(centres), found.by_energy().value)
        np.testing.assert_allclose(found.at(centres, 30), found.fractions().value[1])
        np.testing.assert_allclose(found.at(centres, 80), found.fractions().value[1])  # the nearest one with events
        first, second = found.by_energy().value[:2]
        assert found.at(np.sqrt(centres[0] * centres[1])) == pytest.approx((first + second) / 2)
        assert found.at(1e-3) == first

    @pytest.fixture
    def run_file(self, tmp_path):
        """A run with events and an effective area, as gammapy writes it."""
        gammapy = pytest.importorskip("gammapy.irf", reason="effective areas are written and read with gammapy")
        from astropy import units as u
        from astropy.io import fits
        from gammapy.maps import MapAxis

        energy = MapAxis.from_energy_bounds("0.1 TeV", "100 TeV", 12, name="energy_true")
        offset = MapAxis.from_bounds(0, 3, 4, unit="deg", name="offset", node_type="edges")
        data = u.Quantity(np.linspace(1e3, 1e5, 48).reshape(12, 4), "m2")
        area = gammapy.EffectiveAreaTable2D([energy, offset], data=data).to_table_hdu()
        events = fits.BinTableHDU.from_columns([fits.Column("EVENT_ID", "K", array=np.arange(3))], name="EVENTS")
        events.header["ALT_PNT"] = 60.0
        fits.HDUList([fits.PrimaryHDU(), events, area]).writeto(tmp_path / "run.fits")
        return tmp_path / "run.fits"

    def test_gammapy_reads_the_corrected_effective_area(self, found, run_file, tmp_path):
        from gammapy.irf import EffectiveAreaTable2D

        (tmp_path / "out").mkdir()
        target = found.correct_effective_area(run_file, tmp_path / "out", of="quality")
        assert target == tmp_path / "out" / "run.fits"
        before, after = (EffectiveAreaTable2D.read(path) for path in (run_file, target))
        centres = before.axes["energy_true"].center.to_value("TeV")
        factor = found.at(centres, 30.0, "quality")
        assert factor.min() < 0.9 * factor.max()
        np.testing.assert_allclose(after.data, before.data * factor[:, None], rtol=1e-6)
        from astropy.io import fits

        with fits.open(target) as hdus:
            assert hdus["EVENTS"].data["EVENT_ID"].tolist() == [0, 1, 2]
            assert "cut_efficiency at zenith distance 30.0 deg" in str(hdus[2].header["HISTORY"]).replace("\n", " ")
        with pytest.raises(EventFileError, match="already multiplied by an efficiency"):
            found.correct_effective_area(target, tmp_path / "twice.fits")
        assert not (tmp_path / "twice.fits").exists()
        with pytest.raises(EventFileError, match="overwrite the input"):
            found.correct_effective_area(run_file, run_file, overwrite=True)

    def test_files_without_an_effective_area(self, found, tmp_path):
        with pytest.raises(EventFileError, match="does not exist"):
            found.correct_effective_area(tmp_path / "none.fits", tmp_path / "out.fits")
        written = found.write(tmp_path, plots=())
        with pytest.raises(EventFileError, match=r"has no effective area \(EFF_AREA\), only PRIMARY, EFFICIENCY"):
            found.correct_effective_area(written[1], tmp_path / "out.fits")


@pytest.fixture
def reading(monkeypatch):
    """Refuse to read simulated events, and return a list of attempts."""
    attempts = []

    def refuse(*arguments, **options):
        attempts.append("events")
        raise ValueError("events are read")

    monkeypatch.setattr("excess.analysis._efficiency.iter_events", refuse)
    return attempts


class TestCommand:
    def test_table_and_files(self, model_path, gamma_path, tmp_path, capsys):
        pytest.importorskip("matplotlib")
        arguments = ("efficiency", model_path, gamma_path, "--energy-bins", "0.1,1,10", "--zenith-bins", "2")
        assert run_command(*arguments, "-o", tmp_path / "out") == 0
        told = capsys.readouterr()
        assert "Selected of all simulated gammas: 0." in " ".join(told.out.split())
        assert "0.1 to 1" in told.out
        assert "simulated gammas are in no bin" in told.out
        assert str(tmp_path / "out" / "efficiency.png") in told.err

    def test_json(self, model_path, gamma_path, capsys):
        assert run_command("efficiency", model_path, gamma_path, "--json", "--energy-bins", "4") == 0
        told = json.loads(capsys.readouterr().out)
        found = efficiency(model_path, gamma_path, energy_bins=4)
        assert told["mean"]["cut_efficiency"]["value"] == found.mean("quality").value
        assert told["bins"]["n_selected"] == found.table["n_selected"].tolist()
        assert told["files"] == []

    def test_wrong_usage(self, model_path, gamma_path, capsys):
        assert run_command("efficiency", model_path, gamma_path, "--energy-bins", "a few") == 2
        assert run_command("efficiency", model_path, gamma_path, "--aeff", gamma_path) == 2
        assert run_command("efficiency", model_path, gamma_path, "--energy", "nothing *") == 2
        assert "--energy: is neither a column" in " ".join(capsys.readouterr().err.split())
        assert run_command("efficiency", model_path, gamma_path, "--energy", "nothing") == 1
        assert "excess: --energy: must be a column of the simulated events" in capsys.readouterr().err
        areas = ("--aeff", "a/run.fits", "--aeff", "b/run.fits", "-o", "out")
        assert run_command("efficiency", model_path, gamma_path, *areas) == 2
        assert "2 files are named run.fits" in " ".join(capsys.readouterr().err.split())

    @pytest.mark.parametrize("name", ["efficiency.csv", "efficiency.fits", "efficiency.png", "efficiency.pdf"])
    def test_outputs_are_checked_before_events_are_read(self, name, model_path, gamma_path, tmp_path, capsys, reading):
        arguments = ("efficiency", model_path, gamma_path, "--pdf", "-o", tmp_path)
        (tmp_path / name).write_text("mine")
        assert run_command(*arguments) == 1
        assert f"{tmp_path / name}: already exists" in capsys.readouterr().err
        assert (tmp_path / name).read_text() == "mine"
        assert reading == []
        (tmp_path / name).unlink()
        assert run_command(*arguments) == 1
        assert reading == ["events"]
        assert list(tmp_path.iterdir()) == []

    def test_folders_are_checked_before_events_are_read(self, model_path, gamma_path, tmp_path, capsys, reading):
        (tmp_path / "file").write_text("")
        (tmp_path / "area.fits").write_text("mine")
        for output, options, message in (
            (tmp_path / "file" / "out", (), "cannot be used as output folder"),
            (tmp_path, ("--aeff", tmp_path / "area.fits"), "area.fits: would overwrite the input"),
            (tmp_path, ("--aeff", tmp_path / "none.fits"), "none.fits: does not exist"),
            (tmp_path, ("--aeff", tmp_path / "area.fits", "--overwrite"), "area.fits: would overwrite the input"),
        ):
            assert run_command("efficiency", model_path, gamma_path, "-o", output, *options) == 1
            assert message in " ".join(capsys.readouterr().err.split())
        (tmp_path / "efficiency.fits").write_text("mine")
        arguments = ("--aeff", tmp_path / "efficiency.fits", "-o", tmp_path / "out", "--overwrite")
        assert run_command("efficiency", model_path, gamma_path, *arguments) == 2
        assert "--aeff: has" in (told := " ".join(capsys.readouterr().err.split()))
        assert "which has the name of an output file" in told
        assert not (tmp_path / "out").exists()
        assert reading == []
        # a folder that was made for nothing is removed
        assert run_command("efficiency", model_path, gamma_path, "-o", tmp_path / "new" / "out") == 1
        assert reading == ["events"]
        assert not (tmp_path / "new").exists()


@pytest.mark.skipif(not FACT_GAMMAS.exists(), reason="FACT's simulated gammas are not in ../shared/data")
def test_gammas_of_fact(model_path):
    found = efficiency(load_model(model_path), FACT_GAMMAS)
    assert found.counts["all"].sum() == 1000
    assert found.expressions["energy"] == "corsika_event_header_total_energy / 1000"
    assert 0.2 < found.energy_edges[-1] / 25 < 2
    np.testing.assert_allclose(found.zenith_edges, [0, 10, 20, 30])
    same = efficiency(load_model(model_path), FACT_GAMMAS, zenith="source_position_zd")
    np.testing.assert_array_equal(same.counts["selected"], found.counts["selected"])
    assert 0.3 < found.mean().value < 1


@pytest.mark.skipif(not CTA_GAMMAS.exists(), reason="simulated gammas of CTA are not in ../shared/data")
@pytest.mark.parametrize(
    ("feature", "cut", "n_quality"),
    [("hillas_width_mean", "n_telescopes >= 2", 808), ("hillas_width", "hillas_intensity > 100", 809)],
)
def test_showers_of_cta_are_counted_once(feature, cut, n_quality):
    config = AnalysisConfig(features=[feature], derived_features={}, quality_cuts=[cut])
    table = read_events(CTA_GAMMAS, [feature])
    tree = OnOffTreeClassifier(max_depth=2, alpha=1.0).fit(table, np.arange(len(table)) % 2)
    found = efficiency(TrainedModel(tree, config, [], {}), CTA_GAMMAS, chunk_rows=100)
    assert found.counts["all"].sum() == 1110  # array events, not images
    assert found.counts["quality"].sum() == n_quality
    assert found.expressions == {"energy": "true_energy", "zenith": "90 - true_alt"}
    np.testing.assert_allclose(found.zenith_edges, [10, 20, 30])
