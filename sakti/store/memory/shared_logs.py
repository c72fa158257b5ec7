"""A thread is taken out of the logs that it shares with others: what is left is made of the others' words alone.

Its groups go with the thread's rows. Here go the reflections that were made of them, for which what else they stood for
stands again, and what others' lines repeat of the thread's where they replace it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sakti.store.connection import Database
from sakti.store.memory import group_rows, integrity
from sakti.store.replaced import KEY, NOTE, Earlier, note
from sakti.store.text_registry import entering


def take_out(db: Database, thread_id: str, now: int) -> None:
    """Take a thread's words out of what others' groups hold; its own groups are the caller's to remove."""
    (resource_id,) = db.execute_sql("SELECT resource_id FROM threads WHERE id = ?", (thread_id,)).fetchone()
    row = db.execute_sql("SELECT id FROM observational_memory WHERE lookup_key = 'resource:' || ?", (resource_id,))
    if (shared := row.fetchone()) is None:
        return
    (record_id,) = shared
    _undo_reflections(db, record_id, thread_id)
    _unsay(db, record_id, thread_id)
    integrity.mend(db, record_id, now)
    count_again(db, resource_id, now)


@dataclass(frozen=True, slots=True)
class _Group:
    thread_id: str
    kind: str
    state: str
    merged: tuple[str, ...]


def _undo_reflections(db: Database, record_id: str, thread_id: str) -> None:
    """What the log made of this thread's lines and others' is taken back: the others' stand for themselves."""
    rows = db.execute_sql(
        "SELECT id, thread_id, kind, state, merged_group_ids FROM observation_groups WHERE record_id = ?", (record_id,)
    ).fetchall()
    groups = {i: _Group(thread, kind, state, tuple(json.loads(merged))) for i, thread, kind, state, merged in rows}
    gone, back = _made_of(groups, thread_id)
    for group_id in gone:
        _remove_reflection(db, group_id)
    for group_id in back:
        db.execute_sql(
            "UPDATE observation_groups SET state = 'active', superseded_at = NULL"
            " WHERE id = ? AND state = 'superseded'",
            (group_id,),
        )
    _hand_over(db, {i: g for i, g in groups.items() if i not in gone}, thread_id)


def _made_of(groups: Mapping[str, _Group], thread_id: str) -> tuple[set[str], set[str]]:
    """Of a log: the reflections that are made of a thread's groups, by however many steps, and what else they stood
    for. Pure."""
    tainted = {i for i, g in groups.items() if g.kind == "observation" and g.thread_id == thread_id}
    gone: set[str] = set()
    while more := {i for i, g in groups.items() if i not in gone and tainted.intersection(g.merged)}:
        gone |= more
        tainted |= more
    used = {i: set(g.merged) for i, g in groups.items() if g.state != "discarded"}
    stood_for = {m for i in gone for m in used.get(i, ())}
    still = {m for i, merged in used.items() if i not in gone for m in merged}
    return gone, stood_for - tainted - still


def _hand_over(db: Database, groups: Mapping[str, _Group], thread_id: str) -> None:
    """A reflection that was made while this thread was open, of others' lines alone, is another thread's."""
    for group_id, group in groups.items():
        if group.kind == "reflection" and group.thread_id == thread_id and group.merged:
            db.execute_sql(
                "UPDATE observation_groups SET thread_id = (SELECT thread_id FROM observation_groups WHERE id = ?)"
                " WHERE id = ?",
                (group.merged[-1], group_id),
            )


def _remove_reflection(db: Database, group_id: str) -> None:
    lines = "SELECT id FROM observations WHERE group_id = ?"
    db.execute_sql(f"DELETE FROM search_docs WHERE kind = 'reflection' AND doc_id IN ({lines})", (group_id,))
    db.execute_sql(f"DELETE FROM carry_over WHERE kind = 'line' AND source_id IN ({lines})", (group_id,))
    db.execute_sql("DELETE FROM observations WHERE group_id = ?", (group_id,))
    db.execute_sql("DELETE FROM observation_groups WHERE id = ?", (group_id,))


def _unsay(db: Database, record_id: str, thread_id: str) -> None:
    """Others' lines no longer say which words of this thread's they replace."""
    rows = db.execute_sql(
        "SELECT g.thread_id, o.id, o.group_id, o.observed_date, o.metadata, o.content, coalesce(o.edited, '')"
        " FROM observation_groups g JOIN observations o ON o.group_id = g.id WHERE g.record_id = ?",
        (record_id,),
    ).fetchall()
    own = "\n".join(f"{r[5]}\n{r[6]}" for r in rows if r[0] == thread_id).casefold()
    others = "\n".join(_without_notes(r) for r in rows if r[0] != thread_id).casefold()
    for thread, line_id, group_id, date, text, _, _ in rows:
        replaced = [] if thread == thread_id else json.loads(text).get(KEY, [])
        said = [r for r in replaced if r["text"].casefold() in own and r["text"].casefold() not in others]
        for one in said:
            _take_words(db, line_id, group_id, note(Earlier(one["text"], one["date"], one["time"]), date))
        if said:
            kept = [r for r in replaced if r not in said]
            _change_metadata(db, line_id, kept)
            (group,) = group_rows.groups_by_id(db, [group_id])
            if group.state != "discarded":
                group_rows.reindex(db, group)


def _without_notes(row: tuple[Any, ...]) -> str:
    return "\n".join(NOTE.sub("", text) for text in row[5:])


def _take_words(db: Database, line_id: str, group_id: str, words: str) -> None:
    for table, column, key, value in (
        ("observations", "content", "id", line_id),
        ("observations", "edited", "id", line_id),
        ("observation_groups", "text", "id", group_id),
        ("carry_over", "text", "source_id", line_id),
    ):
        db.execute_sql(
            f"UPDATE {table} SET {column} = replace({column}, ?1, '') WHERE {key} = ?2 AND instr({column}, ?1)",
            (words, value),
        )


def _change_metadata(db: Database, line_id: str, replaced: list[Any]) -> None:
    (text,) = db.execute_sql("SELECT metadata FROM observations WHERE id = ?", (line_id,)).fetchone()
    metadata = {k: v for k, v in json.loads(text).items() if k != KEY} | ({KEY: replaced} if replaced else {})
    db.execute_sql(
        "UPDATE observations SET metadata = ? WHERE id = ?",
        (entering("observations", "metadata", json.dumps(metadata, ensure_ascii=False)), line_id),
    )


def count_again(db: Database, resource_id: str, now: int) -> None:
    """What the log that a workspace's threads share holds: other windows read it anew."""
    db.execute_sql(
        "UPDATE observational_memory AS r SET revision = revision + 1, updated_at = ?1, observation_token_count ="
        " (SELECT coalesce(sum(observation_tokens), 0) FROM observation_groups g WHERE g.record_id = r.id"
        " AND g.state = 'active'), generation_count = (SELECT count(*) FROM observation_groups g"
        " WHERE g.record_id = r.id AND g.kind = 'reflection' AND g.state IN ('active', 'superseded'))"
        " WHERE r.lookup_key = 'resource:' || ?2",
        (now, resource_id),
    )
