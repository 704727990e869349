"""Known gamma-ray sources by name, and positions given as text."""

import math
import re
from difflib import get_close_matches
from typing import NamedTuple

from excess._utils.errors import ArgumentError, require
from excess.io._files import read_catalogue

_REMEDY = 'specify its position in deg, such as "83.6333 22.0133"'


class SourcePosition(NamedTuple):
    """A source by name and position."""

    name: str
    ra: float
    dec: float

    def __str__(self) -> str:
        """Return the name, or the position if there is no name."""
        return self.name or f"({self.ra:.4f}, {self.dec:.4f})"


_CATALOGUE = {
    row["name"]: (SourcePosition(row["name"], float(row["ra"]), float(row["dec"])), row["aliases"].split("|"))
    for row in read_catalogue("sources.csv", "excess.config")
}
# sources by their usual names, with positions in deg (ICRS)
KNOWN_SOURCES: dict[str, SourcePosition] = {name: source for name, (source, _) in _CATALOGUE.items()}


def _key(name: str) -> str:
    """Normalise a name: case, spaces, dashes and other punctuation."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


_EXAMPLES = tuple(KNOWN_SOURCES)[:6]
_BY_KEY = {_key(alias): source for name, (source, aliases) in _CATALOGUE.items() for alias in (name, *aliases) if alias}


def find_source(source: str) -> SourcePosition:
    """Return the position of a source from its name, or from a text with right ascension and declination.

    Parameters
    ----------
    source : str
        Name of a known source, ignoring case, spaces and dashes; or two numbers in deg (ICRS); or a position in hours
        and degrees such as ``"05h34m31.9s +22d00m48s"`` or ``"05:34:31.9 +22:00:48"``, which requires astropy.

    Returns
    -------
    SourcePosition
        Name and position in deg.

    Raises
    ------
    ArgumentError
        If no source has this name, or the position is invalid.

    Examples
    --------
    >>> from excess.config import find_source
    >>> find_source("mrk421")
    SourcePosition(name='Mrk 421', ra=166.1138, dec=38.2088)
    >>> print(find_source("83.6333 22.0133"))
    (83.6333, 22.0133)
    >>> find_source("Mrk 412")
    Traceback (most recent call last):
        ...
    excess._utils.errors.ArgumentError: source 'Mrk 412' is not a known source; did you mean 'Mrk 421' or ...
    """
    text = source.strip()
    if (known := _BY_KEY.get(_key(text))) is not None:
        return known
    words = text.replace(",", " ").split()
    if len(words) == 6 and not re.search("[hdms]", text):  # sexagesimal, as in SIMBAD
        words = [":".join(words[:3]), ":".join(words[3:])]
    position = _as_degrees(words)
    if position is None and words and words[0][0].isdigit() and re.search(r"\d[hd:]", " ".join(words)):
        position = _as_angles(text, words)
    if position is None:
        close = get_close_matches(_key(text), _BY_KEY, n=3, cutoff=0.6)
        names = list(dict.fromkeys(_BY_KEY[key].name for key in close))
        hint = f"did you mean {' or '.join(map(repr, names))}?" if names else f"known are {', '.join(_EXAMPLES)}, ..."
        raise ArgumentError("source", f"{source!r} is not a known source; {hint} Otherwise {_REMEDY}")
    ra, dec = position
    if not 0 <= ra <= 360 or not -90 <= dec <= 90:
        limits = "right ascension is from 0 to 360 deg, declination from -90 to 90 deg"
        raise ArgumentError("source", f"{source!r} is not a valid position: {limits}")
    return SourcePosition("", ra, dec)


def source_of_object(name: str) -> SourcePosition | None:
    """Return the known source named in the header of an observation, None if it is unknown."""
    target = re.sub(r"[-_ ]*(wobble|w)[-_ ]*[\d.+-]*$", "", name.strip(), flags=re.IGNORECASE)
    return _BY_KEY.get(_key(name)) or _BY_KEY.get(_key(target))


def _as_degrees(words: list[str]) -> tuple[float, float] | None:
    """Return two numbers, None for other words."""
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
        # without a unit, the first is in hours, as in catalogues
        ra_angle = Angle(ra, unit="hourangle" if ":" in ra else None)
        return float(ra_angle.deg), float(Angle(dec, unit="deg" if ":" in dec else None).deg)
    except Exception as error:  # errors of units are no ValueError
        raise ArgumentError("source", f"{text!r} is not a valid position; {_REMEDY}") from error
