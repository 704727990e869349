"""The page in a real browser: slider, hover, tabs, tables, downloads, print, and its layout."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from visit import Visit, counts_at

from excess.detection._result import DetectionBins, Exposure, Outcome
from excess.report import write_report
from excess.report._content import counts_text
from excess.report._page import stops_of
from excess.report._series import light_curve
from excess.stats._direction import PointSpread
from excess.stats._significance import OnOffCounts

pytestmark = pytest.mark.slow

BOXES = Path(__file__).with_name("boxes.js").read_text(encoding="utf-8")
OF_ONE_MODEL = {
    *("likelihood", "light_curve", "threshold_curve", "theta_squared", "group_excess"),
    *("sky-selected-significance", "sky_significances", "features", "scores", "over_time", "importances", "null_test"),
}


@pytest.fixture(scope="module")
def full(detections, hybrid, agreement, tests_of_null, tmp_path_factory):
    """A page with everything on it, and with names that are long."""
    names = tuple(f"photoncharge_shower_variance_{i}" for i in range(22))
    outcomes = tuple(Outcome(OnOffCounts(20 + n, 40, 0.2), None, "cut") for n in range(4))
    notes = ("borrows events from the next bin, because it has too few of its own", "", "", "")
    bins = DetectionBins("energy", (float("-inf"), 0.5, 4.0, 8.0, float("inf")), outcomes, notes)
    features = [replace(one, feature=name) for one, name in zip(detections["forest"].features, names, strict=True)]
    spread = replace(PointSpread.expected(0.025), n_events=1000)
    found = replace(detections["forest"], feature_names=names, features=tuple(features), bins=bins, point_spread=spread)
    run = {"files": [{"path": f"/data/2013/11/{i}_dl3.hdf5", "bytes": 10**6, "sha256": "0f" * 32} for i in range(125)]}
    path = tmp_path_factory.mktemp("full") / "report.html"
    models = {"forest": found, "a hybrid with a long name": replace(hybrid, features=None)}
    random = np.random.default_rng(0)
    events = pd.DataFrame({name: random.lognormal(size=len(found.on)) for name in ("energy", "zenith")})
    options = {"simulation": agreement, "title": "Crab", "run": run, "config": "features: [width]", "events": events}
    run["command_line"] = "excess detect crab.hdf5 --source Crab -o crab"
    header = {"Source": "Crab", "Dates (UTC)": "2013-11-01 to 2013-11-06", "Live time": "17.92 h", "Runs": "215"}
    options["observed"] = {"header": header, **dict.fromkeys(("n_read", "n_outside", "n_cut", "n_on", "n_off"), 1000)}
    return write_report(models, path, null_test={"forest": tests_of_null["forest"]}, **options)


def test_the_page_opens_without_a_network_and_without_errors(browser, report, detections):
    with Visit(browser, report) as visit:
        assert visit.requests == [report.resolve().as_uri()]
        assert visit.live() == counts_text(detections["forest"].counts)
        assert set(visit.figures()) == OF_ONE_MODEL | {"models"}
        assert min(visit.figures().values()) > 300
        script = "[...document.querySelectorAll('input, button')].every(n => n.ariaLabel || n.textContent)"
        assert visit.page.evaluate(script)
        sizes = visit.page.evaluate(
            """() => [...document.querySelectorAll('article.chosen :is(p, dd, strong), h1, h2')]
                .filter(node => node.offsetParent)
                .map(node => [parseFloat(getComputedStyle(node).fontSize), node.innerText.trim()])"""
        )
        (largest, text), (next_largest, _) = sorted(sizes, reverse=True)[:2]
        assert text.split("\n") == ["9.9 σ", "forward: the one to quote"]
        assert largest > 1.5 * next_largest


def test_slider_shows_what_python_computes(browser, report, detections):
    detection = detections["forest"]
    with Visit(browser, report) as visit:
        visit.slider.focus()
        for key, times in (
            ("ArrowRight", 9),
            ("PageUp", 1),
            ("ArrowLeft", 13),
            ("Home", 1),
            ("End", 1),
            ("ArrowLeft", 30),
        ):
            for _ in range(times):
                visit.page.keyboard.press(key)
            threshold = float(visit.text("threshold"))
            assert visit.live() == counts_text(counts_at(detection, threshold))
            assert visit.text("state") == "Exploration"
        for row, night in zip(visit.table(), detection.counts_by_group, strict=True):
            texts = counts_text(counts_at(detection, threshold, detection.groups == night))
            excess = texts["excess"]
            assert row[:5] == [str(night), texts["significance"], texts["n_on"], texts["n_off"], excess]
        # the dot is on the curve, above the handle of the slider
        dot = visit.page.locator("article.chosen .dot").bounding_box()
        handle = visit.slider.evaluate(
            "n => n.getBoundingClientRect().left + 8 + n.value / n.max * (n.offsetWidth - 16)"
        )
        assert dot["x"] + dot["width"] / 2 == pytest.approx(handle, abs=3)
        visit.page.get_by_role("button", name="Back to the tuned cut").click()
        assert visit.live() == counts_text(detection.counts)
        assert visit.text("state") == "Tuned cut"
        assert visit.page.locator(".dot").count() == 0
        # by mouse, and by a click into the curve
        visit.slider.scroll_into_view_if_needed()
        box = visit.slider.bounding_box()
        visit.page.mouse.click(box["x"] + 0.62 * box["width"], box["y"] + box["height"] / 2)
        stops, _ = stops_of(detection.score)
        assert stops.index(visit.text("threshold")) / len(stops) == pytest.approx(0.62, abs=0.03)
        curve = visit.page.locator("article.chosen [id^=threshold_curve] svg").bounding_box()
        visit.page.mouse.click(handle, curve["y"] + curve["height"] / 2)
        assert float(visit.text("threshold")) == pytest.approx(threshold)
        assert visit.live() == counts_text(counts_at(detection, threshold))
        # models are tabs
        visit.page.get_by_role("tab", name="forest").focus()
        visit.page.keyboard.press("ArrowRight")
        assert visit.page.get_by_role("tab", selected=True).inner_text() == "tree"
        assert visit.live() == counts_text(detections["tree"].counts)
        assert min(visit.figures().values()) > 300


def test_slider_takes_the_exposure_ratio_of_each_event(browser, uneven, tmp_path):
    path = write_report(replace(uneven, features=None, sky=None), tmp_path / "report.html")
    with Visit(browser, path) as visit:
        visit.slider.focus()
        for _ in range(5):
            visit.page.keyboard.press("ArrowRight")
        assert visit.live() == counts_text(counts_at(uneven, float(visit.text("threshold"))))


def test_hover_shows_numbers_of_light_curve_and_sky(browser, report, detections):
    light, sky = light_curve(detections["forest"]), detections["forest"].sky
    with Visit(browser, report) as visit:
        plot = visit.page.locator("article.chosen [id^=light_curve] svg")
        plot.scroll_into_view_if_needed()
        box, places = plot.bounding_box(), json.loads(visit.page.locator("#data").text_content())["figures"]
        tip = visit.page.locator(".tip")
        assert not tip.is_visible()
        for (group, one), (x, y, _) in zip(light.iterrows(), places["light_curve-0"]["hover"], strict=True):
            scale = box["width"] / 244.8
            visit.page.mouse.move(box["x"] + x * scale + 2, box["y"] + y * scale + 4)
            text = f"{group}: {one['rate']:.2f} ({one['low']:.2f} to {one['high']:.2f})"
            assert tip.inner_text() == text
        visit.page.mouse.move(1, 1)
        assert not tip.is_visible()
        choice = visit.page.locator("article.chosen [data-action=sky]")
        for number, (events, east, north) in enumerate((("selected", 0, 0), ("all", -10, 7))):
            choice.select_option(index=3 * number)
            shown = visit.page.locator("article.chosen .map.shown svg")
            shown.scroll_into_view_if_needed()
            box = shown.bounding_box()
            left, top, right, bottom = places[f"sky-{events}-significance-0"]["box"]
            scale, pixel = box["width"] / 244.8, (right - left) / 61
            x, y = (left + right) / 2 - east * pixel, (top + bottom) / 2 - north * pixel
            visit.page.mouse.move(box["x"] + x * scale, box["y"] + y * scale)
            layer, at = sky.layers[events], (30 + north, 30 + east)
            step = sky.axis[1] - sky.axis[0]
            start = f"{east * step:.2f}° east, {north * step:.2f}° north: ".replace("-0.00", "0.00")
            numbers = [
                float(word)
                for word in tip.inner_text().removeprefix(start).replace(",", "").split()
                if word[-1].isdigit()
            ]
            expected = [layer.significance[at], layer.excess[at], layer.counts[at]]
            np.testing.assert_allclose(numbers, expected, atol=0.051)


def test_tables_of_125_runs_are_folded_searched_and_sorted(browser, detections, tmp_path):
    detection, rows = detections["tree"], np.arange(len(detections["tree"].on))
    labels = [f"20131103{run}" for run in range(125)]
    nights = tuple(str(20131103 + i % 3) for i in range(125))
    groups = {"groups": np.array(labels)[rows % 125], "nights": 20131103 + rows % 3, "folds": detection.folds * 25}
    exposure = Exposure("livetime", tuple(labels), nights, np.full(125, 0.08))
    found = replace(detection, **groups, exposure=exposure, time=None, features=None, sky=None)
    path = write_report(found, tmp_path / "report.html")
    with Visit(browser, path) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollHeight") < 9_000
        folded = [one.inner_text() for one in page.locator("article.chosen details summary").all()]
        assert folded == ["Table of 125 groups", "Table of 125 folds"]
        page.get_by_text("Table of 125 groups").click()
        shown = page.locator("[data-table=groups] tbody tr:visible")
        assert shown.count() == 125
        box = page.locator("article.chosen details").first
        box.get_by_role("searchbox").fill("2013110312")
        expected = [f"20131103{run}" for run in range(125) if str(run).startswith("12")]
        assert shown.locator("th").all_inner_texts() == expected
        box.get_by_role("searchbox").fill("")
        for descending in (False, True):
            box.get_by_role("button", name="Excess", exact=True).click()
            values = [float(row[4].split()[0].replace("−", "-")) for row in visit.table()]
            assert values == sorted(values, reverse=descending)
        # rows that were sorted still follow the slider
        visit.slider.focus()
        page.keyboard.press("End")
        page.get_by_role("button", name="Back to the tuned cut").click()
        counts = {row[0]: row[2] for row in visit.table()}
        assert counts == {str(group): f"{one.n_on:,}" for group, one in found.counts_by_group.items()}
        assert set(visit.figures()) >= {"light_curve", "light_curve_by_night"}


def test_every_figure_and_every_table_can_be_downloaded(browser, full, detections):
    detection = detections["forest"]

    def rows_of(download):
        return list(csv.DictReader(io.StringIO(download.path().read_text(encoding="utf-8-sig"))))

    with Visit(browser, full, color_scheme="dark") as visit:
        page = visit.page
        buttons = page.locator("article.chosen figure:visible > .tools button").all_inner_texts()
        assert buttons == ["PNG", "SVG", "CSV"] * (len(buttons) // 3)
        assert len(buttons) // 3 == page.locator("article.chosen figure:visible").count()
        figure = page.locator("article.chosen [id^=light_curve-]")
        image = visit.download(figure.get_by_role("button", name="PNG"))
        assert image.suggested_filename == "Crab_forest_light-curve.png"
        assert image.path().read_bytes().startswith(b"\x89PNG")
        drawing = visit.download(figure.get_by_role("button", name="SVG")).path().read_text(encoding="utf-8")
        assert drawing.startswith("<svg")
        assert "#009e73" in drawing  # on white paper, though the page is dark
        assert "var(" not in drawing
        rows, rates = rows_of(visit.download(figure.get_by_role("button", name="CSV"))), light_curve(detection)
        assert [row["group"] for row in rows] == [str(group) for group in rates.index]
        np.testing.assert_allclose([float(row["rate"]) for row in rows], rates["rate"], rtol=1e-5)
        np.testing.assert_allclose([float(row["high"]) for row in rows], rates["high"], rtol=1e-5)
        sky = page.locator("article.chosen .map.shown").get_by_role("button", name="CSV")
        cells = rows_of(visit.download(sky))
        assert len(cells) == 61 * 61
        middle = next(row for row in cells if float(row["east"]) == float(row["north"]) == 0)
        assert float(middle["significance"]) == round(float(detection.sky.layers["selected"].significance[30, 30]), 2)
        groups = page.get_by_role("button", name="Download table of groups as CSV").locator("visible=true")
        for row, (group, counts) in zip(
            rows_of(visit.download(groups)), detection.counts_by_group.items(), strict=True
        ):
            assert (row["Group"], row["On"], row["Off"]) == (str(group), str(counts.n_on), str(counts.n_off))
            assert (row["Excess"], row["Excess error"]) == (f"{counts.excess:.1f}", f"{counts.excess_error:.1f}")
        assert page.locator("[aria-label^='Download table of']").count() == page.locator(".scroll").count()
        assert all(url.startswith(("file:", "blob:", "data:")) for url in visit.requests)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 390])
def test_nothing_overlaps_or_overflows_and_text_has_contrast(browser, full, width, scheme):
    phone = {"is_mobile": True, "has_touch": True} if width == 390 else {}
    with Visit(browser, full, viewport={"width": width, "height": 900}, color_scheme=scheme, **phone) as visit:
        for opened in (False, True):
            if opened:
                visit.page.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true; })")
            found = visit.page.evaluate(BOXES)
            assert found["n"] > 100
            assert found["covered"] == []
            assert found["wide"] == []
            assert found["width"] <= width
        colors = visit.page.evaluate(
            """() => {
                const style = getComputedStyle(document.documentElement);
                const names = 'paper card text muted on off other found doubt explore explore-paper';
                return Object.fromEntries(names.split(' ').map(name => [name, style.getPropertyValue('--' + name)]));
            }"""
        )
        # the figures have the colours of the page
        ink = visit.page.evaluate("getComputedStyle(document.querySelector('.plot text')).fill")
        assert ink == f"rgb({', '.join(str(int(colors['text'].strip()[i : i + 2], 16)) for i in (1, 3, 5))})"

    def luminance(color):
        parts = [int(color.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    def contrast(one, other):
        high, low = sorted((luminance(colors[one]), luminance(colors[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text, paper in [
        *((text, paper) for text in ("text", "muted", "found", "doubt") for paper in ("paper", "card")),
        ("text", "explore-paper"),
        ("muted", "explore-paper"),
        ("explore", "paper"),
    ]:
        assert contrast(text, paper) >= 4.5, (text, paper)
    for mark in ("on", "off", "other"):
        assert contrast(mark, "paper") >= 3, mark


def test_print_and_a_browser_without_javascript_show_all_models(browser, report, detections):
    with Visit(browser, report) as visit:
        visit.page.emulate_media(media="print")
        assert visit.page.locator("article:visible").count() == len(detections)
        assert not visit.slider.is_visible()
        assert visit.page.pdf(format="A4").count(b"/Type /Page\n") >= 2 * len(detections)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    for detection in detections.values():
        counts = detection.counts
        assert page.get_by_text(f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}").first.is_visible()
    assert page.locator("figure:visible").count() > 2 * len(OF_ONE_MODEL)
    context.close()


def test_pages_with_little_data_work(browser, detections, tmp_path):
    detection = replace(detections["tree"], features=None, sky=None)
    bare = dict.fromkeys(
        ("theta", "theta_squared_cut", "nearby", "time", "importances", "exposure", "nights", "groups")
    )
    cases = {
        "nothing": replace(detection, selected=np.zeros_like(detection.selected), statistic="cut"),
        "bare": replace(detection, **bare, ratio=None, statistic="cut"),
        "no scores": replace(detection, score=np.full_like(detection.score, np.nan)),
    }
    for name, case in cases.items():
        with Visit(browser, write_report(case, tmp_path / "report.html")) as visit:
            assert visit.live() == counts_text(case.counts), name
            if name == "no scores":
                assert visit.slider.count() == 0
                continue
            visit.slider.focus()
            visit.page.keyboard.press("ArrowRight")
            assert visit.live() == counts_text(counts_at(case, float(visit.text("threshold")))), name
            assert (set(visit.figures()) == {"threshold_curve", "scores", "over_time"}) == (name == "bare")
