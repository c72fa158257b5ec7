"""`sakti db archive`: old parts stand in a second file, and everything is found and opened as before."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import sys
import zlib
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sakti.core.errors import StoreError
from sakti.core.types import MarkerPart, Message, Part, TextPart, Thread, ToolCallPart, ToolResultPart
from sakti.store import archive_file, copies, secrets
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import archiving, checks, purging, recovery, redacting, upkeep
from sakti.store.search.search import Scope, search
from sakti.store.threads import codec, fork, messages, threads
from sakti.store.threads import removal as thread_removal
from tests.fakes.clock import FakeClock
from tests.unit.store.test_packing import SAID, WORDS, all_found, older

DAY = 86_400_000
LATE = 1 << 60
SECRET = "AKIA" + "ABCDEFGH12345678"
LOG = "\n".join(f"2026-01-01 ERROR worker {n}: the gimbal solver overflowed at step {n * 7}" for n in range(60))
SHORT = "a heron"


def noise(n: int) -> str:
    """A long text of its own words."""
    rng = random.Random(n)
    return f"walrus{n} word{n}x7 " + " ".join(f"{rng.getrandbits(48):x}" for _ in range(60))


async def say(store: Store, *texts: str | Part, thread: str = "t", observed: bool = True) -> list[Message]:
    if await store.read(threads.get, thread) is None:
        await store.write(threads.create, Thread(thread, "/w", "", 1, 1))
    said = [
        Message(f"{thread}-{n}", thread, "/w", "user", (TextPart(t) if isinstance(t, str) else t,), n * DAY)
        for n, t in enumerate(texts)
    ]
    said = [await store.write(messages.append, one) for one in said]
    if observed:
        await store.write(observe, thread, 0, len(said) - 1)
    return said


def observe(db: Database, thread: str, first: int, last: int, state: str = "active") -> None:
    db.execute_sql(
        "INSERT OR IGNORE INTO observational_memory (id, lookup_key, scope, thread_id, resource_id, origin_type,"
        " created_at, updated_at) VALUES (?, ?, 'thread', ?, '/w', 'observation', 1, 1)",
        (f"r-{thread}", f"thread:{thread}", thread),
    )
    db.execute_sql(
        "INSERT INTO observation_groups (id, record_id, thread_id, kind, state, text, first_index, last_index,"
        " created_at) VALUES (?, ?, ?, 'observation', ?, 'seen', ?, ?, 1)",
        (f"g-{thread}-{first}-{state}", f"r-{thread}", thread, state, first, last),
    )


async def archived(store: Store) -> list[str]:
    """Ids of the messages whose parts are in the archive."""
    sql = f"SELECT id FROM messages WHERE {archive_file.REFERS} ORDER BY pk"
    return [i for (i,) in await store.read(lambda db: db.execute_sql(sql).fetchall())]


def kept(path: Path) -> list[str]:
    """What the archive of a database holds, in clear text."""
    file = apsw.Connection(str(archive_file.get_path(path)))
    rows = file.execute("SELECT parts FROM parts ORDER BY key").fetchall()
    file.close()
    return [zlib.decompress(p).decode() if isinstance(p, bytes) else str(p) for (p,) in rows]


async def hits(store: Store, words: str) -> list[str]:
    return [h.id for h in (await store.read(search, words, Scope("/w"))).hits]


async def all_is_well(store: Store) -> bool:
    return [f for f in await store.read(checks.check) if not f.ok and f.name != "memory"] == []


async def test_old_parts_move_and_are_found_and_opened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "COUNTED", ())
    said = await say(store, LOG, SHORT, noise(2), noise(3), noise(4))
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(archiving, "_ROWS", 2)
    done = await archiving.archive(store, before=4 * DAY, progress=lambda *how_far: told.append(how_far))
    assert told == [(2, 3), (3, 3), (3, 3)]
    assert (done.messages, done.path) == (3, archive_file.get_path(store.path)) and done.bytes > 300
    assert await archived(store) == ["t-0", "t-2", "t-3"]
    assert done.path.stat().st_mode & 0o777 == 0o600 and len(kept(store.path)) == 3
    assert await store.read(messages.list_page, "t") == said
    for words, first in (("walrus2", "t-2"), ("gimbal solver", "t-0"), ("lver overf", "t-0"), ("word3x7", "t-3")):
        assert (await hits(store, words))[0] == first
    page = await store.read(search, "walrus2", Scope("/w"))
    assert page.hits[0].text == noise(2) and "walrus2" in page.hits[0].snippet
    assert await all_is_well(store)
    figures = await store.read(upkeep.collect_stats, store.path)
    assert figures["archived"] == 3 and figures["archive_bytes"] == done.path.stat().st_size
    again = await archiving.archive(store, before=4 * DAY)
    assert (again.messages, again.removed) == (0, 0)


async def test_what_is_needed_stays(store: Store) -> None:
    await say(store, noise(0), noise(1), noise(2), noise(3), observed=False)
    assert (await archiving.archive(store, before=LATE)).messages == 0
    assert not archive_file.get_path(store.path).exists(), "nothing to move: no file"
    await store.write(observe, "t", 0, 1)
    await store.write(observe, "t", 2, 2, "buffered")

    def link(db: Database, status: str) -> None:
        db.execute_sql(
            "INSERT OR REPLACE INTO tasks (id, resource_id, handle, title, status, close_reason, closed_at, created_at,"
            " updated_at) VALUES ('k', '/w', 'k', 'a task', ?, ?, ?, 1, 1)",
            (status, "completed" if status == "closed" else None, 1 if status == "closed" else None),
        )
        db.execute_sql("INSERT OR IGNORE INTO task_messages VALUES ('k', 't-1', 'output', 1)")

    await store.write(link, "open")
    await archiving.archive(store, before=LATE)
    assert await archived(store) == ["t-0"]
    await store.write(link, "closed")
    await archiving.archive(store, before=LATE)
    assert await archived(store) == ["t-0", "t-1"], "what waits to be observed stays"


async def test_a_missing_archive_is_said_and_nothing_fails(store: Store, tmp_path: Path) -> None:
    said = await say(store, LOG, noise(1), SHORT)
    await archiving.archive(store, before=LATE)
    place = archive_file.get_path(store.path)
    away = place.rename(tmp_path / "away")
    again = await Store.open(store.path)
    assert again.notices == [archive_file.MISSING]
    assert (await hits(again, "walrus1"))[0] == "t-1" and (await hits(again, "heron"))[0] == "t-2"
    for words in (
        "lver overf",
        "path:src/a",
        "数据库",
        '"walrus1 word1x7"',
        "walrus1 -heron",
        "what did the walrus1 say?",
    ):
        await hits(again, words)
    opened = await again.read(messages.get, "t-0")
    assert opened is not None and opened.parts == (MarkerPart("withheld", archive_file.MISSING),)
    found = {f.name: f for f in await again.read(checks.check)}
    assert found["archive"].detail == "2 messages are in an archive that is missing"
    assert [f.name for f in found.values() if not f.ok and f.name != "memory"] == ["archive"]
    for refused in (
        again.write(thread_removal.delete_messages, "t-2", 5),
        redacting.count(again),
        redacting.redact(again),
        upkeep.rebuild_index(again),
        archiving.archive(again, before=LATE),
    ):
        with pytest.raises(StoreError) as raised:
            await refused
        assert raised.value.code == "archive" and raised.value.message == archive_file.MISSING
    await again.write(messages.append, Message("new", "t", "/w", "user", (TextPart("a curlew"),), 9))
    assert await hits(again, "curlew") == ["new"]
    await again.write(thread_removal.delete_thread, "t", 5)
    await upkeep.run_quietly(again, upkeep.reindex)  # another time
    with pytest.raises(StoreError, match="archive of this database is missing"):
        await purging.purge_thread(again, "t")
    await again.write(thread_removal.restore_thread, "t")
    away.rename(place)
    assert [m for m in await again.read(messages.list_page, "t") if m.id != "new"] == said
    await upkeep.reindex(again)
    assert await all_is_well(again) and (await hits(again, "word1x7"))[0] == "t-1"
    await again.close()


async def test_another_file_in_its_place_is_not_taken_for_it(store: Store) -> None:
    await say(store, LOG)
    await archiving.archive(store, before=LATE)
    place = archive_file.get_path(store.path)
    place.unlink()
    archive_file.create(store.path)
    assert await store.read(archive_file.is_missing)
    place.write_bytes(b"no database at all" * 100)
    assert await store.read(archive_file.is_missing) and await hits(store, "gimbal") == ["t-0"]
    with pytest.raises(StoreError):
        await archiving.sweep(store)


async def test_what_goes_for_good_goes_there_too(store: Store) -> None:
    await say(store, noise(0), noise(1), noise(2))
    await say(store, noise(8), thread="u")
    await archiving.archive(store, before=LATE)
    await purging.delete_message(store, "t-1")
    assert len(kept(store.path)) == 3 and not [t for t in kept(store.path) if "walrus1" in t]
    await store.write(thread_removal.delete_thread, "t", 5)
    await purging.purge_thread(store, "t")
    await purging.clean(store)
    assert [t for t in kept(store.path) if "walrus8" in t] == kept(store.path) != []
    words = await store.read(lambda db: db.execute_sql("SELECT term FROM search_vocabulary").fetchall())
    assert ("walrus8",) in words and not [w for (w,) in words if w.startswith(("walrus0", "walrus2", "word0"))]
    assert await all_is_well(store)


async def test_what_a_search_had_shown_of_a_deleted_message_goes_too(store: Store) -> None:
    shown = {"results": [{"id": "t-0", "text": noise(0)[20:300]}, {"id": "t-9", "text": f"walrus9 {noise(3)}"}]}
    copy = ToolResultPart("c", "memory-search", json.dumps(shown))
    recalled = ToolResultPart("d", "memory-search", json.dumps({"id": "t-1", "text": json.dumps(shown)}))
    await say(store, noise(0), copy, recalled, noise(2))
    await say(store, f"I read: {noise(0)}", thread="u")
    await archiving.archive(store, before=LATE)
    await purging.delete_message(store, "t-0")
    part = noise(0)[30:200]
    assert await hits(store, part.split()[1]) == ["u-0"], "what somebody said again stays"
    results = [r for m in await store.read(messages.list_after, "t", -1) for r in m.tool_results]
    assert len(results) == 2 and not [r for r in results if part in r.content]
    assert all("walrus9" in r.content for r in results)
    assert not {"t-1", "t-2"} & set(await hits(store, "walrus9")), "results of searches are not searched"
    assert not [t for t in kept(store.path) if part in t and "I read" not in t]
    assert await all_is_well(store)


async def test_a_fork_keeps_what_it_shares(store: Store) -> None:
    said = await say(store, noise(0), noise(1))
    await archiving.archive(store, before=LATE)
    made = await store.write(fork.fork, "t", id="f", ids=store.ids, now=9)
    await store.write(thread_removal.delete_thread, "t", 5)
    await purging.purge_thread(store, "t")
    await purging.clean(store)
    assert [m.parts for m in await store.read(messages.list_page, made.id)] == [m.parts for m in said]
    assert len(kept(store.path)) == 2 and await all_is_well(store)


async def test_secrets_are_masked_there_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("sakti.store.secrets.find_secrets", lambda _text: [])
        await say(store, f"{LOG}\nexport GIMBAL_TOKEN={SECRET}", noise(1))
    secrets.use_environment({})  # forgets what passed as masked
    await archiving.archive(store, before=LATE)
    assert [SECRET in text for text in kept(store.path)] == [True, False]
    assert (await redacting.count(store)).texts["messages"] == 1
    await redacting.redact(store)
    await purging.clean(store)
    assert [SECRET in text for text in kept(store.path)] == [False]
    assert not await hits(store, SECRET) and await hits(store, "GIMBAL_TOKEN") == ["t-0"]
    assert await all_is_well(store)
    await archiving.archive(store, before=LATE)
    assert sorted(await archived(store)) == ["t-0", "t-1"] and SECRET not in "".join(kept(store.path))


async def test_a_backup_has_its_own(store: Store, tmp_path: Path) -> None:
    said = await say(store, LOG, noise(1))
    await archiving.archive(store, before=LATE)
    target = tmp_path / "copy.db"
    written = await store.read(copies.backup, store.path, target)
    assert written == [target, archive_file.get_path(target)] and {p.stat().st_mode & 0o777 for p in written} == {0o600}
    target.unlink()
    with pytest.raises(StoreError, match=r"copy\.db\.archive already exists"):
        await store.read(copies.backup, store.path, target)
    written[1].unlink()
    shutil.copy(store.path, target)
    with pytest.raises(StoreError, match="already exists"):
        await store.read(copies.backup, store.path, target)
    assert not written[1].exists(), "no copy of the archive without one of the database"
    target.unlink()
    await store.read(copies.backup, store.path, target)
    archive_file.close_archive(store.path)
    archive_file.get_path(store.path).unlink()
    other = await Store.open(target)
    assert await other.read(messages.list_page, "t") == said and await all_is_well(other)
    await other.close()


async def test_vacuum_and_recover_know_it(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "s.db")
    said = await say(store, *map(noise, range(40)))
    await archiving.archive(store, before=LATE)
    for n in range(30):
        await store.write(thread_removal.delete_messages, f"t-{n}", 9)
    await archiving.sweep(store)
    place, path = archive_file.get_path(store.path), store.path
    before = place.stat().st_size
    await store.close()
    upkeep.vacuum(path)
    assert place.stat().st_size < before
    recovery.recover(path, FakeClock(9))
    again = await Store.open(path)
    assert (await again.read(messages.list_page, "t"))[30:] == said[30:]
    assert (await hits(again, "walrus35"))[0] == "t-35" and await all_is_well(again)
    await again.close()


async def test_damage_of_it_is_found(store: Store) -> None:
    await say(store, LOG, noise(1))
    await archiving.archive(store, before=LATE)
    place = archive_file.get_path(store.path)
    file = apsw.Connection(str(place))
    file.execute("DELETE FROM parts WHERE key = 1")
    file.close()
    (found,) = [f for f in await store.read(checks.check) if f.name == "archive"]
    assert found.detail == f"1 of 2 archived messages cannot be read in {place}" and not found.is_repairable


async def test_what_can_be_read_of_a_damaged_one_is_recovered(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "s.db")
    said = await say(store, *(noise(n) * 4 for n in range(30)))
    await archiving.archive(store, before=LATE)
    await store.close()
    place = archive_file.get_path(store.path)
    damaged = bytearray(place.read_bytes())
    middle = len(damaged) // 8192 * 4096
    damaged[middle : middle + 4096] = b"\x55" * 4096
    place.write_bytes(damaged)
    found = {f.name: f for f in checks.inspect(store.path)}
    assert not found["archive"].ok and found["integrity"].ok and "damaged" in found["archive"].detail
    store = await Store.open(store.path)
    lost = [m.id for m in await store.read(messages.list_page, "t") if isinstance(m.parts[0], MarkerPart)]
    assert 0 < len(lost) < 20
    await store.close()
    told = recovery.recover(store.path, FakeClock(9)).repaired
    assert [f"{30 - len(lost)} of 30 texts in the archive could be read" in line for line in told] == [True]
    assert list(tmp_path.glob("s.db.archive.damaged-*")) and len(kept(store.path)) == 30 - len(lost)
    store = await Store.open(store.path)
    opened = await store.read(messages.list_page, "t")
    assert [m for m in opened if m.id not in lost] == [m for m in said if m.id not in lost]
    (found["archive"],) = [f for f in await store.read(checks.check) if f.name == "archive"]
    assert found["archive"].detail.startswith(f"{len(lost)} of 30 archived messages cannot be read")
    await store.close()


async def test_without_room_nothing_is_moved(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    await say(store, LOG)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 0, 100))
    with pytest.raises(StoreError, match="Archiving needs") as raised:
        await archiving.archive(store, before=LATE)
    assert raised.value.code == "full" and not archive_file.get_path(store.path).exists()


async def test_what_is_not_saved_moves_nothing(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "s.db")
    said = await say(store, LOG)
    await store.close()
    unsaved = await Store.open(tmp_path / "s.db", keep=False)
    with pytest.raises(StoreError) as raised:
        await archiving.archive(unsaved, before=LATE)
    assert raised.value.code == "read_only" and not archive_file.get_path(store.path).exists()
    await unsaved.close()
    store = await Store.open(tmp_path / "s.db")
    await archiving.archive(store, before=LATE)
    await store.close()
    unsaved = await Store.open(tmp_path / "s.db", keep=False)
    assert await unsaved.read(messages.list_page, "t") == said and unsaved.notices == []
    await unsaved.write(thread_removal.delete_messages, "t-0", 5)
    assert await archiving.sweep(unsaved) == 0 and len(kept(tmp_path / "s.db")) == 1
    await unsaved.close()


# Opens a database and is killed in the n-th piece: the archive has it, the database not yet.
DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from sakti.store import archive_file
from sakti.store.database import Store
from sakti.store.maintenance import archiving

left, put = int(sys.argv[2]), archive_file.store_parts
def dying(*arguments):
    global left
    left -= 1
    found = put(*arguments)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
archiving._ROWS, archive_file.store_parts = 2, dying
async def main():
    store = await Store.open(Path(sys.argv[1]))
    await archiving.archive(store, before=1 << 60)
asyncio.run(main())
"""


