"""References and simulations on the command line: detect, train, apply and report, and what is refused."""

import json

import numpy as np
import pytest
from helpers import SHARED, run_command
from sklearn.ensemble import RandomForestClassifier

from excess import load
from excess.analysis import read_run
from excess.config import AnalysisConfig, to_features
from excess.dataset._simulate import simulate_labelled, simulate_observation
from excess.io import read_events, write_events

pytest.importorskip("h5py")

FACT = SHARED / "data" / "fact"


def with_gammaness(table):
    """Add a score of another analysis, and columns that are none."""
    random = np.random.default_rng(len(table))
    mean = np.where(table["is_signal"], 0.65, 0.4)
    score = np.clip(random.normal(mean, 0.15), 0, 1)
    return table.assign(gammaness=score, constant=0.5, empty=np.nan)


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three nights and another one, with a column of scores; simulated gammas and protons; a model of a fifth night."""
    folder = tmp_path_factory.mktemp("references")
    nights = {"crab": (25_000, 3, 20131101), "new": (15_000, 1, 20131201), "earlier": (15_000, 1, 20131001)}
    for number, (name, (n_events, n_nights, first)) in enumerate(nights.items()):
        table = simulate_observation(
            n_events, 150 * n_nights, n_nights=n_nights, first_night=first, random_state=number
        )
        write_events(with_gammaness(table), folder / f"{name}.hdf5")
    truth = simulate_labelled(800, 800, random_state=9)
    write_events(truth[truth["is_signal"]], folder / "gamma.hdf5")
    write_events(truth[~truth["is_signal"]], folder / "proton.hdf5")
    earlier = folder / "earlier.hdf5"
    assert run_command("train", earlier, "-m", "tree", "-o", folder / "tree.excess", "--json") == 0
    return folder


@pytest.fixture(scope="module")
def detected(folder):
    """The folder of a run with a simulation, a column and a model as references."""
    simulated = ("--simulated", folder / "gamma.hdf5", folder / "proton.hdf5")
    options = (*simulated, "--reference", "gammaness", "--reference", folder / "tree.excess")
    assert run_command("detect", folder / "crab.hdf5", "-m", "tree", *options, "-o", folder / "run", "-j", 1) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def trained(folder):
    """The file of a hybrid with a simulation and a column as references."""
    path = folder / "hybrid.excess"
    options = ("--simulated", folder / "gamma.hdf5", folder / "proton.hdf5", "--reference", "gammaness")
    assert run_command("train", folder / "crab.hdf5", *options, "-o", path, "-j", 1, "--json") == 0
    return path


@pytest.mark.slow
class TestDetect:
    def test_result_has_trust_and_the_simulation_check(self, folder, detected):
        result = json.loads((detected / "result.json").read_text())
        assert list(result["models"]) == ["tree", "hybrid", "supervised", "gammaness"]
        assert result["models"]["tree"]["reference_weights"] is None
        trust = result["models"]["hybrid"]["reference_weights"]
        names = ["simulation", "boosted simulation", str(folder / "tree.excess"), "gammaness"]
        assert list(trust) == [*names, "On/Off with references", "On/Off"]
        folds = np.array([own["folds"] for own in trust.values()])
        assert folds.shape == (6, 3)
        np.testing.assert_allclose(folds.sum(axis=0), 1)
        for own, values in zip(trust.values(), folds, strict=True):
            assert (own["mean"], own["low"], own["high"]) == (pytest.approx(values.mean()), values.min(), values.max())
        assert result["run"]["options"]["references"] == names
        kinds = {entry["kind"]: entry["path"] for entry in result["run"]["files"]}
        assert kinds["simulated gammas"] == str(folder / "gamma.hdf5")
        assert kinds["references"] == str(folder / "tree.excess")
        check = result["simulation"]
        assert check["n_simulated_signal"] == check["n_simulated_background"] == 800
        assert {one["sample"] for one in check["comparisons"]} == {"signal", "background"}

    def test_columns_of_references_are_no_features_of_other_models(self, folder, detected, tmp_path):
        result = json.loads((detected / "result.json").read_text())
        assert "gammaness" not in result["observation"]["features"]
        assert result["observation"]["references"] == ["gammaness"]
        assert len(result["models"]["tree"]["importances"]) == len(result["observation"]["features"])
        assert run_command("detect", folder / "crab.hdf5", "-m", "tree", "-o", tmp_path, "--json") == 0
        alone = json.loads((tmp_path / "result.json").read_text())["models"]["tree"]
        among_others = dict(result["models"]["tree"])
        assert among_others.pop("verdict").startswith(alone.pop("verdict"))  # the models tried are counted at its end
        assert alone == among_others
        # 26 sigma by 0.25 in units of 0.15: it must have learned from the column
        assert result["models"]["hybrid"]["significance"] > alone["significance"] + 2

    def test_a_run_is_read_and_reported_as_it_was(self, detected, tmp_path):
        written = (detected / "report.html").read_bytes()
        assert run_command("report", detected, "-o", tmp_path / "again.html", "--plots", "svg") == 0
        assert (tmp_path / "again.html").read_bytes() == written
        assert (tmp_path / "plots" / "simulation_check.svg").is_file()
        run = read_run(detected)
        assert [name for name, found in run.detections.items() if found.reference_weights] == ["hybrid", "supervised"]
        run.write(tmp_path / "copy")
        for name in ("result.json", "events.parquet"):
            assert (tmp_path / "copy" / name).read_bytes() == (detected / name).read_bytes()

    def test_terminal_says_trust_and_check(self, folder, tmp_path, capsys):
        simulated = ("--simulated", folder / "gamma.hdf5", folder / "proton.hdf5")
        assert run_command("detect", folder / "crab.hdf5", *simulated, "-o", tmp_path, "-j", 1) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "hybrid weights: simulation 0." in shown
        assert "Simulation check: " in shown
        result = json.loads((tmp_path / "result.json").read_text())
        # who gives references asks for the hybrid
        assert list(result["models"]) == ["hybrid", "forest", "supervised"]
        trust = result["models"]["hybrid"]["reference_weights"]["simulation"]
        assert f"simulation {trust['mean']:.2f} ({trust['low']:.2f} to {trust['high']:.2f})" in shown

    def test_several_observations_have_references_as_well(self, folder, tmp_path):
        (tmp_path / "sources.yaml").write_text(
            f"crab: {{events: {folder / 'crab.hdf5'}}}\n"
            f"other: {{events: {folder / 'new.hdf5'}, regions: {{n_regions: 4}}}}\n"
        )
        simulated = ("--simulated", folder / "gamma.hdf5", folder / "proton.hdf5")
        options = (*simulated, "--reference", "gammaness", "-m", "tree", "--no-null-test", "-j", 1, "--json")
        assert run_command("detect", tmp_path / "sources.yaml", *options, "-o", tmp_path / "run") == 0
        run = read_run(tmp_path / "run")
        assert list(run.detections["hybrid"].reference_weights)[:2] == ["simulation", "boosted simulation"]
        assert run.detections["hybrid"].event_alpha is not None
        assert run.simulation.n_simulated_signal == 800


@pytest.mark.slow
class TestTrainAndApply:
    def test_the_file_holds_the_references(self, folder, trained, tmp_path, capsys):
        model = load(trained)
        assert list(model.references) == ["simulation", "boosted simulation", "gammaness"]
        assert sum(model.reference_weights_.values()) == pytest.approx(1)
        again = tmp_path / "again.excess"
        options = ("--simulated", folder / "gamma.hdf5", folder / "proton.hdf5", "--reference", "gammaness")
        assert run_command("train", folder / "crab.hdf5", "-m", "hybrid", *options, "-o", again, "-j", 2) == 0
        assert again.read_bytes() == trained.read_bytes()
        weight = model.reference_weights_["simulation"]
        assert f"again.excess weights: simulation {weight:.2f}, boosted simulation" in said(capsys)

    def test_onnx_models_are_references(self, folder, tmp_path, capsys):
        """A forest of scikit-learn, exported: trained on the configured features, in their order."""
        pytest.importorskip("onnxruntime")
        to_onnx = pytest.importorskip("skl2onnx").to_onnx
        names = list(AnalysisConfig().features)
        truth = simulate_labelled(800, 800, random_state=9)
        features = to_features(truth, AnalysisConfig())
        forest = RandomForestClassifier(20, max_depth=6, random_state=0).fit(features.X, truth["is_signal"])
        exported = to_onnx(forest, features.X[:1].astype(np.float32), options={"zipmap": False})
        (tmp_path / "forest.onnx").write_bytes(exported.SerializeToString())
        given = ("--reference", tmp_path / "forest.onnx", "-o", tmp_path / "hybrid.excess", "-j", 1, "--json")
        assert run_command("train", folder / "crab.hdf5", *given) == 0
        model = load(tmp_path / "hybrid.excess")
        assert model.reference_weights_["On/Off"] < 0.5
        (reference,) = model.references.values()
        assert reference.feature_names_in_.tolist() == names
        # with other features than it was trained on, the number is named
        short = tmp_path / "short.yaml"
        short.write_text(f"features: {names[:3]}\n")
        assert run_command("train", folder / "crab.hdf5", "-c", short, *given) == 1
        assert "forest.onnx" in said(capsys)

    def test_apply_takes_the_column_and_names_it_where_it_is_missing(self, folder, trained, tmp_path, capsys):
        assert run_command("apply", trained, folder / "new.hdf5", "-o", tmp_path / "scored.hdf5", "--json") == 0
        scored = read_events(tmp_path / "scored.hdf5")
        score = scored["excess_score"]
        assert np.isfinite(score).all()
        assert score[scored["is_signal"]].median() > score[~scored["is_signal"]].quantile(0.95)
        write_events(scored.drop(columns="gammaness"), tmp_path / "without.hdf5")
        given = (trained, tmp_path / "without.hdf5", "-o", tmp_path / "again.hdf5", "--prefix", "second")
        assert run_command("apply", *given) == 1
        assert "without.hdf5: has no column 'gammaness'" in said(capsys)

    def test_detect_reads_the_columns_that_a_model_file_needs(self, folder, trained, tmp_path):
        options = ("--model-file", trained, "--model-file", folder / "tree.excess", "--groups", "none")
        assert run_command("detect", folder / "new.hdf5", *options, "-o", tmp_path, "--json") == 0
        found = json.loads((tmp_path / "result.json").read_text())["models"]
        assert list(found) == [str(trained), str(folder / "tree.excess")]
        assert found[str(trained)]["reference_weights"]["gammaness"]["folds"] == [
            load(trained).reference_weights_["gammaness"]
        ]

    def test_nights_that_a_reference_inside_has_seen_are_refused(self, folder, tmp_path, capsys):
        path = tmp_path / "nested.excess"
        assert (
            run_command("train", folder / "new.hdf5", "--reference", folder / "tree.excess", "-o", path, "-j", 1) == 0
        )
        said(capsys)
        given = ("--model-file", path, "--groups", "none", "-o", tmp_path / "out")
        assert run_command("detect", folder / "earlier.hdf5", *given) == 1
        assert f"nested.excess: was trained on {folder / 'earlier.hdf5'}" in said(capsys)
        write_events(read_events(folder / "earlier.hdf5")[:14_000], tmp_path / "copy.hdf5")
        assert run_command("detect", tmp_path / "copy.hdf5", *given) == 1
        assert "nested.excess: was trained on events of group 20131001" in said(capsys)


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "code", "message"),
        [
            (("--reference", "gamaness"), 1, "crab.hdf5: has no column 'gamaness'; did you mean 'gammaness'?"),
            (("--reference", "absent.excess"), 1, "absent.excess does not exist; pass a model file"),
            (("--reference", "crab.hdf5"), 1, "crab.hdf5: is neither a model file of 'excess train' nor"),
            (("--reference", "damaged.onnx"), 1, "damaged.onnx is damaged or not an ONNX model"),
            (("--reference", "constant"), 1, "crab.hdf5: reference column 'constant' has the value 0.5 for all"),
            (("--reference", "empty"), 1, "values of features, empty are not missing"),
            (("--reference", "theta_deg"), 2, "it is the distance to the source"),
            (("--simulated", "gamma.hdf5"), 2, "requires two files, of simulated gammas and of protons"),
            (("--simulated", "lacking.hdf5", "proton.hdf5"), 1, "lacking.hdf5: has no columns width, length, required"),
            (("--simulated", "gamma.hdf5", "absent.hdf5"), 1, "absent.hdf5: does not exist"),
            (("-m", "hybrid"), 2, "hybrid requires references: pass --simulated or --reference"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_bad_references_are_named(self, options, code, message, folder, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "300")
        write_events(read_events(folder / "gamma.hdf5").drop(columns=["width", "length"]), folder / "lacking.hdf5")
        (folder / "damaged.onnx").write_bytes(b"no model")
        given = [folder / word if "." in word else word for word in options]
        for command in ("detect", "train"):
            assert run_command(command, folder / "crab.hdf5", *given, "-o", tmp_path / command) == code
            assert message in said(capsys).replace(" │", "").replace("│ ", "")
        assert not (tmp_path / "detect" / "result.json").exists()
        assert not (tmp_path / "train").exists()

    @pytest.mark.parametrize("command", ["detect", "train"])
    def test_a_reference_that_has_seen_a_night_is_refused(self, command, folder, tmp_path, capsys):
        given = ("--reference", folder / "tree.excess", "-o", tmp_path / "out")
        assert run_command(command, folder / "earlier.hdf5", *given) == 1
        assert f"tree.excess: was trained on {folder / 'earlier.hdf5'}" in said(capsys)
        earlier = read_events(folder / "earlier.hdf5")
        write_events(earlier[: len(earlier) // 2], tmp_path / "half.hdf5")
        assert run_command(command, tmp_path / "half.hdf5", *given) == 1
        assert "tree.excess: was trained on events of group 20131001" in said(capsys)

    def test_a_reference_keeps_its_features(self, folder, tmp_path, capsys):
        given = ("--reference", folder / "tree.excess", "-c", tmp_path / "c.yaml", "-o", tmp_path / "out")
        (tmp_path / "c.yaml").write_text("features: [width, length]\n")
        assert run_command("detect", folder / "crab.hdf5", *given) == 1
        assert "requires features that are not in the configuration: concentration_cog, " in said(capsys)
        (tmp_path / "c.yaml").write_text(
            "derived_features:\n  area: width * length\n  log_size: log(size)\n  size_area: size / area\n"
            "  area_size_cut_var: area / log(size)**2\n"
        )
        assert run_command("detect", folder / "crab.hdf5", *given) == 1
        assert "was trained with another definition of the feature 'area'" in said(capsys)

    def test_chunks_and_other_models_take_no_references(self, folder, tmp_path, capsys):
        simulated = ("--simulated", folder / "gamma.hdf5", folder / "proton.hdf5", "-o", tmp_path / "x.excess")
        assert run_command("train", folder / "crab.hdf5", *simulated, "--chunk-rows", 500) == 2
        assert "cannot be combined with --chunk-rows" in said(capsys)
        assert run_command("train", folder / "crab.hdf5", *simulated, "-m", "tree") == 2
        assert "requires --model hybrid, got tree" in said(capsys)


@pytest.mark.slow
@pytest.mark.skipif(not (FACT / "proton.hdf5").is_file(), reason="FACT's simulated events are not beside the project")
class TestFact:
    """Too few events for physics, but all formats and spellings on the way."""

    OPTIONS = ("--simulated", FACT / "gamma.hdf5", FACT / "proton.hdf5", "--reference", "gamma_prediction")

    @pytest.fixture
    def config(self, tmp_path):
        path = tmp_path / "fact.yaml"
        path.write_text("regions: {overlap: drop, theta_squared_cut: 0.2}\ngroups: none\n")
        return ("-c", path)

    def test_detect(self, config, tmp_path, capsys):
        given = (FACT / "one_run_20151203_106.hdf5", *config, *self.OPTIONS, "-o", tmp_path / "run", "-j", 1)
        # folds with at least 20 of the 22 On events for training, fewer are too few for a model
        assert run_command("detect", *given, "--folds", 12) == 0
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        assert list(result["models"]["hybrid"]["reference_weights"])[:3] == [
            "simulation",
            "boosted simulation",
            "gamma_prediction",
        ]
        check = result["simulation"]
        assert check["remark"].startswith("No excess to compare with simulated gammas")
        assert {one["sample"] for one in check["comparisons"]} == {"background"}
        report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
        assert "No excess to compare with simulated gammas" in report

    def test_train_and_apply(self, config, tmp_path):
        model, run = tmp_path / "fact.excess", FACT / "one_run_20151203_106.hdf5"
        assert run_command("train", run, *config, *self.OPTIONS, "-o", model, "-j", 1, "--json") == 0
        diffuse = FACT / "gamma_diffuse.hdf5"
        assert run_command("apply", model, diffuse, "-o", tmp_path / "scored.hdf5", "--json") == 0
        assert np.isfinite(read_events(tmp_path / "scored.hdf5")["excess_score"]).sum() > 700
