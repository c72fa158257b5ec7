"""Decode a text file, encode it again, and change its lines without changing the rest.

Whatever a file is written in, `decode(data).encode(decode(data).text) == data`. Under a guessed encoding text may look
odd, but text that an edit does not touch keeps its bytes, and no new text beyond ASCII is written.

A model writes a text as it was shown it: line ends as \\n, perhaps without trailing blanks, with plain quotes for curly
ones. `merge_change` keeps equal parts of the replaced text and its replacement as the file has them.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from sakti.core import content
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import quote

EVIDENCE = 500  # bytes beyond ASCII from which a guessed encoding is named
FEW = 20  # bytes beyond ASCII below which a text is shown as a Western one
SHORTEST_WIDE = 16  # bytes from which UTF-16 without a mark is recognised; fewer with a zero are binary
CERTAIN_WIDE = 256  # bytes from which two fifths of ASCII are enough for it, else four fifths
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
# Encodings without a state: text before and after a change is written unchanged.
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
        if self.guess and (new := _find_new_text(self.text, text)):
            raise ToolError(
                f"The file is written in {self.label}, so {quote(new, 40)}, which is not in it yet, may come out "
                "wrong; nothing was changed. Use ASCII for new text, or convert the file to UTF-8 first."
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
        if self.guess and (lost := _find_new_text(text, self.text)):
            raise ToolError(
                f"The file is written in {self.label}, and writing it whole would lose {quote(lost, 40)}, which may "
                "not be what it looks like; nothing was changed. Change parts with edit, or convert the file to UTF-8 "
                "first."
            )


def _find_new_text(old: str, new: str) -> str:
    """Return the first text beyond ASCII that occurs more often in `new` than in `old`, or "".

    A part of a text that goes is not new.
    """
    before, after = Counter(_BEYOND_ASCII.findall(old)), Counter(_BEYOND_ASCII.findall(new))
    gone = before - after
    return next((run for run in after - before if not any(run in one for one in gone)), "")


def decode(data: bytes) -> FileText | None:
    """Decode `data`; None for a binary file."""
    for mark, encoding in _MARKS:
        if data.startswith(mark) and (text := _decode_exactly(data[len(mark) :], encoding, mark=mark)):
            return text
    wide = _decode_utf16(data)
    if wide is not None:
        return wide
    if b"\0" in data[:HEAD]:
        return None
    if text := _decode_exactly(data, "utf-8"):
        return text
    return _decode_by_declaration(data) or _decode_by_guess(data)


def _decode_exactly(data: bytes, encoding: str, *, mark: bytes = b"", errors: str = "strict") -> FileText | None:
    """Decode `data` by an encoding, if it encodes to the same bytes."""
    try:
        text = data.decode(encoding, errors)
        same = text.encode(encoding, errors) == data
    except (UnicodeError, LookupError):
        return None
    return FileText(text, encoding, mark, errors) if same else None


def _decode_utf16(data: bytes) -> FileText | None:
    """Decode UTF-16 without a mark, recognised by every second byte of its ASCII being zero."""
    head = data[:HEAD]
    if len(data) < SHORTEST_WIDE or len(data) % 2 or b"\0" not in head:
        return None
    even, odd = head[::2].count(0), head[1::2].count(0)
    fifths = 2 if len(head) >= CERTAIN_WIDE else 4
    if min(even, odd) or max(even, odd) * 10 < len(head) * fifths:  # too few of its characters are ASCII
        return None
    text = _decode_exactly(data, "utf-16-le" if odd else "utf-16-be")
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
        _decode_exactly(data, info.name)
        if _STATELESS.match(info.name.replace("-", "_").replace("iso8859_", "iso8859"))
        else None
    )


def _decode_by_guess(data: bytes) -> FileText:
    """Guess the encoding: UTF-8 with a few wrong bytes, else the likeliest one; Latin-1 has every byte."""
    many = sum(len(m) for m in _MANY.findall(data))
    if many > len(data.translate(None, _ASCII)) // 2 and (
        decoded := _decode_exactly(data, "utf-8", errors="surrogateescape")
    ):
        return decoded
    evidence = len(data.translate(None, _ASCII))
    for name in content.guess_encodings(data) if evidence >= FEW else ():
        if text := _decode_exactly(data, name):
            return replace(text, guess="likely" if evidence >= EVIDENCE else "weak")
    return replace(_decode_western(data), guess="weak")


def _decode_western(data: bytes) -> FileText:
    has_controls = any(0x80 <= b <= 0x9F for b in data)
    return (has_controls and _decode_exactly(data, "cp1252")) or FileText(data.decode("latin-1"), "latin-1")


# --- lines: they end with \n, \r\n, or, in a file that has no \n at all, with \r --------------------------------------


class Line(Struct, frozen=True):
    """Line without its end, and the end; empty for a last line without one."""

    body: str
    end: str


def split_lines(text: str) -> list[Line]:
    """Split `text` into lines; form feeds, U+2028 and the like are characters, as for compilers and grep."""
    return list(_yield_lines(text))


def split_bodies(text: str) -> list[str]:
    """Return the lines of `text` without their ends."""
    if "\r" in text:
        return [line.body for line in _yield_lines(text)]
    return text.removesuffix("\n").split("\n") if text else []


def _yield_lines(text: str) -> Iterator[Line]:
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


def find_line_end(of: list[Line]) -> str:
    r"""Return the line end of most lines, \n without any."""
    ends = [line.end for line in of if line.end]
    return max(("\n", "\r\n", "\r"), key=ends.count) if ends else "\n"


def normalize_ends(text: str) -> str:
    r"""Convert every line end of `text` to \n, as models see and write it."""
    return "".join(line.body + ("\n" if line.end else "") for line in split_lines(text))


LARGEST = 4_000_000  # pairs of lines that are compared; beyond it only the common beginning and end are kept

_PLAIN_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys(
            "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        "…": "...",
        # bytes that a file's encoding has not, as models are shown them
        **dict.fromkeys(map(chr, range(0xDC80, 0xDD00)), "?"),
    }
)


def split_clusters(text: str) -> Iterator[str]:
    """Yield each character with its combining marks."""
    start = 0
    for i in range(1, len(text)):
        if not unicodedata.combining(text[i]):
            yield text[start:i]
            start = i
    if text:
        yield text[start:]


def fold_text(text: str) -> str:
    """Compose `text` (NFC), with plain quotes, dashes and blanks for typographic ones."""
    if text.isascii():
        return text
    return "".join(_fold(c) for c in split_clusters(text))


def _fold(cluster: str) -> str:
    return unicodedata.normalize("NFC", cluster).translate(_PLAIN_CHARACTERS)


def _map_boundaries(text: str) -> dict[int, int]:
    """Map the boundaries of clusters: offset in the folded text → offset in `text`."""
    out = {0: 0}
    there = here = 0
    for cluster in split_clusters(text):
        there, here = there + len(_fold(cluster)), here + len(cluster)
        out[there] = here
    return out


def unfold(text: str, offset: int) -> int:
    """Return the offset in `text` of the character at `offset` of the folded text."""
    if text.isascii():
        return offset
    at = _map_boundaries(text)
    return at[max(o for o in at if o <= offset)]


def carry_over(old: str, new: str, there: str) -> str:
    """Return `new`, with the parts it shares with `old` at its beginning and end as `there` has them.

    `there` is `old` as the file has it; the indentation is that of `new`, trailing blanks of the file stay.
    """
    before, after, present = old.lstrip(" \t"), new.lstrip(" \t"), there.lstrip(" \t")
    indent = new[: len(new) - len(after)]
    if before == present:
        return new
    if fold_text(before) == fold_text(present):
        return indent + _carry_ends(before, after, present)
    bare, blanks = present.rstrip(" \t"), present[len(present.rstrip(" \t")) :]
    if before != before.rstrip(" \t") or after != after.rstrip(" \t") or fold_text(before) != fold_text(bare):
        return new
    return indent + (after if before == bare else _carry_ends(before, after, bare)) + blanks


def count_equal(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Return how many characters or lines are equal at the beginning and, beyond these, at the end."""
    shared = 0
    while shared < min(len(old), len(new)) and old[shared] == new[shared]:
        shared += 1
    back = 0
    while back < min(len(old), len(new)) - shared and old[-1 - back] == new[-1 - back]:
        back += 1
    return shared, back


