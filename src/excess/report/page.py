"""The page: one HTML file with a detection, its plots, and the data, settings and versions behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from excess._core.errors import require
from excess._core.files import write_text
from excess._core.version import versions
from excess.report.content import MAX_ROWS, model_content
from excess.report.exploration import MAX_BYTES
from excess.report.numbers import null_texts
from excess.report.references import simulation_content
from excess.stats.counts import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest
from excess.validation.outcome import Outcome
from excess.validation.simulation_agreement import SimulationAgreement
from excess.validation.verdict import judge_all

__all__ = ["write_report"]

_SCRIPTS = ("layout.js", "plots.js", "field_plots.js", "tables.js", "downloads.js", "page.js")
"""Parts of the script, in their order."""
_UNKNOWN_RUN: dict[str, Any] = {"command": None, "seed": None, "options": {}, "files": []}


def write_report(
    detection: Detection | Mapping[str, Detection],
    path: str | Path,
    *,
    forward: Any = None,
    null_test: Any = None,
    no_forward: str = "",
    simulation: SimulationAgreement | None = None,
    title: str | None = None,
    observed: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
    config: str | None = None,
) -> Path:
    """Write a report as one HTML file that opens in any browser, without a network.

    The page holds binned counts and no events, so its size does not depend on their number.

    Parameters
    ----------
    detection : Detection, or mapping of str to Detection
        Detections of one model or of several; the report opens with the first of them.
    path : path
        File to write; it is written completely or not at all.
    forward : Detection, Outcome or mapping of str to either, default=None
        The same search with ``strategy="forward"``, to show with a pooled one.
    null_test : NullTest, or mapping of str to NullTest, default=None
        Searches in the Off regions, where there is no source.
    no_forward : str, default=""
        Why there is no forward search.
    simulation : SimulationAgreement or None, default=None
        Where simulated events differ from observed ones; see `simulation_agreement`.
    title : str or None, default=None
        What was observed.
    observed : mapping or None, default=None
        Numbers of events that were read, cut away and kept, as ``result.json`` holds them in ``"observation"``.
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
    excess.analysis.read_run : Reads a run from its folder; its ``report`` method calls this function.

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
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent}: there is no such folder to write {target.name} to")
    detections = _by_name(detection, "detection", Detection)
    if not detections:
        raise ValueError("detection must hold at least one model, got an empty mapping")
    given = _by_name(forward, "forward", Detection, Outcome)
    for name, one in given.items():
        if isinstance(one, Detection) and one.strategy != "forward":
            raise ValueError(
                f"forward must be a search with strategy='forward', because its value is the one to quote; that of "
                f"{name!r} is {one.strategy!r}"
            )
    forwards = {name: one.outcome if isinstance(one, Detection) else one for name, one in given.items()}
    tests = _by_name(null_test, "null_test", NullTest)
    for argument, named in (("forward", forwards), ("null_test", tests)):
        for name in named:
            if name not in detections:
                raise ValueError(f"{argument} has {name!r}, but detection has {', '.join(map(repr, detections))} only")
    for name, outcome in forwards.items():
        if outcome.statistic != detections[name].statistic:
            raise ValueError(
                f"forward has the statistic {outcome.statistic!r}, but detection has {detections[name].statistic!r}; "
                "declare the same one for both"
            )
    verdicts = judge_all(detections, forwards, tests)
    max_bytes, max_rows = MAX_BYTES // len(detections), min(MAX_ROWS, 4 * MAX_ROWS // len(detections))
    limits: Any = {
        "no_forward": no_forward,
        "max_bytes": max_bytes,
        "max_rows": max_rows,
        "n_models": len(detections),
    }
    models = [
        model_content(name, found, forwards.get(name), tests.get(name), verdict=verdicts[name], number=number, **limits)
        for number, (name, found) in enumerate(detections.items())
    ]
    if simulation is not None and not isinstance(simulation, SimulationAgreement):
        raise TypeError(f"simulation must be a SimulationAgreement, got {type(simulation).__name__}")
    checked = None if simulation is None else simulation_content(simulation)
    data: dict[str, Any] = {"models": [model.pop("data") for model in models]}
    data["compared"] = _comparison_bars(detections)
    data["panels"] = [] if checked is None else checked.pop("panels")
    data["title"] = title or "report"
    data["sky"] = _shared_layer(data["models"])
    page = _environment().get_template("page.html")
    text = page.render(
        title=title or "A search for a source",
        models=models,
        comparison=_comparison_rows(detections, forwards, tests),
        simulation=checked,
        observed=observed,
        run={**_UNKNOWN_RUN, "versions": versions(), **(run or {})},
        max_rows=MAX_ROWS,
        config=config,
        data=_as_script(data),
        plotly=require("plotly.offline", "writing a report").get_plotlyjs(),
        css=_asset("page.css"),
        javascript=_script(),
    )
    write_text(target, text)
    return target


