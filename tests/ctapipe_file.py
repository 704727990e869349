"""A small DL2 file of ctapipe, written with its own libraries, which its TableLoader reads."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def make_subarray():
    """Return two telescopes with cameras of four pixels."""
    import astropy.units as u
    from astropy.coordinates import EarthLocation
    from ctapipe.instrument import (
        CameraDescription,
        CameraGeometry,
        CameraReadout,
        OpticsDescription,
        SubarrayDescription,
        TelescopeDescription,
    )

    geometry = CameraGeometry.make_rectangular(2, 2)
    readout = CameraReadout("small", u.Quantity(1, u.GHz), np.ones((1, 3)), u.Quantity(1, u.ns), 1, 4, 10)
    area, length = u.Quantity(10, u.m**2), u.Quantity(5, u.m)
    optics = OpticsDescription("small", "SST", 1, length, length, area, 1, "DAVIES_COTTON")
    telescope = TelescopeDescription("small", optics, CameraDescription("small", geometry, readout))
    positions = {number: u.Quantity([100.0 * number, 0, 0], u.m) for number in (1, 2)}
    place = EarthLocation.from_geodetic(-17.89, 28.76, 2200)
    return SubarrayDescription("pair", positions, dict.fromkeys(positions, telescope), place)


def write_ctapipe_dl2(path: Path, events: pd.DataFrame) -> None:
    """Write events with ``h_max`` and ``energy``; ``obs_id`` and ``event_id`` are 1 to 3 and counted from 0."""
    pytest.importorskip("ctapipe")
    import astropy.units as u
    from astropy.time import Time
    from ctapipe import containers
    from ctapipe.io import HDF5TableWriter

    make_subarray().to_hdf(path)
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
