"""The Observer's title of a thread: taken while it is news, never over the user's own."""

from __future__ import annotations

from pathlib import Path

from sakti.core.events import ThreadChanged
from sakti.store.threads import threads
from tests.fakes.memory import Driver, settings


async def title(driver: Driver) -> str:
    thread = await driver.store.read(threads.get, "t1")
    assert thread is not None
    return thread.title


async def observe(driver: Driver) -> None:
    await driver.turn("something " * 100, [{"text": "ok"}])
    await driver.turn("thanks", [{"text": "."}])
    await driver.engine.compact()


async def test_a_title_follows_the_newest_observation(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(3_000))
    await observe(driver)
    first = await title(driver)
    await observe(driver)
    assert first.startswith("Title")
    assert await title(driver) != first
    assert driver.of(ThreadChanged)[-1].thread.title == await title(driver)
    await driver.close()


async def test_a_title_never_goes_back(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(3_000))
    await observe(driver)
    now = driver.clock.now()
    await driver.store.write(threads.rename, "t1", "Of what came later", now, by_user=False)
    await driver.store.write(threads.update_metadata, "t1", {"title_index": 10_000})
    await driver.open()
    await observe(driver)
    assert await title(driver) == "Of what came later"
    await driver.close()


async def test_a_title_of_the_user_stays_and_none_is_asked_for(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(3_000))
    await observe(driver)
    await driver.store.write(threads.rename, "t1", "Mine", driver.clock.now(), by_user=True)
    await driver.open()
    await observe(driver)
    assert await title(driver) == "Mine"
    assert driver.observer.inputs[0].want_title
    assert not driver.observer.inputs[-1].want_title
    await driver.close()


async def test_no_title_where_the_settings_say_so(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(3_000, thread_title=False))
    await observe(driver)
    assert not any(r.want_title for r in driver.observer.inputs)
    await driver.close()
