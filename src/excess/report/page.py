"""The page: one HTML file with a detection, its plots and all that is needed to question it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from excess import _files
from excess.detection import Detection
from excess.null_tests import NullTest
from excess.report.content import model_content
from excess.report.exploration import MAX_CELLS
from excess.significance import OnOffCounts

__all__ = ["write_report"]


def write_report(
    detection: Detection | Mapping[str, Detection],
    path: str | Path,
    *,
    forward: Any = None,
    null_test: Any = None,
    title: str | None = None,
    run: Mapping[str, Any] | None = None,
    config: str | None = None,
) -> Path:
    """Write a report as one HTML file that opens anywhere, without a network.

    The page holds binned counts and no events, so that its size does not grow with them. It needs the libraries of
    ``excess[report]``.

    Parameters
    ----------
    detection : Detection, or mapping of str to Detection
        What was found, by one model or by several; the first of them is the one that the report opens with.
    path : path
        File to write; it is written whole or not at all.
    forward : Detection, OnOffCounts or mapping of str to either, default=None
        The same search with ``strategy="forward"``, beside a pooled one.
    null_test : NullTest, or mapping of str to NullTest, default=None
        What was found where there is no source.
    title : str or None, default=None
        What was observed.
    run : mapping or None, default=None
        Parameters, versions, seed and files, as ``result.json`` holds them in ``"run"``.
    config : str or None, default=None
        The configuration as YAML.

    Returns
    -------
    Path
        The file.

    See Also
    --------
    excess.finished_run.read_results : Reads what a report needs from the folder of a run.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect, inject_label_noise
    >>> from excess.report import write_report
    >>> X, y = make_classification(2000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> found = cross_val_detect(OnOffTreeClassifier(max_depth=4, min_samples_leaf=20), X, on, alpha=1 / 5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_report(found, f"{folder}/report.html", title="Two blobs").stat().st_size < 6_000_000)
    True
    """
    detections = _by_name(detection)
    if not detections:
        raise ValueError("detection must hold at least one model, got an empty mapping")
    forwards = {name: _as_counts(one) for name, one in _by_name(forward).items()}
    tests = _by_name(null_test)
    cells = MAX_CELLS // len(detections)
    models = [
        model_content(name, found, forwards.get(name), tests.get(name), max_cells=cells)
        for name, found in detections.items()
    ]
    text = (
        _environment()
        .get_template("page.html")
        .render(
            title=title or "A search for a source",
            models=models,
            comparison=_comparison(detections, forwards, tests),
            run=dict(run or {}),
            config=config,
            data=_as_script({"models": [model.pop("data") for model in models], "compared": _compared(detections)}),
            plotly=_plotly(),
            css=_asset("page.css"),
            javascript=_asset("page.js"),
        )
    )
    target = Path(path)
    _files.write_text(target, text)
    return target


def _by_name(given: Any) -> dict[str, Any]:
    """Return what belongs to each model; a single thing belongs to a model without a name."""
    if given is None:
        return {}
    return {str(name): one for name, one in given.items()} if isinstance(given, Mapping) else {"": given}


def _as_counts(given: Any) -> OnOffCounts:
    return given.counts if isinstance(given, Detection) else given


def _comparison(
    detections: Mapping[str, Detection], forwards: Mapping[str, OnOffCounts], tests: Mapping[str, NullTest]
) -> list[dict[str, str]]:
    """Return one row per model, and one for no cut at all."""
    if len(detections) < 2:
        return []
    uncut = next(iter(detections.values())).uncut
    rows = [_row("no cut", uncut, f"{uncut.significance:.1f}")]
    for name, found in detections.items():
        spread = f" ± {found.spread:.1f}" if len(found.significances) > 1 else ""
        row = _row(name, found.counts, f"{found.significance:.1f}{spread}")
        if name in forwards:
            row["forward"] = f"{forwards[name].significance:.1f}"
        if len(found.permuted_contrasts):
            row["permutation"] = f"{found.permutation_p_value:.3g}"
        if name in tests:
            row["null"] = ", ".join(f"{value:.1f}" for value in tests[name].significances)
        rows.append(row)
    return rows


def _row(name: str, counts: OnOffCounts, significance: str) -> dict[str, str]:
    return {
        "name": name,
        "n_on": f"{counts.n_on:,.0f}",
        "n_off": f"{counts.n_off:,.0f}",
        "excess": f"{counts.excess:,.0f} ± {counts.excess_error:,.0f}",
        "significance": significance,
        "forward": "",
        "permutation": "",
        "null": "",
    }


def _compared(detections: Mapping[str, Detection]) -> dict[str, Any] | None:
    if len(detections) < 2:
        return None
    uncut = next(iter(detections.values())).uncut
    return {
        "names": ["no cut", *detections],
        "values": [uncut.significance, *(found.significance for found in detections.values())],
    }


def _as_script(value: Any) -> str:
    """Return a value as JSON that cannot end the script element which it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (files("excess.report") / "assets" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("reports need plotly: pip install 'excess[report]'") from error
    return get_plotlyjs()


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise ImportError("reports need Jinja: pip install 'excess[report]'") from error
    return Environment(
        autoescape=True, loader=FunctionLoader(_asset), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
