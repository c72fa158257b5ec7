"""A mode's own sections: asked for in its prompt, read from the answer, stored as category and data of the lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.core.config import MemorySettings, ObservationSettings
from sakti.core.resources import list_modes, read_prompt
from sakti.memory import modes
from sakti.memory.log import lines, parse
from sakti.memory.observe.model import build_system_prompt
from sakti.memory.protocol import ObserveInput, ObserveResult, ReflectInput, ReflectResult
from sakti.store.log import lines as memory_log
from tests.fakes.memory import Driver, settings
from tests.unit.memory.test_observers import Answers, asked, built

MODES = tuple(m for m in list_modes() if m != "default")
ANSWER = """<observations>
Date: Jan 15, 2026
* 🔴 (12:00) User stated that the pool leaks
* 🟡 (12:03) awaited `load()` | outcome: same error
</observations>
<attempts>
* 🟡 (12:03) awaited `load()` | outcome: same error
- (12:04) closed the socket | outcome: no error | file: src/pool.py
</attempts>
<ROOT-CAUSE>
Date: Jan 15, 2026
* 🔴 (12:05) `release()` is not called
<current-task>
Primary: the leak
</current-task>"""


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_asks_for_sections_of_its_own(mode: str) -> None:
    names = modes.list_sections(mode)
    assert len(names) >= 2
    assert not {"observations", "current-task", "suggested-response", "thread-title"} & set(names)
    for condensed in (True, False):
        prompt = build_system_prompt(mode, condensed=condensed, want_title=False)
        assert read_prompt(f"modes/{mode}#output").strip() in prompt
    assert all(f"</{name}>" in read_prompt(f"modes/{mode}#output") for name in names)


def test_a_mode_sets_the_numbers_that_the_user_has_not() -> None:
    usual, row = MemorySettings(), modes.read_numbers("bug_fixing")
    found = modes.apply_mode(usual, "bug_fixing")
    assert found.observation.message_tokens == row.message_tokens != usual.observation.message_tokens
    assert found.observation.buffer_tokens == row.buffer_tokens
    assert found.reflection.observation_tokens == row.observation_tokens
    own = MemorySettings(observation=ObservationSettings(message_tokens=7_000))
    assert modes.apply_mode(own, "bug_fixing").observation == own.observation
    assert modes.apply_mode(usual, "default") == usual


def test_the_default_mode_has_none() -> None:
    assert modes.list_sections("default") == ()
    assert parse.take_sections(ANSWER, ()) == (ANSWER, [])


async def test_sections_become_categories_and_no_tag_is_left() -> None:
    observer, _ = built(Answers(ANSWER))
    result = await observer.observe(asked(mode="bug_fixing"))
    assert result.text.split("\n") == [
        "Date: Jan 15, 2026",
        "* 🔴 (12:00) User stated that the pool leaks",
        "* 🟡 (12:03) awaited `load()` | outcome: same error",
        "* 🟡 (12:04) closed the socket | outcome: no error | file: src/pool.py",
        "* 🔴 (12:05) `release()` is not called",
    ]
    assert result.categories == {
        "awaited `load()` | outcome: same error": "attempts",
        "closed the socket | outcome: no error | file: src/pool.py": "attempts",
        "`release()` is not called": "root-cause",
    }
    assert result.current_task == "Primary: the leak"


async def test_a_section_that_repeats_itself_spoils_the_answer() -> None:
    looping = ANSWER.replace("- (12:04)", "* 🟡 (12:03) awaited it again and again\n" * 3_000 + "- (12:04)")
    observer, _ = built(Answers(looping, ANSWER))
    assert "again" not in (await observer.observe(asked(mode="bug_fixing"))).text


def test_stray_tags_go_and_words_in_brackets_stay() -> None:
    rest, found = parse.take_sections("a </attempts> b <attempts> `Map<string, errors>`", ("attempts",))
    assert rest.split() == ["a", "b"]
    assert found == [("attempts", "* `Map<string, errors>`")]


def test_what_a_line_says_by_name() -> None:
    assert lines.parse_fields("a | b | outcome: it failed: twice | file: x.py") == {
        "outcome": "it failed: twice",
        "file": "x.py",
    }
    assert lines.parse_fields("a || b or http://x | y") == {}


class Sections:
    """An Observer whose lines stand in a section, and a Reflector that keeps half of them."""

    name = "sections"

    async def observe(self, request: ObserveInput) -> ObserveResult:
        text = "* 🟡 (12:00) tried it | outcome: failed\n* 🟡 (12:01) something long enough to go away later"
        return ObserveResult(text, categories={"tried it | outcome: failed": "attempts"})

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        return ReflectResult("* 🟡 (12:00) tried it | outcome: failed")


async def test_a_category_is_stored_and_outlives_a_reflection(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(300, 4_000), observer=Sections(), reflector=Sections())
    await driver.turn("words " * 300, [{"text": "more"}])
    await driver.turn("again", [{"text": "done"}])
    await driver.engine.compact()

    async def stored() -> list[tuple[str, str, object]]:
        found = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
        return [(x.kind, x.category, x.metadata.get("mode_specific")) for x in found]

    found = await stored()
    assert found[:2] == [("observation", "attempts", {"outcome": "failed"}), ("observation", "", {})]
    assert await driver.engine.reflect_now()
    assert await stored() == [("reflection", "attempts", {"outcome": "failed"})]
    await driver.close()
