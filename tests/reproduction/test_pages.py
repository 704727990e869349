"""Pages: published values, comparisons, and what their tables say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from excess.reproduction import crab_page, imbalanced, imbalanced_page, published
from excess.reproduction.calibration import calibration_page, critical_values, false_alarms, power, remark
from excess.reproduction.critical_difference import plot_critical_difference
from excess.reproduction.datasets import IMBALANCED_SETS
from excess.reproduction.pages import Page, Table, as_html, as_markdown, compare, pm
from excess.reproduction.published import Value
from excess.reproduction.ranking import compare_ranks
from excess.reproduction.settings import Settings

SMALL = Settings(small=True)


def test_published_tables_are_as_printed():
    assert published.CRAB["mithal-8", "100"] == (26.4465, 0.1804)
    assert published.CRAB["supervised-small", "1"] == (21.7351, 0.0)
    assert published.AGREEMENT["100"]["li-ma-4", "spearman"] == (0.7364, 0.0106)
    assert published.CRAB_NULL["k-means-128", "100"] == (0.3162, 0.6247)
    assert len(published.CRAB) == 58
    best = {line: published.CRAB[line, "100"].mean for line, _ in published.CRAB}
    assert max(best, key=best.get) == "mithal-8"  # bold in the paper


@pytest.mark.parametrize(
    ("values", "theirs", "n", "expected"),
    [
        ([1.0, 3.0], Value(1.0, 2.0), 4, (1.0, np.sqrt(2 / 2 + 4 / 4))),
        ([2.0], Value(1.0, 2.0), 4, (1.0, np.nan)),
        ([1.0, 3.0], None, 4, (np.nan, np.nan)),
    ],
)
def test_differences_and_their_errors(values, theirs, n, expected):
    found = compare(values, theirs, n)
    np.testing.assert_allclose((found.difference, found.error), expected)


def test_pages_escape_what_they_show():
    page = Page("a < b", "made up", ["1 & 2"], [Table("t", ("x", "y"), [("<i>", "2")])])
    text = as_html(page, {})
    assert "a &lt; b" in text
    assert "&lt;i&gt;" in text
    assert "<i>" not in text
    assert "| x | y |\n| --- | --: |\n| <i> | 2 |" in as_markdown(page)


def calibration_rows(n_signal, cut, likelihood, p_values, uncut, rule="largest"):
    """Rows of data sets: pooled and forward are the same, and the likelihood has no p-values."""
    rows = []
    for trial, (s, other, p, without) in enumerate(zip(cut, likelihood, p_values, uncut, strict=True)):
        shared = {"rule": rule, "n_signal": n_signal, "trial": trial, "uncut": without}
        of_cut = {"statistic": "cut", "pooled": s, "forward": s, "corrected": None, "p_value": p, "p_value_spread": p}
        rows.append({**shared, **of_cut})
        if rule == "largest":
            better = None if p is None else p / 2
            of_likelihood = {"statistic": "likelihood", "pooled": other, "forward": other, "corrected": other + 0.5}
            rows.append({**shared, **of_likelihood, "p_value": better, "p_value_spread": better})
    return rows


@pytest.fixture
def calibrated():
    """Four data sets without a source, of which three were permuted; three with one."""
    null = calibration_rows(0, [-1.0, 0.0, 1.0, 2.0], [-2.0, -1.0, 0.0, 1.5], [0.9, 0.5, 0.05, None], [0.0] * 4)
    source = calibration_rows(20, [5.0, 1.0, 1.0], [1.0, 1.4, 1.6], [0.08, 0.08, None], [2.0, -1.0, -1.0])
    default = calibration_rows(0, [4.0], [0.0], [None], [0.0], rule="default")
    return pd.DataFrame(null + source + default)


def test_false_alarms_count_what_exceeds(calibrated):
    lines = {line[:2]: line[2:] for line in false_alarms(calibrated).lines}
    assert lines["cut, largest rule", "pooled"][3:6] == ("0.2500", "0.0000", "0.0000")
    assert lines["cut, default rule", "forward"][0] == "1"
    assert lines["cut, default rule", "forward"][5] == "1.0000"
    assert lines["likelihood", "forward"][1].startswith("-0.375")
    assert lines["likelihood", "forward, r*"][1].startswith("0.125")
    assert lines["likelihood", "permutation"][0] == "3"
    assert lines["cut, largest rule", "permutation"][3:6] == ("0.3333", "", "")  # 19 permutations reach 0.05 at best
    assert lines["no cut", ""][1].startswith("0.000")
    assert ("cut, default rule", "permutation") not in lines


def test_power_is_at_critical_values_of_each_statistic(calibrated):
    critical = critical_values(calibrated)
    assert critical["cut", "pooled"] == pytest.approx(np.quantile([-1.0, 0.0, 1.0, 2.0], 0.95))
    assert critical["likelihood", "forward"] == pytest.approx(np.quantile([-2.0, -1.0, 0.0, 1.5], 0.95))
    found = power(calibrated).set_index(["signal", "value"])
    pooled = found.loc[20, "pooled"]
    assert (pooled["cut"], pooled["likelihood"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))  # 1.4 is above 1.275
    assert pooled["difference"] == pytest.approx(1 / 3)
    assert pooled["error"] == pytest.approx(np.std([-1, 1, 1], ddof=1) / np.sqrt(3))  # of pairs
    assert pooled["no cut"] == pytest.approx(1 / 3)
    assert pooled["mean S, cut"] == pytest.approx(7 / 3)
    permuted = found.loc[20, "permutation"]
    assert (permuted["data sets"], permuted["cut"], permuted["likelihood"]) == (2, 0, 1)
    assert permuted["no cut"] == pytest.approx(0.5)  # on the data sets that were permuted


@pytest.mark.parametrize(
    ("no_cut", "cut", "likelihood", "said"),
    [
        (0.2, 0.3, 0.5, "the likelihood finds more"),
        (0.2, 0.5, 0.3, "the cut finds more"),
        (0.9, 0.96, 0.99, "both find nearly all"),
        (0.6, 0.5, 0.3, "the cut finds more; no cut finds more than both"),
        (0.2, 0.3, 0.31, "no difference beyond twice its error"),
    ],
)
def test_rows_say_who_finds_more(no_cut, cut, likelihood, said):
    rates = {"no cut": no_cut, "cut": cut, "likelihood": likelihood, "difference": likelihood - cut, "error": 0.05}
    assert remark(rates) == said


def test_the_calibration_page_has_its_critical_values_and_no_line_without_a_source(calibrated):
    page = calibration_page({"calibration": calibrated}, SMALL, {})
    assert "1.27 (likelihood, pooled), 1.85 (cut, pooled)" in page.text[1]
    assert [line[:2] for line in page.tables[1].lines] == [
        ("20", name) for name in ("pooled", "forward", "permutation")
    ]
    (figure,) = page.figures
    styles = {line.get_label(): line.get_linestyle() for line in figure.drawing.axes[2].lines}
    assert styles["likelihood, forward"] == "-"
    assert styles["cut, forward"] == "--"


def test_diagram_has_a_bar_for_each_group_and_the_best_on_the_right():
    table = np.array([[published.IMBALANCED[name, m].mean for m in published.FORESTS] for name in IMBALANCED_SETS])
    axes = plot_critical_difference(compare_ranks(table, ["LiMa", "Noisy", "Menon", "Mithal"]))
    left, right = axes.get_xlim()
    assert left > right  # ranks go down to the right
    bars = [line for line in axes.lines if line.get_linewidth() == 4]
    ends = sorted((round(min(bar.get_xdata()), 9), round(max(bar.get_xdata()), 9)) for bar in bars)
    assert ends == [(1.55, 2.5), (2.5, 3.1)]  # at the ranks of their groups, and no cap beyond them
    assert {bar.get_solid_capstyle() for bar in bars} == {"butt"}
    assert len({bar.get_ydata()[0] for bar in bars}) == 2  # not on each other
    sides = {text.get_text().split()[0]: text.get_ha() for text in axes.texts if "  " in text.get_text()}
    assert sides == {"Noisy": "left", "LiMa": "left", "Menon": "right", "Mithal": "right"}


def f1_rows(cells):
    """Rows of F1 from (set, method): {trial: F1}."""
    return pd.DataFrame(
        [
            {"set": name, "method": method, "trial": trial, "f1": f1, "f1_of_folds": f1}
            for (name, method), values in cells.items()
            for trial, f1 in values.items()
        ]
    )


@pytest.fixture
def uneven():
    """Three trials of the paper's four on all sets; ours has two of them on one set, and one on another."""
    cells = {}
    for name in IMBALANCED_SETS:
        for j, method in enumerate(imbalanced.PAPER_METHODS):
            cells[name, method] = {0: 0.1 + 0.1 * j, 1: 0.1 + 0.1 * j, 2: 0.9 - 0.1 * j}
        cells[name, "default-forest"] = {0: 0.25, 1: 0.25, 2: 0.25}
    cells["letter_img", "default-forest"] = {0: 0.25, 1: 0.25}
    cells["protein_homo", "default-forest"] = {2: 0.25}
    return f1_rows(cells)


