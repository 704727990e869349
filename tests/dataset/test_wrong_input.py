"""Wrong input that would become a detection: what the library and the command line refuse, and what they let pass."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import SHARED, run_command

from excess.analysis import detect
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.dataset._dataset import Census
from excess.dataset._leakage import check_origin, check_rows, find_origin
from excess.dataset._regions import angles_between, find_regions, unit_vectors
from excess.io import EventFileError, read_events, write_events
from excess.io._images import origin_of

SMALL = AnalysisConfig(features=["width", "length"], derived_features={}, quality_cuts=[], groups="none")
"""Two features, so that files need few columns."""


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


def part(table: pd.DataFrame, on: bool) -> pd.DataFrame:
    """Return the events of the On region, or those of all Off regions."""
    regions = find_regions(table, AnalysisConfig().regions)
    return table[regions.on if on else regions.region > 0].drop(columns=[name for name in table if "theta" in name])


@pytest.fixture
def split_files(tmp_path):
    """Three files of On events and three of Off events of the same nights, without a source."""
    for number in range(3):
        table = simulate_observation(8_000, 0, n_nights=1, first_night=20131101 + number, random_state=number)
        for on, kind in ((True, "on"), (False, "off")):
            write_events(part(table, on), tmp_path / f"{kind}_{number}.parquet")
    return {kind: [tmp_path / f"{kind}_{number}.parquet" for number in range(3)] for kind in ("on", "off")}


@pytest.mark.parametrize("order", ["files first", "options first", "repeated", "behind --"])
def test_an_option_takes_all_files_up_to_the_next_option(order, split_files, tmp_path, capsys):
    on, off = split_files["on"], split_files["off"]
    given = {
        "files first": (*on, "--off", *off, "--alpha", 0.2),
        "options first": ("--off", *off, "--alpha", 0.2, *on[:1], "--groups", "night", *on[1:]),
        "repeated": (*on, *(word for path in off for word in ("--off", path)), "--alpha", 0.2),
        "behind --": ("--alpha", 0.2, "--off", *off, "--", *on),
    }[order]
    assert run_command("detect", "-o", tmp_path / "out", "-m", "tree", "-j", 1, "--json", *given) == 0
    result = json.loads(capsys.readouterr().out)
    kinds = [entry["path"].rpartition("/")[2] for entry in result["run"]["files"]]
    assert kinds == [f"{kind}_{number}.parquet" for kind in ("on", "off") for number in range(3)]
    assert abs(result["models"]["tree"]["significance"]) < 3.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--off", "b", "c", "--alpha", 1), "FILES: are missing: --off takes all files up to the next option"),
        (("--join", "b", "c"), "FILES: are missing: --join takes all files up to the next option"),
        (("a", "--off", "--alpha", 1), "--off: requires at least one file"),
        (("a", "--alpha", 1, "--off"), "--off: requires at least one file"),
    ],
)
def test_an_option_for_files_without_files_is_wrong_usage(words, message, tmp_path, capsys):
    assert run_command("detect", "-o", tmp_path / "out", *words) == 2
    assert message in said(capsys)


def test_join_takes_all_files(tmp_path, capsys):
    keys = ["event_num", "night", "run_id"]
    for number in range(2):
        table = simulate_observation(30_000, 200, n_nights=2, first_night=20131101 + 2 * number, random_state=number)
        thetas = [name for name in table if name.startswith("theta")]
        write_events(table.drop(columns=thetas), tmp_path / f"dl2_{number}.parquet")
        write_events(table[[*keys, *thetas]], tmp_path / f"dl3_{number}.parquet")
    files = [tmp_path / f"dl2_{number}.parquet" for number in range(2)]
    joined = ("--join", *(tmp_path / f"dl3_{number}.parquet" for number in range(2)), "-m", "tree", "-j", 1, "--json")
    assert run_command("detect", *files, *joined, "-o", tmp_path / "out") == 0
    assert json.loads(capsys.readouterr().out)["observation"]["n_read"] == 60_000
    assert run_command("detect", *files, *joined[:2], files[0], "-o", tmp_path / "other") == 1
    assert f"{files[0]}: is given for events and for joined events" in said(capsys)


def test_a_file_on_both_sides_is_refused(split_files, tmp_path, capsys):
    on, off = split_files["on"], split_files["off"]
    given = ("--alpha", 0.2, "-o", tmp_path / "out", "-m", "tree")
    assert run_command("detect", *on, "--off", *off, on[0], *given) == 1
    assert f"{on[0]}: is given for On events and for Off events" in said(capsys)
    assert run_command("detect", *on, "--off", *off, off[2], *given) == 1
    assert f"{off[2]}: is given twice for Off events" in said(capsys)


@pytest.mark.parametrize("number_of_files", [1, 2])
def test_events_on_both_sides_are_refused(number_of_files, split_files, tmp_path):
    copy = read_events(split_files["on"][0]).assign(night=20200101, run_id=1)
    copy["event_num"] = np.arange(len(copy))
    write_events(copy, tmp_path / "copy.parquet")
    on, off = split_files["on"][:number_of_files], [*split_files["off"][1:], tmp_path / "copy.parquet"]
    with pytest.raises(EventFileError, match=r"have the same value in every feature .*on_0.parquet and .*copy.parquet"):
        OnOffDataset.from_files(on, off=off, alpha=0.2)


def test_a_file_without_identifiers_that_is_there_twice_is_refused(tmp_path):
    table = part(simulate_observation(20_000, 100, random_state=0), on=True)[["width", "length"]]
    other = part(simulate_observation(20_000, 0, random_state=1), on=False)[["width", "length"]]
    for name, events in {"on": table, "copy": table, "off": other}.items():
        events.to_csv(tmp_path / f"{name}.csv", index=False)
    OnOffDataset.from_files(tmp_path / "on.csv", SMALL, off=tmp_path / "off.csv", alpha=0.2)
    with pytest.raises(EventFileError, match=r"\(most of them in .*on.csv and .*copy.csv\)"):
        OnOffDataset.from_files(
            [tmp_path / "on.csv", tmp_path / "copy.csv"], SMALL, off=tmp_path / "off.csv", alpha=0.2
        )


def test_the_same_events_under_other_dates_are_refused():
    table = simulate_observation(20_000, 100, n_nights=2, random_state=0)
    again = table.assign(night=table["night"] + 10_000, event_num=table["event_num"] + 1_000_000)
    with pytest.raises(EventFileError, match=r"events have the same value .*in group 20131101 and group 20141101"):
        OnOffDataset.from_files(pd.concat([table, again], ignore_index=True))
    first, second = OnOffDataset.from_files(table), OnOffDataset.from_files(again)
    with pytest.raises(EventFileError, match=r"in observation 'a' and observation 'b'"):
        OnOffDataset.stack({"a": first, "b": second})


def _columns(kind: str, rng: np.random.Generator, n: int = 8_000) -> np.ndarray:
    return {
        "continuous": lambda: rng.normal(size=(n, 4)),
        "one continuous": lambda: rng.normal(size=(n, 1)),
        "single precision": lambda: rng.lognormal(size=(20 * n, 1)).astype(np.float32),
        "rounded": lambda: rng.lognormal(size=(n, 1)).round(3),
        "two rounded": lambda: rng.lognormal(size=(n, 2)).round(2),
        "rounded and its logarithm": lambda: np.log(rng.lognormal(size=(n, 1)).round(3) + np.array([1, 2])),
        "counts": lambda: rng.poisson(12, (n, 3)),
        "a value that most have": lambda: rng.lognormal(size=(n, 1)) * (rng.random((n, 1)) < 0.1),
        "flags": lambda: rng.integers(0, 2, (n, 2)),
        "constant": lambda: np.ones((n, 1)),
    }[kind]().astype(float)


KINDS = (
    "continuous",
    "one continuous",
    "single precision",
    "rounded",
    "two rounded",
    "rounded and its logarithm",
    "counts",
    "a value that most have",
    "flags",
    "constant",
)


@pytest.mark.parametrize("kind", KINDS)
def test_features_that_are_equal_by_chance_are_no_copies(kind):
    for seed in range(5):
        X = _columns(kind, np.random.default_rng(seed))
        check_rows(X, np.zeros(len(X), dtype=int), ["file"])


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["continuous", "one continuous", "two rounded", "rounded and its logarithm"])
def test_copies_are_found_whatever_the_features_are(kind, share):
    X = _columns(kind, np.random.default_rng(0))
    copied = np.concatenate([X, X[: int(share * len(X))]])
    with pytest.raises(EventFileError, match="have the same value in every feature as another event"):
        check_rows(copied, np.zeros(len(copied), dtype=int), ["file"])


def test_a_handful_of_equal_rows_passes():
    X = np.random.default_rng(0).normal(size=(10_000, 3))
    check_rows(np.concatenate([X, X[:10]]), np.zeros(10_010, dtype=int), ["file"])
    with pytest.raises(EventFileError, match="20 of 10,020 events"):
        check_rows(np.concatenate([X, X[:20]]), np.zeros(10_020, dtype=int), ["file"])


@pytest.mark.skipif(not (SHARED / "data/fact").is_dir(), reason="the public data are not beside the project")
@pytest.mark.parametrize("name", ["gamma", "proton", "one_run_20151203_106"])
def test_no_column_of_real_files_is_taken_for_a_copy(name):
    table = read_events(SHARED / f"data/fact/{name}.hdf5").select_dtypes("number")
    for column in table:
        if origin_of(column) is None:
            X = table[[column]].dropna().to_numpy(dtype=float)
            check_rows(X, np.zeros(len(X), dtype=int), ["file"])


def test_images_of_one_shower_are_refused_and_one_telescope_is_not():
    table = simulate_observation(20_000, 100, random_state=0).rename(columns={"run_id": "obs_id"})
    table = table.drop(columns="event_num").assign(event_id=np.arange(20_000) // 2, tel_id=np.arange(20_000) % 2 + 1)
    with pytest.raises(EventFileError, match=r"rows are telescope images of .* aggregate .* 'tel_id == [12]'"):
        OnOffDataset.from_files(table)
    one = AnalysisConfig(quality_cuts=["tel_id == 1"])
    assert (OnOffDataset.from_files(table, one).table["tel_id"] == 1).all()


@pytest.mark.parametrize(
    "name",
    [
        *("x", "y", "src_x", "reco_src_x", "alt_tel", "az_tel", "dragon_time", "ra_deg", "dec_deg", "reco_theta"),
        *("separation", "sep", "zenithAngle", "theta2", "Xoff", "Yoff_derot", "MHillas.fMeanX", "fZd", "MJD", "Ze"),
        *(
            "rec.gpsSec",
            "rec.eventID",
            "ucts_time",
            "delta_t",
            "reco_disp_dx",
            "TelElevation",
            "fov_altaz_lon",
            "airmass",
        ),
    ],
)
def test_names_of_positions_and_times_of_all_telescopes_are_refused(name):
    with pytest.raises(ValueError, match="encodes where an event came from"):
        AnalysisConfig(features=["width", name])


@pytest.mark.parametrize(
    "name",
    [
        *(
            "energy",
            "reco_energy",
            "log_intensity",
            "time_gradient",
            "h_max",
            "core_x",
            "impact",
            "multiplicity",
            "MSCW",
        ),
        *("timespread", "arrival_time_mean", "peak_time_mean", "slope_long", "leakage_intensity_width_2", "wl", "disp"),
        *(
            "psi",
            "reco_disp_norm",
            "intercept",
            "photoncharge_mean",
            "rec.LDFAge",
            "width_max",
            "radius",
            "emission_height",
        ),
    ],
)
def test_names_of_image_parameters_are_not(name):
    assert origin_of(name) is None


def test_a_feature_that_tells_regions_apart_is_refused_whatever_its_name():
    table = simulate_observation(60_000, 0, random_state=0)
    config = {"features": ["width", "length", "beauty"], "derived_features": {}, "quality_cuts": []}
    table["beauty"] = table["theta_deg"]
    with pytest.raises(
        EventFileError, match=r"feature 'beauty' separates Off regions, which contain no source \(Cramer's V 0\.\d\d, p"
    ):
        OnOffDataset.from_files(table, AnalysisConfig(**config))
    OnOffDataset.from_files(table, AnalysisConfig(**config, allow_origin_features=True))
    one_off = {**config, "regions": {"n_regions": 2}, "groups": "none"}
    with pytest.raises(EventFileError, match=r"'beauty' separates On from Off more than a source can: \d+ % of the"):
        OnOffDataset.from_files(table, AnalysisConfig(**one_off))


def test_positions_in_the_camera_are_found_without_their_names():
    rng = np.random.default_rng(0)
    region = rng.integers(0, 6, 5_000)
    angle, turned = np.pi / 3 * region, rng.uniform(0, 2 * np.pi, 5_000)
    x = 0.6 * np.cos(angle) + rng.gamma(4, 0.25, 5_000) * np.cos(turned)
    found = find_origin(x, region, 0.2, 6)
    assert found.association > 0.15
    assert found.association_p_value < 1e-30


@pytest.mark.parametrize(("n_events", "n_signal"), [(20_000, 0), (40_000, 600), (40_000, 4_000)])
def test_honest_features_pass(n_events, n_signal):
    for seed in range(6):
        observed = OnOffDataset.from_files(simulate_observation(n_events, n_signal, random_state=seed))
        for feature in observed.X.T:
            found = find_origin(feature, observed.regions.region, observed.alpha, 6)
            assert min(found.association_p_value, found.missing_p_value) > 1e-6


def test_a_wrong_exposure_ratio_is_no_matter_of_features(split_files):
    OnOffDataset.from_files(split_files["on"], off=split_files["off"], alpha=2.0)


@pytest.mark.parametrize(
    ("census", "refused"),
    [
        (
            Census(1_000_000, 1_000_000, 167_000, 833_000, 9_000),
            "assigning them to On would mimic a source of 4.0 sigma",
        ),
        (Census(1_000_000, 1_000_000, 167_000, 833_000, 500), ""),
        (Census(3_000, 3_000, 500, 2_500, 29), ""),
        (Census(3_000, 3_000, 500, 2_500, 31), "which exceeds 1 % of the used events"),
        (Census(1_000, 46, 7, 39, 2), "which exceeds 1 % of the used events"),
        (Census(1_000, 46, 7, 39, 1), ""),
    ],
)
def test_overlap_is_judged_by_what_it_would_fake(census, refused):
    if not refused:
        return census.check("file", AnalysisConfig(), 0.2)
    with pytest.raises(
        EventFileError, match=f"the regions overlap: .* are in several regions; {refused}; .*'overlap: drop'"
    ):
        census.check("file", AnalysisConfig(), 0.2)
    return None


def test_a_csv_file_without_rows_has_no_events(tmp_path, capsys):
    simulate_observation(10, 0, random_state=0).iloc[:0].to_csv(tmp_path / "empty.csv", index=False)
    assert run_command("detect", tmp_path / "empty.csv", "-o", tmp_path / "out") == 1
    assert said(capsys) == f"excess: {tmp_path / 'empty.csv'}: no events"


def _fields(tmp_path, offset, night, signal, seed):
    """Write a whole field of view around a pointing, with a source or without; return its path."""
    rng = np.random.default_rng(seed)
    n = 4_000
    pointing = np.array([83.63 - offset[0] / np.cos(np.radians(22.01)), 22.01 - offset[1]])
    ra, dec = pointing[0] + rng.uniform(-1.5, 1.5, n) / np.cos(np.radians(22)), pointing[1] + rng.uniform(-1.5, 1.5, n)
    ra[:signal], dec[:signal] = 83.63 + rng.normal(0, 0.05, signal), 22.01 + rng.normal(0, 0.05, signal)
    width, length = rng.lognormal(size=n), rng.lognormal(size=n)
    table = {"ra": ra, "dec": dec, "pointing_ra": pointing[0], "pointing_dec": pointing[1], "night": night}
    path = tmp_path / f"{night}.parquet"
    write_events(pd.DataFrame({**table, "width": width, "length": length}), path)
    return path


def test_whole_fields_of_view_beside_off_files_get_the_cut_on_theta(tmp_path):
    on = [_fields(tmp_path, (0.5, 0.0), 1, 100, 0), _fields(tmp_path, (-0.5, 0.0), 2, 100, 1)]
    off = [_fields(tmp_path, (20.0, 3.0), 3, 0, 2), _fields(tmp_path, (25.0, 3.0), 4, 0, 3)]
    config = SMALL.model_copy(update={"groups": "night"})
    observed = OnOffDataset.from_files(on, config, off=off, alpha=1.0, source=(83.63, 22.01))
    table = read_events(on)
    theta = np.degrees(angles_between(unit_vectors(83.63, 22.01), unit_vectors(table["ra"], table["dec"])))
    assert observed.counts.n_on == np.count_nonzero(theta**2 < 0.025)
    # 8,000 events on 9 square degrees
    assert observed.counts.n_off == pytest.approx(8_000 * np.pi * 0.025 / 9, abs=30)
    far = _fields(tmp_path, (1.0, 0.0), 5, 100, 4)
    with pytest.raises(EventFileError, match=r"is 0\.50 to 1\.00 deg from the pointing"):
        OnOffDataset.from_files([*on, far], config, off=off, alpha=1.0, source=(83.63, 22.01))


@pytest.mark.skipif(not (SHARED / "data/fact/joint-crab").is_dir(), reason="the public data are not beside the project")
def test_fits_files_beside_off_files_need_the_source():
    files = sorted((SHARED / "data/fact/joint-crab").glob("2013*_dl3.fits"))[:8]
    config = AnalysisConfig(features=["energy"], derived_features={}, quality_cuts=[], groups="obs_id")
    with pytest.raises(EventFileError, match=r"the position of the source is needed .* \(--source\)"):
        OnOffDataset.from_files(files[:4], config, off=files[4:], alpha=1.0)
    observed = OnOffDataset.from_files(files[:4], config, off=files[4:], alpha=1.0, source=(83.6333, 22.0133))
    assert observed.census.n_outside > 0.9 * observed.census.n_read


@pytest.fixture(scope="module")
def apart():
    """On and Off events of different nights, with a source of 7 sigma."""
    parts, labels = [], []
    for night in range(8):
        on = night % 2 == 0
        table = simulate_observation(24_000, 60 * on, n_nights=1, first_night=20131101 + night, random_state=night)
        parts.append(part(table, on))
        labels += [int(on)] * len(parts[-1])
    return pd.concat(parts, ignore_index=True), np.array(labels)


def test_a_source_is_found_where_on_and_off_are_different_nights(apart, tmp_path):
    table, on = apart
    write_events(table[on == 1], tmp_path / "on.parquet")
    write_events(table[on == 0], tmp_path / "off.parquet")
    observed = OnOffDataset.from_files(tmp_path / "on.parquet", off=tmp_path / "off.parquet", alpha=0.2)
    run = detect(observed, "tree", n_jobs=1)
    assert observed.counts.significance > 6
    assert run.detections["tree"].significance > 5
    assert len(run.detections["tree"].folds) == 4
    assert run.forward["tree"].significance > 5
    assert any("drawn at random" in remark for remark in run.detections["tree"].remarks)
    assert sorted(run.detections["tree"].counts_by_group) == list(range(20131101, 20131109))
    without = detect(
        OnOffDataset.from_files(tmp_path / "on.parquet", off=tmp_path / "off.parquet", alpha=0.2, groups="none"), "tree"
    )
    assert without.forward["tree"].significance > 5
    ahead = detect(observed, "tree", strategy="forward").detections["tree"]
    assert any("drawn at random" in remark for remark in ahead.remarks)


def test_small_differences_are_a_warning(caplog):
    rng = np.random.default_rng(0)
    region = rng.integers(0, 2, 40_000)
    gain = rng.normal(size=40_000) + 0.2 * (region == 0)
    check_origin(gain[:, np.newaxis], region, 1.0, 2, ["gain"])
    assert "feature 'gain' separates On from Off more than a source can: 5 % of" in caplog.text
    assert "this may contribute to the significance" in caplog.text
