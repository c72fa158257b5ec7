"""Pictures of the board and of a task's tree. `--snapshot-update` takes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.store.tasks.questions import Task
from sakti.tasks.queries import Branch
from sakti.tui.app import SaktiApp
from sakti.tui.screens import task_card
from sakti.tui.screens.board import BoardScreen
from tests.tui.conftest import settle
from tests.tui.fakes import NOW
from tests.tui.scene import scene
from tests.tui.test_snapshots import SIZES, THEMES, posed


def app_with_board() -> SaktiApp:
    session = scene(Path("/work"))
    tasks = session.views.tasks
    tasks.in_progress = tuple(replace(c, since=NOW - 5 * 60_000) for c in tasks.in_progress)
    epic = replace(tasks.ready[0], id="6", handle="sk-f6", title="authentication " * 4, type="epic")
    tasks.ready = (*tasks.ready, replace(epic, ready_to_close=True))
    tasks.closed_today = tuple(replace(c, since=NOW - 70 * 60_000) for c in tasks.closed_today)
    return SaktiApp(session)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_board(snap_compare, size, theme):
    async def open_it(pilot):
        await posed(theme)(pilot)
        pilot.app.push_screen(BoardScreen())
        await settle(pilot.app, pilot)
        await pilot.press("right")
        await settle(pilot.app, pilot)

    assert snap_compare(app_with_board(), terminal_size=size, run_before=open_it)


@pytest.mark.parametrize("theme", THEMES)
def test_tree(snap_compare, monkeypatch, theme):
    def task(handle: str, title: str, status: str = "open") -> Task:
        times = {"created_at": NOW, "updated_at": NOW}
        return Task(id=handle, resource_id="/work", handle=handle, title=title, status=status, **times)

    async def tree(session, task_id):
        return (
            Branch(0, "", task("sk-d4", "logout everywhere"), True),
            Branch(1, "waits for", task("sk-b2", "add refresh tokens"), False),
            Branch(1, "part of", task("sk-e7", "authentication"), True),
            Branch(2, "waits for", task("sk-a1", "fix login redirect", "in_progress"), False),
            Branch(1, "blocks", task("sk-g8", "tell people that they were logged out", "closed"), False),
        )

    monkeypatch.setattr(task_card.changes, "read_tree", tree)

    async def open_it(pilot):
        await posed(theme)(pilot)
        pilot.app.push_screen(task_card.TreeScreen("sk-d4"))
        await settle(pilot.app, pilot)

    assert snap_compare(app_with_board(), terminal_size=(100, 24), run_before=open_it)
