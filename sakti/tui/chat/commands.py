"""Run a slash command and show its value as a notice, a card or a named screen."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from sakti.actions import line
from sakti.actions.scope import Scope
from sakti.actions.values import Card, Done, Open, Refused, Text, Value
from sakti.core.text import quote
from sakti.tui.chat.screen import ChatScreen
from sakti.tui.host import Host, get_app
from sakti.tui.screens import agents as agent_screens
from sakti.tui.screens import lists as list_screens
from sakti.tui.screens import settings as settings_screen
from sakti.tui.screens import text as text_screens
from sakti.tui.screens import threads as thread_screens
from sakti.tui.screens import undo as undo_screen
from sakti.tui.screens import welcome as welcome_screen
from sakti.tui.transcript.blocks import Block, CardBlock, FindingsBlock, NoticeBlock

if TYPE_CHECKING:
    from sakti.actions.import_ import HistoryImport

UNSTOPPABLE = ("undo", "redo", "quit")  # commands that Esc does not interrupt
IMPORT = "import"  # the activity that Esc stops


class Commands:
    """Runs the slash commands of the chat. `run` raises `SaktiError`, which the window shows as a notice."""

    def __init__(self, host: Host, chat: ChatScreen) -> None:
        self._host, self._chat = host, chat
        self._scope = Scope(host.session, self.draw, chat.stop_control.compaction)

    async def run(self, typed: line.Typed) -> None:
        """Run a command, then show its value and the parts of the chat that it changed."""
        chat = self._chat
        compacts = typed.name == "compact" and typed.argument not in ("undo", "diff")
        if compacts and chat.stop_control.activities.is_running("compaction"):
            self.draw(Done("A compaction is under way; Esc stops it."))
            return
        before = chat.transcript.live.outside_count
        owner = nullcontext() if typed.name in UNSTOPPABLE else chat.stop_control.command(typed.name)
        with owner:
            value = await line.run(self._scope, typed)
        if chat.transcript.live.outside_count > before:  # a notice is the answer
            chat.transcript.scroll_end_now()
        chat.show_modes()
        match typed.name:
            case "memory" if typed.argument:
                chat.panes.load_log()
            case "tasks" if typed.argument:
                chat.panes.load_board()
            case "delete-message" if typed.argument == "yes":
                await chat.view.load()
            case "redo" if isinstance(value, Done):
                self._host.announce(value.sentence, title=value.title)  # another thread may open
                return
            case _:
                pass
        await self.show(value)

    def draw(self, value: Value) -> None:
        """Show a value as a block at the end of the chat; a page gets its own screen."""
        match value:
            case Text((page,), title, "markdown"):
                self._host.push(text_screens.PageScreen(title, page))
            case _:
                block = _make_block(value)
                self._chat.transcript.live.add_block(block)
                self._chat.transcript.show_result(block)

    async def show(self, value: Value | None) -> None:
        """Show the value of an action, in its named view if the window has one."""
        if not isinstance(value, Open):
            if value is not None:
                self.draw(value)
        elif not await self._open(value.view, value.data):
            await self.show(await value.fallback() if value.fallback is not None else None)

    async def _open(self, view: str, data: Any) -> bool:
        """Open a view; False if the window has none of that name."""
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
                chat.welcome.open()
            case "theme":
                await self._theme(data)
            case "search":
                chat.search.open(data)
            case "board":
                chat.show_tasks()
            case "log":
                chat.show_pane("log")
            case "threads" | "models" | "agents":
                await self._pick(view)
            case "choice":
                list_screens.pick_word(host, *data)
            case "jobs":
                host.push(list_screens.JobsScreen())
            case "context":
                chat.panes.open_context(data)
            case _:
                return self._open_page(view, data)
        return True

    def _open_page(self, view: str, data: Any) -> bool:
        """Open a screen that shows `data`; False for an unknown name."""
        chat, host = self._chat, self._host
        match view:
            case "request":
                host.push(text_screens.ContextScreen(data))
            case "compaction":
                host.push(text_screens.CompactionScreen(data))
            case "undo":
                undo_screen.open_preview(host, chat.conversation.return_to_prompt, *data)
            case "redo":
                undo_screen.open_redo(host, *data)
            case "undone":
                done, prompt = data
                undo_screen.show_undone(host, chat.conversation.return_to_prompt, done, prompt)
            case "tour":
                host.start_worker(welcome_screen.play_tour, get_app(chat), group="command")
            case "import":
                self._choose_import(data)
            case "mcp":
                host.push(list_screens.ServersScreen(data))
            case "settings":
                settings, user_file, project_file = data
                host.push(settings_screen.SettingsScreen(settings, user_file, project_file, chat.apply_setting))
            case _:
                return False
        return True

    def _choose_import(self, history: HistoryImport) -> None:
        """Let the user choose programs and import them. Raises Refused while an import runs."""
        if self._chat.stop_control.activities.is_running(IMPORT):
            raise Refused("An import is under way; Esc stops it.")

        def begin(programs: frozenset[str] | None) -> None:
            if programs:
                self._host.start_worker(self._import, history, programs, group=IMPORT)

        self._host.push(list_screens.ImportScreen(history), begin)

    async def _import(self, history: HistoryImport, programs: frozenset[str]) -> None:
        """Import programs in the background; stopping keeps the threads imported so far."""
        activities, status = self._chat.stop_control.activities, self._chat.status_line
        stop = asyncio.Event()

        def show(program: str, done: int, total: int) -> None:
            status.importing = f"importing {program} {100 * done // total if total else 100} %"

        activity = activities.begin(IMPORT, stop.set)
        try:
            self.draw(await history.run(programs, show, stop.is_set))
            self._chat.search.offer(f"origin:{','.join(sorted(programs))} ")
        finally:
            status.importing = ""
            activities.end(activity)

    async def _pick(self, view: str) -> None:
        """Open a list to choose from."""
        if view == "threads":
            await thread_screens.pick_thread(self._host)
        elif view == "models":
            await list_screens.pick_model(self._host)
        else:
            await agent_screens.open_agents(self._host)

    async def _theme(self, name: str) -> None:
        if not name:
            list_screens.pick_theme(self._host)
            return
        if not self._host.appearance.use(name):
            raise Refused(f"There is no theme {quote(name, 40)}; /theme shows them.")
        await list_screens.remember_theme(self._host, name)


def _make_block(value: Value) -> Block:
    match value:
        case Done(sentence, title):
            return NoticeBlock(title=title, text=sentence)
        case Card(title, rows):
            return CardBlock(title=title, rows=rows)
        case Text(lines, title, "findings"):
            return FindingsBlock(title=title, findings=lines)
        case _:
            return NoticeBlock(title=str(getattr(value, "title", "")), text="\n".join(value.lines))
