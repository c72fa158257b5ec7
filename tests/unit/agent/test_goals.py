"""Goals: new turns until the check passes or the answer says so, limits, pauses, the block that stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.actions import line
from sakti.actions.scope import Scope
from sakti.actions.values import Refused
from sakti.agent.session.goals import Goal, judge_check, judge_turn, parse_goal
from sakti.core.config import load
from sakti.core.errors import SaktiError
from sakti.core.events import Notice, TurnFinished, TurnStarted, TurnStatus
from sakti.core.types import ContextPart, FilePart, MarkerPart, Usage
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.threads import threads
from tests.fakes.session import Recorded, start
from tests.unit.agent.test_questions import until, wait_for_questions

ASKS = ("approval.mode=ask", 'approval.allow=["write"]')
FREE = ("approval.mode=edits", 'approval.allow=["bash"]')
WORK = Answer("", calls=(Call("bash", {"command": "echo x >> count"}),))


async def run_goal(run: Recorded, text: str) -> Goal:
    await command(run, text)
    await run.session.wait()
    return current(run)


async def command(run: Recorded, text: str) -> object:
    return await line.run(Scope(run.session, lambda _value: None), line.parse(f"/goal {text}"))


def current(run: Recorded) -> Goal:
    goal = run.session.turns.goals.current
    assert goal is not None
    return goal


def facts(run: Recorded) -> list[str]:
    parts = [p for m in run.provider.requests[-1].messages for p in m.parts if isinstance(p, ContextPart)]
    return [p.facts["goal"] for p in parts if "goal" in p.facts]


async def test_a_goal_whose_check_never_passes_stops_at_its_limit(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [WORK, "one", WORK, "two", WORK, "three"], overrides=FREE)
    goal = await run_goal(run, """count to four --max-turns 3 --until "echo not yet; grep -c y count; exit 7" """)
    assert (goal.state, goal.turns, goal.reason) == ("limit", 3, "the limit of 3 turns is reached")
    assert len(run.of(TurnFinished)) == 3
    assert [m.message.text for m in run.of(TurnStarted)] == ["count to four", "", ""]
    assert "It is met when this command exits with 0" in facts(run)[0]
    assert "exit code 7. Its last lines:\nnot yet\n0\n" in facts(run)[-1]
    assert any(isinstance(p, MarkerPart) for p in run.of(TurnStarted)[-1].message.parts)
    assert "limit of 3 turns" in run.of(Notice)[-1].message
    await run.session.close()


async def test_a_limit_that_cannot_be_watched_is_named(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["GOAL DONE: yes"], overrides=FREE)
    await run_goal(run, "store the region --max-cost 2")
    first, limits = run.of(Notice)[0].message, "so the limit of $2.00 cannot be enforced; that of 20 turns is."
    assert first == f"The price of scripted/demo is not known, {limits}"
    await run.session.close()


async def test_a_check_that_passes_ends_the_goal_and_is_asked_about_once(store: Store, tmp_path: Path) -> None:
    other = Answer("", calls=(Call("write", {"path": "a", "content": "a"}),))
    write = Answer("", calls=(Call("write", {"path": "b", "content": "b"}),))
    run = await start(store, tmp_path / "w", [other, "one", write, "two"], overrides=ASKS)
    await command(run, 'make b --until "touch asked; test -e b"')
    [asked] = await wait_for_questions(run, 1)
    assert "test -e b" in asked.target
    run.session.resolve(asked.id, approved=True)
    await run.session.wait()
    assert (current(run).state, current(run).turns) == ("met", 2)
    assert run.session.turns.goals.short == ""
    await run.session.close()


async def test_a_refused_check_begins_nothing(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", [], overrides=("approval.mode=ask",))
    await command(run, 'x --until "touch asked"')
    [asked] = await wait_for_questions(run, 1)
    run.session.resolve(asked.id, approved=False)
    await run.session.wait()
    assert (current(run).state, current(run).turns) == ("paused", 0)
    assert not run.provider.requests
    await run.session.close()


ENDS = (
    (["ok\n\n**GOAL DONE: 5 tests pass**"], ("met", "5 tests pass", 1)),
    (["ok\nGOAL BLOCKED: no key"], ("blocked", "no key", 1)),
    (["GOAL DONE: no\nbut this", "still nothing"], ("paused", "2 consecutive turns called no tool", 2)),
    ([Answer("", error="auth")], ("paused", "", 1)),
)


@pytest.mark.parametrize(("answers", "wanted"), ENDS)
async def test_the_last_line_and_failures_end_a_goal(
    store: Store, tmp_path: Path, answers: list[Answer | str], wanted: tuple[str, str, int]
) -> None:
    run = await start(store, tmp_path / "w", answers, overrides=FREE)
    goal = await run_goal(run, "don't stop")
    assert (goal.state, goal.turns) == (wanted[0], wanted[2])
    assert goal.reason == wanted[1] or not wanted[1]
    await run.session.close()


async def test_a_goal_pauses_on_escape_and_a_restart_and_survives_compaction(store: Store, tmp_path: Path) -> None:
    waits = Answer("", calls=(Call("bash", {"command": "touch begun; while [ ! -e go ]; do sleep 0.01; done"}),))
    talk = "words " * 500
    run = await start(store, tmp_path / "w", [WORK, talk, waits], overrides=FREE)
    await command(run, "store the region")
    await until((tmp_path / "w/begun").exists)
    assert run.session.turns.goals.short == "goal 2/20 · $0.00"
    await run.session.interrupt()
    await run.session.wait()
    assert (current(run).state, current(run).turns) == ("paused", 2)
    assert run.session.turns.goals.short == "goal 2/20 · $0.00 paused"
    thread = run.session.thread
    assert thread is not None
    await run.session.close()
    as_killed = {"goal": {**thread.metadata["goal"], "state": "active", "reason": "", "owner": ""}}
    await store.write(threads.update_metadata, thread.id, as_killed)

    again = await start(store, tmp_path / "w", [f"{n} " * 500 for n in range(6)], overrides=FREE, continue_last=True)
    assert current(again).state == "paused"
    for n in range(5):  # a generation each
        await again.ask(f"I always want tabs in module {n}")
        await again.session.compact()
        await again.session.current.engine.reflect_now()
    await again.ask("more")
    sent = "".join(b.text for b in again.provider.requests[-1].system)
    assert "<goal>\nstore the region\n" in sent
    assert len(again.provider.requests) == 6, "a paused goal begins no turn"
    again.provider._left += ["GOAL DONE: it is", "bye"]  # pyright: ignore[reportPrivateUsage]
    await command(again, "resume")
    await again.session.wait()
    assert current(again).state == "met"
    await again.session.compact()
    await again.ask("thanks")
    assert "<goal>" not in "".join(b.text for b in again.provider.requests[-1].system)
    await again.session.close()


async def test_another_window_shows_a_goal_that_runs_and_leaves_it_alone(store: Store, tmp_path: Path) -> None:
    waits = Answer("", calls=(Call("bash", {"command": "touch begun; while [ ! -e go ]; do sleep 0.01; done"}),))
    run = await start(store, tmp_path / "w", [waits, "GOAL DONE: yes"], overrides=FREE)
    await command(run, "store the region")
    await until((tmp_path / "w/begun").exists)
    other = await start(store, tmp_path / "w", [], overrides=FREE, continue_last=True)
    assert other.session.turns.goals.short == "goal 1/20 · $0.00"
    for words in ("pause", "stop", "resume", "another goal"):
        with pytest.raises(SaktiError, match="Another window"):
            await command(other, words)
    (tmp_path / "w/go").touch()
    await run.session.wait()
    await other.session.current.follow()
    assert (current(run).state, current(other).state) == ("met", "met")
    await other.session.close()
    await run.session.close()


async def test_the_text_of_a_goal_names_files_like_a_prompt(store: Store, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/notes.txt").write_text("be brief")
    run = await start(store, tmp_path / "w", ["GOAL DONE: read"], overrides=FREE)
    await run_goal(run, "do what @notes.txt says")
    [begun] = run.of(TurnStarted)
    assert any(isinstance(p, FilePart) and p.text == "be brief" for p in begun.message.parts)
    await run.session.close()


def test_a_goal_stops_at_its_price() -> None:
    def end(status: TurnStatus, usd: float | None) -> TurnFinished:
        return TurnFinished("t", status, "", 1, Usage(cost_usd=usd))

    goal = Goal("x", until="false", max_usd=1.0, turns=1)
    goal = judge_turn(goal, end("answered", 0.6), has_calls=True, was_refused=False)
    assert judge_check(goal, None).state == "active"
    limited = judge_turn(goal, end("limit", 0.4), has_calls=True, was_refused=False)
    assert (limited.state, limited.reason) == ("limit", "the limit of $1.00 is reached")
    assert judge_turn(goal, end("limit", None), has_calls=True, was_refused=False).state == "paused"
    answered = judge_turn(goal, end("answered", 0.4), has_calls=True, was_refused=False)
    assert judge_check(answered, None).state == "limit"


def test_options_are_read_from_the_end() -> None:
    wanted = Goal('say "hi" --until then', "a \"b\" 'c'", 3, 0.5)
    line = """say "hi" --until then --max-cost $0.5 --until "a \\"b\\" 'c'" --max-turns=3"""
    assert parse_goal(line, 20, 5.0) == wanted
    for wrong in ("x --max-turns 0", "x --max-turns 1.5", "x --max-cost nan", "x --max-cost a", '--until "x"'):
        with pytest.raises(ValueError, match=r"--max|Write the goal"):
            parse_goal(wrong, 20, 5.0)
    for wrong in (
        "x --max-token 3",
        "x --dry",
        "x --dry=1 --max-turns 3",
        "--max-turns 3 x",
        "x --max-turns",
        '--a "b"',
    ):
        with pytest.raises(
            ValueError, match=r"^--\S+ cannot be read: /goal takes --until, --max-turns and --max-cost\. W"
        ):
            parse_goal(wrong, 20, 5.0)
    for wrong in ('x --until "make check', "x --until='make check --max-turns 2", 'x --max-turns "2'):
        with pytest.raises(ValueError, match=r"The quote after --\S+ is not closed"):
            parse_goal(wrong, 20, 5.0)
    assert parse_goal('"support --json" --max-turns 2', 20, 5.0) == Goal("support --json", max_turns=2)
    assert parse_goal("add a --verbose flag to it", 20, 5.0).text == "add a --verbose flag to it"


def test_a_project_may_only_lower_the_limits(tmp_path: Path) -> None:
    file = tmp_path / "project.toml"
    file.write_text("[goal]\nmax_turns = 30\nmax_usd = 1.0\n")
    loaded = load(project_file=file)
    assert (loaded.config.goal.max_turns, loaded.config.goal.max_usd) == (20, 1.0)


@pytest.mark.parametrize("word", ["off", "Clear", "end"])
async def test_a_word_for_the_end_stops_the_goal(store: Store, tmp_path: Path, word: str) -> None:
    run = await start(store, tmp_path / "w", [WORK, "one", "two"], overrides=FREE)
    await run_goal(run, "count --max-turns 1")
    scope = Scope(run.session, lambda value: None)
    with pytest.raises(Refused, match="no open goal"):
        await line.run(scope, line.parse(f"/goal {word}"))
    goals = run.session.turns.goals
    await goals._save(replace(goals.current, state="paused"))
    await line.run(scope, line.parse(f"/goal {word}"))
    assert (goals.current.text, goals.current.state) == ("count", "stopped")
    await run.session.close()
