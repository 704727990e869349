"""Known sources: names and positions of gamma-ray sources, and positions that are given as text."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from typing import NamedTuple

from excess._core.errors import ArgumentError, require

__all__ = ["KNOWN_SOURCES", "SourcePosition", "find_source", "source_of_object"]

_REMEDY = 'give its position in deg, such as "83.6333 22.0133"'


class SourcePosition(NamedTuple):
    """A source by name and position.

    Attributes
    ----------
    name : str
        Name; empty if a position was given.
    ra, dec : float
        Right ascension and declination in deg (ICRS).

    Examples
    --------
    >>> from excess.events import SourcePosition
    >>> print(SourcePosition("Crab", 83.6333, 22.0133), SourcePosition("", 83.6333, 22.0133))
    Crab (83.6333, 22.0133)
    """

    name: str
    ra: float
    dec: float

    def __str__(self) -> str:
        """Return the name, or the position where there is no name."""
        return self.name or f"({self.ra:.4f}, {self.dec:.4f})"


# Point-like sources by their counterpart, extended ones by the centre of their emission at TeV energies. The Crab is
# where most analyses of Cherenkov telescopes put it, 4 arcsec from its pulsar.
_TABLE: tuple[tuple[str, float, float, tuple[str, ...]], ...] = (
    ("Crab", 83.6333, 22.0133, ("Crab Nebula", "M1", "3C 144", "HESS J0534+220", "TeV J0534+220")),
    ("Crab pulsar", 83.6331, 22.0145, ("PSR B0531+21", "PSR J0534+2200")),
    ("Mrk 421", 166.1138, 38.2088, ("Markarian 421", "Mkn 421", "1ES 1101+384")),
    ("Mrk 501", 253.4676, 39.7602, ("Markarian 501", "Mkn 501", "1ES 1652+398")),
    ("Mrk 180", 174.1100, 70.1576, ("Markarian 180", "Mkn 180", "1ES 1133+704")),
    ("1ES 1959+650", 299.9994, 65.1485, ()),
    ("1ES 2344+514", 356.7702, 51.7050, ()),
    ("1ES 0229+200", 38.2026, 20.2882, ()),
    ("1ES 0347-121", 57.3466, -11.9909, ()),
    ("1ES 0414+009", 64.2187, 1.0900, ()),
    ("1ES 0502+675", 76.9841, 67.6234, ()),
    ("1ES 0647+250", 102.6937, 25.0499, ()),
    ("1ES 0806+524", 122.4549, 52.3162, ()),
    ("1ES 1011+496", 153.7672, 49.4335, ()),
    ("1ES 1101-232", 165.9067, -23.4920, ()),
    ("1ES 1215+303", 184.4670, 30.1168, ("ON 325", "B2 1215+30")),
    ("1ES 1218+304", 185.3414, 30.1770, ()),
    ("1ES 1727+502", 262.0776, 50.2196, ()),
    ("H 1426+428", 217.1359, 42.6725, ("1ES 1426+428",)),
    ("H 2356-309", 359.7830, -30.6280, ()),
    ("PG 1553+113", 238.9294, 11.1901, ("1ES 1553+113",)),
    ("PKS 2155-304", 329.7169, -30.2256, ()),
    ("PKS 2005-489", 302.3558, -48.8316, ()),
    ("PKS 0447-439", 72.3529, -43.8358, ()),
    ("PKS 0548-322", 87.6690, -32.2712, ()),
    ("PKS 1222+216", 186.2269, 21.3796, ("4C +21.35",)),
    ("PKS 1424+240", 216.7516, 23.8000, ()),
    ("PKS 1441+25", 220.9871, 25.0290, ()),
    ("PKS 1510-089", 228.2106, -9.1000, ()),
    ("3C 279", 194.0465, -5.7893, ()),
    ("3C 66A", 35.6651, 43.0355, ()),
    ("3C 58", 31.4043, 64.8283, ()),
    ("S5 0716+714", 110.4727, 71.3434, ()),
    ("S3 0218+35", 35.2728, 35.9371, ("B0218+357", "QSO B0218+357")),
    ("RGB J0710+591", 107.6253, 59.1390, ()),
    ("RGB J0521+212", 80.4415, 21.2143, ("VER J0521+211",)),
    ("BL Lac", 330.6804, 42.2778, ("BL Lacertae",)),
    ("W Comae", 185.3820, 28.2329, ("W Com", "ON 231")),
    ("AP Librae", 229.4242, -24.3721, ("AP Lib",)),
    ("M 87", 187.7059, 12.3911, ("NGC 4486", "Virgo A")),
    ("M 82", 148.9685, 69.6797, ("NGC 3034",)),
    ("NGC 1275", 49.9507, 41.5117, ("Perseus A", "3C 84")),
    ("NGC 253", 11.8881, -25.2888, ()),
    ("IC 310", 49.1793, 41.3248, ()),
    ("Cen A", 201.3651, -43.0191, ("Centaurus A", "NGC 5128")),
    ("Cas A", 350.8500, 58.8150, ("Cassiopeia A", "3C 461")),
    ("Tycho", 6.3397, 64.1408, ("Tycho SNR", "SN 1572")),
    ("IC 443", 94.2125, 22.5031, ("VER J0616+223",)),
    ("RX J1713.7-3946", 258.3900, -39.7600, ("RX J1713", "HESS J1713-397", "SNR G347.3-00.5")),
    ("Vela Junior", 133.0000, -46.3330, ("Vela Jr", "RX J0852.0-4622", "HESS J0852-463")),
    ("Vela X", 128.7500, -45.6000, ("HESS J0835-455",)),
    ("Vela pulsar", 128.8361, -45.1764, ("Vela", "PSR B0833-45", "PSR J0835-4510")),
    ("SN 1006", 225.5921, -42.0969, ()),
    ("RCW 86", 220.6800, -62.4800, ("HESS J1442-624",)),
    ("MSH 15-52", 228.5292, -59.1575, ("HESS J1514-591",)),
    ("Geminga", 98.4756, 17.7703, ("PSR J0633+1746", "Geminga pulsar")),
    ("Sgr A*", 266.4168, -29.0078, ("Sagittarius A*", "Galactic Centre", "Galactic Center", "HESS J1745-290")),
    ("LS I +61 303", 40.1319, 61.2293, ("VER J0240+612",)),
    ("LS 5039", 276.5627, -14.8484, ("HESS J1826-148",)),
    ("PSR B1259-63", 195.6986, -63.8357, ("HESS J1302-638", "SS 2883")),
    ("HESS J0632+057", 98.2469, 5.8003, ("HD 259440",)),
    ("HESS J1825-137", 276.4542, -13.7764, ()),
    ("HESS J1640-465", 250.1250, -46.5500, ()),
    ("MGRO J1908+06", 286.9750, 6.2686, ("HESS J1908+063",)),
    ("TeV J2032+4130", 308.0250, 41.5670, ("TeV J2032", "MGRO J2031+41")),
)

KNOWN_SOURCES: dict[str, SourcePosition] = {name: SourcePosition(name, ra, dec) for name, ra, dec, _ in _TABLE}
"""Sources by their usual names, with positions in deg (ICRS)."""


def _key(name: str) -> str:
    """Return a name without what people write differently: case, spaces, dashes and other signs."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


