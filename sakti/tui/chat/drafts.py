"""Drafts and queues across windows and crashes: kept as they change, back in the next window's prompt."""

from __future__ import annotations

from textual.timer import Timer

from sakti.core.errors import SaktiError
from sakti.tui.host import Host
from sakti.tui.widgets.prompt import Prompt

PAUSE = 0.5  # seconds from a change to its being stored


class Drafts:
    """Keeps the prompt's text and the queue in the store. Nothing that comes back is sent by itself."""

    def __init__(self, host: Host, prompt: Prompt) -> None:
        self._host, self._prompt = host, prompt
        self._keeps = False  # not yet, or no longer
        self._kept: tuple[str, tuple[str, ...]] | None = ("", ())  # None: differs from the stored text
        self._said = False
        self._timer: Timer | None = None

    async def restore(self) -> None:
        """Restore the unsent text of closed windows, before the current prompt text."""
        prompt = self._prompt
        try:
            draft, queued = await self._host.session.views.take_unsent()
        except SaktiError as e:
            self._give_up(e)
            return
        self._keeps, self._kept = True, (draft, tuple(queued))
        back = [*queued, *([draft] if draft.strip() else [])]
        if back:
            prompt.put("\n\n".join([*back, *([prompt.value] if prompt.text else [])]))
        if queued:
            what = "One message was queued" if len(queued) == 1 else f"{len(queued)} messages were queued"
            self._host.say(f"{what} when sakti ended. Nothing was sent: the text is in the prompt.", title="Not sent")
        self.changed()

    def changed(self) -> None:
        """Schedule a save; save at once if the queue grew or the prompt became empty."""
        if not self._keeps:
            return
        queue_grew = self._kept is not None and len(self._host.session.queued) > len(self._kept[1])
        if queue_grew or (self._kept != ("", ()) and not self._prompt.value):
            self._begin()
        elif self._timer is None:
            self._timer = self._prompt.set_timer(PAUSE, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._host.go(self._save, group="drafts")

    async def _save(self) -> None:
        if not self._keeps:
            return
        now = (self._prompt.value, tuple(self._host.session.queued))
        if now == self._kept:
            return
        self._kept = now
        try:
            await self._host.session.views.keep_unsent(*now)
            self._said = False
        except SaktiError as e:
            self._give_up(e)

    def _give_up(self, error: SaktiError) -> None:
        """Report the failure once; the next change tries to save again."""
        if error.retryable:
            self._kept = None
        else:
            self._keeps = False
        if not self._said:
            again = "as soon as it can be stored" if error.retryable else "after the next start"
            self._host.say(f"{error.message} Drafts are saved again {again}.", title=error.title)
        self._said = True

    async def leave(self) -> None:
        """Store the unsent text for the next window of this workspace.

        Raises `SaktiError` that contains the text if it cannot be stored.
        """
        if not self._keeps:
            return
        text, self._keeps = self._prompt.value, False
        session = self._host.session
        queued = session.queued
        try:
            await session.views.keep_unsent(text, queued, left=True)
        except SaktiError as e:
            held = "\n".join([*queued, *([text] if text.strip() else [])])
            raise SaktiError(f"{e.message} Not sent:\n{held}" if held else e.message, title=e.title) from e
