"""What was replaced is shown as such: on the new line, to people at once, in a text when that is rewritten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.actions.memory.log import format_log
from sakti.core.types import TextPart
from sakti.memory import worker as work
from sakti.memory.protocol import ObserveInput, ObserveResult, ReflectInput, ReflectResult
from sakti.memory.statements import marking
from sakti.plain import words
from sakti.store.log import lines as memory_log
from sakti.store.log import replacements
from sakti.store.log.lines import LogLine
from sakti.store.log.replacements import KEY, Earlier
from sakti.tui.panes.observations import ObservationRow, make_log_rows
from tests.fakes.memory import Driver, ScriptedObserver, ScriptedReflector, settings

OLD = "* 🔴 (12:00) User stated: The port is 8080. Our region is eu-2."


def line(content: str, time: str = "12:00", date: str = "Jan 15, 2026", **more: object) -> LogLine:
    base = LogLine(
        f"id-{content}", "g", "observation", "active", date, time, "high", 0, content, (), False, False, False, {}, 0, 1
    )
    return replace(base, **more)  # pyright: ignore[reportArgumentType]


def marked(text: str, *before: LogLine) -> marking.Marked:
    return marking.mark_new(text, before)


# --- new lines ----------------------------------------------------------------------------------------------


def test_a_new_line_says_what_it_replaces_and_names_it_in_its_metadata() -> None:
    made = marked("Date: Jan 16, 2026\n* 🔴 (9:00) User stated: The port is now 9090.", line("The port is 8080."))
    assert made.text.endswith("The port is now 9090. [replaces Jan 15, 12:00: The port is 8080]")
    assert made.metadata == {0: {KEY: [{"text": "The port is 8080", "date": "Jan 15, 2026", "time": "12:00"}]}}


def test_the_date_that_a_relative_word_means_replaces_no_other_date() -> None:
    older = line("User stated: I flew to Oslo last Friday! (meaning Jan 9, 2026)")
    made = marked(
        "Date: Jan 19, 2026\n* 🔴 (9:00) User stated: I changed trains yesterday! (meaning Jan 18, 2026)", older
    )
    assert made.metadata == {} and made.text.endswith("(meaning Jan 18, 2026)")


def test_older_lines_of_the_same_text_are_noted_like_stored_ones() -> None:
    text = f"Date: Jan 15, 2026\n{OLD}\n* 🔴 (12:09) User stated: The port is 9090 now."
    made = marked(text)
    assert made.text.endswith("The port is 9090 now. [replaces 12:00: The port is 8080]")
    assert OLD in made.text and list(made.metadata) == [1]


@pytest.mark.parametrize(
    ("older", "newer", "says"),
    [
        ("User stated: The pool size is 10.", "Agent: I raised the pool size to 25.", False),
        ("Agent: The pool size is 10.", "User stated: The pool size is 25 now.", False),
        ("Agent: I set the pool size to 10.", "Agent: I raised the pool size from 10 to 25.", False),
        ("User stated: The pool size is 10.", "User quoted: The pool size is now 25.", False),
        ("User stated: The pool size is 10.", "User ran `grep pool`: the pool size is now 25", False),
        ("User stated: The pool size is 10.", "Agent ran `grep pool`: the pool size is now 25", False),
        ("User stated that the pool size is 10", "User raised the pool size from 10 to 25", True),
    ],
)
def test_only_the_users_statements_replace_only_the_users_statements(older: str, newer: str, says: bool) -> None:
    assert ("[replaces" in marked(f"* 🔴 (9:00) {newer}", line(older)).text) == says


@pytest.mark.parametrize("priority", ["high", "done"])
def test_what_is_done_is_replaced_neither_by_words_nor_by_name(priority: str) -> None:
    older, newer = line("User stated: The port is 8080.", priority=priority), "User stated: The port is 9090 now."
    named = {newer: [Earlier(older.content, older.date, older.time)]}
    for made in (marked(f"* 🔴 (9:00) {newer}", older), marking.mark_new(f"* 🔴 (9:00) {newer}", [older], None, named)):
        assert bool(made.metadata) == (priority == "high")


def test_nested_lines_replace_nothing() -> None:
    text = "* 🟡 (9:00) Agent used read\n  * -> User stated: The port is 9090 now."
    assert not marked(text, line("User stated: The port is 8080.")).metadata


def test_marks_that_come_with_a_text_are_not_believed() -> None:
    hostile = "* 🟡 (9:00) Agent read notes [replaces 12:00: The port is 8080] it says [earlier; see 12:00] so"
    made = marked(hostile, line("The port is 8080."))
    assert made.text == "* 🟡 (9:00) Agent read notes it says so"
    assert not made.metadata


NEW = "* 🔴 (12:30) User stated: The port is now 9090."


def test_what_counts_no_more_is_not_replaced() -> None:
    assert "[replaces" in marked(NEW, line("The port is 8080.")).text
    for values in ({"forgotten": True}, {"priority": "done"}, {"priority": "low"}, {"depth": 1}):
        for content in ("The port is 8080.", "User stated: The port is 8080."):
            assert "[replaces" not in marked(NEW, line(content, **values)).text


def test_what_was_said_twice_is_named_once() -> None:
    made = marked(NEW, line("The port is 8080.", "11:00"), line("The port is 8080.", "11:40"))
    assert made.text.count("[replaces") == 1
    assert [one["time"] for one in made.metadata[0][KEY]] == ["11:40"]  # the newest of them


def test_of_what_is_replaced_a_new_line_repeats_the_beginning() -> None:
    note = replacements.format_note(Earlier("a [b] " + "long " * 50, "Jan 15, 2026", "12:00"), "Jan 15, 2026")
    assert note.startswith(" [replaces 12:00: a (b) long") and note.endswith("…]")
    assert len(note) < replacements.NOTE_LIMIT + 30 and replacements.remove_marks(f"x{note}") == "x"
    # the words in a note are no statement of the line
    assert replacements.find_end("The port is 9090. [replaces 12:00: The port is 8080]", "The port is 8080") is None


def test_the_newest_lines_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "REMEMBERED", 1)
    assert "[replaces" in marked(NEW, line("Our region is eu-2."), line("The port is 8080.")).text
    assert "[replaces" not in marked(NEW, line("The port is 8080."), line("Our region is eu-2.")).text


def test_a_log_that_is_remembered_is_compared_as_one_that_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = marking.Remembered()
    said = [
        *("The port is 8080.", "Our region is eu-2.", "The pool size is 10.", "min sdk is 26, target sdk is 34."),
        *(f"The limit of queue {n} is {n + 20} jobs." for n in range(14)),
    ]
    log: list[LogLine] = []
    found = 0
    for number, text in enumerate(said):
        log.append(line(f"User stated: {text}", f"12:{number:02}"))
        if number == 9:
            del log[1:4]  # a reflection took their place
        for newer in (NEW, "* 🔴 (12:30) User stated: min sdk -> 28", "* 🟡 (12:30) Agent: The limit of queue 1 is 9."):
            made = marking.mark_new(newer, log, remembered)
            assert made == marked(newer, *log)
            found += "[replaces" in made.text
    assert found > len(said), "there is something to find, early and late"
    monkeypatch.setattr(marking, "REMEMBERED", 4)
    marking.mark_new(NEW, log, remembered)  # more than twice as many: the newest are read anew
    assert "[replaces" not in marking.mark_new(NEW, log, remembered).text


async def test_of_a_log_only_what_is_new_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reflector = Keeping(lambda x: "queue" not in x)
    driver = await Driver.make(tmp_path / "t.db", settings(900, 20_000), observer=Saying(), reflector=reflector)
    read: list[str] = []
    whole = memory_log.select_lines

    def noted(db: Any, where: str, values: Sequence[object]) -> Any:
        read.extend(map(str, values))
        return whole(db, where, values)

    monkeypatch.setattr(memory_log, "select_lines", noted)

    async def log(before: memory_log.LogSnapshot | None) -> memory_log.LogSnapshot:
        read.clear()
        found = await driver.store.read(memory_log.read_snapshot, driver.engine.record_id, before)
        states = ("active", "buffered")
        stored = await driver.store.read(memory_log.read_lines, driver.engine.record_id, states=states)
        assert [(x.id, x.content, x.forgotten) for x in found.lines] == [(x.id, x.content, x.forgotten) for x in stored]
        return found

    await talk(driver, SAID[: len(SAID) // 2])
    first = await log(None)
    await log(first)
    assert read[:-3] == [], "nothing has changed"
    await talk(driver, SAID[len(SAID) // 2 :])
    second = await log(first)
    assert second.groups.keys() > first.groups.keys() and not {*read} & first.groups.keys()
    await driver.engine.correct(second.lines[0].id, "forget")
    third = await log(second)
    assert third.lines[0].forgotten
    assert await driver.engine.reflect_now()
    assert not {*(await log(third)).groups} & {*first.groups}, "what was condensed is no longer in it"
    await driver.close()


class Numbered(ScriptedObserver):
    """Says in each answer that the port is another one."""

    async def observe(self, request: ObserveInput) -> ObserveResult:
        self.inputs.append(request)
        return ObserveResult(f"* 🔴 (10:0{len(self.inputs)}) User stated: The port is {8_000 + len(self.inputs)}.")


async def test_of_a_long_thread_later_pieces_are_compared_with_earlier_ones(tmp_path: Path) -> None:
    mine = settings(600, 100_000)
    driver = await Driver.make(tmp_path / "t.db", replace(mine, enabled=False), observer=Numbered())
    for _ in range(8):
        await driver.say("user", TextPart("word and number 12 " * 40))
        await driver.say("assistant", TextPart("word " * 40))
    await driver.engine.close()
    driver.settings = mine
    await driver.open()
    assert await driver.engine.observe_rest()
    log = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
    assert len(log) > 2 and all("[replaces" in x.content for x in log[1:])
    await driver.close()


# --- what is shown ------------------------------------------------------------------------------------------


def test_words_are_found_again_whatever_their_case_and_only_in_older_lines() -> None:
    newer = line("Port: 9090", "12:30", metadata={KEY: [{"text": "the PORT is 8080", "date": "", "time": ""}]})
    again = line("The port is 8080", "12:40")
    first, _, last = memory_log.add_earlier([line("Straße: the port is 8080, I think"), newer, again])
    assert first.marked_text == "Straße: the port is 8080 [earlier; see 12:30], I think"
    assert last.marked_text == last.content and not last.earlier


def test_the_newest_of_several_lines_is_named() -> None:
    metadata = {KEY: [{"text": "The port is 8080", "date": "", "time": ""}]}
    newer = [line(f"Port: {n}", f"12:{n}", metadata=metadata) for n in (30, 40)]
    assert memory_log.add_earlier([line("The port is 8080"), *newer])[0].marked_text.endswith("[earlier; see 12:40]")


def test_marks_go_where_the_words_end_whatever_marks_there_are() -> None:
    assert replacements.insert_marks("ab cd ef", {2: " X", 5: " Y"}) == "ab X cd Y ef"
    assert replacements.insert_marks("ab [earlier; see 9:00] cd ef", {5: " Y"}) == "ab [earlier; see 9:00] cd Y ef"


def test_a_reflection_marks_older_lines_alone_and_no_pinned_one() -> None:
    metadata = {KEY: [{"text": "The port is 8080", "date": "", "time": ""}]}
    newer = line("Port: 9090", "12:30", metadata=metadata)
    found = marking.list_replaced_words([newer])
    older = "* 🔴 (12:00) The port is 8080."
    shown = "* 🔴 (12:00) The port is 8080 [earlier; see Jan 15, 12:30]."
    assert marking.mark_replaced(older, found, frozenset()) == shown
    assert marking.mark_replaced(older, found, frozenset({"The port is 8080."})) == older
    again = "* 🔴 (12:30) Port: 9090\n* 🔴 (12:40) The port is 8080."
    assert marking.mark_replaced(again, found, frozenset()) == again
    assert not marking.list_replaced_words([replace(newer, forgotten=True)])


def test_a_forgotten_line_replaces_nothing() -> None:
    newer = line("Port: 9090", "12:30", metadata={KEY: [{"text": "The port is 8080", "date": "", "time": ""}]})
    assert memory_log.add_earlier([line("The port is 8080"), newer])[0].earlier
    assert not memory_log.add_earlier([line("The port is 8080"), replace(newer, forgotten=True)])[0].earlier


def test_a_mark_stands_once_and_names_another_day() -> None:
    one = Earlier("The port is 8080", "Jan 16, 2026", "9:00")
    text = replacements.add_marks("The port is 8080. So.", (one, one), "Jan 15, 2026")
    assert text == "The port is 8080 [earlier; see Jan 16, 9:00]. So."
    assert replacements.add_marks(text, (one,), "Jan 15, 2026") == text
    assert replacements.remove_marks(text) == "The port is 8080. So."


def test_the_pane_shows_the_mark_and_edits_the_words() -> None:
    newer = line("Port: 9090", "12:30", metadata={KEY: [{"text": "The port is 8080", "date": "", "time": ""}]})
    rows = [
        r
        for r in make_log_rows(memory_log.add_earlier([line("The port is 8080"), newer]))
        if isinstance(r, ObservationRow)
    ]
    assert rows[0].text == "The port is 8080 [earlier; see 12:30]"
    assert rows[0].content == "The port is 8080"


# --- the engine ---------------------------------------------------------------------------------------------


class Saying(ScriptedObserver):
    """One line for each message of the user, as a model would write it."""

    async def observe(self, request: ObserveInput) -> ObserveResult:
        result = await super().observe(request)
        said = [m.text.split(" | ")[0] for m in request.messages if m.role == "user"]
        lines = [f"* 🔴 (10:{m:02}) User stated that {text}" for m, text in enumerate(said)]
        return replace(result, text="\n".join([result.text.split("\n")[0], *lines]))


async def talk(driver: Driver, texts: Sequence[str]) -> None:
    for text in texts:
        await driver.turn(f"{text} | " + "word " * 150, [{"text": "answer " * 60}])
        await driver.engine.wait_idle()


SAID = [
    "the port is 8080",
    "the region is eu-2",
    "the queue is named ingest",
    "the team meets on Mondays",
    "the port is 9090 now",
    "the importer is written in Go",
    "backups are kept in Oslo",
    "prices are in cents",
]


async def test_the_log_shows_it_at_once_and_no_older_text_changes(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(900, 20_000), observer=Saying())
    texts: dict[str, str] = {}
    for text in SAID:
        await talk(driver, [text])
        for group in driver.engine.state.window.active:
            assert texts.setdefault(group.id, group.text) == group.text, "the prefix is the same byte for byte"
    lines = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
    shown = [x.marked_text for x in lines]
    assert any("the port is 8080 [earlier; see 10:0" in text for text in shown)
    assert any("the port is 9090 now [replaces 10:0" in text for text in shown)
    assert sum("[earlier" in text for text in shown) == 1
    assert "[earlier" not in "".join(texts.values())
    await driver.close()


class Keeping(ScriptedReflector):
    """Leaves out every line of another kind than the Observer's."""

    def __init__(self, keep: Callable[[str], bool]) -> None:
        super().__init__()
        self.keep = keep

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        lines = [x for _, text in request.groups for x in text.split("\n") if x.startswith("Date") or self.keep(x)]
        return ReflectResult("\n".join(lines))