def _by_name(given: Any, argument: str, *kinds: type) -> dict[str, Any]:
    """Return a mapping from the names of models; a single object belongs to a model with an empty name."""
    if given is None:
        return {}
    named = {str(name): one for name, one in given.items()} if isinstance(given, Mapping) else {"": given}
    for one in named.values():
        if not isinstance(one, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{argument} must be a {wanted}, or a dict of such, got {type(one).__name__}")
    return named


def _comparison_rows(
    detections: Mapping[str, Detection], forwards: Mapping[str, Outcome], tests: Mapping[str, NullTest]
) -> list[dict[str, str]]:
    """Return one row per model, and one for all events without a cut."""
    if len(detections) < 2:
        return []
    rows = [_row("no cut", uncut, cut=f"{uncut.significance:.1f}") for uncut in _uncut(detections)]
    for name, found in detections.items():
        more = {}
        for statistic, value in found.outcome.significances.items():
            if np.isnan(value):
                continue
            repeats = found.repeats[statistic]
            spread = f" ± {repeats.std(ddof=1):.1f}" if len(repeats) > 1 else ""
            more[statistic] = f"{value:.1f}{spread}"
            if name in forwards:
                more[f"{statistic}_forward"] = f"{forwards[name].significances[statistic]:.1f}"
        if found.likelihood is not None:
            more["signal"] = f"{found.likelihood.n_signal:,.0f} ± {found.likelihood.n_signal_error:,.0f}"
        if found.n_permutations:
            more["permutation"] = f"{found.permutation_p_value:.3g}"
        if name in tests:
            more["null"] = ", ".join(null_texts(tests[name], found.statistic))
        rows.append(_row(name, found.counts, **more))
    return rows


def _row(name: str, counts: OnOffCounts, **more: str) -> dict[str, str]:
    columns = ("likelihood", "likelihood_forward", "cut", "cut_forward", "signal", "permutation", "null")
    return {
        "name": name,
        "n_on": f"{counts.n_on:,.0f}",
        "n_off": f"{counts.n_off:,.0f}",
        "excess": f"{counts.excess:,.0f} ± {counts.excess_error:,.0f}",
        **dict.fromkeys(columns, ""),
        **more,
    }


def _comparison_bars(detections: Mapping[str, Detection]) -> dict[str, Any] | None:
    """Return the bars of the plot that compares models: one for each statistic, None where there is no likelihood."""
    if len(detections) < 2:
        return None
    uncut = [counts.significance for counts in _uncut(detections)]
    found = [one.outcome.significances for one in detections.values()]
    likelihoods = [None if np.isnan(one["likelihood"]) else one["likelihood"] for one in found]
    return {
        "names": [*("no cut" for _ in uncut), *detections],
        "cut": [*uncut, *(one["cut"] for one in found)],
        "likelihood": [*(None for _ in uncut), *likelihoods] if any(one is not None for one in likelihoods) else None,
        "n_uncut": len(uncut),
    }


def _uncut(detections: Mapping[str, Detection]) -> list[OnOffCounts]:
    """Return the counts without a cut if they are the same for all models, that is, of the same events."""
    found = {(one.uncut.n_on, one.uncut.n_off): one.uncut for one in detections.values()}
    return list(found.values()) if len(found) == 1 else []


def _as_script(value: Any) -> str:
    """Return a value as JSON that cannot end its script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shared_layer(models: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Take the map of all events out of the data of the models, if it is the same for all, so that it is there once."""
    layers = [model["sky"]["layers"] for model in models if model["sky"] is not None]
    if not layers or any("all" not in own or own["all"] != layers[0]["all"] for own in layers):
        return None
    shared = layers[0]["all"]
    for model in models:
        if model["sky"] is not None:
            model["sky"] = {
                **model["sky"],
                "layers": {name: layer for name, layer in model["sky"]["layers"].items() if name != "all"},
            }
    return dict(shared)


def _script() -> str:
    """Return the script of the page: files that share their names, and nobody else sees them."""
    parts = "\n".join(_asset(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def _asset(name: str) -> str:
    return (files("excess.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    jinja = require("jinja2", "writing a report")
    options = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    return jinja.Environment(loader=jinja.FunctionLoader(_asset), undefined=jinja.StrictUndefined, **options)
