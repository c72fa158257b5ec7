"""List the commands, and the keys of every part of the screen, read from the bindings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from sakti.actions import registry
from sakti.core.text import to_one_line
from sakti.tui.keys import apply_custom_key, format_keys, iter_bindings
from sakti.tui.screens.agents import AgentsScreen, ChildScreen
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.lists import ImportScreen, JobsScreen, ServersScreen
from sakti.tui.screens.panel import BACK, Keys, ListPanel, Panel
from sakti.tui.screens.search import SearchScreen
from sakti.tui.screens.settings import ChoiceScreen, SettingsScreen
from sakti.tui.screens.task_card import TaskCardScreen
from sakti.tui.screens.text import ReadScreen
from sakti.tui.screens.threads import ThreadsScreen
from sakti.tui.screens.trust import NeedScreen, TrustScreen
from sakti.tui.screens.undo import RewindScreen, UndoScreen
from sakti.tui.transcript.blocks import Block, CardBlock, NoticeBlock
from sakti.tui.widgets.safe_input import SafeInput
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.project.skills import Skill

TYPING = ("letters, pastes", "go to the prompt, while browsing too, except the keys of the browsed part")
Part: TypeAlias = tuple[str, type[Any]]  # display name and class of a part that has keys


def list_parts(chat: Sequence[Part]) -> list[Part]:
    """List everything that has keys, starting with the parts of the `chat`."""
    return [
        *chat,
        ("Threads", ThreadsScreen),
        ("Search", SearchScreen),
        ("Board", BoardScreen),
        ("A task", TaskCardScreen),
        ("Settings", SettingsScreen),
        ("Values of a setting", ChoiceScreen),
        ("Trust", TrustScreen),
        ("Needs of a server", NeedScreen),
        ("MCP servers", ServersScreen),
        ("Background commands", JobsScreen),
        ("Child threads", AgentsScreen),
        ("A child thread", ChildScreen),
        ("Import of history", ImportScreen),
        ("Undo", UndoScreen),
        ("Turns", RewindScreen),
        ("Help", HelpScreen),
        ("Screens with a filter", ListPanel),
        ("Every screen", Panel),
    ]


def make_help_blocks(bindings: Sequence[tuple[str, Binding]], skills: Iterable[Skill] = ()) -> list[Block]:
    """List keys by part of the screen, slash commands, and the user's skills and commands."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for group, binding in bindings:
        if binding.description:
            keys = binding.key_display or format_keys(binding.key.split(","))
            groups.setdefault(group, []).append((to_one_line(keys, 30), f"{binding.description} · {binding.id}"))
    groups.setdefault("Everywhere", []).append(TYPING)
    cards: list[Block] = [CardBlock(title=group, rows=tuple(rows)) for group, rows in groups.items()]
    commands = tuple((f"/{name} {c.hint}".strip(), c.in_short) for name, c in registry.chat_commands().items())
    more = (("@path", "attach a file"), ("!command", "run a command yourself"), ("#note", "add to working memory"))
    skill_rows = tuple(
        (f"/{s.name} {s.hint}".strip(), f"{to_one_line(s.description, 100)} · {s.source}") for s in skills
    )
    yours = (
        [CardBlock(title="Skills and commands of this project, and your own", rows=skill_rows)] if skill_rows else []
    )
    return [CardBlock(title="Commands", rows=(*commands, *more)), *yours, *cards]


class HelpScreen(ReadScreen):
    """Commands, then keys by part; typing filters them."""

    HELP = "Every command and every key. Type words to filter them."
    AUTO_FOCUS = "#panel-input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "scroll('down')", "Down", show=False, id="help.down"),
        Binding("up", "scroll('up')", "Up", show=False, id="help.up"),
        Binding("pagedown", "scroll('page_down')", "Page down", show=False, id="help.pagedown"),
        Binding("pageup", "scroll('page_up')", "Page up", show=False, id="help.pageup"),
    ]
    keys: ClassVar[Keys] = (("type to filter", ""), ("↑↓ scroll", ""), BACK)

    def __init__(self, chat: Sequence[Part], own: Mapping[str, str], skills: Iterable[Skill] = ()) -> None:
        groups = [(name, apply_custom_key(b, own)) for name, owner in list_parts(chat) for b in iter_bindings(owner)]
        super().__init__("Help", make_help_blocks(groups, skills))

    def compose_body(self) -> ComposeResult:
        yield SafeInput(placeholder="filter by key, command or words", id="panel-input", compact=True)
        yield from super().compose_body()

    def action_scroll(self, way: str) -> None:
        getattr(self.query_one(Transcript), f"scroll_{way}")(animate=False)

    @on(Input.Changed, "#panel-input")
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        reader, shown = self.query_one(Transcript), filter_cards(self._blocks, event.value)
        reader.document.clear()
        reader.document.append(*(shown or [NoticeBlock(title="Nothing found", text="Try other words.")]))
        reader.show_top()


def filter_cards(blocks: Iterable[Block], text: str) -> list[Block]:
    """Return the cards with only the rows that contain every word of `text`, counting the card's title."""
    words = text.lower().split()
    cards = [b for b in blocks if isinstance(b, CardBlock)]

    def matches(card: CardBlock, row: tuple[str, str]) -> bool:
        return all(word in f"{card.title} {row[0]} {row[1]}".lower() for word in words)

    fitting = [(card.title, tuple(row for row in card.rows if matches(card, row))) for card in cards]
    return [CardBlock(title=title, rows=rows) for title, rows in fitting if rows]
