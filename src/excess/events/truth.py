"""Columns of the simulated truth: energy and zenith distance, as the software of each telescope names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from excess._core.errors import ArgumentError, MismatchError, missing_column
from excess.events.expressions import names_in

__all__ = ["checked_expression", "energy_expression", "zenith_expression"]

TRUE_ENERGY = {
    "true_energy": "true_energy",
    "mc_energy": "mc_energy",
    "corsika_event_header_total_energy": "corsika_event_header_total_energy / 1000",
    "corsika_evt_header_total_energy": "corsika_evt_header_total_energy / 1000",
    "ceres_event_basic_energy": "ceres_event_basic_energy / 1000",
}
"""True energy in TeV by the column it is computed from; the first that a file has is taken."""

TRUE_ZENITH = {
    "true_zenith": "true_zenith",
    "true_alt": "90 - true_alt",
    "mc_alt": "90 - mc_alt * 180 / pi",
    "corsika_event_header_zd": "corsika_event_header_zd * 180 / pi",
    "corsika_evt_header_zd": "corsika_evt_header_zd * 180 / pi",
    "ceres_event_basic_theta": "ceres_event_basic_theta * 180 / pi",
    "ceres_source_zd": "ceres_source_zd",
    "source_position_zd": "source_position_zd",
    "pointing_position_zd": "pointing_position_zd",
}
"""Zenith distance in deg by the column it is computed from; FACT and lstchain have angles in rad."""


def energy_expression(columns: Iterable[str], given: str | None = None) -> str:
    """Return the expression of the true energy in TeV for a file with these columns.

    Parameters
    ----------
    columns : iterable of str
        Columns of the file.
    given : str or None, default=None
        A column, or an expression of columns, that is to be taken. Known columns are taken in their own unit.

    Returns
    -------
    str
        For `evaluate`.

    Raises
    ------
    ArgumentError
        If no column is known, or the given one is missing.

    Examples
    --------
    >>> from excess.events.truth import energy_expression
    >>> energy_expression(["width", "corsika_event_header_total_energy"])
    'corsika_event_header_total_energy / 1000'
    """
    found = _choose("energy", TRUE_ENERGY, columns, given)
    if found is None:
        raise MismatchError(
            "energy",
            f"is needed: the simulated events have none of {', '.join(TRUE_ENERGY)}; name the column of true energies, "
            "or give an expression such as 'mc_energy_gev / 1000', in TeV",
        )
    return found


def zenith_expression(columns: Iterable[str], given: str | None = None) -> str | None:
    """Return the expression of the zenith distance in deg for a file with these columns; None if it is not known.

    Parameters
    ----------
    columns, given
        As for `energy_expression`.

    Examples
    --------
    >>> from excess.events.truth import zenith_expression
    >>> zenith_expression(["true_energy", "true_alt"])
    '90 - true_alt'
    >>> zenith_expression(["true_energy"]) is None
    True
    """
    return _choose("zenith", TRUE_ZENITH, columns, given)


def _choose(argument: str, known: Mapping[str, str], columns: Iterable[str], given: str | None) -> str | None:
    present = set(columns)
    if given is None:
        return next((expression for name, expression in known.items() if name in present), None)
    if given in known and given in present:
        return known[given]
    return checked_expression(argument, present, given)


def checked_expression(argument: str, columns: Iterable[str], given: str) -> str:
    """Return an expression of columns that a file has; ArgumentError for any other."""
    present = set(columns)
    try:
        missing = [name for name in names_in(given) if name not in present]
    except ValueError as error:
        raise ArgumentError(argument, f"is no column, and no expression of columns: {error}") from error
    if missing:
        raise MismatchError(argument, f"needs a column of the simulated events: {missing_column(missing[0], present)}")
    return given
