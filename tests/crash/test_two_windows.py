"""Two windows with one thread: one turn at a time, nothing answered for the other, nothing missed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sakti.agent.session import recovery
from sakti.core.errors import SaktiError
from sakti.core.events import ApprovalRequested, MessageSaved, Notice, TurnFinished
from sakti.core.types import Message
from sakti.providers.scripted import Answer, Call, Played
from sakti.store import leases, user_state
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.threads import messages
from sakti.store.threads import removal as thread_removal
from sakti.tui.transcript.build import find_end_notice
from tests.fakes.clock import FakeClock
from tests.fakes.session import Recorded, start

ASKS = Answer("I'll run it.", calls=(Call("bash", {"command": "command printf one"}, id="c1"),))


async def stored(run: Recorded) -> list[Message]:
    assert run.session.thread is not None
    return await run.session.workspace.store.read(messages.list_after, run.session.thread.id, -1)


async def question(run: Recorded) -> None:
    """Until an approval is asked."""
    asked = asyncio.Event()
    end = run.session.subscribe(lambda event: asked.set() if isinstance(event, ApprovalRequested) else None)
    await asyncio.wait_for(asked.wait(), 20)
    end()


async def at_work(store: Store, work: Path) -> Recorded:
    """A window whose turn waits for an approval."""
    first = await start(store, work, [ASKS, "It printed one."])
    await first.session.submit("run it")
    await question(first)
    return first


async def second_window(store: Store, work: Path, answers: list[Played]) -> Recorded:
    return await start(store, work, answers, continue_last=True)


def abandon(db: Database, thread_id: str, owner: str) -> None:
    db.execute_sql("UPDATE leases SET owner = ? WHERE record_id = ?", (owner, thread_id))


async def test_the_other_windows_open_calls_are_left_alone(store: Store, tmp_path: Path) -> None:
    first = await at_work(store, tmp_path / "w")
    second = await second_window(store, tmp_path / "w", ["Hello."])
    assert [m.role for m in await stored(second)] == ["user", "assistant"]

    with pytest.raises(SaktiError, match="in use in another window; wait for it, or start a new one with /new"):
        await second.session.submit("and this?")
    with pytest.raises(SaktiError, match="another window"):
        await second.session.shell("true")
    assert not second.session.busy
    assert [m.role for m in await stored(second)] == ["user", "assistant"]

    first.session.resolve(first.session.approvals[0].id, True)
    await first.session.wait()
    assert first.of(TurnFinished)[-1].status == "answered"
    assert [m.role for m in await stored(first)] == ["user", "assistant", "tool", "assistant"]


async def test_without_a_prompt_no_command_of_the_prompt_is_named(store: Store, tmp_path: Path) -> None:
    first = await at_work(store, tmp_path / "w")
    second = await start(store, tmp_path / "w", ["Hello."], continue_last=True, interactive=False)
    with pytest.raises(SaktiError, match="start a new one without --continue and --resume") as refused:
        await second.session.submit("and this?")
    assert "/new" not in refused.value.message
    assert second.session.thread is not None
    first.session.resolve(first.session.approvals[0].id, True)
    await first.session.wait()
    await store.write(thread_removal.delete_thread, second.session.thread.id, store.clock.now())
    with pytest.raises(SaktiError, match="`sakti threads restore` restores it"):
        await second.session.submit("and this?")


async def test_what_the_other_window_wrote_is_known_to_the_next_turn(store: Store, tmp_path: Path) -> None:
    first = await at_work(store, tmp_path / "w")
    second = await second_window(store, tmp_path / "w", ["Second.", "Again."])
    first.session.resolve(first.session.approvals[0].id, True)
    await first.session.wait()

    assert (await second.ask("and this?")).text == "Second."
    assert [m.role for m in second.provider.requests[0].messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert [n.title for n in second.of(Notice)].count("Another window") == 1
    first.provider.add("Third.")
    assert (await first.ask("on")).text == "Third."
    assert len(first.provider.requests[-1].messages) == 7
    rows = await stored(first)
    assert [m.index for m in rows] == list(range(8))
    assert len({m.id for m in rows}) == 8


async def kill(store: Store, window: Recorded) -> None:
    """Leave what kill -9 leaves: a lease of a process of this machine that is no more."""
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    owner = leases.make_owner().split(":")
    assert window.session.thread is not None
    await store.write(abandon, window.session.thread.id, f"{owner[0]}:{gone.pid}:{owner[2]}")


@pytest.mark.parametrize("in_call", [False, True])
async def test_a_turn_cut_by_a_kill_is_shown_as_interrupted(store: Store, tmp_path: Path, in_call: bool) -> None:
    first = await at_work(store, tmp_path / "w")
    assert not any("ended" in m.metadata for m in await stored(await second_window(store, tmp_path / "w", [])))
    if not in_call:
        assistant = (await stored(first))[-1]
        await store.write(lambda db: db.execute_sql("DELETE FROM messages WHERE id = ?", (assistant.id,)))
    await kill(store, first)
    second = await second_window(store, tmp_path / "w", ["The answer."])
    last = (await stored(second))[-1]
    assert last.role == ("tool" if in_call else "user")
    notice = find_end_notice(last)
    assert notice is not None and notice.title == "Interrupted" and "F5" in notice.text
    await second.session.turns.retry()
    await second.session.wait()
    assert (await stored(second))[-1].text == "The answer."


@pytest.mark.parametrize("text", ["Half of the ans", ""])
async def test_an_open_window_keeps_the_answer_of_a_killed_one(store: Store, tmp_path: Path, text: str) -> None:
    first = await at_work(store, tmp_path / "w")
    prompt, assistant = await stored(first)
    await store.write(lambda db: db.execute_sql("DELETE FROM messages WHERE id = ?", (assistant.id,)))
    if text:
        await store.write(user_state.append_answer, prompt.resource_id, prompt.thread_id, text, store.clock.now())
    second = await second_window(store, tmp_path / "w", ["The answer."])
    assert len(await stored(second)) == 1, "its turn runs"
    await kill(store, first)

    assert (await second.ask("and this?")).text == "The answer."
    rows = await stored(second)
    assert [m.text for m in rows] == ["run it", *([text] if text else []), "and this?", "The answer."]
    assert sum(find_end_notice(m) is not None for m in rows) == 1
    assert [n.title for n in second.of(Notice)].count("Interrupted") == (0 if text else 1)
    assert [m.text for m in second.provider.requests[0].messages][-2:] == [text or "run it", "and this?"]


async def test_an_answer_whose_lease_was_cleared_already_is_kept(store: Store, tmp_path: Path) -> None:
    window = await start(store, tmp_path / "w", ["Hello.", "Again."])
    await window.ask("hi")
    rows = await stored(window)
    await store.write(lambda db: db.execute_sql("DELETE FROM messages WHERE id = ?", (rows[-1].id,)))
    await store.write(user_state.append_answer, rows[0].resource_id, rows[0].thread_id, "Hel", store.clock.now())
    second = await second_window(store, tmp_path / "w", [])
    assert [m.text for m in await stored(second)] == ["hi", "Hel"]


async def test_a_window_that_crashed_holds_nothing(store: Store, tmp_path: Path) -> None:
    first = await at_work(store, tmp_path / "w")
    second = await second_window(store, tmp_path / "w", ["Going on."])
    await kill(store, first)

    end = await second.ask("go on")
    assert end.status == "answered"
    rows = await stored(second)
    assert [m.role for m in rows] == ["user", "assistant", "tool", "user", "assistant"]
    assert rows[2].tool_results[0].call_id == "c1" and "interrupted" in rows[2].tool_results[0].content

    # the first one was only standing still: what it brings now comes too late
    first.session.resolve(first.session.approvals[0].id, True)
    await first.session.wait()
    late = first.of(TurnFinished)[-1]
    assert (late.status, late.error_code) == ("error", "thread_lost")
    assert len(await stored(second)) == 5


async def test_two_windows_that_open_a_crashed_thread_answer_its_calls_once(store: Store, tmp_path: Path) -> None:
    first = await at_work(store, tmp_path / "w")
    await store.write(lambda db: db.execute_sql("UPDATE leases SET owner = 'elsewhere:1:x', expires_at = 0"))
    await asyncio.gather(*(second_window(store, tmp_path / "w", []) for _ in range(4)))
    assert [m.role for m in await stored(first)] == ["user", "assistant", "tool"]


async def test_a_turn_gives_the_thread_back_however_it_ends(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["Fine.", Answer(error="authentication"), ASKS])

    async def held() -> list[leases.Lease]:
        assert run.session.thread is not None
        return await store.read(leases.list_leases, run.session.thread.id, store.clock.now())

    assert (await run.ask("one")).status == "answered" and not await held()
    assert (await run.ask("two")).status == "error" and not await held()
    await run.session.submit("three")
    await question(run)
    assert len(await held()) == 1
    await run.session.interrupt()
    assert run.of(TurnFinished)[-1].status == "interrupted" and not await held()


async def test_a_message_that_comes_as_the_turn_ends_is_not_left_lying(store: Store, tmp_path: Path) -> None:
    run = await start(store, tmp_path / "w", ["First.", "Second."])
    session, queued = run.session, False

    def hear(event: object) -> None:
        # the loop has looked into the inbox for the last time, but the turn has not been said to be over
        nonlocal queued
        if isinstance(event, MessageSaved) and event.message.role == "assistant" and not queued:
            queued = True
            finish = session.current.engine.end_turn

            async def end_turn() -> None:
                session.current.engine.end_turn = finish  # type: ignore[method-assign]
                await finish()
                await session.submit("and more")

            session.current.engine.end_turn = end_turn  # type: ignore[method-assign]

    session.subscribe(hear)
    await run.ask("one")
    assert [e.text for e in run.of(TurnFinished)] == ["First.", "Second."]
    assert not session.queued
    assert [m.text for m in await stored(run)] == ["one", "First.", "and more", "Second."]


async def test_the_text_of_a_running_answer_is_stored_masked_and_leaves_with_it(store: Store, tmp_path: Path) -> None:
    window = await start(store, tmp_path / "w", ["Hello."])
    await window.ask("hi")
    thread, clock = window.session.thread, store.clock
    assert thread is not None and isinstance(clock, FakeClock)
    secret = "sk-ant-api03-" + "Ab3" * 30
    streamed: list[str] = []
    journal = recovery.AnswerJournal(store, thread.resource_id, thread.id)
    for piece in ("The key is ", secret[:20], secret[20:], " and ", "this waits"):
        streamed.append(piece)
        clock.time += 2_000
        journal.follow(streamed)
        await store.flush()
        await asyncio.sleep(0)
    text = await store.read(user_state.read_answer, thread.resource_id, thread.id)
    assert text.startswith("The key is ") and text.endswith(" and ") and secret[:20] not in text
    draft = await store.write(user_state.take_unsent, thread.resource_id, "another window", clock.now())
    assert draft == ("", []), "a partial answer is no draft"
    journal.close()
    await window.ask("go on")
    journal.follow([*streamed, " more words "])
    await store.flush()
    assert await store.read(user_state.read_answer, thread.resource_id, thread.id) == ""
