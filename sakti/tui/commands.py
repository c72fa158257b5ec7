"""Act on what is typed: a command runs its action, all else goes to the session."""

from __future__ import annotations

from collections.abc import Awaitable

from sakti.actions import line
from sakti.actions.scope import Scope
from sakti.actions.values import Done
from sakti.core.errors import NOT_SAVED, RAN, SaktiError
from sakti.tui.chat.screen import ChatScreen
from sakti.tui.chat.welcome import Welcome
from sakti.tui.draw import Drawing
from sakti.tui.host import Host

REDONE_S = 8.0  # seconds that the result of a redo stands


class Commands:
    """Runs what was typed. Everything here may raise SaktiError; the window turns it into a notice."""

    def __init__(self, host: Host, chat: ChatScreen, welcome: Welcome) -> None:
        self._host, self._chat = host, chat
        self._drawing = Drawing(host, chat, welcome)
        self._scope = Scope(host.session, self._drawing.draw, chat.compaction.working)

    async def run(self, text: str) -> None:
        """Act on a line from the prompt: a command, a shell line, a note or a message."""
        typed = line.parse(text, skills=self._host.session.typed_skills())
        session = self._host.session
        match typed.kind:
            case "command":
                await self._command(typed)
            case "unknown":
                raise line.unknown(typed)
            case "shell":
                await self._shell(text, typed.argument)
            case "note":
                await self._kept(text, session.note(typed.argument))
            case _:
                await self._kept(text, session.submit(typed.argument))

    async def _shell(self, text: str, command: str) -> None:
        live = self._chat.transcript.live
        call = live.begin_shell(command)
        try:
            await self._kept(text, self._host.session.shell(command))
        except SaktiError:
            live.fail_shell(call)
            raise

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

    async def _command(self, typed: line.Typed) -> None:
        chat, session = self._chat, self._host.session
        if typed.name == "compact" and typed.argument not in ("undo", "diff") and chat.compaction.under_way:
            self._host.say("A compaction is under way; Esc stops it.")
            return
        value = await line.run(self._scope, typed)
        chat.show_modes()
        match typed.name:
            case "memory" if typed.argument:
                chat.panes.load_log()
            case "tasks" if typed.argument:
                chat.panes.load_board()
            case "delete-message" if typed.argument == "yes" and session.thread is not None:
                await chat.loader.load(session.thread.id)
            case "redo" if isinstance(value, Done):
                self._host.note(value.sentence, REDONE_S)  # in the chat another thread may be being shown
                return
            case _:
                pass
        await self._drawing.show(value)
