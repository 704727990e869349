"""A small DL2 file in lstchain's layout, written with PyTables as lstchain does it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

DL2 = "/dl2/event/telescope/parameters/LST_LSTCam"
DL1 = "/dl1/event/telescope/parameters/LST_LSTCam"
SRC_DEP = "/dl2/event/telescope/parameters_src_dependent/LST_LSTCam"


def lst_events(n_events: int, random_state: int = 0) -> pd.DataFrame:
    """Return events with the columns of lstchain's DL2 that matter here."""
    rng = np.random.default_rng(random_state)
    return pd.DataFrame(
        {
            "obs_id": np.full(n_events, 2008),
            "event_id": 10 + 3 * np.arange(n_events),
            "intensity": rng.lognormal(5, 1, n_events),
            "width": rng.normal(0.1, 0.02, n_events),
            "length": rng.normal(0.25, 0.05, n_events).astype(np.float32),
            "wl": rng.random(n_events),
            "is_good_event": np.arange(n_events) % 3 == 0,
            "event_type": np.full(n_events, 32, dtype=np.uint8),
            "tel_id": np.ones(n_events, dtype=np.int16),
            "dragon_time": 1.6e9 + np.arange(n_events) / 1e3,
            "alt_tel": np.full(n_events, 1.2),
            "az_tel": np.full(n_events, 0.3),
            "reco_alt": rng.normal(1.2, 0.01, n_events),
            "reco_az": rng.normal(0.3, 0.01, n_events),
            "reco_energy": rng.pareto(2, n_events) + 0.05,
            "gammaness": rng.random(n_events),
        }
    )


def write_lstchain(path: Path, events: pd.DataFrame, inside: str = DL2) -> None:
    """Write a table of events, with attributes and another table beside it."""
    tables = pytest.importorskip("tables")
    filters = tables.Filters(complevel=5, complib="blosc:zstd", fletcher32=True)
    with tables.open_file(path, "w", filters=filters) as file:
        group, _, name = inside.rpartition("/")
        rows = events.to_records(index=False)
        rows = rows.astype(rows.dtype.newbyteorder("="))  # PyTables takes "<" and "=" for different byte orders
        table = file.create_table(group, name, rows, createparents=True)
        table.attrs["config"] = {"source_dependent": False}  # a pickle
        table.attrs["LSTCHAIN_VERSION"] = "0.10.7"
        group, _, name = SRC_DEP.rpartition("/")
        file.create_table(group, name, events[["gammaness"]].to_records(index=False), createparents=True)
        file.root._v_attrs["LSTCHAIN_VERSION"] = "0.10.7"
