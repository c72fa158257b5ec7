"""Work that may fail: what a worker raises becomes a notice and an entry of the log file, never a traceback."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sakti.core.errors import SaktiError
from sakti.core.resources import state_home


def log_path() -> Path:
    """Name the log file: `~/.local/state/sakti/tui.log`, or where XDG_STATE_HOME puts it."""
    return state_home() / "tui.log"


def log_error(error: BaseException) -> Path | None:
    """Append `error` with its traceback; the file's path, or None where it cannot be written."""
    path = log_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return path


async def guarded(work: Callable[..., Awaitable[None]], args: tuple[Any, ...], say: Callable[..., None]) -> None:
    """Run `work(*args)`; `say` what it raises, with where the details are."""
    try:
        await work(*args)
    except SaktiError as e:
        say(e.message, title=e.title, tone="error")
    except Exception as e:
        path = log_error(e)
        where = f"The details are in {path}." if path else ""
        say(f"{type(e).__name__}: {e} {where}", title="Something went wrong", tone="error")
