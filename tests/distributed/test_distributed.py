"""The same forest at any size: chunks, processes and Dask workers, and what happens when some of them are lost.

The Dask tests start a scheduler and workers as processes of their own on loopback, and stop them.
"""

import gc
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from helpers import run_command

import excess
from excess import OnOffForestClassifier
from excess._core.rng import bootstrap_weights, derive_key
from excess.cli.scale import train_at_scale
from excess.distributed import (
    Dask,
    DistributedError,
    EventFiles,
    InProcess,
    Joblib,
    apply_to_files,
    fit_forest,
    scoring,
    survey,
    train_on_files,
)
from excess.distributed.costs import LevelCost
from excess.distributed.growth import Budget, Histograms
from excess.distributed.parts import InMemory, Scored
from excess.estimators._forest import binning, ensemble, levels, predictor
from excess.events import EventFileError, load_config, read_events, write_events
from excess.observation.pipeline import observe
from excess.observation.simulation import simulate_observation
from excess.stats import score_cells

N_EVENTS = 3000
NAMES = [f"x{j}" for j in range(6)]
KINDS = {
    "shallow": {"max_depth": 5, "min_samples_leaf": 1},
    "default": {},
    "votes": {"output": "assignment", "min_samples_leaf": 20, "criterion": "li_ma"},
    "all features": {"max_features": None, "threshold": "menon", "min_samples_leaf": 5},
    "coarse": {"max_bins": 7, "n_threshold_bootstrap": 0, "min_samples_leaf": 3},
}


@pytest.fixture(scope="module")
def events():
    """Features with missing values, few values and many, and labels."""
    rng = np.random.default_rng(5)
    signal = rng.random(N_EVENTS) < 0.3
    X = rng.normal(signal[:, None] * 0.9, size=(N_EVENTS, len(NAMES)))
    X[::7, 2] = np.nan
    X[:, 3] = np.round(X[:, 3], 1)
    X[:, 4] = X[:, 4] > 0
    y = np.where(signal, rng.random(N_EVENTS) < 0.9, rng.random(N_EVENTS) < 0.4).astype(int)
    return pd.DataFrame(X, columns=NAMES), y


def forest(**parameters):
    return OnOffForestClassifier(**({"n_estimators": 8, "alpha": 2 / 3, "random_state": 3} | parameters))


def cut(events, n_chunks):
    X, y = events
    ends = np.linspace(0, len(y), n_chunks + 1).astype(int)
    return [(X.iloc[a:b], y[a:b]) for a, b in pairwise(ends)]


def bits(model, folder):
    """The model file and the out-of-bag scores."""
    model.save(Path(folder) / "model")
    return (Path(folder) / "model").read_bytes(), model.oob_decision_function_.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", [2**30, 2**16])
@pytest.mark.parametrize("n_chunks", [1, 3, 17])
def test_same_bits_from_chunks(events, tmp_path, kind, memory, n_chunks):
    estimator = forest(**KINDS[kind])
    chunked = fit_forest(estimator, cut(events, n_chunks), memory=memory)
    assert not hasattr(estimator, "threshold_")
    assert bits(chunked, tmp_path) == bits(forest(**KINDS[kind]).fit(*events), tmp_path)


def test_large_nodes_are_not_moved_when_events_are_many_times_the_memory():
    few, many = (Budget.of(2**30, InProcess(2), 4, 3, n_events) for n_events in (10**8, 10**9))
    assert few.max_moved > 10**7
    assert many.max_moved == 65_536


@pytest.mark.parametrize("max_shares", [0, 50_000])
@pytest.mark.parametrize("max_moved", [0, 50, 400])
def test_same_bits_however_many_events_are_moved(events, tmp_path, max_moved, max_shares, monkeypatch):
    monkeypatch.setattr("excess.distributed.executors._MAX_SHARES", max_shares)
    executor = InProcess(2)
    executor.max_moved = max_moved
    expected = bits(forest(min_samples_leaf=4).fit(*events), tmp_path)
    assert bits(fit_forest(forest(min_samples_leaf=4), cut(events, 3), client=executor), tmp_path) == expected


