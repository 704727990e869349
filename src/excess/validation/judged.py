"""What a verdict needs to know: the parts of a detection and of a null test that are judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.stats.counts import OnOffCounts
from excess.validation.outcome import Outcome

__all__ = ["JudgedDetection", "JudgedNullTest", "alphas_of"]

# Protocols, because a detection says its own verdict: the other way round would be an import cycle.


class JudgedDetection(Protocol):
    """A `Detection`, whose documentation says what each attribute is."""

    @property
    def on(self) -> BoolArray: ...  # noqa: D102
    @property
    def score(self) -> FloatArray: ...  # noqa: D102
    @property
    def selected(self) -> BoolArray: ...  # noqa: D102
    @property
    def ratio(self) -> FloatArray | None: ...  # noqa: D102
    @property
    def fold(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def folds(self) -> tuple[Any, ...]: ...  # noqa: D102
    @property
    def groups(self) -> NDArray[Any] | None: ...  # noqa: D102
    @property
    def observations(self) -> NDArray[Any] | None: ...  # noqa: D102
    @property
    def alpha(self) -> float: ...  # noqa: D102
    @property
    def event_alpha(self) -> FloatArray | None: ...  # noqa: D102
    @property
    def theta(self) -> FloatArray | None: ...  # noqa: D102
    @property
    def theta_squared_cut(self) -> float | None: ...  # noqa: D102
    @property
    def statistic(self) -> str: ...  # noqa: D102
    @property
    def strategy(self) -> str: ...  # noqa: D102
    @property
    def required_significance(self) -> float: ...  # noqa: D102
    @property
    def held_out(self) -> BoolArray: ...  # noqa: D102
    @property
    def uncut(self) -> OnOffCounts: ...  # noqa: D102
    @property
    def outcome(self) -> Outcome: ...  # noqa: D102
    @property
    def significance(self) -> float: ...  # noqa: D102
    @property
    def contrasts(self) -> Mapping[str, float]: ...  # noqa: D102


class JudgedNullTest(Protocol):
    """A `NullTest`, whose documentation says what each attribute is."""

    @property
    def significances(self) -> FloatArray: ...  # noqa: D102
    @property
    def p_value(self) -> float: ...  # noqa: D102
    @property
    def suspicious(self) -> bool: ...  # noqa: D102
    @property
    def verdict(self) -> str: ...  # noqa: D102


def alphas_of(found: JudgedDetection) -> FloatArray | float:
    """Return the exposure ratio of each event where they differ, else the one of all."""
    return found.alpha if found.event_alpha is None else found.event_alpha
