"""Derived features: what each of them is computed from, and how many there may be."""

from __future__ import annotations

from collections.abc import Mapping

from excess.events.expressions import names_in

__all__ = ["MOST_DERIVED", "inputs_of_derived"]

MOST_DERIVED = 1000
"""Derived features of an analysis."""
LONGEST_CHAIN = 100
"""Derived features that may follow from each other, the longest way from a column of the file to a feature."""


def inputs_of_derived(derived: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return, for each derived feature, all names that it is computed from, those that are needed first coming first.

    Every feature is looked at once, however often others use it.

    Raises
    ------
    ValueError
        If there are too many, one is computed from itself, or they follow from each other in too long a chain.

    Examples
    --------
    >>> from excess.events.derived_features import inputs_of_derived
    >>> inputs_of_derived({"ratio": "size / area", "area": "width * length"})
    {'area': ('width', 'length'), 'ratio': ('size', 'width', 'length', 'area')}
    """
    if len(derived) > MOST_DERIVED:
        raise ValueError(f"there are {len(derived):,} derived features; {MOST_DERIVED:,} are the most")
    found: dict[str, tuple[str, ...]] = {}
    length: dict[str, int] = {}
    for name in derived:
        _find_inputs(name, derived, found, length)
    return found


def _find_inputs(
    name: str, derived: Mapping[str, str], found: dict[str, tuple[str, ...]], length: dict[str, int]
) -> None:
    """Enter a derived feature and all that it needs, without recursion: chains may be of any length."""
    through = [name]  # each needs the one after it
    while through:
        last = through[-1]
        direct = names_in(derived[last])
        missing = next((other for other in direct if other in derived and other not in found), None)
        if last in found:
            through.pop()
        elif missing is None:
            names: dict[str, None] = {}
            for other in direct:
                names |= dict.fromkeys((*found.get(other, ()), other))
            found[last] = tuple(names)
            length[last] = 1 + max((length[other] for other in direct if other in derived), default=0)
            if length[last] > LONGEST_CHAIN:
                raise ValueError(
                    f"derived feature {last!r} follows from {LONGEST_CHAIN} others, one computed from the next, which "
                    "are the most; write some of them as one expression"
                )
            through.pop()
        elif missing in through:
            raise ValueError(f"derived feature {missing!r} is computed from itself")
        else:
            through.append(missing)
