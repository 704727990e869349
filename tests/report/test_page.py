"""The report: what its page says, and what it shows in a real browser."""

import json
import os
import re
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
from helpers import run_command

from excess import OnOffForestClassifier, OnOffTreeClassifier, cross_val_detect, null_test
from excess.analysis import read_run
from excess.events import EventFileError, load_config
from excess.observation import observe
from excess.observation.simulation import simulate_observation
from excess.report import write_report
from excess.report.content import model_content
from excess.report.exploration import counts_text, explore, stops_of
from excess.report.series import theta_squared_histogram
from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection, Fold

SCRIPT = "<script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def observation():
    return observe(simulate_observation(60_000, 400, random_state=1), load_config(), nearby=True)


@pytest.fixture(scope="module")
def models():
    return {
        "forest": OnOffForestClassifier(20, min_samples_leaf=20, random_state=0),
        "tree": OnOffTreeClassifier(max_depth=3, min_samples_leaf=30),
    }


@pytest.fixture(scope="module")
def detections(observation, models):
    nearby = (observation.nearby.X, observation.nearby.groups)
    found = cross_val_detect(
        models, observation.X, observation.on, alpha=observation.alpha, groups=observation.groups, nearby=nearby
    )
    return {name: observation.annotate(one) for name, one in found.items()}


@pytest.fixture(scope="module")
def tests_of_null(observation, models):
    return null_test(
        models, observation.X, observation.regions.region, n_regions=6, groups=observation.groups, random_state=0
    )


@pytest.fixture(scope="module")
def browser():
    """A real Chromium; without one, these tests are skipped."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("no Chromium on this machine; install one, or say where it is with CHROMIUM=/path/to/it")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visit:
    """A page in the browser, and everything that went wrong on it."""

    def __init__(self, browser, path, **options):
        self.trouble = []
        self.page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **options})
        self.page.on("console", lambda message: self.trouble.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: self.trouble.append("dialog"))
        self.requests = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")
        self.settle()

    def settle(self):
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def text(self, name):
        return self.page.locator(f"article.chosen .explorer [data-value={name}]").first.inner_text()

    def live(self):
        return {key: self.text(key) for key in ("n_on", "n_off", "excess", "excess_error", "significance")}

    @property
    def slider(self):
        return self.page.locator("article.chosen input[type=range]")

    def table(self):
        rows = self.page.locator("article.chosen [data-table=groups] tbody tr").all()
        return [row.locator("th, td").all_inner_texts() for row in rows]

    def drawn(self):
        """Return the plots that can be seen, with their size on the page."""
        return self.page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll('.plot')]
                .filter(node => node.offsetParent)
                .map(node => [node.dataset.plot,
                    node.querySelector('svg.main-svg')?.getBoundingClientRect().width ?? 0]))"""
        )


