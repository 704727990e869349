import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import run_command as run

from excess import load
from excess.analysis import read_run
from excess.cli import main
from excess.config import load_config, to_features
from excess.dataset._simulate import simulate_observation
from excess.io import iter_events, read_events, write_events
from excess.io._fact import FactFile

pytest.importorskip("h5py")


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small observation, another night, labelled files and a model."""
    folder = tmp_path_factory.mktemp("cli")
    assert run("simulate", "-o", folder, "--events", 60_000, "--signal", 900, "--labelled", 500, "--json") == 0
    more = ("--first-night", 20131201, "--nights", 1, "--labelled", 1, "--seed", 5, "--json")
    assert run("simulate", "-o", folder / "new", "--events", 30_000, "--signal", 600, *more) == 0
    assert run("train", folder / "observation.hdf5", "-o", folder / "tree.excess", "-m", "tree", "--json") == 0
    return folder


def test_help_names_every_command(capsys):
    assert run("--help") == 0
    text = capsys.readouterr().out
    for command in ("demo", "simulate", "info", "detect", "train", "apply", "Exit codes"):
        assert command in text


@pytest.mark.parametrize("command", ["demo", "simulate", "info", "detect", "train", "apply"])
def test_every_command_has_help(command, capsys):
    assert run(command, "--help") == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["--help"], ["detect", "--help"], ["detect", "x.hdf5", "-o", "y", "--regions", "x"]]
)
def test_help_and_usage_import_no_heavy_library(arguments):
    code = (
        "import sys; from excess.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        "sys.exit(str({'sklearn', 'pandas', 'numba', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("set()\n")


def test_simulated_files(folder):
    observation = read_events(folder / "observation.hdf5")
    assert len(observation) == 60_000
    assert observation["is_signal"].sum() == 900
    assert observation["night"].nunique() == 5
    assert read_events(folder / "gamma.hdf5")["is_signal"].all()
    assert not read_events(folder / "proton.hdf5")["is_signal"].any()
    assert read_events(folder / "new" / "observation.hdf5")["night"].unique().tolist() == [20131201]


@pytest.mark.parametrize("suffix", ["hdf5", "parquet", "csv"])
def test_simulation_in_every_format_gives_the_same_events(suffix, tmp_path, capsys):
    assert run("simulate", "-o", tmp_path, "--events", 500, "--signal", 20, "--labelled", 5, "--format", suffix) == 0
    found = read_events(tmp_path / f"observation.{suffix}")
    expected = simulate_observation(500, 20, random_state=0)
    pd.testing.assert_frame_equal(found[list(expected)], expected, check_dtype=False)


@pytest.mark.slow
def test_detect_writes_all_that_is_needed_to_repeat_it(folder, tmp_path, capsys):
    models = ("-m", "tree", "-m", "k-means")
    options = (*models, "--null-test", "--permutations", 3, "--json")
    assert run("detect", folder / "observation.hdf5", "-o", tmp_path / "one", *options) == 0
    result = json.loads(capsys.readouterr().out)
    stored = json.loads((tmp_path / "one" / "result.json").read_text())
    assert result == {key: stored[key] for key in result}
    assert list(result["models"]) == list(result["null_tests"]) == ["tree", "k-means"]
    assert result["models"]["tree"]["significance"] > result["observation"]["significance"] > 5
    assert result["models"]["tree"]["n_permutations"] == 3
    test = result["null_tests"]["tree"]
    assert test["significances"] == test["likelihood_significances"] != test["cut_significances"]
    assert test["cut_significances"]["3"] == test["regions"]["3"]["cut_significance"]
    assert result["run"]["seed"] == 0
    assert [entry["path"] for entry in result["run"]["files"]] == [str(folder / "observation.hdf5")]
    assert all(len(entry["sha256"]) == 64 for entry in result["run"]["files"])
    assert result["run"]["versions"]["excess"]

    assert run("report", tmp_path / "one", "--csv", tmp_path / "tables", "--overwrite") == 0
    capsys.readouterr()
    events = pd.read_csv(tmp_path / "tables" / "events.csv")
    assert (events.loc[events["tree_selected"], "region"] == 0).sum() == result["models"]["tree"]["n_on"]
    assert events["core"].sum() == result["observation"]["n_on"] + result["observation"]["n_off"]
    groups = pd.read_csv(tmp_path / "tables" / "groups.csv")
    assert groups.groupby("model")["n_on"].sum()["tree"] == result["models"]["tree"]["n_on"]
    assert len(pd.read_csv(tmp_path / "tables" / "folds.csv")) == 2 * 5

    again = ("-c", tmp_path / "one" / "config.yaml", *options)
    assert run("detect", folder / "observation.hdf5", "-o", tmp_path / "two", *again) == 0
    repeated = json.loads(capsys.readouterr().out)
    assert repeated["run"].pop("command_line") != result["run"].pop("command_line")
    assert repeated == result
    assert (tmp_path / "two" / "events.parquet").read_bytes() == (tmp_path / "one" / "events.parquet").read_bytes()


def test_detect_prints_a_table_and_a_verdict(folder, tmp_path, capsys):
    assert run("detect", folder / "observation.hdf5", "-o", tmp_path, "-m", "tree", "--strategy", "forward") == 0
    shown = capsys.readouterr()
    assert "no cut" in shown.out
    assert "tree: " in shown.out
    said = " ".join(shown.out.split())
    assert "sigma by the likelihood of all hold-out events, 5 required" in said
    result = json.loads((tmp_path / "result.json").read_text())["models"]["tree"]
    quoted = f"quote its value, {result['likelihood_significance']:.1f} sigma"
    assert f"The likelihood of all events was declared beforehand: for a detection, {quoted}" in said
    assert "60,000 events read" in shown.err
    assert f"Results in {tmp_path}" in " ".join(shown.err.split())


@pytest.mark.parametrize(
    ("options", "value", "more"),
    [((), "forward", ". Use pooled values to compare models"), (("--strategy", "forward"), "forward", "")],
)
def test_nothing_is_quoted_without_a_detection(options, value, more, tmp_path, capsys):
    write_events(simulate_observation(30_000, 0, random_state=0), tmp_path / "dark.hdf5")
    given = ("-m", "tree", "--no-null-test", "-o", tmp_path / "run")
    assert run("detect", tmp_path / "dark.hdf5", *given, *options) == 0
    text = " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / "run" / "result.json").read_text())["models"]["tree"]
    assert found["status"] == "no detection"
    number = found if options else found["forward"]
    expected = f"declared beforehand: its {value} value is {number['significance']:.1f} sigma{more}."
    assert expected in text
    assert "quote" not in text


def test_limits_and_an_error_of_alpha_are_in_terminal_json_and_report(tmp_path, capsys):
    assert run("simulate", "-o", tmp_path, "--events", 40_000, "--signal", 0, "--labelled", 1, "--json") == 0
    command = ("detect", tmp_path / "observation.hdf5", "-m", "tree", "--no-null-test", "--alpha-error", 0.05)
    capsys.readouterr()
    assert run(*command, "-o", tmp_path / "run") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Upper limit at 95 % (CLs): " in text
    assert "Upper limit at 95 % (CLs): " in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    stored = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    found = stored["models"]["tree"]
    assert found["alpha_error"] == stored["run"]["options"]["alpha_error"] == 0.05
    assert 0 < found["limits"]["n_signal_limit"] == found["forward"]["limits"]["n_signal_limit"]
    assert f"{found['limits']['rate_limit']:.3g} per hour" in text
    again = read_run(tmp_path / "run")
    assert again.detections["tree"].alpha_error == 0.05
    assert again.result()["models"]["tree"]["limits"] == pytest.approx(found["limits"])
    assert run(*command[:-1], -1, "-o", tmp_path / "wrong") == 2


def test_the_declared_statistic_decides_verdict_and_headline(folder, tmp_path, capsys):
    results, texts = {}, {}
    for statistic in ("likelihood", "cut"):
        options = ("-m", "tree", "--statistic", statistic, "--permutations", 3)
        assert run("detect", folder / "observation.hdf5", "-o", tmp_path / statistic, *options) == 0
        texts[statistic] = " ".join(capsys.readouterr().out.split())
        results[statistic] = json.loads((tmp_path / statistic / "result.json").read_text())
        found = results[statistic]["models"]["tree"]
        for numbers in (found, found["forward"]):
            assert numbers["significance"] == numbers[f"{statistic}_significance"]
        assert found["permutation_p_value"] == found[f"{statistic}_permutation_p_value"]
        quoted = (
            f"declared beforehand: for a detection, quote its forward value, {found['forward']['significance']:.1f}"
        )
        assert quoted in texts[statistic]
    # the same search, so that all numbers that belong to one statistic are the same
    shared = ("n_on", "n_off", "n_signal", "likelihood_significance", "cut_significance", "cut_permutation_p_value")
    by_likelihood, by_cut = (results[statistic]["models"]["tree"] for statistic in ("likelihood", "cut"))
    assert [by_likelihood[name] for name in shared] == [by_cut[name] for name in shared]
    assert by_likelihood["significance"] != by_cut["significance"]
    assert "sigma by the likelihood of all hold-out events" in by_likelihood["verdict"]
    assert "sigma in the selected hold-out events" in by_cut["verdict"]
    assert "The cut was declared beforehand" in texts["cut"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_into_a_terminal(folder, tmp_path, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    models = ("-m", "tree", "-m", "li-ma-tree", "--null-test")
    assert run("detect", folder / "observation.hdf5", "-o", tmp_path, *models) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    titles = next(line for line in lines if line.startswith("model"))
    assert titles.split() == ["model", "On", "Off", "excess", "cut", "likelihood", "null", "tests"]
    numbers = json.loads((tmp_path / "result.json").read_text())["models"]["li-ma-tree"]
    [row] = [line for line in lines if line.startswith("li-ma-tree ")]
    for statistic in ("cut", "likelihood"):
        pooled, forward = (found[f"{statistic}_significance"] for found in (numbers, numbers["forward"]))
        assert f"{pooled:.1f} / {forward:.1f}" in row


def test_round_trip(folder, tmp_path, capsys):
    """Train on some nights, apply to another, detect there: the command line says what Python says."""
    model, new = folder / "tree.excess", folder / "new" / "observation.hdf5"
    assert run("apply", model, new, "-o", tmp_path / "applied.hdf5", "--chunk-rows", 7000, "--json") == 0
    applied = json.loads(capsys.readouterr().out)[0]
    assert (applied["n_events"], applied["n_scored"]) == (30_000, 30_000)
    before, after = read_events(new), read_events(tmp_path / "applied.hdf5")
    pd.testing.assert_frame_equal(after[list(before)], before)
    tree = load(model)
    X = to_features(before, load_config()).X
    expected = tree.predict_proba(pd.DataFrame(X, columns=tree.feature_names_in_))[:, 1]
    np.testing.assert_array_equal(after["excess_score"], expected)
    np.testing.assert_array_equal(after["excess_selected"], expected > tree.threshold_)
    assert applied["n_selected"] == after["excess_selected"].sum()

    assert run("detect", new, "--model-file", model, "-o", tmp_path / "out", "--json") == 0
    found = json.loads(capsys.readouterr().out)["models"][str(model)]
    on = (before["theta_deg"] ** 2 < 0.025).to_numpy()
    assert found["n_on"] == (after["excess_selected"] & on).sum()
    assert found["significance"] > 5
    assert run("info", tmp_path / "applied.hdf5", "--json") == 0
    counted = json.loads(capsys.readouterr().out)["on_off"]["excess_selected"]
    assert f"On {found['n_on']}, Off {found['n_off']}" in counted


def test_apply_to_parquet_and_to_several_files(folder, tmp_path, capsys):
    table = simulate_observation(2000, 50, random_state=1).assign(width=lambda t: t["width"].where(t.index % 10 > 0))
    for name in ("a.parquet", "b.parquet"):
        write_events(table, tmp_path / name)
    given = (tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert run("apply", folder / "tree.excess", *given, "-o", tmp_path / "out", "--json") == 0
    assert [entry["n_scored"] for entry in json.loads(capsys.readouterr().out)] == [1800, 1800]
    found = read_events(tmp_path / "out" / "b.parquet")
    np.testing.assert_array_equal(found["excess_score"].isna(), np.arange(2000) % 10 == 0)
    assert not found.loc[found["excess_score"].isna(), "excess_selected"].any()
    again = ("apply", folder / "tree.excess", tmp_path / "out" / "b.parquet", "-o", tmp_path / "twice.parquet")
    assert run(*again) == 1
    assert "b.parquet: already has a column 'excess_score'" in said(capsys)
    assert run(*again, "--prefix", "a b") == 2
    assert "--prefix: must be letters, digits and underscores" in said(capsys).replace("│ ", "")
    assert run(*again, "--prefix", "tree") == 0
    assert run("info", tmp_path / "twice.parquet", "--json") == 0
    counted = json.loads(capsys.readouterr().out)["on_off"]
    assert counted["tree_selected"] == counted["excess_selected"]


def test_a_model_is_not_judged_by_its_own_events(folder, tmp_path, capsys):
    code = run("detect", folder / "observation.hdf5", "--model-file", folder / "tree.excess", "-o", tmp_path)
    assert code == 1
    assert "was trained on" in said(capsys)
    table = read_events(folder / "observation.hdf5")
    write_events(table[table["night"] == 20131102], tmp_path / "night.hdf5")
    assert run("detect", tmp_path / "night.hdf5", "--model-file", folder / "tree.excess", "-o", tmp_path / "out") == 1
    assert "was trained on events of group 20131102" in said(capsys)


def test_a_model_file_keeps_to_its_configuration(folder, tmp_path, capsys):
    (tmp_path / "other.yaml").write_text(
        "derived_features: {area: width * length}\nfeatures: [width, area]\nquality_cuts: []\n"
    )
    new = folder / "new" / "observation.hdf5"
    options = ("--model-file", folder / "tree.excess", "-c", tmp_path / "other.yaml", "-o", tmp_path / "out")
    assert run("detect", new, *options) == 1
    assert "was trained with other features" in said(capsys)
    assert run("detect", new, "--model-file", folder / "tree.excess", "--null-test", "-o", tmp_path / "out") == 2
    assert "model files are not trained" in said(capsys)


def test_off_files_of_the_training_are_refused(folder, tmp_path, capsys):
    table = read_events(folder / "observation.hdf5")
    on, off, other = (table[table["night"] == night] for night in (20131101, 20131102, 20131103))
    for name, part in {"on": on, "off": off, "other": other}.items():
        write_events(part, tmp_path / f"{name}.parquet")
    split = ("--off", tmp_path / "off.parquet", "--alpha", 1, "--groups", "none")
    assert run("train", tmp_path / "on.parquet", *split, "-m", "tree", "-o", tmp_path / "t.excess", "--json") == 0
    given = (*split, "--model-file", tmp_path / "t.excess", "-o", tmp_path / "out")
    assert run("detect", tmp_path / "other.parquet", *given) == 1
    assert "was trained on" in said(capsys)


def test_events_that_are_there_twice_are_refused(folder, tmp_path, capsys):
    path = folder / "observation.hdf5"
    assert run("detect", path, path, "-m", "tree", "-o", tmp_path) == 1
    assert f"{path}: is given twice for events" in said(capsys)
    (tmp_path / "copy.hdf5").write_bytes(path.read_bytes())
    assert run("detect", path, tmp_path / "copy.hdf5", "-m", "tree", "-o", tmp_path) == 1
    assert "are repeated, by run_id, event_num, night" in said(capsys)


def test_overlapping_regions_are_refused(folder, tmp_path, capsys):
    (tmp_path / "wide.yaml").write_text("regions: {theta_squared_cut: 0.5}\n")
    options = ("-c", tmp_path / "wide.yaml", "-m", "tree", "-o", tmp_path / "out")
    assert run("detect", folder / "observation.hdf5", *options) == 1
    assert "the regions overlap" in said(capsys)


def test_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("excess ")


@pytest.mark.slow
def test_models_reload_in_a_new_process_to_the_same_bits(folder, tmp_path):
    command = "import sys; from excess.cli import main; main(sys.argv[1:])"
    new = folder / "new" / "observation.hdf5"
    arguments = ["apply", folder / "tree.excess", new, "--json", "-o"]
    assert run(*arguments, tmp_path / "one.parquet") == 0
    in_new_process = [sys.executable, "-c", command, *map(str, arguments), str(tmp_path / "two.parquet")]
    subprocess.run(in_new_process, check=True, capture_output=True)
    one, two = (read_events(tmp_path / f"{name}.parquet") for name in ("one", "two"))
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_a_seed_gives_the_same_model_file(folder, tmp_path):
    for name in ("one", "two"):
        arguments = ("-o", tmp_path / name, "-m", "k-means", "--seed", 3, "--json")
        assert run("train", folder / "observation.hdf5", *arguments) == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_damaged_models_are_refused(folder, tmp_path, capsys):
    data = bytearray((folder / "tree.excess").read_bytes())
    (tmp_path / "short").write_bytes(data[:-10])
    data[len(data) // 2] ^= 1
    (tmp_path / "changed").write_bytes(data)
    for name in ("short", "changed"):
        code = run("apply", tmp_path / name, folder / "gamma.hdf5", "-o", tmp_path / "out.hdf5")
        assert code == 1
        assert "is damaged or incomplete" in said(capsys)
    assert not (tmp_path / "out.hdf5").exists()


def test_on_and_off_files(folder, tmp_path, capsys):
    table = read_events(folder / "observation.hdf5")
    thetas = ["theta_deg", *(f"theta_deg_off_{k}" for k in range(1, 6))]
    near = table[thetas].to_numpy() ** 2 < 0.025
    write_events(table[near[:, 0]].drop(columns=thetas), tmp_path / "on.parquet")
    write_events(table[near[:, 1:].any(axis=1)].drop(columns=thetas), tmp_path / "off.parquet")
    split = ("--off", tmp_path / "off.parquet", "--alpha", 0.2)
    options = ("-m", "tree", "--groups", "none", "--json")
    assert run("detect", tmp_path / "on.parquet", *split, "-o", tmp_path / "a", *options) == 0
    apart = json.loads(capsys.readouterr().out)
    assert run("detect", folder / "observation.hdf5", "-o", tmp_path / "b", *options) == 0
    together = json.loads(capsys.readouterr().out)
    for name in ("n_on", "n_off", "alpha", "significance"):
        assert apart["observation"][name] == together["observation"][name]
    assert run("detect", tmp_path / "on.parquet", "--off", tmp_path / "off.parquet", "-o", tmp_path / "c") == 1
    assert "--alpha: is required with --off" in said(capsys)
    assert run("detect", tmp_path / "on.parquet", *split, "--null-test", "-m", "tree", "-o", tmp_path / "c") == 1
    assert "--null-test: requires at least two Off regions" in said(capsys)


@pytest.mark.slow
def test_joined_files(folder, tmp_path, capsys):
    table = read_events(folder / "observation.hdf5")
    keys = ["event_num", "night", "run_id"]
    thetas = [name for name in table if name.startswith("theta")]
    write_events(table.drop(columns=thetas).sample(frac=1, random_state=0), tmp_path / "dl2.hdf5")
    write_events(table[[*keys, *thetas]], tmp_path / "dl3.hdf5")
    given = ("--join", tmp_path / "dl3.hdf5", "-m", "tree", "-o", tmp_path / "a", "--json")
    assert run("detect", tmp_path / "dl2.hdf5", *given) == 0
    counts = json.loads(capsys.readouterr().out)["observation"]
    assert run("detect", folder / "observation.hdf5", "-m", "tree", "-o", tmp_path / "b", "--json") == 0
    expected = json.loads(capsys.readouterr().out)["observation"]
    assert counts == expected


@pytest.mark.slow
def test_null_test_of_a_leak_warns(folder, tmp_path, capsys):
    table = read_events(folder / "observation.hdf5")
    thetas = ["theta_deg", *(f"theta_deg_off_{k}" for k in range(1, 6))]
    leak = table[thetas].to_numpy().argmin(axis=1) + np.random.default_rng(0).normal(scale=0.3, size=len(table))
    write_events(table.assign(innocent=leak), tmp_path / "leaky.parquet")
    features = [*load_config().features, "innocent"]
    text = "features: [" + ", ".join(features) + "]\n"
    (tmp_path / "c.yaml").write_text(text)
    options = ("-c", tmp_path / "c.yaml", "-m", "tree", "--null-test")
    assert run("detect", tmp_path / "leaky.parquet", "-o", tmp_path / "out", *options) == 1
    assert "feature 'innocent' separates Off regions" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "c.yaml").write_text(text + "allow_origin_features: true\n")
    assert run("detect", tmp_path / "leaky.parquet", "-o", tmp_path / "out", *options) == 0
    assert "Do not claim a detection" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_demo(tmp_path, capsys):
    assert run("demo", "--events", 25_000, "--signal", 500, "-o", tmp_path, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["models"]) == ["forest", "li-ma-tree", "k-means", "supervised"]
    assert result["models"]["forest"]["significance"] > result["observation"]["significance"]
    assert all(abs(test["mean"]) < 2 for test in result["null_tests"].values())
    assert (tmp_path / "result.json").exists()
    written = (tmp_path / "report.html").read_bytes()
    assert run("report", tmp_path) == 0
    assert (tmp_path / "report.html").read_bytes() == written


def _bad_files(folder: Path, tmp_path: Path) -> dict[str, Path]:
    table = simulate_observation(3000, 0, random_state=0)
    good = folder / "observation.hdf5"
    files = {name: tmp_path / name for name in ("cut.hdf5", "far.hdf5", "missing.hdf5", "away.hdf5", "mixed.parquet")}
    files["cut.hdf5"].write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    write_events(table.assign(**{n: 9.0 for n in table if n.startswith("theta")}), files["far.hdf5"])
    write_events(table.drop(columns="width"), files["missing.hdf5"])
    write_events(table.assign(width=99.0), files["away.hdf5"])
    write_events(table, files["mixed.parquet"])
    (tmp_path / "key.yaml").write_text("feature: [width]\n")
    (tmp_path / "nights.yaml").write_text("groups: night\n")
    (tmp_path / "origin.yaml").write_text("features: [width, theta_deg]\n")
    (tmp_path / "text.txt").write_text("no table at all\n")
    (tmp_path / "block").write_text("")
    return files | {"good": good}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("detect", "cut.hdf5"), "cut.hdf5"),
        (("detect", "far.hdf5"), "none of 3,000 events is in a region"),
        (("detect", "missing.hdf5", "-c", "nights.yaml"), "width"),
        (("detect", "away.hdf5"), "the quality cuts reject all"),
        (("detect", "good", "mixed.parquet"), "mixed.parquet"),
        (("detect", "absent.hdf5"), "absent.hdf5"),
        (("detect", "."), "mixed formats"),
        (("detect", "text.txt"), "text.txt"),
        (("detect", "good", "-c", "key.yaml"), "features"),
        (("detect", "good", "-c", "origin.yaml"), "theta_deg"),
        (("detect", "good", "-c", "absent.yaml"), "absent.yaml"),
        (("detect", "good", "--groups", "nite"), "nite"),
        (("detect", "good", "--folds", "9", "-m", "tree"), "--folds: must be at most the number of groups, 5"),
        (("detect", "good", "--features", "widht"), "--features: 'widht' is not a column of the events; did you mean"),
        (("detect", "good", "--exclude", "*"), "--exclude: leaves no features"),
        (("train", "good", "--reference", "gammaness"), "has no column 'gammaness'"),
        (("train", "good", "--bins", "nothing:1,2"), "has no column 'nothing'"),
        (("train", "away.hdf5"), "the quality cuts reject all"),
        (("train", "good", "good", "--chunk-rows", "500"), "is given twice for events"),
        (("train", "away.hdf5", "--chunk-rows", "500"), "the quality cuts reject all"),
        (("train", "far.hdf5", "--chunk-rows", "500"), "none of 3,000 events is in a region"),
        (("info", "absent.hdf5"), "absent.hdf5"),
        (("apply", "good", "good"), "is not a model file of excess"),
        (("apply", "saved", "missing.hdf5"), "width"),
        (("apply", "saved", "good", "absent.hdf5", "--dask", "nowhere"), "absent.hdf5: does not exist"),
        (("apply", "saved", "good", "absent_*.hdf5", "--dask", "nowhere"), "no file matches this pattern"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_sentence(arguments, message, folder, tmp_path, capsys):
    known = _bad_files(folder, tmp_path) | {"saved": folder / "tree.excess"}
    command, *rest = arguments
    words = [known.get(word, tmp_path / word if "." in word else word) for word in rest]
    output = () if command == "info" else ("-o", tmp_path / "out" / "result.hdf5")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    code = run(command, *words, *output)
    captured = capsys.readouterr()
    assert code == 1
    text = " ".join(captured.err.split())
    assert message in text
    assert "Traceback" not in text
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith("excess: ")
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(ValueError, match="absent"):
        main(["info", str(tmp_path / "absent.hdf5"), "--debug"])


def test_output_folder_that_cannot_be_used(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code = run("detect", folder / "observation.hdf5", "-m", "tree", "-o", tmp_path / "file" / "out")
    assert code == 1
    assert "cannot be used as output folder" in said(capsys)


def test_usage_errors_exit_with_two(tmp_path, capsys):
    assert run("detect") == 2
    assert run("detekt") == 2
    assert run("simulate", "-o", "x", "--format", "xlsx") == 2
    assert run("detect", "x.hdf5", "-o", tmp_path / "y", "--alpha", "0.2") == 2
    assert run("detect", "x.hdf5", "-o", tmp_path / "y", "--strategy", "sideways") == 2
    assert run("detect", "x.hdf5", "-o", tmp_path / "y", "--seed", -1) == 2
    said(capsys)
    assert run("detect", "x.hdf5", "-o", tmp_path / "y", "--statistic", "best") == 2
    assert "Invalid value for '--statistic': must be likelihood or cut, got 'best'" in said(capsys)
    assert run("detect", "x.hdf5", "-o", tmp_path / "y", "-m", "tree", "-m", "tree") == 2
    assert run("detect", "x.hdf5", "-o", tmp_path / "y", "--jobs", 0) == 2
    assert run("detect", "x.hdf5", "-o", tmp_path / "y", "--source-ra", 83.6) == 2


def test_output_onto_itself_is_refused(folder, tmp_path, capsys):
    path = folder / "gamma.hdf5"
    assert run("apply", folder / "tree.excess", path, "-o", path) == 1
    assert "gamma.hdf5: would overwrite the input" in said(capsys)
    read_events(path)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_leaves_the_old_file(folder, tmp_path, sent, code, capsys, monkeypatch):
    """While a thread writes chunks."""
    n_written = []

    def append(sink, chunk, usual=FactFile.append):
        usual(sink, chunk)
        n_written.append(len(chunk))
        if len(n_written) == 3:
            signal.raise_signal(sent)

    monkeypatch.setattr(FactFile, "append", append)
    (tmp_path / "out.hdf5").write_bytes(b"old")
    options = ("-o", tmp_path / "out.hdf5", "--chunk-rows", 100, "--overwrite", "--json")
    assert run("apply", folder / "tree.excess", folder / "observation.hdf5", *options) == code
    assert 3 <= len(n_written) < 100
    assert "no partial file remains" in said(capsys)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out.hdf5": b"old"}


@pytest.mark.slow
def test_memory_of_apply_does_not_grow(folder, tmp_path):
    """Four times the events, the same number of them in memory."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("the peak memory of a process is read from /proc")
    code = (
        "import sys; from excess.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    peaks = []
    table = simulate_observation(150_000, 10, random_state=1)
    for n_times in (1, 4):
        write_events(pd.concat([table] * n_times, ignore_index=True), tmp_path / "in.hdf5")
        arguments = ["apply", folder / "tree.excess", tmp_path / "in.hdf5", "-o", tmp_path / "out.hdf5"]
        command = [sys.executable, "-c", code, *map(str, arguments), "--chunk-rows", "20000"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout.split()[-1]) / 1024)
    assert len(read_events(tmp_path / "out.hdf5", ["excess_selected"])) == 600_000
    assert peaks[1] < peaks[0] + 30  # MiB; 450,000 more events take 120
    assert sum(len(chunk) for chunk in iter_events(tmp_path / "out.hdf5", ["width"])) == 600_000


