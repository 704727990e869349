"""The page in a real browser."""

from dataclasses import replace

import numpy as np
import pytest
from visit import Visit, counts_at

from excess.report import write_report
from excess.report.exploration import counts_text, stops_of
from excess.report.histograms import theta_squared_histogram
from excess.report.likelihood_bins import likelihood_bins

pytestmark = pytest.mark.slow

OF_ONE_MODEL = [
    *("likelihood", "light", "curve", "theta", "groups", "scores", "time", "importances", "null"),
    *("rate_group", "sky", "before", "after"),
]
SCRIPT = "<script>document.title='broken'</script>"


def test_markup_in_names_is_shown_as_text(browser, detections, tmp_path):
    run = {
        "command": "detect",
        "seed": 0,
        "options": {"groups": SCRIPT, "estimators": {SCRIPT: SCRIPT}},
        "files": [{"path": f"/data/{SCRIPT}.hdf5", "bytes": 1, "sha256": SCRIPT}],
        "versions": {"excess": "<b>1</b>"},
    }
    named = replace(detections["tree"], feature_names=tuple(f"<b>{i}</b>{SCRIPT}" for i in range(22)))
    other = replace(named, groups=np.array([f"{SCRIPT}{night}" for night in named.groups]))
    path = write_report({SCRIPT: named, "b": other}, tmp_path / "report.html", title=SCRIPT, run=run, config=SCRIPT)
    visit = Visit(browser, path)
    assert visit.page.title() == SCRIPT
    assert visit.page.locator("h1").inner_text() == SCRIPT
    assert visit.page.locator(".files tbody th").inner_text() == f"/data/{SCRIPT}.hdf5"
    assert visit.page.locator("[role=tab]").first.inner_text() == SCRIPT
    assert SCRIPT in visit.page.locator("article.chosen [data-plot=importances] .ytick text").first.text_content()
    assert visit.page.locator("[data-plot=comparison] .ytick text").nth(1).text_content() == SCRIPT
    visit.page.locator("[role=tab]").last.click()
    visit.settle()
    assert SCRIPT in visit.page.locator("article.chosen [data-plot=groups] .xtick text").first.text_content()
    assert visit.page.locator(".plot a, .plot b").count() == 0
    assert visit.page.locator("script").count() == 4
    assert visit.trouble == []


def test_nothing_goes_wrong_and_nothing_is_requested(browser, report, detections):
    visit = Visit(browser, report)
    assert visit.trouble == []
    assert visit.requests == [report.resolve().as_uri()]
    assert visit.live() == counts_text(detections["forest"].counts)
    assert set(visit.drawn()) == {*OF_ONE_MODEL, "comparison"}
    assert min(visit.drawn().values()) > 300


def test_the_number_to_quote_is_the_largest_text(browser, report):
    visit = Visit(browser, report)
    sizes = visit.page.evaluate(
        """() => [...document.querySelectorAll('article.chosen p, article.chosen dd, article.chosen strong, h1, h2')]
            .filter(node => node.offsetParent)
            .map(node => [parseFloat(getComputedStyle(node).fontSize), node.innerText.trim()])"""
    )
    (largest, text), (next_largest, _) = sorted(sizes, reverse=True)[:2]
    assert text.split("\n") == ["9.9 σ", "forward: the one to quote"]
    assert largest > 1.5 * next_largest


def test_slider_by_keyboard_shows_what_python_computes(browser, report, detections):
    visit = Visit(browser, report)
    visit.slider.focus()
    for key, times in (("ArrowRight", 9), ("PageUp", 1), ("ArrowLeft", 13), ("Home", 1), ("End", 1), ("ArrowLeft", 30)):
        for _ in range(times):
            visit.page.keyboard.press(key)
        visit.settle()
        threshold = float(visit.text("threshold"))
        assert visit.live() == counts_text(counts_at(detections["forest"], threshold))
        assert visit.text("state") == "Exploration"
    expected = []
    for night, found in detections["forest"].groups_frame().iterrows():
        texts = counts_text(counts_at(detections["forest"], threshold, detections["forest"].groups == night))
        excess = f"{texts['excess']} ± {texts['excess_error']}"
        low, high = (f"{found[f'relative_strength_{end}']:.2f}" for end in ("low", "high"))
        fixed = [f"{found['likelihood_significance']:.2f}", f"{found['relative_strength']:.2f} ({low} to {high})"]
        fixed += [f"{found['hours']:.2f}", f"{found['excess_per_hour']:.1f} ± {found['excess_per_hour_error']:.1f}"]
        cells = [str(night), texts["significance"], texts["n_on"], texts["n_off"], excess, *fixed]
        expected.append([cell.replace("-", "−") if cell in fixed else cell for cell in cells])
    assert visit.table() == expected
    # the plots follow: what Plotly holds is what Python counts
    shown = visit.page.evaluate("document.querySelector('article.chosen [data-plot=theta]').data[1].y")
    assert list(shown) == theta_squared_histogram(detections["forest"], threshold).on.tolist()
    visit.page.get_by_role("button", name="Back to the tuned cut").click()
    visit.settle()
    assert visit.live() == counts_text(detections["forest"].counts)
    assert visit.text("state") == "Tuned cut"
    assert visit.trouble == []


