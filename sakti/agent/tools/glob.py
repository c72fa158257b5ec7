"""Find files by glob."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from sakti.agent.tools.base import tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.files import one_row
from sakti.agent.tools.walk import MAX_RESULTS, SECONDS, listing, matcher, notes
from sakti.core.errors import ToolError


@tool(effect="read")
async def glob(
    run: ToolContext,
    pattern: Annotated[str, "such as src/**/*.py, *.{ts,tsx}; without a slash it is a name at any depth"],
    path: Annotated[str, "folder to look in"] = ".",
) -> Outcome:
    """Find files by name, newest first."""
    root = _folder(run, path)
    files = await listing(root, run.place(), seconds=SECONDS)
    fits = matcher(pattern, root)
    names = await asyncio.to_thread(lambda: sorted(filter(fits, files.paths), key=lambda p: -_mtime(root / p)))
    secret = [p for p in files.secret if fits(p)]
    rows = [one_row(run.state.show(root / p)) for p in names[:MAX_RESULTS]] or ["No file matches."]
    rows += [f"[{len(names) - MAX_RESULTS} more; narrow the pattern]"] if len(names) > MAX_RESULTS else []
    return Outcome("\n".join([*rows, *notes(files, secret)]), details={"matches": len(names)})


def _folder(run: ToolContext, path: str) -> Path:
    root = run.resolve(path)
    if not root.is_dir():
        raise ToolError(f"{path} is not a folder.")
    return root


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
