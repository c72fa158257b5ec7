"""Pictures of the screen. `pytest tests/tui/test_snapshots.py --snapshot-update` takes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from sakti.core.events import ApprovalRequested
from sakti.tui.app import SaktiApp
from tests.tui.conftest import settle
from tests.tui.scene import scene

SIZES = [(80, 24), (160, 50)]
THEMES = ["sakti-dark", "sakti-light"]


def posed(theme: str, *keys: str):
    """Bring the app to rest in `theme`, without a blinking cursor, and press `keys`."""

    async def run_before(pilot):
        app = pilot.app
        app.chat.prompt.cursor_blink = False
        await settle(app, pilot)
        app.theme = theme
        await settle(app, pilot)
        for key in keys:
            await pilot.press(key)
            for field in app.screen.query(Input):
                field.cursor_blink = False
        await settle(app, pilot)

    return run_before


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_main_screen(snap_compare, size, theme):
    assert snap_compare(SaktiApp(scene(Path("/work"))), terminal_size=size, run_before=posed(theme))


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_approval(snap_compare, size, theme):
    session = scene(Path("/work"))

    async def ask(pilot):
        await posed(theme)(pilot)
        session.workspace.clock.step = 0.0  # how often the line is drawn is no part of the picture
        request = ApprovalRequested(
            "p1",
            "bash",
            "pushes to another machine",
            "git push --force origin main",
            "/home/me/app",
            "",
            "bash(git push *)",
        )
        session.approvals = (request,)
        session.emit(request)
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(session), terminal_size=size, run_before=ask)


EDIT = "--- a/shop/cart.py\n+++ b/shop/cart.py\n@@ -12,4 +12,4 @@\n     def add(self, name, price, quantity=1):\n"
EDIT += "-        self.items[name] = (price, quantity)\n+        self.items[name] = (price, old + quantity)\n"


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
def test_approval_of_edits(snap_compare, size):
    session = scene(Path("/work"))

    async def ask(pilot):
        await posed("sakti-dark")(pilot)
        session.workspace.clock.step = 0.0
        reason, rule = "Edits a file in this project", "edit(shop/cart.py)"
        session.approvals = (
            ApprovalRequested("p1", "edit", reason, "shop/cart.py", ".", EDIT, rule, is_edit=True),
            ApprovalRequested("p2", "write", reason, "tests/test_cart.py", ".", "+x\n", is_edit=True),
            ApprovalRequested("p3", "bash", "Runs a command", "pytest -q", ".", "", "bash: pytest"),
        )
        session.emit(session.approvals[0])
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(session), terminal_size=size, run_before=ask)


def test_panes_over_the_chat(snap_compare):
    app = SaktiApp(scene(Path("/work")))
    assert snap_compare(app, terminal_size=(80, 24), run_before=posed("sakti-dark", "f2", "f4"))


@pytest.mark.parametrize("size", SIZES)
def test_help(snap_compare, size):
    assert snap_compare(SaktiApp(scene(Path("/work"))), terminal_size=size, run_before=posed("sakti-light", "f1"))


def test_completion(snap_compare):
    app = SaktiApp(scene(Path("/work")))
    assert snap_compare(app, terminal_size=(80, 24), run_before=posed("sakti-dark", "/", "c"))


@pytest.mark.parametrize("size", [(40, 10), (1, 1)])
def test_tiny(snap_compare, size):
    assert snap_compare(SaktiApp(scene(Path("/work"))), terminal_size=size, run_before=posed("sakti-dark"))
