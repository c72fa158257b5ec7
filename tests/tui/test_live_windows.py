"""The windows while a turn runs: what the screen shows is what the database, the context and the request hold."""

from __future__ import annotations

import random
import re

import pytest
from msgspec.structs import replace

from sakti.agent.session.running_turn import StepEstimate
from sakti.core.events import (
    MessageSaved,
    StepDiscarded,
    StepFinished,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from sakti.core.text import count_k
from sakti.core.tokens import O200k, count_part
from sakti.core.types import TextPart, ToolCallPart, ToolResultPart, Usage
from sakti.providers.scripted import Answer, Call
from sakti.store.threads import messages as message_store
from sakti.tui.app import SaktiApp
from tests.tui.conftest import screen_text, settle
from tests.tui.fakes import assistant, user
from tests.tui.real import real_session, say
from tests.tui.scene import log, scene

WORDS = "the redirect after login loses its query, so `safe_next(request)` is asked first.\n"


async def test_the_windows_are_right_at_any_moment_of_a_turn(store, tmp_path):
    look_first = Answer("I look. " + WORDS * 9, calls=(Call("bash", {"command": "seq 900"}),), chunk_delay=0.001)
    answers = (look_first, Answer(WORDS * 20, chunk_delay=0.001))
    session = real_session(store, tmp_path / "w", *answers)
    app, rng = SaktiApp(session), random.Random(3)
    looks: list[tuple[type, int]] = []
    saved: list[str] = []  # messages so far
    held: list[tuple[int, tuple[str, ...]]] = []  # tokens of the window, and the messages that it has
    wrong: list[object] = []

    def look(event) -> None:
        saved.extend([event.message.id] if isinstance(event, MessageSaved) else [])
        streams = isinstance(event, TextDelta | ToolOutput) and rng.random() < 0.4
        begun = looks or isinstance(event, StepStarted)  # the prompt has its facts, and the tools are there
        if not begun or not (streams or isinstance(event, MessageSaved | StepStarted)):
            return
        app.chat.panes.show_windows()
        line, pane, streaming = app.chat.status_line, app.chat.sidebar.memory, session.current.running.estimate.tokens
        request = event.request_tokens if isinstance(event, StepStarted) else line.context
        shown = "\n".join("".join(s.text for s in pane.render_line(y)) for y in range(pane.size.height))
        figures = f"≈{count_k(pane.status.messages.tokens + streaming)} of "
        on_screen = (pane.streaming, line.context, line.context, figures in shown)
        right = (streaming, sum(b.tokens for b in session.views.request_blocks()), request, True)
        looks.append((type(event), streaming))
        held.append((pane.status.messages.tokens, tuple(saved)))
        wrong.extend([(type(event), on_screen, right, shown)] if on_screen != right else [])

    async with app.run_test(size=(140, 50)) as pilot:
        await settle(app, pilot)
        session.subscribe(look)
        await session.submit("go")
        await session.wait()
        await settle(app, pilot)
        assert not wrong
        stored = {m.id: m.tokens for m in await store.read(message_store.list_page, session.thread.id)}
        assert [tokens for tokens, _ in held] == [sum(stored[i] for i in ids) for _, ids in held]
        assert len(looks) > 20 and {TextDelta, MessageSaved, StepStarted} <= {kind for kind, _ in looks}
        assert max(tokens for _, tokens in looks) > 300
        app.chat.panes.show_windows()
        assert app.chat.sidebar.memory.streaming == 0
        assert app.chat.status_line.context == sum(b.tokens for b in await session.views.context())


async def test_the_windows_follow_a_stream_by_themselves(running, session):
    async with running((140, 40)) as (app, pilot):
        await session.submit("go")
        session.emit(StepStarted(1, "m", 4_000))
        session.views.streaming = 250
        session.emit(TextDelta("word "))
        await pilot.pause(0.7)
        assert "context ≈4.2k" in screen_text(app) and re.search(r"Messages .*≈", screen_text(app)) is None
        session.views.streaming = 0
        session.finish("word")
        await pilot.pause(0.7)
        assert "context 4.0k" in screen_text(app)
        await pilot.pause(0.7)
        assert app.chat.panes._timer is None, "nothing runs while nothing changes"


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([TextDelta("one two"), TextDelta(" three")], "one two three"),
        ([ThinkingDelta(WORDS), TextDelta(WORDS)], WORDS * 2),
        ([ToolCallDelta("c", "bash", '{"command": "make all"}')], '{"command": "make all"}'),
        ([TextDelta(WORDS), MessageSaved(assistant("a", WORDS))], ""),
        ([TextDelta(WORDS), StepDiscarded(1, "again")], ""),
        ([TextDelta(WORDS), StepFinished(1, Usage(), "stop")], WORDS),
        ([TextDelta(WORDS), TurnFinished("t", "answered", "", 1, Usage())], ""),
        ([ToolStarted(ToolCallPart("c", "bash", {})), ToolOutput("c", WORDS * 900)], WORDS * 12),
        ([ToolStarted(ToolCallPart("c", "bash", {}), own=True), ToolOutput("c", WORDS),
          MessageSaved(assistant("a", ""))], WORDS),
        ([ToolStarted(ToolCallPart("c", "read", {})), ToolFinished(ToolResultPart("c", "read", WORDS), 1),
          MessageSaved(user("r", ""))], ""),
    ],
)  # fmt: skip
def test_the_estimate_follows_what_is_not_stored(events, text):
    estimate = StepEstimate(output_limit=len(WORDS) * 12)
    for event in events:
        estimate.on_event(event)
    counted = count_part(O200k(), TextPart(text)) if text else 0
    assert abs(estimate.tokens - counted) <= counted * 0.25 + 16 * bool(text)
    assert estimate.tokens == estimate.tokens, "a look changes nothing"