async def test_a_reflection_marks_what_it_still_says(tmp_path: Path) -> None:
    reflector = Keeping(lambda x: "queue" not in x)
    driver = await Driver.make(tmp_path / "m.db", settings(900, 20_000), observer=Saying(), reflector=reflector)
    await talk(driver, SAID)
    assert await driver.engine.reflect_now()
    lines = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
    told = [x.content for x in lines if x.kind == "reflection"]
    assert any("the port is 8080 [earlier; see 10:0" in text for text in told)
    assert not any("eu-2 [earlier" in text for text in told)
    assert not any(x.flags for x in lines), "a mark is no claim"
    await driver.close()


async def test_a_new_thread_is_not_told_what_was_replaced_as_if_it_held(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(900, 20_000), observer=Saying())
    several = "the cache size is 40 MB, the house has seven doors, the roof is flat and the garden is large"
    await talk(driver, [several, "the cache size is 80 MB now", *SAID, SAID[-1]])
    carried = await driver.store.read(memory_log.build_carry_over, "workspace", "t2")
    assert carried is not None
    texts = [text for _, text in carried.lines]
    assert texts and not any("8080" in x for x in texts), "neither the replaced line nor the note on it"
    assert any("the cache size is 40 MB [earlier; see " in x for x in texts), "a part that is replaced is marked"
    lines = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
    (region,) = [x for x in lines if "the region is eu-2" in x.content]
    assert any("eu-2" in x for x in texts)
    await driver.engine.correct(region.id, "forget")
    carried = await driver.store.read(memory_log.build_carry_over, "workspace", "t2")
    assert carried is not None and not any("eu-2" in x for _, x in carried.lines), "what is forgotten is not told again"
    await driver.close()


