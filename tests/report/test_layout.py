"""The layout of the page in a real browser: nothing covers anything else, and long tables are folded."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from visit import Visit

from excess.report import write_report
from excess.report.rates import excess_rates
from excess.stats.counts import OnOffCounts
from excess.validation.detection_bins import DetectionBins
from excess.validation.exposure import Exposure
from excess.validation.outcome import Outcome

pytestmark = pytest.mark.slow

BOXES = Path(__file__).with_name("boxes.js").read_text(encoding="utf-8")


def with_bins(detection, n_bins=4):
    outcomes = tuple(Outcome(OnOffCounts(20 + n, 40, 0.2), None, "cut") for n in range(n_bins))
    edges = (float("-inf"), *np.linspace(0.5, 8, n_bins - 1).tolist(), float("inf"))
    notes = ("borrows events from the next bin, because it has too few of its own", *[""] * (n_bins - 1))
    return replace(detection, bins=DetectionBins("energy", edges, outcomes, notes))


@pytest.fixture(scope="module")
def full(detections, tests_of_null, tmp_path_factory):
    """A page with everything on it, and with names that are long."""
    names = tuple(f"photoncharge_shower_variance_{i}" for i in range(22))
    features = [replace(one, feature=name) for one, name in zip(detections["forest"].features, names, strict=True)]
    found = {
        name: with_bins(replace(one, feature_names=names, features=tuple(features)))
        for name, one in (*detections.items(), ("a model with a long name", detections["forest"]))
    }
    path = tmp_path_factory.mktemp("full") / "report.html"
    run = {"files": [{"path": f"/data/2013/11/{i}_dl3.hdf5", "bytes": 10**6, "sha256": "0f" * 32} for i in range(125)]}
    tests = {name: tests_of_null[name] for name in detections}
    return write_report(found, path, null_test=tests, title="Crab", run=run, config="features: [width]")


@pytest.fixture(scope="module")
def many_runs(detections, tmp_path_factory):
    """A page about 125 runs of three nights."""
    detection = detections["forest"]
    rows = np.arange(len(detection.on))
    labels = [f"20131103{run}" for run in range(125)]
    found = replace(
        detection,
        groups=np.array(labels)[rows % 125],
        nights=20131103 + rows % 3,
        folds=detection.folds * 25,
        exposure=Exposure(
            "livetime", tuple(labels), tuple(str(20131103 + i % 3) for i in range(125)), np.full(125, 0.08)
        ),
        time=None,
    )
    path = tmp_path_factory.mktemp("runs") / "report.html"
    run = {"files": [{"path": f"/data/{i}.fits", "bytes": 10**6, "sha256": "0f" * 32} for i in range(125)]}
    return found, write_report(found, path, title="125 runs", run=run)


@pytest.mark.parametrize("width", [1300, 768, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_covers_anything_else(browser, full, width, scheme):
    phone = {"is_mobile": True, "has_touch": True} if width == 390 else {}
    visit = Visit(browser, full, viewport={"width": width, "height": 900}, color_scheme=scheme, **phone)
    for opened in (False, True):
        if opened:
            visit.page.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true; })")
            visit.settle()
        found = visit.page.evaluate(BOXES)
        assert found["n"] > 100
        assert found["covered"] == []
        assert found["wide"] == []
        assert found["width"] <= width
    assert visit.trouble == []
    visit.page.close()


def test_a_page_of_125_runs_is_folded_and_can_be_searched_and_sorted(browser, many_runs):
    detection, path = many_runs
    visit = Visit(browser, path, viewport={"width": 1300, "height": 900})
    page = visit.page
    assert page.evaluate("document.documentElement.scrollHeight") < 9_000
    assert page.evaluate(BOXES)["covered"] == []
    assert [one.inner_text() for one in page.locator("article.chosen details.long summary").all()] == [
        "Table of 125 groups",
        "Table of 125 folds",
    ]
    page.get_by_text("Table of 125 groups").click()
    assert page.locator("[data-table=groups] tbody tr:visible").count() == 125
    box = page.locator("article.chosen details.long").first
    box.get_by_role("searchbox").fill("2013110312")
    expected = [f"20131103{run}" for run in range(125) if str(run).startswith("12")]
    rows = page.locator("[data-table=groups] tbody tr:visible")
    assert rows.locator("th").all_inner_texts() == expected
    box.get_by_role("searchbox").fill("")
    for descending in (False, True):
        box.get_by_role("button", name="Excess", exact=True).click()
        values = [
            float(text.split()[0]) for text in page.locator("[data-table=groups] td:nth-child(5)").all_inner_texts()
        ]
        assert values == sorted(values, reverse=descending)
    # rows that were sorted still follow the slider
    visit.slider.focus()
    page.keyboard.press("End")
    visit.settle()
    page.get_by_role("button", name="Back to the tuned cut").click()
    visit.settle()
    shown = dict(
        zip(
            rows.locator("th").all_inner_texts(),
            page.locator("[data-table=groups] td:nth-child(3)").all_inner_texts(),
            strict=True,
        )
    )
    assert shown == {str(group): f"{counts.n_on:,}" for group, counts in detection.counts_by_group.items()}
    assert set(visit.drawn()) >= {"rate_group", "rate_night"}
    assert visit.trouble == []


def download(page, button):
    with page.expect_download() as waiting:
        button.click()
    return waiting.value


def test_every_plot_and_every_table_can_be_downloaded(browser, full, detections, tmp_path):
    visit = Visit(browser, full, color_scheme="dark")
    page, detection = visit.page, detections["forest"]
    n_plots = page.locator("article.chosen .plot:visible").count()
    assert (
        page.locator("article.chosen .plot:visible + .tools button").all_inner_texts()
        == ["PNG", "SVG", "CSV"] * n_plots
    )
    figure = page.locator("article.chosen figure", has=page.locator("[data-plot=rate_group]"))
    image = download(page, figure.get_by_role("button", name="PNG"))
    assert image.suggested_filename == "Crab_forest_rate-group.png"
    assert image.path().read_bytes().startswith(b"\x89PNG")
    drawing = download(page, figure.get_by_role("button", name="SVG")).path().read_text(encoding="utf-8")
    assert drawing.startswith("<svg")
    assert "rgb(0, 114, 178)" in drawing  # on white paper, though the page is dark
    table = download(page, figure.get_by_role("button", name="CSV")).path().read_text(encoding="utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(table)))
    rates = excess_rates(detection)
    assert [row["x"] for row in rows] == rates.labels
    np.testing.assert_allclose([float(row["y"]) for row in rows], rates.rate, atol=1e-3)
    np.testing.assert_allclose([float(row["error_plus"]) for row in rows], rates.error, atol=1e-3)
    sky = page.locator("article.chosen figure", has=page.locator("[data-plot=sky]"))
    cells = list(
        csv.DictReader(io.StringIO(download(page, sky.get_by_role("button", name="CSV")).path().read_text("utf-8-sig")))
    )
    assert len(cells) == 61 * 61
    middle = next(row for row in cells if float(row["x"]) == float(row["y"]) == 0)
    assert float(middle["significance"]) == round(float(detection.sky.layers["selected"].significance[30, 30]), 2)
    groups = page.get_by_role("button", name="Download table of groups as CSV").locator("visible=true")
    found = list(csv.DictReader(io.StringIO(download(page, groups).path().read_text(encoding="utf-8-sig"))))
    for row, (group, counts) in zip(found, detection.counts_by_group.items(), strict=True):
        assert (row["Group"], row["On"], row["Off"]) == (str(group), str(counts.n_on), str(counts.n_off))
        assert (row["Excess"], row["Excess error"]) == (f"{counts.excess:.1f}", f"{counts.excess_error:.1f}")
    models = page.get_by_role("button", name="Download table of models as CSV")
    heads = download(page, models).path().read_text(encoding="utf-8-sig").splitlines()[0].split(",")
    assert heads[:4] == ["Model", "Likelihood Pooled σ", "Likelihood Forward σ", "Likelihood Signal events"]
    n_tables = page.locator(".scroll").count()
    assert page.locator("[aria-label^='Download table of']").count() == n_tables
    assert visit.requests == [full.resolve().as_uri()] or all(
        url.startswith(("file:", "blob:", "data:")) for url in visit.requests
    )
    assert visit.trouble == []


def test_texts_that_a_spreadsheet_would_compute_are_marked(browser, detections, tmp_path):
    detection = detections["tree"]
    named = replace(detection, groups=np.array([f"=cmd|{night}" for night in detection.groups]), exposure=None)
    visit = Visit(browser, write_report(named, tmp_path / "report.html"))
    button = visit.page.get_by_role("button", name="Download table of groups as CSV")
    text = download(visit.page, button).path().read_text(encoding="utf-8-sig")
    assert text.splitlines()[1].startswith("'=cmd|")
    figure = visit.page.locator("figure", has=visit.page.locator("[data-plot=groups]"))
    text = download(visit.page, figure.get_by_role("button", name="CSV")).path().read_text(encoding="utf-8-sig")
    assert text.splitlines()[1].startswith("excess,'=cmd|")


def test_features_and_maps_are_chosen(browser, report, detections):
    visit = Visit(browser, report)
    page, detection = visit.page, detections["forest"]
    plot = "document.querySelector(`article.chosen [data-plot=${name}]`)"
    traces = f"name => {plot}.data.map(one => ({{x: one.x, y: one.y, z: one.z}}))"
    order = np.argsort(-detection.importances, kind="stable")
    choice = page.locator("article.chosen [data-action=feature]")
    assert choice.locator("option").all_inner_texts() == [detection.feature_names[i] for i in order]
    for number, step in ((0, None), (1, "Next"), (21, "Previous")):
        if step is not None:
            for _ in range(1 if step == "Next" else 2):
                page.locator("article.chosen").get_by_role("button", name=step).click()
            visit.settle()
        one = detection.features[order[number]]
        for name, bins in (("before", one.before), ("after", one.after)):
            off, _, _, on = page.evaluate(traces, name)
            assert on["y"] == bins.n_on.tolist()
            np.testing.assert_allclose(off["y"][1:-1:2], bins.background, atol=0.01)
    sky = page.locator("article.chosen [data-action=sky]")
    assert sky.input_value() == "selected significance"
    for value in ("selected excess", "all counts", "all significance"):
        sky.select_option(value)
        visit.settle()
        stage, what = value.split()
        shown = json.loads(json.dumps(page.evaluate(traces, "sky")))[0]["z"]
        expected = getattr(detection.sky.layers[stage], what)
        np.testing.assert_allclose(np.array(shown, dtype=float), expected, atol=0.051)
    assert (
        f"{detection.sky.layers['all'].spread:.2f} (mean"
        in page.locator("article.chosen .square figcaption").inner_text()
    )
    assert visit.trouble == []


def test_what_is_not_known_is_not_there(browser, detections, tmp_path):
    bare = replace(detections["tree"], features=None, sky=None, exposure=None, nights=None)
    path = write_report(bare, tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    for sentence in (
        "Values of the features are not known",
        "There is no map of the sky",
        "there is no excess per hour",
    ):
        assert sentence in text
    visit = Visit(browser, path)
    assert not {"before", "after", "sky", "rate_group", "rate_night", "binned"} & set(visit.drawn())
    assert visit.page.get_by_role("heading", name="Map of the sky").count() == 0
    assert visit.trouble == []
