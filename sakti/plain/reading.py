"""Turn what an action returned into lines to be read aloud. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sakti.actions.values import Card, Done, Rows, Text, Value
from sakti.core.text import sanitise
from sakti.plain import words
from sakti.plain.prose import Prose

MESSAGE_LINES = 40  # of each message behind a line of the log
BESIDE_LINES = 6  # of a message beside the one that was found
SHOWN = 60  # newest lines of the log
_FINDINGS = {"✓ ": "good: ", "✗ ": "problem: "}
_SIGNS = {"●": "high", "○": "work", "·": "minor", "✓": "done", "⚑": "pinned"}


def lines(value: Value, thread_id: str = "") -> list[str]:
    """Return the lines of a value, its signs in words; `thread_id` is the thread that is open."""
    match value:
        case Done(sentence, title):
            return words.rows([(title, sentence)]) if title else [words.spoken(sentence)]
        case Card(_, rows):
            return words.rows(rows)
        case Text(text, _, "diff"):
            return words.diff("".join(_SIGNS.get(c, c) for c in "\n".join(text)))
        case Text((page,), _, "markdown"):
            prose = Prose()
            return [*prose.add(page), *prose.end()]
        case Text(text):
            return [_FINDINGS.get(x[:2], x[:2]) + x[2:] for part in text for x in sanitise(part).split("\n")]
        case Rows():
            entries = items(value, thread_id)
            return [x for x in (value.head, *(entries or [value.empty]), value.tail) if x]
        case _:
            return list(value.lines)


def items(rows: Rows, thread_id: str = "") -> list[str]:
    """Return the lines of a list's items, with their numbers where one may be chosen."""
    match rows.kind:
        case "threads":
            numbered = enumerate(rows.items, 1)
            return [words.thread(s, n, current=s.thread.id == thread_id) for n, s in numbered]
        case "log":
            log, filter_words = rows.items
            entries = list(words.log_lines(log))
            return (
                [x for x in entries if all(w in x.lower() for w in filter_words)] if filter_words else entries[-SHOWN:]
            )
        case "around":
            messages, target = rows.items
            return [x for m in messages for x in _around(m, m.id == target)]
        case "board":
            return words.board(rows.items[0])
        case kind if kind in _ONE:
            return [x for n, item in enumerate(rows.items, 1) for x in _ONE[kind](item, n)]
        case _:
            return list(rows.text)


def _around(message: Any, is_target: bool) -> Iterable[str]:
    message_lines = words.message(message, limit=None if is_target else BESIDE_LINES)
    return ["selected:", *message_lines] if is_target else message_lines


_ONE: dict[str, Callable[[Any, int], Iterable[str]]] = {
    "hits": lambda hit, n: [words.hit(hit, n)],
    "models": lambda m, n: [f"{n}. {m.full_name}"],
    "context": lambda block, n: [words.context(block, n)],
    "settings": lambda s, _: [words.setting(s)],
    "events": lambda e, _: [words.event(e)],
    "branches": lambda b, _: [words.branch(b)],
    "messages": lambda m, _: words.message(m, limit=MESSAGE_LINES),
}
