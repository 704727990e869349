"""Off observations in files of their own: exposure ratios from live times, and matched runs."""

import numpy as np
import pandas as pd
import pytest

from excess import OnOffCounts, OnOffTreeClassifier
from excess._utils.errors import MismatchError
from excess.analysis import detect
from excess.config import AnalysisConfig, RegionConfig
from excess.dataset import OnOffDataset, propose_config
from excess.dataset._runs import TelescopeRun, join_runs, list_runs, match_runs, merge_labels
from excess.io import EventFileError

RATE = 0.2
"""Events per second of live time."""


def write_runs(folder, name, runs, rng):
    """Write runs as one file; each is its number, live time in s, zenith distance in deg, night and hour."""
    parts = []
    for number, live_time, zenith, night, hour in runs:
        n = rng.poisson(RATE * live_time * np.cos(np.radians(zenith)))  # fewer events at larger zenith distances
        parts.append(
            pd.DataFrame(
                {
                    "width": rng.normal(size=n) + zenith / 10,
                    "length": rng.normal(size=n),
                    "obs_id": number,
                    "livetime": live_time,
                    "zenith": zenith,
                    "night": night,
                    "unix_time": 1.38e9 + 86_400 * (night - 20131101) + 3600 * hour + np.sort(rng.uniform(0, 1000, n)),
                }
            )
        )
    path = folder / f"{name}.csv"
    pd.concat(parts).to_csv(path, index=False)
    return path


def config(groups="obs_id", **regions):
    return AnalysisConfig(
        features=["width", "length"], derived_features={}, quality_cuts=[], groups=groups, regions=regions
    )


ON = [(1, 1000.0, 10.0, 20131101, 1), (2, 1000.0, 40.0, 20131101, 4), (3, 500.0, 55.0, 20131102, 1)]
OFF = [(11, 2000.0, 12.0, 20131102, 2), (12, 3000.0, 41.0, 20131101, 5), (13, 1000.0, 53.0, 20131103, 1)]


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    return write_runs(tmp_path, "on", ON, rng), write_runs(tmp_path, "off", OFF, rng)


def test_alpha_from_live_times(files):
    found = OnOffDataset.from_files(files[0], config(), off=files[1])
    assert found.event_alpha is None
    assert found.alpha == pytest.approx(2500 / 6000)
    assert "alpha from live times, On 0.69 h and Off 1.67 h" in str(found)
    # rates of the Off runs fall with zenith distance from 0.196 to 0.12 per second
    scatter = "Off runs differ by more than chance; an error of alpha of 0.27 covers it for one On run"
    assert found.summary()["notes"] == ["alpha from live times, On 0.69 h and Off 1.67 h", scatter]
    given = OnOffDataset.from_files(files[0], config(), off=files[1], alpha=2500 / 6000)
    assert found.counts == given.counts
    assert given.notes == ()


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({"ontime": [1250.0], "deadc": [0.8]}, "alpha from live times"),
        ({"ontime": [1000.0]}, "alpha from observation times without dead-time correction"),
    ],
)
def test_dead_time(columns, note, tmp_path):
    for side, live in (("on", 1.0), ("off", 2.0)):
        table = pd.DataFrame({"width": np.arange(5.0) + live, "length": 1.0 + np.arange(5.0)[::-1]})
        for name, (value,) in columns.items():
            table[name] = value * live if name == "ontime" else value
        table.to_csv(tmp_path / f"{side}.csv", index=False)
    found = OnOffDataset.from_files(tmp_path / "on.csv", config("none"), off=tmp_path / "off.csv")
    assert found.alpha == pytest.approx(0.5)
    assert note in str(found)
    assert found.counts == OnOffCounts(5, 5, 0.5)


def test_matched_by_zenith(files):
    found = OnOffDataset.from_files(files[0], config(match="zenith"), off=files[1])
    expected = {1: 0.5, 2: 1 / 3, 3: 0.5, 11: 0.5, 12: 1 / 3, 13: 0.5}
    for run, alpha in expected.items():
        np.testing.assert_allclose(found.event_alpha[found.table["obs_id"] == run], alpha)
    assert sorted(set(found.groups)) == ["1 + 11", "12 + 2", "13 + 3"] or len(set(found.groups)) == 3
    # each group has both classes, so that folds are groups, and forward values exist
    for group in set(found.groups):
        assert set(found.on[found.groups == group].tolist()) == {0, 1}
    assert "0.333 to 0.5 in 3 matches of runs" in str(found)
    assert abs(found.counts.significance) < 3
    # without a match, the runs at large zenith distances have the wrong weight
    run = detect(found, {"tree": OnOffTreeClassifier(max_depth=2, min_samples_leaf=20)})
    assert run.forward
    assert not run.verdict.warnings


