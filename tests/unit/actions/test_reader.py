"""Lines of a shell and of the chat, read by declarations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sakti.actions import line, reader, registry
from sakti.actions.reader import HelpWanted, UsageError
from sakti.actions.spec import arg, flag, limit, option
from sakti.actions.values import Refused

ARGS = (
    arg("task"),
    arg("labels", many=True, default=None),
    option("-p", "--priority", kind="whole", low=0, high=4, default=2),
    option("--meta", kind="pair", many=True),
    option("--status", choices=("open", "closed")),
    option("-o", "--output", kind="path"),
    option("-r", "--resume", optional=True),
    option("--rate", kind="number", low=0, high=1),
    flag("--force"),
    limit(20),
)
NOTHING = {"labels": [], "priority": 2, "meta": [], "status": None, "output": None, "resume": None, "rate": None,
           "force": False, "limit": 20}  # fmt: skip


def read(*words: str) -> dict[str, Any]:
    found = reader.read(ARGS, words, "sakti x")
    assert list(found) != [] and found.keys() == {a.name for a in ARGS}
    return {k: v for k, v in found.items() if k == "task" or v != NOTHING[k]}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("t", {"task": "t"}),
        ("t a b", {"task": "t", "labels": ["a", "b"]}),
        ("--force t -p 1 a", {"task": "t", "labels": ["a"], "force": True, "priority": 1}),
        ("-p1 t", {"task": "t", "priority": 1}),
        ("--priority=4 t", {"task": "t", "priority": 4}),
        ("t --meta a=b --meta=c=d=e", {"task": "t", "meta": [("a", "b"), ("c", "d=e")]}),
        ("-- --force -p", {"task": "--force", "labels": ["-p"]}),
        ("- -o -", {"task": "-", "output": Path("-")}),
        ("t -r", {"task": "t", "resume": ""}),
        ("-r --force t", {"task": "t", "resume": "", "force": True}),
        ("-r x t", {"task": "t", "resume": "x"}),
        ("--resume=x t", {"task": "t", "resume": "x"}),
        ("t --rate .5 --limit 3", {"task": "t", "rate": 0.5, "limit": 3}),
    ],
)
def test_options_and_arguments_stand_in_any_order(words: str, found: dict[str, Any]) -> None:
    assert read(*words.split()) == found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "TASK is missing. `sakti x --help`"),
        ("t --frce", "There is no option --frce."),
        ("t --lim 3", "There is no option --lim."),
        (
            "t -timeout=1",
            "There is no option -timeout. `sakti x --help` shows them."
            " Words that begin with a dash go behind `sakti x --`.",
        ),
        ("t -p", "-p needs a value."),
        ("t --force=1", "--force takes no value."),
        ("t -p 9", "-p: '9' is not a whole number, 0 to 4."),
        ("t -p -1", "-p: '-1' is not a whole number, 0 to 4."),
        ("t --limit 0", "--limit: '0' is not a whole number, 1 or more."),
        ("t --rate nan", "--rate: 'nan' is not a number"),
        ("t --meta x", "--meta: 'x' is not KEY=VALUE."),
        ("t --status stuck", "--status: 'stuck' is not one of open, closed."),
    ],
)
def test_what_means_nothing_is_one_sentence(words: str, told: str) -> None:
    with pytest.raises(UsageError) as e:
        read(*words.split())
    assert str(e.value).startswith(told)


def test_help_is_asked_for_anywhere_but_behind_dashes() -> None:
    for words in ("--help", "t -h", "--frce=1 -h".removeprefix("--frce=1 ")):
        with pytest.raises(HelpWanted):
            read(*words.split())
    assert read("--", "-h") == {"task": "-h"}
    with pytest.raises(UsageError, match="too many arguments"):
        reader.read(ARGS[:1], ["a", "b"], "sakti x")


def called(text: str) -> tuple[str, dict[str, Any]]:
    typed = line.parse(text)
    action, given = line.call(registry.chat()[typed.name], typed.argument)
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