@pytest.fixture(scope="module")
def report(detections, tests_of_null, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(
        detections, path, null_test=tests_of_null, forward={"forest": OnOffCounts(90, 100, 0.2)}, title="Crab & co"
    )


def counts_at(detection, threshold, mask=None):
    """Count by hand what a threshold selects."""
    selected = detection.judged & (detection.score > threshold)
    if mask is not None:
        selected = selected & mask
    return OnOffCounts(int((selected & detection.on).sum()), int((selected & ~detection.on).sum()), detection.alpha)


def test_stops_are_round_and_cover_the_scores():
    texts, thresholds = stops_of(np.random.default_rng(0).beta(2, 8, 20_000))
    assert 100 < len(texts) < 260
    assert len({len(text.split(".")[1]) for text in texts}) == 1
    np.testing.assert_array_equal(thresholds, [float(text) for text in texts])
    np.testing.assert_allclose(np.diff(thresholds), np.diff(thresholds)[0])
    for scores in ([0.3, 0.3], [0.0, 0.0], [0.0, 1.0], [-940.0, 12.5, 977.0], [1e-9, 3e-9]):
        texts, thresholds = stops_of(np.array(scores))
        assert thresholds[0] < min(scores)
        assert thresholds[-1] >= max(scores)
        assert (np.diff(thresholds) > 0).all()


def test_exploration_is_what_a_threshold_selects(detections):
    for detection in detections.values():
        found = explore(detection)
        for stop in range(0, len(found["threshold"]), 17):
            threshold = float(found["threshold"][stop])
            expected = counts_text(counts_at(detection, threshold))
            assert {key: found[key][stop] for key in expected} == expected
            histogram = theta_squared_histogram(detection, threshold)
            assert found["theta"]["on"][stop] == histogram.on.tolist()
            assert found["theta"]["off"][stop] == histogram.off.tolist()
            for number, night in enumerate(np.unique(detection.groups)):
                by_night = counts_text(counts_at(detection, threshold, detection.groups == night))
                assert {key: found["groups"][stop][key][number] for key in by_night} == by_night


def test_many_groups_have_fewer_stops_and_then_no_table(detections):
    detection = detections["forest"]
    rows = np.arange(len(detection.on))
    some, many = (replace(detection, groups=rows % n) for n in (250, 900))
    assert 25 <= len(explore(some)["threshold"]) < 100
    assert explore(many)["groups"] is None
    content = model_content("x", many)
    assert not content["groups_follow"]
    assert (len(content["groups"]), content["n_groups"]) == (300, 900)


def test_page_stays_small(detections, tmp_path):
    detection = detections["forest"]
    rows = np.arange(len(detection.on))
    for n_models, n_groups in ((20, 5), (7, 300), (4, 900)):
        found = replace(detection, groups=rows % n_groups, folds=detection.folds * n_groups)
        path = write_report({f"model {i}": found for i in range(n_models)}, tmp_path / "report.html")
        assert path.stat().st_size < 6_000_000, (n_models, n_groups)


def test_page_says_verdict_and_numbers(report, detections):
    text = report.read_text(encoding="utf-8")
    counts = detections["forest"].counts
    assert f"{detections['forest'].significance:.1f} σ" in text
    assert f"{counts.excess:,.1f} ± {counts.excess_error:,.1f}" in text
    assert "Crab &amp; co" in text
    assert f"quote is the forward one, {OnOffCounts(90, 100, 0.2).significance:.1f} sigma" in text
    assert len(text.encode()) < 6_000_000


def test_page_holds_no_events(report, detections, tmp_path):
    detection = detections["forest"]
    many = replace(
        detection,
        **{
            name: np.tile(getattr(detection, name), 4) for name in ("on", "score", "selected", "fold", "groups", "time")
        },
        theta=np.tile(detection.theta, (4, 1)),
    )
    once = write_report(detection, tmp_path / "once.html").stat().st_size
    assert abs(write_report(many, tmp_path / "many.html").stat().st_size - once) < 0.02 * once


def test_data_cannot_end_their_script(detections, tmp_path):
    path = write_report({SCRIPT: detections["tree"]}, tmp_path / "report.html", title=SCRIPT)
    text = path.read_text(encoding="utf-8")
    assert SCRIPT not in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data.group(1))["models"][0]["name"] == SCRIPT


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
    assert set(visit.drawn()) == {"curve", "theta", "groups", "scores", "time", "importances", "null", "comparison"}
    assert min(visit.drawn().values()) > 300


