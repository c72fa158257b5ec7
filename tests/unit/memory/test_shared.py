"""One log for several threads: every block says whose it is, what to recall, and whose work it is."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sakti.core.errors import MemoryFailure
from sakti.core.tokens import Estimator
from sakti.core.types import ModelCall, Thread, Usage
from sakti.memory import shared
from sakti.memory.context import render_group
from sakti.memory.protocol import ReflectInput, ReflectResult
from sakti.memory.recall import AskingThread, RecallRequest, recall
from sakti.memory.reflect import quality
from sakti.memory.reflect.model import ModelReflector
from sakti.memory.shared import make_thread_alias
from sakti.store import memory
from sakti.store.log import lines as memory_log
from sakti.store.memory import Group, group_rows
from sakti.store.memory.group_rows import Span, get_row_thread, list_row_spans, list_spans
from sakti.store.threads import fork as thread_fork
from sakti.store.threads import lineage, messages, threads
from tests.fakes.memory import Driver, ScriptedReflector, settings

COUNT = Estimator().count
T1, T2 = make_thread_alias("t1"), make_thread_alias("t2")
LONG = "the scheduler drops jobs when the clock jumps and nobody notices until monday morning "


def group(id: str, thread: str, text: str, first: int | None = 0, last: int | None = 3, title: str = "") -> Group:
    return Group(
        id, "r", thread, "observation", "active", text, 0, first_index=first, last_index=last,
        metadata={"thread_title": title},
    )  # fmt: skip


def lines_of(name: str, count: int) -> str:
    return "\n".join(["Date: Dec 4, 2025", *(f"* 🟡 (10:0{n}) {name} line {n}" for n in range(count))])


# --- pure -------------------------------------------------------------------------------------------------


def test_a_block_names_its_thread_and_its_range() -> None:
    one = group("x" * 28 + "abcd1234", "t1", lines_of("a", 1), 2, 9, 'Fix "login" <now>\n')
    shown = render_group(one, 0, None, tagged=True, threads=True)
    named = f'kind="observation" thread="{T1}" title="Fix \'login\' \'now\'"'
    head = f'<observation-group id="abcd1234" {named} messages="2-9">'
    assert shown.split("\n")[0] == head
    without = render_group(one, 0, None, tagged=False, threads=True).split("\n")[0]
    assert without == f"<observation-group {named}>"
    assert "t1" not in head.replace(T1, "") and re.fullmatch("[0-9a-f]{8}", T1), "an id leads nowhere"
    alone = render_group(one, 0, None, tagged=True)
    assert alone.split("\n")[0] == '<observation-group id="abcd1234" kind="observation" messages="2-9">'
    nobody = render_group(structs.replace(one, first_index=None), 0, None, tagged=True, threads=True)
    assert nobody.split("\n")[0] == '<observation-group id="abcd1234" kind="observation">'


async def test_a_pinned_line_goes_with_the_part_that_has_it_not_with_one_that_quotes_it() -> None:
    pinned = "* the queue drains at midnight"
    mine = lines_of("a", 6) + "\n  * -> the queue drains at midnight"
    quotes = lines_of("b", 6) + "\n* 🟡 (10:09) it drains at one [replaces 10:00: the queue drains at midnight]"
    groups = [group("a", "t1", mine, 0, 4), group("b", "t2", quotes, 0, 4)]
    reflector = ScriptedReflector()
    whole = ReflectInput("t1", tuple((g.id, g.text) for g in groups), 100, 0, (pinned,), "default")
    await quality.reflect_by_thread(reflector, groups, whole, Estimator(), (), asyncio.to_thread)
    assert [part.pinned for part in reflector.inputs] == [(pinned,), ()]


def test_parts_are_threads_and_what_is_small_goes_together() -> None:
    groups = [
        group("a", "t1", lines_of("a", 9), 0, 9, "one"),
        group("b", "t2", lines_of("b", 9), 0, 4, "two"),
        group("c", "t3", "* tiny", 0, 1, "three"),
        group("d", "t4", "* tiny, too", 5, 6),
        group("e", "t1", lines_of("c", 9), 10, 12, "one, renamed"),
        group("f", "t5", "", 0, 30),
    ]
    found = shared.split_by_thread(groups, COUNT)
    assert [[s.thread_id for s in part.spans] for part in found] == [["t2"], ["t3", "t4"], ["t1"], ["t5"]]
    assert found[2].spans == (Span("t1", 0, 12, "one, renamed"),)
    assert [len(part.groups) for part in found] == [1, 2, 2, 0]
    assert list(found[1].labels.values()) == [
        f"Thread {make_thread_alias('t3')} three",
        f"Thread {make_thread_alias('t4')}",
    ]
    assert sum(part.tokens for part in found) == sum(COUNT(g.text) for g in groups if g.text)


def test_many_small_threads_are_not_many_calls() -> None:
    found = shared.split_by_thread([group(f"g{n}", f"t{n}", lines_of(str(n), 2)) for n in range(40)], COUNT)
    assert len(found) == 1
    assert len(found[0].spans) == 40


def test_a_correction_moves_no_section() -> None:
    text, sections = shared.join_texts(
        [(lines_of("a", 3), (Span("t1", 0, 9),)), (lines_of("b", 2), (Span("t2", 0, 4),))]
    )
    whole = structs.replace(group("r", "t1", text), metadata=shared.make_section_metadata(sections))
    done = shared.correct_group(whole, {0: None, 2: "changed", 3: None})
    (first, one), (second, two) = shared.split_sections(done)
    assert first == "Date: Dec 4, 2025\n* 🟡 (10:01) a line 1\n* 🟡 (10:02) changed"
    assert second == "Date: Dec 4, 2025\n* 🟡 (10:01) b line 1"
    assert (one, two) == ((Span("t1", 0, 9),), (Span("t2", 0, 4),))
    gone = shared.correct_group(whole, {0: None, 1: None, 2: None})
    assert shared.split_sections(gone)[0][0] == ""
    assert shared.split_sections(gone)[1][0] == lines_of("b", 2)
    assert render_group(gone, 0, None, tagged=True, threads=True).count("<observation-group") == 1


def test_a_line_is_of_the_thread_of_its_section() -> None:
    one, two, both = (Span("t1", 0, 9),), (Span("t2", 0, 4),), (Span("t2", 5, 6), Span("t3", 2, 2))
    text, sections = shared.join_texts([(lines_of("a", 3), one), (lines_of("b", 2), two), ("* 🟡 c", both)])
    whole = structs.replace(group("r", "t1", text), metadata=shared.make_section_metadata(sections))
    assert [list_row_spans(whole, n) for n in range(6)] == [one, one, one, two, two, both]
    assert [get_row_thread(whole, n) for n in range(6)] == ["t1", "t1", "t1", "t2", "t2", "t1"]


async def test_a_pinned_line_comes_back_in_its_own_part_alone() -> None:
    class Short(ScriptedReflector):
        async def reflect(self, request: ReflectInput) -> ReflectResult:
            return ReflectResult("* 🟡 in short")

    groups = [group("a", "t1", lines_of("a", 9), 0, 9), group("b", "t2", lines_of("b", 9), 0, 4)]
    pinned = "* 🟡 (10:03) b line 3"
    request = ReflectInput("t1", tuple((g.id, g.text) for g in groups), 100, pinned=(pinned,))
    result, _ = await quality.reflect_by_thread(Short(), groups, request, Estimator(), (), asyncio.to_thread)
    assert result.text.split("\n") == ["* 🟡 in short", pinned, "* 🟡 in short"]


def test_a_forks_past_is_its_own_as_far_as_it_goes() -> None:
    forked: dict[str, Any] = {"forked_from": "t2", "forked_at": 9}
    own = lineage.get_lineage(Thread("t3", "w", "", 0, 0, metadata={**forked, "lineage": [["t1", 4], ["t2", 9]]}))
    assert own == {"t1": 4, "t2": 9, "t3": None}
    mine = [(Span("t3", 50, 99),), (Span("t2", 3, 9),), (Span("t1", 0, 4), Span("t3", 0, 1))]
    others = [(), (Span("t2", 3, 10),), (Span("t4", 0, 1),), (Span("t3", 0, 1), Span("t4", 0, 1))]
    assert [shared.is_of_lineage(s, own) for s in (*mine, *others)] == [True] * 3 + [False] * 4
    assert lineage.get_lineage(Thread("t3", "w", "", 0, 0, metadata=forked)) == {"t2": 9, "t3": None}


# --- in the engine ----------------------------------------------------------------------------------------


async def talk(driver: Driver, thread: str, turns: int, word: str) -> None:
    """Open a thread and talk in it; the driver checks the requests of one thread at a time."""
    await driver.engine.close()
    driver.said.clear()
    await driver.open(thread)
    driver.said[:] = []
    for number in range(turns):
        await driver.turn(f"{word} question {number} {LONG * 3}", [{"text": f"{word} answer {number} {LONG * 3}"}])
        await driver.engine.wait_idle()


async def two_threads(tmp_path: Path, log: int = 100_000, **values: Any) -> Driver:
    """`zebra` was talked of in t1, `lion` in t2, which is open."""
    memory_settings = settings(700, log, buffer_tokens=0.3, scope="resource", **values)
    driver = await Driver.make(tmp_path / "m.db", memory_settings)
    await talk(driver, "t1", 8, "zebra")
    await driver.engine.compact()  # nothing of it is only buffered
    await talk(driver, "t2", 8, "lion")
    return driver


def log_blocks(driver: Driver) -> list[str]:
    prepared = driver.engine.preview()
    return [b.text for b in prepared.blocks if b.kind in ("observations", "reflection")]


def heads(blocks: list[str]) -> list[str]:
    return [line for b in blocks for line in b.split("\n") if line.startswith("<observation-group")]


async def test_a_later_name_changes_no_earlier_block(tmp_path: Path) -> None:
    driver = await two_threads(tmp_path)
    before = log_blocks(driver)
    assert {re.search(r'thread="(\w+)"', h)[1] for h in heads(before)} == {T1, T2}  # pyright: ignore
    assert all('title="Title' in h for h in heads(before))
    for thread in ("t1", "t2"):
        await driver.store.write(threads.rename, thread, f"Renamed {thread}", 1, by_user=True)
    await driver.begin("and on")
    await driver.prepare()
    assert log_blocks(driver)[: len(before)] == before
    for number in range(6):
        await driver.turn(f"more {number} {LONG * 3}", [{"text": LONG * 3}])
        await driver.engine.wait_idle()
    after = log_blocks(driver)
    assert after[: len(before)] == before
    assert 'title="Renamed t2"' in heads(after)[-1]
    await driver.close()


async def test_another_threads_work_is_not_this_ones(tmp_path: Path) -> None:
    driver = await two_threads(tmp_path)
    await talk(driver, "t1", 0, "")
    observed = len(driver.observer.inputs)
    t2 = await driver.store.read(threads.get, "t2")
    assert t2 is not None
    await driver.begin("zebra, go on")
    prepared = await driver.prepare()
    (reminder,) = [m for m in prepared.messages if m.metadata.get("synthetic") == "reminder"]
    assert f"this conversation, thread {T1}," in reminder.text
    (told,) = [b.text for b in prepared.blocks if b.kind == "memory"]
    assert f"This conversation is thread {T1}." in told
    assert "Do not continue it" in told
    assert T2 not in told
    tail = "\n".join(prepared.tail)
    mine = (await driver.store.read(threads.get, "t1")).metadata["current_task"]  # pyright: ignore
    assert mine in tail
    assert t2.metadata["current_task"] not in tail
    await driver.step({"text": "."}, "c")
    for number in range(4):
        await driver.turn(f"zebra again {number} {LONG * 3}", [{"text": LONG * 3}])
        await driver.engine.wait_idle()
    first = driver.observer.inputs[observed]
    assert "zebra" in first.log and "lion" not in first.log
    assert first.current_task is not None
    told_by = driver.observer.inputs[int(first.current_task.split()[-1]) - 1]
    assert told_by.thread_id == "t1", "not what t2 was working on, though that is newer"
    await driver.close()


async def test_each_threads_lines_are_condensed_by_themselves_and_stay_its_own(tmp_path: Path) -> None:
    driver = await two_threads(tmp_path)
    store, engine = driver.store, driver.engine
    assert await engine.reflect_now()
    inputs = driver.reflector.inputs
    assert [sorted(set(i.labels.values()))[0].split()[1] for i in inputs] == [T1, T2]
    assert ["lion" in t for i in inputs for _, t in i.groups] == [i is inputs[1] for i in inputs for _ in i.groups]
    shown = engine.state.window.active
    (reflection,) = [g for g in shown if g.kind == "reflection"]
    assert {s.thread_id: s.first for s in list_spans(reflection)} == {"t1": 0, "t2": 0}
    assert "Thread" not in reflection.text and T1 not in reflection.text, "names are not stored"
    block = log_blocks(driver)[0]
    one, two = block.split("</observation-group>\n")
    assert f'thread="{T1}"' in one and "zebra" in one and "lion" not in one
    assert f'thread="{T2}"' in two and "lion" in two and "zebra" not in two
    assert reflection.current_task is None, "a task of several threads is nobody's"

    rows = await store.read(
        lambda db: db.execute_sql(
            "SELECT id, thread_id, content FROM observations WHERE group_id = ? ORDER BY line", (reflection.id,)
        ).fetchall()
    )
    assert {(thread, "zebra" in text) for _, thread, text in rows} == {("t1", True), ("t2", False)}
    for line, thread, _ in rows:
        origin = await store.read(group_rows.find_origin, line)
        assert origin is not None and origin.thread_id == thread
    ids = await store.read(memory_log.list_sources, reflection.id)
    assert {m.thread_id for m in await store.read(messages.get_many, ids)} == {"t1", "t2"}
    last = {s.thread_id: s.last for s in list_spans(reflection)}
    assert len(ids) == last["t1"] + last["t2"] + 2

    # a line that is forgotten leaves the others where they are
    lion = next(line for line, thread, _ in rows if thread == "t2")
    for line in (rows[0][0], rows[1][0], rows[2][0], lion):
        await engine.correct(line, "forget")
    one, two = log_blocks(driver)[0].split("</observation-group>\n")
    assert "lion" not in one and "zebra" not in two
    assert two.split("\n")[1].startswith("Date: ")

    # what comes after is condensed with it, thread by thread again
    await talk(driver, "t1", 6, "zebra")
    driver.reflector.inputs.clear()
    assert await driver.engine.reflect_now()
    words = [{w for _, t in i.groups for w in ("zebra", "lion") if w in t} for i in driver.reflector.inputs]
    assert words == [{"lion"}, {"zebra"}], "the thread with the newest notes is the last"
    await driver.close()


async def test_recall_pages_through_the_thread_that_is_meant(tmp_path: Path) -> None:
    driver = await two_threads(tmp_path)
    store = driver.store

    async def recalled(id: str, thread: str = "t1") -> Any:
        return await recall(store, driver.counter, AskingThread("workspace", thread), RecallRequest(id))

    for head in heads(log_blocks(driver)):
        found = re.search(r'id="(\w+)" kind="observation" thread="(\w+)" .*messages="(\d+)-(\d+)"', head)
        assert found
        page = await recalled(found[1])
        assert make_thread_alias(page["thread_id"]) == found[2]
        assert page["range"] == [int(found[3]), int(found[4])]
        word = "zebra" if page["thread_id"] == "t1" else "lion"
        assert all(word in m["parts"][0]["text"] for m in page["messages"])
    await driver.engine.reflect_now()
    (reflection,) = [g for g in driver.engine.state.window.active if g.kind == "reflection"]
    for thread, other in (("t1", "t2"), ("t2", "t1")):
        page = await recalled(reflection.id[-8:], thread)
        assert page["thread_id"] == thread
        (more,) = page["other_threads"]
        assert more.startswith(f"{make_thread_alias(other)}/0-")
        assert (await recalled(more, thread))["thread_id"] == other
        assert (await recalled(more, thread))["other_thread"]
    assert (await recalled(f"{T2}/3"))["messages"][0]["index"] == 3
    with pytest.raises(MemoryFailure, match="No thread of this workspace"):
        await recalled("00000000/3")
    await driver.close()


async def test_several_threads_in_one_part_are_told_in_its_tag(tmp_path: Path) -> None:
    found = (Span("t1", 0, 5, "one"), Span("t2", 2, 3))
    text, sections = shared.join_texts([("* all of it", found)])
    whole = structs.replace(
        group("r" * 8, "t1", text), kind="reflection", metadata=shared.make_section_metadata(sections)
    )
    head = render_group(whole, 0, None, tagged=True, threads=True).split("\n")[0]
    assert head == f'<observation-group id="rrrrrrrr" kind="reflection" threads="{T1}/0-5 one; {T2}/2-3">'


async def test_a_part_that_cannot_be_made_smaller_stays(tmp_path: Path) -> None:
    driver = await two_threads(tmp_path)

    class Half(ScriptedReflector):
        async def reflect(self, request: ReflectInput) -> Any:
            if "lion" in request.groups[0][1]:
                raise MemoryFailure("no", code="not_smaller")
            return await super().reflect(request)

    driver.engine._worker.reflector = Half()
    before = [g.text for g in driver.engine.state.window.active if g.thread_id == "t2"]
    assert await driver.engine.reflect_now()
    (reflection,) = [g for g in driver.engine.state.window.active if g.kind == "reflection"]
    assert shared.split_sections(reflection)[1][0] == "\n".join(before)
    await driver.close()


async def test_a_fork_knows_whose_notes_are_its_own(tmp_path: Path) -> None:
    driver = await two_threads(tmp_path)
    store = driver.store
    end = await store.read(memory.find_cursor, driver.engine.record_id, "t1")
    await store.write(thread_fork.fork, "t1", id="t3", ids=store.ids, now=driver.clock.now(), upto=end)
    observed = len(driver.observer.inputs)
    await driver.engine.close()
    driver.said.clear()
    await driver.open("t3")
    (own,) = [g for g in driver.engine.state.window.active if g.thread_id == "t3"]
    assert (own.text, own.first_index, own.last_index, own.metadata["forked"]) == ("", 0, end, True)
    again = await store.write(thread_fork.fork, "t3", id="t4", ids=store.ids, now=driver.clock.now(), upto=2)
    assert lineage.get_lineage(again) == {"t1": 2, "t3": 2, "t4": None}
    await driver.begin("zebra, go on")
    prepared = await driver.engine.prepare(step=1)
    (told,) = [b.text for b in prepared.blocks if b.kind == "memory"]
    assert f"This conversation is thread {make_thread_alias('t3')}." in told
    assert f"It was forked from thread {T1}: notes on that thread's messages up to {end} count as its own." in told
    assert any(m.metadata.get("synthetic") == "reminder" for m in prepared.messages)
    await driver.step({"text": "."}, "c")
    for number in range(5):
        await driver.begin(f"zebra again {number} {LONG * 3}")
        await driver.engine.prepare(step=1)
        await driver.step({"text": LONG * 3}, f"d{number}")
        await driver.engine.end_turn()
        await driver.engine.wait_idle()
    assert "zebra" in driver.observer.inputs[observed].log, "its past is told to its Observer"
    assert "lion" not in driver.observer.inputs[observed].log
    assert await driver.engine.reflect_now()
    (reflection,) = [g for g in driver.engine.state.window.active if g.kind == "reflection"]
    assert {s.thread_id for s in list_spans(reflection)} == {"t1", "t2", "t3", "t4"}
    await driver.close()


class OneAnswer:
    """Answers as a model that keeps the headings it was given."""

    def __init__(self) -> None:
        self.counter, self.full_name, self.max_output_tokens = Estimator(), "a/b", 1_000
        self.prompts: list[str] = []

    async def ask(self, system: str, prompt: str) -> tuple[str, ModelCall]:
        self.prompts.append(prompt)
        answer = f"<observations>\n## Thread {T1} one\n* kept\n</observations>"
        return answer, ModelCall("a/b", Usage(), 0, "end", 0)


async def test_the_reflector_is_told_whose_lines_they_are_and_its_headings_go() -> None:
    asker = OneAnswer()
    request = ReflectInput(
        "t1",
        (("a", lines_of("a", 2)), ("b", lines_of("b", 1)), ("c", lines_of("c", 1))),
        1_000,
        labels={"a": f"Thread {T1} one", "b": f"Thread {T1} one", "c": f"Thread {T2}"},
    )
    reflector = ModelReflector(asker)  # pyright: ignore
    assert (await reflector.reflect(request)).text == "* kept"
    (prompt,) = asker.prompts
    log = prompt.split("# Whose lines")[0]
    assert [x for x in log.split("\n") if x.startswith("##")] == [f"## Thread {T1} one", f"## Thread {T2}"]
    assert "[O1] * 🟡 (10:00) a line 0" in log and "[O4] * 🟡 (10:00) c line 0" in log
    assert log.index(T2) < log.index("[O4]") and log.index(T2) > log.index("[O3]")
    await reflector.reflect(structs.replace(request, labels={}))
    assert "##" not in asker.prompts[1] and "Whose lines" not in asker.prompts[1]


def test_headings_of_the_reflectors_own_stay() -> None:
    text = f"## Thread {T1} x\n* a\n## Threads {T1}; {T2}\n* b\n## Other\n* c\n## {shared.NO_THREAD}\n* d"
    assert shared.remove_labels(text) == "* a\n* b\n## Other\n* c\n* d"
