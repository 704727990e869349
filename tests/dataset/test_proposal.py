"""Configurations that the content of files suggests."""

import re

import numpy as np
import pandas as pd
import pytest
from helpers import SHARED
from hypothesis import given, settings
from hypothesis import strategies as st

from excess.config import AnalysisConfig, load_config, parse_config
from excess.dataset import OnOffDataset, propose_config, simulate_observation
from excess.dataset._settings import PRESETS
from excess.io import EventFileError, write_events

DATA = SHARED / "data"
NIGHT = 86_400


def events_of(seed=0, n_events=400, night=20131101, n_off=3):
    """Return events of an unknown telescope, with a column of each kind."""
    random = np.random.default_rng(seed)
    length = random.lognormal(size=n_events)
    # regions that are apart: every event is near one of them, or near none
    theta = random.uniform(0.3, 2, (n_events, n_off + 1))
    inside = random.random(n_events) < 0.7
    theta[inside, random.integers(0, n_off + 1, inside.sum())] = random.uniform(0, 0.15, inside.sum())
    return pd.DataFrame(
        {
            "event_id": np.arange(n_events) + 1000 * seed,
            "night": night,
            "trigger": np.cumsum(random.integers(1, 9, n_events)),
            "width": random.lognormal(size=n_events),
            "length": length,
            "length_in_mm": 1000 * length + 3,
            "log_length": np.log(length),
            "islands": random.integers(1, 5, n_events),
            "temperature": 20.0 + seed,
            "gain": 1.0,
            "quality": np.where(random.random(n_events) < 0.6, np.nan, 1.0 * random.random(n_events)),
            "rarely_missing": np.where(random.random(n_events) < 0.05, np.nan, random.random(n_events)),
            "empty": np.nan,
            "comment": "fine",
            "miss_distance": theta[:, 0] ** 2,
            "psi": random.uniform(-3, 3, n_events),
            "zenith": random.uniform(10, 20, n_events),
            "gammaness": random.random(n_events),
            "mc_energy": random.random(n_events),
            "reco_energy": random.lognormal(size=n_events),
            "theta_deg": theta[:, 0],
            **{f"theta_deg_off_{number}": theta[:, number] for number in range(1, n_off + 1)},
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proposal")
    paths = [folder / f"{number}.csv" for number in range(3)]
    for number, path in enumerate(paths):
        events_of(number, night=20131101 + number).to_csv(path, index=False)
    return paths


def test_every_kind_of_column_has_its_reason(files):
    proposal = propose_config(files)
    features = ("width", "length", "log_length", "islands", "rarely_missing", "reco_energy")
    assert proposal.config.features == features
    expected = {
        "event_id": "identifies the event",
        "night": "identifies the event",
        "trigger": "increases from event to event",
        "length_in_mm": "a copy of length",
        "temperature": "it is constant in each file",
        "gain": "it is 1 in all events",
        "quality": r"missing in \d\d % of the events",
        "empty": "has no values",
        "comment": "a text or a date",
        "miss_distance": "orders the events like theta_deg: it is the distance to the source",
        "psi": "orientation of the image",
        "zenith": "direction on the sky",
        "gammaness": "output of a classifier",
        "mc_energy": "truth of a simulation",
        "theta_deg": "distance to the source",
        "theta_deg_off_3": "refers to an Off region",
    }
    for name, reason in expected.items():
        assert re.search(reason, proposal.reasons[name]), name
    assert set(proposal.reasons) | set(features) == set(pd.read_csv(files[0], nrows=1))
    assert proposal.energy == "reco_energy"
    assert proposal.references == ("gammaness",)
    assert proposal.config.groups == "night"
    assert (proposal.config.regions.n_regions, proposal.config.regions.theta_squared_cut) == (4, 0.025)
    assert proposal.obstacle is None
    assert not proposal.usual
    assert proposal.describe().count("\n") == 2


def test_the_file_reads_back_to_the_same_configuration(files, tmp_path):
    proposal = propose_config(files)
    path = tmp_path / "my.yaml"
    path.write_text(proposal.to_yaml())
    assert load_config(path) == proposal.config
    text = path.read_text()
    assert "#   length_in_mm: it is a copy of length" in text
    assert "--reference gammaness" in text
    assert max(map(len, text.splitlines())) <= 110


@settings(max_examples=30)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5, unique=True))
def test_names_of_columns_never_break_the_file(names):
    random = np.random.default_rng(0)
    table = pd.DataFrame({name: random.random(60) for name in names})
    table = table.assign(plain=random.random(60), theta_deg=1.0, theta_deg_off_1=1.0)
    proposal = propose_config(table)
    assert parse_config(proposal.to_yaml(), "text") == proposal.config


