"""Stacks of observations: from the library and from a list of files, and what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import run_command

from excess import OnOffForestClassifier, OnOffTreeClassifier
from excess.analysis import detect, read_run, train
from excess.config import AnalysisConfig, load_observation_list
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import EventFileError, write_events
from excess.report._content import ModelContent
from excess.stats._significance import OnOffCounts

TREE = {"tree": OnOffTreeClassifier(max_depth=3, random_state=0)}
FEW_REGIONS = AnalysisConfig(regions={"n_regions": 3})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of two sources, with five and with two Off regions, and a list of both."""
    folder = tmp_path_factory.mktemp("stack")
    for name, seed, n_regions, first_night in (("crab", 0, 6, 20131101), ("mrk421", 1, 3, 20131103)):
        events = simulate_observation(
            30_000, 200, n_nights=3, n_regions=n_regions, first_night=first_night, random_state=seed
        )
        write_events(events, folder / f"{name}.csv")
    (folder / "both.yaml").write_text(
        "crab: {events: 'cr?b.csv'}\nmrk421: {events: [mrk421.csv], regions: {n_regions: 3}}\n"
    )
    return folder


@pytest.fixture(scope="module")
def parts(folder):
    return {
        "crab": OnOffDataset.from_files(folder / "crab.csv"),
        "mrk421": OnOffDataset.from_files(folder / "mrk421.csv", FEW_REGIONS),
    }


@pytest.fixture(scope="module")
def both(parts):
    return OnOffDataset.stack(parts)


def test_all_events_keep_what_they_had(parts, both):
    crab, other = parts.values()
    np.testing.assert_array_equal(both.X, np.concatenate([crab.X, other.X]))
    np.testing.assert_array_equal(both.on, np.concatenate([crab.on, other.on]))
    np.testing.assert_array_equal(both.groups, np.concatenate([crab.groups, other.groups]))
    np.testing.assert_array_equal(both.event_alpha, np.repeat([0.2, 0.5], [len(crab.X), len(other.X)]))
    assert both.observations.tolist() == ["crab"] * len(crab.X) + ["mrk421"] * len(other.X)
    assert both.census.n_read == 60_000
    assert both.alpha == pytest.approx(both.event_alpha[both.on == 0].mean())
    assert both.counts == OnOffCounts.stack(
        [(one.counts.n_on, one.counts.n_off, one.counts.alpha) for one in parts.values()]
    )
    assert both.regions.n_regions == 6  # those of the observation with most regions
    assert both.theta is None
    assert both.nearby is None
    # a night is one group, whichever source was observed
    assert sorted(set(both.groups.tolist())) == [20131101, 20131102, 20131103, 20131104, 20131105]


def test_observations_of_the_same_kind_keep_regions_and_angles(parts):
    crab = parts["crab"]
    other = replace(crab, files={}, X=crab.X * (1 + 1e-9))  # the same events would be refused
    both = OnOffDataset.stack({"first": crab, "second": other})
    assert both.regions.n_regions == 6
    assert both.event_alpha is None
    assert both.alpha == 0.2
    np.testing.assert_array_equal(both.theta, np.concatenate([crab.theta, crab.theta]))
    assert len(both.nearby.X) == 2 * len(crab.nearby.X)
    tests = detect(both, TREE, null_tests=True, folds=2).null_tests["tree"]
    assert len(tests.outcomes) == 5
    wide = both.widen()
    # events beyond the cut keep their regions, so no Off region has an excess
    np.testing.assert_array_equal(np.bincount(wide.regions.region), 2 * np.bincount(crab.widen().regions.region))
    assert np.abs(tests.significances).max() < 5


def test_different_numbers_of_regions_have_null_tests(both):
    tests = detect(both, TREE, null_tests=True, folds=2).null_tests["tree"]
    alphas = [outcome.counts.alpha for outcome in tests.outcomes.values()]
    assert len(alphas) == 5
    assert alphas[2:] == [0.25] * 3  # regions of the first observation alone
    assert 0.25 < alphas[0] < 1
    assert np.abs(tests.significances).max() < 5


def test_a_list_of_files_gives_the_same(folder, both):
    listed = OnOffDataset.from_list(folder / "both.yaml")
    np.testing.assert_array_equal(listed.X, both.X)
    np.testing.assert_array_equal(listed.event_alpha, both.event_alpha)
    assert listed.observations.tolist() == both.observations.tolist()
    assert list(listed.files) == ["list of observations", "events of crab", "events of mrk421"]


def test_a_search_says_what_each_observation_has(both, tmp_path):
    run = detect(both, TREE)
    found = run.detections["tree"]
    frame = found.observations_frame()
    assert frame["alpha"].tolist() == [0.2, 0.5]
    assert frame["n_on"].sum() == found.counts.n_on
    assert run.record["options"]["alpha"] == {"crab": 0.2, "mrk421": 0.5}
    assert run.result()["models"]["tree"]["observations"]["crab"]["alpha"] == 0.2
    again = read_run(run.write(tmp_path / "run"))
    assert again.detections["tree"].outcomes_by_observation == found.outcomes_by_observation
    assert again.forward == run.forward
    again.write(tmp_path / "again")
    for path in (tmp_path / "run").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    rows = ModelContent("tree", found).tables["observations"].rows
    assert [row[0] for row in rows] == ["crab", "mrk421", "joint"]
    assert rows[-1][2] == f"{found.counts.significance:.2f}"
    tables = {path.name: path for path in run.write_tables(tmp_path / "tables")}
    assert pd.read_csv(tables["observations.csv"])["observation"].tolist() == ["crab", "mrk421"]


