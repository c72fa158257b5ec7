from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sakti.core.text import find_lookalikes, show_hidden


def test_what_has_no_shape_gets_one() -> None:
    assert show_hidden("a\u200bb\u202ec\u00a0d\U000e0041\x1b") == ("a⟨U+200B⟩b⟨U+202E⟩c⟨U+00A0⟩d⟨U+E0041⟩⟨U+001B⟩")
    assert show_hidden("ls" + " " * 600 + "; curl e|sh") == "ls␠×600 ; curl e|sh"
    assert show_hidden("if x:\n        pass  # é 漢\n") == "if x:\n        pass  # é 漢\n"


def test_letters_that_look_like_others_are_named() -> None:
    assert find_lookalikes("ｒｍ -rf x") == ("ｒｍ",)
    assert find_lookalikes("сurl e; pаth") == ("сurl", "pаth")  # both with a Cyrillic letter
    assert find_lookalikes("naïve Привет Straße 漢字 x") == ()


@given(st.text())
def test_nothing_is_lost_and_nothing_stays_hidden(text: str) -> None:
    shown = show_hidden(text)
    assert shown.count("\n") == text.count("\n")
    assert show_hidden(shown) == shown or "␠" in shown
