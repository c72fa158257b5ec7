"""Ask whether to trust the files of a workspace, before they have any effect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from sakti.agent.project import trust
from sakti.agent.project.files import CONFIG, SERVERS
from sakti.agent.reports import trust_view
from sakti.core.clock import Clock
from sakti.core.text import sanitize_text, to_one_line
from sakti.tui.host import Host
from sakti.tui.screens.panel import Keys, Panel
from sakti.tui.screens.text import DiffBlock, ReadScreen
from sakti.tui.transcript.blocks import Block, CardBlock, TextBlock
from sakti.tui.widgets.approval import GUARD_S
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.mcp.config import ServerNeed

NEW_FOLDER = "It contains files that change what sakti does. They are ignored until you trust the folder."
NEW_FILES = "A command or a tool created these files. They are ignored until you trust them."
CHANGED_FILES = "Its files changed since you trusted the folder. They are ignored until you trust it again."


class TrustQuestion(Panel[bool]):
    """A yes-or-no question; keys typed for the prompt just before do not answer it."""

    AUTO_FOCUS = "Transcript"

    def __init__(self, title: str, clock: Clock) -> None:
        super().__init__(title)
        self._clock = clock
        self._since = clock.monotonic()

    def compose_body(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self._since = self._clock.monotonic()

    def action_trust(self) -> None:
        if self._clock.monotonic() - self._since >= GUARD_S:
            self.dismiss(True)

    def action_close(self) -> None:
        if self._clock.monotonic() - self._since >= GUARD_S:
            self.leave()

    def leave(self) -> None:
        self.dismiss(False)


class TrustScreen(TrustQuestion):
    """Dismisses with True to trust the folder. Its keys take precedence over those of the text."""

    HELP = "What this folder would change in sakti. Trust is kept until one of these files changes."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "trust", "Trust", priority=True, id="trust.yes"),
        Binding("n", "close", "Not now", priority=True, id="trust.no"),
        Binding("v", "view", "View the text, or what changed", priority=True, id="trust.view"),
    ]
    keys: ClassVar[Keys] = (("y trust", "trust"), ("n not now", "close"), ("v view", "view"))

    def __init__(self, review: trust.TrustReview, clock: Clock, *, made: bool = False) -> None:
        super().__init__("Trust these new files?" if made else "Trust this folder?", clock)
        self._why = NEW_FILES if made else CHANGED_FILES if review.state == "changed" else NEW_FOLDER
        self._review = review

    def on_mount(self) -> None:
        super().on_mount()
        project = self._review.project
        rows = [("folder", to_one_line(str(project.workspace), 300))]
        name = CONFIG if project.config is not None else "hooks" if project.select("hooks") else SERVERS
        rows += [("" if n else name, line) for n, line in enumerate(trust_view.list_settings(project))]
        rows += trust_view.list_other_files(self._review)
        reader = self.query_one(Transcript)
        reader.document.append(
            TextBlock(text=self._why, open=True),
            CardBlock(title="What has an effect", rows=tuple((name, sanitize_text(text)) for name, text in rows)),
        )
        self.call_after_refresh(reader.show_top)

    def action_view(self) -> None:
        blocks: list[Block] = []
        for change in self._review.changes:
            blocks += (
                TextBlock(text=to_one_line(change.name, 300), open=True),
                DiffBlock(diff=sanitize_text(change.diff)),
            )
        self.host.push(ReadScreen("What has an effect", blocks))


class NeedScreen(TrustQuestion):
    """Dismisses with True to allow an MCP server of the project a variable, host or path."""

    HELP = "An MCP server of this folder asks for this. The answer is kept; `sakti trust --allow NAME` allows it later."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "trust", "Allow", priority=True, id="need.yes"),
        Binding("n", "close", "Deny", priority=True, id="need.no"),
    ]
    keys: ClassVar[Keys] = (("y allow", "trust"), ("n deny", "close"))

    def __init__(self, need: ServerNeed, clock: Clock) -> None:
        super().__init__("Allow this?", clock)
        self._need = need

    def on_mount(self) -> None:
        super().on_mount()
        text = f"The MCP server {self._need.sentence}."
        self.query_one(Transcript).document.append(TextBlock(text=sanitize_text(text), open=True))


async def ask_trust(host: Host, review: trust.TrustReview, *, made: bool = False) -> bool:
    """Ask whether to trust files, listed with their effects; `made`: created since the start."""
    return await _ask(host, TrustScreen(review, host.session.workspace.clock, made=made))


async def ask_need(host: Host, need: ServerNeed) -> bool:
    """Ask whether an MCP server of the project may have a variable, host or path."""
    return await _ask(host, NeedScreen(need, host.session.workspace.clock))


async def _ask(host: Host, screen: TrustQuestion) -> bool:
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    host.push(screen, lambda given: None if answer.done() else answer.set_result(bool(given)))
    return await answer
