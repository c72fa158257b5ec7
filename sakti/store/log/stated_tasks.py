"""Clear tasks that repeat what the user erases or forgets.

An Observer states what is being worked on in the user's words: with a group, its thread, and what new threads begin
with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from sakti.core.patterns import lazy_pattern
from sakti.core.types import Json
from sakti.store import rows
from sakti.store.connection import Database
from sakti.store.models import CarryOverRow, GroupRow, ThreadRow
from sakti.store.threads import threads

FIELDS = ("current_task", "suggested_response")
SAME_SHARE = 0.7  # of the words of the shorter of two texts: so many in both, and they say the same
SHORT = 60  # words of a text that is compared by its words; a longer one has any words
_LABEL = lazy_pattern(r"(?:^|(?<=\s))(?:Primary|Secondary|Its task|Last thread):\s+")
_LEAD = lazy_pattern(r"^(?:-> )?[A-Z][\w' ]{1,40}: ")
_WORD = lazy_pattern(r"\w+")


class Cleared(Struct, frozen=True):
    """Tasks that were cleared: their texts, and the values that `restore` stores again."""

    texts: Sequence[str]
    values: Sequence[Json]


def clear(db: Database, thread_id: str, texts: Iterable[str]) -> Cleared:
    """Clear the tasks that repeat one of these texts, in all threads of a thread's workspace."""
    here, plain_texts = _threads_beside(thread_id), _plain_texts(texts)
    group, carried = GroupRow, CarryOverRow
    stated = group.current_task.is_null(False) | group.suggested_response.is_null(False)
    groups = group.select(group.id, *(getattr(group, name) for name in FIELDS)).where(group.thread_id.in_(here), stated)
    values: list[Json] = []
    for row in list(groups.dicts().execute(db)):
        if _is_repeated(row, plain_texts):
            rows.update(db, group, row["id"], **dict.fromkeys(FIELDS))
            values.append({"table": "groups", **row})
    metadata = ThreadRow.select(ThreadRow.id, ThreadRow.metadata).where(ThreadRow.id.in_(here))
    for one, stored in list(metadata.tuples().execute(db)):
        task = {name: stored.get(name) for name in FIELDS}
        if _is_repeated(task, plain_texts):
            threads.update_metadata(db, one, dict.fromkeys(FIELDS))
            values.append({"table": "threads", "id": one, **task})
    pieces = carried.select().where(carried.thread_id.in_(here), carried.kind == "thread")
    for row in list(pieces.dicts().execute(db)):
        if _repeats(row["text"], plain_texts):
            rows.delete(db, carried, thread_id=row["thread_id"], position=row["position"])
            values.append({"table": "carry_over", **row})
    return Cleared(texts_of(values), values)


def restore(db: Database, values: Iterable[Json]) -> None:
    """Store cleared tasks again, where no Observer has stated a newer one since."""
    for value in values:
        match value:
            case {"table": "carry_over", **row}:
                rows.insert_new(db, CarryOverRow, **row)
            case {"table": "threads", "id": thread_id, **task}:
                thread = threads.get(db, thread_id)
                if thread is not None and not thread.metadata.keys() & set(FIELDS):
                    threads.update_metadata(db, thread_id, task)
            case _:
                rows.update(db, GroupRow, value["id"], **{name: value[name] for name in FIELDS})


def texts_of(values: Iterable[Json]) -> list[str]:
    """Return the tasks and responses of cleared values."""
    return list(dict.fromkeys(v[name] for v in values for name in FIELDS if v.get(name)))


def clear_titles(db: Database, thread_id: str, texts: Iterable[str]) -> None:
    """Clear titles that repeat one of these texts and that no user gave, in a thread's workspace.

    Also those that come with groups, which would be the thread's next ones.
    """
    plain_texts = _plain_texts(texts)
    row, group = ThreadRow, GroupRow
    titles = row.select(row.id, row.title).where(row.id.in_(_threads_beside(thread_id)), row.title_pinned == 0)
    for one, title in list(titles.tuples().execute(db)):
        if _repeats(title, plain_texts):
            rows.update(db, row, one, title="")
    titled = group.thread_id.in_(_threads_beside(thread_id)) & rows.contains(group.metadata, '"title"')
    for one, metadata in list(group.select(group.id, group.metadata).where(titled).tuples().execute(db)):
        if _repeats(str(metadata.get("title") or ""), plain_texts):
            rows.update(db, group, one, metadata={k: v for k, v in metadata.items() if k != "title"})


def _threads_beside(thread_id: str) -> Any:
    """Select the threads of a thread's workspace."""
    row = ThreadRow
    return row.select(row.id).where(row.resource_id == row.select(row.resource_id).where(row.id == thread_id))


def _plain_texts(texts: Iterable[str]) -> list[str]:
    return [plain for text in texts if (plain := _plain(_LEAD.sub("", text)))]


def _is_repeated(task: Json, texts: Sequence[str]) -> bool:
    return any(_repeats(task[name] or "", texts) for name in FIELDS)


def _repeats(task: str, texts: Sequence[str]) -> bool:
    """Return whether a part of a task says what one of some plain texts says. Pure."""
    parts = [part for text in _LABEL.split(task) if (part := _plain(text))]
    return any(part in text or _is_same(part.split(), text.split()) for part in parts for text in texts)


def _is_same(one: Sequence[str], other: Sequence[str]) -> bool:
    if len(other) > SHORT:
        return False
    first, second = set(one), set(other)
    return len(first & second) >= SAME_SHARE * min(len(first), len(second))


def _plain(text: str) -> str:
    """Return a text's words between spaces; "" if it has none."""
    words = " ".join(_WORD.findall(text.casefold()))
    return f" {words} " if words else ""
