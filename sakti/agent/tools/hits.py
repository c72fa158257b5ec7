"""Format the results of memory-search for the model: bounded in tokens, without duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from sakti.core.tokens import Counter
from sakti.core.types import Json, plain_text
from sakti.store.connection import Database
from sakti.store.search import search
from sakti.store.search.search import Hit, Scope
from sakti.store.threads import messages

FULL_HIT_TOKENS = 1_000
NEIGHBOUR_TOKENS = 400
ALL_HITS_TOKENS = 8_000
PASSAGE = 2_000  # characters round the match of a text that is too long to be shown whole
LONGEST_TOKEN = 4  # characters of one, about
NAMED = 3  # hits that the model sees already are named, so many of them

Around = Annotated[int, Meta(ge=0, le=10)]


class MessageRange(Struct, frozen=True):
    """Numbers of messages to return before and after each hit."""

    before: Around = 0
    after: Around = 0


def find(
    db: Database,
    query: str,
    scope: Scope,
    *,
    limit: int,
    offset: int,
    around: MessageRange,
    counter: Counter,
    in_window: set[str],
) -> Json:
    """Return `limit` hits that are not in the window, from the `offset`-th on.

    Short texts are returned in full, long ones as the passage around the match. Ends early above 8,000 tokens: `next`
    is where to continue, `notes` what else there is to know of the search.
    """
    results: list[Json] = []
    room = ALL_HITS_TOKENS
    new = shown_already = 0
    at = offset
    total = 0
    notes: Sequence[str] = ()
    while new < limit:
        page = search.search(db, query, scope, limit=limit + NAMED, offset=at)
        total, notes = page.total, page.notes
        for hit in page.hits:
            if new == limit:
                break
            entry, cost = _build_short_entry(hit) if hit.id in in_window else _entry(db, hit, around, counter, room)
            if cost > room:
                return _build_result(results, total, at, notes)
            at += 1
            if hit.id in in_window:
                shown_already += 1
                results += [entry] if shown_already <= NAMED else []
                continue
            new += 1
            room -= cost
            results.append(entry)
        if at >= total or not page.hits:
            break
    return _build_result(results, total, at, notes)


def _build_result(results: Sequence[Json], total: int, at: int, notes: Sequence[str]) -> Json:
    more: Json = {"next": at} if at < total else {}
    return {"results": list(results), "totalHits": total} | more | ({"notes": list(notes)} if notes else {})


def _head(hit: Hit) -> Json:
    entry: Json = {
        "id": hit.id,
        "source": hit.source,
        "score": hit.score,
        "time": hit.time,
        "thread": hit.thread_title or hit.thread_id,
        "role": hit.role,
    }
    entry |= {"origin": hit.origin} if hit.origin else {}
    return entry | ({"task": hit.task_id} if hit.task_id else {})


def _build_short_entry(hit: Hit) -> tuple[Json, int]:
    return _head(hit) | {"text": "[already in the conversation above]"}, 0


def _entry(db: Database, hit: Hit, around: MessageRange, counter: Counter, room: int) -> tuple[Json, int]:
    """Return a hit for the model, and its tokens, no more than all hits may have."""
    entry = _head(hit)
    text = hit.text
    if len(text) > FULL_HIT_TOKENS * 6 or counter.count(text) > min(FULL_HIT_TOKENS, room):
        start = max(0, hit.start - PASSAGE // 3)
        text = _cut(hit.text[start : start + PASSAGE], ALL_HITS_TOKENS, counter)
        entry["charOffset"] = start
    entry["text"] = text
    cost = counter.count(text)
    if hit.kind == "message" and hit.thread_id and (around.before or around.after):
        entry["neighbours"], more = _neighbours(db, hit, around, counter, ALL_HITS_TOKENS - cost)
        cost += more
    return entry, cost


def _neighbours(db: Database, hit: Hit, around: MessageRange, counter: Counter, room: int) -> tuple[list[Json], int]:
    """Return the messages around a hit in their order, and their tokens.

    The farthest are left out if there is no room.
    """
    rows = messages.list_between(db, hit.thread_id or "", hit.position - around.before, hit.position + around.after)
    entries: list[Json] = []
    remaining = room
    for row in sorted(rows, key=lambda row: abs(row.index - hit.position)):
        full_text = plain_text(row.parts)
        if row.id == hit.id or row.state != "saved" or not full_text.strip():
            continue
        text = _cut(full_text, NEIGHBOUR_TOKENS, counter)
        remaining -= (size := counter.count(text))
        if remaining < 0:
            return sorted(entries, key=_position), room - remaining - size
        one: Json = {"id": row.id, "position": row.index - hit.position, "role": row.role, "text": text}
        entries.append(one | ({"cut": True} if text != full_text else {}))
    return sorted(entries, key=_position), room - remaining


def _position(told: Json) -> int:
    return told["position"]


def _cut(text: str, tokens: int, counter: Counter) -> str:
    """Return the beginning of a text that has so many tokens at most."""
    text = text[: tokens * LONGEST_TOKEN]
    while (size := counter.count(text)) > tokens:
        text = text[: len(text) * tokens // (size + 1)]
    return text
