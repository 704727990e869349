"""What a reproduction is started with, as far as it decides about its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What decides about the numbers of a reproduction, besides the number of trials.

    Examples
    --------
    >>> from excess.reproduction.settings import Settings
    >>> Settings(seed=1).trial_seed(3) == Settings(seed=1).trial_seed(3) != Settings(seed=2).trial_seed(3)
    True
    """

    seed: int = 0  # of everything random
    data: Path | None = None  # folder of local data; None downloads what can be downloaded, and simulates the rest
    small: bool = False  # small stand-ins for all data and models, to see that everything runs

    def trial_seed(self, *numbers: int) -> int:
        """Return the seed of one trial, or of one thing in it."""
        return int(np.random.SeedSequence([self.seed, *numbers]).generate_state(1)[0] >> 1)