@pytest.mark.parametrize("suffix", ["hdf5", "parquet", "csv"])
def test_files_like_those_of_fact_have_its_analysis_to_the_bit(suffix, tmp_path):
    pytest.importorskip("h5py")
    table = simulate_observation(6000, 100, random_state=0)
    write_events(table, tmp_path / f"crab.{suffix}")
    proposal = propose_config(tmp_path / f"crab.{suffix}")
    assert proposal.usual
    assert proposal.config == AnalysisConfig()
    assert proposal.config.to_yaml() == AnalysisConfig().to_yaml()
    found = OnOffDataset.from_files(tmp_path / f"crab.{suffix}")
    expected = OnOffDataset.from_files(tmp_path / f"crab.{suffix}", AnalysisConfig())
    assert found.X.tobytes() == expected.X.tobytes()
    assert (found.regions.region == expected.regions.region).all()
    assert (found.config, found.group_column) == (expected.config, "night")


def test_one_night_of_fact_keeps_its_groups(tmp_path):
    table = simulate_observation(3000, 50, n_nights=1, random_state=0)
    assert propose_config(table).config == AnalysisConfig()


def test_fact_files_without_a_column_keep_the_rest_of_its_analysis(tmp_path):
    pytest.importorskip("h5py")
    gone = ["width", "area", "size_area", "area_size_cut_var"]
    write_events(simulate_observation(3000, 50, random_state=0).drop(columns=gone), tmp_path / "crab.hdf5")
    config = propose_config(tmp_path / "crab.hdf5").config
    left = [name for name in AnalysisConfig().features if name not in gone]
    assert sorted(config.features) == sorted(left)
    assert config.quality_cuts == tuple(cut for cut in AnalysisConfig().quality_cuts if not cut.startswith("width"))
    assert OnOffDataset.from_files(tmp_path / "crab.hdf5").names == config.features


def test_features_by_names_and_patterns(files):
    def features(**options):
        return propose_config(files, **options).config.features

    assert features(features=["width,length"]) == ("width", "length")
    assert features(features=["*length*", "width"]) == ("length", "log_length", "width")
    assert features(exclude=["*length", "reco_energy"]) == ("width", "islands", "rarely_missing")
    assert features(features=["length_in_mm"]) == ("length_in_mm",)  # who names it insists
    reasons = propose_config(files, features=["width"], exclude=["islands"]).reasons
    assert reasons["islands"] == "it was excluded"
    assert reasons["length"] == "it is not among the requested features"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["widht"]}, "features 'widht' is not a column of the events; did you mean 'width'"),
        ({"features": ["hillas_*"]}, "features 'hillas_\\*' is not a column"),
        ({"features": ["theta_deg"]}, "features cannot be used: feature 'theta_deg' encodes where"),
        ({"features": ["theta_*"]}, "features 'theta_\\*' matches only theta_deg, .*, which cannot be features"),
        ({"features": ["comment"]}, "column 'comment' contains .*, not"),
        ({"features": ["width,,length"]}, "features must be column names separated by commas"),
        ({"exclude": ["nothing"]}, "exclude 'nothing' is not a column"),
        ({"exclude": ["*"]}, "exclude leaves no features"),
    ],
)
def test_wrong_features_are_refused(options, message, files):
    with pytest.raises(ValueError, match=message):
        OnOffDataset.from_files(files, **options)


def test_features_of_a_configuration_can_be_chosen(tmp_path):
    table = simulate_observation(6000, 100, random_state=0)
    config = AnalysisConfig(groups="night")
    found = OnOffDataset.from_files(table, config, features=["concentration_*", "log_size"], exclude=["*_pixel"])
    assert found.names == ("concentration_cog", "concentration_core", "log_size")
    assert found.config.quality_cuts == config.quality_cuts


