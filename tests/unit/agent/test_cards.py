"""Cards of the agent: questions and plans, answered by the user only and never by a timeout."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from sakti import headless
from sakti.actions.undo import describe_result
from sakti.agent import plans
from sakti.agent.checkpoints import undoing
from sakti.agent.plans import BEGIN, PlanStep
from sakti.core.errors import ToolError
from sakti.core.events import ApprovalAnswer as Reply
from sakti.core.events import ApprovalRequested, CardAnswer, CardOption, CardQuestion, ToolFinished
from sakti.memory.observe.tool_facts import with_user_answers
from sakti.plain import words
from sakti.plain.lines import parse_answer
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.log import lines as memory_log
from sakti.store.tasks import graph, questions
from sakti.store.tasks.questions import Task
from sakti.tasks import service as tasks
from tests.fakes.session import Recorded, start
from tests.unit.agent.test_agent_modes import facts_sent
from tests.unit.agent.test_questions import wait_for_questions

DATABASE = {
    "question": "Which database should the cache use? Redis needs a server.",
    "header": "Database",
    "options": [{"label": "SQLite", "description": "a file"}, {"label": "Redis"}],
}
HOSTS = {"question": "Where?", "header": "Hosts", "multiple": True,
         "options": [{"label": "home"}, {"label": "work"}, {"label": "cloud"}]}  # fmt: skip
ASK = Call("AskUserQuestion", {"questions": [DATABASE, HOSTS]})
REPLY = (CardAnswer("Database", ("SQLite",)), CardAnswer("Hosts", ("home", "cloud"), "and the lab"))


async def test_a_question_waits_for_a_day_and_its_answer_is_the_users(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("", calls=(ASK,)), "done. " * 300, "more"])
    await run.session.submit("go")
    [asked] = await wait_for_questions(run, 1)
    store.clock.advance(24 * 3_600)  # pyright: ignore[reportAttributeAccessIssue]
    run.session.set_approval_mode("auto" if run.session.workspace.refused_auto() == "" else "edits")
    assert run.session.approvals == (asked,) and asked.questions[1].multiple
    run.session.answer(asked.id, Reply(True, answers=REPLY))
    await run.session.wait()
    [finished] = run.of(ToolFinished)
    assert json.loads(finished.result.content) == {
        "answers": [
            {"header": "Database", "choices": ["SQLite"]},
            {"header": "Hosts", "choices": ["home", "cloud"], "text": "and the lab"},
        ]
    }
    await run.ask("and now?")
    await run.session.compact()
    lines = await store.read(memory_log.read_lines, run.session.current.engine.record_id)
    text = "\n".join(x.content for x in lines if x.content.startswith("User stated"))
    assert 'My decision on "Which database should the cache use, Redis needs a server" is: SQLite.' in text
    assert 'My decision on "Where" is: home, cloud, and the lab.' in text
    await run.session.close()


async def test_a_declined_question_is_no_refused_call(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [Answer("", calls=(ASK,)), "done"])
    await run.session.submit("go")
    [asked] = await wait_for_questions(run, 1)
    run.session.answer(asked.id, Reply(False))
    await run.session.wait()
    [finished] = run.of(ToolFinished)
    assert finished.result.content.startswith("The user declined to answer.")
    assert run.session.refused_calls == 0
    [message] = [m for m in run.provider.requests[-1].messages if m.role == "tool"]
    assert with_user_answers([message]) == (message,)
    await run.session.close()


async def test_without_a_terminal_the_model_decides(store: Store, tmp_path: Path) -> None:
    wrong = Call("ask_user", {"questions": [{**DATABASE, "header": "x" * 21}]})
    answers = [Answer("", calls=(ASK,)), Answer("", calls=(wrong,)), "done"]
    run = await start(store, tmp_path / "w", answers, interactive=False)
    end = await run.ask("go")
    first, second = run.of(ToolFinished)
    assert first.result.is_error and "state your assumption" in first.result.content
    assert "questions[0].header" in second.result.content
    assert end.status == "answered" and run.session.refused_calls == 0
    await run.session.close()


def card() -> ApprovalRequested:
    first = CardQuestion("Which?", "Database", (CardOption("SQLite", "a file"), CardOption("Redis")))
    second = CardQuestion("Where?", "Hosts", (CardOption("home"), CardOption("work"), CardOption("cloud")), True)
    return ApprovalRequested("c", "ask_user", "", "Which?", ".", questions=(first, second))


LINES = (
    ("1; 3 1", (CardAnswer("Database", ("SQLite",)), CardAnswer("Hosts", ("home", "cloud")))),
    ("2;o a, b; and c", (CardAnswer("Database", ("Redis",)), CardAnswer("Hosts", (), "a, b; and c"))),
    ("1", "there are 2 questions: separate the answers with semicolons"),
    ("1 2; 1", "Database: choose one"),
    ("3; 1", "Database: choose from 1 to 2"),
    ("n", None),
)


def test_a_line_of_the_plain_chat_answers_all_questions() -> None:
    for line, wanted in LINES:
        reply = parse_answer(line, card())
        assert reply is not None
        assert (reply.problem or reply.answers or None) == wanted, line
        assert reply.approved is isinstance(wanted, tuple)
    for line in ("/help", "what do you mean; 1", "o", ""):
        assert parse_answer(line, card()) is None, line
    spoken = words.format_card(card().questions, 1)
    assert "  1 SQLite: a file" in spoken and "  several may be chosen, as 1 3" in spoken


STEPS = [
    {"title": "Add the column", "files": ["db.sql"], "check": "make check"},
    {"title": "Read it", "detail": "In the API.", "depends_on": [1]},
]
PLAN = Call("ExitPlanMode", {"title": "Store the region", "summary": "For taxes.", "steps": STEPS})
WRITE = Call("write", {"path": "a.txt", "content": "a\n"})


async def planning(store: Store, tmp_path: Path, *answers: Answer | str) -> Recorded:
    played = [Answer("", calls=(WRITE,)), Answer("", calls=(PLAN,)), *answers]
    run = await start(store, tmp_path / "w", played, overrides=("approval.mode=plan",))
    await run.session.submit("store the region")
    await wait_for_questions(run, 1)
    return run


async def board(store: Store, run: Recorded) -> list[Task]:
    return sorted(await store.read(questions.list_live, run.session.workspace.board_id), key=lambda t: t.created_at)


async def test_an_approved_plan_becomes_tasks_a_block_and_an_approval_mode(store: Store, tmp_path: Path) -> None:
    run = await planning(store, tmp_path, "I begin. " * 200, *(f"answer {n} " * 200 for n in range(8)))
    session = run.session
    refused = run.of(ToolFinished)[0].result.content
    assert refused.endswith("Plan mode changes nothing. Call present_plan when the plan is ready.")
    assert facts_sent(run)["plan"].startswith("Plan mode:")
    [asked] = session.approvals
    assert "2. Read it\n   In the API.\n   After: 1" in asked.target
    session.set_approval_mode("plan")  # no mode answers it
    session.answer(asked.id, Reply(True, mode="edits"))
    await session.wait()
    assert session.current.approval_mode == "edits"
    epic, first, second = await board(store, run)
    assert (epic.type, first.title, second.title) == ("epic", "Add the column", "Read it")
    edges = await store.read(graph.list_edges, session.workspace.board_id)
    assert {(second.id, first.id, "blocks"), (first.id, epic.id, "parent-child")} <= {tuple(e) for e in edges}
    kinds = [b.kind for b in run.provider.requests[-1].system]
    assert "plan" not in kinds, "its message is still sent"
    for n in range(5):  # an activation and a generation each
        await run.ask(f"go on {n} " * 200)
        await session.compact()
        await session.current.engine.reflect_now()
    await run.ask("and?")
    [block] = [b for b in run.provider.requests[-1].system if b.kind == "plan"]
    assert asked.target in block.text
    for task in (second, first, epic):
        await store.write(tasks.close, session.current.task_actor(), task.id, "completed", force=True, summary="done")
    await session.current.open_again()
    assert "plan" not in [b.kind for b in session.current.engine.preview().blocks]
    await session.close()


async def test_undo_takes_a_plan_back_but_no_task_that_was_worked_on(store: Store, tmp_path: Path) -> None:
    run = await planning(store, tmp_path, "ok", "more")
    session = run.session
    edited = session.approvals[0].target.replace("2. Read it", "2. Read it twice")
    session.answer(session.approvals[0].id, Reply(True, mode="ask", edited=edited))
    await session.wait()
    result = run.of(ToolFinished)[-1].result
    assert result.content.startswith("The user changed the plan:") and "Read it twice" in result.details["edited"]
    [message] = [m for m in run.provider.requests[-1].messages if any(r.name == "present_plan" for r in m.tool_results)]
    assert with_user_answers([message])[0].text.startswith("I changed the plan to:")
    before = await board(store, run)
    edges = await store.read(graph.list_edges, session.workspace.board_id)
    session.set_approval_mode("edits")
    undone = undoing.make_undoing(session)
    await undone.undo(await undone.preview(1, "conversation"))
    assert not await board(store, run) and session.current.approval_mode == "plan"
    assert plans.find_plan(session.thread.metadata) is None  # pyright: ignore[reportOptionalMemberAccess]
    await undoing.make_undoing(session).redo()
    assert [(t.id, t.status) for t in await board(store, run)] == [(t.id, t.status) for t in before]
    assert await store.read(graph.list_edges, session.workspace.board_id) == edges
    assert session.current.approval_mode == "edits" and plans.find_plan(session.thread.metadata) is not None
    await store.write(tasks.claim, session.current.task_actor(), before[1].id)
    from_shell = undoing.Undoing(store, session.workspace.root, store.clock, session.thread, None)
    await session.close()
    preview = await from_shell.preview(1, "conversation")
    result = await from_shell.undo(preview)
    assert {t.title for t in await board(store, run)} == {"Store the region", "Add the column"}
    assert set(result.tasks) == {"Add the column", "Store the region"}
    assert "worked on and are kept" in describe_result(preview, result).sentence
    await from_shell.redo()
    assert [t.id for t in await board(store, run)] == [t.id for t in before]


async def test_a_fresh_thread_carries_the_plan_out(store: Store, tmp_path: Path) -> None:
    earlier = await start(store, tmp_path / "w", ["noted " * 100, "more " * 100, "x"])
    await earlier.ask("I always want tabs in this project. " * 20)
    await earlier.ask("Go on.")
    await earlier.session.compact()
    await earlier.session.close()
    run = await planning(store, tmp_path, "done in the new thread", "one", "two")
    session = run.session
    old = session.thread
    session.answer(session.approvals[0].id, Reply(True, mode="edits", fresh=True))
    async with asyncio.timeout(10):
        while not any(m.text == BEGIN for r in run.provider.requests for m in r.messages):
            await asyncio.sleep(0.001)
    await session.wait()
    assert session.thread is not None and old is not None and session.thread.id != old.id
    assert session.thread.title == "Store the region", "not the first message, which is the same for every plan"
    assert session.thread.metadata["planned_in"] == old.id and session.current.approval_mode == "edits"
    last = run.provider.requests[-1]
    assert "1. Add the column" in next(b.text for b in last.system if b.kind == "plan")
    assert [m.role for m in last.messages] == ["user"]
    kinds = [{b.kind for b in r.system} for r in (run.provider.requests[0], last)]
    assert ["carry_over" in k for k in kinds] == [True, False], "it begins with the plan and nothing else"
    tasks_before = await board(store, run)
    for _ in range(2):  # the plan was approved in the other thread: an undo here leaves it
        undone = undoing.make_undoing(session)
        await undone.undo(await undone.preview(1, "conversation"))
        assert plans.find_plan(session.thread.metadata) is not None and await board(store, run) == tasks_before
        assert session.current.approval_mode == "edits"
        await run.ask("go on")
    assert "1. Add the column" in next(b.text for b in run.provider.requests[-1].system if b.kind == "plan")
    await session.close()


async def test_without_a_terminal_the_plan_is_the_result(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await start(store, tmp_path / "w", [Answer("", calls=(PLAN,))], interactive=False)
    headless_run = headless._Run(run.session, "json", headless.Limits(), None, contextlib.ExitStack())
    run.session.subscribe(headless_run._on_event)
    assert headless.EXIT[await headless_run._answer("plan it")] == 0
    result = json.loads(capsys.readouterr().out)
    assert result["plan"]["steps"][1] == {
        "title": "Read it",
        "detail": "In the API.",
        "files": [],
        "depends_on": [1],
        "check": "",
    }
    assert result["text"].startswith("# Store the region") and len(run.provider.requests) == 1
    await run.session.close()


async def test_more_planning_sends_the_note(store: Store, tmp_path: Path) -> None:
    run = await planning(store, tmp_path, "ok")
    run.session.answer(run.session.approvals[0].id, Reply(False, note="smaller steps"))
    await run.session.wait()
    assert run.of(ToolFinished)[-1].result.content == "The user wants to keep planning. They say: smaller steps"
    assert run.session.current.approval_mode == "plan" and not await board(store, run)
    await run.session.close()


async def test_more_planning_sends_the_changes_as_the_users_words(store: Store, tmp_path: Path) -> None:
    run = await planning(store, tmp_path, "ok")
    run.session.answer(run.session.approvals[0].id, Reply(False, note="so", edited="# Two\n\n1. Look"))
    await run.session.wait()
    result = run.of(ToolFinished)[-1].result
    assert result.content.endswith("wants to keep planning. They say: so\n\n# Two\n\n1. Look")
    assert result.details["edited"] == "# Two\n\n1. Look" and not await board(store, run)
    await run.session.close()


def test_an_edited_plan_is_read_back() -> None:
    steps = (PlanStep("A", "why\n\nand how", ("a.py", "b.py"), (), "make a, then b"), PlanStep("B", depends_on=(1,)))
    plan = plans.ProposedPlan("T", "Two lines\nof summary", steps)
    assert plans.from_markdown(plans.to_markdown(plan)) == plan
    for text in ("no plan", "# T", "# T\n1. A\n   After: 2\n2. B"):
        with pytest.raises(ToolError):
            plans.from_markdown(text)


STEPS = ("# T", "1. A", "2. B", "   After: 1", "3. C", "   After: 1, 2", "4. D", "   After: 3")


@pytest.mark.parametrize(
    ("edited", "depends_on"),
    [
        ("# T|2. B|   After: 1|3. C|   After: 1, 2|4. D|   After: 3", ((), (1,), (2,))),  # A is deleted
        ("# T|1. B|   After: 1|2. C|   After: 1, 2|3. D|   After: 3", ((), (1,), (2,))),  # and the rest renumbered
        ("# T|1. A|3. C|   After: 1, 2|4. D|   After: 3", ((), (1,), (2,))),
        ("# T|1. A|2. B|   After: 1|3. C|   After: 2|4. D|   After: 3", ((), (1,), (2,), (3,))),  # one is changed
        ("# T|1. New|1. A|2. B|   After: 1|3. C|   After: 1, 2|4. D", ((), (), (2,), (2, 3), ())),
        ("# T|1. A, better|2. B|   After: 1|4. D|   After: 2", ((), (1,), (2,))),
        ("# T|1. X|1. Y|   After: 1|1. Z|   After: 2, 7", ((), (1,), (2,))),
    ],
)
def test_dependencies_follow_the_steps_of_an_edited_plan(edited: str, depends_on: tuple[tuple[int, ...], ...]) -> None:
    before = plans.from_markdown("\n".join(STEPS))
    plan = plans.from_markdown(edited.replace("|", "\n"), before)
    assert tuple(step.depends_on for step in plan.steps) == depends_on


PLAN_LINES = (("a edits", Reply(True, mode="edits")), ("F auto", Reply(True, mode="auto", fresh=True)),
              ("n smaller", Reply(False, note="smaller")))  # fmt: skip


def test_a_line_of_the_plain_chat_answers_a_plan() -> None:
    asked = ApprovalRequested("p", "present_plan", "", "# T\n\n1. A", ".")
    for line, wanted in PLAN_LINES:
        reply = parse_answer(line, asked)
        assert reply is not None
        assert (reply.approved, reply.mode, reply.fresh, reply.note) == (
            wanted.approved,
            wanted.mode,
            wanted.fresh,
            wanted.note,
        )
    assert parse_answer("a", asked).problem and parse_answer("what about b", asked) is None  # pyright: ignore[reportOptionalMemberAccess]
    assert "  1. A" in words.format_question((asked,), 1)
