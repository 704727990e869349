"""Files of ctapipe, written with ctapipe's own functions, and the array of telescopes that they are of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

PLACE = (-17.89139, 28.76139, 2184.0)
CRAB = (83.6333, 22.0133)
START = 1_447_293_600.0
"""12 November 2015, 2 h UTC, when the Crab is high over La Palma."""
IMAGE_COLUMNS = (
    "hillas_fov_lon hillas_fov_lat hillas_r hillas_phi hillas_length hillas_length_uncertainty "
    "hillas_width_uncertainty hillas_psi hillas_skewness hillas_kurtosis timing_slope timing_deviation "
    "leakage_pixels_width_1 leakage_intensity_width_1 leakage_intensity_width_2 concentration_cog concentration_core "
    "concentration_pixel intensity_max intensity_mean intensity_std peak_time_mean peak_time_std"
)


def make_subarray(n_telescopes: int, place: tuple[float, float, float] = PLACE) -> Any:
    """Return an array of small telescopes."""
    import astropy.units as u
    from astropy.coordinates import EarthLocation
    from ctapipe.instrument import (
        CameraDescription,
        CameraGeometry,
        CameraReadout,
        OpticsDescription,
        ReflectorShape,
        SizeType,
        SubarrayDescription,
        TelescopeDescription,
    )

    geometry = CameraGeometry.make_rectangular(4, 4)
    geometry.name = "Camera"
    readout = CameraReadout("Camera", 1 * u.GHz, np.ones((1, 5)), 1 * u.ns, 1, geometry.n_pixels, 30)
    optics = OpticsDescription(
        "Small", SizeType.LST, 1, 28 * u.m, 28 * u.m, 400 * u.m**2, 200, ReflectorShape.PARABOLIC
    )
    telescope = TelescopeDescription("Small", optics, CameraDescription("Camera", geometry, readout))
    ids = range(1, n_telescopes + 1)
    return SubarrayDescription(
        "TestArray",
        {number: [100.0 * number, 0, 0] * u.m for number in ids},
        dict.fromkeys(ids, telescope),
        reference_location=EarthLocation.from_geodetic(*place),
    )


def write_ctapipe(
    path: Path,
    n_events: int = 300,
    *,
    n_signal: int = 60,
    n_telescopes: int = 3,
    n_nights: int = 2,
    seed: int = 0,
    simulated: bool = False,
    stereo: bool = True,
    monitoring: bool = True,
    time_format: str = "ctao_high_res",
) -> dict[str, Any]:
    """Write a DL2 file (DL1 without ``stereo``); return the sky positions of events and of the pointing in deg."""
    import astropy.units as u
    from astropy.coordinates import AltAz, EarthLocation, SkyCoord
    from astropy.table import Table
    from astropy.time import Time
    from ctapipe.io import write_table

    rng = np.random.default_rng(seed)
    n = n_events + n_signal
    unix = np.sort(START + 86_400 * rng.integers(0, n_nights, n) + rng.uniform(0, 7200, n))
    time = Time(unix, format="unix", scale="utc")
    is_signal = np.zeros(n, dtype=bool)
    is_signal[rng.permutation(n)[:n_signal]] = True
    obs_id = (100 + (unix - START) // 86_400).astype(np.int32)
    keys = {"obs_id": obs_id, "event_id": np.arange(n, dtype=np.int64) + 1000}

    crab = SkyCoord(*CRAB, unit="deg")
    pointing = crab.directional_offset_by(0 * u.deg, 0.5 * u.deg)
    sky = pointing.directional_offset_by(rng.uniform(0, 360, n) * u.deg, 1.5 * np.sqrt(rng.uniform(0, 1, n)) * u.deg)
    near = crab.directional_offset_by(rng.uniform(0, 360, n) * u.deg, rng.rayleigh(0.05, n) * u.deg)
    sky = SkyCoord(np.where(is_signal, near.ra, sky.ra), np.where(is_signal, near.dec, sky.dec), unit="deg")
    frame = AltAz(obstime=time, location=EarthLocation.from_geodetic(*PLACE))
    horizon = sky.transform_to(frame)

    mask = rng.random((n, n_telescopes)) < 0.6
    mask[np.arange(n), rng.integers(0, n_telescopes, n)] = True

    def write(table: dict[str, Any], inside: str) -> None:
        write_table(Table(table), path, inside, time_format=time_format)

    make_subarray(n_telescopes).to_hdf(path)
    write(keys | {"time": time, "tels_with_trigger": mask, "event_type": np.full(n, 32)}, "/dl1/event/subarray/trigger")
    event, telescope = np.nonzero(mask)
    tel_keys = {name: values[event] for name, values in keys.items()} | {"tel_id": (telescope + 1).astype(np.int16)}
    write(
        tel_keys | {"time": time[event], "n_trigger_pixels": rng.integers(3, 9, len(event))},
        "/dl1/event/telescope/trigger",
    )
    if stereo:
        write_stereo(write, keys, horizon, is_signal, mask, rng)
    if simulated:
        truth = {
            "true_energy": np.ones(n) * u.TeV,
            "true_alt": horizon.alt.deg * u.deg,
            "true_az": horizon.az.deg * u.deg,
        }
        write(keys | truth, "/simulation/event/subarray/shower")
    for number in range(n_telescopes):
        rows = np.flatnonzero(mask[:, number])
        own = {name: values[rows] for name, values in keys.items()}
        own["tel_id"] = np.full(len(rows), number + 1, dtype=np.int16)
        leaf = f"tel_{number + 1:03d}"
        write(own | image_parameters(is_signal[rows], rng), f"/dl1/event/telescope/parameters/{leaf}")
        if stereo:
            energy = {
                "Forest_tel_energy": rng.lognormal(0, 1, len(rows)) * u.TeV,
                "Forest_tel_is_valid": rng.random(len(rows)) < 0.9,
            }
            write(own | energy, f"/dl2/event/telescope/energy/Forest/{leaf}")
        if simulated:
            write(own | {"true_hillas_width": rng.random(len(rows))}, f"/simulation/event/telescope/parameters/{leaf}")
            write(
                own | {"true_impact_distance": rng.random(len(rows)) * u.m},
                f"/simulation/event/telescope/impact/{leaf}",
            )
        if monitoring:
            steps = slice(None, None, max(n // 200, 1))
            moments = np.unique(np.append(unix[steps], unix[[0, -1]] + [-1, 1]))
            grid = AltAz(obstime=Time(moments, format="unix"), location=EarthLocation.from_geodetic(*PLACE))
            there = pointing.transform_to(grid)
            table = {
                "time": Time(moments, format="unix"),
                "azimuth": there.az.rad * u.rad,
                "altitude": there.alt.rad * u.rad,
            }
            write(table, f"/dl0/monitoring/telescope/pointing/{leaf}")
        else:
            blocks = np.unique(obs_id)
            table = {
                "obs_id": blocks,
                "tel_id": np.full(len(blocks), number + 1, dtype=np.int16),
                "telescope_pointing_azimuth": np.full(len(blocks), 0.1) * u.rad,
                "telescope_pointing_altitude": np.full(len(blocks), 1.2) * u.rad,
            }
            write(table, f"/configuration/telescope/pointing/{leaf}")
    return {
        "ra": sky.ra.deg,
        "dec": sky.dec.deg,
        "pointing_ra": pointing.ra.deg,
        "pointing_dec": pointing.dec.deg,
        "unix_time": unix,
        "is_signal": is_signal,
    }


def image_parameters(is_signal: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Return parameters of images; images of gammas are narrow, and one in twenty has no parameters."""
    n = len(is_signal)
    found = {
        "hillas_intensity": rng.lognormal(5, 1, n),
        "hillas_width": np.where(is_signal, 0.06, 0.12) * rng.lognormal(0, 0.3, n),
        "morphology_n_pixels": rng.integers(5, 100, n).astype(np.int32),
    }
    found |= {name: rng.normal(1, 0.2, n) for name in IMAGE_COLUMNS.split()}
    without = rng.random(n) < 0.05
    for name, values in found.items():
        values[without] = -1 if name == "morphology_n_pixels" else np.nan
    return found


