"""Decode a text file and encode it again: encoding, byte order mark and line ends stay the same.

Whatever a file is written in, `decode(data).encode(decode(data).text) == data`. Under a guessed encoding text may look
odd, but what an edit does not touch keeps its bytes, and no new text beyond ASCII is written.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from sakti.core import content
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern

EVIDENCE = 500  # bytes beyond ASCII from which a guessed encoding is named
FEW = 20  # bytes beyond ASCII below which a text is shown as a Western one
HEAD = 8_192  # bytes in which a sign of a binary file is looked for

_MARKS = (  # the longer first: the mark of UTF-32 begins as that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# PEP 263, XML and HTML; each says it in ASCII
_DECLARED = re.compile(rb"(?:coding[:=]\s*|encoding\s*=\s*[\"']|charset\s*=\s*[\"']?)([-\w.]{2,30})")
# Encodings without a state: what stands before and behind a change is written as it was.
_STATELESS = lazy_pattern(r"latin|iso8859|cp\d|koi8|mac|ptcp|kz1048|tis|shift_jis|euc_|gbk|gb18030|gb2312|big5|johab")
_ASCII = bytes(range(0x80))
_MANY = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_BEYOND_ASCII = lazy_pattern(r"[^\x00-\x7f]+")
_CONTROL = lazy_pattern("[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class FileText(Struct, frozen=True):
    """Text of a file, with its line ends, and its encoding.

    `mark` is its byte order mark, `errors` how bytes outside of the encoding are carried through. A guess is "likely",
    or "weak" if there are too few bytes to name it.
    """

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    errors: str = "strict"
    guess: Literal["", "likely", "weak"] = ""

    @property
    def label(self) -> str:
        """Describe the encoding, never a guess as a fact."""
        if not self.guess:
            return self.encoding
        if self.guess == "likely":
            return f"{self.encoding} (guessed from its bytes)"
        return f"an unknown 8-bit encoding (shown as {self.encoding})"

    def encode(self, text: str) -> bytes:
        """Encode `text` for this file.

        Raises `ToolError` if its encoding lacks a character, or is guessed and `text` has new ones beyond ASCII.
        """
        if self.guess and (new := _new_text(self.text, text)):
            raise ToolError(
                f"The file is written in {self.label}, so {new[:40]!r}, which is not in it yet, may come out wrong; "
                "nothing was changed. Use ASCII for new text, or convert the file to UTF-8 first."
            )
        try:
            return self.mark + text.encode(self.encoding, self.errors)
        except UnicodeEncodeError as e:
            sign = text[e.start]
            raise ToolError(
                f"The file is written in {self.encoding}, which has no {sign!r} (U+{ord(sign):04X}); nothing was "
                "changed. Use other characters, or convert the file first."
            ) from e

    def check_whole(self, text: str) -> None:
        """Raise `ToolError` if replacing the file by `text` would lose text whose encoding is guessed."""
        if self.guess and (lost := _new_text(text, self.text)):
            raise ToolError(
                f"The file is written in {self.label}, and writing it whole would lose {lost[:40]!r}, which may be "
                "other text than it looks; nothing was changed. Change parts with edit, or convert the file to UTF-8 "
                "first."
            )


def _new_text(old: str, new: str) -> str:
    """Return the first text beyond ASCII that occurs more often in `new` than in `old`, or "".

    A part of a text that goes is not new.
    """
    before, after = Counter(_BEYOND_ASCII.findall(old)), Counter(_BEYOND_ASCII.findall(new))
    gone = before - after
    return next((run for run in after - before if not any(run in one for one in gone)), "")


def decode(data: bytes) -> FileText | None:
    """Decode `data`; None for a binary file."""
    for mark, encoding in _MARKS:
        if data.startswith(mark) and (text := _exact(data[len(mark) :], encoding, mark=mark)):
            return text
    wide = _wide(data)
    if wide is not None:
        return wide
    if b"\0" in data[:HEAD]:
        return None
    if text := _exact(data, "utf-8"):
        return text
    return _decode_by_declaration(data) or _decode_by_guess(data)


def _exact(data: bytes, encoding: str, *, mark: bytes = b"", errors: str = "strict") -> FileText | None:
    """Decode `data` by an encoding, if it encodes to the same bytes."""
    try:
        text = data.decode(encoding, errors)
        same = text.encode(encoding, errors) == data
    except (UnicodeError, LookupError):
        return None
    return FileText(text, encoding, mark, errors) if same else None


def _wide(data: bytes) -> FileText | None:
    """Decode UTF-16 without a mark, recognised by every second byte of its ASCII being zero."""
    head = data[:HEAD]
    if len(data) < 4 or len(data) % 2 or b"\0" not in head:
        return None
    even, odd = head[::2].count(0), head[1::2].count(0)
    if min(even, odd) or max(even, odd) * 5 < len(head):  # two fifths of its characters at least
        return None
    text = _exact(data, "utf-16-le" if odd else "utf-16-be")
    return text if text and not _CONTROL.search(text.text[:HEAD]) else None


def _decode_by_declaration(data: bytes) -> FileText | None:
    """Decode by the encoding that the file names in its first lines."""
    named = _DECLARED.search(b"\n".join(data[:1024].split(b"\n", 5)[:5]))
    if named is None:
        return None
    try:
        info = codecs.lookup(named[1].decode("ascii"))
    except (LookupError, ValueError):
        return None
    return (
        _exact(data, info.name)
        if _STATELESS.match(info.name.replace("-", "_").replace("iso8859_", "iso8859"))
        else None
    )


def _decode_by_guess(data: bytes) -> FileText:
    """Guess the encoding: UTF-8 with a few wrong bytes, else the likeliest one; Latin-1 has every byte."""
    many = sum(len(m) for m in _MANY.findall(data))
    if many > len(data.translate(None, _ASCII)) // 2 and (decoded := _exact(data, "utf-8", errors="surrogateescape")):
        return decoded
    evidence = len(data.translate(None, _ASCII))
    for name in content.likely(data) if evidence >= FEW else ():
        if text := _exact(data, name):
            return replace(text, guess="likely" if evidence >= EVIDENCE else "weak")
    controls = any(0x80 <= b <= 0x9F for b in data)
    text = (controls and _exact(data, "cp1252")) or FileText(data.decode("latin-1"), "latin-1")
    return replace(text, guess="weak")


# --- lines: they end with \n, \r\n, or, in a file that has no \n at all, with \r --------------------------------------


class Line(Struct, frozen=True):
    """Line without its end, and the end; empty for a last line without one."""

    body: str
    end: str


def lines(text: str) -> list[Line]:
    """Split `text` into lines; form feeds, U+2028 and the like are characters, as for compilers and grep."""
    return list(_lines(text))


def bodies(text: str) -> list[str]:
    """Return the lines of `text` without their ends."""
    if "\r" in text:
        return [line.body for line in _lines(text)]
    return text.removesuffix("\n").split("\n") if text else []


def _lines(text: str) -> Iterator[Line]:
    only = "\r" if "\r" in text and "\n" not in text else "\n"
    pieces = text.split(only)
    last = pieces.pop()
    for piece in pieces:
        if only == "\n" and piece.endswith("\r"):
            yield Line(piece[:-1], "\r\n")
        else:
            yield Line(piece, only)
    if last:
        yield Line(last, "")


def usual_end(of: list[Line]) -> str:
    r"""Return the line end of most lines, \n without any."""
    ends = [line.end for line in of if line.end]
    return max(("\n", "\r\n", "\r"), key=ends.count) if ends else "\n"


def plain(text: str) -> str:
    r"""Convert every line end of `text` to \n, as models see and write it."""
    return "".join(line.body + ("\n" if line.end else "") for line in lines(text))
