"""On and Off as intervals of a column: labels, exposure ratio, features and errors."""

import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from excess import assess
from excess._utils.errors import ArgumentError, EventFileError, MismatchError
from excess.analysis import detect
from excess.cli import main
from excess.config import AnalysisConfig, IntervalConfig, parse_config
from excess.dataset import OnOffDataset

SIDES = {"on": "mass 4:5", "off": "mass 2:4,5:8"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "mass": rng.uniform(0, 10, 4_000),
            "phase": rng.random(4_000),
            "width": rng.normal(size=4_000),
            "length": rng.exponential(size=4_000),
            "ra": rng.normal(83.6, 0.2, 4_000),
            "dec": rng.normal(22.0, 0.2, 4_000),
        }
    )


def test_labels_and_alpha_by_width(table):
    found = OnOffDataset.from_files(table, features=["width", "length"], alpha="width", **SIDES)
    mass = found.table["mass"].to_numpy()
    assert found.counts.n_on == np.count_nonzero((table["mass"] >= 4) & (table["mass"] < 5))
    np.testing.assert_array_equal(found.on == 1, (mass >= 4) & (mass < 5))
    np.testing.assert_array_equal(found.regions.region == 1, (mass >= 2) & (mass < 4))
    assert found.alpha == pytest.approx(1 / 5)
    np.testing.assert_allclose(found.regions.exposure[0], [2, 3])
    assert found.config.regions.alpha_error is None


def test_alpha_by_fit_and_as_given(table):
    fitted = OnOffDataset.from_files(table, features=["width", "length"], **SIDES)
    error = fitted.config.regions.alpha_error
    assert 0 < error < 0.1
    assert fitted.alpha == pytest.approx(1 / 5, rel=3 * error)
    assert "from a fit" in str(fitted)
    given = OnOffDataset.from_files(table, features=["width"], alpha=0.25, **SIDES)
    assert given.alpha == pytest.approx(0.25)
    assert given.regions.exposure[0].sum() == pytest.approx(4)


def test_phases_wrap(table):
    found = OnOffDataset.from_files(table, features=["width"], on="PHASE 0.4:0.5", off="PHASE 0.8:1.2")
    phase = found.table["phase"].to_numpy()
    np.testing.assert_array_equal(found.on == 0, (phase >= 0.8) | (phase < 0.2))
    assert found.alpha == pytest.approx(0.25)
    shifted = OnOffDataset.from_files(table.assign(phase=table["phase"] - 0.5), on="phase -0.1:0", off="phase 0.3:0.7")
    assert shifted.counts.n_on == np.count_nonzero(table["phase"].between(0.4, 0.5, inclusive="left"))


@pytest.mark.parametrize(("share", "code"), [(0.65, "swapped"), (0.75, "alpha"), (0.9, "unexplained-excess")])
def test_a_pulsar_without_pure_background_is_detected(share, code):
    """Photons near a bright pulsar: On/Off is about 1/alpha, also among those that are least like signal."""
    rng = np.random.default_rng(1)
    signal = rng.random(4_000) < share
    table = pd.DataFrame({"time": rng.uniform(0, 1e8, 4_000), "phase": rng.random(4_000)})
    table.loc[signal, "phase"] = rng.normal(0.5, 0.07, signal.sum()) % 1
    table["angle"] = rng.exponential(np.where(signal, 0.8, 1.0))
    table["energy"] = rng.lognormal(np.where(signal, 0.3, 0.0))
    sides = {"on": "phase 0.4:0.6", "off": "phase 0.7:1.3", "features": ["angle", "energy"]}
    observation = OnOffDataset.from_files(table, **sides)
    assert observation.config.regions.alpha_error == 0
    run = detect(observation, "tree")
    assert (run.verdict.status, run.verdict.warnings) == ("detected", ())
    unknown = replace(run.detections["tree"], alpha_error=None)
    assert [one.code for one in assess(unknown).warnings] == [code]
    swapped = OnOffDataset.from_files(table, **{**sides, "on": sides["off"], "off": sides["on"]})
    assert [one.code for one in detect(swapped, "tree").verdict.warnings] == ["deficit"]