def test_likelihood_and_light_curve_show_what_python_computes(browser, report, detections):
    visit = Visit(browser, report)
    shown = likelihood_bins(detections["forest"])
    held = visit.page.evaluate(
        """() => Object.fromEntries(['likelihood', 'light', 'curve', 'null'].map(name => {
            const node = document.querySelector(`article.chosen [data-plot=${name}]`);
            return [name, {traces: node.data.map(one => ({x: [...one.x], y: [...one.y]})),
                lines: (node.layout.shapes ?? []).map(shape => shape.y0)}];
        }))"""
    )
    off, total, on, inside, outside = held["likelihood"]["traces"]
    assert on["y"] == shown.n_on.tolist()
    np.testing.assert_allclose(off["y"], shown.background, atol=1e-3)
    np.testing.assert_allclose(total["y"][::2], shown.background + shown.signal, atol=0.01)
    np.testing.assert_allclose(total["y"][1::2], shown.background + shown.signal, atol=0.01)
    assert inside["x"] == np.flatnonzero(shown.mostly_selected).tolist()
    np.testing.assert_allclose(outside["y"], shown.significance[~shown.mostly_selected], atol=1e-3)
    frame = detections["forest"].groups_frame()
    np.testing.assert_allclose(held["light"]["traces"][0]["y"], frame["relative_strength"], atol=1e-4)
    assert held["light"]["lines"] == [1]
    # the dotted line of the curve is the cut; On among the null tests has the declared statistic
    assert held["curve"]["lines"] == [pytest.approx(detections["forest"].counts.significance)]
    assert held["null"]["traces"][1]["y"] == [pytest.approx(detections["forest"].significance)]
    assert visit.trouble == []


def test_slider_takes_the_exposure_ratio_of_each_event(browser, uneven, tmp_path):
    path = write_report(uneven, tmp_path / "report.html")
    visit = Visit(browser, path)
    visit.slider.focus()
    for _ in range(5):
        visit.page.keyboard.press("ArrowRight")
    visit.settle()
    threshold = float(visit.text("threshold"))
    assert visit.live() == counts_text(counts_at(uneven, threshold))
    held = visit.page.evaluate(
        """() => Object.fromEntries(['theta', 'scores', 'curve'].map(name => {
            const node = document.querySelector(`article.chosen [data-plot=${name}]`);
            return [name, node.data.map(one => ({name: one.name, y: [...one.y]}))];
        }))"""
    )
    background = theta_squared_histogram(uneven, threshold).background
    np.testing.assert_allclose(held["theta"][0]["y"][1:-1:2], background, atol=0.006)
    assert held["theta"][0]["name"] == held["scores"][0]["name"] == "Off × alpha"
    assert held["curve"][-1]["y"] == [pytest.approx(counts_at(uneven, threshold).significance, abs=1e-4)]
    assert visit.trouble == []


def test_slider_by_mouse_shows_what_python_computes(browser, report, detections):
    visit = Visit(browser, report)
    visit.slider.scroll_into_view_if_needed()
    box = visit.slider.bounding_box()
    visit.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + box["height"] / 2)
    visit.page.mouse.down()
    for share in (0.4, 0.55, 0.62):
        visit.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        visit.settle()
        threshold = float(visit.text("threshold"))
        assert visit.live() == counts_text(counts_at(detections["forest"], threshold))
    visit.page.mouse.up()
    _, thresholds = stops_of(detections["forest"].score)
    assert np.searchsorted(thresholds, threshold) / len(thresholds) == pytest.approx(0.62, abs=0.03)


def test_models_are_tabs(browser, report, detections):
    visit = Visit(browser, report)
    visit.page.get_by_role("tab", name="forest").focus()
    visit.page.keyboard.press("ArrowRight")
    visit.settle()
    assert visit.live() == counts_text(detections["tree"].counts)
    assert visit.page.get_by_role("tab", selected=True).inner_text() == "tree"
    assert min(visit.drawn().values()) > 300
    assert visit.trouble == []


