"""The search as a library: what the command does, file for file, and what it refuses."""

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import run_command
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.svm import LinearSVC

from excess import OnOffTreeClassifier, cross_val_detect
from excess._utils.files import as_json
from excess.analysis import detect, read_run, train
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import EventFileError, write_events

SVC_AT_ZERO = FixedThresholdClassifier(LinearSVC(random_state=0))
"""A classifier with a threshold of its own, whose scores are no probabilities."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "detect.py"


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """A file with the events of a small observation."""
    path = tmp_path_factory.mktemp("search") / "crab.csv"
    write_events(simulate_observation(20_000, 300, n_nights=3, random_state=0), path)
    return path


@pytest.fixture(scope="module")
def observation(events):
    return OnOffDataset.from_files(events)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_the_example_writes_what_the_command_writes(events, tmp_path, monkeypatch):
    models = ("-m", "forest", "-m", "li-ma-tree", "--null-test", "-j", 1)
    assert run_command("detect", events, "-o", tmp_path / "command", *models, "--json") == 0
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(events), str(tmp_path / "library")])
    runpy.run_path(str(EXAMPLE))
    by_command, by_library = contents(tmp_path / "command"), contents(tmp_path / "library")
    assert sorted(by_command) == ["config.yaml", "events.parquet", "nearby.parquet", "report.html", "result.json"]
    # but for the command itself
    for found in (by_command, by_library):
        report, result = found.pop("report.html").decode(), json.loads(found.pop("result.json"))
        found["report"] = re.sub(r'<p class="command">.*?</p>|<details class="command">.*?</details>\n', "", report)
        del result["checksum"]
        words = result["run"].pop("command_line", None)
        found["result"] = result
    assert by_library == by_command
    assert words is None


def test_the_header_says_what_was_observed(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    wcs = pytest.importorskip("astropy.wcs")
    table = simulate_observation(60_000, 400, source=(83.6333, 22.0133), random_state=0)
    write_events(table.assign(zenith=np.linspace(11.6, 40.2, len(table)), energy=table["size"]), tmp_path / "crab.hdf5")
    options = ("--source", "Crab", "-m", "li-ma-tree", "--no-null-test", "-o", tmp_path / "run", "--json")
    assert run_command("detect", tmp_path / "crab.hdf5", *options) == 0
    run = read_run(tmp_path / "run")
    assert run.observed["header"] == {
        "Source": "Crab",
        "RA, Dec (ICRS)": "83.6333°, +22.0133°",
        "Telescope": "FACT",
        "Dates (UTC)": "2013-11-01 to 2013-11-06",
        "Time of events": f"{run.observed['exposure']['hours'] and sum(run.observed['exposure']['hours']):.2f} h",
        "Zenith distance": "12° to 40°",
        "Offset": "0.60°",
        "Runs": "215",
    }
    assert run.record["command_line"].startswith("excess detect ")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for text in ("83.6333°", "12° to 40°", "--no-null-test", "Excess by energy", "Events by zenith distance"):
        assert text in page
    # the map as a file: the pixel of the source is the most significant one, at the position of the source
    with fits.open(tmp_path / "run" / "sky_map.fits") as hdus:
        image, world = hdus["SELECTED_SIGNIFICANCE"].data, wcs.WCS(hdus["SELECTED_SIGNIFICANCE"].header)
        layer = run.detections["li-ma-tree"].sky
        row, column = np.unravel_index(np.nanargmax(image), image.shape)
        place = world.pixel_to_world(column, row)
        expected = layer.axis[
            np.array(np.unravel_index(np.nanargmax(layer.layers["selected"].significance), image.shape))
        ]
        north, east = expected
        assert place.dec.deg == pytest.approx(22.0133 + north, abs=1e-3)
        assert place.ra.deg == pytest.approx(83.6333 + east / np.cos(np.radians(22.0133)), abs=2e-3)


def test_a_run_is_read_as_it_was_written(observation, tmp_path):
    tree = OnOffTreeClassifier(criterion="li_ma", max_depth=3, random_state=0)
    run = detect(observation, {"mine": tree}, null_tests=True, title="Crab")
    run.write(tmp_path / "first")
    again = read_run(tmp_path / "first")
    again.write(tmp_path / "second")
    assert contents(tmp_path / "second") == contents(tmp_path / "first")
    assert again.record["title"] == "Crab"
    assert again.null_tests["mine"].counts == run.null_tests["mine"].counts


def numbers_of(run):
    """Return all that a run says, by both statistics; NaN, which no number equals, is None."""
    found = {}
    for name, one in run.detections.items():
        found[name] = {what: getattr(one, what) for what in ("folds", "contrasts", "verdict", "counts_by_group")}
        found[name] |= {"summary": one.summary(), "groups": one.groups_frame().to_dict()}
        for what in ("repeats", "permutations"):
            found[name][what] = {statistic: values.tolist() for statistic, values in getattr(one, what).items()}
    forward = {name: (outcome.summary(), outcome.counts) for name, outcome in run.forward.items()}
    tests = {
        name: ({region: outcome.summary() for region, outcome in test.outcomes.items()}, test.verdict)
        for name, test in run.null_tests.items()
    }
    return as_json({"models": found, "forward": forward, "null tests": tests})


@pytest.mark.parametrize(
    ("models", "options"),
    [
        ({"tree": OnOffTreeClassifier(max_depth=3)}, {"permutations": 4, "null_tests": True}),
        ({"tree": OnOffTreeClassifier(max_depth=3)}, {"repeats": 3, "statistic": "cut", "permutations": 2}),
        ({"svc": SVC_AT_ZERO}, {"statistic": "cut", "null_tests": True, "permutations": 2}),
        ({"tree": OnOffTreeClassifier(max_depth=3), "svc": SVC_AT_ZERO}, {"statistic": "cut"}),
    ],
    ids=["likelihood", "repeats", "no likelihood ratio", "one with and one without"],
)
def test_numbers_of_both_statistics_are_read_as_they_were_written(observation, tmp_path, models, options):
    run = detect(observation, models, **options)
    again = read_run(run.write(tmp_path))
    assert numbers_of(again) == numbers_of(run)
    for name, found in run.detections.items():
        assert (found.likelihood is None) == (name == "svc")
        assert found.statistic == again.detections[name].statistic == options.get("statistic", "likelihood")
    assert as_json(again.result()) == as_json(run.result())


def test_a_model_without_signal_ratio_has_no_likelihood(observation):
    with pytest.raises(ValueError, match="statistic"):
        detect(observation, {"svc": SVC_AT_ZERO})


@pytest.fixture
def on_and_off(tmp_path):
    """Files of On and of Off events of three nights, and the exposure ratio of each night."""
    nights = {20131101: 1.0, 20131102: 0.5, 20131103: 0.25}
    rng = np.random.default_rng(0)
    for name, n_signal in (("on", 150), ("off", 0)):
        parts = []
        for number, (night, alpha) in enumerate(nights.items()):
            n_background = round(300 * (alpha if name == "on" else 1))
            x = np.concatenate([rng.normal(size=(n_background, 2)), rng.normal(1.5, size=(n_signal, 2))])
            parts.append(pd.DataFrame(x, columns=["width", "length"]).assign(night=night, run_id=number))
        write_events(pd.concat(parts, ignore_index=True), tmp_path / f"{name}.csv")
    return tmp_path / "on.csv", tmp_path / "off.csv", nights


PLAIN = AnalysisConfig(features=["width", "length"], derived_features={}, quality_cuts=[], groups="night")


def test_exposure_ratios_by_group(on_and_off, tmp_path):
    on, off, alpha = on_and_off
    observation = OnOffDataset.from_files(on, PLAIN, off=off, alpha=alpha)
    assert observation.alpha == pytest.approx(np.mean(list(alpha.values())))  # as many Off events in each night
    run = detect(observation, {"tree": OnOffTreeClassifier(max_depth=3, random_state=0)})
    found = run.detections["tree"]
    expected = cross_val_detect(
        OnOffTreeClassifier(max_depth=3, random_state=0),
        observation.X,
        observation.on,
        alpha=np.array([alpha[night] for night in observation.groups]),
        groups=observation.groups,
        random_state=0,
    )
    assert (found.likelihood, found.counts) == (expected.likelihood, expected.counts)
    assert [counts.alpha for counts in found.counts_by_group.values()] == list(alpha.values())
    one = detect(
        OnOffDataset.from_files(on, PLAIN, off=off, alpha=observation.alpha), {"tree": OnOffTreeClassifier(max_depth=3)}
    )
    assert one.detections["tree"].likelihood != found.likelihood
    assert run.record["options"]["alpha"] == {str(night): ratio for night, ratio in alpha.items()}

    again = read_run(run.write(tmp_path / "run"))
    np.testing.assert_array_equal(again.detections["tree"].event_alpha, found.event_alpha)
    assert numbers_of(again) == numbers_of(run)
    again.write(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "run")


def test_a_model_keeps_the_exposure_ratio_it_was_tuned_with(on_and_off, tmp_path):
    on, off, _ = on_and_off
    files = {}
    for name, path in (("on", on), ("off", off)):
        table = pd.read_csv(path)
        for which, chosen in (("old", table["night"] < 20131103), ("new", table["night"] == 20131103)):
            files[which, name] = tmp_path / f"{which}_{name}.csv"
            write_events(table[chosen], files[which, name])
    old = OnOffDataset.from_files(
        files["old", "on"], PLAIN, off=files["old", "off"], alpha={20131101: 1.0, 20131102: 0.5}
    )
    new = OnOffDataset.from_files(files["new", "on"], PLAIN, off=files["new", "off"], alpha=0.25)
    run = detect(new, [], model_files=[train(old, OnOffTreeClassifier(max_depth=2))])
    [fold] = next(iter(run.detections.values())).folds
    share = old.event_alpha / (1 + old.event_alpha)  # of background among On, where all events are background
    assert fold.tuned.alpha == pytest.approx(share.mean() / (1 - share.mean()))
    assert fold.held_out.alpha == 0.25
    again = read_run(run.write(tmp_path / "run"))
    assert next(iter(again.detections.values())).folds == (fold,)


def test_exposure_ratios_that_are_refused(on_and_off):
    on, off, alpha = on_and_off
    with pytest.raises(ValueError, match="alpha must contain every group, but 20131103 is missing"):
        OnOffDataset.from_files(on, PLAIN, off=off, alpha={20131101: 1.0, 20131102: 0.5})
    with pytest.raises(ValueError, match="alpha by group requires groups"):
        OnOffDataset.from_files(on, PLAIN, off=off, alpha=alpha, groups="none")
    with pytest.raises(ValueError, match="alpha must be positive"):
        OnOffDataset.from_files(on, PLAIN, off=off, alpha={**alpha, 20131102: 0.0})


def test_models_in_memory_are_applied(events, observation):
    trained = train(OnOffDataset.from_files(events, groups="none"), "li-ma-tree")
    new = OnOffDataset.from_files(simulate_observation(20_000, 300, n_nights=1, first_night=20140101, random_state=1))
    run = detect(new, [], model_files=[trained])
    [found] = run.detections.values()
    assert (found.strategy, run.forward) == ("applied", {})
    with pytest.raises(ValueError, match=r"was trained on .*crab\.csv"):
        detect(observation, [], model_files=[trained])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": ["forest", "forest"]}, "models contain 'forest' twice"),
        ({"models": "forrest"}, "model must be one of .* did you mean 'forest'"),
        ({"models": [], "null_tests": True}, "null_tests requires a model to train"),
        ({"models": [], "permutations": 9}, "permutations requires a model to train"),
        ({"models": []}, "models must contain at least one"),
        ({"strategy": "backward"}, "strategy must be"),
        ({"statistic": "best"}, "statistic must be"),
    ],
)
def test_arguments_that_are_refused(observation, arguments, message):
    with pytest.raises(ValueError, match=message):
        detect(observation, **arguments)


def test_null_tests_need_regions(tmp_path):
    for seed, name in enumerate(("on", "off")):
        write_events(simulate_observation(50, 5, random_state=seed)[["width", "length"]], tmp_path / f"{name}.csv")
    config = AnalysisConfig(features=["width", "length"], derived_features={}, quality_cuts=[], groups="none")
    observation = OnOffDataset.from_files(tmp_path / "on.csv", config, off=tmp_path / "off.csv", alpha=1.0)
    with pytest.raises(ValueError, match="null_tests requires at least two Off regions"):
        detect(observation, "tree", null_tests=True)


def test_a_reference_needs_events(events, observation, tmp_path):
    simulated = simulate_observation(100, 5, random_state=0).assign(width=1e9)
    write_events(simulated, tmp_path / "gamma.csv")
    with pytest.raises(EventFileError, match=r"gamma\.csv: no event passes the quality cuts"):
        detect(observation, "tree", simulated=(tmp_path / "gamma.csv", events))


def test_the_readme_shows_the_example():
    code = EXAMPLE.read_text().partition('"""\n\n')[2]
    assert f"```python\n{code}```" in (EXAMPLE.parents[1] / "README.md").read_text()


def test_tables_replace_no_files_unless_asked_to(observation, tmp_path):
    run = detect(observation, {"mine": OnOffTreeClassifier(max_depth=2)}, null_tests=False)
    (tmp_path / "groups.csv").write_text("mine")
    with pytest.raises(EventFileError, match=r"groups\.csv"):
        run.write_tables(tmp_path)
    assert contents(tmp_path) == {"groups.csv": b"mine"}
    events = tmp_path / "events.csv"
    events.write_text("an input")
    run.record["files"] = [{"kind": "events", "path": str(events)}]
    with pytest.raises(EventFileError, match=r"events\.csv"):
        run.write_tables(tmp_path, overwrite=True)
    assert events.read_text() == "an input"