def test_phases_of_a_long_period_may_differ_in_exposure(table):
    time = np.sort(np.random.default_rng(2).uniform(0, 30, len(table)))
    events = table.assign(time=86_400 * time, phase=time / 4 % 1)
    sides = {"on": "phase 0.4:0.5", "off": "phase 0.8:1.2", "features": ["width"]}
    assert OnOffDataset.from_files(events, **sides).config.regions.alpha_error is None
    assert OnOffDataset.from_files(events.assign(phase=table["phase"]), **sides).config.regions.alpha_error == 0


def test_the_angle_to_the_source_is_a_feature(table):
    found = OnOffDataset.from_files(
        table, source=(83.6, 22.0), exclude=["mass"], on="phase 0.1:0.3", off="phase 0.5:0.9"
    )
    assert set(found.names) == {"width", "length", "source_angle"}
    angle = found.X[:, found.names.index("source_angle")]
    rows = found.table["row"].to_numpy()
    east = (table["ra"].to_numpy()[rows] - 83.6) * np.cos(np.radians(22.0))
    np.testing.assert_allclose(angle, np.hypot(east, table["dec"].to_numpy()[rows] - 22.0), rtol=5e-3)


def test_a_configuration_has_intervals(table, tmp_path):
    text = "features: [width]\nderived_features: {}\nquality_cuts: []\nregions:\n  intervals:\n    on: mass 4:5\n"
    config = parse_config(text + "    off: mass 2:4,5:8\n    alpha: width\n", "a.yaml")
    assert config.regions.intervals.off == ((2.0, 4.0), (5.0, 8.0))
    again = parse_config(config.to_yaml(), "b.yaml")
    assert again == config
    assert OnOffDataset.from_files(table, config).alpha == pytest.approx(1 / 5)