def test_matched_by_time_within_hours(files, caplog):
    found = OnOffDataset.from_files(files[0], config(match="time", match_within=3.0), off=files[1])
    np.testing.assert_allclose(found.event_alpha[found.table["obs_id"].isin([2, 12])], 1 / 3)
    np.testing.assert_allclose(found.event_alpha[found.table["obs_id"].isin([3, 11])], 0.25)
    assert set(found.table["obs_id"]) == {2, 3, 11, 12}
    assert "unmatched runs are excluded: 1, 13" in caplog.text
    assert "2 unmatched runs excluded" in str(found)
    assert found.census.n_on == found.on.sum()
    assert found.census.n_outside > 0


def test_pairs(files):
    pairs = [{"on": [1, 2], "off": [12]}, {"on": [3], "off": [11, 13]}]
    found = OnOffDataset.from_files(files[0], config(pairs=pairs), off=files[1])
    by_run = {run: set(own.round(6)) for run, own in pd.Series(found.event_alpha).groupby(found.table["obs_id"])}
    assert by_run == {1: {0.666667}, 2: {0.666667}, 12: {0.666667}, 3: {0.166667}, 11: {0.166667}, 13: {0.166667}}


def test_groups_that_pairs_leave_together(files):
    """Nights stay together where that leaves several groups; else the pairs are the groups."""
    found = OnOffDataset.from_files(
        files[0], config("night", pairs=[{"on": [1, 2], "off": [12]}, {"on": [3], "off": [11]}]), off=files[1]
    )
    assert set(found.groups) == {"20131101", "20131102"}
    assert len(found.notes) == 1
    crossed = OnOffDataset.from_files(files[0], config("night", match="zenith"), off=files[1])
    assert len(set(crossed.groups)) == 3
    assert "groups are the matched runs" in crossed.notes[1]


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ({"pairs": [{"on": [7], "off": [11]}]}, "lists the run 7 among the On runs, which are 1"),
        ({"pairs": [{"on": [1], "off": [11]}, {"on": [2], "off": [11]}]}, "lists the run 11 twice"),
        ({"match": "zenith", "match_within": 0.1}, "no On run has a matching Off run"),
    ],
)
def test_runs_that_do_not_match(regions, message, files):
    with pytest.raises(ValueError, match=message):
        OnOffDataset.from_files(files[0], config(**regions), off=files[1])


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ({"match": "zenith", "pairs": [{"on": [1], "off": [2]}]}, "pairs and match are mutually exclusive"),
        ({"match_within": 1.0}, "match_within requires match"),
        ({"pairs": [{"on": [], "off": [2]}]}, "pairs"),
        ({"match": "azimuth"}, "match"),
    ],
)
def test_bad_matching(regions, message):
    with pytest.raises(ValueError, match=message):
        RegionConfig(**regions)


def test_no_live_times(files, tmp_path):
    bare = tmp_path / "bare.csv"
    pd.DataFrame({"width": [1.0, 2.0], "length": [1.0, 3.0], "obs_id": 5}).to_csv(bare, index=False)
    with pytest.raises(ValueError, match=r"alpha is required with off: .*bare.csv has no column livetime or ontime"):
        OnOffDataset.from_files(files[0], config(), off=bare)
    with pytest.raises(ValueError, match=r"alpha cannot be combined with match: matched runs"):
        OnOffDataset.from_files(files[0], config(match="zenith"), off=files[1], alpha=0.2)


def test_several_live_times_of_a_run():
    table = pd.DataFrame({"obs_id": [1, 1], "livetime": [100.0, 200.0]})
    with pytest.raises(EventFileError, match="run 1 has different live times, 100 and 200 s"):
        list_runs(table, None)
    with pytest.raises(EventFileError, match="run 1 has different live times, 100 and 200 s"):
        join_runs([*list_runs(table[:1], None), *list_runs(table[1:], None)])
    with pytest.raises(EventFileError, match="live time of 0 s"):
        list_runs(pd.DataFrame({"livetime": [0.0]}), None)


def test_unknown_zenith_distance():
    runs = {1: TelescopeRun(1, 10, 100.0)}
    with pytest.raises(EventFileError, match="cannot be matched by zenith distance, which is unknown for 1"):
        match_runs(runs, {2: TelescopeRun(2, 10, 100.0, 20.0)}, RegionConfig(match="zenith"))


