"""What was typed or queued and not sent outlives its window: kept as it changes, back in the next window's prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.timer import Timer

from sakti.core.errors import SaktiError

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp
    from sakti.tui.widgets.prompt import Prompt

PAUSE = 0.5  # seconds from a change to its being stored


class Unsent:
    """Keeps the prompt's text and the queue in the store. Nothing that comes back is sent by itself."""

    def __init__(self, app: SaktiApp) -> None:
        self._app = app
        self._prompt: Prompt | None = None  # None: not yet, or no longer kept
        self._kept: tuple[str, tuple[str, ...]] | None = ("", ())  # None: something else than what is stored
        self._said = False
        self._timer: Timer | None = None

    async def restore(self) -> None:
        """Put what windows that are gone had not sent before what stands in the prompt."""
        app = self._app
        try:
            draft, queued = await app.session.views.take_unsent()
        except SaktiError as e:
            self._give_up(e)
            return
        self._prompt, self._kept = app.prompt, (draft, tuple(queued))
        back = [*queued, *([draft] if draft.strip() else [])]
        if back:
            app.prompt.put("\n\n".join([*back, *([app.prompt.value] if app.prompt.text else [])]))
        if queued:
            what = "One message was queued" if len(queued) == 1 else f"{len(queued)} messages were queued"
            app.say(f"{what} when sakti ended. Nothing was sent: it stands in the prompt.", title="Not sent")
        self.changed()

    def changed(self) -> None:
        """Store what there is, in a moment; a queue that grew at once."""
        if self._prompt is None:
            return
        if self._kept is not None and len(self._app.session.queued) > len(self._kept[1]):
            self._begin()
        elif self._timer is None:
            self._timer = self._app.set_timer(PAUSE, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._app.go(self._save, group="unsent")

    async def _save(self) -> None:
        if self._prompt is None:
            return
        now = (self._prompt.value, tuple(self._app.session.queued))
        if now == self._kept:
            return
        self._kept = now
        try:
            await self._app.session.views.keep_unsent(*now)
            self._said = False
        except SaktiError as e:
            self._give_up(e)

    def _give_up(self, error: SaktiError) -> None:
        """Said once; what another try may keep is tried again with the next change."""
        if error.retryable:
            self._kept = None
        else:
            self._prompt = None
        if not self._said:
            again = "as soon as it can be stored" if error.retryable else "after the next start"
            self._app.say(f"{error.message} What you type is kept again {again}.", title=error.title)
        self._said = True

    async def leave(self) -> None:
        """The window closes: the next one of this workspace takes over what it held. Raises `SaktiError` with all of
        it where that cannot be stored."""
        if self._prompt is None:
            return
        text, self._prompt = self._prompt.value, None
        queued = self._app.session.queued
        try:
            await self._app.session.views.keep_unsent(text, queued, left=True)
        except SaktiError as e:
            held = "\n".join([*queued, *([text] if text.strip() else [])])
            raise SaktiError(f"{e.message} What was not sent:\n{held}" if held else e.message, title=e.title) from e
