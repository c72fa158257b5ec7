"""Choose the activity that Esc and ctrl+c stop, and ask for a second press before quitting."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from textual.timer import Timer

from sakti.core.events import Event, ToolFinished, ToolStarted, TurnFinished, TurnStarted
from sakti.core.text import format_count, to_one_line
from sakti.tui.activities import Activities, RunningActivity
from sakti.tui.chat.conversation import Conversation
from sakti.tui.host import Host
from sakti.tui.widgets.status import StatusLine

QUIT_AGAIN_S = 2.0  # seconds in which a second ctrl+c quits
CONFIRM_S = 6.0  # seconds in which a second press quits while something runs
QUIT_HINT = "ctrl+c again quits"
NAME_DELAY_S = 0.5  # seconds after which the last line names a command: most are done by then
TURN = "turn"


class StopControl:
    """Interrupts activities, and quits on a double press.

    Esc and the first ctrl+c stop the newest activity; a second ctrl+c quits, and asks once if something still runs.
    A second press quits only while the hint that says so is shown: any other input removes it.
    """

    def __init__(self, host: Host, conversation: Conversation, status_line: StatusLine) -> None:
        self._host, self._status_line = host, status_line
        self._conversation, self._prompt = conversation, conversation.prompt
        self.activities = Activities(self.name_newest)
        self._owned: dict[str, RunningActivity] = {}  # the turn, and the user's commands by their calls
        self._hint = ""  # shown while another press quits
        self._timer: Timer | None = None  # hides the hint

    # --- owners -----------------------------------------------------------------------------------------------

    def handle_event(self, event: Event) -> None:
        """Track turns and the user's own commands; a new one cancels an announced quit."""
        if isinstance(event, TurnStarted) or (isinstance(event, ToolStarted) and event.own):
            self.disarm()
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
        self._conversation.unqueue_all()  # first, so that nothing queued is sent while the turn stops
        self._host.start_worker(self._interrupt, group="interrupt")

    async def _interrupt(self) -> None:
        await self._host.session.interrupt()

    def _stop_command(self, call_id: str) -> None:
        self._host.session.stop_command(call_id)

    @contextmanager
    def compaction(self, text: str) -> Generator[None]:
        """Show `text` in the last line while a compaction runs."""
        self._status_line.show_work(text)
        try:
            with self.activities.own_current_task("compaction"):
                yield
        finally:
            self._status_line.show_work("")

    @contextmanager
    def command(self, name: str) -> Generator[None]:
        """Own a slash command; the last line names it if it takes long."""
        with self.activities.own_current_task(f"/{name}"):
            self._status_line.set_timer(NAME_DELAY_S, self.name_newest)
            yield

    def name_newest(self) -> None:
        """Name the activity that Esc would stop, and one that is about to end."""
        activities, line = self.activities, self._status_line
        line.stops, line.stopping = activities.newest_name(stopping=False), activities.newest_name(stopping=True)

    # --- keys -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Handle ctrl+c: stop the newest activity, or clear the prompt; twice quits."""
        if self.is_armed:
            if self.may_quit():
                self._host.exit(0)
            return
        if not self.interrupt():
            self._prompt.clear_text()
        self._arm(QUIT_HINT, QUIT_AGAIN_S)

    @property
    def is_armed(self) -> bool:
        """Return whether another press quits: the hint that says so is shown."""
        return bool(self._hint) and self._status_line.hint == self._hint

    def _arm(self, hint: str, seconds: float) -> None:
        """Show the hint; its time starts when it is painted, which may take a while on a busy machine."""
        self.disarm()
        self._hint = self._status_line.hint = hint
        self._prompt.call_after_refresh(self._start_timer, seconds)

    def _start_timer(self, seconds: float) -> None:
        if self.is_armed:
            self._stop_timer()
            self._timer = self._prompt.set_timer(seconds, self.disarm)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def disarm(self) -> None:
        """Hide the hint: the next press does not quit."""
        self._stop_timer()
        if self.is_armed:
            self._status_line.hint = ""
        self._hint = ""

    def interrupt(self) -> bool:
        """Stop the newest activity; False if nothing runs."""
        if stopped := self.activities.stop_newest():
            if stopped.startswith("/"):
                self._host.set_hint(f"{stopped} stopped", QUIT_AGAIN_S)
            return True
        if self._host.session.busy and TURN not in self._owned:  # not started yet: it waits for its lease
            self._interrupt_turn()
            return True
        return False

    def may_quit(self) -> bool:
        """Return whether the window may close: asks once if something still runs."""
        running = self._list_running()
        if not running or (self.is_armed and self._hint != QUIT_HINT):
            return True
        self._arm(to_one_line(f"still running: {', '.join(running)} · ctrl+c stops all and quits", 300), CONFIRM_S)
        return False

    def _list_running(self) -> list[str]:
        names = self.activities.names
        if self._host.session.busy and TURN not in self._owned:
            names.append(TURN)
        jobs, children = len(self._host.session.background_commands()), len(self._host.session.children.running)
        names += [format_count(children, "child thread")] if children else []
        return [*names, format_count(jobs, "background command")] if jobs else names
