"""The report page, one HTML file with detections, figures, data, settings and versions; and files of all figures."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import FloatArray, number_groups
from excess._utils.errors import require
from excess._utils.files import prepare_folder, write_text
from excess._utils.version import versions
from excess.detection._diagnostics import assess_models
from excess.detection._histograms import FeatureHistogram, SkyMap
from excess.detection._null_test import NullTest
from excess.detection._result import Detection, Outcome, count_cuts
from excess.detection._result import models_table as compare_models
from excess.detection._simulation_check import SimulationAgreement
from excess.report import _content
from excess.report import _figures as figures
from excess.report import _series as series
from excess.report._content import MAX_MAPS, MAX_PANELS, MAX_ROWS, ModelContent, PageFigure, counts_texts, format_counts
from excess.report._style import FORMATS, GREY, OFF, ON, OTHER, with_error
from excess.stats._significance import li_ma_significance

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PLOT_FORMATS = tuple(suffix.removeprefix(".") for suffix in FORMATS)
_UNKNOWN_RUN: dict[str, Any] = {"command": None, "command_line": None, "seed": None, "options": {}, "files": []}
_MAX_IMPORTANCES = 20
MAX_BYTES = 1_000_000  # maximum size of the slider data of all models together
_MAX_STOPS, _MIN_STOPS = 250, 25
_BYTES_OF_TEXTS, _BYTES_OF_GROUP = 80, 50  # size of one slider position: its own counts, and those of each group
_COLORS = {ON: "on", OFF: "off", OTHER: "other", GREY: "muted", "#000000": "text"}  # variables of the style sheet


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
    events: pd.DataFrame | None = None,
) -> Path:
    """Write a report as one HTML file that opens offline in any browser, with binned counts and no events.

    Parameters
    ----------
    detection : Detection, or mapping of str to Detection
        Detections of one or several models; the report opens with the first one.
    path : path
        File to write atomically.
    forward : Detection, Outcome or mapping of str to either, default=None
        The same search with ``strategy="forward"``, in addition to a pooled one.
    null_test : NullTest, or mapping of str to NullTest, default=None
        Searches in the Off regions.
    no_forward : str, default=""
        Reason for a missing forward search.
    simulation : SimulationAgreement or None, default=None
        Comparison of simulated and observed events; see `simulation_agreement`.
    title : str or None, default=None
        Title of the page, such as the observed source.
    observed : mapping or None, default=None
        Numbers of read, rejected and selected events, as stored in ``result.json`` under ``"observation"``.
    run : mapping or None, default=None
        Parameters, versions, seed and files, as stored in ``result.json`` under ``"run"``.
    config : str or None, default=None
        Configuration as YAML.
    events : DataFrame or None, default=None
        One row per event; the report shows selected events by the columns ``energy`` and ``zenith``.

    Returns
    -------
    Path
        Path of the file.

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
    ...     print(write_report(found, f"{folder}/report.html", title="Two blobs").stat().st_size < 1_000_000)
    True
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent}: the output folder of {target.name} does not exist")
    detections = _by_name(detection, "detection", Detection)
    if not detections:
        raise ValueError("detection must contain at least one model, got an empty mapping")
    forwards, tests = _by_name(forward, "forward", Detection, Outcome), _by_name(null_test, "null_test", NullTest)
    for argument, named in (("forward", forwards), ("null_test", tests)):
        for name in named:
            if name not in detections:
                raise ValueError(f"{argument} has {name!r}, but detection has {', '.join(map(repr, detections))} only")
    forwards = {name: _forward_outcome(name, one, detections[name].statistic) for name, one in forwards.items()}
    if simulation is not None and not isinstance(simulation, SimulationAgreement):
        raise TypeError(f"simulation must be a SimulationAgreement, got {type(simulation).__name__}")
    verdicts = assess_models(detections, forwards, tests)
    n_models, max_rows = len(detections), min(MAX_ROWS, 4 * MAX_ROWS // len(detections))
    pooled = all(found.strategy == "pooled" for found in detections.values())
    models: list[ModelContent] = []
    for number, (name, found) in enumerate(detections.items()):
        settings = (verdicts[name], no_forward, max_rows, number, n_models)
        model = ModelContent(name, found, forwards.get(name), tests.get(name), *settings)
        _draw_figures(model)
        _draw_by_column(model, events)
        model.slider = _make_slider(model)
        model.sky = _draw_sky(model, next((one.detection.sky for one in models if one.sky), None))
        models.append(model)
    common = {"models": _models_figure(detections, pooled=pooled)} if n_models > 1 else {}
    if simulation is not None and simulation.comparisons:
        common["simulation"] = _simulation_figure(simulation)
    record = {**_UNKNOWN_RUN, "versions": versions(), **(run or {})}
    text = (
        _environment()
        .get_template("page.html")
        .render(
            title=title or "A search for a source",
            models=models,
            common=common,
            pooled=pooled,
            comparison=_content.models_table(detections, forwards, tests, pooled=pooled) if n_models > 1 else None,
            simulation=None if simulation is None else _content.simulation_content(simulation),
            observed=observed,
            run=record,
            settings=_settings(record),
            files=_content.files_table(record["files"]),
            config=config,
            data=_as_script(_script_data(title or "report", models, common)),
            css=_asset("page.css"),
            javascript=_asset("page.js"),
        )
    )
    write_text(target, text)
    return target


def _by_name(given: Any, argument: str, *kinds: type) -> dict[str, Any]:
    """Return a mapping by model names; a single object belongs to a model with an empty name."""
    if given is None:
        return {}
    named = {str(name): one for name, one in given.items()} if isinstance(given, Mapping) else {"": given}
    for one in named.values():
        if not isinstance(one, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{argument} must be a {wanted}, or a dict of such, got {type(one).__name__}")
    return named


def _forward_outcome(name: str, forward: Detection | Outcome, statistic: str) -> Outcome:
    """Return the outcome of a forward search; raise ValueError for another strategy."""
    if isinstance(forward, Detection) and forward.strategy != "forward":
        raise ValueError(f"forward must have strategy='forward', but that of {name!r} is {forward.strategy!r}")
    outcome = forward.outcome if isinstance(forward, Detection) else forward
    if outcome.statistic != statistic:
        both = f"forward has the statistic {outcome.statistic!r}, but detection has {statistic!r}"
        raise ValueError(f"{both}; declare the same one for both")
    return outcome


def _draw_figures(model: ModelContent) -> None:
    """Draw the figures of one model that have data."""
    found, null_test = model.detection, model.null_test
    drawings = {key: partial(draw, found) for key, (draw, known) in PLOTS.items() if key in _TABLES and known(found)}
    if found.features:
        # numbers as stored in a run folder, so reports of a run and of its folder are equal
        kept = tuple(FeatureHistogram.from_dict(one.to_dict()) for one in found.features)
        shown = replace(found, features=kept)
        drawings["features"] = partial(figures.plot_feature_histograms, shown, n_features=model.n_features)
    if found.importances is not None:
        drawings["importances"] = partial(figures.plot_feature_importances, found, n_features=_MAX_IMPORTANCES)
    if found.counts_by_group:
        drawings["group_excess"] = partial(figures.plot_group_excess, found)
    for key, draw in drawings.items():
        axes = draw()
        _add_figure(model, key, axes, _TABLES[key](draw.args[0], axes))
    if null_test is not None and null_test.outcomes:
        table = {"region": null_test.outcomes.keys(), "significance": null_test.significances}
        _add_figure(model, "null_test", figures.plot_null_test(null_test, detection=found), table)


def _draw_by_column(model: ModelContent, events: pd.DataFrame | None) -> None:
    """Draw selected events by energy and zenith distance, if known."""
    labels = {"energy": "reconstructed energy, in units of the files", "zenith": "zenith distance / deg"}
    for name in (name for name in labels if events is not None and name in events):
        values, logarithmic = np.asarray(events[name], dtype=np.float64), name == "energy"  # type: ignore[index]
        if (shown := series.histogram_by(model.detection, values, logarithmic=logarithmic)) is not None:
            ax = figures.plot_selected_by(model.detection, shown, labels[name], logarithmic=logarithmic)
            _add_figure(model, f"by_{name}", ax, _binned(**shown._asdict()))


def _add_figure(model: ModelContent, key: str, axes: Any, table: Any) -> None:
    """Add a figure to a model; points of the light curve have tooltips."""
    hover = []
    if key.startswith("light_curve"):
        points = table.iloc[:, :4].itertuples(index=False)
        hover = [f"{group}: {y:.2f} ({low:.2f} to {high:.2f})" for group, y, low, high in points]
    model.figures[key] = embed(f"{key}-{model.number}", axes, table, hover)


def _binned(edges: FloatArray, **columns: Any) -> pd.DataFrame:
    """Return a table of a histogram with the lower and upper edge of each bin."""
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:], **columns})


