"""Searching: results under their threads, what stands round them, filters, there and back; by keys and by mouse."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import structs
from textual import events

from sakti.core.types import FilePart, Message, TextPart, ToolCallPart, ToolResultPart
from sakti.store.memory.group_rows import Origin
from sakti.store.search.excerpts import Excerpt
from sakti.store.search.query import parse_query
from sakti.store.search.search import Hit, SearchPage
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads as thread_store
from sakti.tasks.service import BoardTask
from sakti.tui.app import SaktiApp
from sakti.tui.screens.search import DEBOUNCE_S, SearchScreen
from sakti.tui.screens.search_preview import (
    FILTERS,
    Heading,
    PassageScreen,
    choose_next_filter,
    collect_notes,
    find_rule,
    get_filter,
    group_hits,
    set_filter,
)
from sakti.tui.screens.text import SourceScreen
from sakti.tui.widgets.status import Chip
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import NOW, assistant, board, user
from tests.tui.scene import MINUTE, scene
from tests.tui.test_safety import EVIL, check
from tests.tui.test_session import make, turn
from tests.tui.test_snapshots import SIZES, THEMES, posed

__all__ = ["make"]


def hit(id="m3", *, text="the redirect loses next", word="redirect", thread="t1", kind="message", index=3, **more):
    at = text.find(word)
    marks = ((at, at + len(word)),) if at >= 0 else ()
    role = {"role": "user"} if kind == "message" else {"role": ""}
    cut = {name: more.pop(name) for name in ("snippet", "start", "reason") if name in more}
    excerpt = structs.replace(Excerpt(text, text[:160], marks), **cut)
    shown = Hit(id, kind, thread, "fix login", None, "", NOW, index, lambda: excerpt, 1.0, 1)
    return structs.replace(shown, **{**role, **more})


def titles(app) -> list[str]:
    return [r.title for r in app.screen.result_list.rows if isinstance(r, Heading)]


async def search(app, pilot, text="redirect"):
    await pilot.press("ctrl+f", *text)
    await settle(app, pilot)


def preview_text(app) -> str:
    document = app.screen.preview.document
    return "\n".join("".join(s.text for s in line) for i in range(len(document.blocks)) for line in document.lines(i))


# --- pure ---------------------------------------------------------------------------------------------------


def test_hits_stand_under_their_threads_best_thread_first():
    a, b, c = hit("a", thread="t1"), hit("b", thread="t2", thread_title="other"), hit("c", thread="t1")
    task = hit("k", thread="t1", kind="task")
    rows = group_hits([a, b, task, c])
    assert [r.title if isinstance(r, Heading) else r.id for r in rows] == [
        "fix login", "a", "c", "other", "b", "Tasks", "k",
    ]  # fmt: skip
    assert rows[0].count == 2
    assert [type(r) for r in group_hits([c], "thread t1")] == [Hit]


@pytest.mark.parametrize("name", list(FILTERS))
def test_a_filter_goes_through_its_values_and_leaves_the_text(name):
    query = 'the "lost redirect" -test'
    seen = []
    for _ in FILTERS[name]:
        query = choose_next_filter(query, name)
        seen.append(get_filter(query, name))
    assert seen == [*list(FILTERS[name])[1:], ""]
    assert query == 'the "lost redirect" -test'


def test_filters_are_what_search_reads():
    query = set_filter(set_filter(set_filter("lost", "kind", "observation"), "role", "user"), "after", "7d")
    asked = parse_query(query)
    assert (asked.text, asked.kind, asked.role, asked.since is not None) == ("lost", "observation", "user", True)
    assert get_filter("kind:messages x", "kind") == "message"
    assert get_filter("x NOT kind:task", "kind") == get_filter("x -kind:task", "kind") == ""
    assert choose_next_filter("after:2026-01-02 lost", "after") == "lost"
    assert set_filter('role:"user" lost role:tool', "role", "") == "lost "


# --- the list and what stands round a hit -------------------------------------------------------------------


async def test_results_are_grouped_counted_and_shown_with_what_stands_round_them(running, session):
    session.views.messages["t1"] = [user(f"m{n}", f"message {n} about the redirect", n) for n in range(30)]
    session.views.hits = [hit("m9", index=9), hit("x", thread="t2", thread_title="another", index=0)]
    session.views.unread = (("redirect", 0),)
    async with running((140, 40)) as (app, pilot):
        await search(app, pilot)
        painted = screen_text(app)
        assert "2 found" in painted
        assert "redirect: only texts since 1970" in painted
        assert titles(app) == ["fix login", "another"]
        assert "message 8 about the redirect" in painted
        assert "message 10 about the redirect" in painted
        preview = app.screen.preview
        y = next(y for y in range(200) if "message 9" in "".join(s.text for s in preview.line_at(y) or []))
        assert [s.text for s in preview.line_at(y) if s.style and s.style.bgcolor] == ["redirect"]
        assert preview.line_style(y) is not None
        neighbour = next(y for y in range(200) if "message 8" in "".join(s.text for s in preview.line_at(y) or []))
        assert not [s for s in preview.line_at(neighbour) if s.style and s.style.bgcolor]
        await pilot.press("down")
        await settle(app, pilot)
        assert "message 9" not in preview_text(app)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("a", "b", "c", "backspace", "d"), "abd"),
        (("a", "b", "left", "x", "home", "z", "end", "y"), "zaxby"),
        (("a", "b", "ctrl+u", "r", "e", "l"), "rel"),
    ],
)
async def test_keys_that_come_at_once_keep_their_order(running, session, keys, value):
    async with running((80, 24)) as (app, pilot):
        await pilot.press("ctrl+f")
        await settle(app, pilot)
        for key in keys:
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await settle(app, pilot)
        assert app.screen.input.value == value


async def test_all_lines_of_a_paste_are_looked_for(running, session):
    async with running((80, 24)) as (app, pilot):
        await pilot.press("ctrl+f", "x", "left")
        app.post_message(events.Paste("\nbuild broke:\r\nerror TS2322\n at useDebounce.ts\x1b\n"))
        await settle(app, pilot)
        assert app.screen.input.value == " build broke: error TS2322  at useDebounce.ts␛x"


async def test_enter_before_the_results_are_there_goes_to_what_was_asked_for(running, session):
    session.views.messages["t1"] = [user(f"m{n}", f"message {n}", n) for n in range(30)]
    session.views.hits = [hit()]
    async with running() as (app, pilot):
        await pilot.press("ctrl+f", *"redirect", "enter")
        await settle(app, pilot)
        assert session.views.queries[-1] == "redirect"
        assert not isinstance(app.screen, SearchScreen)
        assert app.chat.transcript._marked == "m3"


async def test_a_first_page_is_shown_while_it_is_looked_inside_words(running, session):
    go_on = asyncio.Event()

    async def views_search(query, *, first=False, **more):
        if not first:
            await go_on.wait()
        found = (hit("a"),) if first else (hit("b"), hit("a"))
        return SearchPage(query, len(found), found, partial=first)

    session.views.search = views_search
    async with running() as (app, pilot):
        await pilot.press("ctrl+f", *"redirect")
        for _ in range(200):
            if "still searching" in screen_text(app):
                break
            await pilot.pause(0.02)
        assert app.screen.result_list.current.id == "a"
        go_on.set()
        await settle(app, pilot)
        assert "2 found" in screen_text(app)
        assert "still searching" not in screen_text(app)
        assert app.screen.result_list.current.id == "a", "what is chosen stays chosen"


async def test_more_results_come_when_the_end_is_near(running, session):
    session.views.hits = [hit(f"m{n}", index=n, text=f"redirect {n}") for n in range(130)]
    async with running((120, 40)) as (app, pilot):
        await search(app, pilot)
        assert "130 found" in screen_text(app)
        assert len(app.screen.result_list.rows) == 51
        for _ in range(8):
            await pilot.press("pagedown")
        await settle(app, pilot)
        assert len(app.screen.result_list.rows) == 101
        top = app.screen.result_list.scroll_offset.y
        app.screen.result_list.scroll_end(animate=False)  # as the wheel does: the cursor stays where it is
        await settle(app, pilot)
        assert len(app.screen.result_list.rows) == 131
        assert titles(app) == ["fix login"]
        assert app.screen.result_list.scroll_offset.y > top
        ids = [r.id for r in app.screen.result_list.rows if isinstance(r, Hit)]
        assert ids == [f"m{n}" for n in range(130)]


async def test_output_of_a_tool_is_unfolded_where_it_matches(running, session):
    result = ToolResultPart("c", "bash", "\n".join([*(f"line {n}" for n in range(50)), "needle here"]))
    session.views.messages["t1"] = [
        user("m0", "look", 0),
        assistant("m1", "", 1, (ToolCallPart("c", "bash", {"command": "ls"}),)),
        Message("m2", "t1", "r", "tool", (result,), NOW, index=2),
    ]
    session.views.hits = [hit("m2", text=result.content, word="needle", index=2, role="tool")]
    async with running((120, 30)) as (app, pilot):
        await search(app, pilot, "needle")
        assert "needle here" in preview_text(app)
        assert "needle here" not in chat_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "needle here" in screen_text(app)


async def test_of_a_long_message_the_line_that_matches_best_is_landed_on(running, session):
    text = "The scheduler drains.\n\n" * 2_000 + "A scheduler with a needle.\n\n" + "The scheduler drains.\n\n" * 500
    session.views.messages["t1"] = [user("m0", "why", 0), assistant("m1", text, 1), user("m2", "so", 2)]
    session.views.hits = [hit("m1", text=text, word="needle", index=1)]
    async with running((120, 30)) as (app, pilot):
        await search(app, pilot, "scheduler needle")
        await pilot.press("enter")
        await settle(app, pilot)
        assert "A scheduler with a needle." in screen_text(app)


@pytest.mark.parametrize("length", [10, 30_000])
async def test_what_the_messages_do_not_show_is_shown_as_a_passage(running, session, length):
    """An attached file is a name in the conversation; of a very long message only the passage is drawn."""
    text = "word " * length + "needle in the file"
    message = Message("m0", "t1", "r", "user", (TextPart("see"), FilePart("a.txt", text)), NOW, index=0)
    session.views.messages["t1"] = [message, assistant("m1", "Seen.", 1)]
    session.views.hits = [hit("m0", text=f"see\na.txt\n{text}", word="needle", index=0, start=max(0, 5 * length - 20))]
    async with running((120, 40)) as (app, pilot):
        await search(app, pilot, "needle")
        assert "needle in the file" in screen_text(app)
        assert "Seen." in preview_text(app)
        assert len(preview_text(app)) < 20_000


async def test_of_a_long_message_beside_a_hit_the_beginning_is_shown(running, session):
    long = "\n".join(f"line {n} of a long talk" for n in range(5_000))
    session.views.messages["t1"] = [user("m0", long, 0), user("m1", "message 1 about the redirect", 1)]
    session.views.hits = [hit("m1", index=1, text="message 1 about the redirect")]
    async with running((140, 40)) as (app, pilot):
        await search(app, pilot)
        shown = preview_text(app)
        assert "line 0 of a long talk" in shown and "line 4999 of" not in shown and "message 1 about" in shown


async def test_a_slow_answer_to_what_is_no_longer_asked_is_not_shown(running, session):
    gates = {"re": asyncio.Event(), "redirect": asyncio.Event()}
    found = session.views.search

    async def slow(query, **more):
        await gates[query].wait()
        session.views.hits = [hit(text=f"found for {query}")]
        return await found(query, **more)

    session.views.search = slow
    async with running() as (app, pilot):
        app.chat.search.open("re")
        await pilot.pause(DEBOUNCE_S + 0.05)
        await pilot.press(*"direct")
        await pilot.pause(DEBOUNCE_S + 0.05)
        gates["redirect"].set()
        gates["re"].set()
        await settle(app, pilot)
        assert "found for redirect" in screen_text(app)
        assert session.views.queries[-1] == "redirect"


async def test_every_chip_does_something(running, session):
    async with running() as (app, pilot):
        await search(app, pilot)
        for chip in app.screen.query(Chip):
            name = chip._action.removeprefix("screen.").partition("(")[0]
            assert hasattr(app.screen, f"action_{name}"), name
        for chip in app.chat.conversation.visit_bar.query(Chip):
            assert hasattr(app.chat, f"action_{chip._action.removeprefix('screen.')}")


async def test_nothing_found_and_nothing_asked(running, session):
    async with running() as (app, pilot):
        await search(app, pilot, "qqq")
        assert "nothing found" in screen_text(app)
        await pilot.press("enter")
        await pilot.press(*["backspace"] * 3)
        await settle(app, pilot)
        assert "found" not in screen_text(app).split("\n")[1]
        assert "path:FILE" in screen_text(app)


@pytest.mark.parametrize("size", [(1, 1), (20, 5), (40, 10), (80, 24), (99, 60)])
async def test_any_size(running, session, size):
    session.views.messages["t1"] = [user("m3", "the redirect loses next", 3)]
    session.views.hits = [hit()]
    async with running(size) as (app, pilot):
        await search(app, pilot)
        await pilot.resize_terminal(120, 30)
        await settle(app, pilot)
        assert "the redirect loses" in screen_text(app)
        await pilot.press("escape")
        assert app.focused is app.chat.prompt


# --- filters ------------------------------------------------------------------------------------------------


async def test_ctrl_k_edits_the_line(running, session):
    async with running() as (app, pilot):
        await search(app, pilot)
        await pilot.press("home", *"lost ", "ctrl+k")
        await settle(app, pilot)
        assert session.views.queries[-1] == "lost"


def test_a_rule_separates_hits_with_all_words_from_those_with_some():
    hits = [hit(f"h{n}", rank=n) for n in (1, 2, 3)]
    page = SearchPage("lost redirect", 3, tuple(hits), with_all=2)
    rows = group_hits(page.hits, rule=find_rule(page))
    assert [r.title if isinstance(r, Heading) else r.id for r in rows] == [
        "fix login", "h1", "h2", "── 1 with some of the words ──", "fix login", "h3",
    ]  # fmt: skip
    assert [r.id for r in group_hits(hits[:2], "thread t1", find_rule(page)) if not isinstance(r, Heading)] == [
        "h1",
        "h2",
    ]
    assert find_rule(SearchPage("lost", 3, with_all=3)) == find_rule(SearchPage("lost", 3)) == (0, "")


async def test_filters_and_places_by_key(running, session):
    session.views.hits = [hit()]
    async with running() as (app, pilot):
        await search(app, pilot)
        await pilot.press("alt+k", "ctrl+r", "ctrl+t", "tab")
        await pilot.press(*" lost")
        await settle(app, pilot)
        assert session.views.queries[-1] == "after:today role:user kind:message redirect lost"
        assert session.views.scopes[-1] == "thread"
        for said in ("alt+k messages", "^r you", "^t today", "tab this thread"):
            assert said in screen_text(app)
        await pilot.press("tab", "tab", "ctrl+t", "ctrl+t")
        await settle(app, pilot)
        assert session.views.queries[-1] == "role:user kind:message redirect lost"
        assert session.views.scopes[-1] == "workspace"
        assert "any time" in screen_text(app)


async def test_filters_by_mouse(running, session):
    session.views.hits = [hit()]
    async with running() as (app, pilot):
        app.chat.search.open("redirect")
        await settle(app, pilot)
        for chip in ("#chip-kind", "#chip-kind", "#chip-scope"):
            await pilot.click(chip)
        await settle(app, pilot)
        assert session.views.queries[-1] == "kind:observation redirect"
        assert session.views.scopes[-1] == "thread"
        assert app.focused is app.screen.input


# --- there and back -----------------------------------------------------------------------------------------


async def test_there_and_back_by_key(running, session):
    session.views.messages["t1"] = [user(f"m{n}", f"here {n}", n) for n in range(400)]
    session.views.messages["t7"] = [user(f"f{n}", f"far {n}", n) for n in range(600)]
    session.views.hits = [hit(), hit("f20", thread="t7", index=20, text="far redirect", thread_title="older")]
    async with running((120, 30)) as (app, pilot):
        app.chat.transcript.jump("m250")
        await pilot.pause()
        await search(app, pilot)
        await pilot.press("down", "enter")
        await settle(app, pilot)
        assert session.thread.id == "t7"
        assert "far 20" in screen_text(app)
        assert "back to fix login" in screen_text(app)
        await pilot.press("ctrl+f")
        await settle(app, pilot)
        assert app.screen.input.value == "redirect"
        assert app.screen.result_list.current.id == "f20"
        await pilot.press(*"next")  # what is typed replaces the query that was kept
        assert app.screen.input.value == "next"
        await pilot.press("escape", "f6")
        assert app.focused is app.chat.transcript
        await pilot.press("alt+left")
        await settle(app, pilot)
        assert session.thread.id == "t1" and app.focused is app.chat.prompt
        assert "here 250" in screen_text(app)
        assert "back to" not in screen_text(app)
        await pilot.press("alt+left")
        await settle(app, pilot)
        assert session.thread.id == "t1"


async def test_what_is_found_for_a_screen_that_was_left_is_dropped(running, session, monkeypatch):
    asked, found = asyncio.Event(), asyncio.Event()
    search_views = session.views.search

    async def late(*args, **options):
        asked.set()
        await found.wait()
        return await search_views(*args, **options)

    monkeypatch.setattr(session.views, "search", late)
    async with running((120, 30)) as (app, pilot):
        await pilot.press("ctrl+f", *"red")
        await asked.wait()
        screen = app.screen
        await pilot.press("escape")
        found.set()
        await settle(app, pilot)
        await screen._search(0.0)  # one whose wait ended after its screen
        assert "went wrong" not in chat_text(app)


async def test_there_and_back_by_mouse(running, session):
    session.views.messages["t1"] = [user(f"m{n}", f"here {n}", n) for n in range(40)]
    session.views.messages["t7"] = [user("f0", "far away", 0)]
    session.views.hits = [hit("f0", thread="t7", index=0, text="far redirect", thread_title="older")]
    async with running((120, 30)) as (app, pilot):
        app.chat.search.open("redirect")
        await settle(app, pilot)
        await pilot.click("#panel-list", offset=(6, 2))
        await settle(app, pilot)
        assert session.thread.id == "t7"
        await pilot.click("#visit-back")
        await settle(app, pilot)
        assert session.thread.id == "t1"
        assert "here 39" in screen_text(app)
        assert app.chat.transcript.place == ""


async def test_a_new_thread_is_gone_back_to(running, session):
    session.views.messages["t7"] = [user("f0", "far away", 0)]
    session.views.hits = [hit("f0", thread="t7", index=0)]
    async with running() as (app, pilot):
        await search(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        await pilot.press("alt+left")
        await settle(app, pilot)
        assert session.thread.id == "t9"  # a new one: nothing had been said in t1


async def test_another_thread_ends_the_visit(running, session):
    session.views.messages["t1"] = [user("m3", "here", 3)]
    session.views.hits = [hit()]
    async with running() as (app, pilot):
        await search(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.chat.conversation.visit_bar.display
        await session.open_thread("t5")
        await settle(app, pilot)
        assert not app.chat.conversation.visit_bar.display


async def test_a_working_agent_is_not_disturbed(running, session):
    session.views.messages["t1"] = [user("m0", "here", 0)]
    session.views.messages["t7"] = [user("f0", "far redirect", 0), assistant("f1", "Answer.", 1)]
    session.views.hits = [hit("f0", thread="t7", index=0, text="far redirect")]
    async with running() as (app, pilot):
        await session.submit("go")
        await search(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.screen, PassageScreen)
        assert "while the agent works" in screen_text(app)
        assert "Answer." in screen_text(app)
        assert session.busy
        assert session.thread.id == "t1"
        await pilot.press("escape")
        await settle(app, pilot)
        assert app.focused is app.chat.prompt


async def test_a_thread_of_another_workspace_is_read_only(running, session):
    elsewhere = structs.replace(user("f0", "far redirect", 0), resource_id="/other")
    session.views.messages["t7"] = [elsewhere]
    session.views.hits = [hit("f0", thread="t7", index=0, text="far redirect")]
    async with running() as (app, pilot):
        await search(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "read-only: from /other" in screen_text(app)
        assert session.thread.id == "t1"


# --- what is no message -------------------------------------------------------------------------------------


async def test_an_observation_leads_to_its_sources(running, session):
    session.views.messages["t1"] = [user(f"m{n}", f"message {n}", n) for n in range(30)]
    session.views.hits = [hit("o1", kind="observation", text="the redirect was lost", index=2)]
    session.views.origins["o1"] = Origin("g1", "t1", 2, 9, "m6", 6)
    async with running((120, 40)) as (app, pilot):
        await search(app, pilot)
        assert "Observation, made from 8 messages" in preview_text(app)
        assert "message 6" in preview_text(app)
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        assert isinstance(app.screen, SourceScreen)
        await pilot.press("escape")
        assert isinstance(app.screen, SearchScreen)
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.chat.transcript._marked == "m6"


async def test_tasks_working_memory_and_lines_without_a_source(running, session):
    page = hit("w", kind="working_memory", thread=None, text="tests run with pytest", word="pytest")
    session.views.hits = [hit("k", kind="task", thread=None, text="mend the redirect"), page]
    async with running((120, 40)) as (app, pilot):
        await search(app, pilot)
        assert titles(app) == ["Tasks", "Working memory"]
        assert "mend the redirect" in preview_text(app)
        await pilot.press("down", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, PassageScreen)
        assert "tests run with pytest" in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        await pilot.press("ctrl+f")
        await settle(app, pilot)
        await pilot.press("up", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, PassageScreen)  # it is not on the board any more
        await pilot.press("escape")
        session.views.tasks = board(
            ready=tuple(BoardTask(t, t, t, 2, "task", None) for t in ("a", "mend the redirect"))
        )
        app.chat.panes.load_board()
        await settle(app, pilot)
        await pilot.press("ctrl+f", "enter")
        await settle(app, pilot)
        tasks = app.chat.sidebar.tasks.task_list
        assert app.focused is app.chat.prompt and tasks.cursor_always, "it stands out, and letters go to the prompt"
        assert tasks.current.title == "mend the redirect"


async def test_a_hit_goes_into_the_prompt(running, session):
    session.views.hits = [hit(text="the redirect\x1b[2J loses next")]
    async with running() as (app, pilot):
        await search(app, pilot)
        await pilot.press("ctrl+o")
        await settle(app, pilot)
        assert app.chat.prompt.text == "the redirect␛[2J loses next"


@pytest.mark.parametrize("kind", ["message", "observation", "working_memory"])
async def test_nothing_that_is_found_is_obeyed(running, session, kind):
    session.views.messages["t1"] = [user("m2", EVIL, 2), user("m3", EVIL, 3), assistant("m4", EVIL, 4)]
    session.views.hits = [hit(kind=kind, text=EVIL, word="owned", thread_title=EVIL, role=EVIL)]
    session.views.origins["m3"] = Origin("g", "t1", 2, 4, "m3", 3)
    async with running((120, 40)) as (app, pilot):
        app.chat.search.open(f"owned {EVIL}")
        await settle(app, pilot)
        assert "[@click=app.quit]x[/]" in check(app)
        await pilot.press("enter")
        await settle(app, pilot)
        check(app)


# --- the real store -----------------------------------------------------------------------------------------


async def test_what_was_said_before_two_compactions_and_a_reflection_is_landed_on(make, store):
    said = "the courier password rotates in vault slot nine"
    answers = [f"Answer {n}: the scheduler drains queue{n} at midnight, nothing else is known." for n in range(9)]
    session = make(*answers)
    app = SaktiApp(session)
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(app, pilot)
        for number in range(9):
            await session.submit(said if number == 0 else f"question {number} about queue{number}.py")
            await turn(app, pilot)
            if number in (3, 6):
                await session.compact()
                await settle(app, pilot)
        assert await session.current.engine.reflect_now()
        await session.new_thread()
        await settle(app, pilot)
        first = (await store.read(thread_store.list_summaries, session.workspace.resource_id, 10))[0][0].id
        await search(app, pilot, "courier password")
        sources = [getattr(row, "source", "") for row in app.screen.result_list.rows]
        app.screen.result_list.move_to(sources.index("compacted"))
        assert "vault slot nine" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.thread.id == first
        assert said in screen_text(app)
        assert app.chat.transcript._marked == (await store.read(message_store.list_page, first, before=1))[0].id
        await pilot.press("alt+left")
        await settle(app, pilot)
        assert session.thread.id != first
        assert await store.read(message_store.count_messages, session.thread.id) == 0
        lines = (("observation", "courier vault", said), ("reflection", "queue3", "question 3 about queue3.py"))
        for kind, words, source in lines:
            app.chat.search.open(f"kind:{kind} {words}")
            await settle(app, pilot)
            assert app.screen.result_list.current.kind == kind
            assert source in preview_text(app)
            await pilot.press("enter")
            await settle(app, pilot)
            assert session.thread.id == first
            assert source in screen_text(app)
            await pilot.press("alt+left")
            await settle(app, pilot)


# --- pictures -----------------------------------------------------------------------------------------------


def app_with_hits() -> SaktiApp:
    session = scene(Path("/work"))
    said = session.views.messages["t1"]
    answer = said[5].text
    here, there = {"thread_title": "fix login redirect", "word": "next"}, "move sessions into signed cookies"
    later = "What comes next: rotate the signing key, then drop the old sessions table."
    session.views.hits = [
        hit("m0", text=said[0].text, index=0, **here),
        hit("m5", text=answer, index=5, role="assistant", time=NOW + 5 * MINUTE, source="compacted", **here),
        hit("o3", kind="observation", text="User: the redirect after login loses ?next=", **here),
        hit(
            "x1", thread="t0", thread_title=there, text=later, word="next", role="assistant", time=NOW - 9_000 * MINUTE
        ),
        hit("k1", kind="task", thread=None, text="refuse other hosts in ?next=", word="next", time=NOW - 20 * MINUTE),
    ]
    return SaktiApp(session)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_search(snap_compare, size, theme):
    async def open_it(pilot):
        await posed(theme)(pilot)
        pilot.app.chat.search.open("next")
        await settle(pilot.app, pilot)
        pilot.app.screen.input.cursor_blink = False
        await pilot.press("down")
        await settle(pilot.app, pilot)

    assert snap_compare(app_with_hits(), terminal_size=size, run_before=open_it)


def test_a_visit(snap_compare):
    async def go(pilot):
        await posed("sakti-dark")(pilot)
        pilot.app.chat.search.open("next")
        await settle(pilot.app, pilot)
        await pilot.press("enter")
        await settle(pilot.app, pilot)

    assert snap_compare(app_with_hits(), terminal_size=(100, 30), run_before=go)


def test_a_row_shows_why_it_is_there_and_how_often_it_was_said():
    found = [
        hit("a", reason="same stem: testing"),
        hit("b", reason="similar: redirct", copies=2),
        hit("c"),
    ]
    assert collect_notes(found) == {"a": "same stem: testing", "b": "similar: redirct · 2 identical texts not listed"}
    printed = hit("d", role="tool", copies=1)
    assert collect_notes([printed]) == {"d": "1 text that differs in numbers at most not listed"}
