"""Asks whether the workspace's own settings may have an effect, before any of them has."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from sakti.agent import trust
from sakti.agent.reports import trust_view
from sakti.core.clock import Clock
from sakti.core.text import one_line, sanitise
from sakti.tui.screens.panel import Keys, Panel
from sakti.tui.screens.text import DiffBlock, ReadScreen
from sakti.tui.transcript.blocks import Block, CardBlock, TextBlock
from sakti.tui.widgets.approval import GUARD
from sakti.tui.widgets.transcript import Transcript

NEW = "It brings files that change what sakti does. Until you trust the folder they are left out."
CHANGED = "Its files changed since you trusted the folder. Until you trust it again they are left out."


class TrustScreen(Panel[bool]):
    """True: trusted; False: left out this time. Its keys go before those of the text, which copy and select."""

    AUTO_FOCUS = "Transcript"
    HELP = "What this folder would change in sakti. Trust is kept until one of these files changes."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "trust", "Trust", priority=True, id="trust.yes"),
        Binding("n", "close", "Not now", priority=True, id="trust.no"),
        Binding("v", "view", "View the text, or what changed", priority=True, id="trust.view"),
    ]
    keys: ClassVar[Keys] = (("y trust", "trust"), ("n not now", "close"), ("v view", "view"))

    def __init__(self, found: trust.Look, clock: Clock) -> None:
        super().__init__("Trust this folder?")
        self._found, self._clock = found, clock
        self._since = clock.monotonic()

    def body(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self._since = self._clock.monotonic()
        found = self._found
        rows = [("folder", one_line(str(found.workspace), 300))]
        name = trust.CONFIG if found.config is not None else "hooks"
        rows += [("" if n else name, told) for n, told in enumerate(trust_view.settings(found))]
        rows += trust_view.files(found)
        reader = self.query_one(Transcript)
        reader.document.append(
            TextBlock(text=CHANGED if found.state == "changed" else NEW, open=True),
            CardBlock(title="What has an effect", rows=tuple((name, sanitise(text)) for name, text in rows)),
        )
        self.call_after_refresh(reader.show_top)

    def action_trust(self) -> None:
        """Trust it; a key that was meant for the prompt does not."""
        if self._clock.monotonic() - self._since >= GUARD:
            self.dismiss(True)

    def action_view(self) -> None:
        blocks: list[Block] = []
        for name, text in trust.diffs(self._found):
            blocks += (TextBlock(text=one_line(name, 300), open=True), DiffBlock(diff=sanitise(text)))
        self.host.push(ReadScreen("What has an effect", blocks))

    def action_close(self) -> None:
        if self._clock.monotonic() - self._since >= GUARD:
            self.leave()

    def leave(self) -> None:
        self.dismiss(False)