def _feature_table(found: Detection) -> pd.DataFrame:
    """Return the histograms of all features, before and after the selection."""
    stages = [
        (own, *pair) for own in series.order_features(found) for pair in (("all", own.before), ("selected", own.after))
    ]
    return pd.concat(
        [_binned(own.edges, **bins._asdict()).assign(feature=own.feature, events=name) for own, name, bins in stages]
    )


_TABLES: dict[str, Callable[[Detection, Any], Any]] = {  # data of each figure of a model, for a CSV file
    "likelihood": lambda found, _: _binned(**series.likelihood_bins(found)._asdict()),
    "light_curve": lambda found, _: series.light_curve(found).rename_axis("group").reset_index(),
    "theta_squared": lambda found, _: _binned(**series.theta_squared_histogram(found)._asdict()),
    "group_excess": lambda found, _: found.groups_frame().reset_index(),
    "light_curve_by_night": lambda found, _: series.light_curve(found, "night").rename_axis("night").reset_index(),
    "bins": lambda found, _: found.bins_frame().reset_index(),
    "features": lambda found, _: _feature_table(found),
    "scores": lambda found, _: _binned(**series.score_histogram(found)._asdict()),
    "over_time": lambda _, ax: dict(zip((ax.get_xlabel(), "significance"), ax.get_lines()[1].get_data(), strict=True)),
    "importances": lambda found, _: [
        {"feature": name, "importance": value}
        for name, value in series.largest_importances(found, _MAX_IMPORTANCES).items()
    ],
}


