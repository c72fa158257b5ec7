"""Hooks in a session: real processes, a scripted model, what it is sent and what the user is told."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.agent.project import trust
from sakti.agent.reports import doctor, trust_view
from sakti.agent.session.session import Options, Session
from sakti.core.config import Config, HookSettings, load
from sakti.core.errors import SaktiError
from sakti.core.events import ApprovalRequested, MessageSaved, Notice, ToolFinished, ToolStarted, TurnFinished
from sakti.core.tokens import Estimator
from sakti.core.types import ContextPart, ModelInfo, Request
from sakti.providers.history import format_context
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from sakti.store.tasks import questions
from sakti.tasks import service
from tests.fakes.clock import FakeClock
from tests.fakes.session import Recorded, start
from tests.fakes.tools import ended
from tests.unit.agent.test_subagents import LOOK, is_child, report

PYTHON = sys.executable
TOLD = "cat > $(mktemp {}.XXXXXX.json)"  # a file each: hooks may run at the same time


def config(*hooks: HookSettings, mode: str = "edits", **approval: Sequence[str]) -> Config:
    made = load(overrides=("memory.model=extractive", f"approval.mode={mode}")).config
    rules = {name: tuple(given) for name, given in approval.items()}
    return replace(made, hooks=hooks, approval=replace(made.approval, **rules))


def hook(event: str, command: str, **more: Any) -> HookSettings:
    return HookSettings(event, command, **more)


def says(**answer: Any) -> str:
    """A command that prints a JSON answer."""
    return f"echo '{json.dumps(answer)}'"


def decides(decision: str, reason: str = "", **more: Any) -> str:
    inner = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason, **more}
    return says(hookSpecificOutput=inner)


def told(folder: Path, event: str) -> list[Any]:
    """What the hooks of an event were told, oldest first."""
    found = sorted(folder.glob(f"{event}.*.json"), key=lambda p: p.stat().st_mtime_ns)
    return [json.loads(p.read_text()) for p in found]


def sent(request: Request) -> str:
    """What a request holds, with the volatile facts of its messages."""
    parts = [p for m in request.messages for p in m.parts]
    texts = [format_context(p.text) if isinstance(p, ContextPart) else str(p) for p in parts]
    return "\n".join([*(b.text for b in request.system), *texts, request.tail])


def results(run: Recorded) -> list[Any]:
    return [e.result for e in run.of(ToolFinished)]


def bash(command: str) -> Answer:
    return Answer(calls=[Call("bash", {"command": command})])


async def close(run: Recorded) -> None:
    await run.session.close()


async def test_exit_2_refuses_a_call_and_both_hear_why(store: Store, tmp_path: Path) -> None:
    settings = config(hook("PreToolUse", "echo 'no touching' >&2; exit 2", match="Bash"))
    run = await start(store, tmp_path / "w", [bash("touch made"), Answer("ok")], config=settings)
    await run.ask("go")
    (result,) = results(run)
    assert not (tmp_path / "w" / "made").exists()
    assert result.is_error and "no touching" in result.content and "no touching" in result.details["denied"]
    assert '<hook event="PreToolUse" from="' in sent(run.provider.requests[-1])
    await close(run)


async def test_the_input_is_as_in_claude_code(store: Store, tmp_path: Path) -> None:
    """Its own example, `jq -r .tool_input.command`, with another program for it."""
    jq = f'{PYTHON} -c \'import json,sys; print(json.load(sys.stdin)["tool_input"]["command"])\''
    settings = config(
        hook("PreToolUse", f"{jq} >> commands.txt", match="Bash"),
        hook("PreToolUse", "cat > pre.json", match="Write"),
        hook("PostToolUse", "cat > post.json", match="Edit|Write"),
        hook("PostToolUseFailure", "cat > failed.json"),
    )
    answers = [
        bash("ls"),
        Answer(calls=[Call("write", {"path": "a.txt", "content": "x\n"})]),
        bash("cat nothing-here"),
        Answer("ok"),
    ]
    run = await start(store, tmp_path / "w", answers, config=settings)
    await run.ask("go")
    w = tmp_path / "w"
    assert (w / "commands.txt").read_text() == "ls\ncat nothing-here\n"
    told = json.loads((w / "pre.json").read_text())
    assert told["tool_name"] == "Write" and told["hook_event_name"] == "PreToolUse"
    assert told["tool_input"] == {"file_path": str(w / "a.txt"), "content": "x\n"}
    assert told["session_id"] == run.session.thread.id and told["cwd"] == str(w)
    assert told["permission_mode"] == "acceptEdits" and told["tool_use_id"]
    after = json.loads((w / "post.json").read_text())
    assert after["tool_response"]["success"] is True and after["tool_response"]["filePath"] == str(w / "a.txt")
    failed = json.loads((w / "failed.json").read_text())
    assert failed["tool_name"] == "Bash" and "nothing-here" in failed["error"] and failed["is_interrupt"] is False
    await close(run)


async def test_what_a_hook_leaves_to_be_run_later_is_set_aside(store: Store, tmp_path: Path) -> None:
    left = "echo x > AGENTS.md; git init -q sub; echo x > sub/.git/hooks/pre-commit; echo x > plain"
    run = await start(store, tmp_path / "w", [Answer("ok")], config=config(hook("Stop", left)))
    await run.ask("go")
    w = tmp_path / "w"
    assert (w / "plain").exists() and (w / "AGENTS.md.set-aside-1").exists() and not (w / "AGENTS.md").exists()
    assert not (w / "sub" / ".git" / "hooks" / "pre-commit").exists()
    told = " ".join(n.message for n in run.of(Notice))
    assert "AGENTS.md is now AGENTS.md.set-aside-1" in told and "sub/.git/hooks" in told
    await close(run)


async def test_the_transcript_can_be_read(store: Store, tmp_path: Path) -> None:
    code = "import json,sys; print(open(json.load(sys.stdin)['transcript_path']).read())"
    settings = config(hook("Stop", f'{PYTHON} -c "{code}" > transcript.txt; exit 0'))
    answers = [Answer(calls=[Call("ls", {})]), Answer("all done")]
    run = await start(store, tmp_path / "w", answers, config=settings)
    await run.ask("look around")
    lines = [json.loads(row) for row in (tmp_path / "w" / "transcript.txt").read_text().splitlines() if row]
    assert [x["type"] for x in lines] == ["user", "assistant", "user", "assistant"]
    assert lines[0]["message"]["content"] == "look around"
    assert lines[1]["message"]["content"][0]["name"] == "LS"
    assert lines[2]["message"]["content"][0]["type"] == "tool_result"
    assert lines[3]["message"]["content"] == [{"type": "text", "text": "all done"}]
    await close(run)


async def test_changed_input_is_judged_again(store: Store, tmp_path: Path) -> None:
    settings = config(
        hook("PreToolUse", decides("allow", updatedInput={"command": "touch sneaky"})), deny=["bash: touch"]
    )
    run = await start(store, tmp_path / "w", [bash("ls"), Answer("ok")], config=settings)
    await run.ask("go")
    (result,) = results(run)
    assert "denied by your rules" in result.content and not (tmp_path / "w" / "sneaky").exists()
    await close(run)


async def test_changed_input_runs_and_is_told(store: Store, tmp_path: Path) -> None:
    settings = config(hook("PreToolUse", decides("allow", updatedInput={"command": "echo other"})))
    run = await start(store, tmp_path / "w", [bash("echo this"), Answer("ok")], config=settings)
    await run.ask("go")
    (result,) = results(run)
    assert result.content.startswith("other\n") and "changed the input of this call" in result.content
    assert run.of(ToolStarted)[-1].call.arguments == {"command": "echo other"}
    await close(run)


async def test_wrong_input_of_a_hook_is_refused(store: Store, tmp_path: Path) -> None:
    settings = config(hook("PreToolUse", decides("allow", updatedInput={"nonsense": 1})))
    run = await start(store, tmp_path / "w", [bash("touch x"), Answer("ok")], config=settings)
    await run.ask("go")
    (result,) = results(run)
    assert result.is_error and "wrong arguments" in result.content and not (tmp_path / "w" / "x").exists()
    await close(run)


async def test_deny_goes_before_ask_and_allow(store: Store, tmp_path: Path) -> None:
    settings = config(
        hook("PreToolUse", decides("allow")), hook("PreToolUse", decides("deny", "never")),
        hook("PreToolUse", decides("ask", "sure?")),
    )  # fmt: skip
    run = await start(store, tmp_path / "w", [bash("touch x"), Answer("ok")], config=settings)
    await run.ask("go")
    assert "never" in results(run)[0].content and not run.of(ApprovalRequested)
    await close(run)


async def test_allow_spares_a_question_and_no_rule(store: Store, tmp_path: Path) -> None:
    settings = config(hook("PreToolUse", decides("allow")), deny=["bash: rmdir"], ask=["bash: touch asked"])
    (tmp_path / "w" / "d").mkdir(parents=True)
    calls = ["touch free", "rmdir d", "rm -rf .", "touch asked"]
    answers = [*map(bash, calls), Answer("ok")]
    run = await start(store, tmp_path / "w", answers, config=settings, interactive=False)
    await run.ask("go")
    free, denied, hard, asked = results(run)
    assert not free.is_error and (tmp_path / "w" / "free").exists()
    assert "denied by your rules" in denied.content and (tmp_path / "w" / "d").exists()
    assert "there is no terminal" in hard.content and "there is no terminal" in asked.content
    await close(run)


async def test_a_hook_asks_what_would_be_free(store: Store, tmp_path: Path) -> None:
    settings = config(hook("PreToolUse", decides("ask", "is it time?"), match="Read|LS"))
    run = await start(store, tmp_path / "w", [Answer(calls=[Call("ls", {})]), Answer("ok")], config=settings)
    await run.session.submit("go")
    while not (asked := run.session.approvals):
        await asyncio.sleep(0)
    assert "is it time?" in asked[0].reason
    run.session.resolve(asked[0].id, True)
    await run.session.wait()
    assert not results(run)[0].is_error
    await close(run)


async def test_a_hook_answers_for_the_user(store: Store, tmp_path: Path) -> None:
    def answers(**decision: Any) -> str:
        return says(hookSpecificOutput={"hookEventName": "PermissionRequest", "decision": decision})

    allow = config(hook("PermissionRequest", answers(behavior="allow")))
    run = await start(
        store,
        tmp_path / "w",
        [bash("command touch x"), bash("rm -rf ."), Answer("ok")],
        config=allow,
        interactive=False,
    )
    await run.ask("go")
    first, hard = results(run)
    assert not first.is_error and "there is no terminal" in hard.content
    await close(run)
    deny = config(hook("PermissionRequest", answers(behavior="deny", message="not today")))
    run = await start(store, tmp_path / "w", [bash("command touch y"), Answer("ok")], config=deny)
    await run.ask("go")
    assert "not today" in results(run)[0].content and not run.of(ApprovalRequested)
    await close(run)


async def test_a_hook_that_takes_too_long_is_ended_with_its_children(store: Store, tmp_path: Path) -> None:
    command = "(sleep 600 & echo $! > child; wait) & echo $$ > pid; sleep 600"
    settings = config(hook("PreToolUse", command, timeout=0.5))
    run = await start(store, tmp_path / "w", [bash("echo hi"), Answer("ok")], config=settings)
    end = await run.ask("go")
    assert end.status == "answered" and results(run)[0].content.startswith("hi")
    (told,) = [n.message for n in run.of(Notice) if n.title == "Hook"]
    assert "stopped after 0.5 s" in told
    for name in ("pid", "child"):
        assert await ended(int((tmp_path / "w" / name).read_text()))
    await close(run)


async def test_a_megabyte_of_output_is_cut(store: Store, tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write('begin ' + 'x' * 3_000_000)"
    settings = config(hook("UserPromptSubmit", f'{PYTHON} -c "{code}"'))
    run = await start(store, tmp_path / "w", [Answer("ok")], config=settings)
    await run.ask("go")
    text = sent(run.provider.requests[0])
    assert "begin xxx" in text and 9_000 < text.count("x" * 100) * 100 < 11_000
    await close(run)


async def test_a_failing_hook_is_a_notice(store: Store, tmp_path: Path) -> None:
    settings = config(
        hook("PreToolUse", "echo broken >&2; exit 1"), hook("PreToolUse", "exit 127"), hook("Stop", "kill -9 $$")
    )
    run = await start(store, tmp_path / "w", [bash("echo hi"), Answer("ok")], config=settings)
    end = await run.ask("go")
    assert end.status == "answered" and results(run)[0].content.startswith("hi")
    told = " | ".join(n.message for n in run.of(Notice) if n.title == "Hook")
    assert "exit code 1: broken" in told and "exit code 127" in told and "signal 9" in told
    await close(run)


async def test_a_stop_hook_holds_a_turn_three_times(store: Store, tmp_path: Path) -> None:
    settings = config(hook("Stop", "cat >> stops.jsonl; echo >> stops.jsonl; echo 'run the tests' >&2; exit 2"))
    answers = [Answer(f"answer {n}") for n in range(1, 7)]
    run = await start(store, tmp_path / "w", answers, config=settings)
    end = await run.ask("go")
    assert end.status == "answered" and end.text == "answer 4" and len(run.provider.requests) == 4
    stops = [json.loads(row) for row in (tmp_path / "w" / "stops.jsonl").read_text().splitlines() if row]
    assert [s["stop_hook_active"] for s in stops] == [False, True, True, True]
    assert stops[0]["last_assistant_message"] == "answer 1"
    assert "run the tests" in sent(run.provider.requests[1])
    assert any("continued this turn 3 times" in n.message for n in run.of(Notice))
    held = [e.message for e in run.of(MessageSaved) if e.message.metadata.get("hook")]
    assert len(held) == 3 and all(m.text == "" for m in held)  # nothing of it is the user's words
    await close(run)


async def test_a_prompt_can_be_blocked(store: Store, tmp_path: Path) -> None:
    settings = config(hook("UserPromptSubmit", "grep -q password && { echo 'no passwords' >&2; exit 2; } || true"))
    run = await start(store, tmp_path / "w", [Answer("ok")], config=settings)
    with pytest.raises(SaktiError, match="no passwords"):
        await run.session.submit("my password is x")
    assert not run.provider.requests
    await run.ask("hello")
    assert len(run.provider.requests) == 1
    await close(run)


async def test_what_start_and_prompt_print_is_in_the_request(store: Store, tmp_path: Path) -> None:
    settings = config(
        hook("SessionStart", "cat > start.json; echo 'The branch is main.'"),
        hook("UserPromptSubmit", says(hookSpecificOutput={"additionalContext": "It is Friday."})),
    )
    run = await start(store, tmp_path / "w", [Answer("ok"), Answer("ok")], config=settings)
    await run.ask("hello")
    first = sent(run.provider.requests[0])
    assert first.count("The branch is main.") == 1 and "It is Friday." in first
    assert '<hook event="SessionStart" from="~/config/sakti/config.toml">' in first
    assert json.loads((tmp_path / "w" / "start.json").read_text())["source"] == "startup"
    await run.ask("again")
    second = sent(run.provider.requests[1])
    assert second.count("The branch is main.") == 1 and second.count("It is Friday.") == 2
    assert second.startswith(first.split("hello")[0][:200])
    await close(run)


async def test_no_key_is_in_a_hooks_environment(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    settings = config(hook("SessionStart", "env > env.txt"), hook("SessionEnd", "cat > end.json"))
    (tmp_path / "w").mkdir()
    env = {"PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "sk-secret", "GITHUB_TOKEN": "ghp_x", "HOME": str(tmp_path)}
    clock = store.clock
    assert isinstance(clock, FakeClock)
    provider = ScriptedProvider([Answer("ok")], clock=clock, count=Estimator().count)
    model = ModelInfo("demo", "scripted", context_window=200_000)
    session = Session(
        Options(tmp_path / "w", settings, env=env),
        clock=clock, counter=Estimator(), provider=provider, model=model, store=store,
    )  # fmt: skip
    await session.start()
    await session.submit("hi")
    await session.wait()
    text = (tmp_path / "w" / "env.txt").read_text()
    assert "sk-secret" not in text and "ghp_x" not in text
    assert f"CLAUDE_PROJECT_DIR={tmp_path / 'w'}" in text and f"SAKTI_PROJECT_DIR={tmp_path / 'w'}" in text
    await session.close()
    assert json.loads((tmp_path / "w" / "end.json").read_text())["reason"] == "prompt_input_exit"


async def test_continue_false_ends_the_turn(store: Store, tmp_path: Path) -> None:
    settings = config(hook("PostToolUse", says(**{"continue": False, "stopReason": "the build is red"})))
    run = await start(store, tmp_path / "w", [bash("echo hi"), Answer("never")], config=settings)
    end = await run.ask("go")
    assert end.status == "interrupted" and end.error == "the build is red" and len(run.provider.requests) == 1
    await close(run)


async def test_what_a_hook_says_after_a_call_goes_with_its_result(store: Store, tmp_path: Path) -> None:
    settings = config(
        hook("PostToolUse", says(decision="block", reason="lint: 3 errors", systemMessage="look at the linter"))
    )
    run = await start(store, tmp_path / "w", [bash("echo hi"), Answer("ok")], config=settings)
    await run.ask("go")
    assert results(run)[0].content.startswith("hi") and "lint: 3 errors" in results(run)[0].content
    assert any("look at the linter" in n.message for n in run.of(Notice))
    await close(run)


async def test_hooks_hear_of_memory_and_tasks(store: Store, tmp_path: Path) -> None:
    settings = config(
        *(hook(e, TOLD.format(e)) for e in
          ("Observed", "TaskClosed", "PreCompact", "PostCompact", "SessionStart"))
    )  # fmt: skip
    close_task = [
        Answer(calls=[Call("task-mutate", {"action": "create", "title": "ship it"})]),
        Answer("I always use tabs here, as you prefer."),
    ]
    run = await start(store, tmp_path / "w", [*close_task, *(Answer("noted") for _ in range(6))], config=settings)
    await run.ask("I always want tabs in this project, please remember that")
    tasks = await store.read(questions.list_live, run.session.workspace.resource_id)
    actor = service.Actor(run.session.workspace.resource_id, "user:you", store.clock.now())
    await store.write(service.close, actor, tasks[0].id, "completed", "shipped in main.py")
    await run.ask("and I prefer pytest over unittest")
    await run.ask("third")
    await run.session.compact("tabs")
    await run.session.close()

    def rows(name: str) -> list[Any]:
        return told(tmp_path / "w", name)

    assert [r["task_subject"] for r in rows("TaskClosed")] == ["ship it"]
    assert rows("TaskClosed")[0]["lines"] == ["shipped in main.py"]
    assert rows("PreCompact")[0]["trigger"] == "manual" and rows("PreCompact")[0]["custom_instructions"] == "tabs"
    observed = rows("Observed")
    assert observed and observed[0]["lines"][0]["id"] and "tabs" in observed[0]["observations"]


async def test_hooks_of_a_child_name_it(store: Store, tmp_path: Path) -> None:
    settings = config(*(hook(e, TOLD.format(e)) for e in ("SubagentStart", "SubagentStop", "PreToolUse")))

    def play(request: Request) -> Answer:
        if is_child(request):
            return report() if any(m.role == "tool" for m in request.messages) else Answer(calls=(LOOK,))
        asked = any(m.role == "assistant" for m in request.messages)
        return Answer("done") if asked else Answer(calls=(Call("agent", {"mode": "explore", "goal": "look"}),))

    work = tmp_path / "w"
    work.mkdir()
    (work / "http.py").write_text("x = 1")
    run = await start(store, work, play, config=settings)
    await run.ask("delegate it")
    await close(run)
    (started,), (stopped,) = told(work, "SubagentStart"), told(work, "SubagentStop")
    assert started["agent_type"] == stopped["agent_type"] == "explore" and started["agent_id"] == stopped["agent_id"]
    assert stopped["agent_transcript_path"].endswith(f"agent-{stopped['agent_id']}.jsonl")
    calls = {row["tool_name"]: row.get("agent_id") for row in told(work, "PreToolUse")}
    assert calls == {"agent": None, "Read": started["agent_id"], "report": started["agent_id"]}


async def test_a_hook_continues_a_child_with_or_without_a_report(store: Store, tmp_path: Path) -> None:
    once = TOLD.format("SubagentStop") + "; [ -e held ] && exit 0; touch held; echo look at the tests, too >&2; exit 2"
    work = tmp_path / "w"
    for number, child in enumerate((report(), Answer("It is there."))):

        def play(request: Request, child: Answer = child) -> Answer:
            if is_child(request):
                return child
            asked = any(m.role == "assistant" for m in request.messages)
            return Answer("done") if asked else Answer(calls=(Call("agent", {"mode": "explore", "goal": "look"}),))

        work.mkdir(exist_ok=True)
        run = await start(store, work, play, config=config(hook("SubagentStop", once)))
        await run.ask("delegate it")
        requests = [r for r in run.provider.requests if is_child(r)]
        sent = [p.content for m in requests[-1].messages for p in m.tool_results]
        sent += [p.facts["hook"] for m in requests[-1].messages for p in m.parts if isinstance(p, ContextPart)
                 if "hook" in p.facts]  # fmt: skip
        assert sum("look at the tests, too" in text for text in sent) == 1 and len(requests) == (2, 4)[number]
        await close(run)
        assert [row["stop_hook_active"] for row in told(work, "SubagentStop")] == [False, True] * (number + 1)
        (work / "held").unlink()


async def test_a_hook_of_an_untrusted_project_is_never_started(store: Store, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    (workspace / ".claude").mkdir(parents=True)
    table = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {tmp_path}/ran"}]}]}}
    (workspace / ".claude" / "settings.json").write_text(json.dumps(table))
    (workspace / ".sakti").mkdir()
    (workspace / ".sakti" / "config.toml").write_text(f'[[hooks]]\nevent = "Stop"\ncommand = "touch {tmp_path}/ran2"\n')

    async def play(count: int) -> None:
        options = Options.load(workspace, interactive=False, env={"PATH": "/usr/bin:/bin"})
        clock = store.clock
        assert isinstance(clock, FakeClock)
        provider = ScriptedProvider([Answer("ok")], clock=clock, count=Estimator().count)
        session = Session(
            options, clock=clock, counter=Estimator(), provider=provider, store=store,
            model=ModelInfo("demo", "scripted", context_window=200_000),
        )  # fmt: skip
        ended: list[Any] = []
        session.subscribe(ended.append)
        await session.start()
        await session.submit(f"hi {count}")
        await session.wait()
        assert any(isinstance(e, TurnFinished) and e.status == "answered" for e in ended)
        assert (session.current.hooks is not None) is (count == 2)
        await session.close()

    await play(1)
    assert not (tmp_path / "ran").exists() and not (tmp_path / "ran2").exists()
    trust.save(trust.review(workspace))
    await play(2)
    assert (tmp_path / "ran").exists() and (tmp_path / "ran2").exists()
    for name in ("ran", "ran2"):
        (tmp_path / name).unlink()
    table["hooks"]["SessionStart"][0]["hooks"][0]["command"] += " #"
    (workspace / ".claude" / "settings.json").write_text(json.dumps(table))
    assert trust.review(workspace).state == "changed" and "touch" in trust.review(workspace).diff
    await play(3)
    assert not (tmp_path / "ran").exists() and not (tmp_path / "ran2").exists()


async def test_every_file_of_a_patch_is_told_and_its_input_stays(store: Store, tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: a\n+x\n*** Add File: secret.lock\n+y\n*** End Patch"
    answer = Answer(calls=[Call("apply_patch", {"patch": patch})])
    guard = "grep -q secret.lock && { echo 'locked' >&2; exit 2; } || true"
    run = await start(
        store, tmp_path / "w", [answer, Answer("ok")], config=config(hook("PreToolUse", guard, match="Edit"))
    )
    await run.ask("go")
    assert "locked" in results(run)[0].content and not (tmp_path / "w" / "a").exists()
    await close(run)
    changes = config(hook("PreToolUse", decides("allow", updatedInput={"file_path": "b"}), match="Edit"))
    run = await start(store, tmp_path / "w", [answer, Answer("ok")], config=changes)
    await run.ask("go")
    assert "not possible" in results(run)[0].content and not (tmp_path / "w" / "a").exists()
    await close(run)


async def test_nothing_waits_for_a_hook_in_the_background(store: Store, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (tmp_path / "home" / ".claude").mkdir()
    slow = {"type": "command", "command": "touch began; sleep 600; touch ended", "async": True}
    quick = {"type": "command", "command": "cat > seen.json", "if": "Bash(echo *)"}
    table = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [slow, quick]}]}}
    (tmp_path / "home" / ".claude" / "settings.json").write_text(json.dumps(table))
    run = await start(store, workspace, [bash("ls"), bash("echo hi"), Answer("ok")], config=config())
    assert (await run.ask("go")).status == "answered"
    assert json.loads((workspace / "seen.json").read_text())["tool_input"] == {"command": "echo hi"}
    while not (workspace / "began").exists():
        await asyncio.sleep(0.01)
    await close(run)
    assert not (workspace / "ended").exists()


async def test_hooks_hear_when_memory_replaces_messages_by_itself(store: Store, tmp_path: Path) -> None:
    numbers = ("memory.observation.message_tokens=2000", "memory.observation.buffer_tokens=500")
    settings = load(overrides=("memory.model=extractive", *numbers)).config
    names = ("Observed", "PreCompact", "PostCompact", "SessionStart")
    hooks = tuple(hook(e, f"{TOLD.format(e)}; echo told at {e}") for e in names)
    answers = [Answer("I see. " + "The build uses make and pytest here. " * 40) for _ in range(8)]
    run = await start(store, tmp_path / "w", answers, config=replace(settings, hooks=hooks))
    for n in range(8):
        await run.ask(f"I prefer tabs in module {n}. " + "It matters to me very much. " * 20)
        await run.session.current.engine.observation.join()
    await close(run)

    def rows(name: str) -> list[Any]:
        return told(tmp_path / "w", name)

    assert {r["trigger"] for r in (*rows("PreCompact"), *rows("PostCompact"))} == {"auto"}
    sources = [r["source"] for r in rows("SessionStart")]
    assert sources[0] == "startup" and sources[-1] == "compact"
    lines = [line for r in rows("Observed") for line in r["lines"]]
    assert any(line["id"] and "tabs" in line["text"] for line in lines)
    assert not any("told at" in line["text"] for line in lines)  # what hooks say is nobody's words


async def test_a_changed_script_of_a_trusted_hook_is_not_started(store: Store, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    (workspace / ".sakti").mkdir(parents=True)
    (workspace / "check.sh").write_text("touch ran")
    (workspace / ".sakti" / "config.toml").write_text('[[hooks]]\nevent = "Stop"\ncommand = "sh ./check.sh"\n')
    found = trust.review(workspace)
    assert [f.name for f in found.project.files] == [".sakti/config.toml", "check.sh"]
    assert "check.sh: a hook or an MCP server runs it" in trust_view.list_effects(found)
    assert "runs at Stop: sh ./check.sh  (.sakti/config.toml)" in trust_view.list_effects(found)
    trust.save(found)
    options = Options.load(workspace, env={"PATH": "/usr/bin:/bin"})
    run = await start(store, workspace, [Answer("ok"), Answer("ok")], config=options.config)
    assert run.session.current.hooks is None  # these options name no files of the project
    await close(run)
    clock = store.clock
    assert isinstance(clock, FakeClock)
    provider = ScriptedProvider([Answer("ok"), Answer("ok")], clock=clock, count=Estimator().count)
    model = ModelInfo("demo", "scripted", context_window=200_000)
    session = Session(options, clock=clock, counter=Estimator(), provider=provider, model=model, store=store)
    run = Recorded(session, provider)
    await session.start()
    await run.ask("one")
    assert (workspace / "ran").exists()
    (workspace / "ran").unlink()
    (workspace / "check.sh").write_text("touch ran; touch evil")
    await run.ask("two")
    assert not (workspace / "ran").exists()
    assert any("check.sh has changed since it was trusted" in n.message for n in run.of(Notice))
    assert trust.review(workspace).state == "changed"
    await close(run)


async def test_doctor_lists_hooks(tmp_path: Path, home: Path) -> None:
    workspace = tmp_path / "w"
    (workspace / ".claude").mkdir(parents=True)
    table = {"hooks": {"Stop": [{"hooks": [{"type": "http", "url": "x"}, {"type": "command", "command": "theirs"}]}]}}
    (workspace / ".claude" / "settings.json").write_text(json.dumps(table))
    (workspace / ".claude" / "settings.local.json").write_text("{")
    settings = config(hook("PreToolUse", "mine", match="Bash", write=("~/nowhere",)))

    async def lines() -> list[str]:
        found = await doctor.examine(home / "x.db", {"PATH": "/usr/bin:/bin"}, workspace, settings)
        return [line.text for line in found if line.name.startswith("hook")]

    first = await lines()
    assert any(x.startswith("✓ hook: PreToolUse Bash: mine (~/config/sakti/config.toml): active, but") for x in first)
    assert any("theirs (.claude/settings.json): not trusted. `sakti trust`" in x for x in first)
    assert any("hooks of type http do not run" in x for x in first)
    assert any(x.startswith("✗ hooks: .claude/settings.local.json is not a JSON object") for x in first)
    trust.save(trust.review(workspace))
    assert "✓ hook: Stop: theirs (.claude/settings.json): active" in await lines()
