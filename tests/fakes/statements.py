"""Every statement that a store executes, and which of them walk through a whole table.

    async with captured(store) as statements:
        await store.read(queries.board, "/w", 0)
    assert scans(await store.read(explained, statements)) == []

No statistics (ANALYZE) are made: a planner that knows nothing of the data is what users have.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sakti.store.connection import Connection
from sakti.store.database import Store

_READS = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_SCAN = re.compile(r"SCAN (\S+)")
_MADE = re.compile(r"(?:CO-ROUTINE|MATERIALIZE) (\S+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """How SQLite executes a statement, a line a step."""

    sql: str
    steps: tuple[str, ...]

    def scans(self) -> list[str]:
        """The steps that go through a table, by row or by index. What a subquery or a CTE of the statement made, an
        array of its parameters (json_each) and a full-text index are no tables."""
        made = {name for step in self.steps for name in _MADE.findall(step)}
        found = [(step, name[1]) for step in self.steps if (name := _SCAN.match(step))]
        return [
            step
            for step, name in found
            if name not in made and "VIRTUAL TABLE" not in step and not name.startswith(("(", "CONSTANT"))
        ]


@dataclass(slots=True)
class Captured:
    """Statements in the order in which they were first executed, each with values that it was executed with."""

    statements: dict[str, Any] = field(default_factory=dict)

    def take(self, _cursor: object, sql: str, values: Any) -> bool:
        self.statements.setdefault(sql, values)
        return True


@contextlib.asynccontextmanager
async def captured(store: Store) -> AsyncIterator[Captured]:
    """What the writer and the reader of a store execute meanwhile."""
    out = Captured()

    def listen(db: Connection, on: bool) -> None:
        db.connection().exec_trace = out.take if on else None

    await store.write(listen, True)
    await store.read(listen, True)
    try:
        yield out
    finally:
        await store.write(listen, False)
        await store.read(listen, False)


def explained(db: Connection, captured: Captured) -> list[Plan]:
    """How each of them is executed."""
    return [
        Plan(sql, tuple(row[3] for row in db.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()))
        for sql, values in captured.statements.items()
        if _READS.match(sql)
    ]


def unlisted(plans: Sequence[Plan], allowed: dict[str, str]) -> list[str]:
    """The statements that go through a table and that no text of `allowed` (each with a reason) is a part of."""
    return [
        f"{'; '.join(plan.scans())}: {plan.sql}"
        for plan in plans
        if plan.scans() and not any(part in plan.sql for part in allowed)
    ]