def test_the_command_and_the_plain_chat_print_the_marks() -> None:
    newer = line("Port: 9090", "12:30", metadata={KEY: [{"text": "The port is 8080", "date": "", "time": ""}]})
    lines = memory_log.add_earlier([line("The port is 8080"), newer])
    assert "The port is 8080 [earlier; see 12:30]" in "\n".join(format_log(lines))
    assert "The port is 8080 [earlier; see 12:30]" in next(words.format_log(lines))


async def test_marks_and_claims_are_computed_beside_the_programs_own_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, int] = {}

    def noted(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            threads[name] = threading.get_ident()
            return fn(*args)

        return call

    monkeypatch.setattr(marking, "mark_new", noted("marks", marking.mark_new))
    monkeypatch.setattr(work, "find_unsupported", noted("claims", work.find_unsupported))
    driver = await Driver.make(tmp_path / "t.db", settings(900, 20_000))
    await talk(driver, SAID)
    assert driver.engine.state.window.active
    await driver.close()
    assert threads.keys() == {"marks", "claims"}
    assert threading.get_ident() not in threads.values()


# --- what a model names ---------------------------------------------------------------------------------------


def named(older: str, newer: str, *log: LogLine, date: str = "Jan 15, 2026") -> bool:
    replaces = {newer: [Earlier(older, date, "12:00")]}
    made = marking.mark_new(f"Date: Jan 16, 2026\n* 🔴 (9:00) {newer}", log, named=replaces)
    assert bool(made.metadata) == ("[replaces" in made.text)
    return bool(made.metadata)


def test_models_name_only_older_lines_of_the_log() -> None:
    log = line("User stated: We deploy on Fridays.")
    assert named("User stated: We deploy on Fridays.", "User deploys whenever it is quiet", log)
    assert not named("User stated: We deploy on Mondays.", "User deploys whenever it is quiet", log)
    assert not named("User stated: We deploy on Fridays.", "User deploys whenever", log, date="Jan 14, 2026")
    assert not named("User stated: We deploy on Fridays.", "User deploys whenever", replace(log, forgotten=True))


def test_models_end_no_request_that_the_user_did_not_cancel() -> None:
    request = line("User asked to fix issue #12")
    assert not named(request.content, "User asked to fix issue #13", request)
    assert named(request.content, "User stated: never mind issue #12", request)


def test_models_end_no_report_of_the_agents_work() -> None:
    report = line("Agent: I fixed the crash in parser.py", priority="medium")
    assert not named(report.content, "Agent: I fixed the crash in lexer.py", report)


def test_explicit_changes_are_not_looked_for_in_what_a_model_wrote() -> None:
    made = marking.mark_new(NEW, [line("User stated: The port is 8080.")], named={})
    assert not made.metadata


@pytest.mark.parametrize("sign", ["🟡", "🟢"])
def test_what_ends_an_important_line_is_as_important(sign: str) -> None:
    log = line("User stated: Always run the formatter.")
    made = marked(f"Date: Jan 16, 2026\n* {sign} (9:00) User asked for: Stop running the formatter.", log)
    if made.metadata:
        assert "* 🔴 (9:00) User asked for: Stop running the formatter. [replaces" in made.text
    assert bool(made.metadata) == (sign == "🟡")
    unimportant = replace(log, priority="medium")
    assert "🔴" not in marked("* 🟡 (9:00) User asked for: Stop running the formatter.", unimportant).text