def test_forests_are_compared_on_common_trials(uneven):
    five = (*imbalanced.PAPER_METHODS, "default-forest")
    means = imbalanced_page.common_means(uneven, five)
    assert list(means.index) == [name for name in IMBALANCED_SETS if name != "protein_homo"]
    np.testing.assert_allclose(means.loc["letter_img"], [0.1, 0.2, 0.3, 0.4, 0.25])  # not the third trial of the four
    np.testing.assert_allclose(means.loc["abalone"].iloc[0], (0.1 + 0.1 + 0.9) / 3)
    assert len(imbalanced_page.common_means(uneven, imbalanced.PAPER_METHODS)) == 10
    once = imbalanced_page.common_means(uneven[uneven["trial"] == 2], five)
    assert list(once.index) == [name for name in IMBALANCED_SETS if name != "letter_img"]  # one trial is all there is


def test_tables_say_their_sets_and_what_they_rank_among(uneven):
    page = imbalanced_page.imbalanced_page({"imbalanced": uneven}, Settings(), {})
    averages, further, glance, cells = page.tables
    assert averages.title == "Averages over 10 sets"
    assert [line[0] for line in averages.lines] == ["LiMa Forest", "Noisy Forest", "Menon Forest", "Mithal Forest"]
    assert averages.lines[0][3] == "0.367"
    assert "rank among the paper's four, ours" in averages.columns
    assert further.columns[3] == "its mean F1 (rank of five)"
    (line,) = further.lines
    assert line[:4] == ("Our default forest", "9 sets (left out: protein_homo)", "2 to 3", "0.250 (4.78)")
    assert "10 sets" in glance.title
    assert "10 sets" in cells.title
    differences = imbalanced_page.critical_difference_page({"imbalanced": uneven}, Settings(), {})
    captions = [figure.caption for figure in differences.figures]
    assert ["10 sets;" in caption for caption in captions] == [True, True, False]
    assert "9 sets (left out: protein_homo)" in captions[2]
    assert differences.summary.groupby("table")["n_sets"].first().to_dict() == {
        "ours": 10,
        "ours, with our default": 9,
        "published": 10,
    }


