"""Showers from a table of images, against the same by pandas."""

import numpy as np
import pandas as pd
import pytest

from excess.io._images import to_showers


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"obs_id": rng.integers(1, 3, 200), "event_id": rng.integers(0, 30, 200)})
    table["tel_id"] = np.arange(200)
    table["hillas_intensity"] = rng.lognormal(5, 1, 200)
    table["hillas_width"] = np.where(rng.random(200) < 0.1, np.nan, rng.gamma(4, 1, 200))
    table["height"] = 100.0 * table["obs_id"] + table["event_id"]
    return table


def test_statistics_of_images_in_any_order(images):
    found = to_showers(
        images, ["hillas_width_max", "hillas_width_mean", "hillas_intensity_sum", "height", "n_telescopes"]
    )
    groups = images.groupby(["obs_id", "event_id"], sort=False)
    in_order = list(images[["obs_id", "event_id"]].drop_duplicates().itertuples(index=False, name=None))
    assert list(zip(found["obs_id"], found["event_id"], strict=True)) == in_order
    np.testing.assert_allclose(found["hillas_width_max"], groups["hillas_width"].max())
    np.testing.assert_allclose(found["hillas_intensity_sum"], groups["hillas_intensity"].sum())
    np.testing.assert_array_equal(found["n_telescopes"], groups.size())
    np.testing.assert_array_equal(found["height"], groups["height"].first())
    known = images[images["hillas_width"].notna()]
    product = (known["hillas_width"] * known["hillas_intensity"]).groupby([known["obs_id"], known["event_id"]]).sum()
    mean = product / known.groupby(["obs_id", "event_id"])["hillas_intensity"].sum()
    expected = [mean.get(key, np.nan) for key in zip(found["obs_id"], found["event_id"], strict=True)]
    np.testing.assert_allclose(found["hillas_width_mean"], expected)


def test_a_column_that_is_not_there(images):
    with pytest.raises(ValueError, match=r"has no column 'hillas_length_mean'; did you mean"):
        to_showers(images, ["hillas_length_mean"])
    assert len(to_showers(images[:0], ["hillas_width_mean"])) == 0
