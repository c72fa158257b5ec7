"""What the slash commands do on the screen. One method a command, found by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from sakti.agent.commands import Typed, parse
from sakti.agent.figures import spent_rows, status_rows
from sakti.agent.views import Spent
from sakti.core.config import APPROVAL_MODES
from sakti.core.errors import NOT_SAVED, RAN, SaktiError
from sakti.core.text import count_k, one_line
from sakti.tui.transcript.blocks import CardBlock, NoticeBlock

if TYPE_CHECKING:
    from sakti.agent.one_message import OneMessage
    from sakti.tui.app import SaktiApp


class Commands:
    """Runs what was typed. Everything here may raise SaktiError; the app turns it into a notice."""

    def __init__(self, app: SaktiApp) -> None:
        self._app = app
        self._compaction: asyncio.Task[Any] | None = None
        self._one_message: OneMessage | None = None

    async def run(self, text: str) -> None:
        """A line from the prompt: a command, a shell line, a note or a message."""
        typed = parse(text)
        session = self._app.session
        match typed.kind:
            case "command":
                await self._command(typed)
            case "unknown":
                near = f" Did you mean {', '.join(f'/{s}' for s in typed.suggestions)}?" if typed.suggestions else ""
                raise SaktiError(f"There is no command /{one_line(typed.name, 40)}.{near}", title="Unknown command")
            case "shell":
                self._app.transcript.live.begin_shell(typed.argument)
                await self._kept(text, session.shell(typed.argument))
            case "note":
                await self._kept(text, session.note(typed.argument))
            case _:
                await self._kept(text, session.submit(typed.argument))

    async def _kept(self, text: str, work: Awaitable[None]) -> None:
        """Wait for `work`; where it fails, `text` stands in the prompt again, before what was typed meanwhile."""
        try:
            await work
        except SaktiError as e:
            if e.code == RAN:
                raise
            self._app.prompt.put("\n\n".join(t for t in (text, self._app.prompt.value) if t))
            if e.code in NOT_SAVED:
                told = f"{e.message} Nothing was sent: it stands in the prompt."
                raise SaktiError(told, title=e.title, code=e.code) from e
            raise

    async def _command(self, typed: Typed) -> None:
        name = f"do_{typed.name.replace('-', '_')}"
        method: Callable[[str], Awaitable[None]] | None = getattr(self, name, None)
        if method is None:
            raise SaktiError(f"/{typed.name} does nothing in this window.", title="Command")
        await method(typed.argument)

    async def do_help(self, _: str) -> None:
        self._app.action_help()

    async def do_compact(self, focus: str) -> None:
        app = self._app
        if focus.strip() == "undo":
            if not await app.session.undo_compaction():
                app.say("There is no compaction to undo.")
            return
        if focus.strip() == "diff":
            await self._show_compaction()
            return
        if self.compacting:
            app.say("A compaction is under way; Esc stops it.")
            return
        await app.session.require_thread()
        await app.session.follow()
        messages, before, after = app.session.compact_preview()
        if not messages:
            app.say("There is nothing to compact: all but the last exchange is observed already.")
            return
        app.say(f"{messages} messages, {count_k(before)} → ≈{count_k(after)} tokens", title="Compacting")
        status = app.session.status
        who = one_line(status.observer, 40) if status is not None else "memory"
        app.status_line.work(f"compacting: {who} reads {messages} messages")
        self._compaction = asyncio.current_task()
        try:
            await app.session.compact(focus)
        finally:
            self._compaction = None
            app.status_line.work("")

    @property
    def compacting(self) -> bool:
        return self._compaction is not None

    def stop(self) -> bool:
        """Give up what a command is waiting for; False where none is."""
        return self._compaction is not None and self._compaction.cancel()

    async def _show_compaction(self) -> None:
        from sakti.agent import last_compaction
        from sakti.tui.screens.compaction import CompactionScreen

        shown = await last_compaction.last(self._app.session)
        if shown is None:
            self._app.say("Nothing was compacted in this thread, or it was undone.")
        else:
            self._app.push_screen(CompactionScreen(shown))

    async def do_setup(self, _: str) -> None:
        self._app.open_setup()

    async def do_settings(self, _: str) -> None:
        from sakti.agent.settings_view import settings
        from sakti.core.resources import config_home
        from sakti.tui.screens.settings import SettingsScreen

        session, user_file = self._app.session, config_home() / "config.toml"
        project_file = session.workspace / ".sakti" / "config.toml"
        found = settings(session.config, user_file=user_file, project_file=project_file, env=session.env)
        self._app.push_screen(SettingsScreen(found, user_file, project_file))

    async def do_search(self, query: str) -> None:
        self._app.open_search(query)

    async def do_tasks(self, _: str) -> None:
        self._app.sidebar.tasks.open_board()

    async def do_observations(self, _: str) -> None:
        self._app.focus_pane("log")

    async def do_memory(self, argument: str) -> None:
        if argument.strip() in ("pause", "resume"):
            await self._app.session.pause_memory(pause=argument.strip() == "pause")
            return
        if argument.strip() == "undo":
            await self._app.session.undo_reflection()
            self._app.load_observations()
            return
        status = self._app.session.status
        if status is None:
            self._app.say("No window yet: it fills as you talk.")
            return
        found = status_rows(status, self._app.sidebar.memory.figures)
        self._app.transcript.live.add_block(CardBlock(title="Memory", rows=tuple(found)))

    async def do_context(self, _: str) -> None:
        from sakti.tui.screens.text import ContextScreen

        self._app.push_screen(ContextScreen(await self._app.session.views.context()))

    async def do_threads(self, _: str) -> None:
        await self._app.pick_thread()

    async def do_resume(self, wanted: str) -> None:
        if not wanted:
            await self._app.pick_thread()
            return
        found = [
            s.thread
            for s in await self._app.session.views.threads()
            if wanted.lower() in s.thread.title.lower() or s.thread.id.endswith(wanted)
        ]
        if not found:
            raise SaktiError(f"No thread of this workspace matches {one_line(wanted, 80)!r}.", title="Resume")
        await self._app.session.open_thread(found[0].id)

    async def do_new(self, _: str) -> None:
        await self._app.session.new_thread()

    async def do_rename(self, title: str) -> None:
        await self._app.session.rename(title)

    async def do_delete_message(self, argument: str) -> None:
        from sakti.agent.one_message import CONFIRMED, OneMessage

        if self._one_message is None:
            self._one_message = OneMessage(self._app.session)
        said = await self._one_message.run(argument)
        if argument.strip() == CONFIRMED and self._app.session.thread is not None:
            await self._app.load_thread(self._app.session.thread.id)
        self._app.say(said, title="Delete a message")

    async def do_model(self, name: str) -> None:
        if name:
            await self._app.session.set_model(name)
        else:
            await self._app.pick_model()

    async def do_mode(self, mode: str) -> None:
        if not mode:
            self._app.say(f"The mode is {self._app.session.mode}; /mode NAME changes it.")
            return
        await self._app.session.set_mode(mode)
        self._app.header.mode = self._app.session.mode
        self._app.say(f"The Observer now looks for what matters in {self._app.session.mode}.", title="Mode")

    async def do_approve(self, mode: str) -> None:
        session = self._app.session
        if not mode:
            self._app.say(f"Approval is {session.approval_mode}; /approve takes {', '.join(APPROVAL_MODES)}.")
            return
        session.set_approval_mode(mode)
        self._app.header.approval = session.approval_mode

    async def do_theme(self, name: str) -> None:
        if not name:
            self._app.pick_theme()
            return
        if not self._app.use_theme(name):
            raise SaktiError(f"There is no theme {one_line(name, 40)!r}; /theme shows them.", title="Theme")
        await self._app.session.views.set_ui_state(self._app.theme_key, name)

    async def do_cost(self, _: str) -> None:
        self._app.transcript.live.add_block(cost_card(await self._app.session.views.spent()))

    async def do_doctor(self, _: str) -> None:
        lines = await self._app.session.views.doctor()
        self._app.transcript.live.add_block(NoticeBlock(title="Health", text="\n".join(lines)))

    async def do_clear(self, _: str) -> None:
        self._app.transcript.clear_screen()

    async def do_quit(self, _: str) -> None:
        await self._app.action_quit()


def cost_card(spent: Spent) -> CardBlock:
    """Tokens and price of a thread, as the provider reported them."""
    return CardBlock(title="Cost of this thread", rows=tuple(spent_rows(spent)))