def _carry_ends(old: str, new: str, there: str) -> str:
    shared, back = count_equal(old, new)
    ours, theirs = {h: t for t, h in _map_boundaries(old).items()}, _map_boundaries(there)
    head = max(h for h, t in ours.items() if h <= shared and t in theirs)
    tail = min(h for h, t in ours.items() if h >= max(head, len(old) - back) and t in theirs)
    return there[: theirs[ours[head]]] + new[head : len(new) - (len(old) - tail)] + there[theirs[ours[tail]] :]


def merge_change(
    there: Sequence[Line],
    old: Sequence[Line],
    new: Sequence[Line],
    end: str,
    adapt: Callable[[str], str] = str,
) -> str:
    """Return the replacement of `there`, which is `old` as the file has it, line by line.

    `end` is the line end of new lines, `adapt` adjusts them (indentation).
    """
    assert len(there) == len(old)
    out: list[Line] = []
    for tag, i, i_end, j, j_end in _compare_lines(old, new):
        if tag == "equal":
            out += there[i:i_end]
            continue
        out += _merge_lines(there[i:i_end], old[i:i_end], new[j:j_end], end, adapt)
    if out and there and old[-1].end and not there[-1].end:  # a file without a last line end stays one
        out[-1] = Line(out[-1].body, "")
    return _join_lines(out, end)


def _merge_lines(
    there: Sequence[Line], old: Sequence[Line], new: Sequence[Line], end: str, adapt: Callable[[str], str]
) -> Iterator[Line]:
    """Yield the lines of a change, each adapted to the bytes of the old line in its place."""
    for k, line in enumerate(new):
        paired = k < len(old)
        body = adapt(carry_over(old[k].body, line.body, there[k].body) if paired else line.body)
        line_end = there[k].end if paired and old[k].end and line.end else ""
        yield Line(body, line_end or (end if line.end else ""))


def _join_lines(lines: Sequence[Line], end: str) -> str:
    """Join lines; add `end` to a line without one unless it is the last."""
    return "".join(line.body + (line.end or end) for line in lines[:-1]) + "".join(
        line.body + line.end for line in lines[-1:]
    )


def _compare_lines(old: Sequence[Line], new: Sequence[Line]) -> Iterator[tuple[str, int, int, int, int]]:
    head, tail = count_equal(old, new)
    if head:
        yield "equal", 0, head, 0, head
    before, after = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(before) * len(after) > LARGEST:
        yield "replace", head, len(old) - tail, head, len(new) - tail
    else:
        for tag, i, i_end, j, j_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            yield tag, head + i, head + i_end, head + j, head + j_end
    if tail:
        yield "equal", len(old) - tail, len(old), len(new) - tail, len(new)
