"""The commands on chunks and on Dask workers."""

from pathlib import Path

import pandas as pd
import pytest
import typer
from excess.cli.scale import train_at_scale
from helpers import run_command, write_nights

import excess
from excess import OnOffForestClassifier
from excess.events import load_config, read_events

pytest.importorskip("h5py")


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
