from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.agent.tools.matching import Change, apply_change
from sakti.core.errors import ToolError

DEFINITION = "def f():\n\tif a:\n\t\treturn 1\n\treturn 2\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb\n", "a\nB\nX\n", "a\r\nB\r\nX\r\nc\r\n"),
        ("a\r\nb\nc\r\n", "a\nb\nc\n", "a\nb\nX\nc\n", "a\r\nb\nX\r\nc\r\n"),
        ("a\rb\rc\r", "b\n", "B\nX\n", "a\rB\rX\rc\r"),
        ("x = 1   \ny\n", "x = 1\ny", "x = 1\nz", "x = 1   \nz\n"),
        ("x = 1\ny\n", "x = 1  \ny ", "x = 2\ny", "x = 2\ny\n"),
        ("    if a:\n        b\n", "if a:\n    b\n", "if a:\n    c\n    if d:\n        e\n",
         "    if a:\n        c\n        if d:\n            e\n"),
        (DEFINITION, "    if a:\n        return 1\n", "    if a:\n        if b:\n            return 1\n",
         "def f():\n\tif a:\n\t\tif b:\n\t\t\treturn 1\n\treturn 2\n"),
        ("  if a:\n    b\n", "    if a:\n        b\n", "    if a:\n        b\n    c\n", "  if a:\n    b\n  c\n"),
        ("x = “hi” # one\ny\n", 'x = "hi" # one', 'x = "hi" # two', "x = “hi” # two\ny\n"),
        ("see pages 3–7 …\n", "pages 3-7 ...", "pages 3-8 ...", "see pages 3–8 …\n"),
        ("a\u00a0= 1\n", "a = 1", "a = 2", "a\u00a0= 2\n"),
        ("cafe\u0301 = 1\n", "caf\u00e9 = 1", "caf\u00e9 = 2", "cafe\u0301 = 2\n"),
        ("\tcafe\u0301 = 1\n", "    caf\u00e9 = 1\n", "    caf\u00e9 = 2\n", "\tcafe\u0301 = 2\n"),
        ("a “b”\u00a0\nc \nd\n", 'a "b" \nc', 'a "b" ', "a “b”\u00a0\nd\n"),
        ("\ta = “1”  \n", 'a = "1"\n', 'a = "1" + 2\n', "\ta = “1” + 2  \n"),
        ("x “1”\n    \nb\n", 'x "1"\n  ', 'x "2"\n  ', "x “2”\n    \nb\n"),
        ("a\nb\nc", "  1\ta\n  2\tb", "  1\ta\n  2\tB", "a\nB\nc"),
        ("a\nb\nc\n", "2\tb\n", "B\n", "a\nB\nc\n"),
        ("a\nb\nc", "c\n", "c\nd\n", "a\nb\nc\nd"),
        ("a\nb\nc", "c\n", "", "a\nb\n"),
        ("a\nb\n", "b\n", "", "a\n"),
        ("foo bar\nbaz", "bar\nbaz", "bar\nqux", "foo bar\nqux"),
        ("a\x0cb\u2028c\x85d\n", "c\x85d", "c\x85D", "a\x0cb\u2028c\x85D\n"),
        ("a\nb\r\nc\n", "b\r\nc", "b\nc", "a\nb\nc\n"),
    ],
)  # fmt: skip
def test_what_is_meant_is_replaced_and_nothing_else(text: str, old: str, new: str, expected: str) -> None:
    assert apply_change(text, Change(old, new), "f") == expected


@pytest.mark.parametrize(
    ("text", "old", "words"),
    [
        ("a\na\n", "a", "2 times in f .lines 1, 2."),
        ("x = 1 \ny\nx = 1\t\ny\n", "x = 1\ny", "2 times"),
        ("\tx\n  x\n", "    x\n", "2 times"),
        ("“a” 'b'\n‟a„ 'b'\n", "\"a\" 'b'", "2 times"),
        ("returned\n", "return ", "not in f"),
        ("a\n", "", "old text is empty"),
        ("a\n", "a", "are the same"),
        ("a\n\tb  c\n", "    b c", r"nearest, at line 2.*\n.*\n.*\nfile:  →b··c\nyours: ····b·c"),
        ("def new():\n", "def old():", "already there, at line 1"),
        ("  a\n    b\n", "a\nb\n", "not in f"),
    ],
)
def test_what_is_not_clear_is_refused(text: str, old: str, words: str) -> None:
    new = {"": "x", "a": "a" if words == "are the same" else "z", "def old():": "def new():"}.get(old, "z")
    with pytest.raises(ToolError, match=words):
        apply_change(text, Change(old, new), "f")


def test_all_replaces_every_match_of_the_first_level_that_has_one() -> None:
    assert apply_change("a \nb\na\n", Change("a", "c", all=True), "f") == "c \nb\nc\n"
    assert (
        apply_change("\tx = 1\n    x = 1\n", Change("  x = 1\n", "  x = 2\n", all=True), "f") == "\tx = 1\n    x = 2\n"
    )
    assert apply_change("a\r\nb\r\na\r\nb\r\n", Change("a\nb\n", "c\n", all=True), "f") == "c\r\nc\r\n"


LINES = st.lists(st.text("ab \t“é\r", max_size=5), min_size=1, max_size=6)


@given(LINES, st.data())
def test_an_exact_match_is_what_str_replace_makes_of_it(bodies: list[str], data: st.DataObject) -> None:
    text = "\n".join(bodies).replace("\r", "")
    start = data.draw(st.integers(0, len(text)))
    old = text[start : data.draw(st.integers(start, len(text)))]
    new = data.draw(st.text("abc\n “", max_size=6))
    if old and old != new and text.count(old) == 1:
        assert apply_change(text, Change(old, new), "f") == text.replace(old, new)
