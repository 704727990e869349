"""A small FITS run of gamma-astro-data-formats, written with astropy: events, GTI and instrument response."""

from pathlib import Path

import numpy as np
import pytest

N_EVENTS = 500
SOURCE = (83.6333, 22.0133)


def write_gadf_run(path: Path, *, obs_id: int = 1, checksum: bool = False, lists: bool = False, seed: int = 0) -> None:
    """Write events around a pointing at 0.6 deg from the Crab Nebula; ``lists`` adds a column of variable length."""
    fits = pytest.importorskip("astropy.io.fits")
    rng = np.random.default_rng(seed)
    n_source = N_EVENTS // 10
    ra, dec = rng.normal(83.6333, 0.5, N_EVENTS), rng.normal(22.6133, 0.5, N_EVENTS)
    ra[:n_source], dec[:n_source] = rng.normal(SOURCE[0], 0.05, n_source), rng.normal(SOURCE[1], 0.05, n_source)
    columns = [
        fits.Column("EVENT_ID", "K", array=np.arange(N_EVENTS)),
        fits.Column("TIME", "D", unit="s", array=np.sort(rng.uniform(0, 1200, N_EVENTS))),
        fits.Column("RA", "E", unit="deg", array=ra),
        fits.Column("DEC", "E", unit="deg", array=dec),
        fits.Column("ENERGY", "E", unit="TeV", array=np.minimum(rng.pareto(1.5, N_EVENTS) + 0.5, 50)),
        fits.Column("HIL_MSW", "E", array=rng.normal(size=N_EVENTS)),
        fits.Column("TELS", "4L", array=rng.random((N_EVENTS, 4)) > 0.5),
        fits.Column("NAME", "7A", array=np.array([f"e{number}" for number in range(N_EVENTS)])),
        fits.Column("SCALED", "I", bzero=32768, array=np.arange(N_EVENTS, dtype=np.uint16) * 100),
    ]
    if lists:
        pixels = np.array([np.arange(number % 4) for number in range(N_EVENTS)], dtype=object)
        columns.append(fits.Column("PIXELS", "PJ()", array=pixels))
    run = {
        "HDUCLASS": "GADF", "OBS_ID": obs_id, "RA_PNT": 83.6333, "DEC_PNT": 22.6133, "ONTIME": 1200.0,
        "LIVETIME": 1180.0, "DEADC": 1180 / 1200, "MJDREFI": 51544, "MJDREFF": 0.5, "TIMEUNIT": "s", "TIMESYS": "TT",
        "TIMEREF": "LOCAL",
        "TSTART": 0.0, "TSTOP": 1200.0, "DATE-OBS": "2000-01-01", "OBJECT": "Crab", "RADECSYS": "ICRS",
        "EQUINOX": 2000.0, "TELESCOP": "TEST", "INSTRUME": "TEST", "ALT_PNT": 70.0, "AZ_PNT": 10.0,
        "GEOLON": -17.89, "GEOLAT": 28.76, "ALTITUDE": 2200.0,
    }  # fmt: skip
    events = fits.BinTableHDU.from_columns(columns, name="EVENTS")
    events.header.update(run | {"HDUCLAS1": "EVENTS"})
    times = [fits.Column(name, "D", unit="s", array=[value]) for name, value in (("START", 0.0), ("STOP", 1200.0))]
    gti = fits.BinTableHDU.from_columns(times, name="GTI")
    gti.header.update(run | {"HDUCLAS1": "GTI"})
    primary = fits.PrimaryHDU()
    primary.header["OBSERVER"] = "nobody"
    primary.header["HISTORY"] = "written for a test"
    hdus = [primary, events, gti, _effective_area(fits, rng), _energy_dispersion(fits)]
    fits.HDUList(hdus).writeto(path, checksum=checksum)


def _effective_area(fits, rng):
    edges, thetas = np.geomspace(0.1, 100, 11), np.array([0.0, 1.0, 2.0])
    columns = [
        *_axis(fits, "ENERG", "TeV", edges),
        *_axis(fits, "THETA", "deg", thetas),
        fits.Column("EFFAREA", "20E", unit="m2", dim="(10,2)", array=[1e4 * (1 + rng.random((2, 10)))]),
    ]
    return _response(fits, columns, "EFFECTIVE AREA", ("EFF_AREA", "AEFF_2D"))


def _energy_dispersion(fits):
    edges, ratios = np.geomspace(0.1, 100, 6), np.linspace(0.2, 2, 10)
    matrix = np.exp(-0.5 * ((ratios[:-1] + ratios[1:]) / 2 - 1) ** 2 / 0.2**2)
    matrix /= (matrix * np.diff(ratios)).sum()
    columns = [
        *_axis(fits, "ENERG", "TeV", edges),
        *_axis(fits, "MIGRA", "", ratios),
        *_axis(fits, "THETA", "deg", np.array([0.0, 1.0, 2.0])),
        fits.Column("MATRIX", "90E", dim="(5,9,2)", array=[np.tile(matrix[:, None], (2, 1, 5))]),
    ]
    return _response(fits, columns, "ENERGY DISPERSION", ("EDISP", "EDISP_2D"))


def _axis(fits, name, unit, edges):
    form = f"{len(edges) - 1}E"
    sides = (("LO", edges[:-1]), ("HI", edges[1:]))
    return [fits.Column(f"{name}_{side}", form, unit=unit or None, array=[values]) for side, values in sides]


def _response(fits, columns, name, classes):
    hdu = fits.BinTableHDU.from_columns(columns, name=name)
    kinds = {"HDUCLASS": "GADF", "HDUCLAS1": "RESPONSE", "HDUCLAS2": classes[0], "HDUCLAS3": "POINT-LIKE"}
    hdu.header.update(kinds | {"HDUCLAS4": classes[1], "RAD_MAX": 0.1581})
    return hdu
