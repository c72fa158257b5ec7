"""Use the skills and commands of a session: what the model is told of them, what is typed, what was loaded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from sakti.agent.project.skills import catalog
from sakti.agent.project.skills.library import Library, Skill, load
from sakti.agent.session import instructed
from sakti.core.patterns import lazy_pattern
from sakti.core.types import FilePart, Json, Message, Thread, ToolResultPart
from sakti.store.threads import threads as stored_threads

if TYPE_CHECKING:
    from sakti.agent.session.state import State

CATALOG, LOADED = "skills", "loaded_skills"  # in a thread's metadata: what it began with, names of those loaded since
FACT = "skill"  # the first word of the facts that hold the text of one
_NAMED = lazy_pattern(r'<skill name="([^"]+)">')


def library(state: State) -> Library:
    """Return what is there, read when it is asked for first."""
    if state.skills is None:
        state.skills = load(state.workspace, project=_project(state), trusts=state.trusts)
    return state.skills


def _project(state: State) -> bool:
    return state.options.instructed and not state.options.unasked


async def refresh(state: State) -> None:
    """Read anew what is there; the prompt of a thread that goes on stays, what changed is told as a fact."""
    state.skills = await asyncio.to_thread(load, state.workspace, project=_project(state), trusts=state.trusts)
    before = str(state.thread.metadata.get(CATALOG) or "") if state.thread is not None else ""
    state.changed_skills = catalog.change(before, told(state)) if before else ""


def told(state: State) -> str:
    """Return what a thread that begins now is told of skills."""
    window = state.model_info.context_window if state.model_info is not None else None
    return catalog.block(library(state), state.counter, window)


def to_metadata(state: State) -> Json:
    """Return what is kept with a thread that begins; nothing where there are no skills."""
    text = told(state)
    return {CATALOG: text} if text else {}


def kept(thread: Thread | None) -> str:
    """Return what a thread began with."""
    return str(thread.metadata.get(CATALOG) or "") if thread is not None else ""


class LoadedSkills:
    """The skills whose text the open thread has; kept with it, so that memory does not take them away."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __contains__(self, name: object, /) -> bool:
        return name in names_loaded(self._state.thread)

    async def add(self, skill: Skill) -> None:
        """Note that a skill was loaded."""
        await note_loaded(self._state, (skill.name,))


def names_loaded(thread: Thread | None) -> list[str]:
    """Return the names of the skills that a thread has loaded."""
    found: Any = thread.metadata.get(LOADED) if thread is not None else None
    return [str(name) for name in cast("list[Any]", found)] if isinstance(found, list) else []


async def note_loaded(state: State, names: tuple[str, ...]) -> None:
    """Keep with the open thread, which is stored, that skills were loaded."""
    assert state.thread is not None
    known = names_loaded(state.thread)
    now = [*known, *(n for n in dict.fromkeys(names) if n not in known)]
    if now != known:
        await state.store.write(stored_threads.update_metadata, state.thread.id, {LOADED: now})
        state.thread = replace(state.thread, metadata={**state.thread.metadata, LOADED: now})


async def note_sent(state: State, parts: tuple[object, ...]) -> None:
    """Note the skills that go with a message of the user."""
    names = tuple(m[1] for p in parts if isinstance(p, FilePart) and (m := _NAMED.match(p.text)))
    if names:
        await note_loaded(state, names)


def facts(state: State) -> dict[str, str]:
    """Return the texts of loaded skills that memory has taken out of the window, and what changed of the list."""
    messages = state.engine.state.window.messages
    out = {"skills": state.changed_skills} if state.changed_skills else {}
    if not out and CATALOG in instructed.told(messages, CATALOG):
        out[CATALOG] = "The skills are again those that this thread began with."
    if names := names_loaded(state.thread):
        seen = {name for m in messages for name in _shown_in(m)}
        known = {s.name: s for s in library(state).skills}
        out |= {f"{FACT} {n}": catalog.whole(known[n], known[n].body) for n in names if n in known and n not in seen}
    return out


def _shown_in(message: Message) -> list[str]:
    texts = [p.text for p in message.parts if isinstance(p, FilePart)]
    texts += [p.content for p in message.parts if isinstance(p, ToolResultPart) and p.name == "skill"]
    return [m[1] for t in texts if (m := _NAMED.match(t))]
