"""Open questions are answered by a new approval mode or rule; an answer can allow all edits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sakti.core.events import ApprovalRequested, ApprovalResolved, ToolFinished
from sakti.providers.scripted import Answer, Call, Played
from sakti.store.database import Store
from tests.fakes.session import Recorded, start

TOUCH = Call("bash", {"command": "touch x"})
MAKE = Call("bash", {"command": "make"})
WRITE = Call("write", {"path": "a.txt", "content": "a\n"})
SYSTEM = Call("read", {"path": "/usr/share/common-licenses/MIT-none"})
OTHER = Call("read", {"path": "/usr/lib/none"})
ETC = Call("read", {"path": "/etc/hostname"})


async def begin(store: Store, workspace: Path, mode: str, *steps: tuple[Call, ...]) -> Recorded:
    answers: list[Played] = [Answer("", calls=calls) for calls in steps]
    run = await start(store, workspace, [*answers, "done", "done"], overrides=(f"approval.mode={mode}",))
    await run.session.submit("go")
    return run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def wait_for_questions(run: Recorded, number: int) -> tuple[ApprovalRequested, ...]:
    await until(lambda: len(run.session.approvals) == number)
    return run.session.approvals


def results(run: Recorded) -> list[str]:
    return [e.result.content for e in run.of(ToolFinished)]


@pytest.mark.parametrize(
    ("call", "before", "after", "wanted"),
    [
        (TOUCH, "ask", "edits", "[no output]"),
        (WRITE, "ask", "auto", "a.txt"),
        (WRITE, "ask", "plan", "Refused: a.txt: plan mode edits nothing."),
        (TOUCH, "ask", "plan", "Refused: touch x: plan mode runs only commands that read."),
        (SYSTEM, "edits", "auto", "There is no file"),
    ],
)
async def test_another_mode_answers_the_open_question(
    store: Store, tmp_path: Path, call: Call, before: str, after: str, wanted: str
) -> None:
    run = await begin(store, tmp_path / "w", before, (call,))
    await wait_for_questions(run, 1)
    run.session.set_approval_mode(after)
    await run.session.wait()
    assert wanted in results(run)[0]
    [resolved] = run.of(ApprovalResolved)
    assert resolved.approved is not wanted.startswith("Refused")
    assert "user denied" not in results(run)[0]


async def test_a_mode_that_asks_as_well_leaves_the_question_with_its_reason(store: Store, tmp_path: Path) -> None:
    run = await begin(store, tmp_path / "w", "ask", (TOUCH,))
    [question] = await wait_for_questions(run, 1)
    assert question.is_edit
    run.session.set_approval_mode("ask")
    assert run.session.approvals == (question,)
    run.session.resolve(question.id, True)
    await run.session.wait()
    assert (tmp_path / "w" / "x").exists()


async def test_of_several_questions_the_mode_answers_those_that_it_covers(store: Store, tmp_path: Path) -> None:
    run = await begin(store, tmp_path / "w", "ask", (SYSTEM, ETC, OTHER))
    questions = await wait_for_questions(run, 3)
    run.session.set_approval_mode("auto")
    await wait_for_questions(run, 1)
    assert run.session.approvals == (questions[1],)
    run.session.resolve(questions[1].id, False)
    await run.session.wait()
    assert [r.approved for r in run.of(ApprovalResolved)].count(True) == 2


async def test_a_rule_answers_the_other_questions_that_it_covers(store: Store, tmp_path: Path) -> None:
    run = await begin(store, tmp_path / "w", "ask", (ETC, ETC, SYSTEM))
    questions = await wait_for_questions(run, 3)
    run.session.resolve(questions[0].id, True, grant="thread")
    await wait_for_questions(run, 1)
    assert run.session.approvals == (questions[2],)
    run.session.resolve(questions[2].id, True)
    await run.session.wait()


async def test_all_edits_of_a_thread_are_allowed_by_one_answer_until_it_is_taken_back(
    store: Store, tmp_path: Path
) -> None:
    other = Call("write", {"path": "b.txt", "content": "b\n"})
    run = await begin(store, tmp_path / "w", "ask", (WRITE,), (other,), (TOUCH,), (MAKE,))
    [question] = await wait_for_questions(run, 1)
    run.session.resolve(question.id, True, grant="edits")
    await until(lambda: len(results(run)) == 3 and bool(run.session.approvals))
    [question] = run.session.approvals
    assert (question.target, question.is_edit) == ("make", False)
    assert run.session.current.approval_mode == "edits" and run.session.current.may_edit
    assert all((tmp_path / "w" / name).exists() for name in ("a.txt", "b.txt", "x"))
    run.session.resolve(question.id, False)
    await run.session.wait()
    assert run.session.next_approval_mode() == "ask"
    run.session.set_approval_mode("ask")
    assert run.session.current.approval_mode == "ask" and not run.session.current.may_edit


async def test_all_edits_hold_in_their_thread_only(store: Store, tmp_path: Path) -> None:
    run = await begin(store, tmp_path / "w", "ask", (WRITE,))
    [question] = await wait_for_questions(run, 1)
    run.session.resolve(question.id, True, grant="edits")
    await run.session.wait()
    await run.session.current.open_again()
    assert run.session.current.approval_mode == "edits"
    await run.session.new_thread()
    assert run.session.current.approval_mode == run.session.current.toolbox.mode == "ask"


@pytest.mark.parametrize(
    ("call", "is_edit"),
    [
        (WRITE, True),
        (TOUCH, True),
        (MAKE, False),
        (Call("write", {"path": "/etc/none", "content": ""}), False),
        (Call("write", {"path": ".vscode/x.json", "content": "{}"}), False),
        (Call("bash", {"command": "touch x && make"}), False),
    ],
)
async def test_all_edits_are_offered_where_they_answer_the_question(
    store: Store, tmp_path: Path, call: Call, is_edit: bool
) -> None:
    run = await begin(store, tmp_path / "w", "ask", (call,))
    [question] = await wait_for_questions(run, 1)
    assert question.is_edit is is_edit
    run.session.resolve(question.id, False)
    await run.session.wait()


async def test_a_question_counts_the_calls_behind_it_that_will_ask(store: Store, tmp_path: Path) -> None:
    free = Call("ls", {})
    run = await begin(store, tmp_path / "w", "ask", (WRITE, free, MAKE, OTHER, ETC, Call("write", {}), TOUCH))
    for waiting, later in ((1, 4), (1, 3), (2, 1), (1, 0)):
        questions = await wait_for_questions(run, waiting)
        assert {len(q.later) for q in questions} == {later}
        assert later < 4 or "read  /etc/hostname" in questions[0].later
        for question in questions:
            run.session.resolve(question.id, False)
        await until(lambda asked=questions: not set(asked) & set(run.session.approvals))
    await run.session.wait()
