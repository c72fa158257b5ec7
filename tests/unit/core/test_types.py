"""What of a message a person can search for."""

from __future__ import annotations

from sakti.core.types import ToolCallPart, join_plain_text


def test_the_arguments_of_a_call_are_text_and_no_program() -> None:
    edits = [{"old": "if a:\n    b", "new": "else:"}, {"old": "'x'", "new": ""}]
    text = join_plain_text([ToolCallPart("c", "edit", {"path": "a.py", "edits": edits, "count": 2})])
    assert text == "edit a.py if a:\n    b else: 'x'  2"
