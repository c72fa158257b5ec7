"""Every column with a user's words is in the registry; what goes through its door is masked as it says."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from sakti.core.types import Message, TextPart, Thread
from sakti.store import models, text_registry
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.secrets import MARK, mask_secrets
from sakti.store.threads import fork, messages, threads
from sakti.tasks import service
from sakti.tasks.service import Actor

SHADOW = re.compile(r"(search_words|search_trigrams|task_words)_(data|idx|docsize|config|content)$|sqlite_")
SECRET = "AKIA" + "ABCDEFGH12345678"


def columns(db: Database) -> dict[str, dict[str, str]]:
    """Of every table but what SQLite and FTS5 keep for themselves: column → type."""
    rows = db.execute_sql("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {
        name: {c: kind for _, c, kind, *_ in db.execute_sql(f"PRAGMA table_xinfo({name})").fetchall()}
        for (name,) in rows
        if not SHADOW.match(name)
    }


def unknown(found: dict[str, dict[str, str]]) -> list[str]:
    out: list[str] = []
    for name, kinds in found.items():
        table = text_registry.map_tables().get(name)
        known = {*table.texts, *table.plain} if table else set()
        hidden = {name, "rank", "doc", "cnt"}  # of FTS5 tables, beside their columns
        out += [
            f"{name}.{c}" for c, kind in kinds.items() if kind not in ("INTEGER", "REAL") and c not in known | hidden
        ]
    return out


async def test_every_column_with_text_is_known(store: Store) -> None:
    assert unknown(await store.read(columns)) == []
    await store.write(lambda db: db.execute_sql("CREATE TABLE letters (pk INTEGER PRIMARY KEY, body TEXT)"))
    await store.write(lambda db: db.execute_sql("ALTER TABLE steps ADD COLUMN remark TEXT"))
    assert unknown(await store.read(columns)) == ["steps.remark", "letters.body"]


async def test_what_it_names_is_there_and_its_conditions_are_queries(store: Store) -> None:
    found = await store.read(columns)
    for table in text_registry.list_tables():
        names = {*table.texts, *table.plain, *(c for c, _ in table.json)}
        assert names <= set(found[table.name]), table.name
        for where in filter(None, (table.thread, table.task)):
            rows = await store.read(
                lambda db, t=table.name, w=where: db.execute_sql(f"SELECT 1 FROM {t} WHERE {w}", ("x",)).fetchall()
            )
            assert rows == []


_WRITES = re.compile(
    r"INSERT (?:OR \w+ )?INTO (\w+) \(([^)]*)\) (?:VALUES|SELECT [^\"]*\?)|UPDATE (\w+) SET (.*?) WHERE", re.S
)


def past_the_door(source: str) -> list[str]:
    """Columns with words that a module's SQL writes by itself, without the registry being asked."""
    out: list[str] = []
    texts = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for found in (m for text in texts for m in _WRITES.finditer(text)):
        table = found[1] or found[3]
        if table not in text_registry.map_tables():
            continue
        written = re.split(r",\s*", found[2]) if found[1] else re.findall(r"(\w+) = \?", found[4])
        out += [
            f"{table}.{column}"
            for column in written
            if column in text_registry.map_tables()[table].texts
            and f'mask_for_storage("{table}", "{column}"' not in source
        ]
    return out


# What these write was in the database before: it is derived, moved or said by us.
_WITHIN = {
    "maintenance/archiving.py": ["messages.parts"],
    "packing.py": ["search_docs.text", "search_docs.prev", "messages.raw_content", "messages.parts"],
    "search/index.py": ["search_docs.paths"],
    "tasks/questions.py": ["task_words.idents"],
    "maintenance/rebuild.py": ["observation_groups.text", "messages.parts", "messages.raw_content"],
}


def test_whatever_writes_words_goes_through_the_door() -> None:
    root = Path(text_registry.__file__).parent
    found = {str(f.relative_to(root)): past_the_door(f.read_text("utf-8")) for f in root.rglob("*.py")}
    assert {name: columns for name, columns in found.items() if columns} == _WITHIN
    assert past_the_door('db.execute_sql("UPDATE tasks SET handle = ?, title = ? WHERE id = ?")') == ["tasks.title"]
    assert past_the_door('"INSERT OR IGNORE INTO unsent (owner, draft) VALUES (?, ?)"') == ["unsent.draft"]


def test_a_model_lets_words_in_through_the_door() -> None:
    assert models.ThreadRow.title.db_value(f"key {SECRET}") == mask_secrets(f"key {SECRET}")
    assert models.ThreadRow.id.db_value(SECRET) == SECRET


