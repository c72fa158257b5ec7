"""Lines of the chat, read by declarations."""

from __future__ import annotations

from typing import Any

import pytest

from sakti.actions import line, registry
from sakti.actions.values import Refused


def called(text: str) -> tuple[str, dict[str, Any]]:
    typed = line.parse(text)
    action, given = line.resolve_call(registry.chat_commands()[typed.name], typed.argument)
    return action.chat, {k: v for k, v in given.items() if v not in (None, [], False, "")}


@pytest.mark.parametrize(
    ("text", "name", "given"),
    [
        ("/compact", "compact", {}),
        ("/compact undo", "compact undo", {}),
        ("/compact undo the login", "compact", {"focus": "undo the login"}),
        ("/rename  two words ", "rename", {"title": "two words"}),
        ("/threads rename 2 a new  title", "threads rename", {"thread": "2", "title": "a new  title"}),
        ("/threads export 1 json", "threads export", {"thread": "1", "form": "json"}),
        ("/tasks close t4 done with oil", "tasks close",
         {"task": "t4", "summary": "done with oil", "reason": "completed"}),
        ("/tasks release! t4", "tasks release", {"task": "t4", "force": True}),
        ("/observations pin 3", "observations pin", {"line": "3"}),
        ("/observations port 8080", "observations", {"filter": "port 8080"}),
        ("/search C++ -foo", "search", {"query": "C++ -foo"}),
    ],
)  # fmt: skip
def test_a_line_of_the_chat_names_an_action_and_its_arguments(text: str, name: str, given: dict[str, Any]) -> None:
    assert called(text) == (name, given)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/rename", "Write /rename TITLE."),
        ("/tasks close t4", "Write /tasks close TASK SUMMARY."),
        ("/tasks dance", "Write /tasks alone or with .*claim TASK, "),
        ("/tasks create! x", "Write /tasks alone or with"),
        ("/new thing", "/new takes no arguments."),
        ("/tasks undo many", "COUNT|N: 'many' is not a whole number"),
    ],
)
def test_a_line_of_the_chat_that_lacks_something_says_what(text: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        called(text)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("/usr/bin/env", "message", ""),
        ("/nonsense", "unknown", "nonsense"),
        ("!ls -l", "shell", ""),
        ("# a note", "note", ""),
        ("## a heading", "message", ""),
        ("hello", "message", ""),
    ],
)
def test_what_a_line_is(text: str, kind: str, name: str) -> None:
    typed = line.parse(text)
    assert (typed.kind, typed.name) == (kind, name)
