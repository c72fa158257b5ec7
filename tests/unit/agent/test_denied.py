"""What is asked, what is denied, and whose time is counted: a refusal is no failure, a call in vain is no question."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sakti.core.events import ApprovalRequested, ApprovalResolved, ToolFinished, ToolStarted
from sakti.core.types import ToolResultPart
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import Recorded, start


async def begin(store: Store, workspace: Path, *calls: Call, **options) -> Recorded:
    return await start(store, workspace, [Answer("", calls=calls), "done"], **options)


async def asked(run: Recorded) -> ApprovalRequested:
    """The question, once it is there."""
    there: asyncio.Future[ApprovalRequested] = asyncio.get_running_loop().create_future()
    run.session.subscribe(lambda e: there.set_result(e) if isinstance(e, ApprovalRequested) else None)
    await run.session.submit("go")
    return await asyncio.wait_for(there, 20)


def result(run: Recorded) -> ToolResultPart:
    return run.of(ToolFinished)[0].result


async def test_a_denied_call_says_so_and_why(store: Store, tmp_path: Path) -> None:
    run = await begin(store, tmp_path / "w", Call("bash", {"command": "touch x"}))
    question = await asked(run)
    assert question.call_id == run.of(ToolStarted)[0].call.id
    assert (question.reason, question.tool) == ("Edits a file in this project", "bash")
    run.session.resolve(question.id, False, note="use pnpm")
    await run.session.wait()
    told = result(run)
    assert told.content == "The user denied this call. They say: use pnpm"
    assert told.is_error and told.details["denied"] == "use pnpm"
    assert run.of(ApprovalResolved) == [
        ApprovalResolved(question.id, False, "use pnpm", question.call_id, thread_id=question.thread_id)
    ]
    assert not (tmp_path / "w" / "x").exists()


async def test_what_the_user_thought_about_is_not_the_tools_time(store: Store, tmp_path: Path) -> None:
    run = await begin(store, tmp_path / "w", Call("bash", {"command": "touch x"}))
    question = await asked(run)
    await store.clock.sleep(85)
    run.session.resolve(question.id, True)
    await run.session.wait()
    assert (tmp_path / "w" / "x").exists()
    assert run.of(ToolFinished)[0].duration_ms < 60_000
    assert result(run).details["duration_ms"] < 60_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "gone.py", "edits": [{"old": "a", "new": "b"}]}, "gone.py"),
        ({"path": "unread.py", "edits": [{"old": "x = 1", "new": "x = 2"}]}, "unread.py has not been read yet."),
        ({"path": "../outside.py", "edits": [{"old": "nothing like it", "new": "b"}]}, "has not been read yet."),
        ({"path": "unread.py"}, "edits: missing"),
    ],
)
async def test_an_edit_that_cannot_be_made_is_not_asked_about(
    store: Store, tmp_path: Path, arguments: dict[str, object], said: str
) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "unread.py").write_text("x = 1\n")
    (tmp_path / "outside.py").write_text("secret = 'hunter2'\n")
    run = await begin(store, workspace, Call("edit", arguments))
    await run.ask("go")
    assert run.of(ApprovalRequested) == []
    told = result(run)
    assert told.is_error and said in told.content and "hunter2" not in told.content
    assert "denied" not in told.details


async def test_text_that_is_not_in_the_file_is_told_without_a_question(store: Store, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "a.py").write_text("x = 1\n")
    edit = Call("edit", {"path": "a.py", "edits": [{"old": "y = 7", "new": "y = 8"}]})
    answers = [Answer("", calls=(Call("read", {"path": "a.py"}),)), Answer("", calls=(edit,)), "done"]
    run = await start(store, workspace, answers)
    await run.ask("go")
    assert run.of(ApprovalRequested) == []
    assert run.of(ToolFinished)[1].result.is_error


async def test_a_rule_that_denies_is_told_as_such(store: Store, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / ".env").write_text("KEY=1\n")
    run = await begin(store, workspace, Call("read", {"path": ".env"}))
    await run.ask("go")
    assert result(run).details["denied"] == "holds secrets"
