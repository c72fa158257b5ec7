"""How a turn ended without an answer is stored with its last message: told again, never to a model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sakti.core.events import ToolFinished, ToolOutput
from sakti.core.types import Message, ToolCallPart
from sakti.plain.words import describe_result
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.threads import messages
from sakti.tui.transcript.tool import ToolBlock
from tests.fakes.session import Recorded, start
from tests.fakes.tools import ended as has_ended

SAME = Answer("", calls=(Call("ls", {}),))


async def stored(run: Recorded) -> list[Message]:
    assert run.session.thread is not None
    return await run.session.workspace.store.read(messages.list_after, run.session.thread.id, -1)


@pytest.mark.parametrize(
    ("answers", "status", "role", "said"),
    [
        ([Answer(error="auth", message="No such key.")], "error", "user", "No such key."),
        ([SAME] * 5, "repetition", "tool", "The same call was repeated 5 times. Tell it what to try instead."),
        ([Answer("half", cut=True)] * 20, "error", "assistant", "The stream was cut."),
    ],
)
async def test_it_is_there_when_the_thread_is_opened_again(
    store: Store, tmp_path: Path, answers: list[Answer], status: str, role: str, said: str
) -> None:
    run = await start(store, tmp_path / "w", [*answers])
    end = await run.ask("go")
    assert end.status == status
    assert run.session.thread is not None
    again = await start(store, tmp_path / "w", ["fine"], resume=run.session.thread.id)
    last = (await stored(again))[-1]
    assert last.role == role
    ended = last.metadata["ended"]
    assert ended["status"] == status and said in ended["text"] and ended["title"]
    await again.ask("and now?")
    request = again.provider.requests[-1]
    assert said not in repr([m.parts for m in request.messages]) + repr(request.system) + request.tail


async def test_an_answer_leaves_none(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["fine"])
    await run.ask("go")
    assert all("ended" not in m.metadata for m in await stored(run))


async def test_a_command_of_the_user_keeps_how_it_ended(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["fine"])
    await run.session.shell("echo out; exit 3")
    kept = (await stored(run))[0].metadata
    assert kept["shell"] == "echo out; exit 3" and kept["outcome"]["exit_code"] == 3 and kept["outcome"]["failed"]
    assert "during" not in kept


async def test_the_own_command_of_the_user_can_be_stopped(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["fine"])
    command = "echo $$ > pid; echo begun; sleep 600"
    task = asyncio.create_task(run.session.shell(command))
    while not any(isinstance(e, ToolOutput) for e in run.events):
        await asyncio.sleep(0.01)
    assert run.session.stop_command()
    await task
    (result,) = [e.result for e in run.events if isinstance(e, ToolFinished)]
    assert result.content == "begun\n[stopped by the user]"
    block = ToolBlock(own=True)
    block.start(ToolCallPart(result.call_id, "bash", {"command": "sleep"}))
    block.finish(result, None)
    assert block.state == "stopped"
    assert ", stopped, " in describe_result(None, result, 1_000, own=True)
    assert await has_ended(int((tmp_path / "w" / "pid").read_text()))
    assert not run.session.stop_command()
