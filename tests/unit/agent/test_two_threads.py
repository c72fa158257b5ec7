"""Two open threads of one workspace in one process, each with a turn that uses tools at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sakti.agent.open_thread import OpenThread
from sakti.agent.options import Options
from sakti.agent.session.turns import Turns
from sakti.agent.workspace import Workspace
from sakti.core.config import load
from sakti.core.events import ApprovalAnswer as Verdict
from sakti.core.events import (
    ApprovalRequested,
    Event,
    MessageSaved,
    StepFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    get_thread_id,
)
from sakti.core.tokens import Estimator
from sakti.core.types import ModelInfo, Request, Usage
from sakti.providers.scripted import Answer, Call, Played, ScriptedProvider
from sakti.store.database import Store
from sakti.store.threads import messages as stored_messages
from sakti.store.threads import runs

SPENT = {"left": Usage(input_tokens=100, output_tokens=10), "right": Usage(input_tokens=700, output_tokens=70)}


def answer(request: Request) -> Played:
    """Go to the folder of the thread's name and make the same file there twice, then say where that was."""
    name = next(n for n in SPENT if n in request.messages[0].text)
    step = sum(m.role == "assistant" for m in request.messages)
    commands = (f"cd {name}", f"touch {name}.txt", f"touch {name}.txt", "pwd")
    if step == len(commands):
        return Answer(f"done in {name}", usage=SPENT[name])
    return Answer("", calls=(Call("bash", {"command": commands[step]}),), usage=SPENT[name])


async def opened(store: Store, root: Path) -> Workspace:
    for name in SPENT:
        (root / name).mkdir(parents=True)
    workspace = Workspace(
        Options(root, load(overrides=("memory.model=extractive",)).config, env={"PATH": "/usr/bin:/bin"}),
        clock=store.clock,
        counter=Estimator(),
        store=store,
    )
    workspace.models.provider = ScriptedProvider(answer)
    workspace.models.info = ModelInfo("demo", "scripted", context_window=200_000)
    await workspace.open()
    await workspace.prepare()
    return workspace


async def begin(workspace: Workspace) -> OpenThread:
    thread = OpenThread(workspace)
    await thread.open_new()
    return thread


def answer_both(left: OpenThread, right: OpenThread) -> Callable[[Event], None]:
    """Return a listener that answers once both threads ask: for the thread on the left, once on the right."""
    met: list[Event] = []

    def listen(event: Event) -> None:
        if not isinstance(event, ApprovalRequested):
            return
        asking = {thread: q for thread in (left, right) for q in thread.toolbox.approvals.pending}
        if len(asking) == 2 or met:
            met.append(event)
            for thread, question in asking.items():
                grant = "thread" if thread is left else "once"
                thread.toolbox.approvals.resolve(question.id, Verdict(True, grant))

    return listen


async def test_two_turns_at_once_share_nothing_but_the_workspace(store: Store, tmp_path: Path) -> None:
    workspace = await opened(store, tmp_path / "w")
    left, right = await begin(workspace), await begin(workspace)
    events: list[Event] = []
    workspace.subscribe(events.append)
    workspace.subscribe(answer_both(left, right))
    turns = {"left": (left, Turns(left)), "right": (right, Turns(right))}
    await asyncio.gather(*(runner.submit(f"work in {name}") for name, (_, runner) in turns.items()))
    await asyncio.gather(*(runner.wait() for _, runner in turns.values()))
    for name, (thread, runner) in turns.items():
        rows = await store.read(stored_messages.list_after, thread.id, -1)
        saved = [e.message for e in events if isinstance(e, MessageSaved) and e.message.thread_id == thread.id]
        assert [m.id for m in saved] == [m.id for m in rows]
        assert [m.role for m in rows] == ["user", *("assistant", "tool") * 4, "assistant"]
        assert rows[-1].text == f"done in {name}"
        here = tmp_path / "w" / name
        assert rows[-2].tool_results[0].content == str(here) and thread.toolbox.state.cwd == here
        assert [p.name for p in here.iterdir()] == [f"{name}.txt"]
        assert thread.usage == sum([SPENT[name]] * 4, SPENT[name])
        assert await store.read(runs.load_total_usage, thread.id, "actor") == thread.usage
        of_thread = [e for e in events if get_thread_id(e) == thread.id]
        assert "".join(e.text for e in of_thread if isinstance(e, TextDelta)) == f"done in {name}"
        called = [e.call.arguments for e in of_thread if isinstance(e, ToolStarted)]
        assert called == [p.arguments for m in rows for p in m.tool_calls]
        results = [e.result for e in of_thread if isinstance(e, ToolFinished)]
        assert [r.call_id for r in results] == [r.call_id for m in rows for r in m.tool_results]
        assert sum([e.usage for e in of_thread if isinstance(e, StepFinished)], Usage()) == thread.usage
        (end,) = [e for e in of_thread if isinstance(e, TurnFinished)]
        assert (end.status, end.text, end.usage) == ("answered", f"done in {name}", thread.usage)
        assert thread.status is not None and thread.status.thread_id == thread.id
        await runner.close()
        await thread.close()
    assert left.granted_rules == ("bash: touch left.txt",) and right.granted_rules == ()
    asked = {
        t.id: [e.target for e in events if isinstance(e, ApprovalRequested) and e.thread_id == t.id]
        for t in (left, right)
    }
    assert asked == {left.id: ["touch left.txt"], right.id: ["touch right.txt"] * 2}
    assert {get_thread_id(e) for e in events} == {left.id, right.id}
    await workspace.close()
