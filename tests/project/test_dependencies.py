"""What the package says about versions of Python and of libraries, in all the places that say it."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

import excess

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
GROUPS = PYPROJECT["dependency-groups"]


def of_extra(name):
    found = set()
    for line in EXTRAS[name]:
        own = re.fullmatch(r"excess\[(.*)\]", line)
        found |= set().union(*map(of_extra, own[1].split(","))) if own else {line}
    return found


def of_group(name):
    found = set()
    for line in GROUPS[name]:
        if isinstance(line, dict):
            found |= of_group(line["include-group"])
        else:
            own = re.fullmatch(r"excess\[(.*)\]", line)
            found |= set().union(*map(of_extra, own[1].split(","))) if own else {line}
    return found


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_a_group_is_the_extra_of_its_name(name):
    assert of_group(name) == of_extra(name)


def test_every_dependency_of_users_has_a_lowest_version():
    requirements = [*PYPROJECT["project"]["dependencies"], *of_extra("all")]
    assert [line for line in requirements if not re.match(r"[a-z0-9-]+>=\d", line)] == []


def test_lowest_versions():
    tool = runpy.run_path(str(ROOT / "tools" / "oldest.py"))
    pins = tool["oldest"](tool["requirements"](ROOT / "pyproject.toml", ["test"]))
    assert all(re.fullmatch(r"[a-z0-9-]+==\d[\d.]*", pin) for pin in pins)
    assert {pin.partition("==")[0] for pin in pins} >= {"numpy", "numba", "h5py", "dask", "onnx", "pytest"}
    with pytest.raises(ValueError, match=r"numpy has two lower bounds: 1.26 and 2.0"):
        tool["oldest"](["numpy>=1.26", "numpy>=2.0"])


def test_versions_of_python():
    classifiers = PYPROJECT["project"]["classifiers"]
    said = [line.rpartition(" ")[2] for line in classifiers if re.search(r":: 3\.\d+$", line)]
    assert PYPROJECT["project"]["requires-python"] == f">={said[0]}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == said[0]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == said
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert f"{said[0]} to {said[-1]}" in page


def test_the_version_has_release_notes_and_a_citation():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest is not None
    assert newest[1] == excess.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == excess.__version__
