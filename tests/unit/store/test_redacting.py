"""`sakti db redact`: what an older sakti stored is masked, and no byte of it is left in the file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sakti.agent.threads import erasure as redaction
from sakti.core.errors import StoreError
from sakti.core.types import Message, TextPart, ThinkingPart, Thread, ToolCallPart, ToolResultPart
from sakti.store import copies, secrets, user_state
from sakti.store.database import Store
from sakti.store.maintenance import checks, redacting, upkeep
from sakti.store.memory import records
from sakti.store.search.search import Scope, search
from sakti.store.threads import fork, messages, threads
from sakti.tasks import service
from sakti.tasks.service import Actor

KEY = "ghp_quetzalcoatlus9quetzalcoatlus9"
PASSWORD = "Archaeopteryx9lithographica"
PIECES = tuple(w.encode() for w in ("quetzalcoatl", "Archaeop", "archaeop", "lithograph", "zalcoatlus9q"))
TEXT = f"use {KEY} and DB_PASS={PASSWORD} there"


def traces(folder: Path) -> list[str]:
    """Files of a folder with a piece of a secret in their bytes."""
    found = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    return [f"{p.name}: {piece.decode()}" for p in found for piece in PIECES if piece in p.read_bytes()]


async def fill(store: Store) -> None:
    """Store secrets everywhere, as a version without masking did."""
    now = store.clock.now()
    await store.write(threads.create, Thread("t", "/w", f"about {KEY}", now, now, metadata={"current_task": TEXT}))
    said = (
        Message("m1", "t", "/w", "user", (TextPart(TEXT),), now, part_tokens=(9,), tokens=12),
        Message(
            "m2",
            "t",
            "/w",
            "assistant",
            (ThinkingPart(TEXT, "x", {"signature": "s"}), ToolCallPart("c", "bash", {"command": f"echo {KEY}"})),
            now,
            part_tokens=(5, 6),
            tokens=14,
        ),
        Message("m3", "t", "/w", "tool", (ToolResultPart("c", "bash", TEXT, details={"diff": f"+{TEXT}"}),), now),
        Message("m4", "t", "/w", "assistant", (TextPart("nothing to hide, heron"),), now),
    )
    for one in said:
        await store.write(messages.append, one)
    actor = Actor("/w", "s", now)
    await store.write(service.create, actor, service.NewTask("k", f"rotate {KEY}", description=TEXT))
    await store.write(service.update, actor, "k", {"title": f"rotate {KEY} soon"})
    await store.write(user_state.add_prompt, "/w", TEXT, now, "t")
    await store.write(user_state.save_unsent, "/w", "me", user_state.Unsent(TEXT, [TEXT]), now)
    await store.write(fork.store_carry_over, "t", f"head {KEY}", [fork.CarriedPiece("thread", "t", TEXT)])
    page = {"scope": "thread", "owner_id": "t", "content": TEXT, "tokens": 4, "actor": "user"}
    await store.write(
        records.put_working_memory, records.PageVersion("w", now=1, resource_id="/w", **page), expected_version=0
    )


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database whose texts were stored as they were; a tool's output and a log beside it."""
    state = tmp_path / "data" / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    (state / "sakti" / "outputs").mkdir(parents=True)
    (state / "sakti" / "outputs" / "a.txt").write_text(TEXT)
    (state / "sakti" / "sakti.log").write_text(f"WARNING {TEXT}\n")

    async def make() -> None:
        store = await Store.open(tmp_path / "data" / "x.db", synchronous="NORMAL")
        await fill(store)
        await store.read(copies.copy_database, tmp_path / "data" / "x.db.backup-1")
        await store.close()

    with monkeypatch.context() as patched:
        patched.setattr(secrets, "find_secrets", lambda _text: [])
        asyncio.run(make())
    secrets.use_environment({})  # forgets what passed as masked
    return tmp_path / "data"


