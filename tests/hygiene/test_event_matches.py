"""No consumer drops a new event unseen: a match over events handles or names each of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import get_args

from sakti.core.events import Event
from tests.hygiene.measures import is_default, trees

EVENTS = frozenset(kind.__name__ for kind in get_args(Event))


def named(pattern: ast.AST) -> set[str]:
    """Name the classes of a pattern."""
    return {n.cls.id for n in ast.walk(pattern) if isinstance(n, ast.MatchClass) and isinstance(n.cls, ast.Name)}


def open_matches(tree: ast.AST) -> Iterator[ast.Match]:
    """Yield each match over events whose last case takes the rest without `assert_never`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Match) or not any(named(c.pattern) & EVENTS for c in node.cases):
            continue
        for case in node.cases:
            if is_default(case) and case.guard is None and "assert_never" not in ast.unparse(case):
                yield node


def test_every_match_over_events_is_complete() -> None:
    found = [
        f"{ast.unparse(m.subject)} in {text.splitlines()[0]}"
        for text, tree in trees("sakti")
        for m in open_matches(tree)
    ]
    assert found == [], "name the ignored events in a case, and end in `assert_never`"


def test_an_open_match_is_seen() -> None:
    closed = "match event:\n case TextDelta(): pass\n case Notice(): pass\n case _: assert_never(event)"
    assert list(open_matches(ast.parse(closed))) == []
    assert list(open_matches(ast.parse(closed.replace("assert_never(event)", "pass"))))
    assert list(open_matches(ast.parse("match event:\n case TextDelta() | Notice(): pass\n case other: log(other)")))
    assert list(open_matches(ast.parse("match key:\n case 'a': pass\n case _: pass"))) == []
