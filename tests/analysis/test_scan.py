"""Scans along a column and across the sky, in Python and on the command line."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from excess._utils.errors import ArgumentError
from excess.analysis import scan
from excess.cli import main
from excess.dataset import simulate_observation
from excess.estimators._tree import OnOffTreeClassifier


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    mass = np.concatenate([rng.uniform(0, 10, 1_500), rng.normal(5, 0.2, 120)])
    width = np.concatenate([rng.normal(size=1_500), rng.normal(2, 0.5, 120)])
    return pd.DataFrame({"mass": mass, "width": width, "length": rng.normal(size=len(mass))})


def test_a_peak_is_found_at_its_place(table, tmp_path):
    found = scan(table, "mass 0.5:9.5", width=1, step=1, toys=10, n_jobs=1)
    assert abs(found.best["center"] - 5) <= 0.5
    assert found.found.local > found.found.significance > 5
    assert found.table["alpha"].between(0.5, 0.7).all()
    again = scan(table, "mass 0.5:9.5", width=1, step=1, toys=10, n_jobs=2)
    np.testing.assert_array_equal(again.toys, found.toys)
    files = found.write(tmp_path / "out")
    assert [path.name for path in files] == ["scan.csv", "scan.json", "scan.png"]
    assert json.loads(files[1].read_text())["verdict"].endswith("detected.")


def test_without_a_signal_nothing_is_found(table):
    rng = np.random.default_rng(1)
    flat = table.assign(mass=rng.uniform(0, 10, len(table)))
    found = scan(flat, "mass 0:10", width=2, step=1, toys=10, n_jobs=1)
    assert found.found.p_value > 0.01
    assert "no detection" in str(found)


def test_positions_on_the_sky():
    events = simulate_observation(20_000, 300, source=(83.63, 22.01), random_state=0)
    tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=30)
    found = scan(events, source=(83.63, 22.01), radius=0.4, step=0.4, toys=10, model=tree, n_jobs=1)
    assert len(found.table) == 5
    assert (found.best["ra"], found.best["dec"]) == pytest.approx((83.63, 22.01))
    assert found.found.local > 4
    assert abs(np.mean(found.toys)) < 0.7


def test_the_command(table, tmp_path, capsys):
    table.to_csv(tmp_path / "events.csv", index=False)
    words = [
        tmp_path / "events.csv",
        "--along",
        "mass 0.5:9.5",
        "--width",
        "1",
        "--step",
        "1",
        "--toys",
        "10",
        "--json",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["scan", *map(str, words), "-o", str(tmp_path / "out")])
    assert ended.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["global"]["significance"] > 5
    assert len(pd.read_csv(tmp_path / "out" / "scan.csv")) == 7


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({}, "along"),
        ({"along": "mass"}, "along"),
        ({"along": "mass 0:4,5:9", "width": 1}, "along"),
        ({"along": "mass 0:10"}, "width"),
        ({"along": "mass 0:10", "width": 9}, "width"),
        ({"along": "mass 0:10", "width": 1, "step": 1e-5}, "step"),
        ({"along": "mass 0:10", "width": 1, "radius": 1}, "radius"),
        ({"along": "other 0:10", "width": 1}, "along"),
    ],
)
def test_wrong_arguments(table, settings, argument):
    with pytest.raises(ArgumentError) as error:
        scan(table, **settings)
    assert error.value.argument == argument


@pytest.mark.campaign
def test_global_p_values_are_uniform():
    found = []
    for seed in range(200):
        rng = np.random.default_rng([9, seed])
        column = rng.exponential(2.0, 1_500)
        column = column[column < 2.0][:400]
        events = pd.DataFrame(rng.normal(size=(len(column), 3)), columns=["width", "length", "size"])
        one = scan(events.assign(mass=column), "mass 0:2", width=0.4, step=0.2, toys=29, seed=seed)
        found.append(one.found.toys - rng.uniform(0, 1 / 30))
    assert kstest(found, "uniform").pvalue > 0.01
