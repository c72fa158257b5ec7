"""`sakti help`: the topics, their pages, and words that name none."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
from rich.cells import cell_len
from rich.text import Text

from sakti.actions import screen as help_action
from sakti.cli import common
from tests.fakes.shell import sakti


def test_topics_are_listed_with_a_sentence_each() -> None:
    shown = sakti("help")
    assert shown.exit_code == 0
    listed = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines()[: len(help_action.TOPICS)])
    assert tuple(listed) == help_action.TOPICS
    assert all(sentence.endswith(".") for sentence in listed.values())
    assert json.loads(sakti("help", "--json").stdout) == listed


@pytest.mark.parametrize("topic", help_action.TOPICS)
def test_a_page_is_printed_as_plain_text_into_a_pipe(topic: str) -> None:
    shown = sakti("help", topic)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("# ") and "\x1b" not in shown.stdout
    assert ".md)" not in shown.stdout, "a terminal cannot follow links to other pages"


@pytest.mark.parametrize("topic", help_action.TOPICS)
def test_a_page_is_formatted_on_a_terminal(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", out)
    for name, value in {"COLUMNS": "90", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    common.say_markdown(help_action.read_page(topic))
    lines = Text.from_ansi(out.getvalue()).plain.splitlines()
    assert "#" not in lines[0] and "```" not in lines
    assert max(map(cell_len, lines)) <= 90


@pytest.mark.parametrize(
    ("word", "topic"),
    [("skills", "instructions"), ("Commands", "instructions"), ("providers", "models"), ("threads", "data"),
     ("UNDO", "undo"), ("run", "headless")],
)  # fmt: skip
def test_words_of_a_heading_name_its_page(word: str, topic: str) -> None:
    assert sakti("help", word).stdout == sakti("help", topic).stdout


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("sandbx", "Did you mean `sakti help sandbox`?"),
        ("zzz", "The topics are agents, "),
        ("../README", "topics"),
    ],
)
def test_an_unknown_topic_is_wrong_usage_and_names_the_nearest(word: str, hint: str) -> None:
    wrong = sakti("help", word)
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert hint in wrong.stderr


def test_usage_lines_have_usual_words() -> None:
    for command, usage in (
        ("search", "[OPTIONS] QUERY..."),
        ("threads export", "[OPTIONS] THREAD"),
        ("run", "[PROMPT]"),
    ):
        text = sakti(*command.split(), "--help").stdout
        assert usage in text and not re.search(r"<(?:str|list)|\{[A-Z]", text), text
