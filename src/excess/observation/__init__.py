"""Observations: On and Off regions, exposure ratio, groups and features of events; and simulated ones."""

from excess.observation.observation import Observation
from excess.observation.observing import observe
from excess.observation.proposal import Proposal, propose_config
from excess.observation.regions import Regions, assign_regions, find_regions
from excess.observation.simulation import simulate_labelled, simulate_observation
from excess.observation.sky import theta_from_sky
from excess.observation.stacking import observe_several, stack

__all__ = [
    "Observation",
    "Proposal",
    "Regions",
    "assign_regions",
    "find_regions",
    "observe",
    "observe_several",
    "propose_config",
    "simulate_labelled",
    "simulate_observation",
    "stack",
    "theta_from_sky",
]
