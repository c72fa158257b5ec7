"""Pin, edit, forget and undo on a line of the log, and the log at other times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from sakti.core.errors import MemoryFailure
from sakti.core.types import ContextPart, TextPart, Thread, ToolCallPart, ToolResultPart
from sakti.memory import corrections
from sakti.memory.log import lines
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.store.log import corrections as memory_corrections
from sakti.store.log import lines as memory_log
from sakti.store.maintenance import checks, purging
from sakti.store.search import search
from sakti.store.threads import fork, messages, threads
from tests.fakes.memory import Driver, ScriptedObserver, settings

LOG = "Date: Jan 1, 2026\n* 🔴 (10:00) one\n  * -> nested\n* 🟡 two\n\nDate: Jan 2, 2026\n* ✅ three"


def test_a_corrected_log_keeps_what_decorates_a_line_and_drops_empty_days() -> None:
    assert lines.apply_corrections(LOG, {}) == LOG
    assert lines.apply_corrections(LOG, {0: "ONE", 1: "N"}).split("\n")[1:3] == ["* 🔴 (10:00) ONE", "  * -> N"]
    assert "Jan 2" not in lines.apply_corrections(LOG, {3: None})
    assert lines.apply_corrections(LOG, {0: None, 1: None, 2: None, 3: None}) == ""


async def opened(path: Path, **values: object) -> Driver:
    driver = await Driver.make(path, settings(**values))  # pyright: ignore
    for number in range(8):
        await driver.turn(f"part {number} " + "word " * 200, [{"text": f"answer {number} " * 40}])
        await driver.engine.wait_idle()
    return driver


async def log(driver: Driver) -> list[memory_log.LogLine]:
    return await driver.store.read(memory_log.read_lines, driver.engine.record_id)


async def test_an_edit_is_seen_found_and_taken_back_to_the_letter(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    before = driver.engine.preview()
    line = (await log(driver))[0]
    done = await driver.engine.correct(line.id[-8:], "edit", "The user wants zebras.")
    assert (done.before, done.after) == (line.content, "The user wants zebras.")
    assert any("zebras" in b.text for b in driver.engine.preview().blocks)
    assert not any(line.content in b.text for b in driver.engine.preview().blocks)
    scope = search.Scope("workspace", None, ("observation", "reflection"))
    assert (await driver.store.read(search.search, "zebras", scope)).total == 1
    await driver.engine.close()
    await driver.open()  # another start reads the same
    assert any("zebras" in b.text for b in driver.engine.preview().blocks)
    await driver.engine.undo_correction()
    after = driver.engine.preview()
    assert [b.text for b in after.blocks] == [b.text for b in before.blocks]
    assert after.status.observations == before.status.observations
    assert (await driver.store.read(search.search, "zebras", scope)).total == 0
    with pytest.raises(MemoryFailure):
        await driver.engine.undo_correction()
    await driver.close()


async def test_forget_and_what_is_refused(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    line = (await log(driver))[0]
    await driver.engine.correct(line.id, "forget")
    assert not any(line.content in b.text for b in driver.engine.preview().blocks)
    refused = ((line.id, "forget", ""), (line.id, "edit", " "), ("nowhere", "pin", ""), ("", "pin", ""))
    for name, action, text in refused:
        with pytest.raises(MemoryFailure):
            await driver.engine.correct(name, action, text)  # pyright: ignore
    await driver.engine.undo_correction(line.id)
    assert any(line.content in b.text for b in driver.engine.preview().blocks)
    await driver.close()


async def test_the_end_of_an_id_that_two_lines_share_names_none(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    one, two = (await log(driver))[:2]
    for number, line in enumerate((one, two)):
        values = (f"line-{number}-same", line.id)
        await driver.store.write(lambda db, v=values: db.execute_sql("UPDATE observations SET id = ? WHERE id = ?", v))
    for name, code in (("same", "ambiguous"), ("0-same", ""), ("other", "not_found")):
        if not code:
            assert (await driver.engine.correct(name, "pin")).line_id == "line-0-same"
            continue
        with pytest.raises(MemoryFailure) as raised:
            await driver.engine.correct(name, "pin")
        assert raised.value.code == code
    await driver.close()


async def test_what_was_forgotten_with_a_line_comes_back_with_it(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    found = await log(driver)
    group = [x for x in found if x.group_id == found[0].group_id]
    below = [x.id for x in group[1:]]
    marks = ", ".join("?" * len(below))
    await driver.store.write(
        lambda db: db.execute_sql(f"UPDATE observations SET depth = 1 WHERE id IN ({marks})", below)
    )
    await driver.engine.correct(group[0].id, "forget")
    assert below and [x.id for x in await log(driver) if x.forgotten] == [x.id for x in group]
    await driver.engine.undo_correction()
    assert not any(x.forgotten for x in await log(driver))
    await driver.close()


async def test_a_waiting_reflection_of_what_a_correction_said_is_dropped_with_it(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db", observation_tokens=4_000)
    await driver.engine.correct((await log(driver))[0].id, "edit", "The user wants zebras.")
    assert driver.engine.reflection.begin(1, whole=True)
    await driver.engine.wait_idle()
    assert driver.engine.state.window.reflection is not None
    await driver.engine.undo_correction()
    assert driver.engine.state.window.reflection is None
    await driver.close()


async def test_another_window_takes_a_correction_in_at_its_next_turn(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    line = (await log(driver))[0]
    await driver.store.write(
        memory_corrections.correct_line,
        driver.engine.record_id,
        line.id,
        "edit",
        text="From elsewhere.",
        now=driver.clock.now(),
    )
    await driver.begin("and now?")
    prepared = await driver.prepare()
    assert any("From elsewhere." in b.text for b in prepared.blocks)
    await driver.close()


async def test_a_pinned_line_outlives_reflections_and_a_waiting_one_is_dropped_by_an_edit(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db", observation_tokens=4_000)
    found = await log(driver)
    await driver.engine.correct(found[1].id, "pin")
    assert await driver.engine.reflect_now()
    assert any(found[1].content in b.text for b in driver.engine.preview().blocks)
    pinned = [x for x in await log(driver) if x.pinned]
    assert [x.content for x in pinned] == [found[1].content]
    flow = driver.engine.state
    assert driver.engine.reflection.begin(1, whole=True)
    await driver.engine.wait_idle()
    waiting = flow.window.reflection
    assert waiting is not None
    await driver.engine.correct(pinned[0].id, "edit", "It is another thing.")
    assert flow.window.reflection is None
    await driver.close()


async def test_a_reflection_of_a_log_that_was_corrected_meanwhile_is_not_stored(tmp_path: Path) -> None:
    import asyncio

    driver = await opened(tmp_path / "m.db", observation_tokens=4_000)
    driver.reflector.gate = asyncio.Event()
    flow = driver.engine.state
    assert driver.engine.reflection.begin(1, whole=True)
    while not driver.reflector.inputs:
        await asyncio.sleep(0)
    await driver.engine.correct((await log(driver))[0].id, "forget")
    driver.reflector.gate.set()
    await driver.engine.wait_idle()
    assert flow.window.reflection is None
    assert "corrected meanwhile" in flow.note
    await driver.close()


async def test_the_log_as_it_was(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db", observation_tokens=4_000)
    record, start = driver.engine.record_id, driver.clock.now()
    first = await log(driver)
    times = [start]
    line = first[0]
    for change in ("edit", "forget", "undo", "undo", "reflect"):
        driver.clock.advance(60)
        if change == "undo":
            await driver.engine.undo_correction()
        elif change == "reflect":
            await driver.engine.reflect_now()
        else:
            await driver.engine.correct(line.id, change, "Other words.")  # pyright: ignore
        times.append(driver.clock.now())

    async def at(time: int) -> list[str]:
        return [x.content for x in await driver.store.read(memory_corrections.read_log_at, record, time)]

    whole = [x.content for x in first]
    assert await at(times[0]) == whole
    assert await at(times[1]) == ["Other words.", *whole[1:]]
    assert await at(times[2]) == whole[1:]
    assert await at(times[3]) == ["Other words.", *whole[1:]]
    assert await at(times[4]) == whole
    assert await at(times[5]) == [x.content for x in await log(driver)] != whole
    assert await at(0) == []
    change = corrections.diff(
        await driver.store.read(memory_corrections.read_log_at, record, times[0]),
        await driver.store.read(memory_corrections.read_log_at, record, times[1]),
    )
    assert [(a.content, b.content) for a, b in change.changed] == [(line.content, "Other words.")]
    assert not change.added
    assert not change.removed
    await driver.close()


def test_times() -> None:
    now = 1_768_478_400_000  # 2026-01-15 12:00 UTC
    parse = corrections.parse_time
    assert parse("now", now, "UTC") == now
    assert parse("90m", now, "UTC") == now - 90 * 60_000
    assert parse("2d ago", now, "UTC") == now - 2 * 86_400_000
    assert parse("2026-01-15", now, "UTC") == now - 12 * 3_600_000
    assert parse("yesterday", now, "UTC") == now - 36 * 3_600_000
    assert parse("2026-01-15T13:00", now, "Europe/Berlin") == now
    assert parse("1768478400000", now, "UTC") == now
    assert parse("soon", now, "UTC") is None


async def found(driver: Driver, text: str, *kinds: str) -> int:
    scope = search.Scope("workspace", None, kinds or ("observation", "reflection"))
    return (await driver.store.read(search.search, f'"{text}"', scope)).total


async def test_forgetting_reaches_the_groups_that_a_reflection_merged(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db", observation_tokens=20_000)
    assert await driver.engine.reflect_now()
    line = next(x for x in await log(driver) if x.kind == "reflection" and "user" in x.content)
    words = line.content.split(": ")[1].split(" word")[0]
    assert await found(driver, words) == 2
    await driver.engine.correct(line.id, "forget")
    assert await found(driver, words) == 0
    await driver.engine.undo_reflection()
    assert all(words not in b.text for b in driver.engine.preview().blocks), "undo does not bring it back"
    await driver.engine.undo_correction()
    assert await found(driver, words) == 1
    assert any(words in b.text for b in driver.engine.preview().blocks)
    await driver.close()


async def test_undo_of_forgetting_restores_every_group(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db", observation_tokens=20_000)
    for _ in range(2):
        assert await driver.engine.reflect_now()
    lines_before = [(x.content, x.forgotten) for x in await log(driver)]
    line = next(x for x in await log(driver) if x.kind == "reflection" and "user" in x.content)
    words = line.content.split(": ")[1].split(" word")[0]
    before = await found(driver, words)
    await driver.engine.correct(line.id, "forget")
    assert await found(driver, words) == 0
    await driver.engine.undo_correction()
    assert await found(driver, words) == before > 1
    assert [(x.content, x.forgotten) for x in await log(driver)] == lines_before
    await driver.close()


class Quoting(ScriptedObserver):
    """An Observer whose task and title are in the words of the first message."""

    async def observe(self, request: ObserveInput) -> ObserveResult:
        result = await super().observe(request)
        sentence = "Set the vault to zanzibar cloves"
        text = f"{result.text}\n* 🔴 (10:00) User stated: {sentence}"
        return structs.replace(result, text=text, current_task=f"Primary: {sentence}", title=sentence)


async def quoting(path: Path) -> Driver:
    driver = await Driver.make(path, settings(observation_tokens=20_000), observer=Quoting())
    for number in range(8):
        first = "Set the vault to zanzibar cloves " if not number else ""
        await driver.turn(f"{first}part {number} " + "word " * 200, [{"text": f"answer {number} " * 40}])
        await driver.engine.wait_idle()
    other = Thread("t2", "workspace", "", driver.clock.now(), driver.clock.now())
    await driver.store.write(threads.create, other)
    piece = fork.CarriedPiece("thread", "t1", "Its task: Primary: Set the vault to zanzibar cloves")
    await driver.store.write(fork.store_carry_over, "t2", "Earlier:", [piece])
    assert "zanzibar" in sent_task(driver) and "zanzibar" in await driver.store.read(fork.read_carried_text, "t2")
    return driver


def sent_task(driver: Driver) -> str:
    state = driver.engine.state
    facts = [p.text for m in driver.engine.preview().messages for p in m.parts if isinstance(p, ContextPart)]
    groups = [g.current_task or "" for g in (*state.window.active, *state.window.buffered)]
    return "\n".join([*facts, *groups, str(state.window.thread.metadata.get("current_task"))])


async def test_a_forgotten_line_is_not_sent_as_a_task_until_that_is_undone(tmp_path: Path) -> None:
    driver = await quoting(tmp_path / "m.db")
    for line in [x for x in await log(driver) if "zanzibar" in x.content][:1]:
        await driver.engine.correct(line.id, "forget")
    assert "zanzibar" not in sent_task(driver)
    assert "zanzibar" not in await driver.store.read(fork.read_carried_text, "t2")
    await driver.engine.undo_correction()
    assert "zanzibar" in sent_task(driver)
    assert "zanzibar" in await driver.store.read(fork.read_carried_text, "t2")
    await driver.close()


async def test_what_is_erased_for_good_is_in_no_task_or_title(tmp_path: Path) -> None:
    driver = await quoting(tmp_path / "m.db")
    line = next(x for x in await log(driver) if "zanzibar" in x.content)
    await driver.engine.correct(line.id, "forget")
    await driver.engine.undo_correction()
    for line in [x for x in await log(driver) if "zanzibar" in x.content]:
        await driver.engine.erase(line.id)
    (first,) = [m for m in await driver.store.read(messages.list_page, "t1") if "zanzibar" in m.text]
    await purging.delete_message(driver.store, first.id)
    await driver.close()
    for file in tmp_path.glob("m.db*"):
        assert b"zanzibar" not in file.read_bytes(), file.name


async def test_a_deleted_message_is_not_sent_as_a_task(tmp_path: Path) -> None:
    driver = await quoting(tmp_path / "m.db")
    (first,) = [m for m in await driver.store.read(messages.list_page, "t1") if "zanzibar" in m.text]
    await purging.delete_message(driver.store, first.id)
    await driver.engine.close()
    await driver.open()
    assert "zanzibar" not in sent_task(driver)
    assert "zanzibar" not in await driver.store.read(fork.read_carried_text, "t2")
    await driver.close()


async def test_forgetting_for_good_leaves_no_byte_of_the_line(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db", observation_tokens=20_000)
    copy = tmp_path / "m.db.before-0011"
    copy.write_bytes(b"an older file")
    line = (await log(driver))[1]
    await driver.engine.correct(line.id, "edit", "User likes zanzibar cloves")
    await driver.engine.reflect_now()
    rows = await log(driver)
    line = next((x for x in rows if "zanzibar" in x.content), line)
    await driver.say(
        "assistant", ToolCallPart("c1", "memory-search", {"query": "cloves"}), ToolCallPart("c2", "bash", {})
    )
    shown = {"results": [{"id": line.id, "text": "…es zanzibar"}, {"id": "other", "text": f"{line.content}."}]}
    results = [("memory-search", json.dumps(shown)), ("bash", f"* 🔴 (10:00) {line.content}\nand more")]
    parts = [ToolResultPart(f"c{n + 1}", name, content) for n, (name, content) in enumerate(results)]
    await driver.say("tool", *parts)
    await driver.say("user", TextPart("thanks"))
    await driver.engine.erase(line.id)
    assert not any("zanzibar" in b.text for b in driver.engine.preview().blocks)
    assert not any("zanzibar" in str(m.parts) for m in driver.engine.preview().messages)
    assert await found(driver, "zanzibar") == 0
    assert await found(driver, "more", "message") == 1, "what stands beside it stays and is found"
    assert not copy.exists()
    with pytest.raises(MemoryFailure):
        await driver.engine.undo_correction()
    assert all(f.ok for f in await driver.store.read(checks.check))
    await driver.close()
    for file in tmp_path.glob("m.db*"):
        assert b"zanzibar" not in file.read_bytes(), file.name
