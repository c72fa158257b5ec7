"""Servers in a session with a scripted model: found, judged, called, limited, restarted, ended."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sakti.agent.mcp import lifecycle
from sakti.agent.mcp.clients import McpClients
from sakti.core.config import load
from sakti.core.events import (
    ApprovalRequested,
    McpServerChanged,
    StepFinished,
    ToolFinished,
    ToolOutput,
    ToolStarted,
)
from sakti.core.tokens import count_tools
from sakti.core.types import ContextPart, ImagePart, ModelInfo, ToolCallPart, ToolResultPart
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import Recorded, start

SERVER = Path(__file__).parents[3] / "fakes/mcp_server.py"
LISTED = ("everything", "fetch", "filesystem", "git", "playwright", "time")
SEEING = ModelInfo("demo", "scripted", context_window=200_000, images=True)


def entry(**options: Any) -> dict[str, Any]:
    """Return the configuration of the fake server; options that are no fields of it are the server's."""
    fields = ("always_load", "timeout", "startup_timeout", "enabled", "write", "network", "env")
    configured = {name: options.pop(name) for name in fields if name in options}
    return {"command": sys.executable, "args": ["-S", str(SERVER), json.dumps(options)], **configured}


def calling(name: str, **arguments: Any) -> Answer:
    return Answer(calls=(Call("call_tool", {"name": name, "arguments": arguments}),))


@asynccontextmanager
async def session(
    store: Store, workspace: Path, answers: Any, servers: dict[str, Any], **options: Any
) -> AsyncGenerator[Recorded]:
    overrides = ("memory.model=extractive", *options.pop("overrides", ()))
    config = dataclasses.replace(load(overrides=overrides).config, mcp=servers)
    run = await start(store, workspace, answers, config=config, **options)
    try:
        yield run
    finally:
        await run.session.close()


def clients_of(run: Recorded) -> McpClients:
    clients = run.session.workspace.servers.clients
    assert clients is not None
    return clients


async def ready(run: Recorded) -> McpClients:
    servers = run.session.workspace.servers
    while servers.clients is None:
        await asyncio.sleep(0.01)
    await servers.clients.wait(servers.clients.connections, 20)
    return servers.clients


