"""Settings of an analysis, what they refuse, and the features they give."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import SHARED
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from excess.config import AnalysisConfig, RegionConfig, load_config, parse_config, to_features
from excess.config._model import with_choice
from excess.io import EventFileError
from excess.io._images import origin_of

FACTS = SHARED / "facts" / "fact_mc_statistics.json"


def test_defaults_are_the_open_crab_analysis():
    config = load_config()
    assert config == AnalysisConfig()
    assert len(config.features) == 22
    assert config.features[18:] == ("area", "log_size", "size_area", "area_size_cut_var")
    assert config.regions == RegionConfig(theta_squared_cut=0.025, n_regions=6, overlap="on_first")
    assert set(config.columns_needed()) == set(config.features[:18])
    assert "num_pixel_in_shower >= 10" in config.quality_cuts


@pytest.mark.skipif(not FACTS.exists(), reason="the published statistics are not beside the project")
def test_default_features_are_those_of_the_published_statistics():
    assert list(load_config().features[:18]) == json.loads(FACTS.read_text())["features"]


def test_default_derived_features():
    rng = np.random.default_rng(0)
    config = load_config()
    table = pd.DataFrame({name: rng.uniform(1, 9, 50) for name in config.columns_needed()})
    table.loc[:40, "num_pixel_in_shower"] = 12
    features = to_features(table, config)
    columns = dict(zip(features.names, features.X.T, strict=True))
    area = np.pi * table["width"] * table["length"]
    np.testing.assert_allclose(columns["area"], area)
    np.testing.assert_allclose(columns["log_size"], np.log(table["size"]))
    np.testing.assert_allclose(columns["size_area"], table["size"] / area)
    np.testing.assert_allclose(columns["area_size_cut_var"], area / np.log(table["size"]) ** 2)
    assert not features.valid[41:].any()
    assert features.X.flags.f_contiguous
    assert features.X.dtype == np.float64


def test_yaml_round_trip(tmp_path):
    config = AnalysisConfig(
        features=["width", "ratio"],
        derived_features={"ratio": "width / length"},
        quality_cuts=["width < 3 & length > 1"],
        groups="run_id",
        regions={"source_ra": 83.6333, "source_dec": 22.0133, "overlap": "drop"},
    )
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    assert load_config(path) == config == parse_config(config.to_yaml(), "here")
    path.write_text("# all defaults\n")
    assert load_config(path) == AnalysisConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("feature: [width]", r"unknown key 'feature'; did you mean 'features' or 'derived_features'\?"),
        ("regions: {theta_square_cut: 1}", r"unknown key 'regions.theta_square_cut'; did you mean 'theta_squared_cut'"),
        ("regions: {n_regions: six}", "regions.n_regions: must be an integer or auto, got 'six'"),
        ("regions: {n_regions: '6'}", "regions.n_regions: must be an integer or auto, got '6'"),
        ("regions: {n_regions: 1}", "regions.n_regions: must be 2 "),
        ("regions: {theta_squared_cut: 0}", "regions.theta_squared_cut: must be greater than 0, got 0"),
        ("regions: {theta_squared_cut: .nan}", "regions.theta_squared_cut"),
        ("regions: {overlap: both}", "regions.overlap: must be 'on_first', 'drop' or 'error'"),
        ("regions: {source_ra: 83.6}", "source_ra and source_dec must be given together"),
        ("regions: 5", "regions: "),
        ("features: width", "features: must be a valid tuple"),
        ("features: []", "features: "),
        ("features: [1]", r"features\.0: must be a valid string"),
        ("features: [width, width]", "features: feature 'width' is named twice"),
        ("groups: 3", "groups: must be a valid string"),
        ("allow_origin_features: 1", "allow_origin_features: must be a valid boolean"),
        ("quality_cuts: ['width <']", "quality_cuts: 'width <': not an expression"),
        ("quality_cuts: ['open(1)']", "quality_cuts: 'open.1.': only these functions"),
        ("derived_features: {a: 'b.c'}", "derived_features: 'b.c': this is not allowed"),
        ("derived_features: {a: 'b + 1', b: 'a * 2'}", "derived feature 'a' depends on itself"),
        ("derived_features: {size: 'log(size)'}", "derived feature 'size' depends on itself"),
        ("derived_features: {'a b': '1'}", "'a b' cannot name a derived feature"),
        ("derived_features: {sqrt: '1'}", "'sqrt' cannot name a derived feature"),
        ("- width\n- length", "must contain names and values"),
        ("just words", "must contain names and values"),
        ("1: 2", "must contain names and values"),
        ("features: [width\nx", "is not valid YAML at line"),
        ("features: !!python/object/apply:os.getcwd []", "is not valid YAML at line 1"),
        ("a: &a [*a]", "has more than 50,000 values"),
        ("[" * 5000, "is not valid YAML"),
        ("\0", "is not valid YAML"),
    ],
)
def test_errors_name_file_and_key(tmp_path, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(EventFileError, match=message) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(EventFileError, match=r"nowhere\.yaml: does not exist"):
        load_config(tmp_path / "nowhere.yaml")
    with pytest.raises(EventFileError, match="is a folder"):
        load_config(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EventFileError, match="binary: reading the settings failed"):
        load_config(tmp_path / "binary")


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        AnalysisConfig().groups = "run_id"


ORIGIN = """
    theta theta_deg theta_deg_off_3 Theta theta_rec_pos alpha alpha_off_2 distance distance_off_1 cos_delta_alpha_off_4
    source_position_x source_position_az source_x_prediction ceres_source_az AzSourceCalc cog_x cog_y COGx hillas_x
    hillas_y hillas_r hillas_phi hillas_fov_lon camera_frame_hillas_x pointing_position_zd aux_pointing_position_az
    array_pointing_az AzTracking ZdPointing pointing_ra ra dec ra_prediction dec_prediction alt az
    HillasReconstructor_alt HillasReconstructor_az detx DETY gamma_prediction_off_1 region on is_signal truth label
    true_energy true_alt mc_run_header_corsika_version corsika_event_header_zd ceres_event_basic_energy night run_id
    NIGHT RUNID EventNum event_num event_id obs_id timestamp time unix_time_utc date_obs incident_angle index runtype
    excess_score excess_fold excess_signal_probability night2_selected
