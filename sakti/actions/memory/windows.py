"""Declare the actions on the token windows: their state, and what moves them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sakti.actions.memory.arguments import NO_THREAD, WHERE, remembered
from sakti.actions.spec import action, arg, option
from sakti.actions.values import USAGE, Card, Done, Refused, Rows, Text, Value
from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_imports
from sakti.core.text import count_k, counted

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.agent.reports import memory_report
    from sakti.core import events as core_events

EVENTS = 20  # newest of what happened to the memory that are told


@action(
    *WHERE,
    shell="memory status",
    chat="memory",
    needs="store",
    summary="show the token windows; `undo` the last reflection, `pause` and `resume` observing",
    hint="[undo | pause | resume]",
)
async def status(scope: Scope, **where: Any) -> Value:
    """Show the token windows (as in `data-om-status`), who observes and why, and the results so far."""
    async with scope.memory(**where, models="chosen") as session:
        found = session.current.status
        if found is None and scope.live is None:
            raise Refused(NO_THREAD)
        if found is None:
            return Done("No thread yet: the windows fill as you chat.")
        figures = await session.views.memory_figures()
    rows = tuple(memory_report.status_rows(found, figures))
    return Card("Memory", rows, json={**core_events.to_json(found), "figures": to_builtins(figures)})


@action(chat="memory events", needs="session")
async def events(scope: Scope) -> Value:
    """List what happened to this thread's memory."""
    found = tuple(reversed((await scope.session.views.memory_events())[:EVENTS]))
    lines = tuple(memory_report.in_a_line(e) for e in found)
    return Rows(lines, "events", found, "Nothing has happened yet.")


@action(
    arg("focus", "What to pay special attention to.", default=""),
    *WHERE,
    shell="memory observe",
    needs="store",
)
async def observe(scope: Scope, focus: str, **where: Any) -> Value:
    """Observe everything but the last exchange now."""
    async with remembered(scope, **where, models="called") as session:
        done = await session.compact(focus)
    text = "Nothing to observe."
    if done.messages:
        sizes = f"{count_k(done.tokens_before)} → {count_k(done.tokens_after)} tokens"
        text = f"{done.messages} messages observed in {done.lines} lines: {sizes}"
    failed = bool(done.warnings) and not done.messages
    return Text((text, *done.warnings), json=to_builtins(done), exit=int(failed))


@action(*WHERE, shell="memory reflect", needs="store")
async def reflect(scope: Scope, **where: Any) -> Value:
    """Condense the whole log now."""
    async with remembered(scope, **where, models="called") as session:
        before = session.current.engine.status()
        done = await session.current.engine.reflect_now()
        after = session.current.engine.status()
    now, earlier = after.observations.tokens, before.observations.tokens
    text = f"The log now has {now} tokens, before {earlier}."
    return Done(
        text if done else after.note or "Nothing to condense.",
        exit=int(not done and bool(after.note)),
        json={
            "reflected": done,
            "tokens_before": earlier,
            "tokens_after": now,
            "generation_count": after.generation_count,
            "note": after.note,
        },
    )


@action(
    arg("what", "Undo the last one.", choices=("observation", "reflection")),
    option("--generation", kind="whole", metavar="N", help="The reflection to undo (default: the newest)."),
    *WHERE,
    shell="memory undo",
    needs="store",
)
async def undo(scope: Scope, what: str, generation: int | None, **where: Any) -> Value:
    """Undo the last `observe` or /compact, or a reflection: the log is as it was before."""
    if generation is not None and what != "reflection":
        raise Refused("--generation names a reflection.", code=USAGE)
    async with remembered(scope, **where) as session:
        if what == "reflection":
            gone = await session.current.engine.undo_reflection(generation)
            tokens = session.current.engine.status().observations.tokens
            groups = f"{counted(gone.groups, 'group')} of observations"
            lost = f" Changes to {gone.corrected} of its lines went with it." if gone.corrected else ""
            text = f"Generation {gone.generation} is undone: {groups}, {tokens} tokens in the log.{lost}"
            return Done(text, json={**to_builtins(gone), "observation_tokens": tokens})
        done = await session.current.engine.undo_compaction()
        if done is None:
            raise MemoryFailure("There is no observation by hand to undo.", code="not_found")
        tokens = session.current.engine.status().observations.tokens
    return Done(
        f"{done.messages} messages are back in the window.", json={**to_builtins(done), "observation_tokens": tokens}
    )


@action(chat="memory undo", needs="session")
async def undo_reflection(scope: Scope) -> None:
    """Undo the last reflection."""
    await scope.session.undo_reflection()


@action(*WHERE, shell="memory pause", chat="memory pause", needs="store")
async def pause(scope: Scope, **where: Any) -> Value | None:
    """Stop observing in the background, in every window; the newest messages that fit are sent."""
    return await _pause(scope, True, **where)


@action(*WHERE, shell="memory resume", chat="memory resume", needs="store")
async def resume(scope: Scope, **where: Any) -> Value | None:
    """Observe again, oldest messages first, from the thread's next turn on."""
    return await _pause(scope, False, **where)


async def _pause(scope: Scope, paused: bool, **where: Any) -> Value | None:
    if scope.live is not None:
        await scope.live.pause_memory(pause=paused)
        return None  # a notice of the session says it
    async with remembered(scope, **where) as session:
        await (session.current.engine.pause() if paused else session.current.engine.resume(start=False))
        after = session.current.engine.status()
    return Done(
        "Memory is paused." if paused else "Memory resumes with the thread's next turn.",
        json=core_events.to_json(after),
    )