_EXAMPLES = tuple(KNOWN_SOURCES)[:6]
_BY_KEY = {_key(alias): KNOWN_SOURCES[name] for name, _, _, aliases in _TABLE for alias in (name, *aliases)}


def find_source(source: str) -> SourcePosition:
    """Return the position of a source from its name, or from a text with right ascension and declination.

    Parameters
    ----------
    source : str
        The name of a known source, in any case, with or without spaces and dashes; or two numbers in deg (ICRS); or a
        position in hours and degrees such as ``"05h34m31.9s +22d00m48s"`` or ``"05:34:31.9 +22:00:48"``, which needs
        astropy.

    Returns
    -------
    SourcePosition
        Name and position in deg.

    Raises
    ------
    ArgumentError
        If no source has this name, or the position is not one on the sky.

    Examples
    --------
    >>> from excess.events import find_source
    >>> find_source("mrk421")
    SourcePosition(name='Mrk 421', ra=166.1138, dec=38.2088)
    >>> print(find_source("83.6333 22.0133"))
    (83.6333, 22.0133)
    >>> find_source("Mrk 412")
    Traceback (most recent call last):
        ...
    excess._core.errors.ArgumentError: source 'Mrk 412' is not a known source; did you mean 'Mrk 421' or ...
    """
    text = source.strip()
    known = _BY_KEY.get(_key(text))
    if known is not None:
        return known
    words = text.replace(",", " ").split()
    position = _as_degrees(words)
    if position is None and words and words[0][0].isdigit() and re.search(r"\d[hd:]", text):
        position = _as_angles(text, words)
    if position is None:
        close = get_close_matches(_key(text), _BY_KEY, n=3, cutoff=0.6)
        names = list(dict.fromkeys(_BY_KEY[key].name for key in close))
        hint = f"did you mean {' or '.join(map(repr, names))}?" if names else f"known are {', '.join(_EXAMPLES)}, ..."
        raise ArgumentError("source", f"{source!r} is not a known source; {hint} Otherwise {_REMEDY}")
    ra, dec = position
    if not 0 <= ra <= 360 or not -90 <= dec <= 90:
        raise ArgumentError(
            "source", f"{source!r} is no position: right ascension is from 0 to 360 deg, declination from -90 to 90 deg"
        )
    return SourcePosition("", ra, dec)


def source_of_object(name: str) -> SourcePosition | None:
    """Return the known source that the header of an observation names, None if it names no known one.

    What is said about the pointing, such as ``Crab-W0.40+035`` or ``Crab wobble 2``, is passed over.

    Examples
    --------
    >>> from excess.events.known_sources import source_of_object
    >>> source_of_object("CrabNebula-W0.40+035").name
    'Crab'
    >>> source_of_object("Off field 7") is None
    True
    """
    target = re.sub(r"[-_ ]*(wobble|w)[-_ ]*[\d.+-]*$", "", name.strip(), flags=re.IGNORECASE)
    return _BY_KEY.get(_key(name)) or _BY_KEY.get(_key(target))


def _as_degrees(words: list[str]) -> tuple[float, float] | None:
    """Return two numbers, None if the words are something else."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return None
    return (numbers[0], numbers[1]) if len(numbers) == 2 and all(map(math.isfinite, numbers)) else None


def _as_angles(text: str, words: list[str]) -> tuple[float, float]:
    """Return a position in hours and degrees as two numbers in deg."""
    Angle = require("astropy.coordinates", f"the position {text!r} in hours and degrees").Angle
    middle = len(words) // 2
    try:
        ra, dec = " ".join(words[:middle]), " ".join(words[middle:])
        # without a unit of its own, the first is in hours, as in catalogues
        return (
            float(Angle(ra, unit="hourangle" if ":" in ra else None).deg),
            float(Angle(dec, unit="deg" if ":" in dec else None).deg),
        )
    except ValueError as error:
        raise ArgumentError("source", f"{text!r} is no position that can be read; {_REMEDY}") from error
