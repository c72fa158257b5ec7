"""Show in an empty conversation the folder, the model, one example and three keys."""

from __future__ import annotations

from pathlib import Path

from rich.segment import Segment
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from sakti.core.text import to_one_line
from sakti.tui.host import get_host
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line, shorten, wrap

EXAMPLE = "What does this project do, and where does it start?"
KEYS = (("/", "commands"), ("@", "files"), ("F1", "all keys"))
MAX_WIDTH = 76  # columns of text


class Start(Widget):
    """Shown above an empty conversation. `model`: its full name, or "" without a model."""

    model: reactive[str] = reactive("")

    def __init__(self, workspace: Path, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._folder = _shorten_home(Path(workspace))

    def on_mount(self) -> None:
        get_host(self).theme_changed_signal.subscribe(self, lambda _: self.refresh())

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        lines = draw_start(self._folder, self.model, width - 4, get_host(self).palette, self.size.height)
        line: Line = [Segment("  "), *lines[y]] if y < len(lines) else []
        base = self.rich_style
        return Strip(Segment.apply_style(line, base)).crop_extend(0, width, base)


def draw_start(folder: str, model: str, width: int, palette: Palette, height: int) -> list[Line]:
    """Return the lines, without blank ones if `height` is too small, ending with the keys."""
    width = max(8, min(width, MAX_WIDTH))
    label = 8
    room = max(4, width - label)
    keys: Line = []
    for key, what in KEYS:
        keys += [
            Segment("   " if keys else "", palette.muted),
            Segment(key, palette.agent),
            Segment(f" {what}", palette.muted),
        ]
    example = wrap([(f"“{EXAMPLE}”", palette.text)], room)
    rows: list[Line] = [
        [Segment("Folder  ", palette.faint), Segment(shorten(folder, room), palette.text)],
        [
            Segment("Model   ", palette.faint),
            Segment(to_one_line(model, room), palette.text)
            if model
            else Segment("none: /model chooses one", palette.warn),
        ],
        [Segment("Try     ", palette.faint), *example[0]],
        *([Segment(" " * label), *line] for line in example[1:]),
    ]
    airy = [[], *rows[:2], [], *rows[2:], [], keys]
    return airy if height >= len(airy) else [*rows, keys]


def _shorten_home(folder: Path) -> str:
    """Return a folder as `~/code/shop`, safe to show."""
    home = Path.home()
    text = f"~/{folder.relative_to(home)}" if folder != home and folder.is_relative_to(home) else str(folder)
    return to_one_line(text, 200)