def test_slider_by_keyboard_shows_what_python_computes(browser, report, detections):
    visit = Visit(browser, report)
    visit.slider.focus()
    for key, times in (("ArrowRight", 9), ("PageUp", 1), ("ArrowLeft", 23), ("Home", 1), ("End", 1), ("ArrowLeft", 60)):
        for _ in range(times):
            visit.page.keyboard.press(key)
        visit.settle()
        threshold = float(visit.text("threshold"))
        assert visit.live() == counts_text(counts_at(detections["forest"], threshold))
        assert visit.text("state") == "Exploration"
    expected = []
    for night in np.unique(detections["forest"].groups):
        texts = counts_text(counts_at(detections["forest"], threshold, detections["forest"].groups == night))
        excess = f"{texts['excess']} ± {texts['excess_error']}"
        expected.append([str(night), texts["significance"], texts["n_on"], texts["n_off"], excess])
    assert visit.table() == expected
    # the plots follow: what Plotly holds is what Python counts
    shown = visit.page.evaluate("document.querySelector('article.chosen [data-plot=theta]').data[1].y")
    assert list(shown) == theta_squared_histogram(detections["forest"], threshold).on.tolist()
    visit.page.get_by_role("button", name="Back to the result").click()
    visit.settle()
    assert visit.live() == counts_text(detections["forest"].counts)
    assert visit.text("state") == "The result"
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
    of_one = ["curve", "theta", "groups", "scores", "time", "importances", "null"]
    assert sorted(drawn) == sorted([*of_one * len(detections), "comparison"])
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
    judged = np.flatnonzero(detection.judged)
    score = detection.score.copy()
    score[judged[:7]] = np.nan
    bare = {"theta": None, "theta_squared_cut": None, "nearby": None, "time": None, "importances": None}
    cases = {
        "nothing": (replace(detection, selected=np.zeros_like(detection.selected)), "No detection"),
        "no angles": (replace(detection, **bare), "there is no θ² plot"),
        "no groups": (replace(detection, groups=None), "There are no groups"),
        "one night": (
            replace(detection, groups=np.full(len(detection.on), 20131101)),
            "There is one group only, 20131101",
        ),
        "no nearby": (replace(detection, nearby=None), "the θ² plot ends at the cut"),
        "NaN": (replace(detection, score=score), "7 judged events have no score"),
        "all NaN": (replace(detection, score=np.full_like(score, np.nan)), "No event has a score"),
        "infinite": (
            replace(detection, folds=tuple(fold._replace(threshold=np.inf) for fold in detection.folds)),
            "(∞ in all 5 folds)",
        ),
    }
    for name, (case, sentence) in cases.items():
        path = write_report(case, tmp_path / f"{name}.html")
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


def test_suspicious_null_test_is_a_warning(detections, tests_of_null, tmp_path):
    test = replace(tests_of_null["forest"], counts={1: OnOffCounts(400, 100, 0.25), 2: OnOffCounts(20, 100, 0.25)})
    text = write_report(detections["forest"], tmp_path / "report.html", null_test=test).read_text(encoding="utf-8")
    assert "Do not trust" in text
    assert "Off region 1 shows" in text


@pytest.mark.parametrize(
    ("change", "forward", "stamp", "sentence"),
    [
        ({}, None, "Source detected", "could be learned from these labels"),
        ({}, OnOffCounts(100, 480, 0.2), "Not confirmed", "but 0.4 sigma forward, which is the number to quote"),
        ({"required": 100.0}, None, "No detection", "not shown that learning"),
        ({"strategy": "applied"}, None, "Source detected", ": a detection (5 required)."),
    ],
)
def test_verdict_is_one_sentence_of_what_was_found(detections, change, forward, stamp, sentence):
    content = model_content("", replace(detections["forest"], **change), forward)
    assert content["stamp"] == stamp
    assert sentence in content["verdict"]
    counts = detections["forest"].counts
    assert content["verdict"].startswith(f"An excess of {counts.excess:,.0f} ± {counts.excess_error:,.0f} events, ")
    assert content["verdict"].count(". ") == 0


def test_a_deficit_is_called_one(detections):
    flipped = replace(detections["forest"], on=~detections["forest"].on, alpha=5.0)
    assert flipped.significance < 0
    assert model_content("", flipped)["verdict"].startswith("A deficit of ")


def test_what_to_quote(detections):
    detection = detections["forest"]
    quotes = {
        strategy: model_content("", replace(detection, strategy=strategy))["quote"]
        for strategy in ("applied", "forward")
    }
    assert quotes["applied"].startswith(f"Quote {detection.significance:.1f} sigma, if this model")
    assert quotes["forward"].startswith(f"Quote this value, {detection.significance:.1f} sigma")
    larger = model_content("", detection, OnOffCounts(500, 100, 0.2))["quote"]
    assert "It is smaller" not in larger
    assert "there are no times" in model_content("", detection, no_forward="there are no times")["quote"]


def test_wrong_arguments(detections, tests_of_null, tmp_path):
    path = tmp_path / "report.html"
    with pytest.raises(TypeError, match="detection must be a Detection, or a dict of such, got list"):
        write_report([detections["forest"]], path)
    with pytest.raises(ValueError, match="null_test has 'forest', but detection has '' only"):
        write_report(detections["forest"], path, null_test=tests_of_null)
    with pytest.raises(ValueError, match="empty mapping"):
        write_report({}, path)
    with pytest.raises(FileNotFoundError, match=r"absent: there is no such folder to write a\.html to"):
        write_report(detections["forest"], tmp_path / "absent" / "a.html")
    assert not path.exists()
    assert "Versions" in write_report(detections["forest"], path, run={"seed": 1}).read_text(encoding="utf-8")


