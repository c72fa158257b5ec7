"""Search in lines: numbered results, and a message with its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sakti.core.errors import ConfigError
from sakti.plain import words
from sakti.plain.offer import Offer, one

if TYPE_CHECKING:
    from sakti.agent.session import Session
    from sakti.core.types import Message
    from sakti.store.search import Hit

PER_PAGE = 20


class Search:
    """`/search` and `/find`; `offer` says the lines."""

    def __init__(self, session: Session, offer: Offer) -> None:
        self._session = session
        self._offer = offer

    def _say(self, *lines: str) -> None:
        self._offer(lines)

    async def run(self, query: str, scope: Literal["thread", "workspace"]) -> None:
        """Raises `ConfigError` for nothing to look for."""
        if not query.strip():
            raise ConfigError("Write what to look for behind the command.")
        page = await self._session.views.search(query, scope=scope, limit=PER_PAGE)
        shown = "" if page.total <= len(page.hits) else f", the best {len(page.hits)} are said"
        newest = " among the newest" if page.newest_only else ""
        self._say(f"{page.found}{newest}{shown}")

        async def show(number: int) -> None:
            await self._hit(one(page.hits, number))

        self._offer([words.hit(h, n) for n, h in enumerate(page.hits, 1)], "says the message with its neighbours", show)

    async def _hit(self, hit: Hit) -> None:
        views = self._session.views
        thread_id, index, target = hit.thread_id, hit.position, hit.id
        if hit.kind != "message":
            origin = await views.origin(hit.id) if hit.kind in ("observation", "reflection") else None
            self._say(f"{hit.kind}: {hit.text}")
            if origin is None:
                return
            self._say("it was made from:")
            thread_id, index, target = origin.thread_id, origin.index, origin.message_id
        around: list[Message] = await views.around(thread_id, index, 1, 1) if thread_id else []
        for message in around:
            lines = words.message(message, limit=None if message.id == target else 6)
            self._say(*(["this is it:"] if message.id == target else []), *lines)
