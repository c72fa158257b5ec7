"""Show unobserved messages of the workspace's other threads when they share one memory. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sakti.core.resources import read_prompt
from sakti.core.text import one_line
from sakti.core.tokens import Counter
from sakti.memory.log import dates
from sakti.memory.shared import safe_title, thread_alias
from sakti.store.log.lines import MessageExcerpt

SHARE = 0.2  # of the message threshold: so much of a request it may take
LINE_CHARACTERS = 600
_ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool result"}


def text(said: Sequence[MessageExcerpt], counter: Counter, limit: int, timezone: str) -> str:
    """Return a delimited block of the newest messages that fit `limit` tokens, by thread.

    The thread used last comes last; empty where nothing fits.
    """
    head = read_prompt("memory#other-threads")
    used = counter.count(head) + 20
    by_thread: dict[str, list[str]] = {}
    titles = {one.thread_id: f' title="{safe_title(one.title)}"' if one.title.strip() else "" for one in said}
    for one in sorted(said, key=lambda s: (s.created_at, s.index), reverse=True):
        words = one_line(one.text, LINE_CHARACTERS)
        if not words:
            continue
        line = f"{_ROLES.get(one.role, one.role)} ({dates.clock_text(one.created_at, timezone)}): {words}"
        size = counter.count(line) + (1 if one.thread_id in by_thread else 20 + counter.count(titles[one.thread_id]))
        if used + size > limit:
            break
        by_thread.setdefault(one.thread_id, []).append(line)
        used += size
    if not by_thread:
        return ""
    parts = [
        "\n".join([f'<thread id="{thread_alias(thread)}"{titles[thread]}>', *reversed(lines), "</thread>"])
        for thread, lines in reversed(by_thread.items())
    ]
    return "\n".join(["<other-threads>", head, *parts, "</other-threads>"])
