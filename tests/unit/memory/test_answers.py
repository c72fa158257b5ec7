"""What an Observer's answer is checked for before it becomes part of the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.core.resources import read_prompt
from sakti.core.types import Message, TextPart
from sakti.memory.log import dates, lines, parse
from sakti.memory.observe import model
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.store.log import lines as memory_log
from tests.fakes.memory import Driver, ScriptedObserver, settings

NOON = 1_768_478_400_000  # 2026-01-15
DAY = 86_400_000


def request(*texts: str, log: str = "", days: int = 1) -> ObserveInput:
    said = texts or ("hello",)
    messages = tuple(
        Message(f"m{n}", "t", "r", "user", (TextPart(text),), NOON + n % days * DAY, index=n, tokens=10)
        for n, text in enumerate(said)
    )
    return ObserveInput("t", messages, "UTC", log=log)


def contents(text: str, asked: ObserveInput) -> list[str]:
    return [row.content for row in lines.iter_rows(model.check_lines(text, asked))]


@pytest.mark.parametrize("part", ["observer", "observer#condensed"])
def test_no_line_of_the_prompt_is_stored(part: str) -> None:
    examples = [raw for raw in read_prompt(part).split("\n") if raw.lstrip().startswith("*")]
    assert len(examples) > 2
    assert contents("\n".join([*examples, "* 🟡 (12:00) Agent read a.py"]), request()) == ["Agent read a.py"]
    assert model.is_instruction("Primary: what the agent works on now. Secondary: what waits. If the agent waits for "
                                 "the user, say so and for what.")  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "User's priority is to extract new observations; no other task should be started",
        "Agent has to write the observations of the new messages",
        "The observer keeps the memory of a coding agent",
        "Assistant was asked to act as the memory of an AI agent",
    ],
)
def test_lines_about_the_observers_task_are_refused_unless_the_user_speaks_of_it(line: str) -> None:
    assert contents(f"* 🔴 (12:00) {line}", request()) == []
    assert model.is_instruction(line)
    assert contents(f"* 🔴 (12:00) {line}", request(f"Note this: {line}")) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "I will now output observations in the format requested",
        "Here are the observations of the conversation",
        "Only output the observations, no other text",
        "Be concise and dated",
        "User asked to condense the observations into a log",
        "Hier sind die Beobachtungen des Gesprächs",
        "User bat, die Beobachtungen in ein Log zu schreiben",
    ],
)
def test_what_a_model_says_of_its_answer_is_refused_unless_the_user_speaks_of_it(line: str) -> None:
    assert contents(f"* 🔴 (12:00) {line}", request("Rename the parser")) == []
    assert contents(f"* 🔴 (12:00) {line}", request(f"I said: {line}")) == [line]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("User asked to condense the log files", "condense the log files"),
        ("User wants to list observations of birds by region", "Zeige meine Beobachtungen von Vögeln je Region"),
        ("User asked to summarize all observations of the telescope", "sum up what the telescope observed"),
        ("User wants answers to be concise and polite", "keep it short"),
    ],
)
def test_what_users_say_of_their_observations_is_stored(line: str, text: str) -> None:
    assert contents(f"* 🔴 (12:00) {line}", request(text)) == [line]


@given(st.integers(1, 12), st.integers(1, 28), st.integers(1990, 2040), st.integers(1, 3))
def test_dates_are_days_of_the_observed_messages(month: int, day: int, year: int, days: int) -> None:
    asked = request(*["x"] * days, days=days)
    name = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[month - 1]
    (row,) = lines.iter_rows(model.check_lines(f"Date: {name} {day}, {year}\n* 🟡 (12:00) x", asked))
    allowed = {dates.format_day(m.created_at, "UTC") for m in asked.messages}
    assert row.date in allowed
    if f"{name} {day}, {year}" in allowed:
        assert row.date == f"{name} {day}, {year}"


@given(st.integers(0, 120), st.integers(0, 120), st.sampled_from(["", " AM", " PM", "pm", ":70", ":5:5"]))
def test_a_time_that_no_clock_shows_is_dropped(hour: int, minute: int, rest: str) -> None:
    (row,) = lines.iter_rows(parse.clean(f"* 🟡 ({hour:02}:{minute:02}{rest}) read a.py"))
    if rest == "" and hour < 24 and minute < 60:
        assert (row.time, row.content) == (f"{hour:02}:{minute:02}", "read a.py")
    elif hour > 23 or minute > 59 or ":" in rest:
        assert (row.time, row.content) == ("", "read a.py")


@pytest.mark.parametrize("time", ["99:99", "24:00", "12:60", "??:??", "HH:MM", "13:00 PM", "00:30 am", "-1:00"])
def test_a_placeholder_is_no_time(time: str) -> None:
    assert parse.clean(f"  * -> 🔴 ({time}) kept (99:99)") == "  * -> 🔴 kept (99:99)"


@pytest.mark.parametrize("opening", ["\x1b[", "\x9b"])
@pytest.mark.parametrize("code", ["31m", "0m", "1;38;5;200m", "2J", "?25l", "12;40H"])
def test_terminal_sequences_leave_nothing_behind(opening: str, code: str) -> None:
    assert (
        parse.clean(f"* 🟡 (12:00) Agent {opening}{code}read\x1b]0;title\x07 a[0m]") == "* 🟡 (12:00) Agent read a[0m]"
    )


def test_lines_that_the_log_or_the_answer_has_are_left_out() -> None:
    log = "Date: Jan 15, 2026\n* 🔴 (12:00) User stated: The port is 8080\n* 🔴 (12:01) User likes tea [unverified]"
    text = (
        "* 🔴 (12:00) User stated: The port is 8080\n* 🔴 (12:05) User stated: The port is 8080\n"
        "* 🔴 (12:01) User likes tea\n* 🟡 (12:06) new\n* 🟡 (12:06) new"
    )
    assert contents(text, request(log=log)) == ["User stated: The port is 8080", "new"]


@given(st.text(alphabet="a\u202e\u2066\u200f\u061c\x1b\x07 b", max_size=30))
def test_no_hidden_character_is_stored(text: str) -> None:
    assert not set(parse.clean(f"* x{text}")) & set("\u202e\u2066\u200f\u061c\x1b\x07")


@pytest.mark.parametrize("count", [499, 501, 60_000])
def test_long_answers_are_cut_and_keep_their_end(count: int) -> None:
    text = "\n".join(f"* line {n}" for n in range(count)) + "\n<current-task>\nx\n</current-task>"
    cut = model.cut_lines(text)
    assert cut.count("\n") <= model.LINES * 1.2
    assert cut.endswith("<current-task>\nx\n</current-task>")


class Writing(ScriptedObserver):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    async def observe(self, request: ObserveInput) -> ObserveResult:
        self.inputs.append(request)
        return ObserveResult(self.text.replace("N", str(len(self.inputs))), "Primary: x")


async def log_of(tmp_path: Path, observer: ScriptedObserver) -> tuple[Driver, list[memory_log.LogLine]]:
    driver = await Driver.make(tmp_path / "t.db", settings(600, 100_000), observer=observer)
    for n in range(5):
        await driver.turn(f"turn {n} " + "word " * 400, [{"text": "answer"}])
        await driver.engine.wait_idle()
    return driver, await driver.store.read(memory_log.read_lines, driver.engine.record_id)


async def test_unverified_important_lines_carry_a_mark(tmp_path: Path) -> None:
    text = "* 🔴 (12:00) User stated: N is in src/ghost.py\n* 🟡 (12:00) Agent read src/ghost.py N\n* ✅ (12:01) word N"
    driver, log = await log_of(tmp_path, Writing(text))
    first = [x for x in log if x.group_id == log[0].group_id]
    assert [x.content.endswith("[unverified]") for x in first] == [x.priority == "high" for x in first]
    assert "src/ghost.py [unverified]" in driver.engine.state.window.active[0].text
    await driver.close()


async def test_empty_answers_to_large_inputs_are_failures(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "t.db", settings(1_200, 100_000, buffer_tokens=False), observer=Writing(""))
    for n in range(4):
        await driver.turn(f"turn {n} " + "word " * 900, [{"text": "answer"}])
        await driver.engine.wait_idle()
    assert "recorded nothing" in driver.engine.status().note
    assert driver.engine.state.window.cursor < 0, "nothing counts as observed"
    await driver.close()


async def test_sixty_thousand_lines_are_cut(tmp_path: Path) -> None:
    driver, log = await log_of(tmp_path, Writing("\n".join(f"* 🟡 (12:00) N line {n} word" for n in range(60_000))))
    assert 0 < len(log) <= 5 * model.LINES * 1.2
    await driver.close()
