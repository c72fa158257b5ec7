"""Questions of the agent: answered by the user only, never by a timeout, and the user's words in memory."""

from __future__ import annotations

import json
from pathlib import Path

from sakti.agent.tools.approvals import Answer as Reply
from sakti.core.events import ApprovalRequested, CardAnswer, CardOption, CardQuestion, ToolFinished
from sakti.memory.observe.tool_facts import with_user_answers
from sakti.plain import words
from sakti.plain.asking import answer
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.log import lines as memory_log
from tests.fakes.session import start
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
    lines = await store.read(memory_log.log_lines, run.session.current.engine.record_id)
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
        reply = answer(line, card())
        assert reply is not None
        assert (reply.problem or reply.answers or None) == wanted, line
        assert reply.approved is isinstance(wanted, tuple)
    for line in ("/help", "what do you mean; 1", "o", ""):
        assert answer(line, card()) is None, line
    spoken = words.card(card().questions, 1)
    assert "  1 SQLite: a file" in spoken and "  several may be chosen, as 1 3" in spoken
