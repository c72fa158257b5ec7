"""What a thread is called before a model names it, and how equal names are told apart."""

from __future__ import annotations

import pytest

from sakti.agent.titles import LENGTH, clean_model_title, is_uninformative, make_first_title, number_equal_titles
from sakti.core.types import Thread


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("FIXBUG\nthe redirect loses ?next=\nmore", "FIXBUG: the redirect loses ?next="),
        ("FIXBUG", "FIXBUG"),
        ("please fix the login redirect", "fix the login redirect"),
        ("Hi, can you explain how the cache works?", "explain how the cache works?"),
        ("# Title of a page\n\ntext", "Title of a page"),
        ("why?\n```py\nboom()\n```\nit fails in CI", "why? it fails in CI"),
        ("```py\nboom()\n```", "```py: boom(): ```"),
        ("please", "please"),
        ("hello there, where is the port set?", "where is the port set?"),
        ("hello there", "hello there"),
        ("", ""),
        ("  \n ", ""),
        ("1. rename foo to bar", "rename foo to bar"),
    ],
)
def test_a_first_title_says_what_it_is_about(text: str, title: str) -> None:
    assert make_first_title(text) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Fix login redirect", "Fix login redirect"),
        ('Title: "Fix `login` redirect".', "Fix `login` redirect"),
        ("**Title:** Fix login", "Fix login"),
        ("\n# Fix login\n\nbecause", "Fix login"),
        ("„Weiterleitung nach dem Login“", "Weiterleitung nach dem Login"),
        ("Titles of books", "Titles of books"),
        ("```\n", ""),
        ("", ""),
    ],
)
def test_a_given_title_is_what_the_model_meant(text: str, title: str) -> None:
    assert clean_model_title(text) == title
    assert len(clean_model_title(text * 40)) <= LENGTH


def test_a_title_is_one_short_line() -> None:
    assert len(make_first_title("word " * 100)) <= LENGTH
    assert make_first_title("a\x1b[31m b c d e") == "a␛[31m b c d e"


def test_equal_titles_are_told_apart_by_their_age() -> None:
    threads = [Thread(f"t{n}", "r", title, n, n) for n, title in enumerate(("FIXBUG", "what", "fixbug", "", "FIXBUG"))]
    told = number_equal_titles(reversed(threads))
    assert [told[f"t{n}"] for n in range(5)] == ["FIXBUG", "what", "fixbug (2)", "untitled", "FIXBUG (3)"]


@pytest.mark.parametrize(
    ("title", "little"),
    [
        *(
            (t, True)
            for t in ("hi", "Hello there!", "hey sakti", "good morning", "test", "thanks a lot", "ok", "Hi :)")
        ),
        *((t, True) for t in ("!ls", "!sleep 60", "/compact the ports", "/doctor")),
        *((t, False) for t in ("hi-res images are blurry", "test the login", "okapi pictures", "/etc/x is wrong")),
        *((t, False) for t in ("fix it", "Hello world program in C", "", "continue the migration")),
    ],
)
def test_greetings_and_commands_say_little(title: str, little: bool) -> None:
    assert is_uninformative(title) is little
