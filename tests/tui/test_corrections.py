"""Correcting the log from its pane, on a real session and its database."""

from __future__ import annotations

from sakti.tui.app import SaktiApp
from tests.tui.conftest import screen_text, settle
from tests.tui.test_picture import live, session, workspace


async def test_lines_are_pinned_edited_forgotten_and_taken_back(tmp_path):
    workspace(tmp_path)
    await live(tmp_path)
    again, _ = session(tmp_path, continue_last=True)
    app = SaktiApp(again)
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(app, pilot)

        async def press(*keys):
            for key in keys:
                await pilot.press(key)
            await settle(app, pilot)
            return await again.views.observations()

        app.chat.sidebar.observations.log_list.focus()
        first = (await press("home"))[0]
        assert not first.pinned
        assert (await press("home", "p"))[0].pinned
        assert "⚑" in screen_text(app)
        assert not (await press("home", "p"))[0].pinned
        app.chat.sidebar.observations.log_list.focus()
        await press("home", "e")
        app.chat.sidebar.observations.edit_box.value = "The app uses Supabase"
        assert (await press("enter"))[0].content == "The app uses Supabase"
        assert "The app uses Supabase ✎" in screen_text(app)
        assert (await press("home", "x"))[0].forgotten
        assert "The app uses Supabase" not in "".join(b.text for b in again.current.engine.preview().blocks)
        assert not (await press("u"))[0].forgotten
        assert (await press("u"))[0].content == first.content