async def until(holds: Callable[[], Any], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


async def run_call(run: Recorded, name: str, **arguments: Any) -> ToolResultPart:
    """Run one call as a model's, outside of a turn; a question is answered with yes."""
    thread = run.session.current
    task = asyncio.create_task(thread.toolbox.alone(ToolCallPart("c", name, arguments), thread.id, thread.emit))
    while not task.done():
        for asked in run.session.approvals:
            run.session.resolve(asked.id, True)
        await asyncio.wait({task}, timeout=0.01)
    return await task


@pytest.mark.parametrize("modern", [False, True])
async def test_a_tool_is_found_called_and_asked_about(store: Store, tmp_path: Path, modern: bool) -> None:
    answers = [
        Answer(calls=(Call("search_tools", {"query": "echo a text"}),)),
        Answer(calls=(Call("load_tool", {"name": "mcp__fake__echo"}),)),
        calling("mcp__fake__echo", text="hi"),
        calling("mcp__fake__echo", words="hi"),
        "done",
    ]
    servers = {"fake": entry(modern=modern)}
    async with session(store, tmp_path / "w", answers, servers, model=SEEING) as run:
        clients = await ready(run)
        await run.ask("go")
        found, loaded, ran, wrong = [e.result for e in run.of(ToolFinished)]
        assert "- mcp__fake__echo(text): Echo a text." in found.content
        assert found.content.count('<mcp-instructions from="fake">') == 1 and "Say please." in found.content
        assert "mcp-instructions" not in loaded.content and '"required": ["text"]' in loaded.content
        assert (ran.name, ran.content, ran.is_error) == ("mcp__fake__echo", "hi", False)
        assert wrong.is_error and "'text' is a required property" in wrong.content
        assert [e.call.name for e in run.of(ToolStarted)][2] == "mcp__fake__echo" and not run.of(ApprovalRequested)
        version = clients.states()[0].version
        assert version.endswith("2026-07-28" if modern else "2025-11-25")

        slow = await run_call(run, "mcp__fake__slow")
        assert slow.content == "finished"
        assert [e.progress for e in run.of(ToolOutput)][-1] == "step 3 · 3 of 3"
        picture, numbers = await run_call(run, "mcp__fake__picture"), await run_call(run, "mcp__fake__numbers")
        assert picture.content == "[1 image]" and numbers.content == '{"sum": 41}'
        assert numbers.details["structured"] == {"sum": 41}
        images = run.session.current.toolbox.images["c"]
        assert isinstance(images[0], ImagePart) and images[0].media_type == "image/png"
        flood = await run_call(run, "mcp__fake__flood")
        assert run.session.workspace.counter.count(flood.content) <= 25_000
        assert Path(flood.details["output_file"]).stat().st_size == 200_000 * len("a line of the flood\n")

        asked = asyncio.create_task(
            run.session.current.toolbox.alone(ToolCallPart("a", "mcp__fake__ask", {}), "", print)
        )
        await until(lambda: run.session.approvals)
        run.session.resolve(run.session.approvals[0].id, True)
        await until(lambda: run.session.approvals and run.session.approvals[0].is_card)
        card = run.session.approvals[0]
        assert "fake asks: Which colour?" in card.questions[0].question
        run.session.resolve(card.id, False)
        assert "decline" in (await asked).content

        died = await run_call(run, "mcp__fake__die")
        assert died.is_error and "ended during this call; it was not repeated" in died.content


async def test_six_servers_cost_few_tokens_and_git_log_is_found_in_three_steps(store: Store, tmp_path: Path) -> None:
    servers = {name: entry(listing=name) for name in LISTED}
    answers = [
        Answer(calls=(Call("search_tools", {"query": "show the commit log"}),)),
        calling("mcp__git__git_log", repo_path="."),
        *(calling("git_log", repo_path=str(n)) for n in range(48)),
        "done",
    ]
    async with session(store, tmp_path / "w", answers, servers, model=SEEING, overrides=("agent.max_steps=60",)) as run:
        clients = await ready(run)
        run.session.current.toolbox.mode = "auto"
        await run.ask("go")
        assert sum(len(s.tools) for s in clients.states()) == 67 and not any(s.error for s in clients.states())
        requests, counter = run.provider.requests, run.session.workspace.counter
        added = [t for t in requests[0].tools if t.name in ("search_tools", "load_tool", "call_tool")]
        block = requests[0].system[-1]
        assert block.text.startswith("MCP servers") and all(f"- {name}: " in block.text for name in LISTED)
        assert len(added) == 3 and counter.count(block.text) + count_tools(counter, added) <= 600
        found, ran, *_ = [e.result for e in run.of(ToolFinished)]
        assert found.content.startswith("- mcp__git__git_log(") and not ran.is_error
        assert len(requests) == 51 and all(
            (r.tools, r.system) == (requests[0].tools, requests[0].system) for r in requests
        )
        sizes = [step.usage.input_tokens for step in run.of(StepFinished)]
        begins = (b.messages[: len(a.messages)] == a.messages for a, b in pairwise(requests))
        assert sum(size for size, same in zip(sizes, begins, strict=False) if same) / sum(sizes[1:]) >= 0.9


async def test_a_late_server_is_announced_and_changes_no_prefix(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_WAIT_S", 0.05)
    servers = {"late": entry(sleep=0.5)}
    answers: list[Any] = ["early", calling("rename"), "late", "later"]
    async with session(store, tmp_path / "w", answers, servers) as run:
        await run.ask("one")
        clients = await ready(run)
        run.session.current.toolbox.mode = "auto"
        await run.ask("two")
        await until(lambda: clients.states()[0].tools[0].original_name == "say")
        gone = await run_call(run, "mcp__late__echo", text="x")
        assert "no longer offered by the MCP server late" in gone.content
        await run.ask("three")
        requests = run.provider.requests
        news = [
            [p.facts.get("mcp late", "") for m in r.messages for p in m.parts if isinstance(p, ContextPart)][-1:]
            for r in requests
        ]
        assert news[0] == [""] and "offers now: echo, slow" in news[1][0] and "offers now: say, slow" in news[-1][0]
        assert all((r.tools, r.system) == (requests[0].tools, requests[0].system) for r in requests)
        assert "mcp" not in {b.kind for b in requests[0].system}
        assert [e.state for e in run.of(McpServerChanged)][:2] == ["starting", "ready"]
