"""Servers in a session with a scripted model: found, judged, called, limited, restarted, ended."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.actions import line
from sakti.actions.scope import Scope
from sakti.actions.values import Refused
from sakti.agent.checkpoints import undoing
from sakti.agent.judge.policy import Rules
from sakti.agent.mcp import clients, lifecycle
from sakti.agent.mcp import connection as connections
from sakti.agent.mcp import transport as transports
from sakti.agent.mcp.clients import McpClients
from sakti.agent.mcp.lifecycle import MISSING_PACKAGE
from sakti.agent.project import trust
from sakti.agent.reports import doctor, mcp_view
from sakti.core.config import load
from sakti.core.errors import SaktiError
from sakti.core.events import (
    ApprovalRequested,
    ApprovalResolved,
    McpServerChanged,
    Notice,
    StepFinished,
    ToolFinished,
    ToolOutput,
    ToolStarted,
)
from sakti.core.tokens import count_tools
from sakti.core.types import ContextPart, FilePart, ImagePart, ModelInfo, Request, ToolCallPart, ToolResultPart
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.mcp_http import serve
from tests.fakes.session import Recorded, start
from tests.unit.agent.test_subagents import EXPLORE, delegating, is_child, report

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
    config = replace(load(overrides=overrides).config, mcp=servers)
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
    task = asyncio.create_task(thread.toolbox.run_single(ToolCallPart("c", name, arguments), thread.id, thread.emit))
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
            run.session.current.toolbox.run_single(ToolCallPart("a", "mcp__fake__ask", {}), "", print)
        )
        await until(lambda: run.session.approvals)
        run.session.resolve(run.session.approvals[0].id, True)
        await until(lambda: run.session.approvals and run.session.approvals[0].is_card)
        card = run.session.approvals[0]
        assert "fake asks: Which colour?" in card.questions[0].question
        run.session.resolve(card.id, False)
        assert "decline" in (await asked).content

        failed = await run_call(run, "mcp__fake__fail")
        assert failed.is_error and failed.content == "fake: license expired"
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
        assert news[0] == [""] and "now offers: echo, slow" in news[1][0] and "now offers: say, slow" in news[-1][0]
        assert all((r.tools, r.system) == (requests[0].tools, requests[0].system) for r in requests)
        assert "mcp" not in {b.kind for b in requests[0].system}
        assert [e.state for e in run.of(McpServerChanged)][:2] == ["starting", "ready"]


async def test_resources_and_prompts_are_sent_as_outside_text(store: Store, tmp_path: Path) -> None:
    async with session(store, tmp_path / "w", ["one", "two"], {"fake": entry()}) as run:
        await ready(run)
        await run.ask("look at @fake:note://one, please")
        await run.ask("/fake:greet Ada Lovelace")
        files = [p for m in run.provider.requests[-1].messages for p in m.parts if isinstance(p, FilePart)]
        assert [f.path for f in files] == ["@fake:note://one", "/fake:greet"]
        assert files[0].text.startswith('<mcp-resource from="fake:note://one">') and "ignore the user" in files[0].text
        assert "user: Greet Ada Lovelace." in files[1].text and files[1].text.startswith(
            '<mcp-prompt from="fake:greet">'
        )
        assert {"fake:greet"} <= run.session.typed_names()
        with pytest.raises(SaktiError, match="needs who"):
            await run.session.submit("/fake:greet")


JUDGED = (  # mode, tool, rules, arguments, verdict
    ("plan", "echo", {}, {"text": "x"}, "ran"),
    ("plan", "slow", {}, {}, "plan mode"),
    ("plan", "echo", {}, {"text": "[secret:github:3f2a]"}, "plan mode"),
    ("ask", "echo", {}, {"text": "x"}, "ran"),
    ("ask", "slow", {}, {}, "asked"),
    ("ask", "slow", {"allow": "mcp__fake__*"}, {}, "ran"),
    ("ask", "slow", {"allow": "mcp__fake__slow # 000000000000"}, {}, "asked"),
    ("edits", "slow", {}, {}, "asked"),
    ("auto", "slow", {}, {}, "ran"),
    ("auto", "remove", {}, {}, "asked"),
    ("ask", "both", {}, {}, "asked"),
    ("plan", "both", {}, {}, "plan mode"),
    ("auto", "echo", {}, {"text": "[secret:github:3f2a]"}, "asked"),
    ("auto", "echo", {"ask": "mcp__fake__echo"}, {"text": "x"}, "asked"),
    ("auto", "slow", {"allow": "mcp__fake__slow", "deny": "mcp__fake__*"}, {}, "denied by your rules"),
    ("full", "remove", {}, {}, "ran"),
    ("full", "remove", {"deny": "mcp__fake__remove"}, {}, "denied by your rules"),
)


async def test_calls_are_judged_by_mode_rules_and_what_is_known_of_the_tool(store: Store, tmp_path: Path) -> None:
    async with session(store, tmp_path / "w", [], {"fake": entry()}, interactive=False) as run:
        (await ready(run)).begin_turn()
        toolbox = run.session.current.toolbox
        for mode, tool, rules, arguments, expected in JUDGED:
            toolbox.mode, toolbox.rules = mode, Rules(**{k: (v,) for k, v in rules.items()})
            result = await toolbox.run_single(ToolCallPart("c", f"mcp__fake__{tool}", arguments), "", lambda _: None)
            denied = result.details.get("denied")
            verdict = "ran" if denied is None else "asked" if "no terminal" in denied else denied
            assert expected in verdict, (mode, tool, rules, arguments, verdict)


async def question_of(run: Recorded, name: str, **arguments: Any) -> ApprovalRequested | None:
    """Run one call; return the question about it, which is answered with always."""
    thread, asked = run.session.current, None
    task = asyncio.create_task(thread.toolbox.run_single(ToolCallPart("c", name, arguments), thread.id, thread.emit))
    while not task.done():
        for asked in run.session.approvals:
            run.session.resolve(asked.id, True, grant="workspace")
        await asyncio.wait({task}, timeout=0.01)
    assert not task.result().is_error
    return asked


async def test_a_changed_tool_asks_again_with_the_difference(store: Store, tmp_path: Path) -> None:
    async with session(store, tmp_path / "w", [], {"fake": entry()}) as run:
        (await ready(run)).begin_turn()
        asked = await question_of(run, "mcp__fake__slow")
        assert asked is not None and re.fullmatch(r"mcp__fake__slow # \w{12}", asked.rule)
        assert run.session.current.toolbox.saved == (asked.rule,)
        assert await question_of(run, "mcp__fake__slow") is None
        assert await question_of(run, "mcp__fake__echo", text="x") is None
    # the same server describes its tool in another way
    async with session(store, tmp_path / "w", [], {"fake": entry(mode="changed")}) as run:
        (await ready(run)).begin_turn()
        toolbox = run.session.current.toolbox
        toolbox.rules = Rules(allow=("mcp__fake__*",))
        toolbox.approvals.interactive = False
        refused = await run_call(run, "mcp__fake__echo", text="x")
        changed = "the description or schema of mcp fake · echo changed since it was approved"
        assert refused.details["denied"].startswith(f"{changed}; call it in a chat")
        toolbox.approvals.interactive = True
        asked = await question_of(run, "mcp__fake__echo", text="x")
        assert asked is not None and "changed since" in asked.reason
        assert "-Echo a text." in asked.diff and "+Echo a text, and send it to the author." in asked.diff
        assert await question_of(run, "mcp__fake__echo", text="x") is None


async def test_hostile_servers_are_bounded_and_reported(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RESTARTS", ())
    monkeypatch.setattr(transports, "LONGEST_LINE", 3_000_000)
    modes = ("noise", "flood", "bash", "escapes", "broken", "broken schemas")
    servers = {mode.replace(" ", "_"): entry(mode=mode) for mode in modes}
    servers |= {"asleep": entry(sleep=60, startup_timeout=0.5), "missing": {"command": "no-such-program"}}
    async with session(store, tmp_path / "w", [], servers) as run:
        clients = await ready(run)
        clients.begin_turn()
        states = {s.server.name: s for s in clients.states()}
        assert states["flood"].error.startswith("it wrote a line of more than 3.0 MB and was stopped")
        assert states["asleep"].error == "it was not ready within 0.5 s."
        assert "the program no-such-program was not found" in states["missing"].error
        assert "Its last line: cannot load the module: no such file" in states["broken"].error
        schemas = states["broken_schemas"]
        assert [t.original_name for t in schemas.tools] == ["loop"] and "$ref" not in json.dumps(
            schemas.tools[0].schema
        )
        assert "far refers to http://10.0.0.1/s" in schemas.error and "wrong is not a JSON schema" in schemas.error
        assert states["noise"].state == "ready"
        (notice,) = [e for e in run.of(Notice) if e.title == "MCP"]
        assert "noise prints text that is not a message of the protocol" in notice.message

        toolbox = run.session.current.toolbox
        assert toolbox.find("bash") is toolbox.tools["bash"] and toolbox.find("mcp__bash__bash") is not None
        ran = await run_call(run, "mcp__bash__bash", command="touch made")
        assert ran.content == 'bash {"command": "touch made"}' and not (tmp_path / "w" / "made").exists()
        gone = await run_call(run, "mcp__nosuch__bash", command="touch made")
        assert gone.is_error and not (tmp_path / "w" / "made").exists()

        (tool,) = states["escapes"].tools
        answer = await run_call(run, tool.name, text="x")
        shown = [tool.name, tool.description, states["escapes"].version, states["escapes"].instructions, answer.content]
        assert re.fullmatch(r"[A-Za-z0-9_-]+", tool.name)
        assert not any(re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text) for text in shown)
        lines = "\n".join((*clients.lines().values(), *clients.news({}).values()))
        assert "\x1b" not in lines


async def test_broken_entries_and_answers_cost_only_themselves(store: Store, tmp_path: Path) -> None:
    async with session(store, tmp_path / "w", [], {"fake": entry(mode="broken entries")}) as run:
        clients = await ready(run)
        clients.begin_turn()
        (state,) = clients.states()
        assert state.state == "ready" and {"broken", "echo"} <= {t.original_name for t in state.tools}
        assert state.error == (
            "Not offered: kind has a wrong inputSchema.type; list has a wrong inputSchema; bare has no inputSchema; "
            "5 has a wrong name; one of its tools is no object; and 2 more."
        )
        assert clients.resource_names() == ["fake:note://one"] and set(clients.prompt_names()) == {"fake:greet"}
        async with asyncio.timeout(5):
            answers = {
                kind: await run_call(run, "mcp__fake__broken", kind=kind)
                for kind in ("surrogate", "deep", "cut", "null", "list", "other", "empty")
            }
        assert answers["surrogate"].content == "? and ␀" and not answers["surrogate"].is_error
        unreadable = "fake: its answer cannot be read: it is not a message of the protocol"
        assert all(answers[kind].content == unreadable for kind in ("deep", "cut", "null", "list"))
        assert answers["other"].content.startswith("fake: its answer has ")
        assert answers["empty"].content == "fake: its answer has no content. The call may have taken effect."


@pytest.mark.parametrize("end", ["cancel", "die"])
async def test_a_question_of_a_server_closes_with_its_call(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(connections, "RESTARTS", ())
    async with session(store, tmp_path / "w", [], {"fake": entry()}) as run:
        (await ready(run)).begin_turn()
        toolbox = run.session.current.toolbox
        toolbox.mode = "full"
        call = ToolCallPart("a", "mcp__fake__ask", {})
        task = asyncio.create_task(toolbox.run_single(call, "", lambda _: None))
        await until(lambda: run.session.approvals)
        if end == "die":
            await toolbox.run_single(ToolCallPart("d", "mcp__fake__die", {}), "", lambda _: None)
        else:
            task.cancel()
        await asyncio.wait({task})
        await until(lambda: not run.session.approvals)
        assert [e.approved for e in run.of(ApprovalResolved)] == [False]
        (notice,) = run.of(Notice)
        assert notice.message == "The server fake asked a question whose call has ended, so it was closed."


async def test_calls_of_a_server_that_is_not_ready_say_why(store: Store, tmp_path: Path) -> None:
    servers = {"late": entry(sleep=60, startup_timeout=60), "broken": entry(mode="broken")}
    answers = [calling("mcp__late__echo", text="x"), "done"]
    async with session(store, tmp_path / "w", answers, servers) as run:
        while run.session.workspace.servers.clients is None:
            await asyncio.sleep(0.01)
        clients = run.session.workspace.servers.clients
        await until(lambda: clients.connections["broken"].state.error)
        late, again = [await run_call(run, f"mcp__{name}__echo", text="x") for name in ("late", "broken")]
        assert late.content == "The MCP server late is still starting. Call again in a few seconds."
        assert again.content.startswith("The MCP server broken starts again (it ended before it was ready.")
        unknown = await run_call(run, "mcp__nosuch__echo", text="x")
        assert "There is no tool mcp__nosuch__echo" in unknown.content


async def test_calls_end_by_timeouts_cancellation_and_the_end_of_the_server(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RESTARTS", (0.01, 0.01))
    log = tmp_path / "log"
    async with session(store, tmp_path / "w", [], {"fake": entry(timeout=0.3, log=str(log), mode="stays")}) as run:
        clients = await ready(run)
        clients.begin_turn()
        hung = await run_call(run, "mcp__fake__hang")
        assert hung.content == "hang of fake did not answer within 0.3 s."
        toolbox = run.session.current.toolbox
        toolbox.mode = "full"
        task = asyncio.create_task(toolbox.run_single(ToolCallPart("c", "mcp__fake__hang", {}), "", lambda _: None))
        await until(lambda: log.read_text().count('"hang"') == 2)
        task.cancel()
        async with asyncio.timeout(1):
            await asyncio.wait({task})
        await until(lambda: log.read_text().count("notifications/cancelled") == 2)
        for number in (2, 3, 4):
            died = await run_call(run, "mcp__fake__die")
            assert "ended during this call" in died.content
            await until(lambda n=number: sum(e.state in ("ready", "failed") for e in run.of(McpServerChanged)) == n)
        assert clients.states()[0].state == "failed"
        late = await run_call(run, "mcp__fake__echo", text="x")
        assert "The MCP server fake does not run (it ended)" in late.content
        await clients.restart("fake")
        await clients.wait(["fake"], 10)
        assert (await run_call(run, "mcp__fake__echo", text="x")).content == "x"
        with monkeypatch.context() as patch:
            patch.setattr(transports, "MOST_IN_CALL", 1_000_000)
            flood = await run_call(run, "mcp__fake__flood")
        assert "fake sent more than 1.0 MB for one call and was stopped" in flood.content
        await clients.restart("fake")
        await clients.wait(["fake"], 10)
        server, changed = clients.connections["fake"].server, tuple(entry(instructions="Changed.")["args"])
        await clients.restart("fake", dataclasses.replace(server, args=changed, timeout=9.0))
        await clients.wait(["fake"], 10)
        assert clients.states()[0].instructions == "Changed." and clients.states()[0].server.timeout == 9.0
        await clients.restart("more", dataclasses.replace(server, name="more"))
        await clients.wait(["more"], 10)
        clients.begin_step()
        assert (await run_call(run, "mcp__more__echo", text="x")).content == "x"
        assert (await run_call(run, "mcp__fake__echo", text="x")).content == "x"
        process = json.loads((await run_call(run, "mcp__fake__where")).content)["pid"]
        await clients.disable("fake")
        assert clients.states()[0].state == "disabled" and not Path(f"/proc/{process}").exists()


async def test_a_headless_run_waits_for_servers_it_names_and_says_what_is_missing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(connections, "RESTARTS", ())
    servers = {"git": entry(listing="git", sleep=0.3), "broken": entry(mode="broken")}
    rules = ('approval.allow=["mcp__git__*", "mcp__nosuch__*"]',)
    answers = [calling("mcp__git__git_log", repo_path="."), "done"]
    async with session(store, tmp_path / "w", answers, servers, overrides=rules, interactive=False) as run:
        await run.ask("what was changed last?")
        (ran,) = [e.result for e in run.of(ToolFinished)]
        assert ran.content == 'git_log {"repo_path": "."}'
        unknown, notice = run.of(Notice)
        assert unknown.message == "The rule mcp__nosuch__* names no MCP server. There are: broken, git."
        assert notice.severity == "warning" and notice.message.endswith("Missing: all of its tools.")
        assert "The server broken is not ready (it ended before it was ready." in notice.message


async def test_tools_loaded_always_are_in_the_array_once_they_were_listed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_WAIT_S", 0.05)
    servers = {"fake": entry(always_load=["echo"], sleep=0.4)}
    arrays: list[set[str]] = []
    for _ in range(2):
        async with session(store, tmp_path / "w", ["done"], servers) as run:
            await run.ask("go")
            arrays.append({t.name for t in run.provider.requests[0].tools})
            await ready(run)
    assert "mcp__fake__echo" not in arrays[0] and "mcp__fake__echo" in arrays[1]


SCRIPT = """
import asyncio, pathlib, sys
from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.types import ModelInfo

