"""Statements of SQL in the store: each has its reason above it, and there are never more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import sakti.store

STORE = Path(sakti.store.__file__).parent
CALLS = 222  # of `execute_sql`; this number only falls
REASON = "# SQL: "


def list_calls(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each statement that executes SQL, and the reason in the comment above it ("": none)."""
    lines = source.split("\n")
    statements = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)]
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "execute_sql":
            line = max(n.lineno for n in statements if n.lineno <= call.lineno <= (n.end_lineno or 0))
            above = line - 1
            while above and lines[above - 1].lstrip().startswith("#"):
                above -= 1
            comments = (text.strip() for text in lines[above : line - 1])
            yield line, next((text.removeprefix(REASON) for text in comments if text.startswith(REASON)), "")


def test_each_statement_has_its_reason_above_it() -> None:
    calls = [(path, *call) for path in STORE.rglob("*.py") for call in list_calls(path.read_text("utf-8"))]
    assert [f"{path}:{line}" for path, line, reason in calls if len(reason) < 15] == []
    assert len(calls) <= CALLS, "use a query of peewee or the helpers of `rows` where that costs nothing"


def test_calls_are_found_with_and_without_a_reason() -> None:
    source = (
        "# why\n# SQL: a reason\nx = db.execute_sql('SELECT 1')\nif x:\n    return f(\n        db.execute_sql(y))\n"
    )
    assert list(list_calls(source)) == [(3, "a reason"), (5, "")]
    assert list(list_calls('"""`execute_sql` is not for here."""\nquery.execute(db)')) == []
