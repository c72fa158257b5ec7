"""Draw the first line: thread, model, mode, approval, git branch."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from sakti.core.text import one_line
from sakti.tui.transcript.wrap import shorten

NOT_SAVED = "NOT SAVED"


class Header(Widget):
    """Everything on it comes from outside and is made safe when it is set.

    `not_saved`: nothing of this is kept. `memory`: the message window, and `fresh`: observations that no pane has
    shown yet, while the panes are closed.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"header--name", "header--muted", "header--warn", "header--fresh"}

    thread_title: reactive[str] = reactive("")
    model: reactive[str] = reactive("")
    mode: reactive[str] = reactive("default")
    approval: reactive[str] = reactive("ask")
    branch: reactive[str] = reactive("")
    changed: reactive[int] = reactive(0)
    not_saved: reactive[bool] = reactive(False)
    memory: reactive[str] = reactive("")
    fresh: reactive[int] = reactive(0)

    def render(self) -> Text:
        memory = self._memory_text()
        width = self.size.width - memory.cell_len
        muted = self.get_component_rich_style("header--muted", partial=True)
        name = self.get_component_rich_style("header--name", partial=True)
        warn = self.get_component_rich_style("header--warn", partial=True)
        title = one_line(self.thread_title or "new thread", 200)
        right, git = self._facts(width)
        room = max(0, width - cell_len(right + git) - 4)
        text = Text(no_wrap=True, overflow="crop", end="")
        text.append(" sakti", name)
        label = shorten(f" ─ {title} ", room - 6) if room > 12 else ""
        text.append(label, muted if not self.thread_title else "")
        text.append("─" * max(0, width - 8 - cell_len(label) - cell_len(right + git)), muted)
        stands_out = NOT_SAVED if self.not_saved else "auto" if self.approval == "auto" else ""
        if stands_out and right.endswith(stands_out):
            text.append(f" {right.removesuffix(stands_out)}", muted).append(stands_out, warn)
        else:
            text.append(f" {right}", muted)
        text.append(f"{git} ", muted)
        text.truncate(max(0, width))
        text.append_text(memory)
        text.truncate(max(0, self.size.width))
        return text

    def _facts(self, width: int) -> tuple[str, str]:
        """Return the model and the modes, and the branch, as much of them as fits."""
        branch = shorten(one_line(self.branch, 60), 24)
        git = f" ─ {branch}" + (f" ±{self.changed}" if self.changed else "") if branch else ""
        facts = [one_line(f, 60) for f in (self.model, self.mode, self.approval) if f]
        while facts and cell_len(" · ".join(facts) + git) > width * 2 // 3 - 8:
            facts.pop(1 if len(facts) > 2 else 0)
        right = " · ".join(facts)
        if cell_len(right + git) > width - 20:
            git = ""
        if self.not_saved:
            right = f"{right} · {NOT_SAVED}" if right else NOT_SAVED
        return (right, git) if right else (git.removeprefix(" ─ "), "")

    def _memory_text(self) -> Text:
        """Return the message window and the number of new observations; empty while the panes show them."""
        text = Text(no_wrap=True, end="")
        if self.memory or self.fresh:
            text.append(f"· {self.memory}".rstrip(), self.get_component_rich_style("header--muted", partial=True))
            new = f" ●{self.fresh} " if self.fresh else " "
            text.append(new, self.get_component_rich_style("header--fresh", partial=True))
        return text
