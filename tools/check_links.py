"""Check a built site: every internal link leads to an existing file and anchor."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_LINKS = {"a": "href", "area": "href", "link": "href", "img": "src", "script": "src", "source": "src", "iframe": "src"}


class Link(NamedTuple):
    """A link of a page, and its line."""

    address: str
    line: int


class Page(HTMLParser):
    r"""The links of a page, and the places in it that links can lead to.

    Examples
    --------
    >>> page = Page('<h1 id="top">Title</h1>\n<a href="other.html#end">other</a>')
    >>> page.links, sorted(page.places)
    ([Link(address='other.html#end', line=2)], ['top'])
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[Link] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag links to and how it can be linked to."""
        given = dict(attrs)
        self.places |= {place for place in (given.get("id"), given.get("name") if tag == "a" else None) if place}
        if address := given.get(_LINKS.get(tag, "")):
            self.links.append(Link(address, self.getpos()[0]))


def find_broken(folder: Path) -> tuple[int, list[str]]:
    """Return the number of internal links of the site, and a sentence for each broken one."""
    root = folder.resolve()
    # _static contains templates of the theme
    files = [path for path in sorted(root.rglob("*.html")) if "_static" not in path.relative_to(root).parts]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in files}
    n_links, broken = 0, []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link.address)
            if parts.scheme or parts.netloc:
                continue
            n_links += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            where = f"{path.relative_to(root)}:{link.line}: {link.address}"
            if not target.is_relative_to(root):
                broken.append(f"{where} leads out of the site")
            elif not target.is_file():
                broken.append(f"{where} leads to a file that is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                broken.append(f"{where} leads to a place that is not in {target.relative_to(root)}")
    return n_links, broken


def main(folder: Path) -> None:
    """Check all pages in a folder, and fail if a link is broken."""
    n_links, broken = find_broken(folder)
    if broken:
        raise SystemExit("\n".join(broken))
    if not n_links:
        raise SystemExit(f"{folder}: has no page with a link; has the site been built?")
    print(f"{n_links:,} internal links are valid")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
