"""A real session on a real database with a scripted model: what most tests of the agent need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sakti.agent.processors.base import Processor
from sakti.agent.session.session import Options, Session
from sakti.core.config import Config, load
from sakti.core.events import Event
from sakti.core.tokens import Estimator
from sakti.core.types import ModelInfo
from sakti.providers.protocol import Provider
from sakti.providers.scripted import Played, Player, ScriptedProvider
from sakti.store.database import Store
from tests.fakes.clock import FakeClock


class Recorded:
    """A started session, its provider and every event that it emitted."""

    def __init__(self, session: Session, provider: ScriptedProvider) -> None:
        self.session = session
        self.provider = provider
        self.events: list[Event] = []
        session.subscribe(self.events.append)

    def of(self, kind: type[Any]) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]

    async def ask(self, text: str) -> Any:
        """Submit and wait; returns the `TurnFinished`."""
        from sakti.core.events import TurnFinished

        await self.session.submit(text)
        await self.session.wait()
        return self.of(TurnFinished)[-1]


async def start(
    store: Store,
    workspace: Path,
    answers: list[Played] | Player,
    *,
    overrides: tuple[str, ...] = (),
    interactive: bool = True,
    window: int | None = 200_000,
    processors: tuple[Processor, ...] = (),
    resume: str | None = None,
    continue_last: bool = False,
    small: bool = False,
    config: Config | None = None,
    provider: Provider | None = None,
    model: ModelInfo | None = None,
    added: tuple[Path, ...] = (),
    env: Mapping[str, str] | None = None,
) -> Recorded:
    workspace.mkdir(exist_ok=True)
    clock = store.clock
    assert isinstance(clock, FakeClock)
    counter = Estimator()
    scripted = ScriptedProvider(answers, clock=clock, count=counter.count)
    options = Options(
        workspace,
        config or load(overrides=("memory.model=extractive", *overrides)).config,
        resume=resume,
        continue_last=continue_last,
        interactive=interactive,
        env={"PATH": "/usr/bin:/bin", **(env or {})},
        added=added,
    )
    model = model or ModelInfo("demo", "scripted", context_window=window, small=small)
    session = Session(
        options,
        clock=clock,
        counter=counter,
        provider=provider or scripted,
        model=model,
        store=store,
        processors=processors,
    )
    recorded = Recorded(session, scripted)
    await session.start()
    return recorded