async def test_a_narrow_window_shows_the_message_window_and_new_observations_in_its_title(running, session):
    session.views.lines = log()
    async with running((80, 24)) as (app, pilot):
        session.emit(scene("/w").current.status)
        await settle(app, pilot)
        title = screen_text(app).split("\n")[0]
        assert "· 21.4k/30k" in title and "●" not in title, "those of an opened thread are not new"
        session.views.waiting = [replace(x, id=f"w{x.id}", state="buffered") for x in log()[-2:]]
        app.chat.panes.load_log()
        session.views.streaming = 900
        session.emit(TextDelta("word "))
        await pilot.pause(0.4)
        await settle(app, pilot)
        assert "≈22.3k/30k ●2" in screen_text(app).split("\n")[0]
        app.chat.action_pane("log")
        await settle(app, pilot)
        assert "●2" not in screen_text(app).split("\n")[0], "they are seen now"
    async with running((140, 40)) as (app, pilot):
        session.emit(scene("/w").current.status)
        await settle(app, pilot)
        assert "21.4k/30k" not in screen_text(app).split("\n")[0], "the pane shows it"


async def test_after_an_undo_the_pane_says_why_it_rests_and_how_to_go_on(store, tmp_path):
    overrides = ("memory.observation.message_tokens=900",)
    app = SaktiApp(real_session(store, tmp_path / "w", *(WORDS * 6 for _ in range(5)), overrides=overrides))
    async with app.run_test(size=(140, 50)) as pilot:
        await settle(app, pilot)
        for n in range(4):
            await say(app, pilot, f"the port of service {n} is 80{n}0")
        await app.session.compact()
        await app.session.undo_compaction()
        await settle(app, pilot)
        shown = " ".join(line[95:] for line in screen_text(app).split("\n"))
        assert "paused by undo" in shown and "Your undo paused automatic" in re.sub(r"[\s│]+", " ", shown)
        assert "/compact observes now" in re.sub(r"[\s│]+", " ", shown)
        assert "in about" not in shown and "┃" not in shown, "nothing is forecast"
