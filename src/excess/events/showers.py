"""Showers from a table of telescope images: one row each, with the statistics that files of ctapipe are read with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from excess._core.errors import missing_column
from excess.events._images import (
    INTENSITIES,
    N_TELESCOPES,
    aggregate,
    multiplicity,
    parameters_needed,
    shower_columns,
)

__all__ = ["may_need", "to_showers"]


def to_showers(
    images: pd.DataFrame, columns: Sequence[str], keys: Sequence[str] = ("obs_id", "event_id")
) -> pd.DataFrame:
    """Combine the images of each shower.

    Parameters
    ----------
    images : DataFrame
        A row for each image, in any order.
    columns : sequence of str
        Columns of showers, as `describe` lists them for files of ctapipe: ``n_telescopes``; statistics of parameters,
        such as ``hillas_width_mean``; and columns that all images of a shower have in common, of which the first value
        is taken.
    keys : sequence of str, default=("obs_id", "event_id")
        Columns that tell showers apart.

    Returns
    -------
    DataFrame
        A row for each shower, in the order of their first images: the keys and the columns.

    Examples
    --------
    >>> import pandas as pd
    >>> from excess.events.showers import to_showers
    >>> images = pd.DataFrame({"event_id": [7, 8, 7], "hillas_intensity": [100.0, 50, 300], "width": [1.0, 2, 3]})
    >>> images["obs_id"] = 1
    >>> to_showers(images, ["n_telescopes", "width_mean"])
       obs_id  event_id  n_telescopes  width_mean
    0       1         7             2         2.5
    1       1         8             1         2.0
    """
    number = images.groupby(list(keys), sort=False).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    shower, n_showers = number[order].astype(np.intp), int(number.max(initial=-1)) + 1
    dtypes = {str(name): dtype for name, dtype in images.dtypes.items()}
    known = shower_columns(dtypes)
    possible = {*dtypes, *known, N_TELESCOPES}
    for name in columns:
        if name not in possible:
            raise ValueError(f"the table of images {missing_column(name, possible)}")
    statistics = [known[name] for name in columns if name in known and name not in images]
    parameters = {name: images[name].to_numpy()[order] for name in parameters_needed(statistics, dtypes)}
    first = np.flatnonzero(np.diff(shower, prepend=-1))
    found = {name: images[name].to_numpy()[order][first] for name in (*keys, *columns) if name in images}
    found |= aggregate(parameters, shower, n_showers, statistics, {})
    if N_TELESCOPES in columns and N_TELESCOPES not in images:
        found[N_TELESCOPES] = multiplicity(parameters, shower, n_showers)
    return pd.DataFrame({name: found[name] for name in dict.fromkeys((*keys, *columns))})


def may_need(columns: Iterable[str]) -> set[str]:
    """Return the names of all columns of images from which columns of showers may be computed.

    Examples
    --------
    >>> from excess.events.showers import may_need
    >>> sorted(may_need(["hillas_width_mean"]))
    ['hillas_intensity', 'hillas_width', 'hillas_width_mean', 'intensity']
    """
    found = {*columns}
    found |= {name.rpartition("_")[0] for name in found if "_" in name}
    # the mean of a direction needs both of its angles
    found |= {name.removesuffix("alt") + "az" for name in found if name.endswith("alt")}
    found |= {name.removesuffix("az") + "alt" for name in found if name.endswith("az")}
    return found | {*INTENSITIES}
