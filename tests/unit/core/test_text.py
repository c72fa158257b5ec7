from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.core.text import clean_surrogates, count_k, head_and_tail, json_line, one_line, sanitise

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
    assert_harmless(sanitise(text))


@given(st.text(st.characters()))
def test_any_text_becomes_harmless_and_stays(text: str) -> None:
    safe = sanitise(text)
    assert_harmless(safe)
    assert sanitise(safe) == safe


def test_joiners_stay_where_they_join() -> None:
    family = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    assert sanitise(f"{family} \u200da\u200d\u200db") == f"{family} a\u200db"
    assert sanitise("\u200d\u200d") == ""


def assert_harmless(text: str) -> None:
    for c in text:
        assert c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"), repr(c)


def test_escapes_stay_visible_and_markup_stays_literal() -> None:
    assert sanitise("\x1b[31m[/red]") == "␛[31m[/red]"
    assert sanitise("family 👨‍👩‍👧 é") == "family 👨‍👩‍👧 é"


@given(st.text(st.characters()))
def test_json_is_harmless_and_loses_nothing(text: str) -> None:
    line = json_line({"t": text})
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
        line = json_line([f"a{character}b"])
        assert character not in line and json.loads(line) == [f"a{character}b"], hex(ord(character))


def test_one_line_is_bounded() -> None:
    assert one_line("a\n b\tc") == "a b c"
    assert len(one_line("x" * 10_000, 40)) == 40


@given(st.text(), st.integers(1, 50))
def test_head_and_tail_keep_both_ends(text: str, limit: int) -> None:
    cut, left_out = head_and_tail(text, limit)
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
