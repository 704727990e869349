"""ROOT files: flat branches of one tree, in chunks, and damaged files."""

import numpy as np
import pytest

from excess.io import EventFileError, describe, iter_events, read_events

uproot = pytest.importorskip("uproot")


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(0)
    return {"mass": rng.random(1_000), "n_jets": rng.integers(0, 9, 1_000), "flag": rng.random(1_000) < 0.5}


def write(path, trees):
    with uproot.recreate(path) as file:
        for name, columns in trees.items():
            file.mktree(name, {key: np.dtype((own.dtype, own.shape[1:])) for key, own in columns.items()})
            file[name].extend(columns)
    return path


def test_flat_branches_in_chunks(events, tmp_path):
    path = write(tmp_path / "a.root", {"Events": {**events, "momentum": np.zeros((1_000, 3))}})
    found = describe(path)
    assert (found.format, found.n_events, found.columns) == ("ROOT", 1_000, ("mass", "n_jets", "flag"))
    table = read_events(path)
    for name, own in events.items():
        np.testing.assert_array_equal(table[name], own)
    assert [len(chunk) for chunk in iter_events(path, ["mass"], chunk_rows=400)] == [400, 400, 200]


def test_other_content(events, tmp_path):
    two = write(tmp_path / "two.root", {"Events": events, "Runs": events})
    with pytest.raises(EventFileError, match=r"two\.root: contains the trees Events, Runs"):
        describe(two)
    with uproot.recreate(tmp_path / "none.root") as file:
        file["histogram"] = np.histogram([1.0, 2.0])
    with pytest.raises(EventFileError, match=r"none\.root: contains no TTree, but histogram"):
        describe(tmp_path / "none.root")
    arrays = write(tmp_path / "arrays.root", {"Events": {"momentum": np.zeros((10, 3))}})
    with pytest.raises(EventFileError, match="no branch with one number"):
        describe(arrays)


def test_damaged_files(events, tmp_path):
    stored = write(tmp_path / "a.root", {"Events": events}).read_bytes()
    rng = np.random.default_rng(1)
    path = tmp_path / "damaged.root"
    for number in range(40):
        content = bytearray(stored)
        for place in rng.integers(4, len(content), 5):
            content[place] = rng.integers(256)
        path.write_bytes(content if number % 4 else content[: rng.integers(70, len(content))])
        outcome = None
        try:
            outcome = read_events(path)
        except EventFileError as error:
            outcome = str(error)
        assert "damaged.root" in outcome if isinstance(outcome, str) else len(outcome) == 1_000
