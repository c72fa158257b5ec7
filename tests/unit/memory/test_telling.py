"""What is told along with a message: once, and again where it changed."""

from __future__ import annotations

from dataclasses import replace

from sakti.core.types import ContextPart, plain_text
from sakti.memory.told_facts import due
from tests.fakes.requests import message

FACTS = {"now": "12:00", "folder": "/w"}
MINUTE = 60_000


def told(said, **facts):
    return replace(said, parts=(*said.parts, ContextPart(facts)))


def test_a_turn_begins_with_everything() -> None:
    before = told(message("user", "a"), **FACTS)
    assert due([before, message("assistant", "b"), message("user", "c")], FACTS, 0, begins=True) == FACTS
    assert due([before], FACTS, 0, begins=True) == {}, "it was told already"


def test_a_result_has_what_changed() -> None:
    talk = [told(message("user", "a"), **FACTS), message("assistant", "b"), message("tool", "c")]
    assert due(talk, {**FACTS, "now": "12:09"}, 9 * MINUTE, begins=False) == {}
    assert due(talk, {**FACTS, "now": "12:10"}, 10 * MINUTE, begins=False) == {"now": "12:10"}
    assert due(talk, {**FACTS, "folder": "/x"}, 0, begins=False) == {"folder": "/x"}
    assert due(talk, {**FACTS, "task": "t"}, 0, begins=False) == {"task": "t"}
    talk[-1] = told(talk[-1], folder="/x")
    assert due([*talk, message("assistant", "d"), message("tool", "e")], FACTS, 0, begins=False) == {"folder": "/w"}


def test_nothing_is_told_behind_an_answer_or_to_nobody() -> None:
    assert due([message("user", "a"), message("assistant", "b")], FACTS, 0, begins=False) == {}
    assert due([], FACTS, 0, begins=True) == {}


def test_it_is_nobodys_words() -> None:
    assert plain_text(told(message("user", "a"), **FACTS).parts) == "a"
    assert told(message("user", "a"), **FACTS).text == "a"
