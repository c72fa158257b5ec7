"""What a model's reflection must keep, and what happens if it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sakti.core.errors import MemoryFailure
from sakti.core.events import Notice
from sakti.memory.log import lines
from sakti.memory.protocol import ObserveInput, ObserveResult, ReflectInput, ReflectResult
from sakti.memory.reflect import quality
from sakti.memory.statements.marking import ReplacedWords
from tests.fakes.memory import Driver, ScriptedObserver, ScriptedReflector, settings

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gwen", "Hal", "Ida", "Jon")
LOG = "\n".join(
    ["Date: Jan 15, 2026"]
    + [
        f"* 🔴 (9:{n:02}) User stated: {name} maintains the module number{n} of service{n}"
        for n, name in enumerate(NAMES)
    ]
)


def important(*replaced: ReplacedWords) -> list[lines.LogRow]:
    return quality.select_important_lines([LOG], replaced)


@pytest.mark.parametrize(("have", "tokens", "before"), [(2, 900, 1_000), (10, 149, 1_000), (0, 1, 400), (10, 19, 400)])
def test_answers_with_next_to_nothing_are_failures(have: int, tokens: int, before: int) -> None:
    with pytest.raises(MemoryFailure) as failure:
        quality.check_answer(have, 10, tokens, before)
    assert failure.value.code == "below_floor"


@pytest.mark.parametrize("important", range(quality.SEVERAL, 40))
def test_reflections_below_the_floor_are_failures(important: int) -> None:
    for have in range(important + 1):
        if 10 * have < 6 * important:
            with pytest.raises(MemoryFailure):
                quality.check_floor(have, important)
        else:
            quality.check_floor(have, important)


def test_answers_at_the_floor_are_reflections() -> None:
    quality.check_answer(3, 10, 150, 1_000)
    quality.check_answer(0, 0, 50, 999)
    quality.check_floor(0, 0)


def test_replaced_lines_need_not_be_kept() -> None:
    ended = ReplacedWords("Ada maintains the module number0 of service0", "x", "", "")
    assert len(important()) == len(NAMES) and len(important(ended)) == len(NAMES) - 1


@pytest.mark.parametrize("room", [0, 40, 80, 160, 1_000])
def test_lost_lines_of_the_user_come_back_newest_first_as_far_as_there_is_room(room: int) -> None:
    text = "* 🔴 (9:00) User stated: Ada maintains the module number0 of service0"
    lost = quality.find_lost_lines(text, important())
    assert len(lost) == len(NAMES) - 1
    more, rest = quality.restore_lines(text, lost, [], room=room, limit=room, count=lambda t: len(t.split()))
    assert len(more.split()) <= max(room, len(text.split()))
    assert len(rest) == len(quality.find_lost_lines(more, important()))
    assert all(name not in more for name in NAMES[1 : 1 + len(rest)]), "the oldest stay lost"


def test_one_line_does_not_stand_for_others_of_its_form() -> None:
    for row in important():
        assert len(quality.find_lost_lines(f"* 🔴 {row.content}", important())) == len(NAMES) - 1
        words = row.content.removeprefix("User stated: ").replace("maintains the module", "has")
        assert len(quality.find_lost_lines(f"* {words}", important())) == len(NAMES) - 1, "in other words"


PAIR = ReplacedWords("The port is 8080", "User stated: The port is now 8081", "Jan 16, 2026", "10:00")
CHANGED = (
    f"{LOG}\n* 🔴 (10:00) User stated: The port is 8080\n\nDate: Jan 16, 2026\n"
    f"* 🟡 (10:00) {PAIR.by} [replaces 10:00: The port is 8080]"
)


@pytest.mark.parametrize("room", [0, 1_000])
@pytest.mark.parametrize("is_older_there", [True, False])
def test_the_newer_of_a_pair_never_goes_before_the_older(is_older_there: bool, room: int) -> None:
    text = "* 🔴 (10:00) User stated: The port is 8080" if is_older_there else "* 🟡 The port was set"
    lost = quality.find_lost_lines(text, quality.select_important_lines([CHANGED], [PAIR]), [PAIR])
    assert any("8081" in row.content for row in lost)

    def back() -> str:
        return quality.restore_lines(text, lost, [PAIR], room=0, limit=room, count=lambda t: len(t.split()))[0]

    if room:
        assert "The port is now 8081" in back()
    elif is_older_there:
        with pytest.raises(MemoryFailure, match="lost what replaced it"):
            back()
    else:
        assert "8081" not in back()


def test_repeats_go_and_weights_return() -> None:
    twice = "\n".join(line for row in LOG.split("\n") for line in ([row] if row.startswith("Date") else [row, row]))
    assert quality.remove_repeats(twice) == LOG
    assert quality.restore_weight(LOG.replace("🔴", "🟢"), important()) == LOG


class Stating(ScriptedObserver):
    async def observe(self, request: ObserveInput) -> ObserveResult:
        self.inputs.append(request)
        said = [m.text.split(" | ")[0] for m in request.messages if m.role == "user"]
        return ObserveResult("\n".join(["Date: Jan 15, 2026", *(f"* 🔴 (10:00) User stated: {text}" for text in said)]))


class Answering(ScriptedReflector):
    """Gives what a function makes of the log."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        super().__init__()
        self.answer = answer

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        self.inputs.append(request)
        return ReflectResult(self.answer("\n".join(text for _, text in request.groups)))


