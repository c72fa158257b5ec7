"""Show what an action returns: a notice, a card, or a screen of its own where it has one."""

from __future__ import annotations

from typing import Any

from sakti.actions.values import Card, Done, Open, Refused, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line
from sakti.tui.chat.screen import ChatScreen
from sakti.tui.chat.welcome import Welcome
from sakti.tui.host import Host
from sakti.tui.transcript.blocks import CardBlock, NoticeBlock
from sakti.tui.transcript.findings import FindingsBlock

with lazy_imports:
    from sakti.tui.screens import compaction as compaction_screen
    from sakti.tui.screens import lists as list_screens
    from sakti.tui.screens import settings as settings_screen
    from sakti.tui.screens import text as text_screens
    from sakti.tui.screens import threads as thread_screens
    from sakti.tui.screens import undo as undo_screen


class Drawing:
    """Shows values in a window."""

    def __init__(self, host: Host, chat: ChatScreen, welcome: Welcome) -> None:
        self._host, self._chat, self._welcome = host, chat, welcome

    def draw(self, value: Value) -> None:
        """Show a value in the chat; lists and texts as their lines."""
        match value:
            case Done(sentence, title):
                self._host.say(sentence, title=title)
            case Card(title, rows):
                self._chat.transcript.live.add_block(CardBlock(title=title, rows=rows))
            case Text(lines, title, "findings"):
                self._chat.transcript.live.add_block(FindingsBlock(title=title, findings=lines))
            case Text((page,), title, "markdown"):
                self._host.push(text_screens.PageScreen(title, page))
            case _:
                title = str(getattr(value, "title", ""))
                self._chat.transcript.live.add_block(NoticeBlock(title=title, text="\n".join(value.lines)))

    async def show(self, value: Value | None) -> None:
        """Show what an action returned: in the view that it names, where there is one here."""
        if not isinstance(value, Open):
            if value is not None:
                self.draw(value)
        elif not await self._open(value.view, value.data):
            await self.show(await value.instead() if value.instead is not None else None)

    async def _open(self, view: str, data: Any) -> bool:
        """Open a view; False where the screen has none of that name."""
        chat, host = self._chat, self._host
        match view:
            case "help":
                chat.action_help()
            case "quit":
                await host.action_quit()
            case "copy":
                host.copy_to_clipboard(data)
            case "clear":
                chat.transcript.clear_screen()
            case "setup":
                self._welcome.open()
            case "theme":
                await self._theme(data)
            case "search":
                chat.visit.search(data)
            case "board":
                chat.show_pane("tasks")
            case "log":
                chat.show_pane("log")
            case "threads":
                await thread_screens.pick_thread(host)
            case "models":
                await list_screens.pick_model(host)
            case "context":
                host.push(text_screens.ContextScreen(data))
            case "compaction":
                host.push(compaction_screen.CompactionScreen(data))
            case "undo":
                undo_screen.open_preview(host, chat.conversation.give_back, *data)
            case "redo":
                undo_screen.open_redo(host, *data)
            case "undone":
                done, prompt = data
                host.note(done.sentence, undo_screen.TOLD_S)
                chat.conversation.give_back(prompt)
            case "settings":
                found, user_file, project_file = data
                host.push(settings_screen.SettingsScreen(found, user_file, project_file, chat.apply_setting))
            case _:
                return False
        return True

    async def _theme(self, name: str) -> None:
        if not name:
            list_screens.pick_theme(self._host)
            return
        if not self._host.appearance.use(name):
            raise Refused(f"There is no theme {one_line(name, 40)!r}; /theme shows them.")
        await self._host.session.views.set_ui_state(self._host.appearance.theme_key, name)
