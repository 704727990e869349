"""Counts of an On/Off measurement, and what follows from them: excess, significance, p-value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from scipy.special import ndtr

from excess._core.checks import as_counts, as_scalar, as_scalar_alpha
from excess._core.html import Row, html_table
from excess.stats.significance import joint_significance, li_ma_significance

__all__ = ["OnOffCounts"]


@dataclass(frozen=True)
class OnOffCounts:
    """Counts of an On/Off measurement, and what follows from them.

    Parameters
    ----------
    n_on : int or float
        Number of (selected) On events.
    n_off : int or float
        Number of (selected) Off events.
    alpha : float
        Exposure ratio On/Off.
    parts : tuple of tuple of float, default=()
        ``n_on``, ``n_off`` and ``alpha`` of the measurements that were stacked, where their exposure ratios differ; see
        `OnOffCounts.stack`. Error and significance follow them, because one mean ratio knows the expected background
        but not its variance.

    See Also
    --------
    joint_significance : The significance of stacked measurements.

    Examples
    --------
    >>> from excess import OnOffCounts
    >>> night = OnOffCounts(n_on=618, n_off=1108, alpha=0.2)
    >>> print(night)
    On 618, Off 1108, alpha 0.2: excess 396.4 +- 25.7, 19.2 sigma
    >>> night + OnOffCounts(n_on=20, n_off=25, alpha=0.25)
    OnOffCounts(n_on=638, n_off=1133, alpha=0.2011...)
    """

    n_on: float
    n_off: float
    alpha: float
    parts: tuple[tuple[float, float, float], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Check the counts and turn NumPy scalars into Python numbers, which print better."""
        for name in ("n_on", "n_off"):
            number = as_scalar(name, as_counts(name, getattr(self, name)))
            object.__setattr__(self, name, int(number) if number.is_integer() else number)
        object.__setattr__(self, "alpha", as_scalar_alpha(self.alpha))
        object.__setattr__(self, "parts", tuple(tuple(map(float, part)) for part in self.parts))

    @classmethod
    def stack(cls, parts: Iterable[tuple[float, float, float]]) -> Self:
        """Stack measurements; their expected backgrounds add up, and the significance is the joint one.

        Parameters
        ----------
        parts : iterable of tuple of float
            ``n_on``, ``n_off`` and ``alpha`` of each measurement, at least one; those of the same ratio are added.

        Returns
        -------
        OnOffCounts
            The common exposure ratio is the mean, weighted with the Off events, which is what keeps ``background``
            additive (gammapy stacks likewise). Where there are no Off events, there is nothing to weight with, and the
            largest ratio is taken.

        Examples
        --------
        >>> from excess import OnOffCounts
        >>> print(OnOffCounts.stack([(30, 100, 0.2), (120, 100, 1.0)]))
        On 150, Off 200, alpha 0.6: excess 30.0 +- 15.9, 2.1 sigma
        """
        given = list(parts)
        added: dict[float, tuple[float, float]] = {}
        for n_on, n_off, alpha in given:
            if n_on + n_off > 0:
                before = added.get(float(alpha), (0, 0))
                added[float(alpha)] = (before[0] + n_on, before[1] + n_off)
        if len(added) <= 1:
            [(alpha, counts)] = added.items() or [(max(alpha for _, _, alpha in given), (0, 0))]
            return cls(counts[0], counts[1], alpha)
        kept = tuple((n_on, n_off, alpha) for alpha, (n_on, n_off) in sorted(added.items()))
        total_on, total_off = (math.fsum(part[column] for part in kept) for column in (0, 1))
        mean = math.fsum(n_off * alpha for _, n_off, alpha in kept) / total_off if total_off > 0 else max(added)
        return cls(total_on, total_off, mean, kept)

    @property
    def background(self) -> float:
        """Expected number of background events among the On events, ``alpha * n_off``."""
        return self.alpha * self.n_off

    @property
    def excess(self) -> float:
        """Estimated number of signal events, ``n_on - alpha * n_off``."""
        return self.n_on - self.background

    @property
    def excess_error(self) -> float:
        """Standard error of the excess, ``sqrt(n_on + alpha^2 n_off)`` (Li & Ma, formula 4); of all parts together."""
        return math.sqrt(self.n_on + math.fsum(alpha**2 * n_off for _, n_off, alpha in self._measured))

    @property
    def signal_to_background(self) -> float:
        """Excess per background event: infinite for an excess without any Off event, 0 for no event."""
        if self.background == 0:
            return math.inf if self.n_on > 0 else 0.0
        return self.excess / self.background

    @property
    def significance(self) -> float:
        """Signed Li & Ma significance in sigma: negative for a deficit; the joint one of stacked measurements."""
        if self.parts:
            return joint_significance(*np.transpose(self.parts))
        return li_ma_significance(self.n_on, self.n_off, self.alpha, signed=True)

    @property
    def p_value(self) -> float:
        """One-sided p-value of the signed significance."""
        return float(ndtr(-self.significance))

    @property
    def _measured(self) -> tuple[tuple[float, float, float], ...]:
        """The parts, or all as the only one."""
        return self.parts or ((self.n_on, self.n_off, self.alpha),)

    def __add__(self, other: OnOffCounts) -> OnOffCounts:
        """Stack two measurements, as `OnOffCounts.stack` does."""
        if not isinstance(other, OnOffCounts):
            return NotImplemented
        return OnOffCounts.stack((*self._measured, *other._measured))

    def __radd__(self, other: object) -> OnOffCounts:
        """Let ``sum(measurements)`` work, which starts from the number 0."""
        return self if other == 0 else NotImplemented

    def summary(self) -> dict[str, float]:
        """Return the numbers by name, to be put into a table or a file."""
        names = ("n_on", "n_off", "excess", "excess_error", "significance")
        return {name: getattr(self, name) for name in names}

    def texts(self) -> list[str]:
        """Return On, Off, excess and significance in words, as the cells of a table.

        Examples
        --------
        >>> from excess import OnOffCounts
        >>> OnOffCounts(618, 1108, 0.2).texts()
        ['618', '1108', '396.4 ± 25.7', '19.2 sigma']
        """
        counts = [f"{round(number, 1):.10g}" for number in (self.n_on, self.n_off)]
        return [*counts, f"{self.excess:.1f} ± {self.excess_error:.1f}", f"{self.significance:.1f} sigma"]

    def _repr_html_(self) -> str:
        """Return a table with one row, which notebooks show."""
        columns = ("On", "Off", "alpha", "excess", "significance")
        on, *others = self.texts()
        return html_table(columns, [Row(on, [others[0], f"{self.alpha:.4g}", *others[1:]])])

    def __str__(self) -> str:
        """Say counts, excess and significance in one line."""
        return (
            f"On {round(self.n_on, 1):.10g}, Off {round(self.n_off, 1):.10g}, alpha {self.alpha:.4g}: "
            f"excess {self.excess:.1f} +- {self.excess_error:.1f}, {self.significance:.1f} sigma"
        )
