"""Owners of what runs: what Esc and ctrl+c stop, and when quitting asks for a second press."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sakti.core.events import Event, ToolFinished, ToolStarted, TurnFinished, TurnStarted
from sakti.core.text import counted
from sakti.tui.activities import Activities, RunningActivity
from sakti.tui.chat.conversation import Conversation
from sakti.tui.host import Host
from sakti.tui.widgets.status import StatusLine

TWICE = 2.0  # seconds in which a second ctrl+c quits
CONFIRM = 6.0  # seconds in which a second press quits while something runs
SOON = 0.5  # seconds after which the last line names a command: most are done by then
TURN = "turn"


class Stopping:
    """Interrupts activities, and quits on a double press.

    Esc and the first ctrl+c stop the newest activity; a second ctrl+c quits, and asks once if something still runs.
    """

    def __init__(self, host: Host, conversation: Conversation, status_line: StatusLine) -> None:
        self._host, self._status_line = host, status_line
        self._conversation, self._prompt = conversation, conversation.prompt
        self.activities = Activities(self.name_newest)
        self._owned: dict[str, RunningActivity] = {}  # the turn, and the user's commands by their calls
        self._last_stop = self._last_quit = float("-inf")

    # --- owners -----------------------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        """Follow turns and the user's own commands; a new one calls off a quit that was asked about."""
        if isinstance(event, TurnStarted) or (isinstance(event, ToolStarted) and event.own):
            self._last_stop = self._last_quit = float("-inf")
        if isinstance(event, TurnStarted) and TURN not in self._owned:
            self._owned[TURN] = self.activities.begin(TURN, self._interrupt_turn)
        elif isinstance(event, TurnFinished):
            self.activities.end(self._owned.pop(TURN, None))
        elif isinstance(event, ToolStarted) and event.own:
            call_id = event.call.id
            self._owned[call_id] = self.activities.begin("command", lambda: self._stop_command(call_id))
        elif isinstance(event, ToolFinished):
            self.activities.end(self._owned.pop(event.result.call_id, None))

    def _interrupt_turn(self) -> None:
        """Keep the partial answer, and return queued messages to the prompt."""
        self._conversation.take_back_queue()  # before it stops: nothing of it is sent while it does
        self._host.go(self._interrupt, group="interrupt")

    async def _interrupt(self) -> None:
        await self._host.session.interrupt()

    def _stop_command(self, call_id: str) -> None:
        self._host.session.stop_command(call_id)

    @contextmanager
    def compaction(self, text: str) -> Generator[None]:
        """Show `text` in the last line while a compaction runs."""
        self._status_line.work(text)
        try:
            with self.activities.current_task("compaction"):
                yield
        finally:
            self._status_line.work("")

    @contextmanager
    def command(self, name: str) -> Generator[None]:
        """Own a slash command; the last line names it if it takes long."""
        with self.activities.current_task(f"/{name}"):
            self._status_line.set_timer(SOON, self.name_newest)
            yield

    def name_newest(self) -> None:
        """Name the activity that Esc would stop."""
        names = self.activities.names
        self._status_line.stops = names[-1] if names else ""

    # --- keys -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Answer ctrl+c: interrupt the newest activity, or clear the prompt; twice quits."""
        now = self._host.session.workspace.clock.monotonic()
        if now - self._last_stop < TWICE or now - self._last_quit < CONFIRM:
            if self._may_quit(now):
                self._host.exit(0)
            return
        self._last_stop = float("inf")  # until the hint is visible: a second press counts, however late
        if not self.interrupt():
            self._prompt.drop()
        self._host.note("ctrl+c again quits")
        self._prompt.call_after_refresh(self._start_quit_window)

    def _start_quit_window(self) -> None:
        """Begin the two seconds where the hint can be read, however late a busy machine paints it."""
        self._last_stop = self._host.session.workspace.clock.monotonic()
        self._prompt.set_timer(TWICE, self._clear_note)

    def _clear_note(self) -> None:
        self._host.note("")

    def interrupt(self) -> bool:
        """Stop the newest activity; false if nothing runs."""
        if stopped := self.activities.stop_newest():
            if stopped.startswith("/"):
                self._host.note(f"{stopped} stopped", TWICE)
            return True
        if self._host.session.busy and TURN not in self._owned:  # not begun yet: it waits for its lease
            self._interrupt_turn()
            return True
        return False

    def may_quit(self) -> bool:
        """Return whether the window may close: asks once if something still runs."""
        return self._may_quit(self._host.session.workspace.clock.monotonic())

    def _may_quit(self, now: float) -> bool:
        running = self._still_running()
        if not running or now - self._last_quit < CONFIRM:
            return True
        self._last_quit = now
        self._host.note(f"still running: {', '.join(running)} · press again to stop and quit", CONFIRM)
        return False

    def _still_running(self) -> list[str]:
        names = self.activities.names
        if self._host.session.busy and TURN not in self._owned:
            names.append(TURN)
        jobs, children = len(self._host.session.background_commands()), len(self._host.session.children.running)
        names += [counted(children, "child thread")] if children else []
        return [*names, counted(jobs, "background command")] if jobs else names
