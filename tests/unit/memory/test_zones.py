"""A thread that goes on in another time zone: said once in the log, nothing before it is rewritten."""

from __future__ import annotations

from pathlib import Path

from sakti.core.tokens import Estimator
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.store.log import lines as memory_log
from tests.fakes.memory import Driver, settings

BERLIN = "Europe/Berlin"


async def test_a_change_of_zone_is_a_line_and_rewrites_nothing(tmp_path: Path) -> None:
    observer = ExtractiveObserver(Estimator())
    driver = await Driver.make(tmp_path / "m.db", settings(2_000), observer=observer)

    async def said(text: str) -> list[str]:
        await driver.turn(text, [{"text": "ok"}])
        await driver.turn("Thanks!", [{"text": "."}])
        await driver.engine.compact()
        found = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
        assert not any(x.flags for x in found)
        return [f"{x.time} {x.content}" for x in found if "port" in x.content or "Times" in x.content]

    first = await said("The port is 8001.")
    assert len(first) == 1
    await driver.engine.close()
    driver.zone = BERLIN
    await driver.open()
    hour = int(first[0][:2])
    moved = await said("The other port is 8002.")
    assert moved[0] == first[0], "what was written stays"
    assert moved[1].endswith(f"Times are in {BERLIN} from here on, those before in UTC")
    assert int(moved[2][:2]) == (hour + 1) % 24, "it was said an hour later by the clock on the wall"
    await driver.engine.close()
    await driver.open()
    again = await said("The third port is 8003.")
    assert again[:3] == moved
    assert sum("Times are in" in line for line in again) == 1
    assert driver.engine.state.window.record.observed_timezone == BERLIN
    assert await driver.engine.reflect_now()
    newest = driver.engine.state.window.active[-1]
    assert newest.kind == "reflection"
    assert newest.metadata["timezone"] == BERLIN
    await driver.close()


async def test_the_zone_is_that_in_which_the_thread_was_last_used(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(2_000))
    await driver.engine.close()
    driver.zone = BERLIN
    await driver.open()
    await driver.engine.close()
    driver.zone = None  # type: ignore[assignment]
    await driver.open()
    assert driver.engine.state.timezone == BERLIN
    await driver.close()
