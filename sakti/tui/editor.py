"""Edit a text in the user's own editor. The screen is lent to it; the session goes on behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from sakti.core.errors import SaktiError
from sakti.core.resources import find_program

TITLE = "Editor"


def command(env: Mapping[str, str], workspace: Path, kind: str = "prompt") -> list[str]:
    """Return the words of $VISUAL, else $EDITOR, else a common editor.

    A bare name is only searched outside the workspace. Raises `SaktiError` if no editor is available.
    """
    named = env.get("VISUAL") or env.get("EDITOR") or ""
    try:
        words = shlex.split(named)
    except ValueError as e:
        raise SaktiError(f"$VISUAL or $EDITOR cannot be read as a command: {e}.", title=TITLE) from e
    for name in words[:1] or ("nano", "vi"):
        if os.path.dirname(name):  # noqa: PTH120 - the user named a file
            return words
        if program := find_program(name, workspace, env.get("PATH")):
            return [program, *words[1:]]
    if words:
        why = f"{words[0]} was not found on PATH outside the workspace"
        raise SaktiError(f"{why}. Set $VISUAL or $EDITOR; the {kind} is unchanged.", title=TITLE)
    raise SaktiError("Set $VISUAL or $EDITOR to the editor that should open.", title=TITLE)


async def edit(app: App[Any], text: str, env: Mapping[str, str], workspace: Path, kind: str = "prompt") -> str:
    """Let the user edit `text`, a prompt, a plan or a command, in an editor; returns the saved text.

    Raises `SaktiError` if the editor cannot be started or fails; the caller keeps its text.
    """
    words = command(env, workspace, kind)
    handle, name = tempfile.mkstemp(prefix=f"sakti-{kind}-", suffix=".md")  # 0600
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        code = await run(app, [*words, name])
        if code:
            raise SaktiError(f"{words[0]} ended with code {code}; the {kind} is unchanged.", title=TITLE)
        return path.read_text("utf-8", "replace").removesuffix("\n")
    except OSError as e:
        why = e.strerror or str(e)
        raise SaktiError(f"{words[0]}: {why}. Set $VISUAL or $EDITOR; the {kind} is unchanged.", title=TITLE) from e
    finally:
        path.unlink(missing_ok=True)


async def run(app: App[Any], words: list[str]) -> int:
    """Run a program in the terminal; returns its exit code.

    Raises `SaktiError` if the terminal cannot be suspended.
    """
    loop = asyncio.get_running_loop()
    # drawing waits for the end of the batch: the screen belongs to the editor
    with app.batch_update(), contextlib.ExitStack() as stack:
        try:
            stack.enter_context(app.suspend())
        except SuspendNotSupported as e:
            raise SaktiError("This terminal cannot run an editor.", title=TITLE) from e
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(signal.SIGINT, lambda: None)  # ctrl+c belongs to the editor as well
            stack.callback(loop.remove_signal_handler, signal.SIGINT)
        process = await asyncio.create_subprocess_exec(*words)
        return await process.wait()
