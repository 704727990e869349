"""HDUs of a FITS file as bytes: headers whose untouched cards stay as they are, sizes of data, and checksums."""

from __future__ import annotations

import gzip
import io
import re
import textwrap
from pathlib import Path
from typing import IO, Self, cast

import numpy as np

from excess._core.errors import EventFileError

__all__ = ["BLOCK", "Header", "add_checksums", "copy_bytes", "open_uncompressed", "padding"]

BLOCK = 2880
CARD = 80
_GZIP_MAGIC = b"\x1f\x8b"
_COLUMN_CARD = re.compile(r"T[A-Z]+(\d+)$")
_NO_LETTERS = {*range(0x3A, 0x41), *range(0x5B, 0x61)}
"""Codes between digits, capital and small letters, which a checksum does not use."""
_COPIED = 1 << 20


def open_uncompressed(path: Path) -> IO[bytes]:
    """Open a file for reading from its start to its end; one that is compressed by gzip is uncompressed on the way."""
    with path.open("rb") as file:
        compressed = file.read(2) == _GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path, "rb")) if compressed else path.open("rb")


def padding(n_bytes: int) -> int:
    """Return how many bytes are missing to a whole number of blocks."""
    return -n_bytes % BLOCK


def copy_bytes(source: IO[bytes], target: IO[bytes], n_bytes: int, path: Path) -> None:
    """Copy some bytes from one open file to another; EventFileError where the source ends before."""
    left = n_bytes
    while left:
        data = source.read(min(left, _COPIED))
        if not data:
            raise EventFileError(f"{path}: the file ends before its data does; copy it again")
        target.write(data)
        left -= len(data)


class Header:
    """The cards of a header, as text of 80 characters each, without END.

    Only cards that are set are written anew, so that all others keep their bytes. ``stored`` has the header as it was
    read.
    """

    def __init__(self, cards: list[str], stored: bytes = b"") -> None:
        self.cards, self.stored = cards, stored

    @classmethod
    def read(cls, file: IO[bytes]) -> Self | None:
        """Read the header at the current place of a file; None at its end, or where no header follows."""
        cards: list[str] = []
        stored = b""
        while len(block := file.read(BLOCK)) == BLOCK:
            text = block.decode("latin-1")
            stored += block
            if not cards and not text.startswith(("SIMPLE  =", "XTENSION=")):
                return None
            for start in range(0, BLOCK, CARD):
                card = text[start : start + CARD]
                if card.rstrip() == "END":
                    return cls(cards, stored)
                cards.append(card)
        return None

    def get(self, keyword: str) -> str | int | None:
        """Return the text, whole number or truth of a keyword, None where it is not there or something else."""
        found = self._find(keyword)
        return None if found is None else _value_of(self.cards[found])

    def number(self, keyword: str, default: int = 0) -> int:
        """Return the whole number of a keyword."""
        value = self.get(keyword)
        return value if isinstance(value, int) else default

    def set(self, keyword: str, value: str | int, comment: str | None = None) -> None:
        """Set a keyword; its comment stays, unless another one is given."""
        found = self._find(keyword)
        if found is None:
            self.cards.insert(self._end(), _card(keyword, value, comment or ""))
        else:
            self.cards[found] = _card(keyword, value, _split(self.cards[found])[1] if comment is None else comment)

    def add_column(self, name: str, form: str, comment: str) -> None:
        """Add a column at the end of each row of a table."""
        number = self.number("TFIELDS") + 1
        of_columns = [at for at, card in enumerate(self.cards) if _COLUMN_CARD.match(card[:8].rstrip())]
        place = max([*of_columns, self._find("TFIELDS") or 0]) + 1
        self.cards[place:place] = [_card(f"TTYPE{number}", name, comment), _card(f"TFORM{number}", form)]
        self.set("TFIELDS", number)

    def add_history(self, text: str) -> None:
        """Add a line of history, in as many cards as it needs."""
        width = CARD - 8
        text = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
        lines = textwrap.wrap(text, width)
        self.cards[self._end() : self._end()] = [f"{'HISTORY':8}{line}".ljust(CARD) for line in lines]

    @property
    def column_names(self) -> list[str]:
        """Names of the columns of a table."""
        return [str(self.get(f"TTYPE{number}") or "") for number in range(1, self.number("TFIELDS") + 1)]

    @property
    def data_size(self) -> int:
        """Size of the data that follow, in bytes, without padding."""
        axes = [self.number(f"NAXIS{number}") for number in range(1, self.number("NAXIS") + 1)]
        if not axes:
            return 0
        if self.get("GROUPS"):  # random groups, whose first axis is 0
            axes = axes[1:]
        groups, per_group = self.number("GCOUNT", 1), self.number("PCOUNT") + int(np.prod(axes, dtype=object))
        return abs(self.number("BITPIX")) // 8 * groups * per_group

    def to_bytes(self) -> bytes:
        """Return the header as it stands in a file."""
        text = "".join([*self.cards, "END".ljust(CARD)]).encode("latin-1")
        return text + b" " * padding(len(text))

    def _find(self, keyword: str) -> int | None:
        start = f"{keyword:8}="
        return next((at for at, card in enumerate(self.cards) if card.startswith(start)), None)

    def _end(self) -> int:
        """Return the place behind the last card that is not blank."""
        return max((at + 1 for at, card in enumerate(self.cards) if card.strip()), default=0)


