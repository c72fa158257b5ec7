"""What users read keeps to `.github/WORDING.md`: one word for one thing, standard terms."""

from __future__ import annotations

import re

import pytest

from sakti.actions import registry
from tests.hygiene import wording

# What is not written, and the word for it.
INSTEAD = {
    r"\btak(e|es|en|ing) (it |them |that )?back\b": "undo",
    r"\b(bring|brings|brought) (it |them |that |the \w+ )?back\b": "restore",
    r"\b(go|goes|going) on with\b": "continue",
    r"\b(all|no|this|another|every|a new) conversations?\b": "thread",
    r"\b(another|an untitled) chat\b": "thread",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\banew\b": "again",
    r"\bmay not be written\b": "is not writable",
    r"\bexists already\b": "already exists",
    r"\bin circles\b": "repeated",
    r"\bat work\b": "working",
    r"\bNobody\b": "no … configured, no terminal",
    r"\bas they were said\b|\bwhat was said\b": "messages",
    r"\b(so|as) it (was|is) said\b": "messages",
    r"\bThere is no such\b": "This … was removed",
}
# Texts that a model reads, not a user; a recorded protocol; a quotation.
ELSEWHERE = (
    "agent/tools/",
    "agent/session/model_call.py",
    "memory/observe/",
    "memory/reflect/",
    "providers/anthropic.py",
    "providers/history.py",
    "providers/local/",
    "providers/openai_chat.py",
)


@pytest.mark.parametrize(("words", "instead"), INSTEAD.items())
def test_one_word_for_one_thing(words: str, instead: str) -> None:
    shown = [t for t in wording.every_text() if not t.file.startswith(ELSEWHERE)]
    wrong = [f"{t.file}:{t.line}: {t.text}" for t in shown if re.search(words, t.text)]
    assert wrong == [], f"write: {instead}"


def test_every_text_is_found() -> None:
    found = wording.every_text()
    assert len(found) > 1_500
    assert any(t.text == "Show the version and exit." for t in found)
    assert any(t.file.startswith("actions/") and t.text.startswith("Show the observation log") for t in found), "help"
    assert not any(t.text.startswith("SELECT") for t in found)


def test_helps_are_sentences() -> None:
    """A help text of an action begins with a capital and ends with a period."""
    helps = {a.shell or a.chat: a.help for subject in registry.list_subjects() for a in subject.actions}
    wrong = {name: text for name, text in helps.items() if not re.match(r"[A-Z].*[.!]$", text.strip(), re.DOTALL)}
    assert helps and wrong == {}


def test_options_of_commands_that_texts_name_exist() -> None:
    commands = {a.shell: a for subject in registry.list_subjects() for a in subject.actions if a.shell}
    named: list[tuple[str, str, bool]] = []
    for text in wording.every_text():
        for quoted in re.findall(r"`(?:sakti )?([a-z]+ [a-z-]+[^`]* --[^`]*)`", text.text):
            action = commands.get(" ".join(quoted.split()[:2]))
            flags = {f for a in action.args for f in a.flags} if action else ()
            named += [(text.file, quoted, option in flags) for option in re.findall(r"--[a-z-]+", quoted) if action]
    assert len(named) > 1
    assert [one for one in named if not one[2]] == []
