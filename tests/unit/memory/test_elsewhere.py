"""One memory for a workspace: what other threads said and no observation has yet."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs
from msgspec.structs import replace

from sakti.core.tokens import Estimator
from sakti.memory import shared
from sakti.store.log.lines import MessageExcerpt
from tests.fakes.memory import Driver, settings


def message(number: int, thread: str, text: str) -> MessageExcerpt:
    return MessageExcerpt(thread, number, "user", text, number * 60_000)


def test_the_least_recent_goes_first_and_ids_are_obscured() -> None:
    said = [message(i, "abc" if i % 2 else "xyz", f"number {i} " + "word " * 30) for i in range(10)]
    text = shared.format_other_threads(said, Estimator(), 320, "UTC")
    assert "number 9" in text
    assert "number 0 " not in text
    assert text.rindex(shared.make_thread_alias("abc")) > text.index(shared.make_thread_alias("xyz"))
    assert 'id="abc"' not in text
    assert Estimator().count(text) <= 320
    assert shared.format_other_threads(said, Estimator(), 10, "UTC") == ""
    named = [structs.replace(said[0], title='Fix "login"')]
    head = f"""<thread id="{shared.make_thread_alias("xyz")}" title="Fix 'login'">"""
    assert head in shared.format_other_threads(named, Estimator(), 320, "UTC")


async def test_a_thread_is_told_of_what_others_said_until_it_is_observed(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", replace(settings(), scope="resource"))
    await driver.turn("The other thread talks of zebras.", [{"text": "Zebras it is."}])
    await driver.engine.close()
    driver.said.clear()
    await driver.open("t2")
    await driver.begin("What is new?")
    driver.said[:] = [m for m in driver.said if m.thread_id == "t2"]
    prepared = await driver.prepare()
    (block,) = [b for b in prepared.blocks if b.kind == "other_threads"]
    assert "zebras" in block.text
    assert "t1" not in block.text
    assert block.tokens <= 1_000 * shared.OTHERS_SHARE
    assert not block.edge
    await driver.step({"text": "Nothing."}, "c1")
    await driver.engine.end_turn()
    await driver.engine.close()
    driver.said.clear()
    await driver.open("t1")
    for number in range(8):
        await driver.turn(f"part {number} " + "word " * 200, [{"text": "answer " * 40}])
        await driver.engine.wait_idle()
    await driver.engine.close()
    driver.said.clear()
    await driver.open("t2")
    await driver.begin("And now?")
    later = await driver.engine.prepare(step=1)
    assert not [b for b in later.blocks if b.kind == "other_threads" and "zebras" in b.text]
    await driver.close()


async def test_what_is_still_being_written_elsewhere_is_not_told(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", replace(settings(), scope="resource"))
    await driver.turn("The other thread talks of zebras.", [{"text": "Lions it is."}])
    change = "UPDATE messages SET state = 'provisional' WHERE role = 'assistant'"
    await driver.store.write(lambda db: db.execute_sql(change))
    await driver.engine.close()
    driver.said.clear()
    await driver.open("t2")
    await driver.begin("What is new?")
    driver.said[:] = [m for m in driver.said if m.thread_id == "t2"]
    (block,) = [b for b in (await driver.prepare()).blocks if b.kind == "other_threads"]
    assert "zebras" in block.text and "Lions" not in block.text
    await driver.close()


async def test_a_memory_of_its_own_is_not_told(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    await driver.turn("The other thread talks of zebras.", [{"text": "Zebras it is."}])
    await driver.engine.close()
    driver.said.clear()
    await driver.open("t2")
    await driver.begin("What is new?")
    assert not [b for b in (await driver.prepare()).blocks if b.kind == "other_threads"]
    await driver.close()
