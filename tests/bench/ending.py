"""Check a whole replay: every message is stored unchanged and found by its words."""

from __future__ import annotations

from sakti.core.types import join_plain_text
from sakti.store.database import Store
from sakti.store.search import search
from sakti.store.threads import messages
from tests.bench.invariants import Finding
from tests.bench.snapshot import Ledger
from tests.bench.windows import WORKSPACE

SEARCHED = 25  # messages of a thread that are looked for by search


async def texts(store: Store, ledger: Ledger) -> list[Finding]:
    """Check 10: messages are stored unchanged and found by their words."""
    out: list[Finding] = []
    for thread in ledger.threads():
        said = [m for m in ledger.said(thread) if m.state == "saved"]
        stored = {m.id: m for m in await store.read(messages.get_many, [m.id for m in said])}
        for message in said:
            found = stored.get(message.id)
            if found is None or (found.parts, found.tokens) != (message.parts, message.tokens):
                out.append((10, f"message {message.index} of {thread} is not as it was said"))
        for message in said[:: max(1, len(said) // SEARCHED)]:
            text = join_plain_text(message.parts)
            words = text.split()[:10]
            if len(words) < 3:
                continue
            phrase = " ".join(words).replace('"', " ")
            page = await store.read(
                search.search, f'"{phrase}"', search.Scope(WORKSPACE, thread, ("message",)), limit=50
            )
            if not any(hit.id == message.id or hit.text == text for hit in page.hits):
                out.append((10, f"message {message.index} of {thread} is not found by its words"))
    return out
