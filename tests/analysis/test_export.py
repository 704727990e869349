"""A trained model as an ONNX file: what it says about its features, what it replaces, and the command."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import run_command
from sklearn.linear_model import LogisticRegression

from excess import ModelFileError, SignificanceThresholdClassifier
from excess.analysis import load_model, train
from excess.config import AnalysisConfig, to_features
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import EventFileError

pytest.importorskip("onnx", reason="ONNX models are built with onnx: pip install 'excess[onnx]'")
runtime = pytest.importorskip(
    "onnxruntime", reason="ONNX models are applied by onnxruntime: pip install 'excess[onnx]'"
)


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tree.excess"
    return train(OnOffDataset.from_files(simulate_observation(20_000, 400, random_state=0)), "li-ma-tree").save(path)


def test_the_command_exports_a_model_with_its_features(model_path, tmp_path, capsys):
    target = tmp_path / "out" / "tree.onnx"
    assert run_command("export", model_path, "-o", target, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    session = runtime.InferenceSession(target)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["feature_names"]) == told["features"]
    derived = json.loads(metadata["derived_features"])
    assert derived["area"] == "width * length * pi"
    assert "num_pixel_in_shower >= 10" in json.loads(metadata["quality_cuts"])

    trained = load_model(model_path)
    features = to_features(simulate_observation(4_000, 80, random_state=1), trained.config)
    score, probability, selected = session.run(None, {"features": np.ascontiguousarray(features.X[features.valid])})
    X = features.X[features.valid]
    with pytest.warns(UserWarning, match="valid feature names"):
        np.testing.assert_allclose(score, trained.model.predict_proba(X)[:, 1], rtol=0, atol=1e-9)
    assert (selected == (score > told["threshold"])).all()
    assert 0 < selected.sum() < len(selected)
    assert probability.max() > probability.min()


def test_the_command_says_what_it_wrote(model_path, tmp_path, capsys):
    assert run_command("export", model_path, "-o", tmp_path / "tree.onnx", "--float32") == 0
    assert "22 features as float32" in capsys.readouterr().err


def test_a_model_that_cannot_be_exported_is_one_sentence(model_path, tmp_path):
    trained = load_model(model_path)
    X, on = np.arange(200.0).reshape(-1, 1) % 7, np.arange(200) % 2
    inside = SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).fit(X, on)
    config = AnalysisConfig(features=["width"], derived_features={}, quality_cuts=[])
    with pytest.raises(ModelFileError, match="the model: a LogisticRegression cannot be exported to ONNX"):
        replace(trained, model=inside, config=config, path=None).export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_what_is_replaced(model_path, tmp_path):
    trained = load_model(model_path)
    target = tmp_path / "tree.onnx"
    first = trained.export_onnx(target).read_bytes()
    assert trained.export_onnx(target).read_bytes() == first
    target.write_bytes(b"of another origin")
    with pytest.raises(EventFileError, match="already exists"):
        trained.export_onnx(target)
    assert trained.export_onnx(target, overwrite=True).read_bytes() == first
    with pytest.raises(EventFileError, match=r"tree.pmml: the name of an ONNX file must end in .onnx"):
        trained.export_onnx(tmp_path / "tree.pmml")
    linked = tmp_path / "linked.onnx"
    linked.symlink_to(model_path)
    with pytest.raises(EventFileError, match="overwrite the input"):
        trained.export_onnx(linked, overwrite=True)
