"""Write a thread of thousands of messages for the terminal benchmark: questions, tool calls, long answers."""

from __future__ import annotations

from pathlib import Path

from sakti.core.types import Message, Part, Role, TextPart, Thread, ToolCallPart, ToolResultPart
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.threads import messages, threads
from tests.bench.tui_model import SECTION

TITLE = "ten thousand messages"
NEWEST = "ZNEWESTZ"
EVERYWHERE = "e"  # a letter that is on every screen of it
BATCH = 1_000


async def write(path: Path, workspace: Path, count: int) -> None:
    """Make a database at `path` with a thread of `count` messages in it."""
    store = await Store.open(path, synchronous="NORMAL")
    try:
        now = store.clock.now()
        resource_id = str(workspace.resolve())
        thread = Thread(store.ids.new(), resource_id, TITLE, now, now)
        await store.write(threads.create, thread)
        for start in range(0, count, BATCH):
            await store.write(_append, thread, start, min(count, start + BATCH), count)
    finally:
        await store.close()


def _append(db: Database, thread: Thread, start: int, end: int, count: int) -> None:
    for number in range(start, end):
        role, parts = _message(number, number == count - 1)
        message = Message(
            f"{thread.id}-{number}", thread.id, thread.resource_id, role, parts, thread.created_at + number, tokens=10
        )
        messages.append(db, message)


def _message(number: int, newest: bool) -> tuple[Role, tuple[Part, ...]]:
    if newest:
        return "assistant", (TextPart(NEWEST),)
    part = number // 4
    match number % 4:
        case 0:
            return "user", (TextPart(f"How does part {part} drain its queue?"),)
        case 1:
            call = ToolCallPart(f"call-{part}", "bash", {"command": f"pytest -q tests/part_{part}"})
            return "assistant", (TextPart("I run its tests."), call)
        case 2:
            return "tool", (ToolResultPart(f"call-{part}", "bash", "passed\n" * 60),)
        case _:
            return "assistant", (TextPart(SECTION.format(n=number) * 2),)
