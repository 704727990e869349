"""Check the language of the documentation with the word list of `styles/excess/Words.yml`, as Vale does.

Run with ``python tools/check_language.py``: prints each match as FILE:LINE and exits with 1 if there are any. Code
blocks and inline code are skipped. Vale itself reads the same rules (``vale docs README.md``) where it is installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SUPPORT.md", *sorted(map(str, ROOT.glob("docs/[a-z]*.md"))))


def find_words(text: str, rules: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield line number, match and replacement of each word to avoid in a Markdown text."""
    pattern = re.compile("|".join(rf"(?P<w{i}>\b(?:{words})\b)" for i, words in enumerate(rules)), re.IGNORECASE)
    replacements, fenced = list(rules.values()), False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        for found in pattern.finditer(re.sub(r"`[^`]*`", "", line)):
            yield number, found[0], replacements[int(str(found.lastgroup)[1:])]


def main() -> int:
    """Check all pages; return the exit code."""
    rules = yaml.safe_load((ROOT / "styles" / "excess" / "Words.yml").read_text(encoding="utf-8"))["swap"]
    n_found = 0
    for page in PAGES:
        path = ROOT / page
        for number, word, better in find_words(path.read_text(encoding="utf-8"), rules):
            print(f"{path.relative_to(ROOT)}:{number}: {word!r}; use {better}")
            n_found += 1
    return 1 if n_found else 0


if __name__ == "__main__":
    sys.exit(main())
