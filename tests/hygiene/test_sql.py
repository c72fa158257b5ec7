"""Where the store speaks SQL by itself: each module that does is listed with its reason, and says so."""

from __future__ import annotations

import ast
from pathlib import Path

import sakti.store

STORE = Path(sakti.store.__file__).parent

_DOOR = "executes what others have built"
_FILE = "the file, its schema or what is left of it: not through the models, which describe a whole one"
_TEXT = "full text: MATCH, bm25, vocabulary and the tables behind an index"
_GRAPH = "walks through the graph of tasks, counts that follow from it"
_PLAIN = "is asked by programs that do without peewee"
_HOT = "every step, every message, every group, or each row of a list: building the query costs more than running it"
_TABLES = "any table, by what the text registry says of it"
_FULL_SCAN = "looks into packed parts of every message, which no model does"

RAW: dict[str, str] = {
    "database_file.py": _FILE,
    "connection.py": _DOOR,
    "database.py": _DOOR,
    "rows.py": _DOOR,
    "searcher.py": _DOOR,
    "packing.py": _FILE,
    "imports.py": _HOT,
    "archive_file.py": _FILE,
    "maintenance/redacting.py": _TEXT,
    "maintenance/archiving.py": _FILE,
    "maintenance/archive_care.py": _FILE,
    "search/index_upkeep.py": _TEXT,
    "maintenance/maintenance.py": _FILE,
    "migrate.py": _FILE,
    "opening.py": _FILE,
    "maintenance/recovery_repairs.py": _FILE,
    "memory/integrity.py": _FILE,
    "maintenance/upkeep.py": _FILE,
    "search/reindexing.py": _TEXT,
    "search/occurrences.py": _TEXT,
    "search/filters.py": _TEXT,
    "search/retrieve.py": _TEXT,
    "search/rows.py": _HOT,
    "search/spelling.py": _TEXT,
    "search/index.py": _TEXT,
    "tasks/search.py": _TEXT,
    "tasks/deadlocks.py": _GRAPH,
    "tasks/graph.py": _GRAPH,
    "tasks/questions.py": _PLAIN,
    "tasks/rows.py": _HOT,
    "threads/child_runs.py": _HOT,
    "leases.py": _HOT,
    "user_state.py": _FILE,
    "threads/summaries.py": _HOT,
    "memory/moves.py": _HOT,
    "memory/advance.py": _HOT,
    "memory/group_rows.py": _HOT,
    "memory/records.py": _HOT,
    "memory/shared_logs.py": _HOT,
    "log/corrections.py": _HOT,
    "log/events.py": _HOT,
    "log/lines.py": _HOT,
    "threads/messages.py": _HOT,
    "maintenance/purging.py": _TABLES,
    "log/erasure.py": _TABLES,
    "threads/removal.py": _HOT,
    "threads/threads.py": _HOT,
}


def speaks_sql(source: str) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "execute_sql" for n in ast.walk(ast.parse(source))) or any(
        isinstance(n, ast.FunctionDef) and n.name == "execute_sql" for n in ast.walk(ast.parse(source))
    )


def test_sql_of_its_own_is_a_decision() -> None:
    found = {str(f.relative_to(STORE)): f.read_text("utf-8") for f in STORE.rglob("*.py")}
    assert {name for name, source in found.items() if speaks_sql(source)} == RAW.keys()
    silent = [name for name in RAW if "SQL" not in (ast.get_docstring(ast.parse(found[name])) or "")]
    assert silent == []


def test_a_call_is_seen_and_a_word_is_not() -> None:
    assert speaks_sql("db.execute_sql('SELECT 1')")
    assert not speaks_sql('"""`execute_sql` is not for here."""\nquery.execute(db)')