def test_good_time_gives_alpha(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    rng = np.random.default_rng(1)
    time = np.sort(np.concatenate([rng.uniform(0, 100, 300), rng.uniform(300, 400, 300)]))
    columns = {"TIME": time, "ENERGY": rng.exponential(size=600), "RA": np.full(600, 83.6), "DEC": np.full(600, 22.0)}
    events = fits.BinTableHDU.from_columns([fits.Column(name, "D", array=own) for name, own in columns.items()])
    events.name = "EVENTS"
    gti = {"START": [0.0, 300.0], "STOP": [100.0, 400.0]}
    good = fits.BinTableHDU.from_columns([fits.Column(name, "D", array=np.array(own)) for name, own in gti.items()])
    good.name = "GTI"
    fits.HDUList([fits.PrimaryHDU(), events, good]).writeto(tmp_path / "flare.fits")
    found = OnOffDataset.from_files(tmp_path / "flare.fits", features=["energy"], on="TIME 50:100", off="TIME 100:360")
    assert found.alpha == pytest.approx(50 / 60)
    assert found.time is None  # On and Off are not mixed in time
    assert 0 < np.count_nonzero(np.diff(found.on)) > 100  # and their order does not follow it


@pytest.mark.parametrize(
    ("sides", "kind", "argument", "words"),
    [
        ({"on": "mass 4:5", "off": "mass 4.5:6"}, ArgumentError, "off", "On 4:5 and Off 4.5:6"),
        ({"on": "phase 0.1:0.2", "off": "phase 0.9:1.15"}, ArgumentError, "off", "overlapping"),
        ({"on": "mass 5:4", "off": "mass 6:7"}, ArgumentError, "on", "positive"),
        ({"on": "phase 0:1.5", "off": "phase 0.5:0.6"}, ArgumentError, "on", "period 1"),
        ({"on": "mass 4:5", "off": "other 6:7"}, ArgumentError, "off", "'other'"),
        ({"on": "mass", "off": "mass 6:7"}, ArgumentError, "on", "intervals"),
        ({"on": "mass 4-5", "off": "mass 6:7"}, ArgumentError, "on", "intervals"),
        ({"on": "4:5", "off": "6:7"}, ArgumentError, "on", "begin with a column"),
        ({"on": "mass 4:nan", "off": "mass 6:7"}, ArgumentError, "on", "numbers"),
        ({"on": "mass 4:5,4.5:6", "off": "mass 8:9"}, ArgumentError, "on", "On 4.5:6 and On 4:5"),
        ({"on": "mass 4:5"}, ArgumentError, "off", "intervals of the column"),
        ({"on": "nonsense"}, ArgumentError, "on", "'nonsense'"),
        ({"on": "mass 2:3", "off": "mass 6:7"}, ArgumentError, "off", "both sides of On"),
        ({"on": "mas 4:5", "off": "mas 6:7"}, MismatchError, "on", "did you mean 'mass'"),
        ({"on": "mass 4:5", "off": "mass 20:30"}, MismatchError, "off", "no events"),
        ({"on": "mass -9:-8", "off": "mass 2:3"}, MismatchError, "on", "no events"),
        ({"on": "mass 4:5", "off": "mass 2:3,20:30"}, MismatchError, "off", "between 20 and 30"),
        ({"on": "mass 4:5", "off": "mass 8:12"}, MismatchError, "off", "values of mass end at 9.99"),
        ({"on": "text 4:5", "off": "text 6:7"}, MismatchError, "on", "numbers"),
        ({"on": "holes 4:5", "off": "holes 6:7"}, MismatchError, "on", "missing in 10 of 4,000"),
        ({"on": "peak 4:5", "off": "peak 2:4,5:8"}, ArgumentError, "off", "smooth density"),
        ({"on": "phase 0.1:0.2", "off": "phase 0.5:0.9", "alpha": "fit"}, MismatchError, "alpha", "period"),
    ],
)
def test_wrong_intervals(table, sides, kind, argument, words):
    peak = np.where(np.arange(4_000) < 500, 6.0, table["mass"])
    events = table.assign(text="a", holes=table["mass"].where(table.index >= 10), peak=peak)
    with pytest.raises(kind) as error:
        OnOffDataset.from_files(events, features=["width", "length"], **sides)
    assert error.value.argument == argument
    assert words in str(error.value)


def test_the_column_is_no_feature(table):
    with pytest.raises(ArgumentError, match="'mass' that On and Off are intervals of"):
        OnOffDataset.from_files(table, features=["width", "mass"], **SIDES)
    with pytest.raises(ValidationError, match="computed from the column"):
        AnalysisConfig(
            features=["double"],
            derived_features={"double": "2 * mass"},
            quality_cuts=(),
            regions={"intervals": IntervalConfig(**SIDES)},
        )
    assert "mass" not in OnOffDataset.from_files(table, **SIDES).names


def test_features_that_determine_the_column(table, caplog):
    rng = np.random.default_rng(3)
    events = table.assign(pt=rng.exponential(size=4_000) + 1)
    events["ratio"] = events["mass"] / events["pt"]
    with pytest.raises(EventFileError, match="the features determine mass"):
        OnOffDataset.from_files(events, features=["width", "pt", "ratio"], **SIDES)
    events["drift"] = events["width"] + 0.08 * events["mass"]
    with caplog.at_level(logging.WARNING):
        OnOffDataset.from_files(events, features=["drift", "length"], **SIDES)
    assert "'drift'" in caplog.text
    caplog.clear()
    OnOffDataset.from_files(events, features=["width", "length"], **SIDES)
    assert "depend on" not in caplog.text


def run(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    shown = capsys.readouterr()
    return ended.value.code, shown.out, " ".join(shown.err.split())


def test_intervals_on_the_command_line(table, tmp_path, capsys):
    path = tmp_path / "events.csv"
    table.to_csv(path, index=False)
    sides = ["--on", "mass 4:5", "--off", "mass 2:4,5:8"]
    code, text, _ = run(["init", path, *sides], capsys)
    assert code == 0
    config = parse_config(text, "printed")
    assert config.regions.intervals == IntervalConfig(**SIDES)
    assert (config.groups, "mass" in config.features) == ("none", False)
    for words, option in (
        (["--off", "mass 2:4,5:8"], "--off"),
        (["--on", "mass 4:5"], "--off"),
        (["--on", "mass 4:5", "--off", "mass 3:4.5"], "--off"),
        (["--alpha", "fit"], "--alpha"),
        ([*sides, "--alpha", "often"], "--alpha"),
    ):
        code, _, text = run(["detect", path, *words, "-o", tmp_path / "out"], capsys)
        assert (code, option in text) == (2, True), (words, text)