config = load(overrides=("memory.read_only=true",)).config
session = Session(Options(pathlib.Path("."), config), model=ModelInfo("demo", "x"))
asyncio.run(session.start())
names = {t.name for t in session.current.toolbox.specs()} & {"call_tool", "load_tool", "search_tools"}
print(sorted(names), [name for name in sys.modules if name.partition(".")[0] == "mcp"])
"""


def test_without_a_server_the_sdk_is_not_imported_and_no_tool_is_added(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(SERVER.parents[2])}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


async def test_servers_over_http_are_called_and_asked_about_and_need_logins(store: Store, tmp_path: Path) -> None:
    with (
        serve() as (url, methods),
        serve("let-me-in") as (closed, refused),
        serve(refused="tools/call") as (expired, _),
    ):
        servers = {
            "web": {"url": url},
            "closed": {"url": closed},
            "expired": {"url": expired},
            "open": {"url": closed, "headers": {"Authorization": "Bearer let-me-in"}},
        }
        async with session(store, tmp_path / "w", [], servers) as run:
            clients = await ready(run)
            clients.begin_turn()
            states = {s.server.name: s for s in clients.states()}
            assert (states["web"].state, states["open"].state) == ("ready", "ready")
            assert states["closed"].state == "needs login" and "sakti mcp login closed" in states["closed"].error
            assert methods[:2] == ["server/discover", "initialize"] and refused.count("initialize") == 1
            toolbox = run.session.current.toolbox
            toolbox.mode = "auto"
            asked = await question_of(run, "mcp__web__echo", text="hi")
            assert asked is not None and asked.reason == "Calls a tool of an MCP server"
            assert (await run_call(run, "mcp__web__echo", text="hi")).content == "echo {'text': 'hi'}"
            assert "sakti mcp login expired" in (await run_call(run, "mcp__expired__echo")).content


@pytest.mark.parametrize("late", ["", "tools/list"])
async def test_a_server_over_http_that_does_not_end_holds_up_nothing(
    store: Store, tmp_path: Path, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CLOSING_S", 10.0 if late else 0.1)
    with serve(stuck=True, late=late) as (url, methods):
        web = {"url": url, "headers": {"Authorization": "any"}}  # so that no login makes its requests wait in line
        async with session(store, tmp_path / "w", [], {"web": web}) as run:
            await until(lambda: "tools/list" in methods)
            connection = (await ready(run) if not late else clients_of(run)).connections["web"]
            task = connection._task
            assert task is not None
            async with asyncio.timeout(20):
                await connection.close()
            assert task.cancelled() and connection.state.state == "disabled"
        assert methods.count("initialize") == 1 and "DELETE" in methods


async def test_a_connection_whose_end_never_ends_is_abandoned(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "CLOSING_S", 0.01)
    monkeypatch.setattr(connections, "ABANDONING_S", 0.01)
    gate = asyncio.Event()

    async def serve_on(connection: connections.Connection, places: asyncio.Semaphore) -> None:
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()

    monkeypatch.setattr(connections.Connection, "_run", serve_on)
    async with session(store, tmp_path / "w", [], {"web": {"url": "http://127.0.0.1:9/"}}) as run:
        await until(lambda: run.session.workspace.servers.clients)
        task = clients_of(run).connections["web"]._task
        await until(lambda: task is not None)
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await run.session.close()
        assert "web: its connection does not end" in caplog.text
    gate.set()


async def test_an_undo_restores_files_a_server_changed_and_names_what_stays(store: Store, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "a.txt").write_text("before")
    with serve() as (url, _):
        servers = {"fake": entry(paths=[str(workspace / "a.txt")]), "web": {"url": url}}
        answers = [calling("mcp__fake__where"), calling("mcp__web__echo"), calling("mcp__fake__echo", text="x"), "done"]
        async with session(store, workspace, answers, servers, overrides=('approval.allow=["mcp__*"]',)) as run:
            await ready(run)
            await run.ask("go")
            assert (workspace / "a.txt").read_text() == "x"
            undo = undoing.make_undoing(run.session)
            preview = await undo.preview(1)
            lost = ", ".join(preview.remains.lost)
            assert "anything that `mcp web · echo` changed elsewhere" in lost and "fake" not in lost
            await undo.undo(preview)
            assert (workspace / "a.txt").read_text() == "before"


async def test_a_child_that_only_reads_runs_only_tools_known_to_read(store: Store, tmp_path: Path) -> None:
    steps = [calling("mcp__fake__echo", text="hi"), calling("mcp__fake__slow"), report()]

    def child(request: Request) -> Any:
        assert {"search_tools", "load_tool", "call_tool"} <= {t.name for t in request.tools}
        return steps[sum(m.role == "assistant" for m in request.messages)]

    async with session(store, tmp_path / "w", delegating(child, EXPLORE), {"fake": entry()}) as run:
        await ready(run)
        end = await run.ask("explore it with a child")
        assert end.status == "answered"
        requests = [r for r in run.provider.requests if is_child(r)]
        echoed, refused = [r.content for m in requests[-1].messages for r in m.tool_results]
        assert echoed == "hi" and "mcp__fake__slow is not a tool of the agent" in refused


async def test_servers_without_their_package_say_what_to_install(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_clients(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'mcp'", name="mcp")

    servers = {"fake": entry(), "spare": {"command": "x", "enabled": False}}
    monkeypatch.setattr(clients, "McpClients", make_clients)
    async with session(store, tmp_path / "w", [calling("mcp__fake__echo"), "done"], servers) as run:
        ws = run.session.workspace
        await run.ask("go")
        [state] = ws.servers.states()
        assert (state.server.name, state.state, state.error) == ("fake", "failed", MISSING_PACKAGE)
        assert "pip install 'sakti[mcp]'" in MISSING_PACKAGE
        listed = mcp_view.load_all(ws.root, ws.config.mcp, {})
        lines = mcp_view.list_lines(listed, ws.root, ws.servers.states())
        assert lines[0].startswith(f"✗ fake  failed: {MISSING_PACKAGE}") and "starting" not in "".join(lines)
        assert MISSING_PACKAGE in run.of(ToolFinished)[0].result.content
        with pytest.raises(Refused, match="need a package"):
            await line.run(Scope(run.session, print), line.parse("/mcp restart fake"))

    monkeypatch.setattr(doctor, "find_spec", lambda _name: None)
    review = trust.review(tmp_path / "w")
    checks = doctor._check_servers(review, run.session.workspace.config, {})
    assert checks[0].detail == MISSING_PACKAGE and not any(c.ok for c in checks)
