"""What a small model may do next. Pure.

Leaving the wrong actions out of the grammar works where asking the model does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sakti.core.types import FilePart, Json, Message, ToolCallPart, ToolResultPart
from sakti.providers.local.actions import Action

REPEATS = 2
MOST_ERRORS = 2
MOST_STEPS_BEFORE_CHANGE = 5
_NEEDS_READING = ("edit",)
_CHANGES = ("edit", "write")
_QUESTION = re.compile(
    r"\W*(what|how|why|when|which|who|explain|describe|tell me|hello|hi|hey|thanks|thank)\b", re.I)
_OF_THE_PROJECT = re.compile(
    r"\b(this|these|here|my|our|the (code|file|function|test|project|repo))\b|\w\.\w|[_/(@`]", re.I)
_A_FILE = re.compile(r"\b[\w/-]+\.[a-z]{1,5}\b")
_VERBS = r"\b(?:fix|change|rename|replace|update|correct|repair|implement|add|remove|delete)\b"
_CHANGE = re.compile(_VERBS, re.I)
_CHANGE_OF = re.compile(_VERBS + r" ([\w/.-]+\.[a-z]{1,5})\b", re.I)
_NEW = re.compile(r"\b(create|write|new|generate|scaffold|add a)\b", re.I)
_NUMBERED = re.compile(r"^ *\d+\t", re.M)


@dataclass(frozen=True, slots=True)
class Next:
    """The actions that make sense now, and whether the model may answer instead."""

    actions: tuple[Action, ...]
    answer: bool = True


def following(messages: Sequence[Message], actions: Sequence[Action]) -> Next:
    """What may follow `messages`.

    A general question is answered; one that names a file is not answered unseen. Nothing is edited that was
    not read; a change that was asked for is tried before it is talked about, and again if it failed; what
    worked is not written a second time; who asks the same thing again and again has to answer.
    """
    asked = next((m.text for m in reversed(messages) if m.role == "user"), "")
    calls = [c for m in _turn(messages) for c in m.tool_calls]
    results = [r for m in _turn(messages) for r in m.tool_results]
    if _repeats(calls):
        return Next(())
    allowed = tuple(a for a in actions if _fits(a.name, messages, asked))
    question = bool(_QUESTION.match(asked))
    owed = _CHANGE.search(asked) and not question and not any(c.name in _CHANGES for c in calls)
    if not results:
        if question and not _OF_THE_PROJECT.search(asked):
            return Next(())
        return Next(allowed, answer=not (allowed and (owed or _A_FILE.search(asked))))
    last = results[-1]
    if last.is_error and sum(r.is_error for r in results) <= MOST_ERRORS:
        if last.name in _CHANGES:
            retry = tuple(a for a in allowed if a.name in ("read", *_NEEDS_READING))
            return Next(retry or allowed, answer=not retry)
        return Next(allowed, answer=not allowed)
    if last.name in _CHANGES and not last.is_error:
        return Next(tuple(a for a in allowed if a.name != "write"))
    return Next(allowed, answer=not (owed and allowed and len(calls) < MOST_STEPS_BEFORE_CHANGE))


def _turn(messages: Sequence[Message]) -> list[Message]:
    """The messages since the user last spoke."""
    start = max((i + 1 for i, m in enumerate(messages) if m.role == "user"), default=0)
    return list(messages[start:])


def _repeats(calls: Sequence[ToolCallPart]) -> bool:
    newest = calls[-REPEATS:]
    return len(newest) == REPEATS and all((c.name, c.arguments) == (newest[0].name, newest[0].arguments)
                                          for c in newest)


def _fits(name: str, messages: Sequence[Message], asked: str) -> bool:
    """What was not read is not edited; whole files are for who wants new ones."""
    if name in _NEEDS_READING:
        return _was_read(messages, asked)
    return name != "write" or bool(_NEW.search(asked))


def _was_read(messages: Sequence[Message], asked: str) -> bool:
    """Whether the file to change was read: the one that the user named, else any."""
    named = _CHANGE_OF.search(asked)
    paths = [str((c.arguments or {}).get("path")) for m in messages for c in m.tool_calls if c.name == "read"]
    if named and not any(p.endswith(named[1]) and "test_" + named[1] not in p for p in paths):
        return any(isinstance(p, FilePart) for m in messages for p in m.parts)
    return _last_read(messages) is not None


def repaired(name: str, fields: Json, messages: Sequence[Message]) -> Json:
    """`fields` of an edit with `old` as it stands in what was read last.

    Writing code inside JSON, small models lose indentation and turn " into '. Where exactly one run of lines
    is meant, that run is put in and the same is undone in `new`.
    """
    old, new = fields.get("old"), fields.get("new")
    if name not in _NEEDS_READING or not isinstance(old, str) or not isinstance(new, str) or not old.strip():
        return fields
    text = _last_read(messages)
    if text is None or old in text:
        return fields
    lines, wanted = text.split("\n"), [_loose(line) for line in old.strip("\n").split("\n")]
    places = [i for i in range(len(lines) - len(wanted) + 1)
              if [_loose(line) for line in lines[i:i + len(wanted)]] == wanted]
    if len(places) != 1:
        return fields
    found = lines[places[0]:places[0] + len(wanted)]
    return {**fields, "old": "\n".join(found), "new": _fitted(new.strip("\n"), old.strip("\n"), found)}


def _last_read(messages: Sequence[Message]) -> str | None:
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, ToolResultPart) and part.name == "read" and not part.is_error:
                return _NUMBERED.sub("", part.content)
            if isinstance(part, FilePart):
                return part.text
    return None


def _loose(line: str) -> str:
    return re.sub(r"\s+", " ", line.replace("'", '"')).strip()


def _fitted(new: str, old: str, found: Sequence[str]) -> str:
    """`new` with the indentation and the quotes of the lines it replaces."""
    text = "\n".join(found)
    if "'" not in text and '"' in text and '"' not in old:
        new = new.replace("'", '"')
    missing = _indent(found[0])[len(_indent(old)):]
    return "\n".join(missing + line if line.strip() else line for line in new.split("\n"))


def _indent(text: str) -> str:
    return text[:len(text) - len(text.lstrip(" \t"))]

