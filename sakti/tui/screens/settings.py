"""Show every setting with its value and source; edits are previewed and written to the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.getters import query_one
from textual.widgets import Input, Static

from sakti.agent import settings_file
from sakti.agent.settings import Setting, format_lines, format_toml, list_settings, parse_value
from sakti.core.config.conversion import list_choices
from sakti.core.errors import SaktiError
from sakti.core.text import sanitize_text, to_one_line
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import BACK, Keys, ListPanel
from sakti.tui.transcript.wrap import Line, fit_width, shorten
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.safe_input import AskLine

WRITE_KEYS: Keys = (("enter write", ""), ("^t for this project", "turn"), ("esc cancel", "close"))


class ChoiceScreen(ListPanel):
    """Dismisses with the chosen value ("": the default) and whether to write it to the project's file."""

    HELP = "The values of one setting. Enter writes the chosen one."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "turn", "For all projects, or for this one", show=False, priority=True, id="choice.file"),
    ]
    placeholder = "filter"

    def __init__(self, row: Setting, options: Sequence[str], files: tuple[Path, Path], *, in_project: bool) -> None:
        super().__init__(row.name)
        self._row, self._options, self._files, self._in_project = row, options, files, in_project

    def compose_body(self) -> ComposeResult:
        yield from super().compose_body()
        yield Static("", id="panel-detail", markup=False)

    def on_mount(self) -> None:
        self._describe()
        self.call_after_refresh(self._to_current)

    @property
    def _now(self) -> str:
        return self._row.text.strip('"')

    def _to_current(self) -> None:
        if self._now in self.result_list.rows:
            self.result_list.move_to(list(self.result_list.rows).index(self._now))

    def _describe(self) -> None:
        where = sanitize_text(str(self._files[self._in_project]))
        self.query_one("#panel-detail", Static).update(
            f"{sanitize_text(self._row.meaning.help)}\nEnter writes to {where}"
        )

    def list_keys(self) -> Keys:
        project = (("^t for this project", "turn"),) if self._row.meaning.project else ()
        return (("enter write", "open"), *project, ("esc cancel", "close"))

    def rows(self, text: str) -> list[str]:
        return [option for option in (*self._options, "") if text.lower() in (option or "default").lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        default = format_toml(self._row.default).strip('"') or "not set"
        text = row or f"default ({shorten(to_one_line(default, 60), max(4, width - 14))})"
        sign = "▶ " if row == self._now else "  "
        return [[Segment(sign, palette.ok), Segment(to_one_line(text, 120), palette.text if row else palette.muted)]]

    def action_turn(self) -> None:
        if self._row.meaning.project:
            self._in_project = not self._in_project
            self._describe()

    def choose(self, row: Any) -> None:
        self.dismiss((row, self._in_project))


class SettingsScreen(ListPanel):
    """Every setting; edits are written to `user_file` or `project_file`.

    `apply` shows a changed setting on the chat screen; it returns a description of the problem, or "".
    """

    HELP = (
        "Every setting, its value and where it was set. Enter opens a line for a new value and shows what would be "
        "written and where; Enter again writes it. An empty line removes the setting from the file."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "turn", "For all projects, or for this one", show=False, priority=True, id="settings.file"),
    ]
    placeholder = "filter by name, value, origin or words"
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter another value", "open"), BACK)
    writing_keys: ClassVar[Keys] = WRITE_KEYS
    line = query_one("#panel-line", AskLine)

    def __init__(
        self, found: Sequence[Setting], user_file: Path, project_file: Path, apply: Callable[[str], str]
    ) -> None:
        super().__init__("Settings")
        self._apply = apply
        self._files = user_file, project_file
        self._chosen: Setting | None = None
        self._in_project = False  # file that the open line writes to
        self._set_settings(found)

    def _set_settings(self, found: Sequence[Setting]) -> None:
        self._settings = sorted(found, key=lambda s: s.origin == "default")  # changed settings come first
        self._title = f"Settings {len(found)} · {sum(s.origin != 'default' for s in found)} changed"

    def compose_body(self) -> ComposeResult:
        yield from super().compose_body()
        yield AskLine(id="panel-line")
        yield Static("", id="panel-detail", markup=False)

    def on_mount(self) -> None:
        self.call_after_refresh(self._describe_current)

    def rows(self, text: str) -> list[Setting]:
        words = text.lower().split()
        return [
            s
            for s in self._settings
            if all(w in f"{s.name} {s.text} {s.origin} {s.meaning.help}".lower() for w in words)
        ]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        changed = row.origin != "default"
        origin = to_one_line(Path(row.origin).name if "/" in row.origin else row.origin, 24)
        name = min(48, max(12, width // 2 + 3))
        label = shorten(to_one_line(row.name, 120), name - 1)
        room = max(4, width - name - len(origin) - 5)
        return [
            [
                Segment("● " if changed else "  ", palette.agent),
                Segment(fit_width(label, name), palette.bold if changed else palette.text),
                Segment(
                    fit_width(to_one_line(row.text or "not set", 200), room), palette.text if changed else palette.muted
                ),
                Segment(f"  {origin}", palette.agent if changed else palette.faint),
            ],
            [Segment("  "), Segment(shorten(to_one_line(row.meaning.help, 200), width - 3), palette.faint)],
        ]

    def _describe(self, text: str) -> None:
        self.query_one("#panel-detail", Static).update(sanitize_text(text))

    def _describe_current(self) -> None:
        row: Setting | None = self.result_list.current
        if self.line.question:
            return
        if row is None:
            self._describe("")
            return
        who = "A project may also set it" if row.meaning.project else "Only your own file may set it"
        when = "at once" if row.meaning.at_once else "after a restart"
        value, default = (shorten(to_one_line(x or "not set", 200), 40) for x in (row.text, format_toml(row.default)))
        set_by = "" if row.origin == "default" else f", from {row.origin}"
        self._describe(
            f"{row.meaning.help}\nTakes {row.takes} · now {value}{set_by} · default {default}\n"
            f"{who}; a change takes effect {when}."
        )

    def refresh_rows(self) -> None:
        super().refresh_rows()
        self._describe_current()  # the cursor may be on another row, or none

    @on(LineList.Moved, "#panel-list")
    def _handle_move(self) -> None:
        self._describe_current()

    # --- editing ------------------------------------------------------------------------------------------------

    def choose(self, row: Any) -> None:
        """Open the input line with the current value, unless no file can change it."""
        if row.from_environment:
            self._describe(
                f"{row.name} comes from the variable {row.origin}, which overrides every file: change it there."
            )
            return
        self._chosen = row
        self._in_project = row.origin == str(self._files[1])
        if options := self._options(row):
            self.host.push(ChoiceScreen(row, options, self._files, in_project=self._in_project), self._write_choice)
            return
        self.line.ask(
            "value", f"{to_one_line(row.takes, 80)}; empty: back to {format_toml(row.default) or 'not set'}", row.text
        )
        self._preview_change()

    def _options(self, row: Setting) -> tuple[str, ...]:
        """Return the allowed values of a setting; empty if it is not a choice."""
        if row.name == "ui.theme":
            return tuple(sorted(self.host.appearance.reload().themes))
        return list_choices(row.name)

    def _write_choice(self, choice: tuple[str, bool] | None) -> None:
        if choice is not None and self._chosen is not None:
            text, self._in_project = choice
            self.host.start_worker(self._write, self._chosen, text, group="settings", exclusive=True)

    def action_close(self) -> None:
        super().action_close()
        if self.is_open:
            self._describe_current()

    def action_turn(self) -> None:
        """Switch to the other file, for a setting that a project may set."""
        row = self._chosen
        if not self.line.question or row is None:
            self._describe("Press Enter to edit a value; then ^t switches between your own file and this project's.")
        elif not row.meaning.project:
            self._describe(f"A project may not set {row.name}: set it in your own file.")
        else:
            self._in_project = not self._in_project
            self._preview_change()

    @property
    def _file(self) -> Path:
        return self._files[self._in_project]

    @on(Input.Changed, "#panel-line")
    def _preview_change(self) -> None:
        """Preview the line that Enter would write."""
        if not self.line.question or self._chosen is None:
            return
        name = self._chosen.name
        try:
            value = parse_value(self.host.session.workspace.config, name, self.line.value.strip())
        except SaktiError as e:
            self._describe(e.message)
            return
        what = f"Enter removes {name} from"
        if value is not None:
            what = f"{format_lines(name, value)}\nEnter writes this to"
        takes = to_one_line(self._chosen.takes, 200)
        self._describe(f"Takes {takes}\n{what} {self._file}")  # the path comes last, since it may be cut

    @on(Input.Submitted, "#panel-line")
    def _submit_line(self, event: Input.Submitted) -> None:
        event.stop()
        if self._chosen is not None:
            self.host.start_worker(self._write, self._chosen, event.value.strip(), group="settings", exclusive=True)

    async def _write(self, row: Setting, text: str) -> None:
        session, (user_file, project_file) = self.host.session, self._files
        try:
            value = parse_value(session.workspace.config, row.name, text)
            message = await settings_file.change(
                session, self._file, row.name, value, user_file=user_file, project_file=project_file
            )
            rows = list_settings(
                session.workspace.config, user_file=user_file, project_file=project_file, env=session.workspace.env
            )
        except SaktiError as e:
            self._describe(e.message)  # the line stays open
            return
        message = self._apply(row.name) or message
        self._set_settings(rows)
        if not self.is_open:
            return
        self.line.end()
        self.set_title(self._title)
        self.refresh_rows()
        names = [s.name for s in self.result_list.rows]
        if row.name in names:
            self.result_list.move_to(names.index(row.name))
        self._describe(message)
