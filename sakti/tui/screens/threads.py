"""List the threads of a workspace, with actions to open, rename, fork, delete, restore and export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.getters import query_one
from textual.widgets import Input

from sakti.agent.threads.actions import ThreadActions
from sakti.agent.threads.export import make_file_name
from sakti.agent.titles import HEADLESS, number_equal_titles
from sakti.core.errors import SaktiError
from sakti.core.text import count_k, format_count, quote, to_one_line
from sakti.core.types import STATE_SYMBOLS, Message, describe_state
from sakti.tui.host import Host
from sakti.tui.palette import Palette
from sakti.tui.screens.lists import format_age
from sakti.tui.screens.panel import BACK, Keys, ListPanel
from sakti.tui.transcript.wrap import Line, fit_width, shorten
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.safe_input import AskLine

WIDE = 90  # minimum columns for full figures

if TYPE_CHECKING:
    from sakti.agent.session.queries import ThreadSummary

FORK_LIMIT = 1_000  # newest messages offered as the end of a fork
PROMPTS = {"rename": "title", "export": "new file, ending in .md, .json or .html"}


class ThreadsScreen(ListPanel):
    """Dismisses with the `ThreadSummary` to open."""

    HELP = (
        "Every thread of this workspace, newest first; those of `sakti run` are marked. A deleted one can be restored."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "ask('rename')", "Rename", show=False, priority=True, id="threads.rename"),
        Binding("ctrl+o", "fork", "Fork: a new thread with its messages", show=False, priority=True, id="threads.fork"),
        Binding("ctrl+d", "delete", "Delete", show=False, priority=True, id="threads.delete"),
        Binding("ctrl+y", "restore", "Restore the last deleted", show=False, priority=True, id="threads.restore"),
        Binding("ctrl+e", "branches", "Undone branches", show=False, priority=True, id="threads.branches"),
        Binding("ctrl+s", "ask('export')", "Export", show=False, priority=True, id="threads.export"),
    ]
    keys: ClassVar[Keys] = (
        ("enter open", "open"),
        ("^r rename", "ask('rename')"),
        ("^o fork", "fork"),
        ("^d delete", "delete"),
        ("^y restore", "restore"),
        ("^s export", "ask('export')"),
        BACK,
    )
    placeholder = "filter by title or text"
    empty = "No threads yet"
    line = query_one("#panel-line", AskLine)

    def __init__(self, summaries: Sequence[ThreadSummary], now_ms: int, current: str) -> None:
        super().__init__(f"Threads  {len(summaries)}")
        self._summaries = summaries
        self._titles = number_equal_titles(s.thread for s in summaries)
        self._now = now_ms
        self._current = current
        self._chosen: ThreadSummary | None = None  # thread that the input line edits
        self._unfolded: set[str] = set()  # threads whose undone branches are shown
        self._to_delete = ""  # thread that a second press deletes

    def compose_body(self) -> ComposeResult:
        yield from super().compose_body()
        yield AskLine(id="panel-line")

    def rows(self, text: str) -> list[ThreadSummary]:
        needle = text.lower()
        matches = [
            s for s in self._summaries if needle in f"{self._titles[s.thread.id]} {s.preview} {_get_tag(s)}".lower()
        ]
        return [row for s in matches for row in (s, *(s.below if s.thread.id in self._unfolded else ()))]

    def action_branches(self) -> None:
        """Show or hide the children and undone branches of the thread under the cursor."""
        row = self._get_row()
        owner = next((s for s in self._summaries if s.below and row is not None and row in (s, *s.below)), None)
        if owner is None:
            self.set_status("This thread has no children and no undone branches.")
            return
        self._unfolded ^= {owner.thread.id}
        self.refresh_rows()
        self.result_list.move_to(list(self.result_list.rows).index(owner))
        self.set_status()

    def describe_empty(self, text: str) -> str:
        return f"no thread matches “{to_one_line(text, 60)}”" if text else self.empty

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        thread = row.thread
        if thread.id not in self._titles:
            return self._draw_branch(row, width, palette)
        sign = "▶ " if thread.id == self._current else "↳ " if thread.metadata.get("forked_from") else "  "
        tag = _get_tag(row)
        messages, tokens = row.messages, count_k(row.tokens)
        right = (
            f"{format_count(messages, 'message')} · {tokens} tokens"
            if width >= WIDE
            else f"{messages} msg · {tokens} tok"
        )
        right += f" · {format_age(thread.updated_at, self._now)}"
        room = max(4, width - len(right) - len(tag) - 5 - bool(tag) * 3)
        return [
            [
                Segment(sign, palette.ok),
                Segment(
                    fit_width(to_one_line(self._titles[thread.id], 200), room), palette.muted if tag else palette.bold
                ),
                Segment(f"  {tag} ·" if tag else "", palette.muted),
                Segment(f" {right}" if tag else f"  {right}", palette.faint),
            ],
            [Segment("  "), *self._draw_preview(row, width, palette)],
        ]

    def _draw_preview(self, row: ThreadSummary, width: int, palette: Palette) -> list[Segment]:
        """Return the preview and the numbers of children and undone branches folded under the thread."""
        branches = _count_below(row) if row.below and row.thread.id not in self._unfolded else ""
        room = width - 3 - (len(branches) + 2 if branches else 0)
        words = to_one_line(row.preview, 300)
        preview = Segment(fit_width(words, room) if branches else shorten(words, room), palette.muted)
        return [preview, Segment(f"  {branches}", palette.faint)] if branches else [preview]

    def _draw_branch(self, row: ThreadSummary, width: int, palette: Palette) -> list[Line]:
        is_child = row.thread.parent_id is not None
        sign = f"└ {STATE_SYMBOLS[row.state]}" if row.state else "└" if is_child else "↶"
        kind = describe_state(row.state) if row.state else "child" if is_child else "undone"
        right = f"{kind} {format_age(row.thread.updated_at, self._now)}"
        words = to_one_line(row.thread.title if is_child else row.preview, 300)
        return [
            [
                Segment(f"    {sign} ", palette.faint),
                Segment(fit_width(words, max(4, width - len(right) - len(sign) - 8)), palette.muted),
                Segment(f"  {right}", palette.faint),
            ]
        ]

    def set_status(self, text: str = "") -> None:
        """Show the result of the last change, or the effect of the next key, in the title."""
        self.set_title("  ".join(p for p in (f"Threads  {len(self._summaries)}", to_one_line(text, 180)) if p))

    def _get_row(self) -> ThreadSummary | None:
        row: ThreadSummary | None = self.result_list.current
        return row

    @on(LineList.Moved, "#panel-list")
    def _cancel_delete(self) -> None:
        if self._to_delete:
            self._to_delete = ""
            self.set_status()

    async def _reload(self, at: str = "") -> None:
        """Reload the list and put the cursor on the thread `at` if it is listed."""
        session = self.host.session
        self._summaries = await session.views.threads()
        self._titles = number_equal_titles(s.thread for s in self._summaries)
        self._current = session.thread.id if session.thread else ""
        if self.is_open:
            self.refresh_rows()
            shown = [s.thread.id for s in self.result_list.rows]
            if at in shown:
                self.result_list.move_to(shown.index(at))

    # --- actions -----------------------------------------------------------------------------------------------

    def action_ask(self, what: str) -> None:
        """Open the input line for a title or a file name."""
        row = self._get_row()
        if row is not None and not self.line.question:
            self._chosen = row
            self.line.ask(
                what, PROMPTS[what], row.thread.title if what == "rename" else make_file_name(row.thread, "md")
            )

    @on(Input.Submitted, "#panel-line")
    def _submit_line(self, event: Input.Submitted) -> None:
        event.stop()
        text, what, row = event.value.strip(), self.line.question, self._chosen
        self.line.end()
        if row is not None and text:
            self._run_action(self._rename if what == "rename" else self._export, row.thread.id, text)

    def action_fork(self) -> None:
        if (row := self._get_row()) is not None:
            self._run_action(self._choose_fork, row)

    def action_delete(self) -> None:
        """Announce the deletion on the first press, and delete on the second."""
        row = self._get_row()
        if row is None:
            return
        if self._to_delete == row.thread.id:
            self._to_delete = ""
            self._run_action(self._delete, row.thread.id)
        else:
            self._to_delete = row.thread.id
            self._run_action(self._announce_delete, row.thread.id)

    def action_restore(self) -> None:
        self._run_action(self._restore)

    def _run_action(self, work: Any, *args: Any) -> None:
        async def run() -> None:
            try:
                await work(ThreadActions(self.host.session), *args)
            except SaktiError as e:
                self.set_status(e.message)

        self.host.start_worker(run, group="threads-screen")

    async def _rename(self, actions: ThreadActions, thread_id: str, title: str) -> None:
        message = await actions.rename(thread_id, title)
        await self._reload(thread_id)
        self.set_status(message)

    async def _export(self, actions: ThreadActions, thread_id: str, name: str) -> None:
        target = self.host.session.workspace.root / Path(name).expanduser()
        path = await actions.export(thread_id, target.suffix.lstrip("."), target)
        self.set_status(f"Written: {path}")

    async def _announce_delete(self, actions: ThreadActions, thread_id: str) -> None:
        contents = await actions.contents(thread_id)
        self.set_status(f"^d again deletes {contents.in_words()}. ^y restores it.")

    async def _delete(self, actions: ThreadActions, thread_id: str) -> None:
        gone = await actions.delete(thread_id)
        await self._reload()
        self.set_status(f"Deleted {gone.in_words()}. ^y restores it.")

    async def _restore(self, actions: ThreadActions) -> None:
        last = await actions.find_last_deleted()
        if last is None:
            self.set_status("No thread of this workspace is deleted.")
            return
        await actions.restore(last.id)
        await self._reload(last.id)
        self.set_status(f"Restored {quote(last.title)}.")

    async def _choose_fork(self, _: ThreadActions, row: ThreadSummary) -> None:
        messages = await self.host.session.views.transcript(row.thread.id, limit=FORK_LIMIT)

        def fork(upto: int | None) -> None:
            if upto is not None:
                self._run_action(self._fork, row.thread.id, upto)

        self.host.push(ForkScreen(row.thread.title, messages), fork)

    async def _fork(self, actions: ThreadActions, thread_id: str, upto: int) -> None:
        thread = await actions.fork(thread_id, upto)
        await self._reload(thread.id)
        self.set_status(f"Forked with {format_count(thread.metadata['forked_at'] + 1, 'message')}: enter opens it.")


def _count_below(row: ThreadSummary) -> str:
    parts = [f"└ {format_count(len(row.children), 'child', 'children')}"] if row.children else []
    parts += [f"↶ {format_count(len(row.undone), 'undone branch', 'undone branches')}"] if row.undone else []
    return f"{' '.join(parts)} ^e"


def _get_tag(row: ThreadSummary) -> str:
    """Return "run" for a thread of a headless run, else ""."""
    return "run" if row.thread.metadata.get(HEADLESS) else ""


class ForkScreen(ListPanel):
    """Asks for the last message of a fork. Dismisses with its index."""

    HELP = "The new thread has every message up to the chosen one, and the observations made from them."
    placeholder = "filter by text"
    empty = "no message"
    keys: ClassVar[Keys] = (("↑↓ up to which message", ""), ("enter fork", "open"), BACK)

    def __init__(self, title: str, messages: Sequence[Message]) -> None:
        super().__init__(f"Fork {to_one_line(title or 'untitled', 60)}: up to which message?")
        newest = messages[-1:]
        self._messages = [
            m for m in reversed(messages) if m in newest or (m.role in ("user", "assistant") and m.text.strip())
        ]

    def rows(self, text: str) -> list[Message]:
        return [m for m in self._messages if text.lower() in m.text.lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        style = {"user": palette.user, "assistant": palette.agent}.get(row.role, palette.muted)
        who = {"user": "you", "assistant": "sakti"}.get(row.role, row.role)
        last = "  (the last)" if row is self._messages[0] else ""
        text = shorten(to_one_line(row.text or "tool results", 300), max(4, width - 16 - len(last)))
        return [
            [
                Segment(f"{row.index + 1:>5} ", palette.faint),
                Segment(f"{who:<6}", style),
                Segment(text, palette.text),
                Segment(last, palette.faint),
            ]
        ]

    def choose(self, row: Any) -> None:
        self.dismiss(row.index)


async def pick_thread(host: Host) -> None:
    """Let the user choose a thread to open."""
    session = host.session
    summaries = await session.views.threads()

    def open_thread(summary: ThreadSummary | None) -> None:
        if summary is not None and session.busy:
            host.show_notice("The agent is working: wait, or stop it with Esc, then open another thread.")
        elif summary is not None:
            host.start_worker(session.open_thread, summary.thread.id, group="open", exclusive=True)

    host.push(
        ThreadsScreen(summaries, session.workspace.clock.now(), session.thread.id if session.thread else ""),
        open_thread,
    )
