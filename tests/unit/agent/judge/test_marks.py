"""What the agent changed and what runs later is shown before a command runs it."""

from __future__ import annotations

from pathlib import Path

from sakti.core.events import ApprovalRequested, ToolFinished
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import start


async def test_a_changed_conftest_is_shown_before_the_tests_run(store: Store, tmp_path: Path) -> None:
    write = Call("write", {"path": "conftest.py", "content": "import os\n"})
    run_tests = Call("bash", {"command": "pytest --version"})
    answers = [Answer(calls=(write,)), Answer(calls=(run_tests,)), Answer(calls=(run_tests,)), "ok"]
    run = await start(store, tmp_path / "w", answers, overrides=("approval.mode='auto'",))
    asked: list[ApprovalRequested] = []

    def approve(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            asked.append(event)
            run.session.resolve(event.id, True)

    run.session.subscribe(approve)
    await run.ask("go")
    assert len(run.of(ToolFinished)) == 3
    (question,) = asked  # once: the second run was not asked about again
    assert "conftest.py" in question.reason and "+import os" in question.diff


async def test_a_rule_for_this_thread_is_not_saved(store: Store, tmp_path: Path) -> None:
    call = Answer(calls=(Call("bash", {"command": "mkdir -p hi"}),))
    run = await start(store, tmp_path / "w", [call, "ok", call, "ok"])

    def approve(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            run.session.resolve(event.id, True, grant="thread")

    run.session.subscribe(approve)
    await run.ask("go")
    await run.ask("again")
    assert len(run.of(ApprovalRequested)) == 1
    again = await start(store, tmp_path / "w", [call, "ok"], interactive=False)
    await again.ask("go")
    assert again.session.refused_calls == 1
