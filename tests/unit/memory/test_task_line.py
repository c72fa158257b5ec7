"""One line of each request names the task in progress and how many are ready."""

from __future__ import annotations

from pathlib import Path

from sakti.core.types import ContextPart
from sakti.tasks import service
from sakti.tasks.service import Actor
from tests.fakes.memory import Driver, settings


async def facts(driver: Driver) -> str:
    await driver.engine.begin_turn(provider="scripted", model="demo")
    return "\n".join(driver.engine.preview().tail)


async def test_requests_name_the_task_in_progress_and_count_the_ready_ones(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings())
    assert "task" not in await facts(driver)
    actor = Actor("workspace", "t1", 1)
    for key in ("a", "b", "c"):
        await driver.store.write(service.create, actor, service.NewTask(key, f"Mend the {key}"))
    assert "3 tasks ready" in await facts(driver)
    await driver.store.write(service.claim, actor, "a")
    line = await facts(driver)
    assert "Mend the a" in line and "2 tasks ready" in line and "Task in progress" in line
    await driver.turn("go on", [{"text": "yes"}])
    sent = [p for m in driver.engine.state.window.messages for p in m.parts if isinstance(p, ContextPart)]
    assert not sent or any("Mend the a" in fact for p in sent for fact in p.facts.values())
    await driver.close()
