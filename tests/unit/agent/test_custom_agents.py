"""Custom agents: files of claude-code load unchanged, and what is not used is named."""

from __future__ import annotations

from pathlib import Path

from sakti.agent.judge.workspace_view import RemoteFacts
from sakti.agent.subagents import files
from sakti.agent.subagents.thread import ChildThread
from sakti.agent.tools import background
from sakti.agent.tools.base import Tool
from sakti.agent.tools.read import read
from sakti.core.types import ContextPart, Request
from sakti.providers.scripted import Answer, Call, Played
from sakti.store.database import Store
from tests.fakes.session import start
from tests.unit.agent.test_subagents import QUOTE, TRUE, is_child, report, results

# name: front matter, then the tools that the agent gets of sakti's, and what is noted
AGENTS: dict[str, tuple[str, set[str], str]] = {
    "code-reviewer": ("tools: Read, Grep, Glob, Bash", {"read", "grep", "glob", "bash"}, ""),
    "reader": ("tools: [Read, LS]\nmodel: sonnet\ncolor: blue", {"read", "ls"}, "color is not used"),
    "committer": ('tools: "Bash(git:*), Read"', {"bash", "read"}, ""),
    "editor": ("tools: Edit, MultiEdit, Write\npermissionMode: acceptEdits", {"edit", "write", "apply_patch"}, ""),
    "planner": ("permissionMode: plan\nmodel: opus", {"read", "write", "bash", "edit"}, ""),
    "server": ("mcpServers: [db]\ntools: mcp__db__query, Read", {"read"}, "mcpServers is not used"),
    "web": ("tools: WebFetch(domain:docs.example.org), WebSearch", {"webfetch", "websearch"}, ""),
    "todo": ("tools: TodoWrite, NotebookEdit", {"task-mutate"}, "the tool NotebookEdit is not mapped"),
    "nester": ("tools: Task, Read", {"read"}, ""),
    "careful": ("disallowedTools: Write, Edit, Bash", {"read", "grep"}, ""),
    "short": ("maxTurns: 3\neffort: low\nbackground: true", {"read"}, ""),
    "odd": ("maxTurns: many\neffort: extreme", {"read"}, "maxTurns many"),
    "small": ("model: haiku", {"read"}, ""),
    "other": ("model: gpt-9", {"read"}, "the model gpt-9 is not mapped"),
    "named": ("model: openai/gpt-5", {"read"}, ""),
    "hooked": ("hooks:\n  Stop: []\nmemory: project\nisolation: worktree", {"read"}, "hooks is not used"),
    "unknown": ("flavour: vanilla", {"read"}, "the field flavour is unknown"),
    "finder": ("mode: explore", {"read", "grep", "bash"}, ""),
    "skilled": ("skills: [review, deploy]", {"read"}, ""),
    "bare": ("", {"read", "write"}, ""),
}


def write(root: Path, name: str, front: str) -> None:
    path = root / ".claude/agents" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: Use it for {name} work.\n{front}\n---\nYou are {name}.\n")


def test_twenty_files_of_claude_code_load_unchanged(tmp_path: Path) -> None:
    for name, (front, _, _) in AGENTS.items():
        write(tmp_path, name, front)
    loaded = files.load(tmp_path, project=True)
    assert [a.name for a in loaded.agents] == sorted(AGENTS)
    every = {"read", "write", "edit", "apply_patch", "ls", "glob", "grep", "bash", "task-mutate", "agent", "ask_user"}
    every |= {"webfetch", "websearch"}
    for agent in loaded.agents:
        _, tools, note = AGENTS[agent.name]
        offered = agent.select_tools(every)
        assert tools <= offered and "agent" not in offered and "ask_user" not in offered, agent.name
        if "tools:" in AGENTS[agent.name][0]:
            assert offered == tools, agent.name
        mine = [n for n in loaded.notes if f"/{agent.name}.md" in n]
        assert (note in mine[0]) if note else not mine, (agent.name, mine)
    by_name = {a.name: a for a in loaded.agents}
    assert by_name["web"].rules == {"webfetch": ("reach: docs.example.org",)}
    assert by_name["committer"].rules == {"bash": ("bash: git",)}
    assert by_name["finder"].is_read_only and by_name["planner"].is_read_only and by_name["editor"].ceiling == "edits"
    assert "write" not in by_name["careful"].select_tools(every) and by_name["small"].model == "haiku"
    assert (
        by_name["short"].max_steps == 3
        and by_name["short"].background
        and "review, deploy" in by_name["skilled"].prompt
    )
    assert files.load(tmp_path, project=False).agents == ()


