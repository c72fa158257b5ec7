"""Before the first paint nothing heavy is imported."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "peewee",
    "apsw",
    "anthropic",
    "openai",
    "pydantic",
    "tiktoken",
    "markdown_it",
    "pygments",
    "rich.markdown",
    "rich.syntax",
    "pathspec",
    "textual.widgets._markdown",
    "textual.widgets._data_table",
)


def test_the_app_imports_nothing_heavy():
    code = f"import sys, sakti.tui.app; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
