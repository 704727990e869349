"""Verdicts on whole observations, with directions."""

import numpy as np

from excess.analysis import OnOffDataset, detect
from excess.config import AnalysisConfig
from excess.dataset import simulate_observation

SHUFFLED = AnalysisConfig(features=["width", "length"], derived_features={}, quality_cuts=[])


def strong_source():
    """Return a strong source that no feature separates from the background."""
    events, rng = simulate_observation(60_000, 1_500, random_state=0), np.random.default_rng(0)
    return events.assign(**{name: rng.permutation(events[name]) for name in SHUFFLED.features})


def test_a_source_that_only_directions_show_is_detected():
    verdict = detect(OnOffDataset.from_files(strong_source(), SHUFFLED), n_jobs=1).verdict
    assert (verdict.status, verdict.warnings) == ("detected", ())


def test_a_wrong_alpha_next_to_that_source_is_a_warning():
    events = strong_source()
    near_off = (events.filter(like="theta_deg_off") < 0.35).any(axis=1)
    lost = near_off & (events["theta_deg"] > 0.35) & (np.arange(len(events)) % 3 > 0)
    verdict = detect(OnOffDataset.from_files(events[~lost], SHUFFLED), n_jobs=1).verdict
    assert verdict.status == "doubtful"
    assert "alpha" in [one.code for one in verdict.warnings]


def test_missing_values_of_off_events_are_a_warning():
    events, rng = simulate_observation(60_000, 300, random_state=1), np.random.default_rng(0)
    off = events["theta_deg"] > 0.2
    events.loc[off & (rng.random(len(events)) < 0.1), "width"] = np.nan
    verdict = detect(OnOffDataset.from_files(events, SHUFFLED), n_jobs=1, null_tests=False).verdict
    [sign] = [one for one in verdict.warnings if one.code == "missing-off"]
    assert "Off events are rejected more often than On events: 0 On and" in sign.sentence
    events.loc[rng.random(len(events)) < 0.1, "width"] = np.nan
    events.loc[~off, "length"] = np.where(rng.random((~off).sum()) < 0.1, np.nan, events.loc[~off, "length"])
    verdict = detect(OnOffDataset.from_files(events, SHUFFLED), n_jobs=1, null_tests=False).verdict
    assert not [one for one in verdict.warnings if "rejected more often" in one.sentence]
