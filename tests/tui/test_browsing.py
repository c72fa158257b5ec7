"""Letters reach the prompt wherever the mouse was and whatever is open, but for what is browsed on purpose."""

from __future__ import annotations

import random
import string

import pytest
from textual import events
from textual.keys import _character_to_key

from sakti.core.types import Thread
from sakti.tui.app import SaktiApp
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.text import MemoryEventsScreen, ReadScreen
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import assistant, user
from tests.tui.real import real_session, say
from tests.tui.scene import log, scene
from tests.tui.test_approvals import ask, asked
from tests.tui.test_board import click_on

OPENING = "help theme setup tasks settings search model context memory observations threads resume rules trust".split()


def last_line(app) -> str:
    return screen_text(app).split("\n")[-1]


async def press(app, pilot, *keys):
    await pilot.press(*keys)
    await settle(app, pilot)


def random_words(seed: int, count: int) -> str:
    chance = random.Random(seed)
    letters = string.ascii_letters + string.digits + ".,;:?!-_()[]<>+*='\"~^%&|"
    return " ".join("".join(chance.choices(letters, k=chance.randint(1, 9))) for _ in range(count))


async def dump(app) -> list[str]:
    """Everything that is stored, but for what is being typed and what is measured."""

    def rows(db):
        names = [n for (n,) in db.execute_sql("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        kept = [n for n in names if n not in ("unsent", "prompt_history", "ui_state") and not n.startswith("search_")]
        return [f"{n}: {row}" for n in kept for row in db.execute_sql(f"SELECT * FROM {n}").fetchall()]

    return await app.session.workspace.store.read(rows)


@pytest.mark.parametrize("name", OPENING)
async def test_words_typed_after_a_command_change_nothing_but_the_prompt(store, tmp_path, name):
    app = SaktiApp(real_session(store, tmp_path / "w", *(f"The port of api {n} is 80{n}0." for n in range(4))))
    async with app.run_test(size=(140, 45)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "remember that api 1 listens on 8010", "remember that api 2 listens on 8020")
        await app.session.compact()
        await settle(app, pilot)
        await app.chat.conversation.run(f"/{name}")
        await settle(app, pilot)
        before, screen = await dump(app), app.screen
        for seed in range(3):
            words = random_words(seed, 25)
            for letter in words:
                app.post_message(events.Key(_character_to_key(letter), letter))
            await settle(app, pilot)
            if app.screen is app.chat:
                assert app.chat.prompt.value == words or screen is not app.chat
                app.chat.prompt.set_text("")
        assert await dump(app) == before
        if app.screen is not app.chat:  # a screen over the chat, which names its keys: at most two steps back
            await press(app, pilot, "escape", "escape")
            assert app.screen is app.chat and app.chat.prompt.has_focus


@pytest.mark.parametrize("command", ["observations", "tasks", "memory"])
async def test_a_sentence_after_a_command_that_shows_a_pane_is_sent(running, session, command):
    session.views.lines = log()
    async with running() as (app, pilot):
        await press(app, pilot, "ctrl+b")
        await press(app, pilot, *f"/{command}", "enter")
        await press(app, pilot, *"next: please fix the export", "enter")
        assert session.sent == ["next: please fix the export"]
        if command != "memory":
            assert len(app.chat.sidebar.open_panes) == 1


async def test_a_click_beside_the_prompt_changes_nothing(tmp_path):
    session = scene(tmp_path)
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        side = app.chat.sidebar
        for widget, offset in (
            (app.chat.transcript, (30, 8)),
            (side.memory, (4, 3)),
            (side.observations.log_list, (6, 4)),
            (side.tasks.task_list, (6, 1)),
        ):
            before = side.observations.log_list.cursor, side.tasks.task_list.cursor
            await pilot.click(widget, offset=offset)
            await pilot.press("a")
            await settle(app, pilot)
            assert app.screen is app.chat and app.chat.prompt.has_focus, widget
            assert (side.observations.log_list.cursor, side.tasks.task_list.cursor) == before
        assert app.chat.prompt.text == "aaaa" and "F1 help" in last_line(app)


async def test_two_clicks_open_what_is_under_them(tmp_path):
    session = scene(tmp_path)
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        side = app.chat.sidebar
        for widget, offset, screen in (
            (side.memory, (4, 3), MemoryEventsScreen),
            (side.observations.log_list, (6, 4), ReadScreen),
            (side.tasks.task_list, (6, 0), BoardScreen),
        ):
            await pilot.click(widget, offset=offset, times=2)
            await settle(app, pilot)
            assert isinstance(app.screen, screen)
            await press(app, pilot, "escape")
            assert app.chat.prompt.has_focus


async def test_the_last_line_names_what_is_browsed_and_the_way_out(running, session):
    session.views.lines = log()
    async with running((140, 40)) as (app, pilot):
        seen = []
        for _ in range(4):
            await press(app, pilot, "f6")
            seen.append(last_line(app).strip())
        assert [line.split()[:3] for line in seen] == [
            [title, "esc", "prompt"] for title in ("Messages", "Memory", "Observations", "Tasks")
        ]
        assert "/ filter · e edit · x forget · u undo · p pin" in seen[2] and "F3 hide" in seen[2]
        await press(app, pilot, "f6")
        assert app.chat.prompt.has_focus and "F1 help" in last_line(app)
        await press(app, pilot, "tab")
        assert app.chat.prompt.has_focus and "F6 browses" in last_line(app)
        await press(app, pilot, "f3")
        await click_on(app, pilot, "esc prompt")
        assert app.chat.prompt.has_focus
        await press(app, pilot, "f3")
        await click_on(app, pilot, "F3 hide")
        assert not app.chat.sidebar.observations.display and "Observations hidden · F3 shows it" in last_line(app)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
async def test_the_way_out_stands_in_every_width(running, session, width):
    async with running((width, 20)) as (app, pilot):
        app.chat.browse("log")
        await settle(app, pilot)
        assert last_line(app).startswith(" Observations  esc prompt")
        assert last_line(app).rstrip().endswith((" esc prompt", " F1 all keys", " [ past")), last_line(app)
        app.set_hint("a note that is much longer than the line is wide, and then some more words " * 3)
        await pilot.pause()
        assert last_line(app).startswith(" Observations  esc prompt · a n")


async def test_a_pane_is_shown_browsed_and_hidden_by_its_key(running, session):
    async with running((80, 24)) as (app, pilot):
        await press(app, pilot, "f3")
        assert app.chat.sidebar.observations.display and app.chat.prompt.has_focus
        assert "Observations shown · F3 browses the pane" in last_line(app)
        await press(app, pilot, *"hi", "f3")
        assert app.chat.sidebar.observations.log_list.has_focus and app.chat.prompt.text == "hi"
        await press(app, pilot, "f3")
        assert not app.chat.sidebar.display and app.chat.prompt.has_focus
        await press(app, pilot, "f4", "f4")
        await pilot.resize_terminal(140, 30)
        await settle(app, pilot)
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        await press(app, pilot, "escape", "escape", "x")
        assert app.chat.prompt.text == "hix" and not app.chat.sidebar.display


@pytest.mark.parametrize(
    "keys",
    [
        ["f6", "]", "v", "l", "v"],
        ["f6", "/", *"question", "enter", "[", "v"],
        ["f6", "/", *"question"],
        ["f6", "/", *"question", "enter", "tab"],
        ["f3", "slash", *"app"],
        ["f3", "home", "e"],
        ["f3", "["],
        ["f2"],
        ["f4"],
    ],
)
async def test_two_steps_back_at_most(running, session, keys):
    session.views.lines = log()
    session.views.messages["t1"] = [user("m0", "a question: https://example.org", 0), assistant("m1", "an answer", 1)]
    async with running((140, 40)) as (app, pilot):
        for key in keys:
            await press(app, pilot, key)
        assert not app.chat.prompt.has_focus
        await press(app, pilot, "escape")
        await press(app, pilot, "escape")
        assert app.chat.prompt.has_focus
        await press(app, pilot, "escape")
        assert "find in this thread" not in screen_text(app) and app.chat.transcript._pattern_found is None


async def test_the_find_bar_closes_from_the_prompt_too(running, session):
    session.views.messages["t1"] = [user("m0", "a question", 0)]
    async with running() as (app, pilot):
        await press(app, pilot, "f6", "/", *"quest", "enter")
        await pilot.click("#prompt")
        await press(app, pilot, "escape")
        assert "message 1 of 1" not in screen_text(app) and app.chat.prompt.has_focus


async def test_a_correction_names_the_key_that_undoes_it(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", "The port of the api is 8080.", "It stays."))
    async with app.run_test(size=(140, 45)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "remember that the api listens on 8080", "and the cache on 6379")
        await app.session.compact()
        await settle(app, pilot)
        await press(app, pilot, "f3")
        for key, said in (("p", "Pinned · u undoes it"), ("x", "Forgotten · u undoes it")):
            await press(app, pilot, "home", key)
            line = (await app.session.views.observations())[0]
            assert line.pinned or line.forgotten
            assert said in last_line(app)
            await press(app, pilot, "u")
            line = (await app.session.views.observations())[0]
            assert not line.pinned and not line.forgotten and said not in last_line(app)
        await press(app, pilot, "home", "x", "escape")
        assert "undoes it" not in last_line(app)


async def test_shift_tab_goes_round_the_approval_modes(running, session):
    async with running((120, 30)) as (app, pilot):
        assert " ask ⇧⇥" in last_line(app)
        seen = []
        for _ in range(4):
            await press(app, pilot, "shift+tab")
            seen.append(session.current.approval_mode)
            assert f"Approval: {seen[-1]}, " in last_line(app) and app.chat.prompt.has_focus
        assert seen == ["edits", "auto", "plan", "ask"]
        app.set_hint("")
        await press(app, pilot, "f6", "shift+tab")
        assert session.current.approval_mode == "edits" and app.chat.transcript.has_focus
        await press(app, pilot, "escape")
        app.set_hint("")
        await click_on(app, pilot, "edits ⇧⇥")
        assert session.current.approval_mode == "auto"


async def test_a_letter_that_answers_no_question_is_typed_with_what_follows(running, session):
    async with running() as (app, pilot):
        session.workspace.clock.step = 1.0
        await ask(app, pilot, session, asked())
        assert app.chat.conversation.approval.view.has_focus
        for key in "hey y":
            app.post_message(events.Key("space" if key == " " else key, key))
        await settle(app, pilot)
        assert app.chat.prompt.text == "hey y" and not [c for c in session.calls if c[0] == "resolve"]
        await press(app, pilot, "tab", "y")
        assert session.calls[-1][:3] == ("resolve", "p1", True)


async def test_a_question_leaves_who_browses_where_they_are(running, session):
    session.views.lines = log()
    async with running() as (app, pilot):
        await press(app, pilot, "f3")
        await ask(app, pilot, session, asked())
        assert "Answer the question above first (tab)" in last_line(app)
        await press(app, pilot, "e", "escape")
        assert not [c for c in session.calls if c[0] == "resolve"]
        await press(app, pilot, "tab", "y")
        assert session.calls[-1][:3] == ("resolve", "p1", True)


async def test_a_paste_while_browsing_goes_to_the_prompt(running, session):
    async with running() as (app, pilot):
        await press(app, pilot, "f6")
        app.post_message(events.Paste("pasted words"))
        await settle(app, pilot)
        assert app.chat.prompt.text == "pasted words" and app.chat.prompt.has_focus


async def test_the_click_that_brings_the_window_to_the_front_is_no_click(tmp_path):
    session = scene(tmp_path)
    session.workspace.clock.step = 0.01
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        title = app.chat.sidebar.tasks.region
        for expected in (True, False):
            app.post_message(events.AppBlur())
            app.post_message(events.AppFocus())
            await pilot.pause()
            session.workspace.clock.step = 0.01 if expected else 1.0
            for kind in (events.MouseDown, events.MouseUp):
                app.post_message(kind(None, title.x + 2, title.y, 0, 0, 1, False, False, False))
            await settle(app, pilot)
            assert app.chat.sidebar.shows("tasks") == expected
        assert app.chat.prompt.has_focus


async def test_a_task_that_was_looked_for_stands_out_and_the_prompt_keeps_the_keys(tmp_path):
    session = scene(tmp_path)
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        rows = app.chat.sidebar.tasks.task_list.rows
        assert app.chat.panes.point_at(rows[1].title) and not app.chat.panes.point_at("no such task")
        await press(app, pilot, *"hi")
        tasks = app.chat.sidebar.tasks.task_list
        assert app.chat.prompt.text == "hi" and tasks.cursor == 1 and tasks.line_style(1) is not None
        app.chat.panes._stop_pointing()
        assert tasks.line_style(1) is None


async def test_threads_are_left_alone_by_words(running, session):
    from sakti.agent.session.queries import ThreadSummary

    session.views.all_threads = [ThreadSummary(Thread("t5", "r", "older one", 0, 0), "how do I", 12, 3_400)]
    async with running() as (app, pilot):
        await press(app, pilot, *"/threads", "enter")
        await press(app, pilot, *random_words(3, 20).replace(" ", "x"))
        assert "older one" not in chat_text(app) and session.thread.id == "t1"


async def test_what_is_chosen_in_the_conversation_bears_a_bar(tmp_path):
    app = SaktiApp(scene(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await press(app, pilot, "f6", "left_square_bracket", "left_square_bracket")
        barred = [line for line in screen_text(app).split("\n") if line.startswith("▌")]
        assert len(barred) == 1 and "pytest tests/auth -q" in barred[0]
        await press(app, pilot, "escape")
        await press(app, pilot, "escape")
        assert "\n▌" not in screen_text(app) and app.chat.prompt.has_focus


WORDS = ("explain the last error", "just copy very long git logs", "yes, please", "go on", "next question")


@pytest.mark.parametrize("area", ["conversation", "log", "tasks", "memory"])
async def test_words_typed_while_browsing_reach_the_prompt_whole(running, session, area):
    session.views.lines = log()
    session.views.messages["t1"] = [user("m0", "a question: https://example.org", 0), assistant("m1", "an answer", 1)]
    async with running((140, 40)) as (app, pilot):
        for number, words in enumerate(WORDS):
            app.chat.browse(area)
            await pilot.pause()
            for letter in words:  # a burst: all of it is there before its first letter is handled
                app.post_message(events.Key(_character_to_key(letter), letter))
            if number < 2:
                app.post_message(events.Paste(" pasted"))
            await settle(app, pilot)
            assert app.chat.prompt.value == words + " pasted" * (number < 2), words
            assert app.chat.prompt.has_focus and app.screen is app.chat
            app.chat.prompt.set_text("")
        assert not [c for c in session.calls if c[0] == "correct"]


async def test_letters_that_acted_before_a_word_was_recognised_are_typed_too(running, session):
    session.workspace.clock.step = 0.0
    async with running((140, 40)) as (app, pilot):
        for keys, text in (("look", "look"), ("very", "very"), ("jj", ""), ("jjump", "ump"), ("nice", "nice")):
            await press(app, pilot, "f6")
            await press(app, pilot, *keys)
            assert app.chat.prompt.value == text, keys
            assert not app.chat.screen.selections or not text
            app.chat.prompt.set_text("")
            app.chat.browse("")


def keys_of(*parts: str) -> list[events.Key]:
    """The keys of names, and of the letters of texts in quotes."""
    keys: list[events.Key] = []
    for part in parts:
        if part.startswith("'"):
            keys += [events.Key(_character_to_key(letter), letter) for letter in part[1:]]
        else:
            keys.append(events.Key(part, "\r" if part == "enter" else None))
    return keys


@pytest.mark.parametrize(
    "parts",
    [("f6", "'/th", "enter", "'n", "escape", "escape", "'hi"), ("ctrl+f", "'re"), ("f1", "'un", "escape", "'hi")],
)
async def test_keys_of_a_burst_act_as_if_typed_slowly(running, session, parts):
    session.views.messages["t1"] = [user(f"m{n}", f"the third question, number {n}", n) for n in range(3)]
    ends = []
    for burst in (False, True):
        async with running((100, 30)) as (app, pilot):
            for key in keys_of(*parts):
                app.post_message(key)
                if not burst:
                    await pilot.pause()
            await settle(app, pilot)
            ends.append((type(app.screen), app.focused.id, getattr(app.focused, "value", None), app.chat.prompt.value))
    assert ends[0] == ends[1]


async def test_a_reason_typed_in_one_burst_with_its_key_is_the_reason(running, session):
    async with running((100, 30)) as (app, pilot):
        await ask(app, pilot, session, asked())
        for key in keys_of("'nyes, but not today", "enter"):
            app.post_message(key)
        await settle(app, pilot)
        assert session.calls[-1] == ("resolve", "p1", False, "once", "yes, but not today", None)