def _make_slider(model: ModelContent) -> dict[str, Any] | None:
    """Draw the curve above the slider, and return its positions; None if no event has a score."""
    explored = explore(model.detection, MAX_BYTES // model.n_models)
    if explored is None:
        return None
    if explored["groups"] is None and "groups" in model.tables:
        table = model.tables["groups"]
        note = f"Too many groups for the slider: numbers of the tuned cut. {table.note}"
        model.tables["groups"] = table._replace(note=note)
    ax = figures.plot_threshold_curve(model.detection)
    steps = dict(zip(("threshold", "significance"), ax.get_lines()[0].get_data(), strict=True))
    _add_figure(model, "threshold_curve", ax, steps)
    dots = locate(ax, [float(text) for text in explored["threshold"]], explored.pop("height"))
    figure: Any = ax.figure
    width = 72 * figure.get_size_inches()[0]
    margins = (100 * dots[0][0] / width, 100 - 100 * dots[-1][0] / width)
    return {"stops": {**explored, "dots": dots}, "start": start_of(model.detection, explored), "margins": margins}


def _draw_sky(model: ModelContent, shared: SkyMap | None) -> dict[str, Any] | None:
    """Return sky maps; those of all events are drawn once, because they are common to all models."""
    sky, number = model.detection.sky, model.number
    if sky is None or not sky.layers or number >= MAX_MAPS:
        return None
    written = sky.to_dict()
    sky = SkyMap.from_dict(written)  # as stored in a run folder
    kept = replace(model.detection, sky=sky)
    repeated = shared is not None and shared.to_dict()["layers"].get("all") == written["layers"].get("all")
    maps = []
    for events in (own for own in ("selected", "all") if own in sky.layers and not (repeated and own == "all")):
        for quantity, what in (("significance", "Significance"), ("excess", "Excess"), ("counts", "Number")):
            name = f"{what} of {events} events"
            ax = figures.plot_sky_map(kept, events=events, quantity=quantity)
            figure = embed(f"sky-{events}-{quantity}-{number}", ax, {})
            box = locate(ax, ax.get_xlim(), ax.get_ylim()[::-1])
            place = {"layer": f"{number} {events}", "box": [*box[0], *box[1]]}
            place |= {key: written[key] for key in ("half_width", "n_pixels")}
            maps.append({"name": name, "figure": figure, "place": place})
    shown = next(name for name in ("selected", "all") if name in sky.layers)
    values = sky.layers[shown].significance
    pixels, edges = np.histogram(values[np.isfinite(values)], 60)
    drawn = figures.plot_sky_significances(kept, events=shown)
    _add_figure(model, "sky_significances", drawn, _binned(edges, pixels=pixels))
    checks = [f"{with_error(one.mean, one.spread, '+.2f')} ({name} events)" for name, one in sky.layers.items()]
    return {
        "maps": maps,
        "repeated": repeated,
        "off": bool(len(sky.off_centers)),
        "checks": ", ".join(checks).replace("-", "−"),
        "share": f"{100 * sky.share:.3g}",
        "layers": {f"{number} {name}": layer for name, layer in written["layers"].items()},
    }


def _models_figure(detections: Mapping[str, Detection], *, pooled: bool) -> PageFigure:
    """Return the figure that compares models, with all events without a cut first."""
    table = compare_models(detections)
    values = {name: table[name].tolist() for name in ("likelihood", "cut")}
    known = {name: own for name, own in values.items() if np.isfinite(own).any()}
    names = table.index.tolist()
    return embed("models", figures.plot_models(names, known, pooled=pooled), {"model": names, **known})


def _simulation_figure(agreement: SimulationAgreement) -> PageFigure:
    """Return the figure of features of observed and simulated events, with all features as CSV."""
    names = ("observed", "observed_error", "simulated", "simulated_error")
    tables = []
    for one in agreement.comparisons:
        table = _binned(one.edges, **{name: getattr(one, name) for name in names})
        tables.append(table.assign(sample=one.sample, feature=one.feature))
    axes = figures.plot_simulation_agreement(agreement, n_features=MAX_PANELS)
    return embed("simulation", axes, pd.concat(tables))


def _settings(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the command, its options and the versions by name."""
    found: list[tuple[str, Any]] = []
    if record["command"]:
        found.append(("Command", f"excess {record['command']}"))
    options = {"Seed": record["seed"], **record["options"]}
    found += [(name, value) for name, value in options.items() if value is not None and name != "estimators"]
    return [*found, ("Versions", ", ".join(f"{name} {version}" for name, version in record["versions"].items()))]


def _script_data(title: str, models: list[ModelContent], common: dict[str, PageFigure]) -> dict[str, Any]:
    """Return the data of the page's script."""
    figures = [*common.values(), *(one for model in models for one in model.figures.values())]
    data: dict[str, Any] = {"title": title, "models": [], "layers": {}}
    data["figures"] = {one.id: {"csv": one.csv, "hover": one.hover} for one in figures}
    for model in models:
        own = {"name": model.name, "pooled": model.pooled, "tuned": model.tuned}
        data["models"].append(own | (model.slider or {}))
        for one in model.sky["maps"] if model.sky else ():
            place, layers = one["place"], model.sky["layers"] if model.sky else {}
            data["figures"][one["figure"].id] = place
            names = ("significance", "excess", "counts")
            data["layers"][place["layer"]] = {name: layers[place["layer"]][name] for name in names}
    return data


def _as_script(value: Any) -> str:
    """Return a value as JSON that cannot close its script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (files("excess.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    jinja = require("jinja2", "writing a report")
    options = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    return jinja.Environment(loader=jinja.FunctionLoader(_asset), undefined=jinja.StrictUndefined, **options)


def embed(name: str, axes: Axes | list[Axes], table: Any, hover: Sequence[str] = ()) -> PageFigure:
    """Return a figure for the page; ``hover`` are tooltips for the points of its last line."""
    ax = axes[0] if isinstance(axes, list) else axes
    svg = _as_svg(ax.figure, name)
    places = locate(ax, *ax.get_lines()[-1].get_data()) if hover else []
    points = [[*place, text] for place, text in zip(places, hover, strict=True)]
    return PageFigure(name, svg, pd.DataFrame(table).to_csv(index=False, float_format="%.6g"), points)


def _as_svg(figure: Any, name: str) -> str:
    """Return a figure as an SVG element: text as text, colours as variables, and identifiers with a name as prefix."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    for part in (figure, *figure.axes):
        part.patch.set_visible(False)
    figure.set_dpi(72)  # figure coordinates are then those of the SVG
    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "excess", "font.sans-serif": ["DejaVu Sans"]}):
        FigureCanvasSVG(figure).print_svg(text)
    content = text.getvalue().split("</metadata>", 1)[1].split("</defs>", 1)[1].rsplit("</svg>", 1)[0]
    content = re.sub(r"\s*\n\s*", "", content)
    used = "|".join(sorted(set(re.findall(r'(?:url\(|href=")#([^)"]+)', content)))) or "none"
    content = re.sub(rf' id="(?!(?:{used})")[^"]*"', "", content)
    content = re.sub(rf'(?<=id=")(?=(?:{used})")|(?<=[("]#)(?=(?:{used})[)"])', f"{name}-", content)
    parts = re.split(r"(>[^<>]+</t)", content)  # text between tags is not changed
    for number in range(0, len(parts), 2):
        parts[number] = re.sub(r"(?<=\.\d\d\d)\d+", "", parts[number])
        for color, variable in _COLORS.items():
            parts[number] = parts[number].replace(color, f"var(--{variable}, {color})")
    width, height = figure.get_size_inches() * 72
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    look = f"--size: {width:g}px; fill: var(--text, #000000); stroke-linejoin: round"
    return f'<svg {spaces} viewBox="0 0 {width:g} {height:g}" style="{look}">{"".join(parts)}</svg>'