def write_stereo(write: Any, keys: Any, horizon: Any, is_signal: Any, mask: Any, rng: np.random.Generator) -> None:
    """Write geometry, energy and classification of array events."""
    import astropy.units as u

    n = len(is_signal)
    known = rng.random(n) < 0.97
    geometry = {
        "HillasReconstructor_alt": np.where(known, horizon.alt.deg, np.nan) * u.deg,
        "HillasReconstructor_az": np.where(known, horizon.az.deg, np.nan) * u.deg,
        "HillasReconstructor_h_max": rng.normal(10_000, 1000, n) * u.m,
        "HillasReconstructor_is_valid": known,
        "HillasReconstructor_telescopes": mask,
    }
    write(keys | geometry, "/dl2/event/subarray/geometry/HillasReconstructor")
    energy = {"Forest_energy": rng.lognormal(0, 1, n) * u.TeV, "Forest_is_valid": np.ones(n, dtype=bool)}
    write(keys | energy, "/dl2/event/subarray/energy/Forest")
    gammaness = {"Classifier_prediction": np.clip(rng.normal(0.4 + 0.3 * is_signal, 0.2), 0, 1)}
    write(keys | gammaness, "/dl2/event/subarray/particle_type/Classifier")


def write_ctapipe_dl2(path: Path, events: pd.DataFrame) -> None:
    """Write a DL2 file event by event, with ``h_max`` and ``energy``; ``obs_id`` is 1 to 3, ``event_id`` from 0."""
    pytest.importorskip("ctapipe")
    import astropy.units as u
    from astropy.time import Time
    from ctapipe import containers
    from ctapipe.io import HDF5TableWriter

    make_subarray(2).to_hdf(path)
    with HDF5TableWriter(path, add_prefix=True, mode="a") as writer:
        for number, event in enumerate(events.itertuples()):
            index = containers.EventIndexContainer(obs_id=np.int32(1 + number % 3), event_id=np.int64(number))
            telescopes = np.array([True, number % 2 == 0])
            trigger = containers.TriggerContainer(
                time=Time(59000 + number / 1e5, format="mjd", scale="tai"), tels_with_trigger=telescopes
            )
            writer.write("dl1/event/subarray/trigger", [index, trigger])
            geometry = containers.ReconstructedGeometryContainer(
                h_max=event.h_max * u.m, is_valid=True, telescopes=telescopes, prefix="HillasReconstructor"
            )
            writer.write("dl2/event/subarray/geometry/HillasReconstructor", [index, geometry])
            energy = containers.ReconstructedEnergyContainer(
                energy=event.energy * u.TeV, is_valid=True, telescopes=telescopes, prefix="Regressor"
            )
            writer.write("dl2/event/subarray/energy/Regressor", [index, energy])
            shower = containers.SimulatedShowerContainer(energy=(event.energy + 0.5) * u.TeV)
            writer.write("simulation/event/subarray/shower", [index, shower])