def test_same_bits_when_scores_are_counted_on_a_grid(events, tmp_path, monkeypatch):
    exact = forest(n_estimators=40).fit(*events)
    for module in (score_cells, scoring):
        monkeypatch.setattr(module, "MAX_EXACT", 500)
    monkeypatch.setattr(score_cells, "N_GRID", 64)
    gridded = forest(n_estimators=40).fit(*events)
    assert len(gridded.curve_) <= 65 < len(exact.curve_)
    assert bits(fit_forest(forest(n_estimators=40), cut(events, 4)), tmp_path) == bits(gridded, tmp_path)
    # a cut between cells is one of all cuts, and counts what that counts
    for index, threshold in enumerate(gridded.curve_.thresholds):
        assert threshold in exact.curve_.thresholds
        counts = exact.curve_.at(threshold)
        assert (counts.n_on, counts.n_off) == (gridded.curve_.n_on[index], gridded.curve_.n_off[index])
    assert gridded.threshold_ in exact.curve_.thresholds


def test_joblib_processes_give_the_same_bits(events, tmp_path):
    chunked = fit_forest(forest(), cut(events, 5), client=Joblib(2, max_moved=300))
    assert bits(chunked, tmp_path) == bits(forest().fit(*events), tmp_path)


def test_records_go_to_a_file_that_is_removed(events, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    class Watching(InProcess):
        def fold(self, fold, parts):
            seen.extend(path.stat().st_size for path in tmp_path.glob("excess-*/records"))
            return super().fold(fold, parts)

    fit_forest(forest(), cut(events, 3), client=Watching(2), memory=2**16)
    assert set(seen) == {8 * N_EVENTS}  # six features and the label fit into one word
    assert list(tmp_path.iterdir()) == []


def test_scores_can_be_left_out(events):
    model = fit_forest(forest(), cut(events, 3), oob_scores=False)
    assert not hasattr(model, "oob_decision_function_")
    assert model.threshold_ == forest().fit(*events).threshold_


@pytest.mark.parametrize("suffix", ["parquet", "hdf5"])
def test_same_bits_from_files(events, tmp_path, suffix):
    X, y = events
    paths = _write(events, tmp_path, suffix)
    chunked = fit_forest(forest(), EventFiles(paths, NAMES, "on", chunk_rows=400))
    assert bits(chunked, tmp_path) == bits(forest().fit(X, y), tmp_path)


def _write(events, folder, suffix="parquet"):
    X, y = events
    paths = []
    for number, (first, last) in enumerate([(0, 700), (700, 1900), (1900, 2000), (2000, N_EVENTS)]):
        paths.append(folder / f"{number}.{suffix}")
        write_events(X.iloc[first:last].assign(on=y[first:last]), paths[-1])
    return paths


def test_training_on_files_of_an_observation(tmp_path):
    config = load_config()
    for night in range(3):
        table = simulate_observation(60_000, 400, n_nights=1, first_night=20131101 + night, random_state=night)
        write_events(table, tmp_path / f"{night}.hdf5")
    paths = sorted(tmp_path.glob("*.hdf5"))
    observation = observe(paths, config)
    expected = forest(alpha=observation.alpha).fit(observation.frame, observation.on)
    trained = train_on_files(forest(), paths, config, chunk_rows=17_000)
    assert bits(trained.model, tmp_path) == bits(expected, tmp_path)
    assert str(trained) == str(observation)
    assert trained.groups == sorted(set(observation.groups.tolist()))

    targets = {path: tmp_path / f"scored-{path.name}" for path in paths}
    applied = apply_to_files(trained.model, config, targets, chunk_rows=10_000)
    assert [found.n_events for found in applied.values()] == [60_000] * 3
    scored = read_events(targets[paths[1]], ["gamma_prediction", "selected"])
    assert scored["selected"].sum() == applied[paths[1]].n_selected > 0


@pytest.mark.parametrize(
    ("chunks", "error", "message"),
    [
        (iter([]), TypeError, "can be read again.*got an iterator"),
        ([], ValueError, "chunks hold no events"),
        ([([[1.0], [2.0]], [0, 0])], ValueError, "one class only"),
        (
            [([[1.0], [2.0]], [0, 1]), ([[1.0, 2.0]], [1])],
            ValueError,
            "1 features.* chunk 0, 2 features.* chunk 1",
        ),
        ([([[1.0], [2.0]], [0, 1]), ([[np.inf]], [1])], ValueError, "chunks, chunk 1: Input X contains infinity"),
        ([([[1.0], [2.0]], [0, 1]), ([[1.0]], [1, 0])], ValueError, "chunk 1: X and y must have the same length"),
        ([([[1.0], [2.0]], [0, 1]), ([[1.0]], [2])], ValueError, "Only binary .* 3 labels, .* 2 in chunks, chunk 1"),
        ([(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, np.inf]}), [0, 1])], ValueError, r"infinity.*\(column 'b'\)"),
        ([(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), [0, 1])], ValueError, r"float.*\(column 'b'\)"),
        ([[[1.0], [2.0], [3.0]]], TypeError, "chunk 0: a chunk must be a pair"),
    ],
)
def test_chunks_that_are_refused(chunks, error, message):
    with pytest.raises(error, match=message):
        fit_forest(forest(), chunks)


