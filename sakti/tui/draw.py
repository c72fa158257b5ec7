"""How the screen shows what an action returns: a notice, a card, or a screen of its own for what it has a view for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sakti.actions.values import Card, Done, Open, Refused, Value
from sakti.core.text import one_line
from sakti.tui.transcript.blocks import CardBlock, NoticeBlock

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp


def draw(app: SaktiApp, value: Value) -> None:
    """Show a value in the chat; lists and texts as their lines."""
    match value:
        case Done(sentence, title):
            app.say(sentence, title=title)
        case Card(title, rows):
            app.transcript.live.add_block(CardBlock(title=title, rows=rows))
        case _:
            title = str(getattr(value, "title", ""))
            app.transcript.live.add_block(NoticeBlock(title=title, text="\n".join(value.lines)))


async def show(app: SaktiApp, value: Value | None) -> None:
    """Show what an action returned: in the view that it names, where there is one here."""
    if not isinstance(value, Open):
        if value is not None:
            draw(app, value)
    elif not await _open(app, value.view, value.data):
        await show(app, await value.instead() if value.instead is not None else None)


async def _open(app: SaktiApp, view: str, data: Any) -> bool:
    """Open a view; False where the screen has none of that name."""
    match view:
        case "help":
            app.action_help()
        case "quit":
            await app.action_quit()
        case "clear":
            app.transcript.clear_screen()
        case "setup":
            app.open_setup()
        case "theme":
            await _theme(app, data)
        case "search":
            app.open_search(data)
        case "board":
            app.sidebar.tasks.open_board()
        case "log":
            app.focus_pane("log")
        case "threads":
            await app.pick_thread()
        case "models":
            await app.pick_model()
        case "context":
            from sakti.tui.screens.text import ContextScreen

            app.push_screen(ContextScreen(data))
        case "compaction":
            from sakti.tui.screens.compaction import CompactionScreen

            app.push_screen(CompactionScreen(data))
        case "settings":
            from sakti.tui.screens.settings import SettingsScreen

            app.push_screen(SettingsScreen(*data))
        case _:
            return False
    return True


async def _theme(app: SaktiApp, name: str) -> None:
    if not name:
        app.pick_theme()
        return
    if not app.use_theme(name):
        raise Refused(f"There is no theme {one_line(name, 40)!r}; /theme shows them.")
    await app.session.views.set_ui_state(app.theme_key, name)
