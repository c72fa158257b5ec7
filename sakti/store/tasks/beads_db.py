"""Read databases of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from sakti.core.errors import TaskError
from sakti.core.types import Json


def beads_issues(path: Path) -> list[Json]:
    """Return the issues of a beads database in the form of its JSONL export.

    Raises `TaskError` where it is no such database.
    """
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as e:
        raise TaskError(f"{path} cannot be opened: {e}.", code="invalid") from e
    try:
        issues = {r["id"]: r for r in _rows(connection, "SELECT * FROM issues ORDER BY rowid")}
        for edge in _rows(connection, "SELECT issue_id, depends_on_id, type FROM dependencies ORDER BY rowid"):
            if edge["issue_id"] in issues:
                issues[edge["issue_id"]].setdefault("dependencies", []).append(edge)
        for row in _rows(connection, "SELECT issue_id, label FROM labels ORDER BY label"):
            if row["issue_id"] in issues:
                issues[row["issue_id"]].setdefault("labels", []).append(row["label"])
        for row in _rows(connection, "SELECT * FROM comments ORDER BY rowid"):
            if row["issue_id"] in issues:
                issues[row["issue_id"]].setdefault("comments", []).append(row)
    except apsw.Error as e:
        raise TaskError(
            f"{path} is not a readable beads database: {e}. Export it with `bd export -o issues.jsonl`"
            " and import that.",
            code="invalid",
        ) from e
    finally:
        connection.close()
    return list(issues.values())


def _rows(connection: apsw.Connection, sql: str) -> list[dict[str, Any]]:
    """Return rows as objects, without empty values, and with bytes and the like as text."""
    cursor = connection.execute(sql)
    names: list[str] = []
    out: list[dict[str, Any]] = []
    for row in cursor:
        names = names or [d[0] for d in cursor.get_description()]
        pairs = zip(names, row, strict=True)
        out.append({k: v if isinstance(v, str | int | float) else str(v) for k, v in pairs if v not in (None, "")})
    return out