def test_a_model_is_trained_on_all(both):
    trained = train(both, OnOffForestClassifier(10, min_samples_leaf=20, random_state=0))
    share = both.event_alpha / (1 + both.event_alpha)
    assert trained.model.alpha == pytest.approx(share.mean() / (1 - share.mean()))
    assert trained.groups == [20131101, 20131102, 20131103, 20131104, 20131105]


def test_the_command_prints_a_table(folder, tmp_path, capsys):
    assert run_command("detect", folder / "both.yaml", "-m", "tree", "-o", tmp_path / "run", "-j", 1) == 0
    text = capsys.readouterr().out
    assert "Observations, by tree, pooled" in text
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("crab", "mrk421", "joint"))] == [
        "crab",
        "mrk421",
        "joint",
    ]
    assert "Table of observations" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--alpha", "0.2"), 2, "a list of observations has its own"),
        (("--source-ra", "0"), 2, "a list of observations has its own"),
    ],
)
def test_options_that_do_not_go_with_a_list(folder, tmp_path, capsys, arguments, code, message):
    assert run_command("detect", folder / "both.yaml", "-m", "tree", "-o", tmp_path / "run", *arguments) == code
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_list_goes_alone(folder, tmp_path, capsys):
    assert run_command("detect", folder / "both.yaml", folder / "crab.csv", "-o", tmp_path / "run") == 2
    assert "is a list of observations; pass no other files" in " ".join(capsys.readouterr().err.split())
    assert run_command("train", folder / "both.yaml", "--chunk-rows", 1000, "-o", tmp_path / "model") == 2
    assert "cannot be combined with a list of observations" in " ".join(capsys.readouterr().err.split())


def test_observations_that_are_refused(parts):
    crab, other = parts.values()
    with pytest.raises(ValueError, match="at least one named observation"):
        OnOffDataset.stack({})
    fewer = crab.config.model_copy(update={"features": crab.config.features[1:]})
    with pytest.raises(
        ValueError, match="'crab' and 'b' have different features: only the first has concentration_cog"
    ):
        OnOffDataset.stack({"crab": crab, "b": replace(other, config=fewer)})
    turned = crab.config.model_copy(update={"features": crab.config.features[::-1]})
    with pytest.raises(ValueError, match="'crab' and 'b' have different features: their order differs"):
        OnOffDataset.stack({"crab": crab, "b": replace(other, config=turned)})
    uncut = crab.config.model_copy(update={"quality_cuts": ()})
    with pytest.raises(ValueError, match="different quality cuts: only the first has num_pixel_in_shower >= 10"):
        OnOffDataset.stack({"crab": crab, "b": replace(other, config=uncut)})
    with pytest.raises(ValueError, match="only one of the observations 'crab' and 'b' has groups"):
        OnOffDataset.stack({"crab": crab, "b": replace(other, groups=None)})
    with pytest.raises(EventFileError, match=r"crab.csv: belongs to 'crab' and to 'b'"):
        OnOffDataset.stack({"crab": crab, "b": crab})
    with pytest.raises(ValueError, match="'all' is already stacked"):
        OnOffDataset.stack({"all": OnOffDataset.stack(parts)})


def test_groups_of_texts_and_of_numbers(parts):
    crab, other = parts.values()
    both = OnOffDataset.stack({"crab": crab, "b": replace(other, groups=other.groups.astype(str))})
    assert sorted(set(both.groups.tolist())) == ["20131101", "20131102", "20131103", "20131104", "20131105"]


def test_files_of_off_events_with_a_ratio_for_each_night(folder, tmp_path):
    rng = np.random.default_rng(0)
    columns = AnalysisConfig(features=["width", "length"], derived_features={}, quality_cuts=[])
    for name in ("on", "off"):
        table = pd.DataFrame(rng.normal(size=(40, 2)), columns=["width", "length"])
        write_events(table.assign(night=np.repeat([1, 2], 20)), tmp_path / f"{name}.csv")
    (tmp_path / "list.yaml").write_text("a: {events: on.csv, off: off.csv, alpha: {1: 0.5, 2: 1.0}}\n")
    found = OnOffDataset.from_list(tmp_path / "list.yaml", columns)
    assert sorted(set(found.event_alpha.tolist())) == [0.5, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists no observations"),
        ("- crab.csv", "must contain names and values"),
        ("crab: crab.csv", "crab: "),
        ("crab: {files: crab.csv}", "unknown key 'files'"),
        ("crab: {off: crab.csv}", "crab: events: field required"),
        ("crab: {events: []}", "crab: events"),
        ("crab: {events: a.csv, alpha: 0}", "alpha.* greater than 0"),
        ("crab: {events: a.csv, alpha: .nan}", "crab: alpha"),
        ("crab: {events: a.csv, regions: {n_region: 3}}", "unknown key 'n_region'; did you mean 'n_regions'"),
        ("crab: {events: 'no*.csv'}", r"crab: no file matches 'no\*.csv'"),
    ],
)
def test_lists_that_are_refused(tmp_path, text, message):
    path = tmp_path / "list.yaml"
    path.write_text(text)
    with pytest.raises(EventFileError, match=rf"(?s)list.yaml: .*{message}"):
        load_observation_list(path)


def test_errors_name_the_observation(tmp_path):
    (tmp_path / "list.yaml").write_text("crab: {events: none.csv}\n")
    with pytest.raises(ValueError, match=r"crab: .*none.csv: does not exist"):
        OnOffDataset.from_list(tmp_path / "list.yaml")
    with pytest.raises(EventFileError, match=r"other.yaml: does not exist"):
        OnOffDataset.from_list(tmp_path / "other.yaml")
