from __future__ import annotations

import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.core.text import (
    clean_surrogates,
    count_k,
    cut_middle,
    encode_json_line,
    quote,
    remove_invisible,
    sanitize_text,
    sanitize_typed,
    show_value,
    to_one_line,
)

HOSTILE = [
    "\x1b]52;c;aGk=\x07",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\link",
    "\x1b[2J",
    "\x1b[6n",
    "\x1b[?1049l",
    "\x9b31m",
    "\x1bP1$q\x1b\\",
    "\x07\x08\x7f",
    "\u202eevil",
    "\ud800",
    "a\rb",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_a_terminal_obeys_survives(text: str) -> None:
    assert_harmless(sanitize_text(text))


@given(st.text(st.characters()))
def test_any_text_becomes_harmless_and_stays(text: str) -> None:
    safe = sanitize_text(text)
    assert_harmless(safe)
    assert sanitize_text(safe) == safe


@pytest.mark.parametrize(
    "text",
    [
        *(
            "family 👨\u200d👩\u200d👧",
            "👩🏽\u200d💻",
            "❤\ufe0f\u200d🔥",
            "🙂\u200d\u2194\ufe0f",
            "1\ufe0f\u20e3 ☎\ufe0e",
            "👨\u200d",
        ),
        *(
            "می\u200cخواهم",
            "نمی\u200cدانم که",
            "क्\u200dष",
            "ශ්\u200dරී",
            "ത്\u200c ",
            "ത്\u200d",
            "漢\U000e0100字",
            "ᠮᠤ\u180b",
        ),
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f and on",
    ],
)
def test_joiners_and_variants_stay_where_they_have_an_effect(text: str) -> None:
    assert sanitize_text(text) == text and remove_invisible(text) == (text, 0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb\ufeffc\U000e0041d", "a⟨U+200B⟩b⟨U+FEFF⟩c⟨U+E0041⟩d"),
        ("\u061c \u180e \xad \u2060 \u3164", "⟨U+061C⟩ ⟨U+180E⟩ ⟨U+00AD⟩ ⟨U+2060⟩ ⟨U+3164⟩"),
        ("\u200e\u200f\u202eevil", "⟨U+200E⟩⟨U+200F⟩⟨U+202E⟩evil"),
        ("pass\u200dwo\u200crd", "pass⟨U+200D⟩wo⟨U+200C⟩rd"),
        ("👩 \u200d\u200d👩", "👩 ⟨U+200D⟩⟨U+200D⟩👩"),
        ("👩\u200da 😀\ufe0f\ufe0f", "👩⟨U+200D⟩a 😀\ufe0f⟨U+FE0F⟩"),
        ("a\ufe00 \ufe0f b\U000e0100", "a⟨U+FE00⟩ ⟨U+FE0F⟩ b⟨U+E0100⟩"),
        ("\U0001f3f4\U000e0072\U000e006d\U000e007f", "\U0001f3f4⟨U+E0072⟩⟨U+E006D⟩⟨U+E007F⟩"),
        ("\u200d\u200d👩 x\u200d\ufe0f", "👩 x⟨U+200D⟩⟨U+FE0F⟩"),
    ],
)
def test_what_nobody_sees_is_shown(text: str, shown: str) -> None:
    assert sanitize_text(text) == shown
    bare, hidden = remove_invisible(text.lstrip("\u200d"))
    assert bare == re.sub(r"⟨U\+\w+⟩", "", shown) and hidden == shown.count("⟨")


def test_typed_text_keeps_what_has_no_width() -> None:
    assert sanitize_typed("a\u200bb\u200c \u200e\u200dc\u202ed\x1b\r\n") == "a\u200bb\u200c \u200e\u200dcd␛\n"


def assert_harmless(text: str) -> None:
    for c in text:
        assert c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"), repr(c)


def test_escapes_stay_visible_and_markup_stays_literal() -> None:
    assert sanitize_text("\x1b[31m[/red]") == "␛[31m[/red]"
    assert sanitize_text("family 👨‍👩‍👧 é") == "family 👨‍👩‍👧 é"


@given(st.text(st.characters()))
def test_json_is_harmless_and_loses_nothing(text: str) -> None:
    line = encode_json_line({"t": text})
    assert_harmless(line)
    assert "\n" not in line
    assert json.loads(line) == {"t": text}


def test_json_shows_what_has_no_width_or_reorders_text() -> None:
    widthless = [
        chr(n)
        for n in range(sys.maxunicode + 1)
        if unicodedata.bidirectional(chr(n)) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"}
    ]
    for character in (*widthless, *"\u061c\u200b\u200c\u200d\u200e\u200f\u2060\u3164\ufe0f\ufeff\U000e0041"):
        line = encode_json_line([f"a{character}b"])
        assert character not in line and json.loads(line) == [f"a{character}b"], hex(ord(character))


def test_quoted_text_stays_as_it_is_on_one_safe_line() -> None:
    for text in ("C:\\new", 'it\'s a "b"', "👨\u200d👩 two  spaces", "日本"):
        assert quote(text) == f"'{text}'" == show_value(text)
    assert quote("one\ntwo\x1b[31m") == "'one two␛[31m'"
    assert quote("abcdef", 4) == "'abc…'" and quote("abcd", 4) == "'abcd'"
    assert show_value(["it's"]) == '["it\'s"]'


def test_one_line_is_bounded() -> None:
    assert to_one_line("a\n b\tc") == "a b c"
    assert len(to_one_line("x" * 10_000, 40)) == 40


@given(st.text(), st.integers(1, 50))
def test_head_and_tail_keep_both_ends(text: str, limit: int) -> None:
    cut, left_out = cut_middle(text, limit)
    if len(text) <= limit:
        assert (cut, left_out) == (text, 0)
    else:
        assert left_out == len(text) - limit
        assert cut.startswith(text[: limit * 2 // 3])
        assert cut.endswith(text[-(limit - limit * 2 // 3) :])


def test_lone_surrogates_can_be_stored() -> None:
    clean_surrogates("a\ud800\x00b").encode("utf-8")


@pytest.mark.parametrize(("n", "text"), [(0, "0"), (999, "999"), (21_400, "21.4k"), (1_250_000, "1.25M")])
def test_token_numbers_are_short(n: int, text: str) -> None:
    assert count_k(n) == text
