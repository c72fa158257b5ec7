"""Every key of every part of the screen, read from the bindings themselves."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding

from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.sidebar import Sidebar
from sakti.tui.panes.tasks import TasksPane
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.panel import BACK, Keys, ListPanel, Panel
from sakti.tui.screens.search import SearchScreen
from sakti.tui.screens.settings import SettingsScreen
from sakti.tui.screens.task_card import TaskCardScreen
from sakti.tui.screens.text import ReadScreen, help_blocks
from sakti.tui.screens.threads import ThreadsScreen
from sakti.tui.widgets.approval import ApprovalView
from sakti.tui.widgets.find_bar import FindBar
from sakti.tui.widgets.line_list import LineList
from sakti.tui.widgets.prompt import Prompt
from sakti.tui.widgets.transcript import Transcript


def parts(chat: type[Any]) -> list[tuple[str, type[Any]]]:
    """List what has keys, by the name that people know it under; `chat` has those that work everywhere."""
    return [
        ("Everywhere", chat),
        ("Prompt", Prompt),
        ("Conversation", Transcript),
        ("Find in the thread", FindBar),
        ("Approvals", ApprovalView),
        ("Panes", Sidebar),
        ("Memory", MemoryPane),
        ("Observations", ObservationsPane),
        ("Tasks", TasksPane),
        ("Lists", LineList),
        ("Threads", ThreadsScreen),
        ("Search", SearchScreen),
        ("Board", BoardScreen),
        ("A task", TaskCardScreen),
        ("Settings", SettingsScreen),
        ("Screens with a filter", ListPanel),
        ("Every screen", Panel),
    ]


class HelpScreen(ReadScreen):
    """Commands, then keys by part."""

    HELP = "Every command and every key."
    keys: ClassVar[Keys] = (("↑↓ scroll", ""), BACK)

    def __init__(self, chat: type[Any]) -> None:
        found = [(name, b) for name, owner in parts(chat) for b in owner.BINDINGS if isinstance(b, Binding)]
        super().__init__("Help", help_blocks(found))