@pytest.mark.parametrize("there", [False, True])
def test_a_refused_run_leaves_no_folder_behind(there, folder, tmp_path):
    target = tmp_path / "new" / "result"
    if there:
        target.mkdir(parents=True)
    assert run("detect", folder / "gamma.hdf5", "-o", target) == 1
    assert (tmp_path / "new").exists() == target.exists() == there


def test_apply_says_which_files_the_model_was_trained_on(folder, tmp_path, caplog):
    again = tmp_path / "again.hdf5"
    again.write_bytes((folder / "observation.hdf5").read_bytes())
    files = (again, folder / "new" / "observation.hdf5")
    assert run("apply", folder / "tree.excess", *files, "-o", tmp_path / "out", "--json") == 0
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [f"the model was trained on {again}"]


def test_the_title_of_a_narrow_table_stays_in_one_line(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(folder)  # the model is called as the file is
    assert run("detect", "new/observation.hdf5", "--model-file", "tree.excess", "-o", tmp_path / "out") == 0
    title, names, *_ = capsys.readouterr().out.splitlines()
    assert title.strip() == "Hold-out events, alpha = 0.2; significances in sigma, applied"
    assert names.split() == ["model", "On", "Off", "excess", "cut", "likelihood"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("detect", "x.hdf5", "-m", "foreest"), "--model: must be one of forest, hybrid, "),
        (("detect", "x.hdf5", "-m", "tree", "-m", "foreest"), "got 'foreest'; did you mean 'forest'?"),
        (("train", "x.hdf5", "-m", "foreest"), "got 'foreest'; did you mean 'forest'?"),
        (("train", "x.hdf5", "-m", "absent.excess"), "--model: must be one of forest, "),
        (("detect", "x.hdf5", "--off", "y.hdf5", "--alpha", "-1"), "'--alpha': must be positive and finite, got -1"),
        (("detect", "x.hdf5", "--off", "y.hdf5", "--alpha", "nan"), "'--alpha': must be positive and finite, got nan"),
        (("train", "x.hdf5", "--source-ra", "400", "--source-dec", "2"), "'--source-ra': must be from 0 to 360 deg"),
        (("init", "x.hdf5", "--source-ra", "40", "--source-dec", "-91"), "'--source-dec': must be from -90 to 90 deg"),
        (("simulate", "--events", "10", "--signal", "11"), "--signal: must be at most --events, 10, got 11"),
        (("simulate", "--first-night", "5"), "--first-night: must be a date such as 20131101, got 5"),
    ],
)
def test_a_value_that_is_wrong_in_itself_is_usage(arguments, message, tmp_path, capsys):
    assert run(*arguments, "-o", tmp_path / "out") == 2
    text = said(capsys)
    assert text.startswith(f"Usage: excess {arguments[0]} ")
    assert message in text
