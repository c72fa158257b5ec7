"""Tell the model what changed of its instructions since the thread began, each file as a fact of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from sakti.agent.project.instructions import find, nearby
from sakti.core.events import Notice
from sakti.core.types import ContextPart, Message, Thread
from sakti.store.threads import threads as stored_threads

if TYPE_CHECKING:
    from sakti.agent.session.state import State

FACT = "instructions"  # the first word of the facts that hold a file's


async def found(state: State) -> find.Instructions:
    """Return the instructions that hold now, and tell what was left out of them."""
    folder = Path.cwd()
    at = folder if folder.is_relative_to(state.workspace) else state.workspace
    project = state.options.instructed and not state.options.unasked
    now = await asyncio.to_thread(find.find, state.workspace, at, project=project, trusts=state.trusts)
    for note in now.notes:
        if note not in state.told_notes:
            state.told_notes.add(note)
            state.emit(Notice("warning", "Instructions", note))
    return now


async def refresh(state: State) -> None:
    """Read anew what holds; the prompt of a thread that goes on stays, what changed is told as facts."""
    state.changed_instructions = find.changes(find.kept(state.thread), (await found(state)).sources)
    if state.nearby is not None:
        await state.nearby.refresh()


def names_near(thread: Thread | None) -> list[str]:
    """Return the names of what a thread was shown when a tool touched its part of the project."""
    names: Any = thread.metadata.get(nearby.KEY) if thread is not None else None
    return [str(name) for name in cast("list[Any]", names)] if isinstance(names, list) else []


async def keep_near(state: State, names: Sequence[str]) -> None:
    """Keep with the open thread, which is stored, that these were shown."""
    assert state.thread is not None
    now = list(dict.fromkeys((*names_near(state.thread), *names)))
    state.thread = replace(state.thread, metadata={**state.thread.metadata, nearby.KEY: now})
    await state.store.write(stored_threads.update_metadata, state.thread.id, {nearby.KEY: now})


def facts(state: State) -> dict[str, str]:
    """Return by file what changed, what holds where a tool was, and what was told and is again as it was."""
    window = state.opened_engine.state.window.messages if state.opened_engine is not None else ()
    before = told(window, FACT)
    out = {f"{FACT} {name}": text for name, text in state.changed_instructions.items()}
    for name, text in (state.nearby.texts() if state.nearby is not None else {}).items():
        if text:
            out[f"{FACT} {name}"] = f'<instructions from="{name}">\n{text}\n</instructions>'
        elif f"{FACT} {name}" in before:
            out[f"{FACT} {name}"] = f"{name} was removed: its instructions hold no longer."
    known = {s.name for s in find.kept(state.thread)}
    near = set(names_near(state.thread))
    for fact in before:
        name = fact.partition(" ")[2]
        if name and name not in near and fact not in out:
            again = f"{name} reads again as it did at first."
            out[fact] = again if name in known else f"{name} was removed: its instructions hold no longer."
    return out


def told(messages: Iterable[Message], word: str) -> dict[str, None]:
    """Return the names of the facts that were told, of those that begin with a word, in order."""
    parts = (p for m in messages for p in m.parts if isinstance(p, ContextPart))
    return {name: None for p in parts for name in p.facts if name.partition(" ")[0] == word}
