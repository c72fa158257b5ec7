from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sakti.agent.tools import matching, textfile
from sakti.agent.tools.matching import Change
from sakti.core.errors import ToolError

ENCODINGS = {
    "utf-8": b"",
    "utf-8 with mark": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\0\0",
    "latin-1": b"",
    "cp1252": b"",
}
# Characters that each encoding has; U+2028, U+0085, form feed and tab end no line.
SIGNS = {
    "latin-1": "ab x\tüß\xa0\x0c\x85",
    "cp1252": "ab x\tü“”€\xa0\x0c",
}
WIDE = "ab x\tüß“€\xa0\x0c\x85\u2028\u0301日😀"


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], bytes]:
    """An encoding, lines with their ends, and the bytes of the file."""
    name = draw(st.sampled_from(sorted(ENCODINGS)))
    bodies = draw(st.lists(st.text(SIGNS.get(name, WIDE), max_size=8), min_size=1, max_size=8))
    ends = draw(st.sampled_from([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"]]))
    lines = [(f"{body}|{n}", draw(st.sampled_from(ends))) for n, body in enumerate(bodies)]
    if draw(st.booleans()):
        lines[-1] = (lines[-1][0], "")
    text = "".join(body + end for body, end in lines)
    encoding = name.removesuffix(" with mark")
    if name == "latin-1":
        text += "\xff"  # else it would be taken for UTF-8, rightly
        lines.append(("\xff", ""))
    return encoding, lines, ENCODINGS[name] + text.encode(encoding)


@given(st.binary(max_size=200))
@example(b"a\xff\xfe")
@example("häßlich und schön\n".encode() * 4 + b"\xfc\n")
def test_every_text_comes_back_as_its_bytes(data: bytes) -> None:
    found = textfile.decode(data)
    assert found is None or found.encode(found.text) == data


@given(files(), st.data())
def test_an_edit_leaves_every_other_byte_alone(
    made: tuple[str, list[tuple[str, str]], bytes], data: st.DataObject
) -> None:
    encoding, lines, raw = made
    found = textfile.decode(raw)
    assert found is not None
    number = data.draw(st.integers(0, len(lines) - 1))
    body, end = lines[number]
    # C1 characters of Latin-1 look like signs of cp1252, or with a letter before them like UTF-8
    shown = body.encode(encoding).decode(found.encoding, found.errors)
    after = matching.apply_change(found.text, Change(shown, f"{shown}new"), "f")
    head = "".join(b + e for b, e in lines[:number]).encode(encoding)
    tail = (end + "".join(b + e for b, e in lines[number + 1 :])).encode(encoding)
    assert found.encode(after) == found.mark + head + f"{body}new".encode(encoding) + tail


@given(files(), st.data())
def test_an_edit_of_several_lines_keeps_those_that_stay(
    made: tuple[str, list[tuple[str, str]], bytes], data: st.DataObject
) -> None:
    """As a model writes it: every line end is \\n, whatever the file has."""
    encoding, lines, raw = made
    found = textfile.decode(raw)
    if found is None or found.encoding != encoding or len(lines) < 2:
        return
    first = data.draw(st.integers(0, len(lines) - 2))
    last = data.draw(st.integers(first + 1, len(lines) - 1))
    shown = [line.body for line in textfile.split_lines(found.text)]
    if shown != [body for body, _ in lines]:
        return  # a file of several kinds of line ends, read as one
    old = "\n".join(shown[first : last + 1])
    changed = data.draw(st.integers(first, last))
    new = "\n".join(body + ("+" if n == changed else "") for n, body in enumerate(shown[first : last + 1], first))
    after = matching.apply_change(found.text, Change(old, new), "f")
    expected = "".join(body + ("+" if n == changed else "") + end for n, (body, end) in enumerate(lines))
    assert found.encode(after) == found.mark + expected.encode(encoding)


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"name = 'M\xfcller'\n", "latin-1"),
        (b"price = 5 \x80 \x93x\x94\n", "cp1252"),
        ("a = 1\nb = 2\n".encode("utf-16-le"), "utf-16-le"),
        ("a = 1\nb = 2\n".encode("utf-16-be"), "utf-16-be"),
        ("# -*- coding: koi8-r -*-\nслово\n".encode("koi8-r"), "koi8-r"),
        ('<?xml version="1.0" encoding="Shift_JIS"?>\n日本語\n'.encode("shift_jis"), "shift_jis"),
        ("schön, größer, übler\n".encode() + b"\xfc", "utf-8"),
        ("häßlich\n".encode(), "utf-8"),
    ],
)
def test_encodings_are_told(data: bytes, encoding: str) -> None:
    found = textfile.decode(data)
    assert found is not None
    assert found.encoding == encoding
    assert found.encode(found.text) == data


@pytest.mark.parametrize(
    "data", [b"\0new", b"\0new" * 20, b"\0\1\2", b"\x7fELF\0\0\0", bytes(range(256)), b"\x89PNG\r\n\x1a\n\0\0"]
)
def test_what_is_no_text_is_not_read_as_one(data: bytes) -> None:
    assert textfile.decode(data) is None


def test_what_an_encoding_has_not_is_refused() -> None:
    found = textfile.decode(b"M\xfcller\n")
    assert found is not None
    with pytest.raises(ToolError, match=r"shown as latin-1\), so '→', which is not in it"):
        found.encode("Müller →\n")
