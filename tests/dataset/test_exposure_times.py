"""Observation times from columns, and from the events of runs."""

import numpy as np
import pandas as pd
import pytest

from excess.dataset import OnOffDataset, simulate_observation
from excess.dataset._build import join_intervals, recorded_intervals
from excess.detection import Exposure


def intervals(group="night", file="", **columns):
    table = pd.DataFrame(columns)
    return recorded_intervals(table, table["time"].to_numpy(float) if "time" in table else None, group, file)


def test_a_run_is_as_long_as_from_its_first_to_its_last_event():
    runs = np.repeat([1, 2], 3)
    time = [0, 400, 700, 900, 1000, 1500]
    found = join_intervals([intervals(night=np.full(6, 7), run_id=runs, time=time)])
    assert (found.source, found.group, found.night) == ("events", ("7",), ("7",))
    assert found.total == pytest.approx((700 + 600) / 3600)


def test_pauses_do_not_count_and_chunks_do_not_matter():
    time = np.array([0.0, 600, 1200, 9000, 9100, 9950, 20_000])
    whole = join_intervals([intervals(group="none", time=time)])
    assert whole.total == pytest.approx((1200 + 950) / 3600)
    assert (whole.by_group, whole.by_night) == ({}, {})
    for split in ([2], [3], [1, 4], [4, 5, 6]):
        parts = [intervals(group="none", time=part) for part in np.split(time, split)]
        assert join_intervals(parts).total == pytest.approx(whole.total), split


def test_time_that_two_tables_share_counts_once():
    one = intervals(obs_id=[5, 5], time=[0, 600])
    other = intervals(obs_id=[5, 5], time=[100, 700])
    assert join_intervals([one, other]).total == pytest.approx(700 / 3600)
    inside = intervals(obs_id=[5, 5], time=[100, 200])
    assert join_intervals([one, inside]).total == pytest.approx(600 / 3600)
    elsewhere = intervals(obs_id=[6, 6], time=[100, 700])
    assert join_intervals([one, elsewhere]).total == pytest.approx(1200 / 3600)


def test_livetime_of_the_files_wins():
    table = {"obs_id": [1, 1, 2], "time": [0.0, 250, 900]}
    found = join_intervals([intervals("obs_id", **table, livetime=[280.0, 280, 270], ontime=[300.0] * 3)])
    assert found.source == "livetime"
    assert found.by_group == pytest.approx({"1": 280 / 3600, "2": 270 / 3600})
    found = join_intervals([intervals("obs_id", **table, livetime=[280.0, 280, np.nan], ontime=[300.0] * 3)])
    assert (found.source, found.total) == ("ontime", pytest.approx(600 / 3600))
    without_times = join_intervals([intervals("obs_id", obs_id=[1, 2], livetime=[280.0, 270])])
    assert without_times.total == pytest.approx(550 / 3600)
    assert intervals("obs_id", obs_id=[1, 2]) is None
    assert join_intervals([]) is None


def test_an_observation_knows_its_hours_from_all_events():
    observation = OnOffDataset.from_files(simulate_observation(60_000, 100, n_runs=50, random_state=0))
    assert observation.exposure.source == "events"
    assert observation.exposure.total == pytest.approx(50 * 300 / 3600, rel=0.01)
    assert sorted(observation.exposure.by_group) == [str(night) for night in range(20131101, 20131106)]
    both = OnOffDataset.stack(
        {"a": observation, "b": OnOffDataset.from_files(simulate_observation(60_000, 100, n_runs=50, random_state=1))}
    )
    assert both.exposure.total == pytest.approx(2 * observation.exposure.total, rel=0.01)
    assert len(both.exposure.by_night) == 5


def test_an_exposure_is_read_as_it_was_written():
    exposure = Exposure("ontime", ("a", "b"), ("", ""), np.array([1.5, 2.0]))
    assert Exposure.from_dict(exposure.to_dict()).by_group == {"a": 1.5, "b": 2.0}
    with pytest.raises(ValueError, match="hours"):
        Exposure.from_dict({**exposure.to_dict(), "hours": [1.0]})
