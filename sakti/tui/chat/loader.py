"""Load the messages of the open thread, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sakti.core.types import Message
from sakti.tui.host import Host
from sakti.tui.widgets.transcript import Transcript

PAGE = 200  # messages that are loaded at once


class ThreadLoader:
    """Fills the transcript. `loaded` is called when a thread stands there, `shown` is the id of that thread."""

    def __init__(self, host: Host, transcript: Transcript, loaded: Callable[[], None]) -> None:
        self._host, self._transcript, self.loaded = host, transcript, loaded
        self.shown = ""
        self.oldest: int | None = None  # index of the oldest message that is loaded

    def show(self, thread_id: str) -> None:
        """Load a thread beside everything else."""
        self.shown = thread_id
        self._host.go(self.load, thread_id, group="thread", exclusive=True)

    async def load(self, thread_id: str) -> None:
        """Show a thread from its newest messages."""
        messages = await self._host.session.views.transcript(thread_id, limit=PAGE)
        self._show_page(messages)
        self.loaded()

    def _show_page(self, messages: Sequence[Message]) -> None:
        self.oldest = messages[0].index if messages else None
        if messages or self._transcript.live.speaking:
            self._transcript.load(messages, more=len(messages) >= PAGE)
        else:
            self._transcript.begin_empty()

    async def load_older(self, until: int | None = None) -> None:
        """Load a page above what is shown; with `until`, so much that the message of that index is in it."""
        thread = self._host.session.thread
        if thread is None or not self.oldest:
            return
        limit = PAGE if until is None else max(PAGE, self.oldest - until + 20)
        messages = await self._host.session.views.transcript(thread.id, before=self.oldest, limit=limit)
        if messages:
            self.oldest = messages[0].index
        self._transcript.load_older(messages, more=len(messages) >= limit)

    async def open(self, thread_id: str) -> None:
        """Go on in another thread; it is loaded when this returns."""
        await self._host.session.open_thread(thread_id)
        self._host.drop("thread")  # what the change of the thread began would end at its newest message
        await self.load(thread_id)
