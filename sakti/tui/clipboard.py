"""Read an image from the system's clipboard by the programs that desktops have for it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from sakti.core import content
from sakti.core.errors import SaktiError
from sakti.core.resources import find_program, safe_environment, state_home

PATIENCE = 3.0  # seconds that a program may take
KEPT = 7 * 86_400  # seconds that a pasted image stays as a file; the message has its own copy
_WINDOWS = (
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$i=[Windows.Forms.Clipboard]::GetImage();if($i){$m=New-Object IO.MemoryStream;"
    "$i.Save($m,[Drawing.Imaging.ImageFormat]::Png);$o=[Console]::OpenStandardOutput();"
    "$o.Write($m.ToArray(),0,$m.Length)}"
)


def command(env: Mapping[str, str], workspace: Path) -> list[str]:
    """Return the command that prints the clipboard image; [] if no tool outside the workspace can."""
    candidates: list[list[str]] = [
        ["wl-paste", "--no-newline", "--type", "image/png"] if env.get("WAYLAND_DISPLAY") else [],
        ["xclip", "-selection", "clipboard", "-target", "image/png", "-out"] if env.get("DISPLAY") else [],
        ["pngpaste", "-"],
        ["powershell.exe", "-NoProfile", "-Sta", "-Command", _WINDOWS],
    ]
    for name, *arguments in filter(None, candidates):
        if program := find_program(name, workspace, env.get("PATH")):
            return [program, *arguments]
    return []


async def image(env: Mapping[str, str], workspace: Path) -> bytes | None:
    """Return the clipboard image, or None.

    Raises `SaktiError` if no installed tool can read images.
    """
    words = command(env, workspace)
    if not words:
        raise SaktiError(
            "No tool here reads images from the clipboard. Install wl-clipboard, xclip or pngpaste, or paste the "
            "image's path.",
            title="Clipboard",
        )
    process = await asyncio.create_subprocess_exec(
        *words,
        env=safe_environment(env, workspace),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        data, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return data if content.look(data) is not None else None


async def take(env: Mapping[str, str], workspace: Path, *, own: str) -> tuple[Path, int] | None:
    """Save the clipboard image; returns its file and size in bytes, or None without an image.

    `own`: the text copied in this window, which is pasted instead if no tool can read images. Raises `SaktiError` if
    there is no tool and `own` is empty.
    """
    data = await image(env, workspace) if command(env, workspace) or not own else None
    return (await asyncio.to_thread(keep, data), len(data)) if data is not None else None


def keep(data: bytes) -> Path:
    """Write an image where a message can name it; the same image is the same file. Blocks."""
    folder = state_home() / "pasted"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in folder.iterdir():
        with contextlib.suppress(OSError):
            if old.stat().st_mtime < time.time() - KEPT:
                old.unlink()
    info = content.look(data)
    end = info[0].partition("/")[2] if info else "bin"
    path = folder / f"pasted-{hashlib.sha256(data).hexdigest()[:12]}.{end}"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    return path
