"""`sakti search`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from sakti.cli import common


def run(
    query: str,
    *,
    kinds: Sequence[str],
    thread: str | None,
    everywhere: bool,
    since: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    from sakti.store import search as search_store

    unknown = [k for k in kinds if k not in search_store.KINDS]
    if unknown:
        common.fail(f"--kind takes {', '.join(search_store.KINDS)}, not {unknown[0]!r}.", common.USAGE)
    text = f"{query} after:{since}" if since else query
    if since and search_store.parse_query(text).since is None:
        common.fail(
            f"--since takes a date (2026-01-15), today, yesterday or an age such as 7d, not {since!r}.", common.USAGE
        )
    scope = search_store.Scope(None if everywhere else str(common.workspace()), thread, tuple(kinds))
    page = common.with_store(lambda store: store.read(search_store.search, text, scope, limit=limit, offset=offset))
    page = replace(page, query=query)
    if as_json:
        common.say_json(
            {
                "query": page.query,
                "total": page.total,
                "results": [
                    {
                        "id": h.id,
                        "source": h.source,
                        "thread_id": h.thread_id,
                        "task_id": h.task_id,
                        "time": h.time,
                        "rank": h.rank,
                        "score": h.score,
                        "snippet": h.snippet,
                        "marks": [list(m) for m in h.marks],
                    }
                    for h in page.hits
                ],
            }
        )
        return
    if not page.hits:
        common.say(f"Only {page.total} found for {query!r}." if page.total else f"Nothing found for {query!r}.")
        return
    for hit in page.hits:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(hit.time / 1000))
        where = hit.thread_title or hit.thread_id or ""
        common.say(f"{hit.rank:>3}  {when}  {hit.kind:<11} {hit.role:<9} {where}\n     {hit.snippet}")
    common.say(
        page.found
        + (f", {offset + 1}–{offset + len(page.hits)} shown" if page.total > len(page.hits) else "")
        + (" among the newest: the words are too common for all" if page.newest_only else "")
    )
