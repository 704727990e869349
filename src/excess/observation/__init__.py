"""Observations: On and Off regions, exposure ratio, groups and features of events; and simulated ones."""

from excess.observation.observation import Observation, observe
from excess.observation.regions import Regions, assign_regions, find_regions, theta_from_sky
from excess.observation.simulation import simulate_labelled, simulate_observation

__all__ = [
    "Observation",
    "Regions",
    "assign_regions",
    "find_regions",
    "observe",
    "simulate_labelled",
    "simulate_observation",
    "theta_from_sky",
]
