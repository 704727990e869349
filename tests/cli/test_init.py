"""The command init, and commands without a configuration, on files of several telescopes."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from ctapipe_files import write_ctapipe
from helpers import SHARED
from helpers import run_command as run
from lstchain_file import lst_events, write_lstchain

from excess.config import AnalysisConfig, find_source, load_config
from excess.dataset import OnOffDataset, propose_config, simulate_observation
from excess.io import describe, write_events

fits = pytest.importorskip("astropy.io.fits")
pytest.importorskip("h5py")

DATA = SHARED / "data"
CRAB = (83.6333, 22.0133)
public = pytest.mark.skipif(not DATA.exists(), reason="the public test data is not beside the project")


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


def write_run(path, number=0, *, source=CRAB, offset=0.5, columns=("ENERGY",), n_events=3000, **header):
    """Write an event list of one run with a source, as the formats of gamma-ray astronomy have it."""
    random = np.random.default_rng(number)
    n_signal = n_events // 10
    ra, dec = source
    pointing = (ra, dec + offset * (-1) ** number)
    far = random.uniform(-1.2, 1.2, (2, n_events))
    far[:, :n_signal] = random.normal(0, 0.04, (2, n_signal)) - [[0.0], [offset * (-1) ** number]]
    signal = np.arange(n_events) < n_signal
    found = {
        "EVENT_ID": np.arange(n_events),
        "RA": pointing[0] + far[0] / np.cos(np.radians(pointing[1])),
        "DEC": pointing[1] + far[1],
        "TIME": np.sort(random.uniform(0, 1200, n_events)) + 86_400.0 * number,
    }
    own = {
        "ENERGY": random.lognormal(0.3 * signal, 1.0),
        "MULTIP": random.integers(2, 5, n_events),
        "HIL_MSW": random.normal(-0.5 * signal, 1.0),
        "EVENT_TYPE": random.integers(0, 2, n_events),
        "COREX": random.normal(0, 100, n_events),
        "GAMMANESS": random.random(n_events),
    }
    found |= {name: own[name] for name in columns}
    order = random.permutation(n_events)
    formats = {"i": "K", "f": "D"}
    table = [
        fits.Column(name, formats[values.dtype.kind], array=values if name in ("EVENT_ID", "TIME") else values[order])
        for name, values in found.items()
    ]
    hdu = fits.BinTableHDU.from_columns(table, name="EVENTS")
    known = {"TELESCOP": "HESS", "OBS_ID": 100 + number, "RA_PNT": pointing[0], "DEC_PNT": pointing[1]}
    known |= {"MJDREFI": 53_000, "MJDREFF": 0.5, "TIMESYS": "TT", "LIVETIME": 1100.0, "ONTIME": 1200.0}
    for key, value in (known | header).items():
        if value is not None:
            hdu.header[key] = value
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(path)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    columns = ("ENERGY", "MULTIP", "HIL_MSW", "EVENT_TYPE", "COREX", "GAMMANESS")
    return [write_run(folder / f"{number}.fits", number, columns=columns, OBJECT="Crab Nebula") for number in range(3)]


def test_two_commands_from_event_lists_to_a_detection(runs, tmp_path, capsys):
    assert run("init", *runs, "-o", tmp_path / "my.yaml") == 0
    text = said(capsys)
    assert "3 files, FITS event list of H.E.S.S., preset: H.E.S.S. event list" in text
    assert "Features: energy, multip, hil_msw" in text
    assert "as many regions as fit around Crab, named in the files, theta^2 < 0.0125; groups: night" in text
    assert "for --reference: gammaness" in text
    config = load_config(tmp_path / "my.yaml")
    assert config == propose_config(runs).config
    assert (config.regions.source_ra, config.regions.source_dec) == CRAB
    options = ("-m", "tree", "--no-null-test", "--json", "-o")
    assert run("detect", *runs, "-c", tmp_path / "my.yaml", *options, tmp_path / "one") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["observation"]["features"] == ["energy", "multip", "hil_msw"]
    assert result["models"]["tree"]["significance"] > 10
    # without the file, the same in memory, with three lines
    assert run("detect", *runs, *options, tmp_path / "two") == 0
    assert json.loads(capsys.readouterr().out)["models"] == result["models"]
    assert (tmp_path / "two" / "config.yaml").read_bytes() == (tmp_path / "one" / "config.yaml").read_bytes()


def test_what_is_assumed_is_said_in_three_lines(runs, tmp_path, capsys):
    assert run("train", *runs, "-m", "tree", "-o", tmp_path / "model", "--exclude", "multip") == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "No -c given; assuming: 3 files, FITS event list of H.E.S.S., preset: H.E.S.S. event list"
    assert lines[1].startswith("Features: energy, hil_msw; ")
    assert lines[2].startswith("On and Off: as many regions as fit around Crab")
    assert "events read" in lines[3]
    # a model applied to other files brings its features
    more = write_run(tmp_path / "7.fits", 7, columns=("ENERGY", "MULTIP", "HIL_MSW"), OBJECT="Crab")
    options = ("--model-file", tmp_path / "model", "-o", tmp_path / "applied", "--json")
    assert run("detect", more, *options) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["observation"]["features"] == ["energy", "hil_msw"]


def test_nothing_is_said_about_files_of_fact(tmp_path, capsys):
    write_events(simulate_observation(20_000, 300, random_state=0), tmp_path / "crab.hdf5")
    assert run("train", tmp_path / "crab.hdf5", "-m", "tree", "-o", tmp_path / "model") == 0
    assert "20,000 events read" in capsys.readouterr().err.splitlines()[0]
    assert run("init", tmp_path / "crab.hdf5", "-o", tmp_path / "fact.yaml") == 0
    assert load_config(tmp_path / "fact.yaml") == AnalysisConfig()


def test_init_prints_without_an_output(runs, capsys):
    assert run("init", *runs, "--features", "hil_*,energy", "--groups", "obs_id") == 0
    printed = capsys.readouterr().out
    assert "features:\n- hil_msw\n- energy\n" in printed
    assert "\ngroups: obs_id\n" in printed
    assert run("init", *runs, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["not_features"]["event_type"] == "it is a type, not a measurement"
    assert found["config"] == propose_config(runs).config.model_dump(mode="json")
    assert (found["path"], found["energy"], found["telescope"]) == (None, "energy", "H.E.S.S.")


def test_init_replaces_nothing_unless_it_is_told_to(runs, tmp_path, capsys):
    output = tmp_path / "my.yaml"
    output.write_text("mine: true\n")
    assert run("init", *runs, "-o", output) == 1
    assert "already exists" in said(capsys)
    assert output.read_text() == "mine: true\n"
    assert run("init", *runs, "-o", output, "--overwrite") == 0
    before = runs[0].read_bytes()
    assert run("init", *runs, "-o", runs[0], "--overwrite") == 1
    assert "would overwrite the input" in said(capsys)
    assert runs[0].read_bytes() == before
    assert run("init", output, "-o", tmp_path / "other.yaml") == 2


@pytest.mark.parametrize(
    ("header", "options", "expected"),
    [
        ({"OBJECT": "CrabNebula-W0.40+090"}, {}, "Crab"),
        ({"OBJECT": "My field", "RA_OBJ": 10.0, "DEC_OBJ": -30.0}, {}, (10.0, -30.0)),
        ({"OBJECT": "Crab", "RA_OBJ": 84.9, "DEC_OBJ": 22.0}, {}, (84.9, 22.0)),
        ({"OBJECT": "Crab", "RA_OBJ": 83.63, "DEC_OBJ": 22.01}, {}, "Crab"),
        ({"OBJECT": "Crab"}, {"source": "M 87"}, "M 87"),
        ({"OBJECT": "Crab"}, {"source": "83.1 21.9"}, (83.1, 21.9)),
        ({"OBJECT": "Crab"}, {"source": (83.1, 21.9)}, (83.1, 21.9)),
    ],
)
def test_the_source_is_what_is_asked_for_or_what_the_files_name(header, options, expected, tmp_path):
    regions = propose_config(write_run(tmp_path / "run.fits", n_events=50, offset=1.0, **header), **options).regions
    found = (regions.source_ra, regions.source_dec)
    assert found == (find_source(expected)[1:] if isinstance(expected, str) else expected)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([{}], "regions from sky positions require the source position: specify source, such as Crab"),
        ([{"OBJECT": "Field 9"}], "the files name Field 9, which is not a known source"),
        ([{"OBJECT": "Crab"}, {"OBJECT": "Mrk 421"}], "the files name several objects: Crab, Mrk 421"),
        ([{"OBJECT": "Crab", "RA_PNT": None}], "On and Off are not defined: .*pointing_ra missing"),
        ([{"OBJECT": "Crab", "DEC_PNT": 22.05}], "too close to the pointing, so regions overlap"),
    ],
)
def test_event_lists_without_regions_say_what_is_missing(headers, message, tmp_path):
    files = [write_run(tmp_path / f"{n}.fits", n, n_events=50, **header) for n, header in enumerate(headers)]
    with pytest.raises(ValueError, match=message):
        OnOffDataset.from_files(files)
    assert run("init", *files, "-o", tmp_path / "my.yaml") == 0
    assert load_config(tmp_path / "my.yaml").features == ("energy",)
    assert "# No detection yet: " in (tmp_path / "my.yaml").read_text()


def test_regions_do_not_overlap(tmp_path):
    for offset, expected in ((0.4, "auto"), (0.145, "auto"), (0.13, 2)):
        path = write_run(tmp_path / f"{offset}.fits", offset=offset, n_events=50, OBJECT="Crab")
        assert propose_config(path).regions.n_regions == expected


def test_without_any_feature_there_are_counts(tmp_path, capsys):
    files = [write_run(tmp_path / f"{number}.fits", number, columns=(), OBJECT="Crab") for number in range(2)]
    assert run("detect", *files, "-o", tmp_path / "out") == 0
    shown = capsys.readouterr()
    assert "no column can be used as a feature (event_id: it identifies the event; " in shown.err
    assert shown.out.startswith("On ")
    assert shown.out.rstrip().endswith("sigma")
    assert not (tmp_path / "out" / "result.json").exists()
    assert run("detect", *files, "-o", tmp_path / "out", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["observation"]["significance"] > 10
    assert found["models"] == {}
    assert run("init", *files, "-o", tmp_path / "my.yaml") == 1
    assert "only counts without a cut are available" in said(capsys)
    assert not (tmp_path / "my.yaml").exists()


def test_info_counts_around_the_named_source(runs, capsys):
    assert run("info", runs[0], "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["assumed"]["preset"] == "H.E.S.S. event list"
    assert "On 3" in found["on_off"]["without a cut"]
    assert run("info", runs[0], "--source", "Mrk 421", "--json") == 0
    obstacle = json.loads(capsys.readouterr().out)["assumed"]["obstacle"]
    assert "the source Mrk 421 is 71 deg from the pointing" in obstacle
    assert run("info", runs[0], "--source", "Mkr 421") == 2
    assert "did you mean 'Mrk 421'" in said(capsys)


def test_wrong_sources_on_the_command_line(runs, tmp_path, capsys):
    assert run("detect", *runs, "--source", "Krab", "-o", tmp_path) == 2
    assert "--source: 'Krab' is not a known source; did you mean 'Crab'" in said(capsys)
    both = ("--source", "Crab", "--source-ra", 83.6, "--source-dec", 22.0)
    assert run("detect", *runs, *both, "-o", tmp_path) == 2
    assert "cannot be combined with --source-ra and --source-dec" in said(capsys)


def test_options_change_the_features_of_a_configuration(runs, tmp_path, capsys):
    assert run("init", *runs, "-o", tmp_path / "my.yaml") == 0
    options = ("-c", tmp_path / "my.yaml", "-m", "tree", "--no-null-test", "--json", "-o", tmp_path / "out")
    capsys.readouterr()
    assert run("detect", *runs, "--features", "hil_*", "--features", "multip", "--exclude", "multip", *options) == 0
    assert json.loads(capsys.readouterr().out)["observation"]["features"] == ["hil_msw"]
    assert run("detect", *runs, "--features", "hillas_*", *options, "--overwrite") == 1
    assert "--features: 'hillas_*' is not a column of the events" in said(capsys)


def test_a_configuration_of_another_telescope_points_to_init(runs, tmp_path, capsys):
    (tmp_path / "fact.yaml").write_text("groups: night\n")
    assert run("detect", *runs, "-c", tmp_path / "fact.yaml", "-o", tmp_path / "out") == 1
    assert "create a configuration with 'excess init'" in said(capsys)


def test_csv_files_of_an_unknown_telescope(tmp_path, capsys):
    table = simulate_observation(30_000, 400, random_state=0)
    names = {"width": "breadth", "length": "extent", "size": "charge", "concentration_cog": "compactness"}
    kept = [*names, "night", "event_num", *(name for name in table if name.startswith("theta"))]
    table[kept].rename(columns=names).to_csv(tmp_path / "night.csv", index=False)
    assert run("init", tmp_path / "night.csv", "-o", tmp_path / "my.yaml") == 0
    options = ("-c", tmp_path / "my.yaml", "-m", "tree", "--no-null-test", "--json", "-o", tmp_path / "out")
    capsys.readouterr()
    assert run("detect", tmp_path / "night.csv", *options) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["observation"]["features"] == ["breadth", "extent", "charge", "compactness"]
    assert result["models"]["tree"]["significance"] > result["observation"]["significance"]


def test_lists_of_observations_say_what_is_assumed(runs, tmp_path, capsys):
    (tmp_path / "list.yaml").write_text(
        f"early: {{events: '{runs[0]}'}}\nlate: {{events: ['{runs[1]}', '{runs[2]}']}}\n"
    )
    options = ("-m", "tree", "--no-null-test", "-o", tmp_path / "out", "--exclude", "energy")
    assert run("detect", tmp_path / "list.yaml", *options) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "Features: multip, hil_msw; 16 other columns are not used"
    assert lines[2] == "On and Off: by the regions of each observation; groups: night"
    assert load_config(tmp_path / "out" / "config.yaml").features == ("multip", "hil_msw")


@public
@pytest.mark.slow
def test_joint_crab_needs_nothing_but_the_name_of_the_source(tmp_path, capsys):
    files = sorted((DATA / "fact/joint-crab").glob("*_dl3.fits"))
    assert len(files) == 125
    options = ("--source", "Crab", "-m", "tree", "--no-null-test", "--json", "-o", tmp_path / "run")
    assert run("detect", *files, *options) == 0
    found = json.loads(capsys.readouterr().out)["observation"]
    assert (found["n_on"], found["n_off"], round(found["significance"], 1)) == (618, 1108, 19.2)
    assert found["features"] == ["energy"]
    regions = load_config(tmp_path / "run" / "config.yaml").regions
    assert (regions.n_regions, regions.theta_squared_cut) == (6, 0.025)
    # the header of the runs names the source, so that even that may be left out
    assert propose_config(files).config.regions == regions


@public
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "preset", "n_features", "obstacle"),
    [
        ("fact/one_run_20151203_106.hdf5", "FACT DL2", 22, None),
        ("fact/gamma_diffuse.hdf5", "FACT DL2", 22, None),
        ("fact/gamma.hdf5", "FACT DL2", 22, "contains simulated events .* no detection"),
        ("fact/proton.hdf5", "FACT DL2", 22, "contains simulated events"),
        ("fact/crab_dl3_small.hdf5", "FACT DL3", 1, None),
        ("fact/joint-crab/20131103_103_dl3.fits", "FACT event list", 1, None),
        ("cta/cta_protons.dl1.h5", "ctapipe", None, "contains simulated events"),
        ("cta/cta_gammas_diffuse.dl1.h5", "ctapipe", None, "contains simulated events"),
    ],
)
def test_public_files(name, preset, n_features, obstacle, tmp_path, capsys):
    proposal = propose_config(DATA / name)
    assert proposal.preset == preset
    assert set(proposal.reasons) | set(proposal.config.features) >= set(describe(DATA / name).columns)
    assert len(proposal.config.features) == (n_features or len(proposal.config.features)) > 0
    assert run("init", DATA / name, "-o", tmp_path / "my.yaml") == 0
    assert load_config(tmp_path / "my.yaml") == proposal.config
    if obstacle is None:
        assert proposal.obstacle is None
    else:
        assert run("detect", DATA / name, "-o", tmp_path / "out") == 1
        assert re.search(obstacle, said(capsys))


def test_a_hawc_map_has_regions_of_the_same_declination():
    random = np.random.default_rng(0)
    columns = {name: random.random(200) for name in ("rec.nHit", "rec.PINC", "rec.CxPE40", "rec.coreX")}
    table = pd.DataFrame({"ra": random.uniform(70, 100, 200), "dec": random.uniform(18, 26, 200), **columns})
    proposal = propose_config(table, source="Crab")
    assert proposal.preset == "HAWC"
    assert proposal.config.features == ("rec.nHit", "rec.PINC", "rec.CxPE40")
    assert proposal.config.regions.method == "same_declination"
    assert proposal.obstacle is None


@pytest.fixture(scope="module")
def ctapipe_runs(tmp_path_factory):
    pytest.importorskip("ctapipe")
    folder = tmp_path_factory.mktemp("ctapipe")
    write_ctapipe(folder / "observed.dl2.h5", 1200, n_signal=150)
    write_ctapipe(folder / "images.dl1.h5", 60, stereo=False)
    write_ctapipe(folder / "simulated.dl1.h5", 60, stereo=False, simulated=True)
    return folder


@pytest.mark.slow
def test_two_commands_from_a_ctapipe_file_to_a_detection(ctapipe_runs, tmp_path, capsys):
    path = ctapipe_runs / "observed.dl2.h5"
    assert run("init", path, "--source", "Crab", "-o", tmp_path / "my.yaml") == 0
    text = said(capsys)
    assert "preset: ctapipe" in text
    assert "as many regions as fit around Crab, theta^2 < 0.02; groups: night" in text
    assert "for --reference: Classifier_prediction" in text
    config = load_config(tmp_path / "my.yaml")
    assert {"HillasReconstructor_h_max", "Forest_energy", "hillas_width_mean", "n_telescopes"} <= set(config.features)
    assert not any(name.endswith(("_min", "_max", "_prediction")) for name in config.features[2:])
    options = ("-m", "tree", "--no-null-test", "--json", "-o", tmp_path / "out")
    assert run("detect", path, "-c", tmp_path / "my.yaml", *options) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["observation"]["n_read"] == 1350  # showers, not images
    assert result["models"]["tree"]["significance"] > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("observed.dl2.h5", "require the source position"),
        ("images.dl1.h5", r"On and Off are not defined: .*\(ra, dec missing\)"),
        ("simulated.dl1.h5", "contains simulated events .* no detection is possible"),
    ],
)
def test_ctapipe_files_that_cannot_have_a_detection_say_why(name, message, ctapipe_runs, tmp_path, capsys):
    assert run("init", ctapipe_runs / name, "-o", tmp_path / "my.yaml") == 0
    assert "No detection yet: " in said(capsys)
    assert run("detect", ctapipe_runs / name, "-o", tmp_path / "out") == 1
    assert re.search(message, said(capsys))


@pytest.fixture(scope="module")
def lstchain_run(tmp_path_factory):
    """An observation of the Crab in lstchain's DL2, of two nights, with directions relative to the horizon."""
    coordinates = pytest.importorskip("astropy.coordinates")
    units = pytest.importorskip("astropy.units")
    times = pytest.importorskip("astropy.time")
    n_events, random = 3000, np.random.default_rng(0)
    events = lst_events(n_events)
    later = np.arange(n_events) >= n_events // 2
    unix = 1_605_920_400 + 86_400 * later + np.sort(random.uniform(0, 3000, n_events))
    crab = coordinates.SkyCoord(*CRAB, unit="deg")
    pointing = crab.directional_offset_by(30 * units.deg, 0.4 * units.deg)
    signal = random.random(n_events) < 0.1
    center, spread = (np.where(signal, 0.0, 0.4), np.where(signal, 0.06, 0.6))
    angle = random.uniform(0, 360, n_events) * units.deg
    sky = crab.directional_offset_by(30 * units.deg, center * units.deg)
    sky = sky.directional_offset_by(angle, random.rayleigh(spread) * units.deg)
    frame = coordinates.AltAz(
        obstime=times.Time(unix, format="unix"),
        location=coordinates.EarthLocation.from_geodetic(-17.8915, 28.7615, 2200),
    )
    for names, place in ((("reco_alt", "reco_az"), sky), (("alt_tel", "az_tel"), pointing)):
        horizon = place.transform_to(frame)
        events = events.assign(**{names[0]: horizon.alt.rad, names[1]: horizon.az.rad})
    events["width"] -= 0.02 * signal
    events["event_type"] = np.where(random.random(n_events) < 0.05, 2, 32).astype(np.uint8)
    more = {"psi": random.uniform(-3, 3, n_events), "reco_disp_dx": random.random(n_events), "mc_type": -9999}
    path = tmp_path_factory.mktemp("lstchain") / "dl2_run.h5"
    write_lstchain(path, events.assign(dragon_time=unix, obs_id=2929 + later, **more))
    return path


