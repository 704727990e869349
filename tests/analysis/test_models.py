"""The registry of models."""

import pytest

from excess.analysis import MODELS, make_model


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_made_by_its_name(name):
    model = make_model(name, random_state=3, n_jobs=2)
    assert model.random_state == 3
    assert getattr(model, "n_jobs", 2) == 2
    assert MODELS[name].description
    if name.startswith("paper-") and "tree" not in name:
        assert (model.n_estimators, model.threshold_tolerance, model.n_threshold_bootstrap) == (100, 0.0, 0)


def test_options_of_models_and_unknown_names():
    assert make_model("paper-li-ma-tree", max_depth=7).max_depth == 7
    with pytest.raises(ValueError, match="'forrest'"):
        make_model("forrest")