def test_what_else_is_refused(events):
    with pytest.raises(ValueError, match="max_bins=None needs all distinct values"):
        fit_forest(forest(max_bins=None), cut(events, 2))
    with pytest.raises(TypeError, match="must be an OnOffForestClassifier, got OnOffTreeClassifier"):
        fit_forest(excess.OnOffTreeClassifier(), cut(events, 2))
    with pytest.raises(TypeError, match=r"client must be a dask.distributed.Client.*got int"):
        fit_forest(forest(), cut(events, 2), client=7)
    for address in ("nonsense", "tcp://10.0.0.1", "http://10.0.0.1:8786"):
        with pytest.raises(ValueError, match=f"'{address}' is no address of a Dask scheduler"):
            Dask(address)
    with pytest.raises(DistributedError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        Dask("tcp://127.0.0.1:9", patience=0.5)
    growing = [cut(events, 2), cut(events, 3)[:2]]

    class Shrinking:
        def __iter__(self):
            return iter(growing.pop(0))

    with pytest.raises(ValueError, match="chunks: gave 3000 events at first and 2000 when"):
        fit_forest(forest(), Shrinking())
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        InProcess(0)
    with pytest.raises(ValueError, match="max_moved must be at least 0"):
        Joblib(1, max_moved=-1)
    with pytest.raises(ValueError, match="features must name at least one column"):
        fit_forest(forest(), EventFiles("a.parquet", [], "on"))

    with pytest.raises(TypeError, match="features must be a list of columns, got the text 'x0'"):
        fit_forest(forest(), EventFiles("a.parquet", "x0", "on"))
    with pytest.raises(EventFileError, match=r"a\.parquet: was given 2 times; give every file once"):
        fit_forest(forest(), EventFiles(["a.parquet", "./a.parquet"], NAMES, "on"))

    class Collection:
        partitions = ()

    with pytest.raises(TypeError, match=r"such as EventFiles, got Collection; give the files"):
        fit_forest(forest(), Collection())


def test_files_of_an_observation_that_are_refused(tmp_path):
    table = simulate_observation(20_000, 400, n_nights=1, random_state=0)
    for name in ("a.csv", "copy.csv"):
        write_events(table, tmp_path / name)
    write_events(table.assign(width="wide"), tmp_path / "text.csv")
    paths = {name: tmp_path / f"{name}.csv" for name in ("a", "copy", "text")}
    with pytest.raises(EventFileError, match=r"copy\.csv: has the same content as .*a\.csv; give every file once"):
        train_on_files(forest(), [paths["a"], paths["copy"]], load_config())
    with pytest.raises(ValueError, match=r"text\.csv: column 'width' holds"):
        train_on_files(forest(), [paths["a"], paths["text"]], load_config())


def test_a_file_that_changes_is_noticed(events, tmp_path):
    class InPlace(InProcess):
        """Reads partitions as workers do."""

        in_place = True

        def run(self, function, arguments, tick=lambda steps: None):
            found = super().run(function, arguments, tick)
            if self.changes == function.__name__:
                write_events(events[0].iloc[:5].assign(on=events[1][:5]), tmp_path / "2.parquet")
            return found

    for changes in ("count_rows", "survey_partition"):
        files = EventFiles(_write(events, tmp_path), NAMES, "on")
        executor = InPlace(1)
        executor.changes = changes
        with pytest.raises(ValueError, match=r"2\.parquet: gave 100 events at first and 5 when read again"):
            fit_forest(forest(), files, client=executor)


def test_too_little_room_for_records(events, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("excess.distributed.executors.disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(OSError, match=f"{tmp_path}: binned events take 0.00 GB, .* free; set TMPDIR"):
        fit_forest(forest(), cut(events, 3), memory=2**16)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("max_moved", [0, 50])
def test_more_features_than_a_byte_counts(tmp_path, max_moved):
    rng = np.random.default_rng(2)
    y = rng.random(800) < 0.4
    X = rng.normal(size=(800, 300)) + y[:, None] * (np.arange(300) > 280)
    executor = InProcess(2)
    executor.max_moved = max_moved
    chunked = fit_forest(forest(), [(X[:300], y[:300]), (X[300:], y[300:])], client=executor)
    assert bits(chunked, tmp_path) == bits(forest().fit(X, y), tmp_path)


def test_surveys_of_many_files_stay_small(monkeypatch):
    monkeypatch.setattr(survey, "N_SAMPLED", 400)
    X, y = np.random.default_rng(0).random((5000, 2)), np.arange(5000) % 2
    whole = survey.Survey(9)
    whole.add(survey.CheckedChunk(X, y, None, "all"), 0)
    cutoff = survey.sample_cutoff(5000)
    parts = []
    for first in range(0, 5000, 500):
        parts.append(survey.Survey(9, cutoff))
        chunk = survey.CheckedChunk(X[first : first + 500], y[first : first + 500], None, "a part")
        parts[-1].add(chunk, first)
    assert 400 <= sum(len(part.sample) for part in parts) < 800
    merged = survey.Survey(9, cutoff)
    for part in parts[::-1]:
        merged.merge(part)
    np.testing.assert_array_equal(np.sort(merged.hashes), np.sort(whole.hashes))
    assert merged.labels == whole.labels == {0: 2500, 1: 2500}
    assert survey.sample_cutoff(500) is None


def test_edges_do_not_depend_on_chunks(events, monkeypatch):
    monkeypatch.setattr(binning, "N_SAMPLED", 500)
    monkeypatch.setattr("excess.distributed.survey.N_SAMPLED", 500)
    whole = forest(min_samples_leaf=5).fit(*events)
    for n_chunks in (2, 29):
        chunked = fit_forest(forest(min_samples_leaf=5), cut(events, n_chunks))
        for ours, theirs in zip(chunked._trees.edges, whole._trees.edges, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_histograms_of_nodes_equal_naive_counts(events):
    X, y = events[0].to_numpy(), events[1].astype(bool)
    binned = ensemble.bin_events(X, y, 255, 1)
    keys = ensemble.tree_keys(1, 3)
    settings = ensemble.GrowthSettings(3, 5, 2, 0.6, bootstrap=True)
    trees = predictor.flatten(ensemble.grow_trees(binned, keys, [0, 1, 0], settings, 1))
    wanted = np.flatnonzero(predictor.leaf_mask(trees))[1::2]
    slots = np.full(len(trees.nodes), -1, dtype=np.int32)
    slots[wanted] = np.arange(len(wanted))
    chosen = np.random.default_rng(0).integers(0, 6, (len(wanted), 3)).astype(np.uint8)
    counts = np.zeros(chosen.size * levels.WIDTH, dtype=np.int64)
    for start in (0, 1000, 1010):  # parts of the events
        end = {0: 1000, 1000: 1010, 1010: len(X)}[start]
        levels.fill_nodes(binned.codes[start:end], start, 6, *trees, 255, keys, slots, chosen, counts)
    counts = counts.reshape(len(wanted), 3, levels.WIDTH)
    leaves = ensemble.leaf_numbers(X, binned.edges, trees, 1)
    for tree in range(3):
        weights = np.empty(len(X), dtype=np.uint8)
        bootstrap_weights(np.uint64(derive_key(keys[tree], 0)), 0, weights)
        for slot, node in enumerate(wanted):
            if not trees.roots[tree] <= node < trees.roots[tree + 1]:
                continue
            here = leaves[:, tree] + trees.roots[tree] == node
            for k, feature in enumerate(chosen[slot]):
                codes = binned.codes[here, feature]
                on = np.bincount(codes, weights[here] * y[here], minlength=256).astype(np.int64)
                off = np.bincount(codes, weights[here] * ~y[here], minlength=256).astype(np.int64)
                np.testing.assert_array_equal(counts[slot, k], (on << 32) | off)


def test_resamples_do_not_depend_on_parts():
    rng = np.random.default_rng(0)
    on, score = rng.random(5000) < 0.4, np.round(rng.random(5000), 2)
    score[::11] = np.nan
    parts = [InMemory(Scored(on[a:b], score[a:b], a)) for a, b in [(0, 3), (3, 4000), (4000, 5000)]]
    scored = scoring.ScoredParts(InProcess(2), parts)
    held = ~np.isnan(score)
    whole = score_cells.EventsInMemory(on[held], score[held])
    for ours, theirs in zip(scored.cells(), whole.cells(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    cuts, keys = whole.cells().low[::3], np.arange(4, dtype=np.uint64)
    found = scored.resampled(cuts, keys)
    np.testing.assert_array_equal(found, whole.resampled(cuts, keys))
    weights = np.empty(held.sum(), dtype=np.uint8)
    bootstrap_weights(np.uint64(2), 0, weights)
    selected = (score[held] >= cuts[5]) & on[held]
    assert found[2, 5:, 1].sum() == weights[selected].sum(dtype=int)


def test_likelihood_is_the_same_in_any_order(events):
    X, y = events
    model = forest(min_samples_leaf=10).fit(X, y)
    scores = model.oob_decision_function_[:, 1]
    total, n = scoring.sum_log_likelihood(y == 1, scores)
    naive = np.log(np.maximum(np.where(y == 1, scores, 1 - scores), 1e-6))
    assert total / 2**24 / n == pytest.approx(np.nanmean(naive), abs=1e-8)
    order = np.random.default_rng(0).permutation(len(y))
    assert scoring.sum_log_likelihood(y[order] == 1, scores[order]) == (total, n)


def test_costs_are_the_sizes_of_what_is_sent(events):
    sizes = []

    class Weighing(InProcess):
        def fold(self, fold, parts):
            found = super().fold(fold, parts)
            if isinstance(fold, Histograms):
                n_slots, n_chosen = fold.chosen.shape
                cost = LevelCost(n_slots, len(fold.routes.slots), n_chosen, n_workers=3)
                assert cost.histograms == found.nbytes
                assert cost.total == 4 * cost.histograms + 4 * cost.routes
                sizes.append((len(pickle.dumps(fold)), cost.routes))
            return found

    executor = Weighing(1)
    executor.max_moved = 0
    fit_forest(forest(n_estimators=100, max_depth=6, min_samples_leaf=1), cut(events, 2), client=executor)
    assert len(sizes) == 6
    sent, expected = sizes[-1]  # the deepest level; at the root there is little but the envelope
    assert sent == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(
    ("model", "not_possible", "message"),
    [
        (excess.OnOffTreeClassifier(), {}, "must be one of forest, li-ma-forest, noisy-forest with --chunk-rows or"),
        (OnOffForestClassifier(), {"--join": [Path("a")]}, "does not go with --chunk-rows or --dask"),
    ],
)
def test_what_the_command_line_refuses(model, not_possible, message):
    with pytest.raises(typer.BadParameter, match=message):
        train_at_scale([Path("a")], load_config(), model, None, not_possible, 100, None, as_json=True)


LOOPBACK = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")


class Cluster:
    """A scheduler and workers in processes of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", self.file)
        self.workers = []
        end = time.monotonic() + 60
        while not self.file.exists() or not self.file.read_text():
            assert time.monotonic() < end, "the scheduler did not start"
            time.sleep(0.02)
        self.address = json.loads(self.file.read_text())["address"]

    def _start(self, what, *options):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *map(str, options), *LOOPBACK]
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NUMBA_NUM_THREADS": "1"})

    def add_workers(self, n, n_threads=1):
        options = (
            "--scheduler-file",
            self.file,
            "--no-nanny",
            "--nthreads",
            n_threads,
            "--local-directory",
            self.folder,
        )
        self.workers += [self._start("worker", *options) for _ in range(n)]

    def stop(self):
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait(30)


@pytest.fixture
def cluster(tmp_path):
    pytest.importorskip("distributed")
    (tmp_path / "dask").mkdir()
    running = Cluster(tmp_path / "dask")
    yield running
    running.stop()


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster.address, set_as_default=False, timeout=5) as connected:
        yield connected


def test_same_bits_on_one_two_and_four_dask_workers(events, tmp_path, cluster, client):
    files = EventFiles(_write(events, tmp_path), NAMES, "on", chunk_rows=500)
    expected = bits(forest().fit(*events), tmp_path)
    for n_new, n_workers in ((1, 1), (1, 2), (2, 4)):
        cluster.add_workers(n_new)
        client.wait_for_workers(n_workers, timeout=60)
        assert len(client.nthreads()) == n_workers
        executor = Dask(client, max_moved=500)
        assert bits(fit_forest(forest(), files, client=executor), tmp_path) == expected
        assert bits(fit_forest(forest(), cut(events, 17), client=executor), tmp_path) == expected
    assert bits(fit_forest(forest(), files, client=cluster.address), tmp_path) == expected
    assert client.status == "running"

    (tmp_path / "2.parquet").write_bytes((tmp_path / "2.parquet").read_bytes()[:-200])
    with pytest.raises(EventFileError, match=r"^on a Dask worker: .*2\.parquet: .*damaged"):
        fit_forest(forest(), files, client=client)


def test_training_and_applying_on_workers(tmp_path, cluster, client):
    cluster.add_workers(2)
    client.wait_for_workers(2, timeout=60)
    config = load_config()
    paths = [tmp_path / f"{night}.hdf5" for night in range(2)]
    for night, path in enumerate(paths):
        write_events(
            simulate_observation(20_000, 400, n_nights=1, first_night=20131101 + night, random_state=night), path
        )
    trained = train_on_files(forest(), paths, config, client=client)
    assert bits(trained.model, tmp_path) == bits(train_on_files(forest(), paths, config).model, tmp_path)
    scores = {}
    for who, number in ((client, 0), (None, 1)):
        targets = {path: tmp_path / f"{number}-{path.name}" for path in paths}
        applied = apply_to_files(trained.model, config, targets, client=who)
        scores[number] = [read_events(target, ["gamma_prediction", "selected"]) for target in targets.values()]
        assert [found.n_events for found in applied.values()] == [20_000] * 2
    for ours, theirs in zip(scores[0], scores[1], strict=True):
        pd.testing.assert_frame_equal(ours, theirs)


def test_commands_on_chunks_and_workers_write_the_same_files(tmp_path, cluster, client):
    cluster.add_workers(2)
    client.wait_for_workers(2, timeout=60)
    paths = [tmp_path / f"{night}.hdf5" for night in range(2)]
    for night, path in enumerate(paths):
        table = simulate_observation(20_000, 400, n_nights=1, first_night=20131101 + night, random_state=night)
        write_events(table, path)
    ways = {"memory": ("-j", 1), "chunks": ("--chunk-rows", 7_000), "dask": ("--dask", cluster.address)}
    for way, options in ways.items():
        assert run_command("train", *paths, "-o", tmp_path / f"{way}.excess", "--json", *options) == 0
    model = (tmp_path / "memory.excess").read_bytes()
    assert [(tmp_path / f"{way}.excess").read_bytes() == model for way in ways] == [True] * 3
    for way, options in {"memory": (), "dask": ways["dask"]}.items():
        assert run_command("apply", tmp_path / "memory.excess", *paths, "-o", tmp_path / way, *options) == 0
    for path in paths:
        ours, theirs = (read_events(tmp_path / way / path.name) for way in ("dask", "memory"))
        pd.testing.assert_frame_equal(ours, theirs)


def test_another_version_on_workers_is_refused(cluster, client, monkeypatch):
    monkeypatch.setattr(excess, "__version__", "0.0.1")
    with pytest.raises(DistributedError, match=r"Dask scheduler has excess .*, here it is 0\.0\.1; install the same"):
        Dask(client)


def test_workers_with_several_threads(events, tmp_path, cluster, client):
    cluster.add_workers(1, n_threads=3)
    client.wait_for_workers(1, timeout=60)
    executor = Dask(client, max_moved=300)
    assert (executor.n_workers, executor.n_sharing) == (3, 3)
    chunked = fit_forest(forest(), EventFiles(_write(events, tmp_path), NAMES, "on"), client=executor)
    assert bits(chunked, tmp_path) == bits(forest().fit(*events), tmp_path)


def test_errors_of_tasks_are_raised_once_and_keep_nothing(cluster, client):
    cluster.add_workers(1)
    client.wait_for_workers(1, timeout=60)
    executor = Dask(client)

    def fail(events):
        raise TimeoutError(f"no answer for {len(events)} events")

    parts = executor.place([InMemory(np.zeros(1_000_000))])
    with pytest.raises(TimeoutError, match="no answer for"):  # no error of the network, so it is not tried again
        executor.derive(fail, parts)
    del parts
    end = time.monotonic() + 20
    while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > 0:
        assert time.monotonic() < end, "events are still on the worker"
        gc.collect()
        time.sleep(0.05)


class Striking(Dask):
    """Kills a process shortly after something has begun for the nth time: a fold, a move, the making of parts."""

    def __init__(self, client, process, phase, number, delay=0.01):
        super().__init__(client, max_moved=300, patience=30)
        self.process, self.phase, self.left, self.delay = process, phase, number, delay

    def _begin(self, phase):
        self.left -= phase == self.phase
        if self.left == 0 and self.process.poll() is None and phase == self.phase:
            threading.Timer(self.delay, self.process.send_signal, [signal.SIGKILL]).start()

    def make(self, *arguments):
        self._begin("make")
        return super().make(*arguments)

    def fold(self, fold, parts):
        self._begin("fold")
        return super().fold(fold, parts)

    def move(self, *arguments):
        self._begin("move")
        yield from super().move(*arguments)

    def derive(self, *arguments):
        self._begin("derive")
        return super().derive(*arguments)


@pytest.mark.parametrize(
    ("source", "phase", "number"),
    [("files", "fold", 3), ("pairs", "fold", 3), ("files", "move", 1), ("pairs", "move", 1)],
)
def test_a_killed_worker_changes_nothing(events, tmp_path, cluster, client, source, phase, number):
    cluster.add_workers(2)
    client.wait_for_workers(2, timeout=60)
    chunks = EventFiles(_write(events, tmp_path), NAMES, "on") if source == "files" else cut(events, 6)
    expected = bits(forest().fit(*events), tmp_path)
    executor = Striking(client, cluster.workers[0], phase, number)
    assert bits(fit_forest(forest(), chunks, client=executor), tmp_path) == expected
    assert executor.left <= 0
    assert cluster.workers[0].wait(10) == -signal.SIGKILL
    assert len(client.nthreads()) == 1


@pytest.mark.filterwarnings("ignore")  # what Dask says about a connection that is gone
@pytest.mark.parametrize(("phase", "number"), [("make", 1), ("fold", 2), ("move", 1), ("derive", 1)])
def test_a_lost_scheduler_is_a_clear_error(events, tmp_path, cluster, client, phase, number):
    cluster.add_workers(1)
    client.wait_for_workers(1, timeout=60)
    executor = Striking(client, cluster.scheduler, phase, number, delay=0)
    start = time.monotonic()
    with pytest.raises(DistributedError, match=f"scheduler at {cluster.address} was lost; nothing was written"):
        fit_forest(forest(), EventFiles(_write(events, tmp_path), NAMES, "on"), client=executor)
    assert time.monotonic() - start < 60
