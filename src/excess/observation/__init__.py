"""Observations: On and Off regions, exposure ratio, groups and features of events; and simulated ones."""

from excess.observation.pipeline import Observation, observe, observe_on_off, observe_table
from excess.observation.regions import Regions, assign_regions, find_regions, theta_from_sky
from excess.observation.simulation import simulate_labelled, simulate_observation

__all__ = [
    "Observation",
    "Regions",
    "assign_regions",
    "find_regions",
    "observe",
    "observe_on_off",
    "observe_table",
    "simulate_labelled",
    "simulate_observation",
    "theta_from_sky",
]