def remote(*, reads: bool) -> Tool:
    facts = RemoteFacts(reads, False, False, "", str, lambda _by_user: None)
    return Tool("", "", {}, background.make_wait(bool).function, "remote", remote=facts)


async def test_tools_of_servers_are_those_of_the_file_and_never_more_than_the_parents(
    store: Store, tmp_path: Path
) -> None:
    for name, front in (
        ("server", "tools: mcp__my.db, Read"),
        ("one", "tools: mcp__my_db__query\nmode: explore"),
        ("without", "disallowedTools: mcp__web, mcp__my_db__drop"),
        ("none", "tools: Read"),
        ("all", "tools: mcp__*"),
    ):
        write(tmp_path, name, front)
    spec = files.load(tmp_path, project=True).get
    tools = {"mcp__my_db__query": True, "mcp__my_db__drop": False, "mcp__web__open": False}
    query, drop, _ = tools
    run = await start(store, tmp_path / "w", [])
    for parent, name, named, expected in (
        ("default", "server", None, {query, drop}),
        ("default", "one", None, {query}),
        ("default", "without", None, {query}),
        ("default", "none", None, set()),
        ("default", "all", None, set(tools)),
        ("default", "all", {"mcp__my_db__*": ()}, {query, drop}),
        ("explore", "all", None, {query}),
    ):
        run.session.current._mode = parent
        child = ChildThread(run.session.current, spec(name), "", named, print, lambda: read)
        assert {n for n, reads in tools.items() if child._may_call(n, remote(reads=reads))} == expected, (parent, name)
    await run.session.close()


async def test_only_agents_whose_tools_need_approvals_are_refused_in_the_background(
    store: Store, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    write(home, "reader", "tools: Read, Grep")
    write(home, "committer", 'tools: "Bash(git:*), Read"')
    write(home, "linked", "tools: Read, mcp__db")
    tasks = (
        ("reader", None),
        ("committer", None),
        ("committer", ["read"]),
        ("linked", None),
        ("default", None),
        ("default", ["Read", "Grep"]),
    )
    calls = tuple(
        Call("agent", {"mode": mode, "goal": f"goal {n}", "background": True, **({"tools": tools} if tools else {})})
        for n, (mode, tools) in enumerate(tasks)
    )

    def play(request: Request) -> Played:
        if is_child(request):
            return report(TRUE)
        return "done" if any(m.role == "assistant" for m in request.messages) else Answer(calls=calls)

    run = await start(store, tmp_path / "w", play, interactive=False)
    await run.ask("use agents")
    results = [r.content for m in run.session.current.engine.state.window.messages for r in m.tool_results]
    assert ["works in the background" in text for text in results] == [True, False, True, False, False, True], results
    assert "committer cannot work in the background: calls of bash may need approvals" in results[1]
    assert "calls of mcp__db__* may" in results[3] and "write" in results[4]
    await run.session.close()


async def test_custom_agent_is_called_by_name_and_keeps_to_its_tools(store: Store, tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home, "committer", 'tools: "Bash(git:*), Read"')

    def play(request: Request) -> Played:
        if is_child(request):
            calls = (Call("bash", {"command": "touch x"}), Call("read", {"path": "http.py"}))
            return report(TRUE) if any(m.role == "tool" for m in request.messages) else Answer(calls=calls)
        asked = any(m.role == "assistant" for m in request.messages)
        return "done" if asked else Answer(calls=(Call("agent", {"mode": "committer", "goal": "commit it"}),))

    work = tmp_path / "w"
    work.mkdir()
    (work / "http.py").write_text(f"\n\n\n\n{QUOTE}\n")
    run = await start(store, work, play, interactive=False)
    await run.ask("@agent-committer commit this")
    first = run.provider.requests[0]
    facts = [f for m in first.messages for p in m.parts if isinstance(p, ContextPart) for f in p.facts.values()]
    assert any("custom agent committer" in f for f in facts)
    assert "Use it for committer work." in next(t.description for t in first.tools if t.name == "agent")
    children = [r for r in run.provider.requests if is_child(r)]
    assert {t.name for t in children[0].tools} == {"bash", "read", "report", "wait"}
    assert "You are committer." in children[0].system[-1].text
    refused, allowed = [r for m in children[1].messages for r in m.tool_results]
    assert refused.is_error and "committer may not" in refused.content and not allowed.is_error
    assert "[verified]" in results(run)[0]
    await run.session.close()
