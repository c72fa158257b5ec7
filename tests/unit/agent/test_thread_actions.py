"""Threads as a whole, on a real session: rename, fork, delete and undo, export; and a second window."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from sakti.agent.checkpoints.undoing import make_undoing
from sakti.agent.threads import erasure as removal
from sakti.agent.threads.actions import OneMessage, ThreadActions
from sakti.agent.threads.export import FORMATS, make_file_name, render
from sakti.core.errors import SaktiError
from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    MarkerPart,
    Message,
    TextPart,
    ThinkingPart,
    Thread,
    ToolCallPart,
    ToolResultPart,
)
from sakti.store.log.lines import LogLine
from sakti.store.search import index, search
from sakti.store.threads import messages, threads
from sakti.store.threads import removal as thread_removal
from tests.fakes.session import start

EVIL = "<script>alert(1)</script>[x](javascript:alert(1)) ![p](http://evil/p.png) \x1b]0;owned\x07 ``` & \"'"


async def test_rename_fork_delete_and_restore(store, tmp_path):
    here = await start(store, tmp_path / "w", ["one", "two", "three"])
    session, actions = here.session, ThreadActions(here.session)
    await here.ask("where is the xylophone?")
    first = session.thread.id
    assert await actions.rename(first, " a\x1b title ") == "Renamed to 'a␛ title'."
    assert session.thread.title == "a␛ title"
    with pytest.raises(SaktiError, match="empty"):
        await actions.rename(first, "  ")
    made = await actions.fork(first)
    assert made.id != first and made.metadata["forked_from"] == first
    await session.open_thread(made.id)
    await here.ask("and now?")
    assert len(await session.views.transcript(first)) == 2
    assert len(await session.views.transcript(made.id)) == 4
    gone = await actions.delete(made.id)
    assert gone.messages == 4
    assert session.thread.id not in (made.id, first), "a new thread began"
    assert [s.thread.id for s in await session.views.threads()] == [first]
    assert (await actions.find_last_deleted()).id == made.id
    assert (await actions.restore(made.id)).id == made.id
    assert await actions.find_last_deleted() is None
    assert {s.thread.id for s in await session.views.threads()} == {first, made.id}


async def test_a_message_is_deleted_with_its_copies_in_forks_and_undone_threads(store, tmp_path):
    secret = "the vault phrase is himbeerquark55"
    here = await start(store, tmp_path / "w", ["Noted, himbeerquark55 it is.", "two", "three", "four"])
    session, actions = here.session, ThreadActions(here.session)
    await here.ask(secret)
    origin = session.thread.id
    early = await actions.fork(origin)
    await here.ask("second question")
    undoing = make_undoing(session)
    await undoing.undo(await undoing.preview())
    branch = session.thread.id
    again = await actions.fork(early.id)  # a fork of a fork, continued by the user
    await session.open_thread(again.id)
    await here.ask("third question")
    other = await start(store, tmp_path / "w", ["five"])
    await other.ask(secret)  # typed again: not a copy

    await session.open_thread(branch)
    deletion = OneMessage(session)
    preview = await deletion.run("2")
    assert f"3 copies in 'the vault phrase is himbeerquark55' (undone, {origin[-8:]})" in preview
    assert f"(fork)' ({early.id[-8:]})" in preview and again.id[-8:] in preview
    assert other.session.thread.id[-8:] not in preview
    assert (await deletion.run("yes")).startswith("Deleted for good, with 3 copies.")
    for thread_id in (origin, early.id, branch, again.id):
        [first, answer, *_] = await store.read(messages.list_after, thread_id, -1)
        assert thread_removal.is_message_deleted(first) and "himbeerquark" in answer.text
        assert "vault" not in (await store.read(threads.get, thread_id)).title
    hits = (await store.read(search.search, "vault phrase", search.Scope(session.workspace.resource_id))).hits
    assert {h.thread_id for h in hits if "vault" in h.text} == {other.session.thread.id}
    await session.open_thread(again.id)
    await here.ask("fourth question")
    assert "vault" not in str(here.provider.requests[-1].messages)


async def test_a_message_of_a_fork_alone_is_in_no_other_thread(store, tmp_path):
    here = await start(store, tmp_path / "w", ["one", "two", "three"])
    session, actions = here.session, ThreadActions(here.session)
    await here.ask("first")
    origin = session.thread.id
    copy = await actions.fork(origin)
    await here.ask("only here")
    await session.open_thread(copy.id)
    await here.ask("only there")
    [_, _, mine, _] = await store.read(messages.list_after, copy.id, -1)
    assert (await actions.delete_message(mine.id)).copies == ()
    assert [m.text for m in await store.read(messages.list_after, origin, -1)][2] == "only here"


async def test_the_preview_of_a_removal_counts_the_threads_that_keep_its_messages(store, tmp_path):
    here = await start(store, tmp_path / "w", ["one", "two"])
    actions = ThreadActions(here.session)
    await here.ask("first")
    origin = here.session.thread.id
    assert (await actions.contents(origin)).keepers == 0
    copy = await actions.fork(origin)
    assert "; copies of its messages stay in 1 thread (forked or undone)" in (await actions.delete(origin)).in_words()
    preview = await removal.purge(store, before=1 << 60, do=False)
    assert [c.keepers for c in preview.threads] == [1] and "stay in 1 thread" in preview.in_words()[0]
    await actions.delete(copy.id)
    preview = await removal.purge(store, before=1 << 60, do=False)
    assert [c.keepers for c in preview.threads] == [0, 0], "both are removed"


async def test_search_follows_beside_what_the_session_does(store, tmp_path):
    here = await start(store, tmp_path / "w", ["one", "two"])
    session, actions = here.session, ThreadActions(here.session)
    await here.ask("where is the xylophone?")
    thread = session.thread.id

    async def rows():
        return await store.read(
            lambda db: [
                n
                for sql in ("SELECT count(*) FROM search_docs", "SELECT count(*) FROM reindexing n")
                for (n,) in db.execute_sql(sql)
            ]
        )

    await session.workspace.indexing.wait()
    assert await rows() == [2, 0]
    await actions.delete(thread)
    await session.workspace.indexing.wait()
    assert await rows() == [0, 0]
    await actions.restore(thread)
    await session.workspace.indexing.wait()
    assert await rows() == [2, 0]
    await store.write(thread_removal.delete_thread, thread, 9)  # by a process that ends before it is done
    assert await rows() == [2, 1]
    await session.close()
    there = await start(store, tmp_path / "w", [])
    await there.session.workspace.indexing.wait()
    assert await rows() == [0, 0]


async def test_another_window_on_a_deleted_thread_is_told_so(store, tmp_path):
    here = await start(store, tmp_path / "w", ["one", "two"])
    await here.ask("hello")
    there = await start(store, tmp_path / "w", ["again"], continue_last=True)
    assert there.session.thread.id == here.session.thread.id
    await ThreadActions(here.session).delete(here.session.thread.id)
    for act in (there.session.submit, there.session.shell):
        with pytest.raises(SaktiError, match="deleted in another window"):
            await act("echo still here?")
    assert there.provider.requests == []
    await ThreadActions(there.session).restore(there.session.thread.id)
    assert (await there.ask("still here?")).status == "answered"


ACTS = {
    "message": lambda s: s.submit("still here?"),
    "shell": lambda s: s.shell("touch ran"),
    "note": lambda s: s.note("remember the milk"),
    "compact": lambda s: s.compact(),
    "undo": lambda s: s.undo_compaction(),
    "undo reflection": lambda s: s.undo_reflection(),
    "pause": lambda s: s.pause_memory(pause=True),
    "correct": lambda s: s.correct("undo"),
    "rename": lambda s: ThreadActions(s).rename(s.thread.id, "x"),
    "fork": lambda s: ThreadActions(s).fork(s.thread.id),
    "delete": lambda s: ThreadActions(s).delete(s.thread.id),
}


@pytest.mark.parametrize("act", ACTS)
async def test_on_a_thread_that_another_process_removed_for_good(store, tmp_path, act):
    here = await start(store, tmp_path / "w", ["one", "two"])
    await here.ask("hello")
    await store.write(thread_removal.delete_thread, here.session.thread.id, 9)
    await removal.purge(store, before=1 << 60, do=True)
    with pytest.raises(SaktiError, match="removed in another window|removed for good") as e:
        await ACTS[act](here.session)
    assert here.session.thread.id not in str(e.value)
    assert not (tmp_path / "w" / "ran").exists() and len(here.provider.requests) == 1
    assert await store.read(index.list_unindexed) == []
    await here.session.new_thread()
    assert (await here.ask("and now?")).status == "answered"


@pytest.mark.parametrize("interactive", [True, False])
async def test_what_is_advised_then_fits_the_caller(store, tmp_path, interactive):
    first = await start(store, tmp_path / "w", ["one"])
    await first.ask("hello")
    here = await start(store, tmp_path / "w", ["two"], continue_last=True, interactive=interactive)
    await store.write(thread_removal.delete_thread, here.session.thread.id, 9)
    await removal.purge(store, before=1 << 60, do=True)
    with pytest.raises(SaktiError) as e:
        await here.session.submit("more")
    assert ("/new" in e.value.message, "--continue" in e.value.message) == (interactive, not interactive)


async def test_the_thread_of_a_running_turn_is_not_deleted(store, tmp_path):
    import asyncio

    here = await start(store, tmp_path / "w", ["one"])
    await here.ask("hello")
    there = await start(store, tmp_path / "w", [], continue_last=True)
    gate = asyncio.Event()
    here.session.workspace.models.provider.stream = _waiting(gate)
    await here.session.submit("more")
    for session in (here.session, there.session):
        with pytest.raises(SaktiError, match="working in this thread"):
            await ThreadActions(session).delete(here.session.thread.id)
    gate.set()
    await here.session.interrupt()


def _waiting(gate):
    async def stream(request):
        await gate.wait()
        if False:
            yield request

    return stream


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def conversation():
    thread = Thread("0123456789abcdef", "/w", EVIL, 0, 0)
    parts = (
        TextPart(f"# {EVIL}\n\n| a | b |\n|---|---|\n| {EVIL} | 2 |"),
        ThinkingPart("a secret thought"),
        ToolCallPart("c", EVIL, {EVIL: EVIL}),
        ToolResultPart("c", EVIL, EVIL, True),
        FilePart(EVIL, EVIL),
        ImagePart("image/png", "aaaa", EVIL),
        MarkerPart("interrupted", EVIL),
    )
    said = [Message("m", "t", "/w", "assistant", parts, 0, index=0)]
    line = LogLine("o", "g", "observation", "active", EVIL, "10:00", "high", 0, EVIL, (), False, False, False, {}, 0, 0)
    return thread, said, [line]


def test_html_shows_everything_and_can_do_nothing():
    page = render(*conversation(), "html")
    tags = Tags()
    tags.feed(page)
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "img", "iframe", "object", "link", "form", "base", "svg"}
    for tag, attributes in tags.seen:
        assert not any(name.startswith("on") for name in attributes)
        assert not str(attributes.get("href") or "").lower().startswith("javascript")
        assert tag != "a" or "src" not in attributes
    assert "default-src 'none'" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "secret thought" not in page
    assert "\x1b" not in page


def test_markdown_fences_hold_and_json_is_whole():
    text = render(*conversation(), "md")
    assert "\x1b" not in text and "secret thought" not in text
    assert "````" in text, "a fence longer than what it holds"
    value = json.loads(render(*conversation(), "json"))
    assert value["messages"][0]["parts"][0]["text"].startswith("# <script>")
    assert value["observations"][0]["text"] == EVIL
    assert make_file_name(Thread("x" * 8, "", "../../Fix: the /login?", 0, 0), "md") == "fix-the-login-xxxxxxxx.md"


@pytest.mark.parametrize("form", FORMATS)
async def test_export_writes_a_new_private_file(store, tmp_path, form):
    here = await start(store, tmp_path / "w", ["**one**"])
    await here.ask("hello")
    actions = ThreadActions(here.session)
    path = await actions.export(here.session.thread.id, form)
    assert path.parent == here.session.workspace.root
    assert "hello" in path.read_text("utf-8") and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SaktiError, match="already exists"):
        await actions.export(here.session.thread.id, form)
    with pytest.raises(SaktiError, match="cannot be written"):
        await actions.export(here.session.thread.id, form, tmp_path / "no" / "where")
    with pytest.raises(SaktiError, match="md, json, html"):
        await actions.export(here.session.thread.id, "docx")


async def test_what_was_told_along_is_in_no_export(store, tmp_path):
    run = await start(store, tmp_path / "w", ["fine"])
    await run.ask("what now?")
    said = await store.read(messages.list_after, run.session.thread.id, -1)
    assert any(isinstance(p, ContextPart) for p in said[0].parts)
    for form in FORMATS:
        text = render(run.session.thread, said, [], form)
        assert "what now?" in text and "Current folder" not in text, form