def test_print_has_all_plots_of_all_models(browser, report, detections):
    visit = Visit(browser, report)
    visit.page.emulate_media(media="print")
    visit.page.wait_for_timeout(500)
    drawn = visit.page.evaluate(
        """() => [...document.querySelectorAll('.plot')].filter(node => node.offsetParent)
            .map(node => node.querySelectorAll('svg.main-svg').length ? node.dataset.plot : 'empty')"""
    )
    assert sorted(drawn) == sorted([*OF_ONE_MODEL * len(detections), "comparison"])
    assert not visit.slider.is_visible()
    assert visit.page.pdf(format="A4").count(b"/Type /Page\n") >= 2 * len(detections)
    assert visit.trouble == []


def test_phone_fits(browser, report):
    phone = Visit(browser, report, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    place = "document.querySelector('article.chosen input').getBoundingClientRect().top + window.scrollY"
    before = phone.page.evaluate(place)
    phone.slider.focus()
    phone.page.keyboard.press("ArrowRight")
    phone.settle()
    assert phone.text("state") == "Exploration"
    assert phone.page.evaluate(place) == before  # what a finger holds does not move away from it
    assert phone.trouble == []


def test_a_click_into_the_curve_moves_the_slider(browser, report, detections):
    visit = Visit(browser, report)
    plot = visit.page.locator("article.chosen [data-plot=curve]")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    visit.page.mouse.click(box["x"] + 60 + 0.5 * (box["width"] - 80), box["y"] + 0.7 * box["height"])
    visit.settle()
    stops, _ = stops_of(detections["forest"].score)
    shown = stops.index(visit.text("threshold")) / (len(stops) - 1)
    assert shown == pytest.approx(0.5, abs=0.03)


def test_without_javascript_all_numbers_are_there(browser, report, detections):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    for detection in detections.values():
        assert page.get_by_text(
            f"{detection.counts.excess:,.1f} ± {detection.counts.excess_error:,.1f}"
        ).first.is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser, report, scheme):
    visit = Visit(browser, report, color_scheme=scheme)
    colors = visit.page.evaluate(
        """() => {
            const style = getComputedStyle(document.documentElement);
            const names = ['paper', 'card', 'text', 'muted', 'on', 'off', 'found', 'doubt', 'explore', 'explore-paper'];
            return Object.fromEntries(names.map(name => [name, style.getPropertyValue('--' + name)]));
        }"""
    )

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
    for mark in ("on", "off"):
        assert contrast(mark, "paper") >= 3, mark
    assert visit.page.evaluate(
        "[...document.querySelectorAll('input, button')].every(n => n.ariaLabel || n.textContent)"
    )


def test_what_is_missing_is_said(browser, detections, tmp_path):
    detection = detections["forest"]
    judged = np.flatnonzero(detection.held_out)
    score = detection.score.copy()
    score[judged[:7]] = np.nan
    bare = {"theta": None, "theta_squared_cut": None, "nearby": None, "time": None, "importances": None}
    one_night = np.full(len(detection.on), 20131101)
    infinite = tuple(fold._replace(threshold=np.inf) for fold in detection.folds)
    cases = {
        "nothing": (
            replace(detection, selected=np.zeros_like(detection.selected), statistic="cut"),
            ["No detection", "Nothing was selected"],
        ),
        "no angles, no groups": (
            replace(detection, **bare, groups=None),
            ["there is no θ² plot", "There are no groups"],
        ),
        "one night, no nearby, NaN": (
            replace(detection, groups=one_night, nearby=None, score=score),
            [
                "There is one group only, 20131101",
                "the θ² plot ends at the cut",
                "7 judged events have no score",
            ],
        ),
        "all NaN": (replace(detection, score=np.full_like(score, np.nan)), ["No event has a score"]),
        "no signal ratios": (
            replace(detection, ratio=None, statistic="cut"),
            ["This model has no signal ratio", "By the cut."],
        ),
        "infinite": (replace(detection, folds=infinite), ["(∞ in all 5 folds)"]),
    }
    for name, (case, sentences) in cases.items():
        path = write_report(case, tmp_path / f"{name}.html")
        for sentence in sentences:
            assert sentence in path.read_text(encoding="utf-8"), name
        visit = Visit(browser, path)
        assert visit.trouble == [], name
        assert visit.live() == counts_text(case.counts), name
        if name not in ("all NaN",):
            visit.slider.focus()
            visit.page.keyboard.press("ArrowRight")
            visit.settle()
            assert visit.live() == counts_text(counts_at(case, float(visit.text("threshold")))), name
        visit.page.close()
