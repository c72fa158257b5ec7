"""A session and its sandbox: which modes are to be had, what runs inside, what is asked before it runs outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sakti.agent import workspace
from sakti.agent.sandbox.boundary import Level
from sakti.core.errors import ConfigError
from sakti.core.events import ApprovalRequested, MessageSaved, Notice
from sakti.core.types import OutputPart
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.sandbox import FakeSandbox
from tests.fakes.session import Recorded, start

NONE = Level("unsandboxed", "bubblewrap is not installed", "Install it.")


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(made: workspace.Workspace) -> FakeSandbox:
        return FakeSandbox(made.root, NONE)

    monkeypatch.setattr(workspace, "make_sandbox", none)


def _started(run: Recorded) -> Sequence[Sequence[str]]:
    made = run.session.workspace._sandbox
    assert isinstance(made, FakeSandbox)
    return made.started


async def test_auto_begins_as_edits_where_no_sandbox_holds(store: Store, tmp_path: Path, no_sandbox: None) -> None:
    run = await start(store, tmp_path / "w", [], overrides=("approval.mode=auto",))
    assert run.session.current.approval_mode == "edits"
    (said,) = [n.message for n in run.of(Notice) if n.title == "Approval"]
    assert "bubblewrap is not installed" in said and "Install it." in said
    with pytest.raises(ConfigError, match="Auto needs a sandbox"):
        run.session.set_approval_mode("auto")
    assert run.session.current.approval_mode == "edits" and run.session.next_approval_mode() == "plan"


async def test_full_is_reached_by_no_change_of_the_mode(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [])
    seen = []
    for _ in range(6):
        seen.append(mode := run.session.next_approval_mode())
        run.session.set_approval_mode(mode)
    assert seen[:4] == ["edits", "auto", "plan", "ask"]
    with pytest.raises(ConfigError):
        run.session.set_approval_mode("full")


async def test_a_command_runs_inside_and_outside_only_after_a_yes(store: Store, tmp_path: Path) -> None:
    calls = [
        Answer(calls=[Call("bash", {"command": "echo in"})]),
        Answer(calls=[Call("bash", {"command": "echo out", "outside": "needs the network"})]),
        Answer("done"),
    ]
    run = await start(store, tmp_path / "w", calls, overrides=("approval.mode=auto",))

    def allow(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            run.session.resolve(event.id, True)

    run.session.subscribe(allow)
    await run.ask("go")
    (asked,) = run.of(ApprovalRequested)
    assert asked.target == "echo out" and "needs the network" in asked.reason and asked.rule == ""
    assert [argv[-1] for argv in _started(run)] == ["echo in"]


async def test_nobody_there_means_no_way_outside(store: Store, tmp_path: Path) -> None:
    call = Call("bash", {"command": "touch ran", "outside": "because"})
    run = await start(
        store, tmp_path / "w", [Answer(calls=[call]), Answer("x")], overrides=("approval.mode=auto",), interactive=False
    )
    await run.ask("go")
    assert not (tmp_path / "w" / "ran").exists()


async def test_the_users_own_command_runs_outside(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [])
    await run.session.shell("echo mine")
    assert _started(run) == []
    (said,) = run.of(MessageSaved)
    (part,) = [p for p in said.message.parts if isinstance(p, OutputPart)]
    assert "mine" in part.text


async def test_what_a_command_leaves_under_a_protected_name_is_told(store: Store, tmp_path: Path) -> None:
    call = Call("bash", {"command": "echo obey > AGENTS.md"})
    run = await start(store, tmp_path / "w", [Answer(calls=[call]), Answer("x")], overrides=("approval.mode=auto",))
    await run.ask("go")
    (result,) = [r.content for m in run.provider.requests[-1].messages for r in m.tool_results]
    assert "set aside" in result and "AGENTS.md.set-aside-1" in result
    assert not (tmp_path / "w" / "AGENTS.md").exists()
