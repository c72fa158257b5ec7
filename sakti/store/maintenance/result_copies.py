"""Erase copies of erased texts: in search hits, recalled messages, printed logs, and sent tasks.

Its own SQL looks into the packed parts of all messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any

from msgspec import Struct, structs

from sakti.core.types import ContextPart, Message, OutputPart, Part, ToolResultPart
from sakti.store import archive_file, rows
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.log.erasure import ERASED
from sakti.store.maintenance import archiving, upkeep
from sakti.store.models import MessageRow
from sakti.store.search import index as search_index
from sakti.store.search.index import said_before
from sakti.store.threads import codec, messages

NESTED = 2  # a result may be JSON with an earlier result in it


class Copies(Struct, frozen=True, dict=True):
    """Erased texts, and the ids under which a search or a recall shows them or parts of them."""

    texts: Sequence[str]
    ids: frozenset[str]
    tasks: Sequence[str] = ()  # that messages no longer say with them

    @cached_property
    def forms(self) -> list[str]:
        """Return the texts as they are and as they occur in JSON, the longest first."""
        out = dict.fromkeys(self.texts)
        for _ in range(NESTED):
            out |= dict.fromkeys(json.dumps(t, ensure_ascii=ascii)[1:-1] for t in tuple(out) for ascii in (True, False))
        return sorted(out, key=len, reverse=True)

    def without(self, text: str) -> str:
        """Return a text of which these are erased."""
        for form in self.forms:
            text = text.replace(form, ERASED)
        if not any(i in text for i in self.ids):
            return text
        try:
            shown = json.loads(text)
        except ValueError:
            return text
        clean = self._erase_shown(shown, is_erased=False)
        return text if clean == shown else json.dumps(clean, ensure_ascii=False)

    def _erase_shown(self, value: Any, *, is_erased: bool) -> Any:
        """Return a JSON value with the texts of these ids erased; a text may be JSON itself."""
        match value:
            case dict():
                item: dict[str, Any] = value
                is_erased = item["id"] in self.ids if isinstance(item.get("id"), str) else is_erased
                return {
                    key: ERASED if is_erased and key == "text" else self._erase_shown(one, is_erased=is_erased)
                    for key, one in item.items()
                }
            case list():
                return [self._erase_shown(one, is_erased=is_erased) for one in value]  # pyright: ignore[reportUnknownVariableType]
            case str():
                return self.without(value)
            case _:
                return value


async def erase(store: Store, copies: Copies) -> list[Message]:
    """Erase texts in all stored results; return the messages that changed.

    Raises `StoreError` (archive) if the archive is missing.
    """
    await store.read(archive_file.refuse_missing)
    ids = await store.read(_find, copies)
    await upkeep.each(store, ids, partial(_rewrite, copies=copies), step=1)
    if ids:
        await archiving.sweep(store)
    return await store.read(messages.get_many, ids)


def _find(db: Database, copies: Copies) -> list[str]:
    """Return the messages whose results repeat erased texts."""
    stored = db.execute_sql(
        "SELECT id, parts FROM (SELECT id, sakti_unpacked(parts) AS parts FROM messages WHERE role IN ('tool', 'user'))"
        """ WHERE instr(parts, '"result"') OR instr(parts, '"output"')"""
        " OR instr(parts, '<current-task>') OR instr(parts, '<suggested-response>')"
    )
    return [i for i, parts in stored if _clean([codec.decode(p) for p in json.loads(parts)], copies) is not None]


def _clean(parts: Iterable[Part], copies: Copies) -> tuple[Part, ...] | None:
    """Return parts with erased results; None if nothing changes."""
    before = tuple(parts)
    after = tuple(_clean_part(part, copies) for part in before)
    return None if after == before else after


def _clean_part(part: Part, copies: Copies) -> Part:
    match part:
        case ToolResultPart(content=content):
            return structs.replace(part, content=copies.without(content))
        case OutputPart(text=text):
            return structs.replace(part, text=copies.without(text))
        case ContextPart(facts=facts):
            return ContextPart({n: fact for n, fact in facts.items() if not any(t in fact for t in copies.tasks)})
        case _:
            return part


def _rewrite(db: Database, ids: Sequence[str], *, copies: Copies) -> None:
    """Store clean results, and index the messages and those behind them again."""
    for message in messages.get_many(db, ids):
        parts = _clean(message.parts, copies)
        if parts is None:
            continue
        if _clean(message.parts, structs.replace(copies, tasks=())) is None:  # tasks are neither shown nor searched
            rows.update(db, MessageRow, message.id, parts=parts)
            continue
        row = MessageRow
        pk, text = rows.first(db, row.select(row.pk, row.search_text).where(row.id == message.id))
        behind = db.execute_sql(
            "SELECT doc_id, position FROM search_docs WHERE thread_id = ? AND kind = 'message' AND position > ?"
            " AND prev_pk = ?",
            (message.thread_id, message.index, pk),
        ).fetchall()
        for doc_id, _ in behind:
            search_index.set_previous(db, "message", doc_id, "", None)
        search_index.remove(db, "message", message.id)
        text = None if text is None else copies.without(text)
        rows.update(db, MessageRow, message.id, parts=parts, raw_content="", search_text=text)
        search_index.index_messages(db, [pk])
        for doc_id, position in behind:
            before, prev = said_before(db, message.thread_id, position)
            search_index.set_previous(db, "message", doc_id, prev, before)
