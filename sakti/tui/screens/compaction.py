"""Show what the last /compact did: figures, and the log before and after as a diff."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sakti.core.text import count_k
from sakti.tui.screens.text import DiffBlock, ReadScreen
from sakti.tui.transcript.blocks import CardBlock

if TYPE_CHECKING:
    from sakti.agent.threads.last_compaction import Shown


class CompactionScreen(ReadScreen):
    """Read-only; `/compact undo` undoes it."""

    HELP = "What the last /compact did: + are lines that the log has since. The messages are kept, search finds them."

    def __init__(self, shown: Shown) -> None:
        done = shown.done
        saved = done.tokens_before - done.tokens_after
        rows = [
            ("when", datetime.fromtimestamp(done.created_at / 1000).strftime("%Y-%m-%d %H:%M")),
            ("focus", done.focus),
            ("removed", f"{done.message_count} messages, numbers {done.first_index + 1} to {done.last_index + 1}"),
            ("tokens", f"{count_k(done.tokens_before)} → {count_k(done.tokens_after)}, {count_k(max(0, saved))} freed"),
            ("observations", f"{len(shown.before)} → {len(shown.after)} lines"),
            ("pinned", f"{shown.pinned} line{'s' * (shown.pinned != 1)}, always kept" if shown.pinned else ""),
            ("doubtful", f"{shown.doubtful} new lines are not supported by their source" if shown.doubtful else ""),
            ("undo", "/compact undo"),
        ]
        card = CardBlock(title="Compacted", rows=tuple((k, v) for k, v in rows if v))
        super().__init__("The last compaction", [card, DiffBlock(diff=shown.diff())])
