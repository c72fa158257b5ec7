"""Use programs of the desktop: clipboard images, editor, browser and notifications."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App, SuspendNotSupported

from sakti.core import content
from sakti.core.errors import SaktiError
from sakti.core.resources import build_safe_environment, find_program, state_home
from sakti.core.text import to_one_line
from sakti.tui.transcript.links import parse_address

if TYPE_CHECKING:
    from sakti.agent.session.session import Session

CLIPBOARD_TIMEOUT_S = 3.0  # time limit of a program in seconds
PASTED_IMAGES_S = 7 * 86_400  # seconds until the file of a pasted image is deleted; the message has its own copy
_WINDOWS_CLIPBOARD = (
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$i=[Windows.Forms.Clipboard]::GetImage();if($i){$m=New-Object IO.MemoryStream;"
    "$i.Save($m,[Drawing.Imaging.ImageFormat]::Png);$o=[Console]::OpenStandardOutput();"
    "$o.Write($m.ToArray(),0,$m.Length)}"
)


def find_clipboard_command(env: Mapping[str, str], workspace: Path) -> list[str]:
    """Return the command that prints the clipboard image; [] if no tool outside the workspace can."""
    candidates: list[list[str]] = [
        ["wl-paste", "--no-newline", "--type", "image/png"] if env.get("WAYLAND_DISPLAY") else [],
        ["xclip", "-selection", "clipboard", "-target", "image/png", "-out"] if env.get("DISPLAY") else [],
        ["pngpaste", "-"],
        ["powershell.exe", "-NoProfile", "-Sta", "-Command", _WINDOWS_CLIPBOARD],
    ]
    for name, *arguments in filter(None, candidates):
        if program := find_program(name, workspace, env.get("PATH")):
            return [program, *arguments]
    return []


async def read_clipboard_image(env: Mapping[str, str], workspace: Path) -> bytes | None:
    """Return the clipboard image, or None.

    Raises `SaktiError` if no installed tool can read images.
    """
    words = find_clipboard_command(env, workspace)
    if not words:
        raise SaktiError(
            "No tool here reads images from the clipboard. Install wl-clipboard, xclip or pngpaste, or paste the "
            "image's path.",
            title="Clipboard",
        )
    process = await asyncio.create_subprocess_exec(
        *words,
        env=build_safe_environment(env, workspace),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        data, _ = await asyncio.wait_for(process.communicate(), CLIPBOARD_TIMEOUT_S)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return data if content.read_image_header(data) is not None else None


async def save_clipboard_image(env: Mapping[str, str], workspace: Path, *, own: str) -> tuple[Path, int] | None:
    """Save the clipboard image; returns its file and size in bytes, or None without an image.

    `own`: the text copied in this window, which is pasted instead if no tool can read images. Raises `SaktiError` if
    there is no tool and `own` is empty.
    """
    data = await read_clipboard_image(env, workspace) if find_clipboard_command(env, workspace) or not own else None
    return (await asyncio.to_thread(store_pasted_image, data), len(data)) if data is not None else None


def store_pasted_image(data: bytes) -> Path:
    """Store an image in a file that a message can name; equal images share a file. Blocks."""
    folder = state_home() / "pasted"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in folder.iterdir():
        with contextlib.suppress(OSError):
            if old.stat().st_mtime < time.time() - PASTED_IMAGES_S:
                old.unlink()
    info = content.read_image_header(data)
    end = info[0].partition("/")[2] if info else "bin"
    path = folder / f"pasted-{hashlib.sha256(data).hexdigest()[:12]}.{end}"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    return path


EDITOR_TITLE = "Editor"


def find_editor_command(env: Mapping[str, str], workspace: Path, kind: str = "prompt") -> list[str]:
    """Return the words of $VISUAL, else $EDITOR, else a common editor.

    A bare name is only searched outside the workspace. Raises `SaktiError` if no editor is available.
    """
    named = env.get("VISUAL") or env.get("EDITOR") or ""
    try:
        words = shlex.split(named)
    except ValueError as e:
        raise SaktiError(f"$VISUAL or $EDITOR cannot be read as a command: {e}.", title=EDITOR_TITLE) from e
    for name in words[:1] or ("nano", "vi"):
        if os.path.dirname(name):  # noqa: PTH120 - the user named a file
            return words
        if program := find_program(name, workspace, env.get("PATH")):
            return [program, *words[1:]]
    if words:
        why = f"{words[0]} was not found on PATH outside the workspace"
        raise SaktiError(f"{why}. Set $VISUAL or $EDITOR; the {kind} is unchanged.", title=EDITOR_TITLE)
    raise SaktiError("Set $VISUAL or $EDITOR to the editor that should open.", title=EDITOR_TITLE)


async def edit_text(app: App[Any], text: str, env: Mapping[str, str], workspace: Path, kind: str = "prompt") -> str:
    """Let the user edit `text`, a prompt, a plan or a command, in an editor; returns the saved text.

    Raises `SaktiError` if the editor cannot be started or fails; the caller keeps its text.
    """
    words = find_editor_command(env, workspace, kind)
    handle, name = tempfile.mkstemp(prefix=f"sakti-{kind}-", suffix=".md")  # 0600
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        code = await run_in_terminal(app, [*words, name])
        if code:
            raise SaktiError(f"{words[0]} ended with code {code}; the {kind} is unchanged.", title=EDITOR_TITLE)
        return path.read_text("utf-8", "replace").removesuffix("\n")
    except OSError as e:
        why = e.strerror or str(e)
        raise SaktiError(
            f"{words[0]}: {why}. Set $VISUAL or $EDITOR; the {kind} is unchanged.", title=EDITOR_TITLE
        ) from e
    finally:
        path.unlink(missing_ok=True)


async def run_in_terminal(app: App[Any], words: list[str]) -> int:
    """Run a program in the terminal; returns its exit code.

    Raises `SaktiError` if the terminal cannot be suspended.
    """
    loop = asyncio.get_running_loop()
    # drawing waits for the end of the batch: the screen belongs to the editor
    with app.batch_update(), contextlib.ExitStack() as stack:
        try:
            stack.enter_context(app.suspend())
        except SuspendNotSupported as e:
            raise SaktiError("This terminal cannot run an editor.", title=EDITOR_TITLE) from e
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(signal.SIGINT, lambda: None)  # ctrl+c goes to the editor, too
            stack.callback(loop.remove_signal_handler, signal.SIGINT)
        process = await asyncio.create_subprocess_exec(*words)
        return await process.wait()


_OPENERS = {"darwin": (("open",),), "win32": (("rundll32", "url.dll,FileProtocolHandler"),)}
_LINUX_OPENERS = (("xdg-open",), ("wslview",))
_PASSED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "DISPLAY",
    "BROWSER",
    "SHELL",
    "SYSTEMROOT",
    "USERPROFILE",
    "TMPDIR",
)
_PASSED_PREFIXES = ("WAYLAND_", "XDG_", "DBUS_", "LC_", "WSL", "DESKTOP_", "KDE_", "GNOME_", "XAUTH")


def find_browser_command(
    url: str, env: Mapping[str, str], workspace: Path, platform: str = sys.platform
) -> list[str] | None:
    """Return the command that opens `url`; None if no program outside the workspace can.

    Raises `SaktiError` unless the address is http, https or mailto.
    """
    checked = parse_address(url)
    if checked is None:
        raise SaktiError("Only http, https and mailto links are opened.", title="Link")
    for name, *arguments in _OPENERS.get(platform, _LINUX_OPENERS):
        if program := find_program(name, workspace, env.get("PATH")):
            return [program, *arguments, checked]
    return None


def make_browser_environment(env: Mapping[str, str], workspace: Path) -> dict[str, str]:
    """Return `env` for a program that opens pages, without model keys or the workspace in PATH."""
    allowed = {k: v for k, v in env.items() if k in _PASSED_VARIABLES or k.startswith(_PASSED_PREFIXES)}
    return build_safe_environment(allowed, workspace)


def open_address(url: str, env: Mapping[str, str], workspace: Path) -> bool:
    """Open `url`; False if no program can. Raises `SaktiError` as `find_browser_command`."""
    argv = find_browser_command(url, env, workspace)
    if argv is None:
        return False
    subprocess.Popen(
        argv,
        env=make_browser_environment(env, workspace),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return True


LONG_TURN_S = 10.0  # seconds after which the end of a turn is worth a notification
BELL = "\x07"


def make_notification(how: str, text: str) -> str:
    """Return the control sequence for a notification; `text` is sanitised and cannot end it early."""
    if how == "off":
        return ""
    return f"\x1b]9;sakti: {to_one_line(text, 120)}{BELL}{BELL}" if how == "desktop" else BELL


class Notifier:
    """Notifies only when the terminal has reported that it lost the focus (`focused`).

    `write` sends a control sequence to the terminal.
    """

    def __init__(self, session: Session, focused: Callable[[], bool], write: Callable[[str], None]) -> None:
        self._session, self._focused, self._write = session, focused, write
        self._turn_start: float | None = None

    def begin_turn(self) -> None:
        if self._turn_start is None:
            self._turn_start = self._session.workspace.clock.monotonic()

    def end_turn(self, text: str) -> None:
        """Notify if the turn took long."""
        began, self._turn_start = self._turn_start, None
        if began is not None and self._session.workspace.clock.monotonic() - began > LONG_TURN_S:
            self.notify(text)

    def notify(self, text: str) -> None:
        """Notify the user unless the terminal has the focus."""
        if not self._focused() and (written := make_notification(self._session.workspace.config.ui.notify, text)):
            self._write(written)
