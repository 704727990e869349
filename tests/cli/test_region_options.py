"""Options of regions: --regions, --exclusion and --match in every command that takes events."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import run_command as run

from excess._utils.errors import ArgumentError
from excess.analysis import load_model, train_in_chunks
from excess.cli._options import METHODS, region_settings
from excess.config import Exclusion, RegionConfig, load_config
from excess.dataset import OnOffDataset, propose_config
from excess.dataset import _regions as region_methods
from excess.dataset._regions import change_regions

CRAB = (83.6333, 22.0133)
PLACE = (CRAB[0], CRAB[1] - 1.2)  # opposite to the source, seen from the first pointing


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


def write_field(path, seed, **columns):
    """Write events around a pointing 0.6 deg south of the Crab Nebula, in two runs of 500 s."""
    random, n = np.random.default_rng(seed), 2_000
    east, north = random.uniform(-1.0, 1.0, (2, n))
    pointing = (CRAB[0], CRAB[1] - 0.6)
    table = {
        "width": random.normal(size=n),
        "length": random.normal(size=n),
        "ra": pointing[0] + east / np.cos(np.radians(pointing[1])),
        "dec": pointing[1] + north,
        "pointing_ra": pointing[0],
        "pointing_dec": pointing[1],
        "obs_id": 10 * seed + np.arange(n) % 2,
        "livetime": 500.0,
        "zenith": 20.0 + 10 * (np.arange(n) % 2),
    }
    pd.DataFrame(table | columns).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    return write_field(tmp_path_factory.mktemp("field") / "field.csv", 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--exclusion", "84.4 21.1 wide"), "'--exclusion': '84.4 21.1 wide' must end with a radius in deg, such as"),
        (("--exclusion", "84.4 21.1 -0.3"), "'--exclusion': '84.4 21.1 -0.3' has the radius -0.3, which must be above"),
        (("--exclusion", "84.4 21.1 nan"), "'--exclusion': '84.4 21.1 nan' has the radius nan, which must be above 0"),
        (("--exclusion", "Crab 90"), "'--exclusion': 'Crab 90' has the radius 90, which must be above 0 and below 90"),
        (("--exclusion", "84.4 21.1"), "'--exclusion': '84.4 21.1' has no radius; append one in deg"),
        (("--exclusion", "Mrk 421"), "'--exclusion': 'Mrk 421' has no radius; append one in deg"),
        (("--exclusion", "Crab 1", "--exclusion", "Krab 1"), "'Krab' is not a known source; did you mean 'Crab'?"),
        (
            ("--exclusion", "400 21.1 0.3"),
            "'--exclusion': '400 21.1 0.3': '400 21.1' is not a valid position: right ascension",
        ),
        (("--regions", "rnig"), "'--regions': must be reflected, ring, same-declination or angles, got 'rnig'"),
        (("--match", "azimuth"), "'--match': must be zenith, time or none, got 'azimuth'"),
        (("--match", "zenith"), "--match: requires --off: it selects the Off runs to compare with On runs"),
        (("--off", "b.csv", "--regions", "ring"), "--regions: cannot be combined with --off, whose files contain"),
    ],
)
@pytest.mark.parametrize("command", ["detect", "train", "init"])
def test_wrong_values_are_usage(command, options, message, field, tmp_path, capsys):
    write_field(tmp_path / "b.csv", 2)
    options = [tmp_path / word if word == "b.csv" else word for word in options]
    assert run(command, field, "--source", "Crab", "-o", tmp_path / "out", *options) == 2
    text = said(capsys)
    assert text.startswith(f"Usage: excess {command} ")
    assert message in text
    assert not (tmp_path / "out").exists()


def test_init_writes_what_was_given(field, tmp_path, capsys):
    place = f"{PLACE[0]} {PLACE[1]} 0.2"
    given = ("--regions", "ring", "--exclusion", place, "--exclusion", "Mrk 421, 0.3")
    assert run("init", field, "--source", "Crab", *given, "-o", tmp_path / "my.yaml") == 0
    assert "On and Off: ring at the offset of Crab, theta^2 < 0.025, 2 exclusions;" in said(capsys)
    regions = load_config(tmp_path / "my.yaml").regions
    assert regions.method == "ring"
    exclusions = Exclusion(ra=PLACE[0], dec=PLACE[1], radius=0.2), Exclusion.parse("Mrk 421 0.3")
    assert regions.exclusion == exclusions
    assert (regions.source_ra, regions.source_dec) == CRAB
    # the same by the method of two words, and by no option
    assert run("init", field, "--source", "Crab", "--regions", "Same_Declination", "-o", tmp_path / "two.yaml") == 0
    assert load_config(tmp_path / "two.yaml").regions.method == "same_declination"
    assert propose_config(field, source="Crab").regions == RegionConfig(source="Crab", n_regions="auto")


def test_options_take_the_place_of_the_configuration(field, tmp_path, capsys):
    assert run("init", field, "--source", "Crab", "--regions", "ring", "-o", tmp_path / "my.yaml") == 0
    capsys.readouterr()
    assert run("info", field, "-c", tmp_path / "my.yaml", "--json") == 0
    assert "ring" in json.loads(capsys.readouterr().out)["on_off"]["Off regions"]
    options = ("-c", tmp_path / "my.yaml", "--regions", "reflected")
    assert run("info", field, *options, "--json") == 0
    assert json.loads(capsys.readouterr().out)["on_off"]["Off regions"] == "reflected, 10 for each pointing"
    place = f"{PLACE[0]} {PLACE[1]} 0.2"
    assert run("info", field, *options, "--exclusion", place, "--json") == 0
    assert json.loads(capsys.readouterr().out)["on_off"]["Off regions"] == "reflected, 8 for each pointing"


def test_detect_and_train_place_the_same_regions(field, tmp_path, capsys):
    place = f"{PLACE[0]} {PLACE[1]} 0.2"
    options = ("--source", "Crab", "--exclusion", place)
    run_options = ("-m", "tree", "--no-null-test", "--json", "-o", tmp_path / "run")
    assert run("detect", field, *options, *run_options) == 0
    assert json.loads(capsys.readouterr().out)["observation"]["alpha"] == 0.125
    config = load_config(tmp_path / "run" / "config.yaml").regions
    assert [str(one) for one in config.exclusion] == [f"ra {PLACE[0]:g}, dec {PLACE[1]:g}, radius 0.2 deg"]
    expected = OnOffDataset.from_files(field, source="Crab", regions={"exclusion": [place]})
    assert expected.alpha == 0.125
    assert run("train", field, *options, "-m", "tree", "-o", tmp_path / "model") == 0
    assert load_model(tmp_path / "model").config.regions == config == expected.config.regions
    chunked = ("-m", "noisy-forest", "--chunk-rows", 700, "-o", tmp_path / "chunked")
    assert run("train", field, *options, *chunked) == 0
    assert load_model(tmp_path / "chunked").config.regions == config


def test_runs_are_matched_by_an_option(tmp_path, capsys):
    on, off = (write_field(tmp_path / f"{seed}.csv", seed) for seed in (1, 2))
    assert run("init", on, "--off", off, "--match", "zenith", "-o", tmp_path / "my.yaml") == 0
    assert "On and Off: by their files, runs matched by zenith;" in said(capsys)
    assert load_config(tmp_path / "my.yaml").regions.match == "zenith"
    matched = OnOffDataset.from_files(on, off=off, features=["width", "length"], regions={"match": "zenith"})
    assert "in 2 matches of runs" in str(matched)
    assert run("train", on, "--off", off, "--match", "zenith", "-m", "tree", "-o", tmp_path / "model") == 0
    assert "in 2 matches of runs" in said(capsys)
    options = ("--alpha", "0.2", "-m", "tree", "-o", tmp_path / "other")
    assert run("train", on, "--off", off, "--match", "zenith", *options) == 2
    assert "--alpha: cannot be combined with --match: matched runs use the ratio of their live times" in said(capsys)


@pytest.mark.parametrize("matching", ["match: zenith, match_within: 2", 'pairs: [{"on": [10], "off": [20]}]'])
def test_an_option_switches_matching_off(matching, tmp_path):
    on, off = (write_field(tmp_path / f"{seed}.csv", seed) for seed in (1, 2))
    (tmp_path / "my.yaml").write_text(
        "features: [width, length]\nderived_features: {}\nquality_cuts: []\n"
        f"groups: obs_id\nregions: {{source: Crab, {matching}}}\n"
    )
    found = OnOffDataset.from_files(on, tmp_path / "my.yaml", off=off, regions=region_settings(None, None, "none"))
    assert found.config.regions == RegionConfig(source="Crab")
    assert "matches of runs" not in str(found)
    with pytest.raises(ArgumentError, match=r"^match_within requires match: zenith or time"):
        change_regions(RegionConfig(), {"match": "none", "match_within": 2.0})


def test_info_refuses_regions_that_it_cannot_count_in(field, tmp_path, capsys):
    angles = tmp_path / "angles.csv"
    table = pd.read_csv(field).drop(columns=["ra", "dec"]).assign(theta_deg=0.1, theta_deg_off_1=0.5)
    table.to_csv(angles, index=False)
    (tmp_path / "my.yaml").write_text("regions: {n_regions: 2}\n")
    assert run("info", angles, "-c", tmp_path / "my.yaml") == 0
    assert "without a cut" in capsys.readouterr().out
    for options, message in (
        (("--regions", "ring"), "method ring needs sky positions"),
        (("--exclusion", "Crab 0.3"), "exclusion requires sky positions in the columns ra, dec"),
    ):
        assert run("info", angles, "-c", tmp_path / "my.yaml", *options) == 1
        assert f"excess: {angles}: {message}" in said(capsys)
    assert run("info", field, "-c", tmp_path / "my.yaml", "--regions", "ring") == 1
    assert f"excess: {field}: the source position is required to count On and Off events" in said(capsys)
    assert run("info", angles, "--regions", "ring") == 0  # says what would be assumed, and why there is no detection
    assert "needs sky positions" in " ".join(capsys.readouterr().out.split())


def test_info_refuses_regions_of_a_model(field, tmp_path, capsys):
    model = tmp_path / "model"
    assert run("train", field, "--source", "Crab", "-m", "tree", "-o", model) == 0
    capsys.readouterr()
    for option in (("--regions", "ring"), ("--exclusion", "Crab 0.3"), ("--source", "Crab"), ("--config", field)):
        assert run("info", model, *option) == 1
        assert f"excess: {option[0]}: requires event files, but {model} is a model file" in said(capsys)


def test_methods_are_those_of_the_analysis():
    assert sorted(METHODS) == sorted(name.replace("_", "-") for name in region_methods.METHODS)


def test_regions_that_files_cannot_have(field, tmp_path, capsys):
    table = pd.read_csv(field).drop(columns=["ra", "dec"]).assign(theta_deg=0.1, theta_deg_off_1=0.5)
    table.to_csv(tmp_path / "angles.csv", index=False)
    for options, message in (
        (("--exclusion", "Crab 0.3"), "exclusion requires sky positions in the columns ra, dec, pointing_ra"),
        (("--regions", "ring"), "method ring needs sky positions in the columns"),
    ):
        assert run("detect", tmp_path / "angles.csv", *options, "-o", tmp_path / "out") == 1
        assert f"excess: {tmp_path / 'angles.csv'}: {message}" in said(capsys)
    assert run("detect", field, "--source", "Crab", "--exclusion", "Crab 0.3", "-o", tmp_path / "out") == 1
    assert "the exclusion Crab (ra 83.6333, dec 22.0133, radius 0.3 deg) overlaps the On region" in said(capsys)
    (tmp_path / "angles.yaml").write_text("regions: {method: angles}\n")
    options = ("-c", tmp_path / "angles.yaml", "--exclusion", "Crab 0.3")
    assert run("detect", field, *options, "-o", tmp_path / "out") == 2
    assert "--exclusion: cannot be combined with method: angles, whose regions are in the files" in said(capsys)
    (tmp_path / "list.yaml").write_text(f"crab: {{events: {field}}}\n")
    assert run("detect", tmp_path / "list.yaml", "--regions", "ring", "-o", tmp_path / "out") == 2
    assert "--regions: requires event files; a list of observations has its own" in said(capsys)


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ({"methods": "ring"}, "regions cannot be changed: unknown key 'regions.methods'; did you mean 'method'?"),
        ({"exclusion": ["Krab 1"]}, r"regions.exclusion.0: 'Krab 1': 'Krab' is not a known source; did you mean"),
        ({"source": "Crab"}, "regions has source; use the argument source"),
        ({"pairs": [{"on": [1], "off": [2]}]}, "pairs requires off"),
    ],
)
def test_wrong_settings_in_python(regions, message, field):
    for function in (OnOffDataset.from_files, propose_config, train_in_chunks):
        with pytest.raises(ArgumentError, match=message):
            function(field, regions=regions)


def test_an_exclusion_as_text_in_a_configuration(tmp_path):
    (tmp_path / "my.yaml").write_text("regions: {exclusion: [Crab 0.3, {ra: 1, dec: 2, radius: 3}]}\n")
    assert [one.name for one in load_config(tmp_path / "my.yaml").regions.exclusion] == ["Crab", ""]
    (tmp_path / "my.yaml").write_text("regions: {exclusion: [Crab wide]}\n")
    with pytest.raises(ValueError, match=r"regions.exclusion.0: 'Crab wide' must end with a radius in deg"):
        load_config(tmp_path / "my.yaml")
