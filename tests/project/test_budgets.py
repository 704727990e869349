"""Budgets that keep the package small enough for one person: lines, files, modules, imports, public names."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "excess").rglob("*.py"))
MOST_LINES = 34_000
MOST_FILES = 115
MOST_MODULES = 14
MOST_PUBLIC_NAMES = 110
LARGEST_IMPORT_SHARE = 0.07


def lines_of(nodes) -> int:
    return sum(node.end_lineno - node.lineno + 1 for node in nodes)


def is_docstring(node) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_lines_and_files():
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES) <= MOST_LINES
    assert len(SOURCES) <= MOST_FILES


def test_modules_of_a_folder():
    modules = Counter(path.parent.name for path in SOURCES if path.name != "__init__.py")
    assert {folder: number for folder, number in modules.items() if number > MOST_MODULES} == {}


def test_length_of_modules():
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > 1000} == {}


def test_share_of_imports():
    """Of all lines with code: docstrings, comments and blank lines do not count."""
    imports = code = 0
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(text)))
        imports += lines_of(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
        written = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        code += len(written) - lines_of(filter(is_docstring, nodes))
    assert imports <= LARGEST_IMPORT_SHARE * code


def test_public_names():
    names = re.findall(r"^   (\w+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) == len(set(names)) <= MOST_PUBLIC_NAMES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-2:]))
def test_modules_are_private(path):
    """Public names are those that the packages export; modules of public packages begin with an underscore."""
    private_folder = any(part.startswith("_") for part in path.parent.relative_to(ROOT / "src" / "excess").parts)
    assert path.name.startswith("_") or private_folder
