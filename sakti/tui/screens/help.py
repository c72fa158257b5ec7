"""List every key of every part of the screen, read from the bindings themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from sakti.tui.keys import bindings_of, with_own
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.lists import JobsScreen
from sakti.tui.screens.panel import ListPanel, Panel
from sakti.tui.screens.search import SearchScreen
from sakti.tui.screens.settings import SettingsScreen
from sakti.tui.screens.task_card import TaskCardScreen
from sakti.tui.screens.text import ReadScreen, help_blocks
from sakti.tui.screens.threads import ThreadsScreen
from sakti.tui.screens.trust import TrustScreen
from sakti.tui.screens.undo import RewindScreen, UndoScreen

if TYPE_CHECKING:
    from sakti.agent.project.skills.library import Skill

Part: TypeAlias = tuple[str, type[Any]]  # what has keys, by the name that people know it under


def parts(chat: Sequence[Part]) -> list[Part]:
    """List everything that has keys; `chat`: what stands beside the prompt."""
    return [
        *chat,
        ("Threads", ThreadsScreen),
        ("Search", SearchScreen),
        ("Board", BoardScreen),
        ("A task", TaskCardScreen),
        ("Settings", SettingsScreen),
        ("Trust", TrustScreen),
        ("Background commands", JobsScreen),
        ("Undo", UndoScreen),
        ("Turns", RewindScreen),
        ("Screens with a filter", ListPanel),
        ("Every screen", Panel),
    ]


class HelpScreen(ReadScreen):
    """Commands, then keys by part."""

    HELP = "Every command and every key."

    def __init__(self, chat: Sequence[Part], own: Mapping[str, str], skills: Iterable[Skill] = ()) -> None:
        found = [(name, with_own(b, own)) for name, owner in parts(chat) for b in bindings_of(owner)]
        super().__init__("Help", help_blocks(found, skills))