async def test_it_counts_first_and_changes_nothing(old: Path) -> None:
    store = await Store.open(old / "x.db")
    assert traces(old)
    found = await redaction.redact(store, do=False)
    assert found.found.kinds == {"github": 1, "password": 1}
    tables = {"messages", "threads", "tasks", "task_events", "prompt_history", "unsent", "carry_over", "search_docs"}
    assert tables <= set(found.found.texts) and found.found.texts["messages"] == 3
    assert len(found.files) == 2 and len(found.copies) == 1
    assert (await store.read(messages.get, "m1")).parts == (TextPart(TEXT),)  # type: ignore[union-attr]
    await store.close()


async def test_not_a_byte_is_left(old: Path) -> None:
    store = await Store.open(old / "x.db")
    done = await redaction.redact(store, do=True)
    assert done.flushed
    await store.close()
    assert traces(old) == []
    store = await Store.open(old / "x.db")
    said = await store.read(messages.list_after, "t", -1)
    assert secrets.find_marks(said[0].text) and said[3].text == "nothing to hide, heron"
    assert [type(p) for p in said[1].parts] == [ToolCallPart] and (said[1].part_tokens, said[1].tokens) == ((6,), 9)
    assert all(f.ok for f in await store.read(checks.check))
    assert (await store.read(search, "heron", Scope("/w"))).total == 1
    assert (await store.read(search, "rotate soon", Scope("/w"))).total == 1
    again = await redaction.redact(store, do=False)
    assert again.empty
    await store.close()


async def test_it_goes_on_where_it_was_stopped(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await Store.open(old / "x.db")
    whole = await redacting.count(store)
    pieces = 0
    each = upkeep.run_in_pieces

    async def stopped(*args: Any, **kwargs: Any) -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 4:
            raise StoreError("stopped here")
        await each(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "run_in_pieces", stopped)
        with pytest.raises(StoreError):
            await redaction.redact(store, do=True)
    left = await redacting.count(store)
    assert 0 < left.texts.total() < whole.texts.total()
    await redaction.redact(store, do=True)
    await store.close()
    assert traces(old) == []


async def test_other_windows_write_between_its_rows(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PIECE_S", 0.0)
    store = await Store.open(old / "x.db")
    found = await redacting.count(store)
    before = store.written
    await redacting.redact(store)
    rows = sum(1 for name in found.texts.elements() if name) // 3
    assert store.written - before >= rows, "one row at a time"
    await store.close()


async def test_a_row_that_changed_meanwhile_is_masked_as_it_is_now(old: Path) -> None:
    store = await Store.open(old / "x.db")
    model = next(m for m in redacting.MODELS if m.__name__ == "ThreadRow")
    dirty, _ = await store.read(redacting._read_dirty, model, None)
    await store.write(lambda db: db.execute_sql(f"UPDATE threads SET title = 'now {KEY}' WHERE id = 't'"))
    await store.write(redacting._write_masked, dirty, model=model)
    thread = await store.read(threads.get, "t")
    assert thread is not None and thread.title.startswith("now [secret:github:")
    await store.close()


def test_the_command_says_what_it_found_and_what_it_did(
    old: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from sakti.cli import main

    (tmp_path / "w").mkdir()
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("SAKTI_DB", str(old / "x.db"))

    def run(*args: str) -> str:
        monkeypatch.setattr("sys.argv", ["sakti", *args])
        try:
            main()
        except SystemExit as e:
            assert not e.code, capsys.readouterr()
        return capsys.readouterr().out

    told = run("db", "redact")
    assert "found  kind github" in told and "Nothing was changed. --yes masks them for good." in told
    assert traces(old)
    done = json.loads(run("db", "redact", "--yes", "--json"))
    assert done["masked"] and done["kinds"] == {"github": 1, "password": 1} and done["left"] == ""
    assert traces(old) == []
    assert "No secrets found." in run("db", "redact")