async def talk(driver: Driver, turns: int) -> None:
    for n in range(turns):
        await driver.turn(
            f"{NAMES[n % 10]}{n} maintains the module number{n} | " + "word " * 120, [{"text": "yes " * 60}]
        )
        await driver.engine.wait_idle()


JUNK = {
    "a word": "ok",
    "nothing": "",
    "prose": "Everything is fine.\n* 🟡 all is well",
    "hidden characters": "\u202e\x1b[0m",
    "a flood": "* 🔴 User stated: junk\n" * 60_000,
}


@pytest.mark.parametrize("answer", JUNK.values(), ids=JUNK.keys())
async def test_junk_replaces_no_log(tmp_path: Path, answer: str) -> None:
    reflector = Answering(lambda _: answer)
    driver = await Driver.make(tmp_path / "t.db", settings(700, 4_000), observer=Stating(), reflector=reflector)
    await talk(driver, 12)
    for _ in range(4):  # however often it fails: there is room
        assert not await driver.engine.reflect_now()
    assert driver.engine.state.window.record.generation_count == 0
    assert reflector.inputs and "the log stays" in driver.engine.state.note
    await driver.close()


@pytest.mark.parametrize("reflector", [Answering(lambda _: "ok"), ScriptedReflector(incompressible=True)])
async def test_a_full_log_is_condensed_without_a_model_if_the_model_is_useless(
    tmp_path: Path, reflector: Answering | ScriptedReflector
) -> None:
    driver = await Driver.make(tmp_path / "t.db", settings(500, 330), observer=Stating(), reflector=reflector)
    await talk(driver, 24)
    await driver.begin("what now?")
    await driver.prepare()
    status = driver.engine.status()
    assert status.observations.tokens < status.observations.threshold
    assert driver.engine.state.window.record.generation_count > 0
    notes = [e.message for e in driver.events if isinstance(e, Notice)]
    assert any("condensed without a model" in note for note in notes)
    assert "maintains the module" in "\n".join(g.text for g in driver.engine.state.window.active)
    await driver.close()


async def test_lost_lines_are_counted(tmp_path: Path) -> None:
    def two_thirds(log: str) -> str:
        rows = [x for x in log.split("\n") if not x.startswith("Date")]
        return "\n".join(x for n, x in enumerate(rows) if n % 3)

    driver = await Driver.make(
        tmp_path / "t.db", settings(700, 4_000), observer=Stating(), reflector=Answering(two_thirds)
    )
    await talk(driver, 12)
    assert await driver.engine.reflect_now()
    notes = [e.message for e in driver.events if isinstance(e, Notice)]
    assert any(note.startswith("The reflection left out ") for note in notes)
    await driver.close()