def test_a_report_of_all_events_is_quick(tmp_path):
    rng = np.random.default_rng(0)
    n = 757_993
    score, on = rng.beta(2, 5, n), rng.random(n) < 1 / 6
    selected = score > 0.5
    detection = Detection(
        on=on,
        score=score,
        selected=selected,
        fold=np.zeros(n, dtype=np.int64),
        groups=np.sort(rng.integers(20131101, 20131106, n)),
        folds=(Fold(n, n, 0.5, None, OnOffCounts(int((selected & on).sum()), int((selected & ~on).sum()), 0.2)),),
        alpha=0.2,
        strategy="pooled",
        significances=np.zeros(1),
        permuted_contrasts=np.zeros(0),
        time=np.sort(rng.uniform(0, 70_000, n)),
    ).annotated(theta=rng.uniform(0, 1, (n, 6)), theta_squared_cut=0.025)
    start = time.process_time()
    path = write_report(detection, tmp_path / "report.html")
    assert time.process_time() - start < 5
    assert path.stat().st_size < 6_000_000


def test_report_of_a_finished_run_is_that_of_the_run(tmp_path, capsys):
    folder = tmp_path / "run"
    assert run_command("demo", "-o", folder, "--events", 20_000, "--signal", 300) == 0
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


@pytest.fixture(scope="module")
def table():
    return simulate_observation(20_000, 300, random_state=2)


def test_damaged_runs_are_refused(table, tmp_path):
    table.to_csv(tmp_path / "events.csv", index=False)
    folder = tmp_path / "run"
    assert run_command("detect", tmp_path / "events.csv", "-o", folder, "-m", "tree", "--json") == 0
    read_run(folder)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    rows = whole["events.csv"].splitlines(keepends=True)
    result = json.loads(whole["result.json"])
    without_seed = {**result, "run": {key: value for key, value in result["run"].items() if key != "seed"}}
    for name, damage in {
        "events.csv": b"".join(rows[: len(rows) // 2]),
        "nearby.npy": b"",
        "folds.csv": b"model\n",
        "result.json": json.dumps(without_seed).encode(),
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
    found = read_run(tmp_path / "run").findings.detections["tree"]
    assert set(found.groups) == {"007", "NA", "08"}
    assert np.isfinite(found.nearby.score).all()


def test_files_that_hold_nothing_but_regions(table, tmp_path):
    thetas = [name for name in table if name.startswith("theta_deg")]
    table[(table[thetas] ** 2 < 0.025).any(axis=1)].to_csv(tmp_path / "inside.csv", index=False)
    for more in ((), ("--groups", "none")):
        folder = tmp_path / f"run{len(more)}"
        assert run_command("detect", tmp_path / "inside.csv", "-o", folder, "-m", "tree", *more, "--json") == 0
        assert "the θ² plot ends at the cut" in (folder / "report.html").read_text(encoding="utf-8")


def test_forward_without_groups_goes_by_time_or_not_at_all(table, tmp_path, capsys):
    on = table["theta_deg"] ** 2 < 0.025
    off = (table[[f"theta_deg_off_{k}" for k in range(1, 6)]] ** 2 < 0.025).any(axis=1) & ~on
    for timed in (True, False):
        for name, part in (("on", table[on]), ("off", table[off])):
            (part if timed else part.drop(columns="unix_time")).to_csv(tmp_path / f"{name}.csv", index=False)
        arguments = ("--off", tmp_path / "off.csv", "--alpha", 0.2, "--groups", "none", "-m", "tree", "--json")
        capsys.readouterr()
        assert run_command("detect", tmp_path / "on.csv", "-o", tmp_path / "run", *arguments) == 0
        found = json.loads(capsys.readouterr().out)
        if timed:
            assert found["models"]["tree"]["forward"]["significance"] > 5
        else:
            assert found["models"]["tree"]["forward"] is None
            assert "what came first is not known" in found["no_forward"]
            assert "what came first is not known" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_interrupted_report_leaves_nothing(detections, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", broken)
    with pytest.raises(OSError, match="No space"):
        write_report(detections["tree"], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
