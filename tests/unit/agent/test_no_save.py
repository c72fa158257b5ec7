"""A session of which nothing is kept: it reads everything, and the database gains no row."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from sakti.agent.settings_file import change
from sakti.core.config import load, project_may_set
from sakti.core.errors import MemoryFailure
from sakti.core.events import MemoryOperation, Notice
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.search.search import Scope, search
from sakti.store.threads import messages, threads
from tests.fakes.session import start

READ_ONLY = "memory.read_only=true"


async def sum_of(store: Store) -> str:
    """A hash of everything in the database."""
    return await store.read(lambda db: hashlib.sha256(db.connection().serialize("main")).hexdigest())


async def talked(store: Store, work: Path, *more: str) -> str:
    """A thread with a message and a note; its id."""
    run = await start(store, work, [Answer("Zebras are striped.")], overrides=more)
    await run.ask("What are zebras?")
    await run.session.note("prefers short answers")
    assert run.session.thread is not None
    await run.session.close()
    return run.session.thread.id


async def test_the_turn_is_answered_and_not_kept(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    thread = await talked(store, work)
    before = await sum_of(store)
    answers = [
        Answer(
            calls=(
                Call("memory-search", {"query": "zebras"}),
                Call("task-mutate", {"action": "create", "title": "Paint the zebra"}),
                Call("task-mutate", {"action": "update_context", "content": "# Stack\nPython"}),
                Call("bash", {"command": "seq 1 20000"}),
            )
        ),
        Answer("Done."),
        Answer("Still here."),
    ]
    run = await start(
        store, work, answers, overrides=(READ_ONLY, "approval.mode=auto"), resume=thread, interactive=False
    )
    session = run.session
    assert any(n.title == "Start" and "Nothing is saved in this run" in n.message for n in run.of(Notice))
    assert (await run.ask("Again, please.")).status == "answered"
    request = run.provider.requests[-1]
    sent = "\n".join(b.text for b in request.system)
    assert "prefers short answers" in sent, "the page is shown"
    assert any("zebras" in m.text for m in request.messages), "the thread goes on where it was"
    found, made, page, output = request.messages[-1].tool_results
    assert json.loads(found.content)["totalHits"]
    assert not made.is_error, "tasks live as long as the session"
    assert page.is_error and json.loads(page.content)["code"] == "read_only"
    whole = Path(output.details["output_file"])
    assert whole.is_file()
    assert (await run.ask("And now?")).status == "answered"
    assert any("Again, please." in m.text for m in run.provider.requests[-1].messages)
    with pytest.raises(MemoryFailure, match="read-only"):
        await session.note("keep this")
    with pytest.raises(MemoryFailure, match="read-only"):
        await session.compact()
    assert run.of(MemoryOperation) == []
    await session.rename("Another title")
    await session.views.add_history("Again, please.")
    await session.close()
    assert not whole.parent.exists(), "what tools printed is gone, too"
    assert await sum_of(store) == before
    assert await store.read(messages.count_messages, thread) == 2
    assert not (await store.read(search, "again", Scope(str(work)))).hits


async def test_a_new_thread_leaves_no_trace(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    await talked(store, work)
    before = await sum_of(store)
    run = await start(store, work, [Answer("Hello.")], overrides=(READ_ONLY,))
    await run.ask("Hello")
    assert any("Earlier work" in b.text for b in run.provider.requests[-1].system)
    await run.session.close()
    assert await sum_of(store) == before
    assert len(await store.read(threads.list_recent, str(work))) == 1


async def test_with_memory_off_nothing_is_kept_either(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    before = await sum_of(store)
    run = await start(
        store, work, [Answer(f"No. {n}") for n in range(12)], overrides=(READ_ONLY, "memory.enabled=false")
    )
    for number in range(12):
        await run.ask(f"Question {number} " + "word " * 300)
    await run.session.current.engine.wait_idle()
    await run.session.close()
    assert await sum_of(store) == before


async def test_what_was_saved_meanwhile_stays(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    thread = await talked(store, work)
    run = await start(store, work, [Answer("Mine.")], overrides=(READ_ONLY,), resume=thread)
    other = await start(store, work, [Answer("Yours.")], resume=thread)
    await other.ask("from the other window")
    await run.ask("from this one")  # nobody is in the other's way
    await run.session.close()
    await other.session.close()
    said = [m.text for m in await store.read(messages.list_after, thread, -1)]
    assert "from the other window" in said and "from this one" not in said


async def test_the_switch_holds_from_the_next_start_on(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    run = await start(store, work, [Answer("Kept."), Answer("Kept, too.")])
    user, project = tmp_path / "config.toml", work / ".sakti" / "config.toml"
    for name, value in (("memory.read_only", True), ("memory.working_memory.enabled", False)):
        said = await change(run.session, user, name, value, user_file=user, project_file=project)
        assert said.endswith("It takes effect after a restart.")
    said = await change(run.session, user, "memory.carry_over", 900, user_file=user, project_file=project)
    assert said.endswith("It takes effect now.")
    await run.ask("hello")
    assert run.session.thread is not None
    await run.session.close()
    assert await store.read(messages.count_messages, run.session.thread.id) == 2


def test_a_project_may_not_switch_it_on(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[memory]\nread_only = true\ncarry_over = 7\n")
    loaded = load(project_file=file)
    assert (loaded.config.memory.read_only, loaded.config.memory.carry_over) == (False, 7)
    assert "may not set memory.read_only" in loaded.warnings[0]
    assert not project_may_set("memory.read_only")
