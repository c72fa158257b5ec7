"""Answer the questions of other agents from memory: quotes with source, date and id, at most 8 kB."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sakti.agent import repository
from sakti.core.errors import SaktiError
from sakti.core.text import clean_surrogates, to_one_line
from sakti.core.types import Json, Message, join_plain_text
from sakti.store import imports, opening
from sakti.store.connection import Connection
from sakti.store.log import lines as log_lines
from sakti.store.search import search
from sakti.store.search.search import Hit
from sakti.store.secrets import mask_secrets
from sakti.store.threads import messages, removal, threads
from sakti.tasks import queries

LARGEST = 8_000  # bytes of an answer
QUOTE = 1_200  # characters of a hit
HITS, TASKS, NEIGHBOURS = 5, 5, 1
NOTHING = "Nothing found."


def answer(database: Path, tool: str, arguments: Json, folder: Path, *, all_workspaces: bool) -> str:
    """Return the answer of a tool. Raises SaktiError."""
    arguments = {name: clean_surrogates(v) if isinstance(v, str) else v for name, v in arguments.items()}
    resource = str(repository.find_root(folder))
    scope = None if all_workspaces else resource
    if not database.exists():
        return NOTHING
    try:
        match tool:
            case "memory_search":
                text = opening.read_once(database, _search, arguments, scope)
            case "memory_read":
                text = opening.read_once(database, _read, arguments, scope)
            case _:
                board = str(repository.find_board_root(Path(resource), shared=True))
                text = opening.read_once(database, _query_tasks, arguments, board)
    except opening.NotReady as e:
        raise SaktiError("The memory cannot be read now: `sakti doctor` says why.") from e
    return cut(mask_secrets(text))


def cut(text: str) -> str:
    """Return a text of at most `LARGEST` bytes."""
    data = text.encode("utf-8", "replace")
    if len(data) <= LARGEST:
        return text
    note = "\n… cut; ask for less, or continue with offset."
    return data[: LARGEST - len(note.encode())].decode("utf-8", "ignore") + note


def _format_day(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(time_ms / 1000))


def _format_source(origin: str, title: str, time_ms: int, more: str) -> str:
    """Return the line above a quote."""
    pieces = (origin or "sakti", to_one_line(title or "untitled", 60), f"{_format_day(time_ms)}, may be outdated", more)
    return f"[{' · '.join(p for p in pieces if p)}]"


def _search(db: Connection, arguments: Json, resource: str | None) -> str:
    since = arguments.get("since")
    after = search.parse_query(f"after:{since}").since if since else None
    if since and after is None:
        raise SaktiError("'since' is a date (2026-01-15), today, yesterday or an age such as 7d.")
    kinds = (arguments["kind"],) if arguments.get("kind") else ()
    limit, offset = arguments.get("limit") or HITS, arguments.get("offset", 0)
    where = search.Scope(resource, None, kinds, after)
    page = search.search(db, arguments["query"], where, limit=limit, offset=offset)
    hits = _drop_replaced(db, page.hits)
    if not hits:
        return NOTHING
    room = max(200, min(QUOTE, LARGEST // len(hits) - 160))
    quotes = [_quote(hit, room) for hit in hits]
    rest = page.total - offset - len(page.hits)
    more = [f"{rest} more: offset {offset + len(page.hits)}."] if rest > 0 else []
    return "\n\n".join((*quotes, *more))


def _drop_replaced(db: Any, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits without lines of a log that newer ones replace."""
    lines = [h.id for h in hits if h.kind in ("observation", "reflection")]
    outdated = log_lines.find_outdated(db, lines) if lines else set[str]()
    return [h for h in hits if h.id not in outdated]


def _quote(hit: Hit, room: int) -> str:
    start = max(0, hit.start - room // 4) if len(hit.text) > room else 0
    text = hit.text[start : start + room].strip()
    text = f"{'… ' if start else ''}{text}{' …' if start + room < len(hit.text) else ''}"
    who = hit.role if hit.kind == "message" else hit.kind.replace("_", " ")
    return f"{_format_source(hit.origin, hit.thread_title, hit.time, f'{who} · id {hit.id}')}\n{text}"


def _read(db: Any, arguments: Json, resource: str | None) -> str:
    message = messages.get(db, arguments["id"])
    if message is None or (resource is not None and message.resource_id != resource):
        return NOTHING
    thread = threads.get(db, message.thread_id)
    if thread is None or threads.is_deleted(db, thread.id):
        return NOTHING
    before, after = arguments.get("before", NEIGHBOURS), arguments.get("after", NEIGHBOURS)
    around = messages.list_after(db, thread.id, message.index - before - 1, limit=before + after + 1)
    origin = imports.get_origin(thread.metadata)
    shown = removal.skip_deleted(around)
    room = max(300, (LARGEST - 200 * len(shown)) // (2 * max(1, len(shown))))
    texts = [
        _format_source(origin, thread.title, m.created_at, f"{m.role} · id {m.id}")
        + "\n"
        + _format_body(m, message, room)
        for m in shown
    ]
    return "\n\n".join(texts)


def _format_body(message: Message, asked_for: Message, room: int) -> str:
    """Return the text of a message; the requested one gets half of the answer's length."""
    text = join_plain_text(message.parts).strip() or "(no text)"
    most = LARGEST // 2 if message.id == asked_for.id else room
    return text if len(text) <= most else f"{text[:most]} …"


def _query_tasks(db: Connection, arguments: Json, board: str) -> str:
    limit = arguments.get("limit") or TASKS
    match arguments["action"]:
        case "ready":
            answer = queries.list_ready(db, board, limit)
        case "list":
            answer = queries.list_tasks(db, board, status=arguments.get("status"), limit=limit)
        case "show" if arguments.get("id"):
            answer = queries.show_task(db, board, arguments["id"])
        case "search" if arguments.get("query"):
            answer = queries.search(db, board, arguments["query"], limit)
        case action:
            raise SaktiError(f"{action} needs {'an id' if action == 'show' else 'a query'}.")
    if not answer.get("tasks", answer):
        return NOTHING
    return f"[sakti · task board · {_format_day(int(time.time() * 1000))}]\n{json.dumps(answer, ensure_ascii=False)}"
