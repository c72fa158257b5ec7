"""The guard without a model: what a line claims and its source does not have; what a reflection dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sakti.core.events import MemoryOperation
from sakti.memory.faithfulness import Source, dropped, flags
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.store import memory_log
from tests.fakes.memory import Driver, ScriptedObserver

SOURCE = Source(
    "Look at src/auth/token.py:42, refresh_tokens() there takes 350 ms with pytest 8.4.1.",
    'The user said "never touch main". See https://example.org/a?b=1. LoginSchema, MAX_RETRIES = 3, 12 %.',
)


@pytest.mark.parametrize(
    "line",
    [
        "refresh_tokens in src/auth/token.py:42 takes 350ms with pytest 8.4.1",
        'User stated "never touch  main"; see https://example.org/a?b=1.',
        "LoginSchema and `MAX_RETRIES` are 12% of it, ./src/auth/token.py",
        "The work goes on at 14:30 and nothing is claimed",
    ],
)
def test_a_faithful_line_has_no_flag(line: str) -> None:
    assert flags(line, SOURCE) == ()


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("Changed src/auth/session.py", "path: src/auth/session.py"),
        ("It takes 900 ms", "number: 900 ms"),
        ("Uses pytest 9.0.0 now", "version: 9.0.0"),
        ('User stated "always touch main"', "quote: always touch main"),
        ("revoke_tokens was renamed", "symbol: revoke_tokens"),
        ("See https://example.org/other", "url: https://example.org/other"),
    ],
)
def test_what_the_source_does_not_have_is_marked(line: str, flag: str) -> None:
    assert flags(line, SOURCE) == (flag,)


def test_what_a_reflection_dropped_is_listed() -> None:
    log = "\n".join(
        (
            "Date: Jan 2, 2026",
            "* 🔴 (10:00) User decided that tokens live in Redis",
            "* 🟡 read src/a.py",
            "* 🔴 User prefers tabs",
        )
    )
    assert dropped([log], log).lines == ()
    lost = dropped([log], "* 🔴 (10:00) It was decided by the user that all tokens live in Redis")
    assert lost.lines == ("User prefers tabs",)
    assert lost.paths == ("src/a.py",)


class AtTheLimit(ScriptedObserver):
    """Writes a line whose 10,000th UTF-16 unit is the first half of an emoji, and half a pair of its own."""

    async def observe(self, request: ObserveInput) -> ObserveResult:
        result = await super().observe(request)
        return replace(result, text="* " + "a" * 9_997 + "\U0001f600 tail\n* \ud83d alone")


async def test_an_emoji_where_a_line_is_cut_is_no_reason_to_stop(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", observer=AtTheLimit())
    for number in range(6):
        await driver.turn(f"part {number} " + "word " * 120, [{"text": "answer " * 60}])
        await driver.engine.wait_idle()
    found = await driver.store.read(
        memory_log.log_lines, driver.engine.record_id, states=("active", "buffered", "superseded")
    )
    assert {line.content for line in found if line.kind == "observation"} == {
        "a" * 9_997 + " … [truncated]",
        "alone",
    }
    assert not [e for e in driver.of(MemoryOperation) if e.kind == "failed"]
    await driver.close()


class Inventing(ScriptedObserver):
    async def observe(self, request: ObserveInput) -> ObserveResult:
        result = await super().observe(request)
        return replace(result, text=f"{result.text}\n* 🔴 (10:00) It is in lib/made_up.py")


async def test_flags_are_stored_with_the_line(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", observer=Inventing())
    for number in range(6):
        await driver.turn(f"part {number} " + "word " * 120, [{"text": "answer " * 60}])
        await driver.engine.wait_idle()
    found = await driver.store.read(
        memory_log.log_lines, driver.engine.record_id, states=("active", "buffered", "superseded")
    )
    marked = {line.content: line.flags for line in found if line.flags}
    assert marked == {"It is in lib/made_up.py": ("path: lib/made_up.py",)}
    await driver.close()
