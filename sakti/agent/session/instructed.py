"""Tell the model what changed of its instructions since the thread began, each file as a fact of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sakti.agent.instructions import find
from sakti.core.events import Notice
from sakti.core.types import ContextPart, Message

if TYPE_CHECKING:
    from sakti.agent.session.state import State

FACT = "instructions"  # the first word of the facts that hold a file's


async def found(state: State) -> find.Found:
    """Return the instructions that hold now, and tell what was left out of them."""
    folder = Path.cwd()
    at = folder if folder.is_relative_to(state.workspace) else state.workspace
    now = await asyncio.to_thread(
        find.find, state.workspace, at, project=state.options.instructed and not state.options.unasked
    )
    for note in now.notes:
        if note not in state.told_notes:
            state.told_notes.add(note)
            state.emit(Notice("warning", "Instructions", note))
    return now


async def refresh(state: State) -> None:
    """Read anew what holds; the prompt of a thread that goes on stays, what changed is told as facts."""
    state.changed_instructions = find.changes(find.kept(state.thread), (await found(state)).sources)
    if state.nearby is not None:
        state.changed_instructions |= await state.nearby.changes()


def facts(state: State) -> dict[str, str]:
    """Return what changed, by file, and what was told to have changed and is again as it was."""
    out = {f"{FACT} {name}": text for name, text in state.changed_instructions.items()}
    kept = {s.name for s in find.kept(state.thread)}
    window = state.opened_engine.state.window.messages if state.opened_engine is not None else ()
    for fact in told(window, FACT):
        name = fact.partition(" ")[2]
        if name and fact not in out:
            known = name in kept or (state.nearby is not None and name in state.nearby.shown)
            out[fact] = (
                f"{name} reads again as it did at first."
                if known
                else f"{name} was removed: its instructions hold no longer."
            )
    return out


def told(messages: Iterable[Message], word: str) -> dict[str, None]:
    """Return the names of the facts that were told, of those that begin with a word, in order."""
    parts = (p for m in messages for p in m.parts if isinstance(p, ContextPart))
    return {name: None for p in parts for name in p.facts if name.partition(" ")[0] == word}
