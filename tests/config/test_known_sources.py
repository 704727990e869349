"""Names and positions of sources, against what their designations say."""

import re

import pytest

from excess.config import KNOWN_SOURCES, AnalysisConfig, RegionConfig, find_source, parse_config
from excess.config._sources import _CATALOGUE, _key, source_of_object
from excess.io import EventFileError

NAMES = [(name, source) for key, (source, aliases) in _CATALOGUE.items() for name in (key, *aliases) if name]
# right ascension in hours and minutes and declination, of the year 1950 unless there is a J
DESIGNATION = re.compile(r"(J|B)?(\d{2})(\d{2})(?:\.\d)?([+-])(\d{2})(\d{2}|\d)?")


def test_every_name_leads_to_its_source_alone():
    keys = [_key(name) for name, _ in NAMES]
    assert len(set(keys)) == len(keys)
    assert len(KNOWN_SOURCES) >= 40
    for name, position in NAMES:
        assert find_source(name) == position
        assert find_source(name.lower().replace(" ", "").replace("-", "_")) == position


@pytest.mark.parametrize(
    ("name", "position"), [(name, position) for name, position in NAMES if DESIGNATION.search(name)]
)
def test_positions_are_those_of_the_designations(name, position):
    coordinates = pytest.importorskip("astropy.coordinates")
    system, hours, minutes, sign, degrees, more = DESIGNATION.search(name).groups()
    # two digits are cut off minutes of arc, one digit is a tenth of a degree
    fraction, error = {0: (0.5, 0.65), 1: (int(more or 0) / 10, 0.25), 2: (int(more or 0) / 60, 0.25)}[len(more or "")]
    declination = (int(degrees) + fraction) * (-1 if sign == "-" else 1)
    frame = "icrs" if system == "J" else coordinates.FK4(equinox="B1950")
    named = coordinates.SkyCoord(15 * (int(hours) + (int(minutes) + 0.5) / 60), declination, unit="deg", frame=frame)
    given = coordinates.SkyCoord(position.ra, position.dec, unit="deg")
    assert named.icrs.separation(given).deg < error


@pytest.mark.parametrize(
    ("text", "ra", "dec"),
    [
        ("83.6333 22.0133", 83.6333, 22.0133),
        ("83.6333,+22.0133", 83.6333, 22.0133),
        (" 266.4   -29.0 ", 266.4, -29.0),
        ("05h34m31.9s +22d00m48s", 83.63292, 22.01333),
        ("05h 34m 31.9s +22d 00m 48s", 83.63292, 22.01333),
        ("17:45:40 -29:00:28", 266.41667, -29.00778),
    ],
)
def test_positions_as_text(text, ra, dec):
    if re.search("[h:]", text):
        pytest.importorskip("astropy")
    found = find_source(text)
    assert (found.ra, found.dec) == (pytest.approx(ra, abs=1e-5), pytest.approx(dec, abs=1e-5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Mrk 412", r"did you mean 'Mrk 421'.*\? Otherwise specify its position in deg"),
        ("crabb", "did you mean 'Crab'"),
        ("Betelgeuse", "known are Crab, .* Otherwise specify its position"),
        ("", "known are Crab"),
        ("400 10", "right ascension is from 0 to 360 deg"),
        ("10 95", "declination from -90 to 90"),
        ("83.6", "is not a known source"),
        ("nan nan", "is not a known source"),
    ],
)
def test_unknown_sources_are_refused_with_a_remedy(text, message):
    with pytest.raises(ValueError, match=message):
        find_source(text)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Crab", "Crab"),
        ("CRAB NEBULA ", "Crab"),
        ("CrabNebula-W0.40+035", "Crab"),
        ("Mrk421_wobble_2", "Mrk 421"),
        ("VelaX w1", "Vela X"),
        ("Off data", None),
        ("", None),
        ("Crab off", None),
    ],
)
def test_objects_of_headers(name, found):
    known = source_of_object(name)
    assert (None if known is None else known.name) == found


def test_a_source_by_name_in_the_configuration():
    config = parse_config("regions: {source: mrk 501}", "settings")
    assert (config.regions.source_ra, config.regions.source_dec) == find_source("Mrk 501")[1:]
    assert parse_config(config.to_yaml(), "again") == config
    assert AnalysisConfig(regions={"source": "83.6 22.0"}).regions == RegionConfig(source_ra=83.6, source_dec=22.0)
    with pytest.raises(EventFileError, match=r"'Mrk 5011' is not a known source; did you mean 'Mrk 501'"):
        parse_config("regions: {source: Mrk 5011}", "settings")
    with pytest.raises(EventFileError, match="specify one of both"):
        parse_config("regions: {source: Crab, source_ra: 83.6, source_dec: 22.0}", "settings")
