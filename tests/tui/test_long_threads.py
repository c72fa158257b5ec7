"""A thread of ten thousand messages: only what comes near the screen is drawn, and paging up skips nothing."""

from __future__ import annotations

from sakti.core.events import TextDelta
from sakti.tui.palette import make_palette
from sakti.tui.transcript.blocks import Block
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.transcript.document import Document
from tests.tui.conftest import screen_text, settle
from tests.tui.fakes import assistant, user

# its height is estimated far too low: every word of the list is a line of its own
TALL = "- a\n- b\n- c\n\n> q\n\n1. x\n2. y\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


def thread(count):
    return [
        user(f"m{i}", f"question {i}", i) if i % 2 == 0 else assistant(f"m{i}", f"answer {i}\n\n{TALL}", i)
        for i in range(count)
    ]


def test_putting_a_page_above_draws_nothing(monkeypatch):
    document = Document(make_palette({}, True))
    drawn: list[Block] = []
    monkeypatch.setattr(Document, "_draw", lambda self, block: drawn.append(block) or [])
    document.append(*make_message_blocks(thread(4)))
    document.insert(0, make_message_blocks(thread(400)))
    assert drawn == []
    assert document.height == sum(document.block_height(i) for i in range(len(document.blocks)))


def test_places_and_heights_agree_after_every_change():
    document = Document(make_palette({}, True), 60)
    document.append(*make_message_blocks(thread(40)))
    document.insert(0, make_message_blocks(thread(20)))
    document.measure(70)
    document.measure(3)
    document.truncate(len(document.blocks) - 5)
    document.restyle(width=31)
    document.measure(11)
    y = 0
    for index in range(len(document.blocks)):
        assert document.top(index) == y
        if height := document.block_height(index):
            assert document.locate(y) == (index, 0)
            assert document.locate(y + height - 1) == (index, height - 1)
        y += height
    assert document.height == y
    assert document.locate(y) is None and document.locate(-1) is None


async def test_paging_up_through_thousands_skips_no_line(running, session):
    session.views.messages["t1"] = thread(10_000)
    async with running((100, 24)) as (app, pilot):
        chat = app.chat.transcript
        assert "answer 9999" in screen_text(app)
        drawn = len(chat.document._drawn)
        assert drawn < 100

        def lines(count: int) -> list[str]:
            top = chat.scroll_offset.y
            return ["".join(s.text for s in chat.line_at(y) or []) for y in range(top, top + count)]

        rows = chat.size.height
        for _ in range(12):
            before = lines(rows)
            await pilot.press("pageup")
            await settle(app, pilot)
            after = lines(2 * rows)
            assert any(after[step : step + rows] == before for step in range(1, rows + 1))
        assert len(chat.document.blocks) > 2 * drawn


async def test_the_oldest_of_ten_thousand_can_be_reached_and_left(running, session):
    session.views.messages["t1"] = thread(2_000)
    async with running((100, 24)) as (app, pilot):
        for _ in range(12):
            await pilot.press("ctrl+home")
            await settle(app, pilot)
        assert "question 0" in screen_text(app)
        await pilot.resize_terminal(60, 20)
        await settle(app, pilot)
        assert "question 0" in screen_text(app)
        await pilot.press("ctrl+end")
        await settle(app, pilot)
        assert "1 │ 2" in screen_text(app)


async def test_a_storm_of_sizes_leaves_the_reader_where_he_was(running, session):
    session.views.messages["t1"] = thread(600)
    async with running((120, 35)) as (app, pilot):
        chat = app.chat.transcript
        await session.submit("go")
        for number, size in enumerate([(1, 1), (500, 200), (2, 40), (300, 3), (37, 11), (120, 35)]):
            session.emit(TextDelta(f"word {number} " * 40))
            await pilot.resize_terminal(*size)
        await settle(app, pilot)
        assert chat.scroll_offset.y == chat.max_scroll_y
        assert "word 5" in screen_text(app)
        chat.jump("m500")
        await settle(app, pilot)
        top = chat.place
        for size in [(60, 20), (1, 1), (500, 200), (33, 9), (120, 35)]:
            await pilot.resize_terminal(*size)
            session.emit(TextDelta("more " * 40))
        await settle(app, pilot)
        assert chat.place == top
        assert "question 500" in screen_text(app)
