"""What the slash commands do on the screen. One method a command, found by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sakti.agent.commands import Typed, parse
from sakti.agent.figures import spent_rows, status_rows
from sakti.agent.views import Spent
from sakti.core.config import APPROVAL_MODES
from sakti.core.errors import NOT_SAVED, RAN, SaktiError
from sakti.core.text import one_line
from sakti.tui.chat.screen import ChatScreen
from sakti.tui.chat.welcome import Welcome
from sakti.tui.host import Host
from sakti.tui.transcript.blocks import CardBlock, NoticeBlock

if TYPE_CHECKING:
    from sakti.agent.one_message import OneMessage


class Commands:
    """Runs what was typed. Everything here may raise SaktiError; the window turns it into a notice."""

    def __init__(self, host: Host, chat: ChatScreen, welcome: Welcome) -> None:
        self._host, self._chat, self._welcome = host, chat, welcome
        self._one_message: OneMessage | None = None

    async def run(self, text: str) -> None:
        """A line from the prompt: a command, a shell line, a note or a message."""
        typed = parse(text)
        session = self._host.session
        match typed.kind:
            case "command":
                await self._command(typed)
            case "unknown":
                near = f" Did you mean {', '.join(f'/{s}' for s in typed.suggestions)}?" if typed.suggestions else ""
                raise SaktiError(f"There is no command /{one_line(typed.name, 40)}.{near}", title="Unknown command")
            case "shell":
                self._chat.transcript.live.begin_shell(typed.argument)
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
            self._chat.conversation.give_back(text)
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
        self._chat.action_help()

    async def do_compact(self, focus: str) -> None:
        compaction = self._chat.compaction
        match focus.strip():
            case "undo":
                await compaction.undo()
            case "diff":
                await compaction.show_last()
            case _:
                await compaction.run(focus)

    async def do_setup(self, _: str) -> None:
        self._welcome.open()

    async def do_settings(self, _: str) -> None:
        from sakti.agent.settings_view import settings
        from sakti.core.resources import config_home
        from sakti.tui.screens.settings import SettingsScreen

        session, user_file = self._host.session, config_home() / "config.toml"
        project_file = session.workspace / ".sakti" / "config.toml"
        found = settings(session.config, user_file=user_file, project_file=project_file, env=session.env)
        self._host.push(SettingsScreen(found, user_file, project_file, self._chat.apply_setting))

    async def do_search(self, query: str) -> None:
        self._chat.visit.search(query)

    async def do_tasks(self, _: str) -> None:
        self._chat.panes.open_board()

    async def do_observations(self, _: str) -> None:
        self._chat.panes.focus("log")

    async def do_memory(self, argument: str) -> None:
        if argument.strip() in ("pause", "resume"):
            await self._host.session.pause_memory(pause=argument.strip() == "pause")
            return
        if argument.strip() == "undo":
            await self._host.session.undo_reflection()
            self._chat.panes.load_log()
            return
        status = self._host.session.status
        if status is None:
            self._host.say("No window yet: it fills as you talk.")
            return
        found = status_rows(status, self._chat.sidebar.memory.figures)
        self._chat.transcript.live.add_block(CardBlock(title="Memory", rows=tuple(found)))

    async def do_context(self, _: str) -> None:
        from sakti.tui.screens.text import ContextScreen

        self._host.push(ContextScreen(await self._host.session.views.context()))

    async def do_threads(self, _: str) -> None:
        from sakti.tui.screens.threads import pick_thread

        await pick_thread(self._host)

    async def do_resume(self, wanted: str) -> None:
        from sakti.tui.screens.threads import pick_thread

        if not wanted:
            await pick_thread(self._host)
            return
        found = [
            s.thread
            for s in await self._host.session.views.threads()
            if wanted.lower() in s.thread.title.lower() or s.thread.id.endswith(wanted)
        ]
        if not found:
            raise SaktiError(f"No thread of this workspace matches {one_line(wanted, 80)!r}.", title="Resume")
        await self._host.session.open_thread(found[0].id)

    async def do_new(self, _: str) -> None:
        await self._host.session.new_thread()

    async def do_rename(self, title: str) -> None:
        await self._host.session.rename(title)

    async def do_delete_message(self, argument: str) -> None:
        from sakti.agent.one_message import CONFIRMED, OneMessage

        session = self._host.session
        if self._one_message is None:
            self._one_message = OneMessage(session)
        said = await self._one_message.run(argument)
        if argument.strip() == CONFIRMED and session.thread is not None:
            await self._chat.loader.load(session.thread.id)
        self._host.say(said, title="Delete a message")

    async def do_model(self, name: str) -> None:
        from sakti.tui.screens.lists import pick_model

        if name:
            await self._host.session.set_model(name)
        else:
            await pick_model(self._host)

    async def do_mode(self, mode: str) -> None:
        if not mode:
            self._host.say(f"The mode is {self._host.session.mode}; /mode NAME changes it.")
            return
        await self._host.session.set_mode(mode)
        self._chat.show_modes()
        self._host.say(f"The Observer now looks for what matters in {self._host.session.mode}.", title="Mode")

    async def do_approve(self, mode: str) -> None:
        session = self._host.session
        if not mode:
            self._host.say(f"Approval is {session.approval_mode}; /approve takes {', '.join(APPROVAL_MODES)}.")
            return
        session.set_approval_mode(mode)
        self._chat.show_modes()

    async def do_theme(self, name: str) -> None:
        from sakti.tui.screens.lists import pick_theme

        if not name:
            pick_theme(self._host)
            return
        if not self._host.appearance.use(name):
            raise SaktiError(f"There is no theme {one_line(name, 40)!r}; /theme shows them.", title="Theme")
        await self._host.session.views.set_ui_state(self._host.appearance.theme_key, name)

    async def do_cost(self, _: str) -> None:
        self._chat.transcript.live.add_block(cost_card(await self._host.session.views.spent()))

    async def do_doctor(self, _: str) -> None:
        lines = await self._host.session.views.doctor()
        self._chat.transcript.live.add_block(NoticeBlock(title="Health", text="\n".join(lines)))

    async def do_clear(self, _: str) -> None:
        self._chat.transcript.clear_screen()

    async def do_quit(self, _: str) -> None:
        await self._host.action_quit()


def cost_card(spent: Spent) -> CardBlock:
    """Tokens and price of a thread, as the provider reported them."""
    return CardBlock(title="Cost of this thread", rows=tuple(spent_rows(spent)))