def test_the_door_lets_no_text_into_a_column_that_has_none() -> None:
    assert text_registry.mask_for_storage("threads", "title", f"key {SECRET}") == mask_secrets(f"key {SECRET}")
    assert text_registry.mask_for_storage("prompt_history", "text", SECRET) == mask_secrets(SECRET) != SECRET
    with pytest.raises(KeyError):
        text_registry.mask_for_storage("steps", "model", "x")


async def test_titles_lists_and_every_index_hold_no_secret(store: Store) -> None:
    now = store.clock.now()
    text = f"use {SECRET} and password=hunter2secret99 there"
    thread = await store.write(threads.create, Thread("t", "/w", text, now, now))
    assert SECRET not in thread.title and MARK.search(thread.title)
    await store.write(messages.append, Message("m", "t", "/w", "user", (TextPart(text),), now))
    await store.write(threads.rename, "t", f"now {SECRET}", now, by_user=True)
    await store.write(service.create, Actor("/w", "s", now), service.NewTask("k", f"task {SECRET}", description=text))
    await store.write(fork.store_carry_over, "t", "head", [fork.CarriedPiece("thread", "t", text)])
    ((shown, preview, *_),) = await store.read(threads.list_summaries, "/w", 9)
    assert "hunter2secret99" not in f"{shown} {preview}" and SECRET not in f"{shown} {preview}"

    def indexed(db: Database) -> str:
        rows = [
            db.execute_sql(f"SELECT {', '.join(t.texts)} FROM {t.name}").fetchall()
            for t in text_registry.list_tables()
            if t.texts and t.name != "task_words"
        ]
        db.execute_sql("SELECT 1")
        return json.dumps(rows)

    def terms(db: Database) -> str:
        db.execute_sql("CREATE VIRTUAL TABLE temp.task_terms USING fts5vocab(main, task_words, row)")
        return json.dumps(db.execute_sql("SELECT term FROM task_terms").fetchall())

    for held in (await store.read(indexed), await store.write(terms)):
        assert SECRET.lower() not in held.lower() and "hunter2secret99" not in held


async def test_no_answer_about_a_task_says_a_secret_of_its_title(store: Store) -> None:
    actor = Actor("/w", "s", store.clock.now())
    await store.write(service.create, actor, service.NewTask("k", f"use {SECRET} here"))
    await store.write(service.update, actor, "k", {"title": f"now password=hunter2secret99 {SECRET}"})
    await store.write(service.claim, actor, "k")
    told = [
        service.describe(await store.read(service.find, "/w", "k")),
        await store.read(service.load_board, "/w", 0),
        await store.read(lambda db: db.execute_sql("SELECT * FROM tasks").fetchall()),
        await store.read(lambda db: db.execute_sql("SELECT * FROM task_events").fetchall()),
    ]
    assert SECRET not in str(told) and "hunter2secret99" not in str(told) and MARK.search(str(told))


OLD = """
INSERT INTO threads (id, resource_id, title, metadata, created_at, updated_at)
  VALUES ('old', '/w', 'key {secret}', '{{"carry_over": "Last thread: {secret}", "current_task": "go on"}}', 1, 1);
INSERT INTO tasks (id, resource_id, handle, title, created_at, updated_at) VALUES ('k', '/w', 'h', 'do {secret}', 1, 1);
INSERT INTO task_events (task_id, resource_id, action, before, after, created_at)
  VALUES ('k', '/w', 'update', '{{"title": "was {secret}", "priority": 1}}', '{{"title": "do {secret}"}}', 1);
INSERT INTO task_words (rowid, title, body, idents) SELECT pk, title, '', '' FROM tasks WHERE id = 'k';
"""


async def test_what_an_earlier_sakti_stored_is_masked_when_it_is_brought_up_to_date(tmp_path) -> None:
    import apsw

    from tests.unit.store.test_migrate import first_version

    path = tmp_path / "s.db"
    first_version(path)
    connection = apsw.Connection(str(path))
    connection.execute(OLD.format(secret=SECRET))
    connection.close()
    store = await Store.open(path)
    thread = await store.read(threads.get, "old")
    assert (
        thread is not None
        and thread.title == mask_secrets(f"key {SECRET}")
        and thread.metadata == {"current_task": "go on"}
    )
    rows = await store.read(
        lambda db: db.execute_sql("SELECT rowid FROM task_words WHERE task_words MATCH ?", (SECRET,)).fetchall()
    )
    assert rows == []
    for table in ("tasks", "task_events"):
        told = await store.read(lambda db, t=table: str(db.execute_sql(f"SELECT * FROM {t}").fetchall()))  # type: ignore[misc]
        assert SECRET not in told and MARK.search(told)
    await store.close()
