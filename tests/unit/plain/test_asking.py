from __future__ import annotations

import pytest
from msgspec import structs

from sakti.core.events import ApprovalRequested
from sakti.plain.lines import TypedAnswer, parse_answer

ASKED = ApprovalRequested("q", "bash", "why", "make", ".", rule="bash(make)")
CHANGE = ApprovalRequested("q", "write", "why", "a", ".", diff="+x")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("y", TypedAnswer(True)),
        (" Yes ", TypedAnswer(True)),
        ("a", TypedAnswer(True, grant="workspace")),
        ("t", TypedAnswer(True, grant="thread")),
        ("n", TypedAnswer()),
        ("no, use git", TypedAnswer(note="use git")),
        ("e make test", TypedAnswer(True, edited="make test")),
        ("a bit later", None),
        ("yes please go on", None),
        ("now what", None),
        ("/help", None),
    ],
)
def test_what_is_an_answer(line: str, wanted: TypedAnswer | None) -> None:
    assert parse_answer(line, ASKED) == wanted


def test_all_edits_are_an_answer_to_a_question_about_an_edit() -> None:
    assert parse_answer("s", structs.replace(CHANGE, is_edit=True)) == TypedAnswer(True, grant="edits")


def test_what_cannot_be_answered_so() -> None:
    for line, asked in (("s", ASKED), ("a", CHANGE), ("e make", CHANGE), ("e", ASKED)):
        given = parse_answer(line, asked)
        assert given is not None and given.problem and not given.approved