def test_groups_are_nights_else_runs_else_none():
    random = np.random.default_rng(0)
    table = pd.DataFrame({"width": random.random(60), "theta_deg": 1.0, "theta_deg_off_1": 1.0})
    assert propose_config(table).config.groups == "none"
    assert propose_config(table.assign(night=1, run_id=7)).config.groups == "none"
    runs = table.assign(night=1, run_id=np.arange(60) // 30)
    assert propose_config(runs).config.groups == "run_id"
    assert propose_config(runs.assign(night=[1, 2] * 30)).config.groups == "night"
    assert propose_config(runs, groups="none").config.groups == "none"
    times = table.assign(unix_time=1383530354.0 + NIGHT * (np.arange(60) // 20))
    assert propose_config(times).config.groups == "night"
    assert (
        len(
            set(
                OnOffDataset.from_files(times.assign(theta_deg=[0.1, 0.9] * 30, theta_deg_off_1=[0.9, 0.1] * 30)).groups
            )
        )
        == 3
    )


def test_the_end_of_a_long_file_is_another_night(tmp_path):
    table = pd.concat([events_of(0, 21_000), events_of(1, 100, night=20131109)])
    table.to_csv(tmp_path / "long.csv", index=False)
    assert propose_config(tmp_path / "long.csv").config.groups == "night"


def test_columns_that_some_files_lack(tmp_path):
    events_of(0).to_csv(tmp_path / "a.csv", index=False)
    events_of(1).drop(columns="islands").to_csv(tmp_path / "b.csv", index=False)
    proposal = propose_config([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert "islands" not in proposal.config.features
    assert proposal.reasons["islands"] == "it is missing in some of the files"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["width", "length"], "On and Off are not defined: the events require the columns theta_deg and"),
        (["width", "theta_deg"], "On and Off are not defined"),
        (["width", "mc_energy"], r"simulated events \(mc_energy is the truth\).* no detection is possible"),
    ],
)
def test_files_that_cannot_have_a_detection_say_why(columns, message):
    table = events_of()[columns]
    assert propose_config(table).config.features == ("width",) or columns == ["width", "length"]
    with pytest.raises(EventFileError, match=message):
        OnOffDataset.from_files(table)


def test_files_of_off_events_need_no_regions(tmp_path):
    columns = ["width", "length", "night", "event_id"]
    events_of(0)[columns].to_csv(tmp_path / "on.csv", index=False)
    events_of(1)[columns].assign(more=1).to_csv(tmp_path / "off.csv", index=False)
    found = OnOffDataset.from_files(tmp_path / "on.csv", off=tmp_path / "off.csv", alpha=0.5)
    assert found.names == ("width", "length")
    assert (found.counts.n_on, found.counts.n_off) == (400, 400)


def test_columns_of_joined_files_are_features_as_well(tmp_path):
    table = events_of(0, 2000).assign(event_num=np.arange(2000), run_id=np.arange(2000) // 100)
    keys = ["event_num", "night", "run_id"]
    angles = [name for name in table if name.startswith("theta")]
    table[[*keys, "width", "psi"]].to_csv(tmp_path / "dl2.csv", index=False)
    table[[*keys, "islands", *angles]].iloc[::-1].to_csv(tmp_path / "dl3.csv", index=False)
    found = OnOffDataset.from_files(tmp_path / "dl2.csv", join=tmp_path / "dl3.csv")
    assert found.names == ("width", "islands")
    assert (found.group_column, found.regions.n_regions) == ("run_id", 4)


def test_a_list_of_observations_needs_no_configuration(tmp_path):
    for number in range(2):
        events_of(number, 3000, night=20131101 + number, n_off=2 + number).to_csv(
            tmp_path / f"{number}.csv", index=False
        )
    (tmp_path / "list.yaml").write_text("first: {events: 0.csv}\nsecond: {events: 1.csv}\n")
    stacked = OnOffDataset.from_list(tmp_path / "list.yaml", exclude=["reco_energy"])
    assert stacked.names == ("width", "length", "log_length", "islands", "rarely_missing")
    assert sorted(set(np.round(stacked.event_alpha, 6))) == [round(1 / 3, 6), 0.5]


def test_presets_end_with_one_for_all_tables():
    *_, last = PRESETS.values()
    assert last.matches(None)
    assert all(preset.n_regions in ("auto", 6) and 0 < preset.theta_squared_cut < 1 for preset in PRESETS.values())
