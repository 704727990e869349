"""Showers in a small array of ctapipe, to run its tools on."""

import numpy as np
import pandas as pd
from ctapipe_files import make_subarray


def draw_images(n_events, seed=0):
    """Return a row for each image; every third shower has one telescope only, and some images have no parameters."""
    rng = np.random.default_rng(seed)
    events = np.repeat(np.arange(n_events), 2)
    images = pd.DataFrame({"obs_id": 1, "event_id": events, "tel_id": np.tile([1, 2], n_events)})
    images["hillas_intensity"] = rng.lognormal(5, 1, len(images))
    images["hillas_width"] = rng.gamma(4, 0.02, len(images))
    images["hillas_length"] = 2 * images["hillas_width"] + rng.gamma(3, 0.02, len(images))
    images["morphology_n_pixels"] = rng.integers(3, 40, len(images))
    images.loc[::17, ["hillas_intensity", "hillas_width", "hillas_length"]] = np.nan
    return images[(images["tel_id"] == 1) | (images["event_id"] % 3 > 0)].reset_index(drop=True)


def make_events(images):
    """Yield the array events of images, with parameters, trigger and a reconstructed height of the maximum."""
    import astropy.units as u
    from astropy.time import Time
    from ctapipe import containers

    for (obs_id, event_id), own in images.groupby(["obs_id", "event_id"]):
        event = containers.ArrayEventContainer()
        event.index.obs_id, event.index.event_id = np.int32(obs_id), np.int64(event_id)
        event.trigger.tels_with_trigger = own["tel_id"].tolist()
        event.trigger.time = Time(59000 + event_id / 1e5, format="mjd", scale="tai")
        for row in own.itertuples():
            hillas = containers.HillasParametersContainer(
                intensity=row.hillas_intensity,
                width=u.Quantity(row.hillas_width, u.deg).to(u.rad),  # files have deg
                length=u.Quantity(row.hillas_length, u.deg),
            )
            morphology = containers.MorphologyContainer(n_pixels=row.morphology_n_pixels)
            event.dl1.tel[row.tel_id].parameters = containers.ImageParametersContainer(
                hillas=hillas, morphology=morphology
            )
            event.trigger.tel[row.tel_id].time = event.trigger.time
        event.dl2.stereo.geometry["HillasReconstructor"] = containers.ReconstructedGeometryContainer(
            h_max=u.Quantity(8000 + event_id, u.m), is_valid=True, prefix="HillasReconstructor"
        )
        yield event


def write_images(path, images):
    """Write images and their showers as ctapipe's own tools do."""
    from ctapipe.containers import ObservationBlockContainer, SchedulingBlockContainer
    from ctapipe.core import Provenance
    from ctapipe.io import DataLevel, DataWriter, EventSource

    number = np.uint64(1)

    class Images(EventSource):
        is_simulation = False
        datalevels = (DataLevel.DL1_PARAMETERS,)
        simulation_config = atmosphere_density_profile = None
        obs_ids = (1,)
        subarray = make_subarray(2)
        observation_blocks = {1: ObservationBlockContainer(obs_id=number, sb_id=number, producer_id="test")}  # noqa: RUF012
        scheduling_blocks = {1: SchedulingBlockContainer(sb_id=number, producer_id="test")}  # noqa: RUF012

        @staticmethod
        def is_compatible(file_path):
            return False

        def _generator(self):
            yield from make_events(images)

    Provenance().start_activity("test")
    settings = {"write_dl1_parameters": True, "write_dl1_images": False, "write_dl2": True}
    with Images(input_url=__file__) as source, DataWriter(event_source=source, output_path=path, **settings) as writer:
        for event in source:
            writer(event)
    Provenance().finish_activity("test")