"""

BY_NAME = """
    gamma_prediction signal_prediction background_prediction_2 gammaness gh_score
    night2_score RandomForestClassifier_prediction hadronness livetime ontime
"""

HARMLESS = """
    width length size area log_size size_area area_size_cut_var leakage1 leakage2 delta psi hillas_psi hillas_width
    hillas_intensity hillas_skewness timing_slope peak_time_mean arrival_time_shower_mean time_gradient_slope_long
    timespread slope_trans slope_spread concentration_cog concentration_core concentration_one_pixel num_islands
    num_pixel_in_shower photoncharge_shower_mean m3_long kurtosis_trans ped_mean_max fluct_var_p25 morphology_n_pixels
    gamma_energy_prediction energy HillasReconstructor_h_max HillasReconstructor_core_x tel_impact_distance
    HillasReconstructor_alt_uncert saturated_slices_percentage disp_prediction XMAX xmax XMAX_ERR
"""


@pytest.mark.parametrize("name", ORIGIN.split())
def test_features_that_encode_the_origin_are_refused(name):
    with pytest.raises(ValidationError, match=f"feature '{name}' encodes where an event came from"):
        AnalysisConfig(features=["width", name])
    assert AnalysisConfig(features=["width", name], allow_origin_features=True).features == ("width", name)


@pytest.mark.parametrize("name", BY_NAME.split())
def test_features_that_are_taken_by_their_name_only(name, caplog):
    assert AnalysisConfig(features=["width", name]).features == ("width", name)
    config = AnalysisConfig(features=["width"])
    assert with_choice(config, [name], [], ["width", name]).features == (name,)
    assert name in caplog.text
    assert with_choice(config, ["*"], [], ["width", name]).features[0] == "width"
    assert name not in with_choice(config, ["*"], [], ["width", name]).features


@pytest.mark.parametrize("name", HARMLESS.split())
def test_features_of_the_image_are_not(name):
    assert origin_of(name) is None


def test_origin_is_found_through_derived_features():
    derived = {"near": "1 / (1 + far)", "far": "theta_deg**2", "unused": "cog_x"}
    with pytest.raises(ValidationError, match="feature 'near' is computed from 'theta_deg', which encodes where"):
        AnalysisConfig(features=["near"], derived_features=derived)
    config = AnalysisConfig(features=["width"], derived_features=derived, quality_cuts=["far < 4"])
    assert config.columns_needed() == ("width", "theta_deg")


CONFIG = AnalysisConfig(
    features=["b", "width", "flag"],
    derived_features={"b": "a + 1", "a": "log(width)", "width2": "width**2"},
    quality_cuts=["width2 < 100", "~flag | count > 0"],
)


def test_features_and_cuts():
    table = pd.DataFrame(
        {
            "width": [1.0, 20.0, np.nan, 0.0, -1.0, 2.0, np.inf],
            "flag": [True, False, False, False, False, True, False],
            "count": [1, 1, 1, 1, 1, 0, 1],
        },
        index=list("abcdefg"),
    )
    before = table.copy()
    X, valid, names, missing = to_features(table, CONFIG)
    assert names == ("b", "width", "flag")
    assert valid.tolist() == [True, False, False, False, False, False, False]
    assert missing == {"b": 4, "width": 2}
    np.testing.assert_array_equal(X[0], [1, 1, 1])
    np.testing.assert_array_equal(X[:, 1], table["width"])
    pd.testing.assert_frame_equal(table, before)
    empty = to_features(table[:0], CONFIG)
    assert empty.X.shape == (0, 3)
    assert empty.valid.shape == (0,)


@given(st.lists(st.floats(width=64), max_size=20))
def test_valid_rows_are_finite(values):
    config = AnalysisConfig(
        features=["size", "root"], derived_features={"root": "sqrt(size)"}, quality_cuts=["size < 5"]
    )
    features = to_features(pd.DataFrame({"size": np.array(values, dtype=float)}), config)
    assert features.valid.tolist() == [bool(0 <= value < 5) for value in values]


def test_derived_features_hide_columns_and_may_be_constant():
    config = AnalysisConfig(
        features=["width", "one"], derived_features={"width": "length * 2", "one": "1"}, quality_cuts=[]
    )
    X, valid, _, _ = to_features(pd.DataFrame({"width": [0.0, 0.0], "length": [3.0, 4.0]}), config)
    assert X.tolist() == [[6, 1], [8, 1]]
    assert valid.all()


def test_tables_that_do_not_fit():
    table = pd.DataFrame({"width": [1.0], "flag": [True], "count": [1]})
    with pytest.raises(ValueError, match="the table has no column 'width'; did you mean 'widht'"):
        to_features(table.rename(columns={"width": "widht"}), CONFIG)
    with pytest.raises(ValueError, match="column 'width' contains"):
        to_features(table.assign(width="x"), CONFIG)
    number = AnalysisConfig(features=["width"], quality_cuts=["count + 1"])
    with pytest.raises(ValueError, match=r"quality cut 'count \+ 1' is not a condition"):
        to_features(table, number)
    constant = AnalysisConfig(features=["width"], quality_cuts=["1 < 0"])
    assert not to_features(table, constant).valid.any()


@pytest.mark.parametrize("error", [0.03, {"20131101": 0.05}])
def test_an_error_of_alpha_is_one_value_or_one_for_each_group(error):
    config = AnalysisConfig(regions={"alpha_error": error})
    assert config.regions.alpha_error == error
    with pytest.raises(ValidationError, match="alpha_error"):
        AnalysisConfig(regions={"alpha_error": -0.1})
