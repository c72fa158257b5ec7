"""Turns and the preview of their undo, for pictures."""

from __future__ import annotations

import stat

from sakti.agent.checkpoints.plan import PathChange, PathEntry, Plan, PlanItem
from sakti.agent.checkpoints.records import RecordedTurn
from sakti.agent.checkpoints.undoing import PastTurn, UndoPreview, UndoRemains
from sakti.core.types import Message, TextPart
from tests.tui.fakes import NOW

FILE = PathEntry(stat.S_IFREG | 0o644, "1")
DIFF = "--- a/{0}\n+++ b/{0}\n@@ -1,3 +1,3 @@\n def port():\n-    return 8080\n+    return 80\n\n"


def turns() -> tuple[PastTurn, ...]:
    said = ("fix the login redirect", "add refresh tokens and their tests", "what does the readme say?")
    out: list[PastTurn] = []
    for number, text in enumerate(said):
        at = NOW - (3 - number) * 700_000
        message = Message(f"m{number}", "t", "/work", "user", (TextPart(text),), at, index=2 * number)
        changes = tuple(PathChange(f"src/file{n}.py", FILE, None) for n in range(2 - number))
        changed = RecordedTurn("t", 2 * number, at, changes) if changes else None
        out.append(PastTurn(message, text, changed))
    return tuple(out)


def preview() -> UndoPreview:
    items = (
        PlanItem("README.md", "change", FILE, FILE, "changed since"),
        PlanItem("src/login/redirect.py", "change", FILE, FILE),
        PlanItem("src/login/tokens.py", "delete", FILE, None),
        PlanItem("tests/test_old.py", "create", None, FILE),
    )
    diffs = {i.path: DIFF.format(i.path) for i in items}
    return UndoPreview(turns()[:2], Plan(items), "both", UndoRemains(("data/dump.bin",)), diffs)