def test_one_trial_has_no_spread_to_speak_of(uneven):
    one = imbalanced_page.imbalanced_page({"imbalanced": uneven[uneven["trial"] == 0]}, Settings(), {})
    assert "standard deviations" not in one.text[1]
    more = imbalanced_page.imbalanced_page({"imbalanced": uneven}, Settings(), {})
    assert "within two of our standard deviations" in more.text[1]


def test_errors_of_fake_regions_are_from_regions():
    part = pd.DataFrame({"region": [1, 2, 3] * 4, "significance": [1.0, -1.0, 2.0] * 4})
    found, signed = crab_page._without_source(part, Value(0.0, 0.0))
    assert found.n == 12
    assert found.mean == pytest.approx(1.0)
    assert found.error == pytest.approx(np.std([1.0, 0.0, 2.0], ddof=1) / np.sqrt(3))
    assert signed.mean == pytest.approx(2 / 3)


def test_equal_repetitions_have_no_error():
    third = 17.1 / 3
    assert compare([third] * 10, Value(5.0, 0.0), 10).cells(2) == ("5.00", "5.70", "+0.70")
    assert pm(1.0, 0.001, 2) == "1.00 ± 0.00"  # small, but not none


def crab_rows(n_of_lines, likelihood=22.0):
    return pd.DataFrame(
        [
            {"line": line, "n_models": n_models, "significance": 20.0 + 0.1 * number, "likelihood": likelihood}
            for (line, n_models), n in n_of_lines.items()
            for number in range(n)
        ]
    )


