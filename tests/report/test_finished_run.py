"""Reports of finished runs, written again from the files of their folders."""

import json

import numpy as np
import pytest
from helpers import run_command

from excess.analysis import read_run
from excess.dataset import simulate_observation
from excess.io import EventFileError

SCRIPT = "<script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def table():
    return simulate_observation(20_000, 300, random_state=2)


@pytest.mark.slow
def test_report_of_a_finished_run_is_that_of_the_run(table, tmp_path, capsys):
    folder = tmp_path / "run"
    table.to_csv(tmp_path / "events.csv", index=False)
    options = ("-m", "tree", "--null-test", "--permutations", 9)
    assert run_command("detect", tmp_path / "events.csv", "-o", folder, *options) == 0
    written = (folder / "report.html").read_bytes()
    assert run_command("report", folder, "-o", tmp_path / "again.html", "--plots", "svg") == 0
    assert (tmp_path / "again.html").read_bytes() == written
    assert {path.suffix for path in (tmp_path / "plots").iterdir()} == {".svg"}
    assert run_command("report", folder, "--title", SCRIPT) == 0
    assert SCRIPT not in (folder / "report.html").read_text(encoding="utf-8")
    finished = read_run(folder)
    numbers = json.loads((folder / "result.json").read_text())["models"]
    for name, detection in finished.detections.items():
        assert detection.significance == numbers[name]["significance"]
    capsys.readouterr()
    assert run_command("report", tmp_path) == 1
    assert "no result.json" in capsys.readouterr().err


@pytest.mark.slow
def test_damaged_runs_are_refused(table, tmp_path):
    table.to_csv(tmp_path / "events.csv", index=False)
    folder = tmp_path / "run"
    assert run_command("detect", tmp_path / "events.csv", "-o", folder, "-m", "tree", "--json") == 0
    read_run(folder)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = json.loads(whole["result.json"])
    other_seed = {**result, "run": {**result["run"], "seed": 1}}
    for name, damage in {
        "events.parquet": whole["events.parquet"][:-1000],
        "nearby.parquet": b"",
        "config.yaml": b"{}",
        "result.json": json.dumps(other_seed).encode(),
    }.items():
        (folder / name).write_bytes(damage)
        with pytest.raises(EventFileError, match="cannot be read as those of one run"):
            read_run(folder)
        (folder / name).write_bytes(whole[name])
    read_run(folder)


def test_groups_are_read_as_they_were(table, tmp_path):
    """Texts that look like numbers or missing values stay texts; nearby events without a group are no matter."""
    thetas = [name for name in table if name.startswith("theta_deg")]
    sessions = np.array(["007", "NA", "08"], dtype=object)[np.arange(len(table)) % 3]
    sessions[(table[thetas] ** 2 > 0.05).all(axis=1)] = None
    path = tmp_path / "events.parquet"
    table.assign(session=sessions).to_parquet(path)
    assert run_command("detect", path, "-o", tmp_path / "run", "-m", "tree", "--groups", "session", "--json") == 0
    found = read_run(tmp_path / "run").detections["tree"]
    assert set(found.groups) == {"007", "NA", "08"}
    assert np.isfinite(found.nearby.score).all()


def test_files_that_hold_nothing_but_regions(table, tmp_path):
    thetas = [name for name in table if name.startswith("theta_deg")]
    table[(table[thetas] ** 2 < 0.025).any(axis=1)].to_csv(tmp_path / "inside.csv", index=False)
    for more in ((), ("--groups", "none")):
        folder = tmp_path / f"run{len(more)}"
        assert run_command("detect", tmp_path / "inside.csv", "-o", folder, "-m", "tree", *more, "--json") == 0
        assert "The θ² plot ends at the cut" in (folder / "report.html").read_text(encoding="utf-8")


def test_forward_without_groups_goes_by_time_or_draws_blocks(table, tmp_path, capsys):
    on = table["theta_deg"] ** 2 < 0.025
    off = (table[[f"theta_deg_off_{k}" for k in range(1, 6)]] ** 2 < 0.025).any(axis=1) & ~on
    for timed in (True, False):
        for name, part in (("on", table[on]), ("off", table[off])):
            (part if timed else part.drop(columns="unix_time")).to_csv(tmp_path / f"{name}.csv", index=False)
        arguments = ("--off", tmp_path / "off.csv", "--alpha", 0.2, "--groups", "none", "-m", "tree", "--json")
        arguments = (*arguments, "--overwrite")
        capsys.readouterr()
        assert run_command("detect", tmp_path / "on.csv", "-o", tmp_path / "run", *arguments) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["models"]["tree"]["forward"]["significance"] > 5
        assert found["no_forward"] == ""
