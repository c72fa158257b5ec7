"""A session on a real database with a scripted model, for screens that change things."""

from __future__ import annotations

from pathlib import Path

from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.tokens import Estimator
from sakti.core.types import ModelInfo
from sakti.providers.protocol import Provider
from sakti.providers.scripted import Played, ScriptedProvider
from sakti.store.database import Store
from tests.tui.conftest import settle


def real_session(
    store: Store, workspace: Path, *answers: Played, overrides=(), provider: Provider | None = None, **options
) -> Session:
    workspace.mkdir(exist_ok=True)
    clock, counter = store.clock, Estimator()
    provider = provider or ScriptedProvider(answers, clock=clock, count=counter.count)
    config = load(overrides=("memory.model=extractive", *overrides)).config
    chosen = Options(workspace, config, env={"PATH": "/usr/bin:/bin"}, **options)
    model = ModelInfo("demo", "scripted", context_window=200_000)
    return Session(chosen, clock=clock, counter=counter, provider=provider, model=model, store=store)


async def say(app, pilot, *texts: str) -> None:
    """Each a turn, to its end."""
    for text in texts:
        await app.session.submit(text)
        await app.session.wait()
        await settle(app, pilot)
