"""Every command of the chat in lines, on a real session."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sakti.agent.threads import erasure as removal
from sakti.core import resources
from sakti.core.errors import SaktiError
from sakti.plain.commands import PlainCommands
from sakti.plain.speech import Speech
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.search import search
from sakti.store.threads import removal as thread_removal
from sakti.tasks import service
from tests.fakes.session import start


class Lines:
    """What the commands ask of the chat."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.speech = Speech()
        self.unsent = ""
        self.said: list[str] = []
        self.left: int | None = None
        self.commands = PlainCommands(self)  # type: ignore[arg-type]
        session.subscribe(lambda event: self.say(self.speech.format_event(event)))

    def say(self, lines: Iterable[str]) -> None:
        self.said += lines

    def leave(self, code: int) -> None:
        self.left = code

    async def send(self, text: str) -> None:
        if not await self.commands.run(text):
            await self.session.submit(text)
            await self.session.wait()

    async def heard(self, text: str) -> str:
        self.said.clear()
        if text.isdecimal() and self.commands.choose:
            await self.commands.choose(int(text))
        else:
            await self.send(text)
        return "\n".join(self.said)


@pytest.fixture
async def lines(store: Store, tmp_path: Path) -> Lines:
    answers = [
        Answer("I look.", calls=(Call("ls", {"path": "."}),)),
        Answer("The **queue** drains at midnight."),
        Answer("Second answer."),
    ]
    recorded = await start(store, tmp_path / "work", answers)
    return Lines(recorded.session)


async def test_a_page_of_help_is_read_aloud_without_its_markup(lines: Lines) -> None:
    heard = await lines.heard("/help undo")
    assert heard.startswith("heading: Undo\n")
    assert "row: /redo; undoes the undo" in heard and "```" not in heard


async def test_a_conversation_with_its_commands(lines: Lines) -> None:
    said = await lines.heard("when does the queue drain?")
    assert "sakti: I look." in said and "tool: ls ., " in said and said.endswith("ready")
    assert "sakti: The queue drains at midnight." in said

    found = await lines.heard("/search midnight")
    assert "1 found" in found and "1. sakti, " in found
    opened = await lines.heard("1")
    assert "selected:" in opened and "The queue drains at midnight." in opened
    assert "1 found" in await lines.heard("/find midnight")
    with pytest.raises(SaktiError, match="1 to choose from"):
        await lines.heard("7")

    assert "ls .:" in await lines.heard("/output")
    assert "blocks, " in await lines.heard("/context")
    assert await lines.heard("1")
    assert "Messages: " in await lines.heard("/memory")
    assert "The queue drains at midnight." in await lines.heard("/last 1")
    assert "price: not known for this model" in await lines.heard("/cost")
    assert "Approval is plan" in await lines.heard("/approve plan")
    assert "/search QUERY" in await lines.heard("/help")
    assert "memory.enabled is true, from default" in await lines.heard("/settings memory")
    assert "takes effect now" in await lines.heard("/settings approval.mode = ask")
    assert 'approval.mode is "ask", from ' in await lines.heard("/settings approval.mode")
    with pytest.raises(SaktiError):
        await lines.heard("/settings approval.mode = anything")
    assert "No events yet" in await lines.heard("/memory events")
    assert "good: sakti" in await lines.heard("/doctor")
    assert "sakti talks to scripted/demo: given." in await lines.heard("/setup")
    with pytest.raises(SaktiError, match="no colours"):
        await lines.heard("/theme")
    with pytest.raises(SaktiError, match=r"Did you mean /search"):
        await lines.heard("/serch")


async def test_modes_are_listed_with_a_sentence_each(lines: Lines) -> None:
    listed = await lines.heard("/mode")
    for name in resources.list_modes():
        (row,) = (line for line in listed.splitlines() if line.startswith(f"{name}: "))
        assert row.endswith(".") and ("Current." in row) == (name == "default")
    await lines.heard("/mode testing")
    assert "testing: Current." in await lines.heard("/mode")


@pytest.mark.parametrize("form", ["md", "json", "html"])
async def test_the_open_thread_is_exported_to_a_file(lines: Lines, tmp_path: Path, form: str) -> None:
    with pytest.raises(SaktiError, match="no messages yet"):
        await lines.heard(f"/export {form}")
    await lines.heard("when does the queue drain?")
    path = tmp_path / "work" / f"my notes.{form}"
    assert f"Written to {path}." in await lines.heard(f"/export {form} my notes.{form}")
    assert "drains at midnight" in path.read_text("utf-8")
    assert path.read_text("utf-8")[0] == {"md": "#", "json": "{", "html": "<"}[form]
    with pytest.raises(SaktiError, match="already exists"):
        await lines.heard(f"/export {form} my notes.{form}")
    with pytest.raises(SaktiError, match="'pdf' is not one of md, json, html"):
        await lines.heard("/export pdf")


async def test_plain_mode_says_what_stands_in_for_copying(lines: Lines) -> None:
    with pytest.raises(SaktiError, match="no answer yet"):
        await lines.heard("/copy")
    await lines.heard("when does the queue drain?")
    with pytest.raises(SaktiError, match="/last repeats the answer"):
        await lines.heard("/copy")
    with pytest.raises(SaktiError, match="no code block"):
        await lines.heard("/copy code")
    assert "/copy" not in await lines.heard("/help")