def locate(ax: Axes, x: Any, y: Any) -> list[list[float]]:
    """Return points of an embedded figure in the coordinates of its SVG."""
    figure: Any = ax.figure
    points = ax.transData.transform(np.column_stack([x, y]))
    points[:, 1] = figure.get_size_inches()[1] * 72 - points[:, 1]
    return points.round(1).tolist()


def stops_of(score: FloatArray, max_stops: int = _MAX_STOPS) -> tuple[list[str], FloatArray]:
    """Return thresholds in round steps that cover the scores, as text and as the equal numbers."""
    low, high = np.quantile(score, [0.001, 0.9999], method="inverted_cdf").tolist()
    if high <= low:
        high = low = float(low)
        step = 10.0 ** math.floor(math.log10(max(abs(low), 1e-6))) / 10
    else:
        rough = (high - low) / max_stops
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.floor(low / step - 1e-9) - 1, math.ceil(high / step + 1e-9)
    texts = [f"{number * step:.{digits}f}" for number in range(first, last + 1)]
    texts = list(dict.fromkeys(text if float(text) else text.lstrip("-") for text in texts))
    return texts, np.array([float(text) for text in texts])


def explore(detection: Detection, max_bytes: int = MAX_BYTES) -> dict[str, Any] | None:
    """Return the counts of hold-out events at each slider position, with a common threshold for all folds."""
    known = series.has_score(detection)
    if not known.any():
        return None
    score, on = detection.score[known], detection.on[known]
    alpha = series.alpha_of(detection, np.flatnonzero(known))
    n_groups, group = 0, np.zeros(len(on), dtype=np.intp)
    if detection.groups is not None:
        time = None if detection.time is None else detection.time[detection.held_out]
        names, number = number_groups(detection.groups[detection.held_out], time)
        n_groups, group = len(names), number[known[detection.held_out]]
    n_wanted = max_bytes // (_BYTES_OF_TEXTS + _BYTES_OF_GROUP * n_groups)
    follows = n_groups > 0 and n_wanted >= _MIN_STOPS
    if not follows:
        n_wanted = max(max_bytes // _BYTES_OF_TEXTS, _MIN_STOPS)
    texts, thresholds = stops_of(score, min(n_wanted, _MAX_STOPS))
    # an event is selected at all positions before the first that its score does not exceed
    n_passed = np.searchsorted(thresholds, score, side="left")
    found, height = _count_at_stops(on, n_passed, alpha, len(texts))
    content: dict[str, Any] = {"threshold": texts, **found, "height": height, "groups": None}
    if follows:
        content["groups"] = []
        for own in (group == number for number in range(n_groups)):
            ratio = alpha[own] if isinstance(alpha, np.ndarray) else alpha
            content["groups"].append(_count_at_stops(on[own], n_passed[own], ratio, len(texts))[0])
    return content


def _count_at_stops(
    on: NDArray[np.bool_], n_passed: NDArray[np.intp], alpha: FloatArray | float, n_stops: int
) -> tuple[dict[str, list[str]], FloatArray]:
    """Return the counts at each slider position, of which each event passes the first, as text, and significances."""
    if isinstance(alpha, np.ndarray):
        counts = count_cuts(on, n_passed, alpha, n_stops)
        return counts_texts(counts), np.array([one.significance for one in counts])
    passed = (np.bincount(n_passed[own], minlength=n_stops + 1) for own in (on, ~on))
    n_on, n_off = (numbers[::-1].cumsum()[::-1][1:].astype(np.float64) for numbers in passed)
    significance = np.asarray(li_ma_significance(n_on, n_off, alpha, signed=True))
    error = np.sqrt(n_on + alpha**2 * n_off)
    return format_counts(n_on, n_off, n_on - alpha * n_off, error, significance), significance


def start_of(detection: Detection, explored: dict[str, Any]) -> int:
    """Return the initial slider position: the closest to the median of the tuned thresholds."""
    known = np.sort(detection.thresholds[np.isfinite(detection.thresholds)])
    if len(known) == 0:
        return 0
    stops = np.array([float(text) for text in explored["threshold"]])
    return int(np.abs(stops - known[(len(known) - 1) // 2]).argmin())


PLOTS: dict[str, tuple[Callable[..., Any], Callable[[Detection], bool]]] = {  # by file name, and whether it has data
    "theta_squared": (figures.plot_theta_squared, series.has_angles),
    "scores": (figures.plot_score_histogram, lambda found: bool(series.has_score(found).any())),
    "threshold_curve": (figures.plot_threshold_curve, lambda found: bool(series.has_score(found).any())),
    "likelihood": (figures.plot_likelihood, lambda found: found.ratio is not None and bool(found.held_out.any())),
    "light_curve": (figures.plot_light_curve, series.has_light_curve),
    "over_time": (figures.plot_significance_over_time, lambda found: bool(found.held_out.any())),
    "importances": (figures.plot_feature_importances, lambda found: found.importances is not None),
    "features": (partial(figures.plot_feature_histograms, n_features=40), lambda found: bool(found.features)),
    "light_curve_by_night": (
        partial(figures.plot_light_curve, by="night"),
        partial(series.has_light_curve, by="night"),
    ),
    "sky_map": (figures.plot_sky_map, lambda found: found.sky is not None and "selected" in found.sky.layers),
    "sky_map_all": (partial(figures.plot_sky_map, events="all"), lambda found: found.sky is not None),
    "bins": (figures.plot_bins, lambda found: found.bins is not None),
}


def write_plots(
    detections: Mapping[str, Detection],
    folder: Path,
    suffix: str,
    *,
    null_tests: Mapping[str, NullTest] | None = None,
    simulation: SimulationAgreement | None = None,
) -> list[Path]:
    """Write the plots of all models; those without data are skipped.

    Parameters
    ----------
    detections : mapping of str to Detection
        Detection of each model.
    folder : Path
        Output folder; it is created if necessary.
    suffix : {"png", "pdf", "svg"}
        Format of the files.
    null_tests : mapping of str to NullTest, default=None
        Searches in the Off regions.
    simulation : SimulationAgreement or None, default=None
        Comparison of simulated and observed events.

    Returns
    -------
    list of Path
        Paths of the files, named by model and plot.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, cross_val_detect
    >>> from excess.report import write_plots
    >>> X, on = make_classification(600, weights=[0.8], random_state=0)
    >>> found = cross_val_detect({"tree": OnOffTreeClassifier(max_depth=3)}, X, on, alpha=1 / 5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(*(path.name for path in write_plots(found, Path(folder), "svg")))
    tree_scores.svg tree_threshold_curve.svg tree_likelihood.svg tree_over_time.svg tree_importances.svg
    """
    if suffix not in PLOT_FORMATS:
        raise ValueError(f"suffix must be one of {', '.join(PLOT_FORMATS)}, got {suffix!r}")
    written = []
    prepare_folder(folder)
    for name, detection in detections.items():
        wanted = {plot: partial(draw, detection) for plot, (draw, known) in PLOTS.items() if known(detection)}
        if null_tests is not None and name in null_tests:
            wanted["null_test"] = partial(figures.plot_null_test, null_tests[name], detection=detection)
        for plot, draw in wanted.items():
            valid = re.sub(r"[^\w.-]", "_", name.lstrip("./"))  # the name of a model may be a path
            written.append(folder / f"{valid}_{plot}.{suffix}")
            draw(path=written[-1])
    if simulation is not None and simulation.comparisons:
        written.append(folder / f"simulation_check.{suffix}")
        figures.plot_simulation_agreement(simulation, n_features=8, path=written[-1])
    return written
