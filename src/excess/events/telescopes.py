"""Known telescopes: their names as files spell them, and where they stand."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

__all__ = ["KNOWN_TELESCOPES", "Location", "Telescope", "find_telescope"]


class Location(NamedTuple):
    """A place on Earth.

    Attributes
    ----------
    longitude : float
        In deg, positive to the east.
    latitude : float
        In deg, positive to the north.
    height : float
        Above the ellipsoid, in m.

    Examples
    --------
    >>> from excess.events import Location
    >>> Location(-17.89, 28.76, 2200.0).longitude
    -17.89
    """

    longitude: float
    latitude: float
    height: float

    @classmethod
    def from_geocentric(cls, x: float, y: float, z: float) -> Location:
        """Return a place from its coordinates relative to the centre of the Earth in m (ITRS).

        Examples
        --------
        >>> from excess.events import Location
        >>> Location.from_geocentric(6378137.0 + 100.0, 0.0, 0.0)
        Location(longitude=0.0, latitude=0.0, height=100.0)
        """
        radius, flattening = 6_378_137.0, 1 / 298.257223563  # WGS 84
        squared = flattening * (2 - flattening)
        x, y, z = float(x), float(y), float(z)
        across = math.hypot(x, y)
        latitude = math.atan2(z, across * (1 - squared))
        for _ in range(6):  # converges to less than a nanometre
            normal = radius / math.sqrt(1 - squared * math.sin(latitude) ** 2)
            latitude = math.atan2(z + squared * normal * math.sin(latitude), across)
        sine, cosine = math.sin(latitude), math.cos(latitude)
        height = across * cosine + z * sine - radius * math.sqrt(1 - squared * sine**2)
        return cls(math.degrees(math.atan2(y, x)), math.degrees(latitude), height)


class Telescope(NamedTuple):
    """A telescope, or an array of them: its name, and its location where it stands on the ground."""

    name: str
    location: Location | None


_ROQUE = (-17.8904, 28.7619, 2200.0)

_KNOWN: tuple[tuple[str, str, tuple[float, float, float] | None], ...] = (
    ("FACT", r"fact", (-17.8907, 28.7618, 2199.4)),
    ("MAGIC", r"magic(-?(i|ii|1|2|stereo))?", _ROQUE),
    ("LST-1", r"(cta-?)?lst[-_]?1|lst[-_]lstcam", (-17.891497, 28.761526, 2200.0)),
    ("CTAO North", r"cta[o-]*(north|n)|alpha configuration north|lapalma|la palma", (-17.8920, 28.7622, 2156.0)),
    ("CTAO South", r"cta[o-]*(south|s)|alpha configuration south|paranal", (-70.3163, -24.6834, 2147.0)),
    ("H.E.S.S.", r"hess(-?(i|ii|iu|1|2))?", (16.5003, -23.2717, 1835.0)),
    ("VERITAS", r"veritas", (-110.9519, 31.6751, 1268.0)),
    ("HAWC", r"hawc", (-97.3083, 18.9948, 4100.0)),
    ("LHAASO", r"lhaaso(-?(wcda|km2a))?", (100.1372, 29.3575, 4410.0)),
    ("ARGO-YBJ", r"argo(-?ybj)?", (90.5222, 30.1022, 4300.0)),
    ("MACE", r"mace", (78.9637, 32.7797, 4270.0)),
    ("TAIGA", r"taiga(-?(iact|hiscore))?", (103.0673, 51.8100, 675.0)),
    ("ASTRI Mini-Array", r"astri.*", (-16.5097, 28.3003, 2390.0)),
    ("HEGRA", r"hegra.*", _ROQUE),
    ("Whipple", r"whipple", (-110.8790, 31.6804, 2312.0)),
    ("Fermi-LAT", r"fermi(-?lat)?|glast|lat", None),
)

KNOWN_TELESCOPES = {name: Telescope(name, None if place is None else Location(*place)) for name, _, place in _KNOWN}
"""Telescopes by name."""

_UNKNOWN = ("", "unknown", "none", "other", "undefined", "unspecified", "montecarloarray", "n/a", "simulation")


def find_telescope(name: str | None) -> Telescope | None:
    """Return a telescope from the name that a file gives it, in any spelling.

    Parameters
    ----------
    name : str or None
        Such as the keyword TELESCOP of a FITS header.

    Returns
    -------
    Telescope or None
        With its common name and its location where it is known, else with the given name. None if the name says
        nothing.

    Examples
    --------
    >>> from excess.events.telescopes import find_telescope
    >>> find_telescope("HESS").name
    'H.E.S.S.'
    >>> find_telescope("My Telescope")
    Telescope(name='My Telescope', location=None)
    >>> find_telescope("unknown") is None
    True
    """
    given = " ".join((name or "").split())
    if given.lower() in _UNKNOWN:
        return None
    plain = given.lower().replace(".", "")
    for known, pattern, _ in _KNOWN:
        if re.fullmatch(pattern, plain) or plain == known.lower().replace(".", ""):
            return KNOWN_TELESCOPES[known]
    return Telescope(given, None)
