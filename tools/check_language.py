"""Check the language of documentation and sources with the word list of `styles/excess/Words.yml`, as Vale does.

Run with ``python tools/check_language.py``: prints each match as FILE:LINE and exits with 1 if there are any. In
Markdown, code blocks and inline code are skipped; in Python, comments, docstrings and messages are checked, without
inline code and examples. Vale itself reads the same rules (``vale docs README.md``) where it is installed.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SUPPORT.md", "docs/[a-z]*.md")
SOURCES = (
    "src/excess/**/*.py",
    "studies/**/*.py",
    "benchmarks/**/*.py",
    "tools/*.py",
    "docs/tutorials/*.py",
    "examples/*.py",
)


def iter_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line outside code blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def iter_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of comments, docstrings and other strings of several words."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for number, line in enumerate(node.value.splitlines(), node.lineno):
                if not line.lstrip().startswith((">>> ", "... ")):
                    yield number, line


def main() -> int:
    """Check all pages and modules; return the exit code."""
    rules = yaml.safe_load((ROOT / "styles" / "excess" / "Words.yml").read_text(encoding="utf-8"))["swap"]
    pattern = re.compile("|".join(rf"(?P<w{i}>\b(?:{words})\b)" for i, words in enumerate(rules)), re.IGNORECASE)
    replacements, n_found = list(rules.values()), 0
    for iter_lines, globs in ((iter_markdown, PAGES), (iter_python, SOURCES)):
        for path in sorted(path for glob in globs for path in ROOT.glob(glob)):
            for number, line in sorted(set(iter_lines(path.read_text(encoding="utf-8")))):
                for found in pattern.finditer(re.sub(r"`+[^`]*`+|^ *\w+(, \w+)* : ", "", line)):
                    better = replacements[int(str(found.lastgroup)[1:])]
                    print(f"{path.relative_to(ROOT)}:{number}: {found[0]!r}; use {better}")
                    n_found += 1
    return 1 if n_found else 0


if __name__ == "__main__":
    sys.exit(main())