async def test_a_message_is_deleted_when_it_was_named_and_confirmed(lines: Lines, store: Store) -> None:
    await lines.heard("when does the queue drain?")
    for wrong in ("yes", "x", "0", "99"):
        with pytest.raises(SaktiError):
            await lines.heard(f"/delete-message {wrong}")
    assert "deletes the answer 'The **queue** drains at midnight.'" in await lines.heard("/delete-message")
    assert "midnight" in await lines.heard("/last")
    assert "Deleted for good." in await lines.heard("/delete-message yes")
    assert "midnight" not in await lines.heard("/last")
    assert (await store.read(search.search, "midnight", search.Scope())).total == 0


async def test_a_thread_that_was_removed_elsewhere(lines: Lines, store: Store) -> None:
    await lines.heard("when does the queue drain?")
    await store.write(thread_removal.delete_thread, lines.session.thread.id, 9)
    await removal.purge(store, before=1 << 60, do=True)
    for text in ("and now?", "!ls", "#note", "/compact", "/memory pause", "/compact undo", "/rename x"):
        with pytest.raises(SaktiError, match="This thread was removed in another window. /new starts a new one"):
            await lines.heard(text)
    await lines.heard("/new")
    assert "Second answer." in await lines.heard("and now?")


async def test_tasks_are_changed_by_words(lines: Lines) -> None:
    handle = (await lines.heard("/tasks create Mend the gate")).split()[0]
    other = (await lines.heard("/tasks create Paint it")).split()[0]
    assert f"{other} waits for {handle}." in await lines.heard(f"/tasks dep {other} {handle}")
    board = await lines.heard("/tasks")
    assert "ready: 1 task" in board and f"{other}, priority 2, task: Paint it; waits for {handle}" in board
    assert "is yours" in await lines.heard(f"/tasks claim {handle}")
    assert "Unblocked" in await lines.heard(f"/tasks close {handle} done with oil")
    assert "Mend the gate, closed" in await lines.heard(f"/tasks tree {handle}")
    assert "Undone: close" in await lines.heard("/tasks undo")
    for wrong, told in (
        ("/tasks close", "Write /tasks close TASK SUMMARY"),
        (f"/tasks close {handle}", "TASK SUMMARY"),
        ("/tasks dance now", "create TITLE, claim TASK"),
    ):
        with pytest.raises(SaktiError, match=told):
            await lines.heard(wrong)


async def test_what_another_holds_is_changed_with_an_exclamation_mark(lines: Lines, store: Store) -> None:
    epic = (await lines.heard("/tasks create The gates")).split()[0]
    gate = (await lines.heard("/tasks create Mend the gate")).split()[0]
    session = lines.session
    actor = service.Actor(session.workspace.resource_id, "shell:ann", store.clock.now())
    await store.write(service.depend, actor, gate, epic, "parent-child")
    await store.write(service.claim, actor, gate)
    board = await lines.heard("/tasks")
    assert "waiting for their children: 1 task" in board and "waits for its open child" in board
    assert f"{gate}, priority 2, task: Mend the gate; claimed by ann" in board
    with pytest.raises(SaktiError, match="claimed by ann"):
        await lines.heard(f"/tasks close {gate} done")
    assert f"{gate} is closed" in await lines.heard(f"/tasks close! {gate} done")


async def test_the_log_is_said_corrected_and_undone(lines: Lines) -> None:
    nothing = "No observations yet. They appear as you chat; /compact writes them now."
    assert await lines.heard("/observations") == nothing
    await lines.heard("always deploy on fridays")
    await lines.heard("and the second thing")
    assert "compacted: " in await lines.heard("/compact")
    assert "compacted" in await lines.heard("/memory events")
    log = await lines.heard("/observations")
    assert "1. " in log and "fridays" in log
    assert "you, " in await lines.heard("1")
    await lines.heard("/observations pin 1")
    assert "pinned" in await lines.heard("/observations pinned")
    assert "fridays" in await lines.heard("/observations at now")
    assert "add: " in await lines.heard("/compact diff")
    await lines.heard("/observations undo")
    assert await lines.heard("/observations pinned") == "No line matches."
    assert "compaction undone" in await lines.heard("/compact undo")


async def test_threads_are_listed_and_opened(lines: Lines) -> None:
    await lines.heard("the first thread")
    await lines.heard("/rename Gate")
    await lines.heard("/new")
    listed = await lines.heard("/threads")
    assert "1. Gate, " in listed
    assert "thread: Gate" in await lines.heard("1")
    assert "Renamed" in await lines.heard("/threads rename 1 Fence")
    assert "Deleted 'Fence'" in await lines.heard("/threads delete 1")
    assert "Restored" in await lines.heard("/threads restore")
    assert "Fence" in await lines.heard("/resume"), "alone it lists them"
    assert "thread: Fence" in await lines.heard("/resume fence")


async def test_what_was_not_sent_is_sent_or_dropped_by_hand(lines: Lines) -> None:
    lines.unsent = "half a thought"
    assert "ready" in await lines.heard("/send")
    stored = await lines.session.views.transcript(lines.session.thread.id)
    assert lines.unsent == "" and stored[0].text == "half a thought"
    assert "no unsent draft" in await lines.heard("/drop")
    await lines.heard("/quit")
    assert lines.left == 0
