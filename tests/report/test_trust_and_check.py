"""Trust in references and the simulation check in the report."""

from dataclasses import replace

import numpy as np
import pytest
from visit import Visit

from excess import OnOffForestClassifier, OnOffHybridClassifier, cross_val_detect, simulation_agreement
from excess.observation.simulation import simulate_labelled
from excess.report import write_report
from excess.report.references import MAX_PANELS, simulation_content, trust_rows

SCRIPT = "<script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def simulated(observation):
    """Simulated gammas and protons; the protons are too wide."""
    truth = simulate_labelled(1500, 1500, random_state=5)
    X = truth[list(observation.names)].to_numpy()
    signal = truth["is_signal"].to_numpy()
    X[~signal, observation.names.index("width")] *= 1.3
    return X[signal], X[~signal]


@pytest.fixture(scope="module")
def hybrid(observation, simulated):
    labels = np.repeat([1, 0], [len(part) for part in simulated])
    forest = OnOffForestClassifier(30, 1.0, min_samples_leaf=10, random_state=0).fit(np.concatenate(simulated), labels)
    learner = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    model = OnOffHybridClassifier({f"simulation {SCRIPT}": forest}, learner, random_state=0)
    shared = {"alpha": observation.alpha, "groups": observation.groups}
    return observation.annotate(cross_val_detect(model, observation.X, observation.on, **shared))


@pytest.fixture(scope="module")
def agreement(observation, simulated):
    return simulation_agreement(
        observation.X,
        observation.on,
        *simulated,
        alpha=observation.alpha,
        estimator=OnOffForestClassifier(20, min_samples_leaf=20, random_state=0),
        groups=observation.groups,
        feature_names=observation.names,
        random_state=0,
    )


@pytest.fixture(scope="module")
def page(detections, hybrid, agreement, tmp_path_factory):
    path = tmp_path_factory.mktemp("references") / "report.html"
    return write_report({"hybrid": hybrid, "tree": detections["tree"]}, path, simulation=agreement)


def test_trust_is_that_of_the_folds(hybrid, detections):
    rows = trust_rows(hybrid)
    assert [row["kind"] for row in rows] == [
        "reference",
        "learned from the labels, with the references as further features",
        "learned from the labels alone",
    ]
    for row, name in zip(rows, hybrid.folds[0].trust, strict=True):
        values = [fold.trust[name] for fold in hybrid.folds]
        assert row["mean"] == f"{np.mean(values):.2f}"
        assert row["range"] == f"{min(values):.2f} to {max(values):.2f}"
    assert sum(float(row["percent"]) for row in rows) == pytest.approx(100, abs=0.2)
    assert trust_rows(detections["tree"]) == []
    assert trust_rows(replace(hybrid, folds=hybrid.folds[:1]))[0]["range"] == ""


def test_the_check_says_what_python_found(agreement):
    content = simulation_content(agreement)
    assert content["verdict"] == agreement.verdict
    assert [sample["sample"] for sample in content["samples"]] == ["signal", "background"]
    table = agreement.table
    for sample in content["samples"]:
        own = table[table["sample"] == sample["sample"]]
        assert [row["feature"] for row in sample["rows"]] == own["feature"].tolist()
        assert [row["flagged"] for row in sample["rows"]] == own["flagged"].tolist()
        assert len(sample["panels"]) == MAX_PANELS
    assert content["samples"][1]["rows"][0]["feature"] == "width"
    assert content["samples"][1]["rows"][0]["flagged"]
    assert content["samples"][1]["rows"][0]["shift"].startswith("−")


def test_reports_without_references_do_not_mention_them(report):
    text = report.read_text(encoding="utf-8")
    for words in ("Trust in references", "Simulation check"):
        assert words not in text


def test_another_object_is_refused(detections, tmp_path):
    with pytest.raises(TypeError, match="simulation must be a SimulationAgreement, got dict"):
        write_report(detections, tmp_path / "report.html", simulation={})


def test_a_check_without_an_excess_says_why(detections, agreement, tmp_path):
    background = agreement.of_sample("background")
    for left, word in ((background, "Differences found."), ((), "Not checked.")):
        found = replace(agreement, comparisons=left, remark="No excess to compare with simulated gammas.")
        path = write_report(detections, tmp_path / "report.html", simulation=found)
        text = path.read_text(encoding="utf-8")
        assert f"<strong>{word}</strong> No excess to compare with simulated gammas." in text


@pytest.mark.slow
class TestInABrowser:
    @pytest.mark.parametrize("width", [1300, 390])
    def test_trust_and_check_are_shown(self, browser, page, hybrid, agreement, width):
        visit = Visit(browser, page, viewport={"width": width, "height": 900})
        assert visit.trouble == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        rows = visit.page.locator("article.chosen [data-table=trust] tbody tr")
        shown = [row.locator("td").first.inner_text() for row in rows.all()]
        assert shown == [f"{own.mean:.2f}" for own in hybrid.trust.values()]
        assert f"simulation {SCRIPT}" in rows.first.inner_text()
        widths = rows.locator(".bar span").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
        assert np.argmax(widths) == np.argmax([own.mean for own in hybrid.trust.values()])
        check = visit.page.locator("section.check")
        assert agreement.verdict in check.inner_text()
        drawn = check.locator(".plot svg.main-svg").evaluate_all(
            "plots => plots.map(plot => plot.getBoundingClientRect().width)"
        )
        assert min(drawn) > 100
        assert check.locator(".plot.js-plotly-plot").count() == 2 * MAX_PANELS

    def test_panels_show_what_python_computed(self, browser, page, agreement):
        visit = Visit(browser, page)
        shown = visit.page.evaluate(
            "[...document.querySelectorAll('[data-panel]')].map(node => ({observed: [...node.data[3].y], "
            "simulated: [...node.data[2].y].filter((_, i) => i % 2), log: node.layout.xaxis.type === 'log'}))"
        )
        drawn = [*agreement.of_sample("signal")[:MAX_PANELS], *agreement.of_sample("background")[:MAX_PANELS]]
        for panel, one in zip(shown, drawn, strict=True):
            np.testing.assert_allclose(panel["observed"], one.observed, atol=1e-5)
            np.testing.assert_allclose(panel["simulated"], one.simulated, atol=1e-5)
            assert panel["log"] == one.logarithmic

    def test_long_tables_are_folded(self, browser, page, agreement):
        visit = Visit(browser, page)
        table = visit.page.locator("[data-table=background]")
        assert not table.is_visible()
        visit.page.get_by_text("Table of 22 features").last.click()
        assert table.is_visible()
        first = table.locator("tbody tr").first.locator("th, td").all_inner_texts()
        worst = agreement.of_sample("background")[0]
        assert first[0] == worst.feature == "width"
        assert first[-1] == "yes"
        assert visit.trouble == []