@pytest.mark.slow
def test_two_commands_from_an_lstchain_file_to_a_detection(lstchain_run, tmp_path, capsys):
    assert run("init", lstchain_run, "--source", "Crab", "-o", tmp_path / "my.yaml") == 0
    text = said(capsys)
    assert "lstchain HDF5 DL2 of LST-1, preset: lstchain" in text
    assert "as many regions as fit around Crab, theta^2 < 0.04; groups: night" in text
    assert "for --reference: gammaness" in text
    config = load_config(tmp_path / "my.yaml")
    assert config.features == ("intensity", "width", "length", "wl", "reco_energy")
    assert config.quality_cuts == ("event_type == 32", "intensity > 50", "wl > 0.01")
    options = ("-m", "tree", "--no-null-test", "--json", "-o", tmp_path / "out")
    assert run("detect", lstchain_run, "-c", tmp_path / "my.yaml", *options) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["models"]["tree"]["significance"] > 5
    assert run("detect", lstchain_run, "-o", tmp_path / "other") == 1
    assert "require the source position" in said(capsys)


@pytest.mark.parametrize(("telescope", "preset"), [("HAWC", "HAWC"), ("LHAASO", "air-shower array event list")])
def test_arrays_that_see_the_sky_drift_need_no_pointing(telescope, preset, tmp_path, capsys):
    away = {"TELESCOP": telescope, "RA_PNT": None, "DEC_PNT": None}
    path = write_run(tmp_path / "map.fits", source=CRAB, columns=("ENERGY", "MULTIP"), **away)
    assert run("detect", path, "--source", "Crab", "-m", "tree", "--no-null-test", "-o", tmp_path / "out") == 0
    text = said(capsys)
    assert f"preset: {preset}" in text
    assert "6 regions of same declination around Crab, theta^2 < 0.25" in text
    assert load_config(tmp_path / "out" / "config.yaml").regions.method == "same_declination"