def test_every_run_has_the_nearest_partner():
    rng = np.random.default_rng(1)
    on, off = (
        {k: TelescopeRun(k, 1, rng.uniform(1, 9), z) for k, z in enumerate(rng.uniform(0, 60, n))} for n in (12, 30)
    )
    matches, unmatched = match_runs(on, off, RegionConfig(match="zenith"))
    assert not unmatched
    assert sum(len(one.on) for one in matches) == 12
    assert sum(len(one.off) for one in matches) == 30
    for match in matches:
        for run in match.on:
            nearest = min(off.values(), key=lambda other: abs(other.zenith - run.zenith))
            assert nearest in match.off
    total = sum(match.live_times[0] for match in matches)
    assert total == pytest.approx(sum(run.live_time for run in on.values()))


def test_labels_that_all_belong_together():
    match, groups = np.array(["p", "p", "q", "q"]), np.array([1, 2, 2, 1])
    merged, together = merge_labels(match, groups)
    assert not together
    np.testing.assert_array_equal(merged, match)


def test_altitude_is_a_zenith_distance():
    table = pd.DataFrame({"obs_id": [1, 1], "pointing_alt": [70.0, 72.0]})
    assert list_runs(table, None)[0].zenith == pytest.approx(19.0)


def test_exclusion_at_the_place_of_off(tmp_path):
    rng = np.random.default_rng(0)
    for name, dec in (("on", 22.01), ("off", 26.0)):
        pd.DataFrame(
            {
                "ra": 83.63 + rng.normal(0, 0.3, 2000),
                "dec": dec + rng.normal(0, 0.3, 2000),
                "pointing_ra": 83.63,
                "pointing_dec": dec,
                "width": rng.normal(size=2000),
                "length": rng.normal(size=2000),
                "livetime": 100.0,
            }
        ).to_csv(tmp_path / f"{name}.csv", index=False)
    source = {"source_ra": 83.63, "source_dec": 22.01}
    found = OnOffDataset.from_files(tmp_path / "on.csv", config("none", **source), off=tmp_path / "off.csv")
    assert found.alpha == 1.0
    assert 0 < found.counts.n_on < 1000
    star = {"name": "star", "ra": 83.7, "dec": 26.1, "radius": 0.1}
    with pytest.raises(ValueError, match=r"field of view of an Off run .* overlaps an exclusion"):
        OnOffDataset.from_files(
            tmp_path / "on.csv", config("none", **source, exclusion=[star]), off=tmp_path / "off.csv"
        )


@pytest.mark.parametrize("lacking", ["columns", "columns of off", "source", "fields of view"])
def test_exclusion_that_cannot_be_applied_to_off(lacking, tmp_path):
    rng = np.random.default_rng(0)
    for name, dec in (("on", 22.01), ("off", 26.0)):
        spread = 0.01 if lacking == "fields of view" else 0.3
        table = pd.DataFrame({"ra": 83.63 + rng.normal(0, spread, 200), "dec": dec + rng.normal(0, spread, 200)})
        table = table.assign(pointing_ra=83.63, pointing_dec=dec, width=table["ra"] + 1, length=1.0, livetime=100.0)
        drop = lacking == "columns" or (lacking == "columns of off" and name == "off")
        table.drop(columns=["ra"] if drop else []).to_csv(tmp_path / f"{name}.csv", index=False)
    source = {} if lacking == "source" else {"source_ra": 83.63, "source_dec": 22.01}
    files = {"events": tmp_path / "on.csv", "off": tmp_path / "off.csv"}
    star = {"name": "star", "ra": 83.7, "dec": 26.1, "radius": 0.1}
    with pytest.raises(MismatchError, match=r"exclusion cannot be applied .* columns ra, dec, pointing_ra"):
        OnOffDataset.from_files(files["events"], config("none", **source, exclusion=[star]), off=files["off"])
    if lacking in ("columns", "source"):  # what files suggest
        with pytest.raises(MismatchError, match="and source; or remove the exclusion"):
            propose_config(
                files["events"],
                off=files["off"],
                source=(83.63, 22.01) if source else None,
                regions={"exclusion": [star]},
            )


def test_off_runs_of_other_groups_have_no_ratio_of_their_own(files):
    """Groups of On runs and of Off runs are no reason to doubt alpha."""
    found = OnOffDataset.from_files(files[0], config(), off=files[1])
    run = detect(found, {"tree": OnOffTreeClassifier(max_depth=2, min_samples_leaf=20)})
    assert np.isfinite(run.forward["tree"].significance)  # in blocks that are drawn at random
    assert "alpha-by-group" not in {one.code for one in run.verdict.warnings}
