"""What a person does: typing, queueing, stopping, approving, searching, choosing."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest
from msgspec import structs
from textual import events

from sakti.actions import registry
from sakti.actions.line import Typed, list_file_choices, match_fuzzy, query_at
from sakti.actions.values import Refused
from sakti.agent.session.queries import ThreadSummary
from sakti.core.errors import SaktiError, StoreError
from sakti.core.events import (
    ApprovalRequested,
    Backlog,
    ModelChanged,
    Notice,
    QueueChanged,
    RetryScheduled,
    StoreWaiting,
    TextDelta,
    ThreadChanged,
    ToolStarted,
)
from sakti.core.types import ModelInfo, Thread, ToolCallPart
from sakti.store.search.excerpts import Excerpt
from sakti.store.search.search import Hit
from sakti.tui import keys
from sakti.tui.app import DEEPEST, SaktiApp, log_path
from sakti.tui.chat.screen import ChatScreen
from sakti.tui.chat.stop_control import QUIT_HINT
from sakti.tui.panes.sidebar import choose_width
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.lists import pick_theme
from sakti.tui.screens.text import PageScreen
from sakti.tui.widgets.safe_input import SafePalette
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import user
from tests.tui.real import real_session, say
from tests.tui.scene import scene


async def test_the_first_paint_does_not_wait_for_the_store(session):
    from sakti.tui.app import SaktiApp

    session.gate = asyncio.Event()
    app = SaktiApp(session)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        assert "Message sakti" in screen_text(app)
        assert app.focused is app.chat.prompt
        await pilot.press(*"early", "enter")
        assert session.sent == []
        session.gate.set()
        await settle(app, pilot)
        assert session.sent == ["early"]
        assert session.calls.count(("warm",)) == 1


async def test_lines_sent_before_the_start_are_run_in_their_order_whichever_of_them_fails(session):
    session.gate = asyncio.Event()
    app = SaktiApp(session, prompt="from the shell")
    async with app.run_test(size=(100, 30)) as pilot:
        for text in ("/nosuch", "first", "second"):
            await pilot.press(*text, "enter")
        assert session.sent == []
        session.gate.set()
        await settle(app, pilot)
        assert session.sent == ["from the shell"] and session.queued == ("first", "second")
        assert session.views.typed == ["from the shell", "/nosuch", "first", "second"]
        await pilot.press(*"third", "enter")
        await settle(app, pilot)
        assert session.queued == ("first", "second", "third")


async def test_enter_sends_and_other_keys_break_lines(running, session):
    async with running() as (app, pilot):
        await pilot.press(*"one", "ctrl+j", *"two", "shift+enter", *"three\\", "enter", *"four", "enter")
        await settle(app, pilot)
        assert session.sent == ["one\ntwo\nthree\nfour"]
        assert "three" in chat_text(app)
        assert app.chat.prompt.text == ""


async def test_enter_never_overtakes_what_was_typed_before_it(running, session):
    async with running() as (app, pilot):
        for key in (*"!fast", "enter", *"second", "enter"):
            character = key if len(key) == 1 else "\r"
            app.post_message(events.Key(key, character))
        await settle(app, pilot)
        assert ("shell", "fast") in session.calls
        assert session.sent == ["second"]


async def test_enter_never_takes_a_completion_of_older_text(running, session):
    async with running() as (app, pilot):
        await pilot.press(*"/co")
        await settle(app, pilot)
        assert app.chat.prompt.completing
        for key in (*"st", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else "\r"))
        await settle(app, pilot)
        assert "Cost of this thread" in chat_text(app)


async def test_history_comes_back_and_so_does_what_was_being_typed(running, session):
    session.views.typed = ["first", "second"]
    async with running() as (app, pilot):
        await pilot.press(*"draft", "up")
        assert app.chat.prompt.text == "second"
        await pilot.press("up")
        assert app.chat.prompt.text == "first"
        await pilot.press("down", "down")
        assert app.chat.prompt.text == "draft"


async def test_a_large_paste_is_folded_and_sent_whole(running, session):
    text = "\n".join(f"line {n}" for n in range(312))
    async with running() as (app, pilot):
        app.chat.prompt.post_message(events.Paste(text))
        await pilot.pause()
        assert app.chat.prompt.text == "[pasted 312 lines]"
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.sent == [text]


async def test_commands_are_completed_with_a_preview(running, session):
    async with running() as (app, pilot):
        await pilot.press(*"/comp")
        await settle(app, pilot)
        assert "38 messages, 21.4k → ~2.1k tokens" in screen_text(app)
        await pilot.press("tab")
        await settle(app, pilot)
        assert app.chat.prompt.text == "/compact "
        await pilot.press("down", "tab")
        assert app.chat.prompt.text == "/compact undo"
        await pilot.press("enter")
        await settle(app, pilot)
        assert ("undo",) in session.calls
        assert "There is no compaction to undo." in chat_text(app)


async def test_files_are_completed_and_ignored_ones_are_not(running, session):
    (session.workspace.root / ".gitignore").write_text("secret/\n*.log\n")
    (session.workspace.root / "src").mkdir()
    (session.workspace.root / "secret").mkdir()
    for name in ("src/session.py", "src/settings.py", "secret/session.py", "session.log"):
        (session.workspace.root / name).write_text("")
    async with running() as (app, pilot):
        await pilot.press(*"look at @sess")
        await settle(app, pilot)
        assert [c.label for c in app.chat.conversation.completions.choices] == ["src/session.py"]
        await pilot.press("enter")
        assert app.chat.prompt.text == "look at @src/session.py "
        assert session.sent == []


def test_fuzzy_prefers_names_and_short_paths():
    paths = ["docs/session-notes/a.md", "src/auth/session.py", "session.py", "src/s_e_s_s.py", "x.py"]
    assert match_fuzzy("sess", paths, 8) == [
        "session.py",
        "src/auth/session.py",
        "docs/session-notes/a.md",
        "src/s_e_s_s.py",
    ]
    many = [f"folder{n % 97}/file{n}.py" for n in range(50_000)]
    assert list_file_choices("file4999", many)[0].label.endswith(("file4999.py", "file49990.py"))


def test_queries():
    assert query_at("/he").kind == "command"
    assert query_at("/mode bug").kind == "argument"
    assert query_at("see @src/a").text == "src/a"
    assert query_at("mail me@host") is None
    assert query_at("plain") is None


async def test_what_is_typed_while_the_agent_works_is_queued_and_can_be_taken_back(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        await pilot.press(*"and this", "enter")
        await settle(app, pilot)
        assert "queued: and this" in screen_text(app)
        assert "1 queued" in screen_text(app)
        await pilot.press("ctrl+x")
        await settle(app, pilot)
        assert app.chat.prompt.text == "and this"
        assert session.queued == ()


@pytest.mark.parametrize(("typed", "stands"), [("", "first\n\nsecond"), ("a draft", "first\n\nsecond\n\na draft")])
@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_stopping_gives_back_what_is_queued_in_its_order(running, session, key, typed, stands):
    async with running() as (app, pilot):
        await session.submit("go")
        await pilot.press(*"first", "enter", *"second", "enter", *typed)
        await settle(app, pilot)
        assert len(session.queued) == 2
        await pilot.press(key)
        await settle(app, pilot)
        assert app.chat.prompt.value == stands and session.queued == () and not session.busy
        assert "queued" not in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.sent == ["go", stands]


async def test_enter_on_an_empty_prompt_sends_what_is_queued(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        await pilot.press(*"first", "enter", *"second", "enter")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.sent == ["go"], "while the agent works it is read at the next step"
        session.finish(status="error", error="No route to host.", error_title="The model did not answer")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.sent == ["go", "first"] and session.queued == ("second",)


async def test_what_is_queued_in_another_thread_stands_in_the_prompt(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        await pilot.press(*"first", "enter", *"second", "enter")
        await settle(app, pilot)
        session.finish(status="error", error="No route to host.")
        session.queued = ()  # a thread that is opened has a queue of its own
        await session.open_thread("t5")
        await settle(app, pilot)
        assert app.chat.prompt.value == "first\n\nsecond"
        assert " queued" not in screen_text(app).split("\n")[-1]


async def test_escape_interrupts_and_says_so(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        session.emit(TextDelta("half"))
        await pilot.press("escape")
        await settle(app, pilot)
        assert "Interrupted" in chat_text(app)
        assert "half" in chat_text(app)


async def test_ctrl_c_clears_then_quits(running, session):
    async with running() as (app, pilot):
        session.workspace.clock.step = 0.0
        await pilot.press(*"text", "ctrl+c")
        assert app.chat.prompt.text == ""
        assert app.is_running
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.return_value == 0


async def test_only_a_second_ctrl_c_at_once_quits(running, session):
    """The hint is shown exactly while another press quits: whatever else the user does takes it away."""
    async with running() as (app, pilot):
        between = (
            lambda: pilot.press("x"),
            lambda: pilot.press("left"),
            lambda: app.on_event(events.MouseDown(None, 5, 5, 0, 0, 1, False, False, False)),
            lambda: app.on_event(events.Paste("pasted")),
            lambda: app.push_screen(PageScreen("Screen", "text")),
        )
        for act in between:
            await pilot.press("ctrl+c")
            await pilot.pause()
            assert QUIT_HINT in screen_text(app)
            await act()
            await pilot.pause()
            assert QUIT_HINT not in screen_text(app)
            await pilot.press("escape")
        await pilot.press(*"draft", "ctrl+c")
        assert app.is_running and app.chat.prompt.text == "" and app.return_value is None
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.return_value == 0


async def test_quitting_with_work_under_way_asks_once(running, session):
    async with running() as (app, pilot):
        session.workspace.clock.step = 0.0
        await session.submit("go")
        await pilot.press("ctrl+q")
        await pilot.pause()
        assert "still running: turn · ctrl+c stops all and quits" in screen_text(app)
        await pilot.press("ctrl+q")
        await pilot.pause()
        assert app.return_value == 0


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["y"], (True, "once", "", None)),
        (["t"], (True, "thread", "", None)),
        (["a"], (True, "workspace", "", None)),
        (["n", *"too wide", "enter"], (False, "once", "too wide", None)),
        (["e", "end", *" -n", "enter"], (True, "once", "", "git push -n")),
    ],
)
async def test_approvals_are_answered_in_the_flow(running, session, keys, answer):
    async with running() as (app, pilot):
        first = ApprovalRequested("p1", "bash", "not a reading command", "git push", "/w", "", "bash(git push *)")
        session.approvals = (first, ApprovalRequested("p2", "write", "outside", "/etc/x", "/w", "+a\n", ""))
        session.emit(first)
        await settle(app, pilot)
        painted = screen_text(app)
        assert "git push" in painted
        assert "Rule for t and a: `git push …`" in painted
        assert "1 of 2" in painted
        await pilot.press(*keys)
        await settle(app, pilot)
        assert session.calls[-1] == ("resolve", "p1", *answer)
        assert "/etc/x" in screen_text(app)


async def test_a_key_that_was_meant_for_the_prompt_does_not_approve(running, session):
    async with running() as (app, pilot):
        await pilot.press(*"tr")
        request = ApprovalRequested("p1", "bash", "why", "rm x", "/w")
        session.approvals = (request,)
        session.emit(request)
        await pilot.press("y")
        await settle(app, pilot)
        assert app.chat.prompt.text == "try"
        assert not [c for c in session.calls if c[0] == "resolve"]


async def test_a_retry_counts_down_and_a_failure_offers_another(running, session):
    async with running() as (app, pilot):
        session.workspace.clock.step = 0.0
        await session.submit("go")
        session.emit(RetryScheduled(2, 5, 8.0, "overloaded"))
        await settle(app, pilot)
        assert "retrying in 8 s  2/5 · overloaded" in screen_text(app)
        session.finish(status="error", error="No route to host.", error_title="The model did not answer")
        await settle(app, pilot)
        assert "F5 retries" in chat_text(app)
        await pilot.press("f5")
        await settle(app, pilot)
        assert ("retry",) in session.calls


def hit(id="m3", thread="t1", position=3, kind="message"):
    snippet = "the redirect loses"
    return Hit(
        id, kind, thread, "fix login", None, "user", 0, position, lambda: Excerpt("text", snippet, ((4, 12),)), 1.0, 1
    )


async def test_search_as_you_type_and_go_there(running, session):
    session.views.messages["t1"] = [user(f"m{n}", f"message number {n}", n) for n in range(600)]
    session.views.hits = [hit()]
    async with running() as (app, pilot):
        await pilot.press("ctrl+f", *"redirect")
        await settle(app, pilot)
        assert session.views.queries[-1] == "redirect"
        assert "the redirect loses" in screen_text(app)
        assert "1 found" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "message number 3" in screen_text(app)


async def test_a_hit_of_another_thread_opens_it(running, session):
    session.views.messages["t7"] = [user("far", "far away", 0)]
    session.views.hits = [hit("far", "t7", 0)]
    async with running() as (app, pilot):
        await pilot.press(*"/search away", "enter")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.thread.id == "t7"
        assert "far away" in screen_text(app)


async def test_esc_closes_search_and_the_prompt_has_the_focus(running, session):
    async with running() as (app, pilot):
        await pilot.press("ctrl+f", "escape")
        await settle(app, pilot)
        assert app.focused is app.chat.prompt


async def test_threads_models_and_themes_are_chosen(running, session):
    session.views.all_threads = [ThreadSummary(Thread("t5", "r", "older one", 0, 0), "how do I", 12, 3_400)]
    session.views.known_models = [ModelInfo("gpt-5", "openai", 400_000, None, 1.25, 10.0)]
    async with running() as (app, pilot):
        await pilot.press("ctrl+t")
        await settle(app, pilot)
        assert "12 messages · 3.4k tokens" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.thread.id == "t5"
        await pilot.press(*"/model", "enter")
        await settle(app, pilot)
        assert "400.0k window" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.chat.header.model == "openai/gpt-5"
        await pilot.press(*"/theme", "enter")
        await settle(app, pilot)
        await pilot.press("down")
        await settle(app, pilot)
        tried = app.theme
        assert tried != "sakti-dark"
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.views.state["theme"] == tried


async def test_escape_brings_the_old_theme_back(running, session):
    async with running() as (app, pilot):
        pick_theme(app)
        await settle(app, pilot)
        await pilot.press("down", "down", "escape")
        await settle(app, pilot)
        assert app.theme == "sakti-dark"


async def test_panes_show_hide_and_are_remembered(running, session):
    async with running() as (app, pilot):
        await pilot.press("f2")
        assert app.chat.sidebar.memory.has_focus, "a pane that shows is gone into"
        await pilot.press("f2")
        await settle(app, pilot)
        assert not app.chat.sidebar.memory.display and app.chat.prompt.has_focus
        assert "Memory hidden · F2 shows it" in screen_text(app)
        assert session.views.state["panes"] == "log tasks"
        await pilot.press("ctrl+b")
        assert not app.chat.sidebar.display
        await pilot.press("ctrl+b")
        assert app.chat.sidebar.display


async def test_under_100_columns_the_conversation_is_wrapped_beside_a_pane(running, session):
    async with running((80, 24)) as (app, pilot):
        assert not app.chat.sidebar.display
        width = app.chat.transcript.size.width
        await pilot.press("f2")
        await settle(app, pilot)
        assert app.chat.sidebar.display
        panes = app.chat.sidebar.outer_size.width
        assert panes == 36 and app.chat.transcript.size.width == width - panes, "nothing is covered"
        assert "esc  closes the panes" in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert not app.chat.sidebar.display and app.chat.transcript.size.width == width
        await pilot.press("f2")
        assert app.chat.status_line.closes == "close panes"
        await pilot.press("f2", "f2")
        await settle(app, pilot)
        assert not app.chat.sidebar.display and not app.chat.status_line.closes, "there is nothing to close"


@pytest.mark.parametrize(
    ("room", "by_hand", "narrow", "width"),
    [
        (59, 0, True, 59),
        (60, 0, True, 24),
        (80, 0, True, 36),
        (80, 50, True, 36),
        (100, 0, False, 36),
        (160, 0, False, 53),
        (200, 0, False, 56),
        (400, 0, False, 56),
        (120, 60, False, 60),
        (100, 90, False, 70),
    ],
)
def test_the_panes_grow_with_the_window(room, by_hand, narrow, width):
    assert choose_width(room, by_hand, narrow=narrow) == width


async def test_an_empty_conversation_says_where_it_is_and_what_to_try(running, session):
    async with running() as (app, pilot):
        start = app.chat.conversation.start
        assert start.display
        text = screen_text(app)
        assert session.workspace.root.name[:12] in text and start.model in text and "Try     “What does this" in text
        session.emit(Notice("information", "Something", "stands there now"))
        await settle(app, pilot)
        assert not start.display


async def test_the_log_is_filtered_and_opens_its_sources(tmp_path):
    from sakti.tui.app import SaktiApp

    session = scene(tmp_path)
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await pilot.press(*"/observations", "enter")
        await settle(app, pilot)
        await pilot.press("f3", "slash", *"safe_next", "enter")
        await settle(app, pilot)
        assert "1 of 7" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "made from  3 messages" in screen_text(app)


async def test_without_a_model_a_card_says_what_to_do_and_keeps_the_text(running, session):
    session.first_model = ModelChanged(None, "no key")
    async with running() as (app, pilot):
        assert "No model configured" in screen_text(app)
        assert app.focused is app.chat.prompt
        await pilot.press(*"hello", "enter")
        await settle(app, pilot)
        assert app.chat.prompt.text == "hello"
        assert "No model" in chat_text(app)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (StoreError("The disk is full."), "The disk is full."),
        (RuntimeError("boom"), "Something went wrong"),
    ],
)
async def test_what_fails_becomes_a_notice_never_a_traceback(running, session, error, shown):
    session.fail_start = error
    async with running() as (app, _pilot):
        assert shown in chat_text(app)
        assert "Traceback" not in chat_text(app)
        assert app.is_running
    assert log_path().exists() == isinstance(error, RuntimeError)


async def test_shell_notes_and_unknown_commands(running, session):
    async with running() as (app, pilot):
        await pilot.press(*"!ls -la", "enter")
        await pilot.press(*"#tests run with pytest", "enter")
        await pilot.press(*"/serch", "enter")
        await settle(app, pilot)
        assert ("shell", "ls -la") in session.calls
        assert ("note", "tests run with pytest") in session.calls
        assert "Did you mean /search?" in chat_text(app)


async def test_help_lists_the_keys_that_are_bound(running, session):
    async with running((120, 200)) as (app, pilot):
        await pilot.press("f1")
        await settle(app, pilot)
        painted = screen_text(app)
        for word in ("/compact", "ctrl+f", "Search", "f2", "@path"):
            assert word in painted


async def test_every_binding_has_an_id(running, session):
    from textual.binding import Binding

    async with running() as (app, _):
        own = [app.chat, *(w for w in app.screen.walk_children() if type(w).__module__.startswith("sakti"))]
        bindings = [b for w in own for b in type(w).__dict__.get("BINDINGS", ())]
        assert bindings
        assert all(isinstance(b, Binding) and b.id for b in bindings)


async def test_the_palette_opens_again_while_the_last_one_is_being_removed(running):
    async with running() as (app, pilot):
        for turns in range(4):
            app.action_command_palette()
            await settle(app, pilot)
            app.screen.dismiss()
            for _ in range(turns):
                await asyncio.sleep(0)
            app.action_command_palette()
            app.action_command_palette()
            await settle(app, pilot)
            assert [type(s).__name__ for s in app.screen_stack[1:]] == ["SafePalette"]
            app.screen._action_command_list("page_up")  # before its list was ever drawn
            app.screen._action_command_list("page_down")
            unopened = SafePalette()  # a key before it has a list at all
            unopened._action_cursor_down()
            unopened._action_command_list("select")
            await pilot.press("escape")
            await settle(app, pilot)


OTHERS = ("quit", "new", "init", "tour")  # commands that end the chat, or need a whole terminal


async def test_screens_do_not_pile_up(store, tmp_path):
    """Every key and command that opens a screen, twice and in turn, as when they come faster than screens open."""
    session = real_session(store, tmp_path / "w", "One.")
    app = SaktiApp(session)
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "hello")
        opened, deepest = set(), 0
        openers = [
            *(partial(app.chat.run_action, b.action) for b in keys.iter_bindings(ChatScreen) if b.action != "app.quit"),
            *(
                partial(app.run_typed, Typed("command", name))
                for name in registry.chat_commands()
                if name not in OTHERS
            ),
        ]
        for opener in (o for o in openers for _ in range(2)):
            with contextlib.suppress(SaktiError):
                await opener()
            await (asyncio.sleep(0) if opener.func == app.run_typed else pilot.pause())
            kinds = [type(s) for s in app.screen_stack[1:]]
            assert len(kinds) == len(set(kinds)), "a screen lies over one of its kind"
            opened, deepest = opened | set(kinds), max(deepest, len(kinds))
        assert len(opened) > DEEPEST == deepest
        app.action_command_palette()
        app.chat.action_help()
        await pilot.pause()
        assert type(app.screen).__name__ == "HelpScreen" and len(app.screen_stack) <= DEEPEST + 1
        app.run_command("/help")  # as the palette does
        await settle(app, pilot)
        assert [type(s).__name__ for s in app.screen_stack[1:]] == ["HelpScreen"]


async def test_a_key_that_overtakes_the_parts_of_its_screen_closes_it_or_does_nothing(running):
    async with running() as (app, pilot):
        app.push(BoardScreen())
        for key in ("n", "x", "d", "t", "slash", "left", "escape"):
            assert isinstance(app.screen, BoardScreen)
            await app._check_bindings(key, priority=True)
            await app._check_bindings(key)
        await settle(app, pilot)
        assert app.screen is app.chat
    assert not log_path().exists()


async def test_a_screen_that_is_closed_twice_closes_no_other(running):
    async with running() as (app, pilot):
        await pilot.press("f1")
        await settle(app, pilot)
        under = app.screen
        app.action_command_palette()
        await settle(app, pilot)
        palette = app.screen
        for screen in (palette, palette, under, under):
            screen.dismiss()
        await settle(app, pilot)
        assert app.screen_stack == [app.chat]
        under.set_title("the answer to work that it began")  # late, and nothing to show it on


async def test_the_palette_runs_commands(running, session):
    async with running() as (app, pilot):
        await pilot.press("ctrl+p")
        await settle(app, pilot)
        line, found = app.screen.query_one("#--input"), app.screen.query_one("CommandList")
        assert not line.styles.border_bottom[0] and not found.styles.border_top[0], "one frame around both"
        await pilot.press(*"/cost")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "Cost of this thread" in chat_text(app)


async def test_memory_is_explained_paused_and_its_last_reflection_taken_back(session):
    session = scene(session.workspace.root)
    session.current.status = structs.replace(
        session.current.status, backlog=Backlog(84_000, 3, 0.119), reason="the small model of anthropic"
    )
    app = SaktiApp(session)
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        assert "84.0k · 3 calls" in screen_text(app)
        assert "1 unverified · 2 dropped" in screen_text(app)
        for command in ("", " pause", " resume", " undo"):
            await pilot.press(*f"/memory{command}", "enter")
            await settle(app, pilot)
        assert session.calls[-3:] == [("pause", True), ("pause", False), ("undo_reflection",)]
        said = chat_text(app)
        assert "84.0k tokens left · 3 calls · ~$0.12" in said
        assert "anthropic/claude-haiku-4-5 (the small model of anthropic)" in said
        assert "1 line with 1 claim without a source" in said
        assert "0 important lines and 2 paths" in said


@pytest.mark.parametrize("width", [60, 80, 100, 140])
async def test_the_key_that_stops_a_turn_is_dropped_last(running, session, width):
    async with running((width, 30)) as (app, pilot):
        line = app.chat.status_line
        await session.submit("go")
        session.emit(ToolStarted(ToolCallPart("c1", "bash", {"command": "make"})))
        session.emit(QueueChanged(("later", "and later")))
        await settle(app, pilot)
        line.show_context(112_500, about=True)
        line.sandbox, line.vim, line.download = ("unsandboxed", "no sandbox here"), "INSERT", "download 42%"
        session.workspace.clock.step = 100.0
        line.refresh()
        await settle(app, pilot)
        last = screen_text(app).split("\n")[-1]
        assert "esc stop turn" in last
        if width == 140:
            assert "≈112k of 200k" in last or "≈112.5k of 200k" in last


async def test_a_command_that_cannot_run_during_a_turn_is_refused_before_it_asks(running, session):
    async with running((100, 30)) as (app, _):
        await session.submit("go")
        for name, action in registry.chat_commands().items():
            if action.after_turn:
                with pytest.raises(Refused, match=f"stop it with Esc, then {action.after_turn}"):
                    await app.chat.conversation.run(f"/{name}")
                assert app.screen is app.chat, name
        assert registry.chat_commands()["undo"].after_turn and registry.chat_commands()["model"].after_turn


async def test_an_activity_that_takes_long_to_stop_is_named_until_it_ends(running, session):
    async with running((80, 24)) as (app, pilot):
        activities = app.chat.stop_control.activities
        download = activities.begin("download", lambda: None)
        app.chat.status_line.download = "download 22%"
        await pilot.press("escape")
        await settle(app, pilot)
        last = screen_text(app).split("\n")[-1]
        assert "stopping download" in last and "esc stop" not in last
        activities.end(download)
        await settle(app, pilot)
        assert "stopping" not in screen_text(app).split("\n")[-1]


async def test_the_clocks_of_a_call_agree_whenever_they_began_and_are_drawn(running, session):
    clock = session.workspace.clock
    clock.step = 0.003  # each look at the clock is a little later
    async with running((100, 30)) as (app, pilot):
        await session.submit("go")
        session.emit(ToolStarted(ToolCallPart("c1", "bash", {"command": "make"})))
        for passed, shown in ((62.95, "1 m 03 s"), (0.6, "1 m 03 s"), (0.5, "1 m 04 s")):
            clock.seconds += passed
            app.chat.status_line.tick()
            clock.seconds += 0.7  # the line is drawn again for another reason
            app.chat.status_line.refresh()
            await settle(app, pilot)
            assert screen_text(app).count(shown) == 2, screen_text(app)
            clock.seconds -= 0.7


async def test_an_open_goal_stands_in_the_status_line(running, session):
    async with running((100, 30)) as (app, pilot):
        session.goal_status = "goal 3/20 · $0.41"
        session.emit(ThreadChanged(session.thread))
        await settle(app, pilot)
        assert "goal 3/20 · $0.41" in screen_text(app).split("\n")[-1]


async def test_a_wait_for_another_window_stands_in_the_status_line(running, session):
    async with running() as (app, pilot):
        session.emit(StoreWaiting(3.2))
        await settle(app, pilot)
        assert "waiting for another window · 3 s" in screen_text(app)
        session.emit(StoreWaiting(None))
        await settle(app, pilot)
        assert "waiting for another window" not in screen_text(app)


async def test_where_it_cannot_start_what_was_typed_stays(session):
    session.fail_start = StoreError("s.db is damaged. `sakti db recover` copies what can still be read.")
    session.gate = asyncio.Event()
    app = SaktiApp(session, prompt="from the shell")
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.press(*"early", "enter")
        session.gate.set()
        await settle(app, pilot)
        assert app.chat.prompt.value == "from the shell\n\nearly" and "db recover" in chat_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.chat.prompt.value == "from the shell\n\nearly" and session.sent == []


async def test_lines_are_run_when_what_the_window_remembers_cannot_be_read(session):
    session.gate = asyncio.Event()

    async def fail():
        raise StoreError("The disk is full.")

    session.views.ui_state = fail
    app = SaktiApp(session)
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.press(*"early", "enter")
        session.gate.set()
        await settle(app, pilot)
        await pilot.press(*"late", "enter")
        await settle(app, pilot)
        assert session.sent == ["early"] and session.queued == ("late",)


async def test_what_is_not_saved_says_so_all_the_time(running, session):
    async with running() as (app, pilot):
        assert "NOT SAVED" not in screen_text(app)
        session.workspace.not_saved = "the disk is not writable"
        session.emit(Notice("error", "Not saved", session.workspace.not_saved))
        await settle(app, pilot)
        first, *_, last = screen_text(app).splitlines()
        assert "NOT SAVED" in first and "NOT SAVED" in last
    async with running(size=(50, 20)) as (app, _):
        assert "NOT SAVED" in screen_text(app).splitlines()[0]
