"""Every key of every part of the screen, read from the bindings themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding

from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.panel import BACK, Keys, ListPanel, Panel
from sakti.tui.screens.search import SearchScreen
from sakti.tui.screens.settings import SettingsScreen
from sakti.tui.screens.task_card import TaskCardScreen
from sakti.tui.screens.text import ReadScreen, help_blocks
from sakti.tui.screens.threads import ThreadsScreen
from sakti.tui.widgets.find_bar import FindBar

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp


def parts(app: SaktiApp) -> list[tuple[str, type[Any]]]:
    """What has keys, by the name that people know it under."""
    return [
        ("Everywhere", type(app)),
        ("Prompt", type(app.prompt)),
        ("Conversation", type(app.transcript)),
        ("Find in the thread", FindBar),
        ("Approvals", type(app.approval.view)),
        ("Panes", type(app.sidebar)),
        ("Memory", type(app.sidebar.memory)),
        ("Observations", type(app.sidebar.observations)),
        ("Tasks", type(app.sidebar.tasks)),
        ("Lists", type(app.sidebar.tasks.task_list)),
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

    def __init__(self, app: SaktiApp) -> None:
        found = [(name, b) for name, owner in parts(app) for b in owner.BINDINGS if isinstance(b, Binding)]
        super().__init__("Help", help_blocks(found))
