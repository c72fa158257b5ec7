"""Declare `/search` and `sakti search`: messages, observations and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import to_builtins

from sakti.actions.scope import find_thread
from sakti.actions.spec import MEMORY, action, arg, flag, limit, option
from sakti.actions.values import USAGE, Open, Refused, Rows, Value, pick_numbered
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_minute, quote

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.agent.session.session import Session
    from sakti.core.types import Message
    from sakti.store.search.search import Hit, SearchPage


with lazy_imports:
    from sakti.store.search import rank as ranking
    from sakti.store.search import search as text_search

KINDS = ("message", "observation", "reflection", "task", "working_memory")
PER_PAGE = 20  # number of hits listed in a chat
WHAT = "shows the message with its neighbours"


@action(
    arg("query", 'Words, "phrases", -word, word*, AND OR NOT (), path: role: kind: origin: before: after:', many=True),
    option("--kind", many=True, choices=KINDS, metavar="KIND", help=f"{', '.join(KINDS)}; may be repeated."),
    option(
        "--thread",
        metavar="THREAD",
        help="Only this thread (id, end of it, or part of the title).",
        offers="thread ids",
    ),
    flag("--all-workspaces", help="Search all workspaces."),
    option("--since", metavar="TIME", help="2026-01-15, yesterday, 7d …"),
    flag("--explain", help="Show the parts of each score."),
    limit(10, 200),
    option("--offset", kind="whole", low=0, default=0, metavar="N", help="Skip the first N."),
    shell="search",
    needs="store",
    panel=MEMORY,
)
async def search(
    scope: Scope, query: list[str], all_workspaces: bool, explain: bool, limit: int, offset: int, **chosen: Any
) -> Value:
    """Search all messages, observations and tasks."""
    text = " ".join(query)
    resource, thread = None if all_workspaces else scope.resource, chosen["thread"]
    where = text_search.Scope(
        resource,
        (await find_thread(scope, thread, resource)).id if thread is not None else None,
        tuple(chosen["kind"]),
        read_since(chosen["since"]),
    )
    page = await scope.store.search(text_search.search, text, where, limit=limit, offset=offset)
    described = {
        "query": text,
        "total": page.total,
        "with_all": page.with_all,
        "notes": page.notes,
        "results": [_describe_hit(h, explain) for h in page.hits],
    }
    if not page.hits:
        nothing = f"Only {page.total} found for {quote(text)}." if page.total else f"Nothing found for {quote(text)}."
        more = f" {'; '.join(page.notes)}." if page.notes else ""
        return Rows((), empty=nothing + more, json=described)
    shown = f", {offset + 1}–{offset + len(page.hits)} shown" if page.total > len(page.hits) else ""
    tail = "; ".join((f"{page.found}{shown}", *page.notes))
    return Rows(_format_hits(page, explain), tail=tail, json=described)


def read_since(since: str | None) -> int | None:
    """Return the time of `--since` (Unix ms), None without it. Raises Refused."""
    if not since:
        return None
    read = text_search.parse_query(f"after:{since}")
    if read.since is None or read != text_search.Query("", since=read.since):
        dates = "a date (2026-01-15), today, yesterday or an age such as 7d"
        raise Refused(f"--since takes {dates}, not {quote(since)}.", code=USAGE)
    return read.since


def _describe_hit(h: Hit, explain: bool) -> dict[str, object]:
    names = ("id", "source", "thread_id", "task_id", "time", "rank", "score", "snippet", "reason", "copies",
             "origin")  # fmt: skip
    parts = {"parts": to_builtins(h.parts)} if explain else {}
    return {**{name: getattr(h, name) for name in names}, "marks": [list(m) for m in h.marks], **parts}


def _format_hits(page: SearchPage, explain: bool = False) -> tuple[str, ...]:
    """Return the lines of each hit, with a rule above the first one that lacks some of the words."""
    lines = {hit.rank: _format_hit(hit, explain) for hit in page.hits}
    first = (page.with_all or page.total) + 1
    if first in lines:
        lines[first] = f"     ── {page.total - first + 1} with some of the words ──\n{lines[first]}"
    return tuple(lines.values())


def _explain_score(hit: Hit) -> str:
    parts = ", ".join(f"{name} {value:.3f}" for name, value in to_builtins(hit.parts).items() if value)
    return f"score {ranking.score(hit.parts):.3f}, {hit.score:.0%} of the best: {parts}"


def _format_hit(hit: Hit, explain: bool = False) -> str:
    where = " · ".join(n for n in (hit.origin, hit.thread_title or hit.thread_id) if n)
    notes = " · ".join(n for n in (hit.reason, hit.others) if n)
    lines = [f"{hit.rank:>3}  {format_minute(hit.time)}  {hit.kind:<11} {hit.role:<9} {where}", f"     {hit.snippet}"]
    if notes:
        lines[0] += f"  ({notes})"
    if explain:
        lines.append(f"     {_explain_score(hit)}")
    return "\n".join(lines)


@action(arg("query", default=""), chat="search", hint="QUERY", needs="session")
async def search_chat(scope: Scope, query: str) -> Value:
    """Search all messages, observations and tasks."""

    async def list_rows() -> Value:
        return await find_hits(scope.session, query, "workspace")

    return Open("search", query, list_rows)


async def find_hits(session: Session, query: str, where: Literal["thread", "workspace"]) -> Value:
    """Return the best hits, which open by number. Raises `Refused` for an empty query."""
    if not query.strip():
        raise Refused("Write the words to search for after the command.")
    page: SearchPage = await session.views.search(query, scope=where, limit=PER_PAGE)
    shown = "" if page.total <= len(page.hits) else f", the best {len(page.hits)} are listed"
    notes = "".join(f"; {note}" for note in page.notes)

    async def show(number: int) -> Value:
        return await _show_around(session, pick_numbered(page.hits, number))

    head = f"{page.found}{shown}{notes}"
    return Rows(_format_hits(page), "hits", tuple(page.hits), head=head, what=WHAT, pick=show)


async def _show_around(session: Session, hit: Hit) -> Value:
    """Return a message with its neighbours, or another hit followed by its source message."""
    views, head = session.views, ""
    thread_id, index, target = hit.thread_id, hit.position, hit.id
    if hit.kind != "message":
        origin = await views.origin(hit.id) if hit.kind in ("observation", "reflection") else None
        head = f"{hit.kind}: {hit.text}"
        if origin is None:
            return Rows((), head=head)
        head += "\nMade from:"
        thread_id, index, target = origin.thread_id, origin.index, origin.message_id
    around: list[Message] = await views.around(thread_id, index, 1, 1) if thread_id else []
    return Rows(tuple(m.text for m in around), "around", (tuple(around), target), head=head)
