"""The command ``excess export``: a model for other software."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.options import Json, Overwrite
from excess.cli.printing import print_json, say

__all__ = ["export"]


def export(
    model: Annotated[Path, typer.Argument(help="Model file of 'excess train'.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="ONNX file to write.")],
    float32: Annotated[
        bool, typer.Option("--float32", help="Let the model take features as float32 in place of float64.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Export a model to ONNX, to be applied by other software: score, probability of signal and selection."""
    with exit_at_interrupts():
        from excess.analysis import load_model

    trained = load_model(model)
    precision = "float32" if float32 else "float64"
    written = trained.export_onnx(output, precision=precision, overwrite=overwrite)
    features, n_bytes = trained.config.features, written.stat().st_size
    say(f"{written}: {n_bytes:,} bytes; takes {len(features)} features as {precision}", as_json)
    if as_json:
        found = {"precision": precision, "features": features, "threshold": trained.model.threshold_}
        print_json({"path": str(written), "n_bytes": n_bytes, **found})