async def test_killed_anywhere_the_next_one_goes_on(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "s.db")
    said = await say(store, *map(noise, range(14)))
    await store.close()
    for pieces, moved in ((1, 0), (3, 4), (2, 6)):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(store.path), str(pieces))
        assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
        again = await Store.open(store.path)
        assert len(await archived(again)) == moved and await again.read(messages.list_page, "t") == said
        assert await all_is_well(again)
        await again.close()
    again = await Store.open(store.path)
    done = await archiving.archive(again, before=LATE)
    assert (done.messages, done.removed) == (8, 6) and len(kept(store.path)) == 14
    assert await again.read(messages.list_page, "t") == said and await all_is_well(again)
    await again.close()


async def test_two_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "_ROWS", 1)
    one = await Store.open(tmp_path / "s.db")
    said = await say(one, *map(noise, range(12)))
    two = await Store.open(tmp_path / "s.db")
    done = await asyncio.gather(*(archiving.archive(s, before=LATE) for s in (one, two)))
    assert sum(d.messages for d in done) == 12 and len(kept(one.path)) == 12
    assert await two.read(messages.list_page, "t") == said and await all_is_well(one)
    await two.close()
    await one.close()


async def test_an_older_database_is_packed_and_archived(tmp_path: Path) -> None:
    older(tmp_path / "s.db", copies=2)
    store = await Store.open(tmp_path / "s.db")
    for n in range(2):
        await store.write(observe, f"n{n}", 0, len(SAID) - 1)
    assert (await archiving.archive(store, before=LATE)).messages >= 2
    found = await all_found(store)
    assert {words for words, n in found.items() if n} == WORDS.keys()
    for n, (_, parts, _) in enumerate(SAID):
        assert [(await store.read(messages.get, f"n{i}-{n}")).parts for i in range(2)] == [parts, parts]
    assert await all_is_well(store)
    await store.close()


ANY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).map(TextPart),
    st.builds(lambda t: ToolResultPart("c", "read", t, False, {}), st.text('ab\n"\\é', min_size=1, max_size=900)),
    st.builds(lambda t: ToolCallPart("c", "read", {"path": t}), st.text('ab\n"\\é', max_size=40)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(ANY, min_size=1, max_size=3), min_size=1, max_size=5))
def test_parts_come_back_as_they_were(tmp_path: Path, said: Sequence[Sequence[Part]]) -> None:
    database = tmp_path / "s.db"
    archive_file.create(database)
    archive_file.register_database(database)
    stored = [codec.encode_parts(parts) for parts in said]
    file = archive_file.connect(archive_file.get_path(database))
    found = archive_file.store_parts(file, [codec.unpack(value) for value in stored])
    file.close()
    assert [codec.unpack(r) for r in found] == [codec.unpack(v) for v in stored]
    assert [codec.read_text("", r) for r in found] == [codec.read_text("", v) for v in stored]
    assert len({archive_file.key_of(r) for r in found}) == len(found)