def add_checksums(file: IO[bytes], header: Header, start: int, data_size: int) -> None:
    """Set DATASUM and CHECKSUM of an HDU that is complete in a file, where its header has them.

    Parameters
    ----------
    file : binary file
        Open for reading and writing.
    header : Header
        The header as it stands at ``start``.
    start : int
        Where the HDU begins.
    data_size : int
        Size of its data, with padding.
    """
    if header.get("CHECKSUM") is None and header.get("DATASUM") is None:
        return
    file.seek(start + len(header.to_bytes()))
    total, left = 0, data_size
    while left:
        data = file.read(min(left, 256 * BLOCK))
        total = _add_words(total, data)
        left -= len(data)
    if header.get("DATASUM") is not None:
        header.set("DATASUM", str(total))
    if header.get("CHECKSUM") is not None:
        header.set("CHECKSUM", "0" * 16)
        header.set("CHECKSUM", _encode(0xFFFFFFFF - _add_words(total, header.to_bytes())))
    file.seek(start)
    file.write(header.to_bytes())
    file.seek(0, io.SEEK_END)


def _add_words(total: int, data: bytes) -> int:
    """Add words of 32 bit to a sum, with what overflows added again at its other end."""
    total += int(np.frombuffer(data, dtype=">u4").sum(dtype=np.uint64))
    while total >> 32:
        total = (total & 0xFFFFFFFF) + (total >> 32)
    return total


def _encode(value: int) -> str:
    """Return a checksum as 16 digits and letters, as the FITS standard says (its appendix J).

    Each byte becomes four characters whose codes, less that of "0", add up to it.
    """
    encoded = [""] * 16
    for place in range(4):
        byte = value >> (24 - 8 * place) & 0xFF
        codes = [byte // 4 + 0x30] * 4
        codes[0] += byte % 4
        while any(code in _NO_LETTERS for code in codes):
            for pair in (0, 2):
                if codes[pair] in _NO_LETTERS or codes[pair + 1] in _NO_LETTERS:
                    codes[pair] += 1
                    codes[pair + 1] -= 1
        for number, code in enumerate(codes):
            encoded[4 * number + place] = chr(code)
    return encoded[-1] + "".join(encoded[:-1])  # the value begins at an odd place of its card


def _card(keyword: str, value: str | int, comment: str = "") -> str:
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        text = f"'{quoted:8}'".ljust(20)
    else:
        text = f"{value:20d}"
    return (f"{keyword:8}= {text}" + (f" / {comment}" if comment else "")).ljust(CARD)[:CARD]


def _split(card: str) -> tuple[str, str]:
    """Return value and comment of a card as they are written."""
    text = card[10:].lstrip()
    match = re.match(r"('(?:[^']|'')*'|[^/]*)(?:\s*/\s?(.*))?", text)
    assert match is not None  # the pattern fits to any text
    return match[1].strip(), (match[2] or "").rstrip()


def _value_of(card: str) -> str | int | None:
    text = _split(card)[0]
    if text.startswith("'"):
        return text[1:-1].replace("''", "'").rstrip()
    if text in ("T", "F"):
        return text == "T"
    try:
        return int(text)
    except ValueError:
        return None
