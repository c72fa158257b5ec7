"""Log file of the window: unexpected errors with their tracebacks."""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path

from sakti.core.resources import state_home


def log_path() -> Path:
    """Name the log file: `~/.local/state/sakti/tui.log`, or where XDG_STATE_HOME puts it."""
    return state_home() / "tui.log"


def log_error(error: BaseException) -> Path | None:
    """Append `error` with its traceback; returns the file's path, or None if writing fails."""
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
