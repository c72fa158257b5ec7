"""What is told along with a message: once, and again where it changed."""

from __future__ import annotations

from msgspec.structs import replace

from sakti.core.tokens import Estimator
from sakti.core.types import ContextPart, join_plain_text
from sakti.memory import context
from sakti.memory.context import render_group
from sakti.memory.request import select_due_facts
from sakti.store.log.lines import CarryOver
from sakti.store.memory import Group
from tests.fakes.requests import message

FACTS = {"now": "12:00", "folder": "/w"}
MINUTE = 60_000


def told(said, **facts):
    return replace(said, parts=(*said.parts, ContextPart(facts)))


def test_a_turn_begins_with_everything() -> None:
    before = told(message("user", "a"), **FACTS)
    assert select_due_facts([before, message("assistant", "b"), message("user", "c")], FACTS, 0, begins=True) == FACTS
    assert select_due_facts([before], FACTS, 0, begins=True) == {}, "it was told already"


def test_a_result_has_what_changed() -> None:
    talk = [told(message("user", "a"), **FACTS), message("assistant", "b"), message("tool", "c")]
    assert select_due_facts(talk, {**FACTS, "now": "12:09"}, 9 * MINUTE, begins=False) == {}
    assert select_due_facts(talk, {**FACTS, "now": "12:10"}, 10 * MINUTE, begins=False) == {"now": "12:10"}
    assert select_due_facts(talk, {**FACTS, "folder": "/x"}, 0, begins=False) == {"folder": "/x"}
    assert select_due_facts(talk, {**FACTS, "task": "t"}, 0, begins=False) == {"task": "t"}
    talk[-1] = told(talk[-1], folder="/x")
    assert select_due_facts([*talk, message("assistant", "d"), message("tool", "e")], FACTS, 0, begins=False) == {
        "folder": "/w"
    }


def test_nothing_is_told_behind_an_answer_or_to_nobody() -> None:
    assert select_due_facts([message("user", "a"), message("assistant", "b")], FACTS, 0, begins=False) == {}
    assert select_due_facts([], FACTS, 0, begins=True) == {}


def test_it_is_nobodys_words() -> None:
    assert join_plain_text(told(message("user", "a"), **FACTS).parts) == "a"
    assert told(message("user", "a"), **FACTS).text == "a"


def test_a_pause_the_task_and_a_response_are_told() -> None:
    assert context.collect_changing_parts("Primary: x", "Go on?", 70 * MINUTE) == {
        "gap": "[1 hour 10 minutes later]",
        "task": "<current-task>\nPrimary: x\n</current-task>",
        "response": "<suggested-response>\nGo on?\n</suggested-response>",
    }
    assert context.collect_changing_parts(None, None, 9 * MINUTE) == {}


def test_of_earlier_work_what_fits_is_carried_over() -> None:
    earlier = CarryOver(
        "t1", "The queue", "Primary: x", (("l1", "word " * 200), ("l2", "a short line")), (("k1", "fix"),)
    )
    found = context.select_carried_over(earlier, "head", Estimator(), 60)
    assert [(p.kind, p.source_id) for p in found] == [
        ("thread", "t1"),
        ("thread", "t1"),
        ("task", "k1"),
        ("line", "l2"),
    ]
    assert context.select_carried_over(earlier, "head " * 100, Estimator(), 60) == []


def test_a_group_is_shown_with_its_range_where_it_can_be_recalled() -> None:
    text = "Date: Jan 1, 2025\n* 🔴 (10:00) one\n  * 🟢 two"
    group = Group("g", "r", "t", "observation", "active", text, 0, first_message_id="a", last_message_id="b",
                  first_index=3, last_index=7)  # fmt: skip
    now = 1_735_732_800_000  # noon of that day
    bare = render_group(group, now, None, tagged=False)
    assert bare == "Date: Jan 1, 2025 (today)\n* 🔴 (10:00) one\n  * two"
    shown = render_group(group, now, None, tagged=True).split("\n")
    assert (shown[1:-1], shown[-1]) == (bare.split("\n"), "</observation-group>")
    assert shown[0].startswith("<observation-group")
