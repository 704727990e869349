"""The documentation site: every public name has a place in it, and its own helpers do what they say."""

import re
import runpy
import sys
from pathlib import Path

import pytest

import excess
import excess.report
from excess.cli._app import app

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def _helpers_of_the_site(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "_ext"]:
        del sys.modules[name]


def test_every_public_name_is_in_the_reference():
    listed = set(re.findall(r"^   (\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE))
    modules = {"analysis", "config", "dataset", "detection", "estimators", "io", "out_of_core", "report", "stats"}
    public = set(excess.__all__) - modules - {"__version__", "THRESHOLD_METHODS"}
    assert public - listed == set()
    assert {name for name in excess.report.__all__ if name.islower()} - listed == set()


def test_every_page_is_in_a_table_of_contents():
    pages = {path.stem for path in DOCS.glob("[a-z]*.md")} - {"index"}
    listed = set()
    for path in DOCS.glob("[a-z]*.md"):
        text = path.read_text(encoding="utf-8")
        for block in re.findall(r"```\{toctree\}(.*?)```", text, re.DOTALL):
            listed |= {re.sub(r".*<(.*)>", r"\1", line.strip()) for line in block.splitlines() if line.strip()}
    assert pages - listed == set()


def test_the_reference_of_the_command_line_has_every_option(tmp_path):
    import typer
    from _ext.commands import write_reference

    write_reference(tmp_path / "commands.md")
    text = (tmp_path / "commands.md").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():
        section = text[text.index(f"## excess {name}\n") :]
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert parameter.opts[0] in section, (name, parameter.name)


def test_the_reference_of_the_configuration_has_every_key(tmp_path):
    from _ext.commands import write_keys

    write_keys(tmp_path / "keys.md")
    keys = set(re.findall(r"^\| `(\w+)` \|", (tmp_path / "keys.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(excess.config.AnalysisConfig.model_fields) | {"theta_squared_cut", "ra", "on", "edges", "off"} <= keys


def test_the_site_is_short_enough_to_read():
    """Pages without API reference, command line reference and tutorials."""
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in DOCS.glob("[a-z]*.md"))
    assert words <= 22_000
    assert len((DOCS.parent / "README.md").read_text(encoding="utf-8").split()) <= 500
    assert (DOCS.parent / "CHANGELOG.md").stat().st_size <= 4000


def test_an_inventory_is_what_sphinx_reads(tmp_path):
    inventory = pytest.importorskip("sphinx.util.inventory")
    from _ext.inventories import write_inventories

    (tmp_path / "list.txt").write_text("numpy https://numpy.org/doc/\n  py:class numpy.ndarray a.html#$\n")
    mapping = write_inventories(tmp_path / "list.txt", tmp_path / "out")
    address, path = mapping["numpy"]
    with Path(path).open("rb") as file:
        found = inventory.InventoryFile.load(file, address, lambda *parts: "".join(parts))
    assert found["py:class"]["numpy.ndarray"].uri == "https://numpy.org/doc/a.html#numpy.ndarray"


def test_links_that_lead_nowhere(tmp_path):
    check = runpy.run_path(str(DOCS.parent / "tools" / "check_links.py"))["find_broken"]
    (tmp_path / "api").mkdir()
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "theme.html").write_text("<a href='{{ template }}'>no page</a>")
    (tmp_path / "api" / "tree.html").write_text(
        "<h1 id='fit(X)'>fit</h1><a href='../index.html?q=1#top'>up</a><a href='#'>top</a>"
    )
    page = "<p id='top'><a href='api/tree.html#fit%28X%29'>good</a><a href='https://example.org/x'>outside</a>\n"
    (tmp_path / "index.html").write_text(page + "<img src='data:image/png;base64,AAAA'>")
    assert check(tmp_path) == (3, [])
    (tmp_path / "index.html").write_text(
        page + "<a href='api/tree.html#predict'>a</a>\n<img src='b.png'>\n<a href='../c.html'>c</a>"
    )
    n_links, broken = check(tmp_path)
    assert n_links == 6
    assert broken == [
        "index.html:2: api/tree.html#predict leads to a place that is not in api/tree.html",
        "index.html:3: b.png leads to a file that is not there",
        "index.html:4: ../c.html leads out of the site",
    ]
