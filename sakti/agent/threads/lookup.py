"""Explain why no thread has the name that a user gave."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.store.database import Store

with lazy_imports:
    from sakti.store.threads import threads as stored_threads


async def explain_missing(store: Store, text: str, listing: str = "`sakti threads list`") -> str:
    """Return the error for a name that fits no thread of this workspace: where such a thread is, and how to open it.

    `listing` is the command that lists threads.
    """
    name = one_line(text, 80)
    elsewhere = await store.read(stored_threads.find, None, text) if text else []
    if not elsewhere:
        return f"No thread of this workspace matches {name!r}; {listing} shows them."
    thread = elsewhere[0]
    if not Path(thread.resource_id).is_absolute():
        return f"The thread {name!r} belongs to {thread.resource_id}."
    opening = f"`cd {shlex.quote(thread.resource_id)} && sakti -r {thread.id[-8:]}` opens it."
    return f"The thread {name!r} belongs to the workspace {thread.resource_id}: {opening}"