def test_rejected_columns_are_listed_and_taken_by_name(tmp_path, capsys):
    table = simulate_observation(4_000, 100, random_state=0).assign(hadronness=0.5)
    table["hadronness"] = np.random.default_rng(0).random(len(table))
    table["XMAX"] = np.random.default_rng(1).normal(300, 50, len(table))
    table.loc[::10, "XMAX"] = np.nan
    write_events(table.drop(columns="size"), tmp_path / "events.parquet")
    assert run("init", tmp_path / "events.parquet", "-o", tmp_path / "found.yaml") == 0
    text = capsys.readouterr().err
    assert "hadronness: it is the output of a classifier" in text
    assert "XMAX" in load_config(tmp_path / "found.yaml").features
    options = ("--features", "hadronness,XMAX", "--groups", "none", "-m", "tree", "--no-null-test")
    assert run("detect", tmp_path / "events.parquet", *options, "-o", tmp_path / "run") == 0
    text = capsys.readouterr().err
    assert "(no value: XMAX in " in text
    assert load_config(tmp_path / "run" / "config.yaml").features == ("hadronness", "XMAX")
    assert run("detect", tmp_path / "events.parquet", "--features", "theta_deg", "-o", tmp_path / "other") == 2


def test_folders_and_several_files(tmp_path, capsys):
    for number in range(2):
        write_events(simulate_observation(2_000, 20, random_state=number), tmp_path / f"night{number}.parquet")
    (tmp_path / "notes").write_bytes(b"\0 no events")
    (tmp_path / "other.yaml").write_text("a, b\n1, 2\n")
    (tmp_path / "inside").mkdir()
    assert run("info", tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n_files"], found["n_events"]) == (2, 4_000)
    assert run("info", tmp_path / "night0.parquet", tmp_path / "night1.parquet") == 0
    text = capsys.readouterr().out
    assert "4,000" in text
    assert "photoncharge_shower_mean" not in text
    assert run("info", tmp_path / "night0.parquet", "--columns") == 0
    assert "photoncharge_shower_mean" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert run("info", tmp_path / "empty") == 1
    assert "has no event files" in capsys.readouterr().err
