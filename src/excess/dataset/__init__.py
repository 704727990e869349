"""Observations: On and Off regions, exposure ratio, groups and features of events; and simulated ones."""

from excess.dataset._dataset import OnOffDataset
from excess.dataset._regions import Regions, assign_regions, find_regions, theta_from_sky
from excess.dataset._settings import Proposal, propose_config
from excess.dataset._simulate import simulate_labelled, simulate_observation

__all__ = [
    "OnOffDataset",
    "Proposal",
    "Regions",
    "assign_regions",
    "find_regions",
    "propose_config",
    "simulate_labelled",
    "simulate_observation",
    "theta_from_sky",
]
