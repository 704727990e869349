"""Statistics of the images of showers."""

import numpy as np
import pytest

from excess.config import AnalysisConfig
from excess.io._images import NAMED_ONLY, aggregate, multiplicity, origin_of, shower_columns

FLOAT = np.dtype(float)


def statistics(images, shower, n_showers, **factors):
    """Return all columns of showers."""
    known = {name: np.asarray(values) for name, values in images.items()}
    columns = shower_columns({name: values.dtype for name, values in known.items()})
    return aggregate(known, np.asarray(shower), n_showers, columns.values(), factors)


def test_weights_missing_values_and_showers_without_images():
    images = {
        "hillas_intensity": [1.0, 3.0, np.nan, 5.0, 2.0],
        "hillas_width": [1.0, 2.0, 9.0, np.nan, 4.0],
        "morphology_n_pixels": [4, 8, -1, 6, 2],
    }
    found = statistics(images, [0, 0, 0, 2, 3], 5)
    np.testing.assert_array_equal(found["hillas_width_mean"], [1.75, np.nan, np.nan, 4, np.nan])
    np.testing.assert_array_equal(found["hillas_width_max"], [2, np.nan, np.nan, 4, np.nan])
    np.testing.assert_array_equal(found["morphology_n_pixels_min"], [4, np.nan, 6, 2, np.nan])
    np.testing.assert_array_equal(found["hillas_intensity_sum"], [4, np.nan, 5, 2, np.nan])
    np.testing.assert_allclose(found["hillas_width_std"], [np.sqrt(3 / 16), np.nan, np.nan, 0, np.nan])
    counted = multiplicity({"hillas_intensity": np.array(images["hillas_intensity"])}, np.array([0, 0, 0, 2, 3]), 5)
    assert counted.tolist() == [2, 0, 1, 1, 0]


def test_plain_means_without_intensity():
    found = statistics({"Forest_tel_energy": [1.0, 2.0, 6.0], "Forest_tel_is_valid": [True, False, True]}, [0, 0, 1], 2)
    assert found["Forest_tel_energy_mean"].tolist() == [1.5, 6]
    assert found["Forest_tel_is_valid_mean"].tolist() == [0.5, 1]
    found = statistics({"hillas_intensity": [0.0, 0.0], "hillas_width": [1.0, 2.0]}, [0, 0], 1)
    assert found["hillas_width_mean"].tolist() == [1.5]


@pytest.mark.parametrize("factor", [1.0, 180 / np.pi])
def test_mean_direction_is_that_of_unit_vectors(factor):
    images = {
        "Disp_tel_az": np.array([359.0, 1.0, 90.0]) / factor,
        "Disp_tel_alt": np.array([60.0, 60.0, 70.0]) / factor,
    }
    found = statistics(images, [0, 0, 1], 2, Disp_tel_az=factor, Disp_tel_alt=factor)
    azimuth, altitude = (found[f"Disp_tel_{name}_mean"] * factor for name in ("az", "alt"))
    np.testing.assert_allclose(np.minimum(azimuth, 360 - azimuth), [0, 90], atol=1e-9)
    np.testing.assert_allclose(altitude, [60.0, 70.0], atol=0.01)
    assert set(found) == {"Disp_tel_az_mean", "Disp_tel_alt_mean"}


@pytest.mark.parametrize(
    "name",
    ["hillas_x", "hillas_fov_lon", "hillas_psi", "time", "true_energy", "true_hillas_width", "event_id", "tel_id"],
)
def test_what_says_where_or_when_has_no_statistics(name):
    assert shower_columns({name: FLOAT}) == {}


@pytest.mark.parametrize("name", ["hillas_x_mean", "hillas_fov_lat_std", "Disp_tel_alt_mean"])
def test_statistics_of_positions_are_no_features(name):
    assert origin_of(name) is not None
    with pytest.raises(ValueError, match="encodes where an event came from"):
        AnalysisConfig(features=["hillas_width_mean", name], derived_features={})


def test_statistics_of_scores_are_features_only_by_name():
    name = "Forest_tel_prediction_max"
    assert origin_of(name) in NAMED_ONLY
    assert name in AnalysisConfig(features=["hillas_width_mean", name], derived_features={}).features


@pytest.mark.parametrize("name", ["hillas_width_mean", "peak_time_mean_max", "intensity_mean", "n_telescopes"])
def test_statistics_of_shapes_are_features(name):
    assert origin_of(name) is None
