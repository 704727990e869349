"""The commands on chunks and on Dask workers."""

import pandas as pd
import pytest
from helpers import run_command, write_nights

from excess.io import read_events

pytest.importorskip("h5py")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-m", "tree"), "--model: must be one of forest, li-ma-forest"),
        (("--join", "a"), "--join: cannot be combined with --chunk-rows or --dask"),
    ],
)
def test_what_the_command_line_refuses(tmp_path, capsys, options, message):
    assert run_command("train", "a", "-o", tmp_path / "model", "--chunk-rows", 100, *options) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("address", "code", "message"),
    [
        ("nonsense", 2, "--dask: 'nonsense' is not the address of a scheduler"),
        ("tls://127.0.0.1:8786", 1, "excess: no Dask scheduler answers at 'tls://127.0.0.1:8786'"),
    ],
)
def test_addresses_of_no_scheduler_are_one_sentence(tmp_path, capsys, address, code, message):
    pytest.importorskip("distributed")
    paths = write_nights(tmp_path, 1, 2_000)
    assert run_command("train", *paths, "-o", tmp_path / "model", "--dask", address) == code
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not (tmp_path / "model").exists()


def test_commands_on_chunks_and_workers_write_the_same_files(tmp_path, shared_cluster, shared_client):
    paths = write_nights(tmp_path, 2, 20_000)
    ways = {"memory": ("-j", 1), "chunks": ("--chunk-rows", 7_000), "dask": ("--dask", shared_cluster.address)}
    for way, options in ways.items():
        assert run_command("train", *paths, "-o", tmp_path / f"{way}.excess", "--json", *options) == 0
    model = (tmp_path / "memory.excess").read_bytes()
    assert [(tmp_path / f"{way}.excess").read_bytes() == model for way in ways] == [True] * 3
    for way, options in {"memory": (), "dask": ways["dask"]}.items():
        assert run_command("apply", tmp_path / "memory.excess", *paths, "-o", tmp_path / way, *options) == 0
    for path in paths:
        ours, theirs = (read_events(tmp_path / way / path.name) for way in ("dask", "memory"))
        pd.testing.assert_frame_equal(ours, theirs)
