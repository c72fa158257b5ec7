"""A thread that is opened again goes on with the prompt and the tools that a warm prompt cache holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.session import prompt
from sakti.agent.tools import catalog
from sakti.core.types import ModelInfo, Request
from sakti.providers import anthropic
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.clock import FakeClock
from tests.fakes.session import Recorded, start

SETTINGS = ("memory.observation.message_tokens=2000",)
MINUTE = 60  # seconds


def prefix(request: Request) -> str:
    """Tools and system prompt as they are sent, without the blocks of memory."""
    blocks = tuple(b for b in request.system if b.kind == "system")
    body = anthropic.render(replace(request, system=blocks))
    return json.dumps([body["tools"], body["system"]])


def names(request: Request) -> set[str]:
    return {t.name for t in request.tools}


def upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version: another prompt, `glob` is gone, `find` is new."""
    build, tools = prompt.build, catalog.make_all_tools

    def all_tools(*args, **options):
        return [replace(t, name="find") if t.name == "glob" else t for t in tools(*args, **options)]

    monkeypatch.setattr(prompt, "build", lambda *a, **k: "Version 2. " + build(*a, **k))
    monkeypatch.setattr(catalog, "make_all_tools", all_tools)


async def leave(store: Store, folder: Path) -> tuple[str, Request]:
    """Ask once in a thread and close it; return its id and its request."""
    run = await start(store, folder, ["That is so."], overrides=SETTINGS)
    await run.ask("how is it?")
    thread = run.session.thread
    await run.session.close()
    return thread.id, run.provider.requests[-1]


async def go_on(store: Store, folder: Path, thread: str, answers: list, *more: str, **options) -> Recorded:
    return await start(store, folder, answers, resume=thread, overrides=(*SETTINGS, *more), **options)


async def test_a_warm_thread_keeps_prompt_and_tools_until_an_activation(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, first = await leave(store, tmp_path / "w")
    upgrade(monkeypatch)
    store.clock.advance(4 * MINUTE)
    play = [Answer("", calls=(Call("glob", {"pattern": "*"}),)), "It is gone.", "And so on. " * 900, "The end."]
    run = await go_on(store, tmp_path / "w", thread, play)
    await run.ask("and now?")
    second, third = run.provider.requests
    assert prefix(second) == prefix(third) == prefix(first)
    (result,) = third.messages[-1].tool_results
    assert result.is_error and result.content.startswith("There is no tool glob. ")
    store.clock.advance(4 * MINUTE)  # each request keeps the cache warm
    await run.ask("tell me more")
    assert prefix(run.provider.requests[-1]) == prefix(first)
    await run.session.compact()
    await run.ask("and then?")
    last = run.provider.requests[-1]
    assert "find" in names(last) and "glob" not in names(last)
    assert last.system[0].text.startswith("Version 2. ")
    await run.session.close()


async def test_a_thread_with_a_log_is_told_of_its_memory_once(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["And so on. " * 900, "Yes."], overrides=SETTINGS)
    await run.ask("tell me more")
    await run.session.compact()
    await run.ask("and then?")
    kinds = [b.kind for b in run.provider.requests[-1].system]
    assert kinds.count("memory") == 1
    for _ in range(2):
        await run.session.close()
        run = await go_on(store, tmp_path / "w", run.session.thread.id, ["Yes."])
        await run.ask("and now?")
        assert [b.kind for b in run.provider.requests[-1].system] == kinds
    await run.session.close()


async def test_an_activation_within_a_turn_changes_prompt_and_tools_with_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, first = await leave(store, tmp_path / "w")
    upgrade(monkeypatch)
    call = Call("ls", {})
    play = [*(Answer("I look at it again. " * 150, calls=(call,)) for _ in range(12)), "The end."]
    run = await go_on(store, tmp_path / "w", thread, play)
    await run.ask("look at everything")
    requests = run.provider.requests
    old = [prefix(r) == prefix(first) for r in requests]
    activated = [any(b.kind == "observations" for b in r.system) for r in requests]
    assert True in activated
    assert old == [not a for a in activated]
    assert all(r.system[0].text.startswith("Version 2. ") == ("find" in names(r)) for r in requests)
    await run.session.close()


CURRENT = {
    "a cold cache": (6 * MINUTE, (), "demo"),
    "another model": (0, (), "other"),
    "a setting that takes a tool away": (0, ("web.fetch=false",), "demo"),
}


@pytest.mark.parametrize("why", CURRENT)
async def test_a_thread_takes_the_current_prompt_and_tools_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    thread, first = await leave(store, tmp_path / "w")
    pause, settings, name = CURRENT[why]
    upgrade(monkeypatch)
    assert isinstance(store.clock, FakeClock)
    store.clock.advance(pause)
    model = ModelInfo(name, "scripted", context_window=200_000)
    run = await go_on(store, tmp_path / "w", thread, ["Yes."], *settings, model=model)
    await run.ask("and now?")
    request = run.provider.requests[-1]
    assert prefix(request) != prefix(first) and "find" in names(request)
    assert ("webfetch" in names(request)) is (not settings)
    await run.session.close()