def test_the_crab_page_names_models_and_marks_few_repetitions():
    rows = crab_rows({("li-ma-4", 1): 10, ("li-ma-4", 100): 10, ("k-means-8", 100): 3, ("default-forest", 100): 10})
    page = crab_page.crab_page({"crab": rows}, SMALL, {"crab": "simulated"})
    assert [line[0] for line in page.tables[0].lines] == [
        "k-means / ensemble, 8 clusters",
        "LiMa Tree / Forest, depth 4",
        "Our default forest",
    ]
    assert any("one observation" in paragraph for paragraph in page.text)
    (axes,) = page.figures[0].drawing.axes
    circles = [line for line in axes.lines if line.get_marker() == "o"]
    fills = {tuple(map(float, line.get_ydata())): line.get_markerfacecolor() for line in circles}
    assert [at for at, fill in fills.items() if fill == "white"] == [(0.0,)]
    assert "ours on" not in page.figures[0].caption
    assert "Open circles" in page.figures[0].caption


def test_the_likelihood_stands_beside_the_cut_and_is_not_compared_with_the_paper():
    known = crab_rows({("li-ma-4", 100): 2}, likelihood=23.5)
    page = crab_page.crab_page({"crab": known}, SMALL, {"crab": "simulated"})
    (line,) = page.tables[0].lines
    cells = dict(zip(page.tables[0].columns[6:], line[6:], strict=True))
    assert cells == {
        "T = 100, cut: published": "23.30 ± 0.33",
        "ours": "20.05 ± 0.07",
        "difference": "-3.25 ± 0.12",
        "likelihood: ours": "23.50",
        "repetitions": "2",
    }
    assert "blank" not in " ".join(page.text)
    assert page.summary["mean_likelihood"].tolist() == [23.5]
    (axes,) = page.figures[0].drawing.axes
    (triangles,) = (line for line in axes.lines if line.get_marker() == "^" and len(line.get_xdata()))
    assert list(triangles.get_xdata()) == [23.5]


def test_a_likelihood_that_is_not_known_is_blank_with_a_reason():
    rows = pd.concat([crab_rows({("li-ma-4", 100): 2}), crab_rows({("k-means-8", 1): 1}, likelihood=None)])
    page = crab_page.crab_page({"crab": rows}, SMALL, {"crab": "simulated"})
    blank, _ = page.tables[0].lines
    assert blank[1:6] == ["15.42 ± 0.34", "20.00", "+4.58", "", "1"]
    said = "blank for models that do not say how signal-like an event is: k-means, 8 clusters."
    assert any(paragraph.endswith(said) for paragraph in page.text)


def test_wide_tables_scroll_inside_the_page():
    text = as_html(Page("t", "d", tables=[Table("t", ("x",), [("1",)])]), {})
    assert '<div class="wide"><table>' in text
    assert ".wide { overflow-x: scroll" in text
