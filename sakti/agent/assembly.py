"""Putting a session's parts together: memory, tools, saved rules."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sakti.agent.approvals import Approvals
from sakti.agent.permissions import Rules
from sakti.agent.workspace import local_timezone, scrubbed
from sakti.core import resources

if TYPE_CHECKING:
    from sakti.agent.session import Session
    from sakti.agent.toolbox import Toolbox
    from sakti.memory.engine import MemoryEngine
    from sakti.memory.protocol import Observer, Reflector
    from sakti.store.database import Store

log = logging.getLogger(__name__)

NOT_KEPT = "Nothing of this session was kept."


async def open_store(session: Session, given: Store | None) -> Store:
    """The database of a session: the one that it was given, else the configured one; with `memory.read_only` a copy of
    it in memory."""
    from sakti.store.database import Store

    if given is not None and (session.saved or given.not_saved):
        return given
    settings = session.config.store
    path = given.path if given else Path(settings.path or resources.data_home() / "sakti.db").expanduser()
    ids = given.ids if given else None
    return await Store.open(
        path,
        clock=session.clock,
        ids=ids,
        synchronous=settings.synchronous,
        wait=settings.wait,
        on_wait=session.store_waits,
        scratch=True,
        keep=session.saved,
    )


def output_folder(session: Session) -> Path:
    """Where what tools printed is kept whole; of a session that is not saved, a private folder that goes with it."""
    if not session.saved:
        return Path(tempfile.mkdtemp(prefix=f"sakti-{os.getpid()}-"))
    return resources.state_home() / "outputs"


def make_observers(session: Session) -> tuple[Observer, Reflector]:
    """The Observer and the Reflector that the settings and the model allow: a model that nobody named has to be fit."""
    from sakti.core.config import model_choices
    from sakti.memory import factory

    memory, models = session.config.memory, session.models
    usual = models.observing()
    own = ((usual, None),) if usual and models.fit(usual) else ()

    def candidates(names: Iterable[tuple[str, int | None]]) -> list[factory.Candidate]:
        info = models.info
        out: list[factory.Candidate] = []
        for name, up_to in names:
            window = info.context_window if info is not None and name == info.full_name else None
            out.append(factory.Candidate(*models.background(name), up_to, window))
        return out

    observing = model_choices(memory.model or memory.observation.model) or own
    reflecting = model_choices(memory.model or memory.reflection.model) or observing
    return factory.build(
        memory,
        candidates(observing),
        candidates((name, None) for name, _ in reflecting) if reflecting is observing else candidates(reflecting),
        counter=session.counter,
        clock=session.clock,
    )


def make_engine(session: Session) -> MemoryEngine:
    """The memory of the open thread."""
    from sakti.memory.engine import MemoryEngine

    observer, reflector = make_observers(session)
    return MemoryEngine(
        store=session.store,
        settings=session.config.memory,
        mode=session.mode,
        counter=session.counter,
        clock=session.clock,
        ids=session.store.ids,
        observer=observer,
        reflector=reflector,
        emit=session.emit,
        owner=session.owner or None,
        timezone=local_timezone(),
        reason=why_observer(session),
    )


def why_observer(session: Session) -> str:
    """Why the model that observes was chosen, or why none was."""
    memory, models = session.config.memory, session.models
    if memory.model or memory.observation.model:
        return "set by memory.model" if memory.model else "set by memory.observation.model"
    if models.info is None:
        return "no model at hand"
    if not models.fit(models.observing()):
        return f"{models.info.name} is too small to observe"
    if models.observing() == models.info.full_name:
        return "the model that answers"
    return f"the small model of {models.info.provider}"


def make_toolbox(session: Session) -> Toolbox:
    """The tools, with what they share; their schemas are ready and counted."""
    from sakti.agent.toolbox import Toolbox
    from sakti.agent.tools import all_tools
    from sakti.agent.tools.base import Workbench
    from sakti.providers.presets import PRESETS

    keys = frozenset(k for p in PRESETS.values() for k in p.keys) | {
        s.key_env for s in session.config.providers.values() if s.key_env
    }
    bench = Workbench(
        session.workspace,
        session.workspace,
        output_folder(session),
        session.clock,
        session.store.ids,
        scrubbed(session.env, keys),
        session.config.agent.tool_output_bytes,
        session.config.agent.bash_timeout,
        session.own_paths(),
    )
    approval = session.config.approval
    approvals = Approvals(session.emit, interactive=session.options.interactive)
    tools = all_tools(
        session.store,
        resource_id=session.resource_id,
        owner=session.owner or None,
        counter=session.counter,
        settings=session.config.memory,
        emit=session.emit,
        in_window=lambda: session.engine.window_ids,
    )
    toolbox = Toolbox(
        {t.name: t for t in tools},
        bench,
        approvals,
        session.approval_mode,
        Rules(approval.allow, approval.ask, approval.deny),
        lambda rule: _save_rule(session, rule),
        lambda: session.models.info.name if session.models.info else "",
    )
    toolbox.count(session.counter, toolbox.specs(small=bool(session.model_info and session.model_info.brief)))
    return toolbox


def small_budget(session: Session) -> int:
    """Tokens that a small model's window leaves for memory and messages: its gauges show them from the start."""
    from sakti.agent.budget import room

    assert session.model_info is not None
    counter, toolbox = session.counter, session.toolbox
    fixed = sum(b.tokens for b in session.system()) + toolbox.count(counter, toolbox.specs(small=True))
    return room(session.model_info, session.config.agent, fixed)[1] or 0


def _save_rule(session: Session, rule: str) -> None:
    from sakti.store import user_state

    task = asyncio.ensure_future(
        session.store.write(user_state.save_rule, session.resource_id, rule, "allow", session.clock.now())
    )
    task.add_done_callback(lambda t: t.exception() and log.warning("rule not saved: %s", t.exception()))


async def load_rules(session: Session) -> None:
    """Take in what "always" has saved for this workspace, also in another window."""
    from sakti.store import user_state

    saved = await session.store.read(user_state.rules, session.resource_id)
    rules = session.toolbox.rules
    new = tuple(r for r, decision in saved if decision == "allow" and r not in rules.allow)
    session.toolbox.rules = replace(rules, allow=(*rules.allow, *new))
