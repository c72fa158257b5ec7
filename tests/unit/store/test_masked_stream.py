"""A text that comes in pieces is masked as the whole would be, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.store.secrets import LONGEST, MaskedStream, mask_secrets

KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join("Ab1+" * 16 for _ in range(4)) + "\n-----END RSA PRIVATE KEY-----"
SECRETS = (
    "ghp_" + "aB3d" * 9,
    "postgres://admin:s3cretPassw0rd@db.example.com/app",
    'password = "kiqFRusceIWVJb"',
    "Authorization: Bearer abcDEF123456abcDEF123456",
    "ghp_aB3daB3daB3d\\\naB3daB3daB3d",
    KEY,
)


def streamed(pieces: list[str]) -> str:
    stream = MaskedStream()
    return "".join([*(stream.feed(piece) for piece in pieces), stream.end()])


@pytest.mark.parametrize("size", [1, 2, 7, 24, 1_000])
def test_no_cut_lets_a_secret_through(size: int) -> None:
    text = "Look:\n" + "\n".join(f"here is {s} and more\n" for s in SECRETS) + "the end"
    assert streamed([text[i : i + size] for i in range(0, len(text), size)]) == mask_secrets(text)


@given(
    st.lists(st.one_of(st.text(max_size=30), st.sampled_from(SECRETS), st.just("\n")), max_size=12), st.integers(1, 40)
)
def test_it_comes_masked_in_any_pieces(parts: list[str], size: int) -> None:
    text = " ".join(parts)
    said = streamed([text[i : i + size] for i in range(0, len(text), size)])
    for line, whole in zip(said.split("\n"), mask_secrets(text).split("\n"), strict=False):
        assert len(line) == len(whole) or KEY in text
    assert not any(s[12:] in said for s in SECRETS[:1])


def test_words_come_at_once_and_what_has_no_blank_not_for_ever() -> None:
    stream = MaskedStream()
    assert stream.feed("Hello wor") == "Hello "
    assert stream.feed("ld, it is ") == "world, it is "
    assert stream.feed("x" * (LONGEST + 1)) == "x" * (LONGEST + 1)
    assert stream.end() == ""
