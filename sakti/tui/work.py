"""Work that may fail: what a worker raises becomes a notice and an entry of the log file, never a traceback."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from sakti.core.errors import SaktiError
from sakti.tui.log import log_error
from sakti.tui.transcript.blocks import NoticeBlock

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp


class Work:
    """The part of the app where errors end; `self` is the app."""

    crash_message = ""

    def go(self, work: Callable[..., Awaitable[None]], *args: Any, group: str, exclusive: bool = False) -> None:
        """Run `work(*args)` as a worker; what it raises becomes a notice and an entry of the log file."""

        async def guarded() -> None:
            try:
                await work(*args)
            except SaktiError as e:
                self.say(e.message, title=e.title, tone="error")
            except Exception as e:
                path = log_error(e)
                where = f"The details are in {path}." if path else ""
                self.say(f"{type(e).__name__}: {e} {where}", title="Something went wrong", tone="error")

        app = cast("SaktiApp", self)
        app.run_worker(guarded, group=group, exclusive=exclusive, exit_on_error=False)

    def _handle_exception(self, error: Exception) -> None:
        path = log_error(error)
        self.crash_message = f"sakti had to stop: {type(error).__name__}. The details are in {path}. Nothing is lost."
        super()._handle_exception(error)  # type: ignore[misc]

    def say(self, text: str, *, title: str = "", tone: Any = "information") -> None:
        """A notice in the chat."""
        cast("SaktiApp", self).transcript.live.add_block(NoticeBlock(tone=tone, title=title, text=text))
