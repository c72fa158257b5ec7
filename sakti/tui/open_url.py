"""Opening an address with what the system has for it. Nothing of it reaches this terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sakti.core.errors import SaktiError
from sakti.core.resources import find_program, safe_environment
from sakti.tui.transcript.links import address

_OPENERS = {"darwin": (("open",),), "win32": (("rundll32", "url.dll,FileProtocolHandler"),)}
_OTHERS = (("xdg-open",), ("wslview",))
_KEPT = ("PATH", "HOME", "USER", "LANG", "DISPLAY", "BROWSER", "SHELL", "SYSTEMROOT", "USERPROFILE", "TMPDIR")
_KEPT_BEGIN = ("WAYLAND_", "XDG_", "DBUS_", "LC_", "WSL", "DESKTOP_", "KDE_", "GNOME_", "XAUTH")


def command(url: str, env: Mapping[str, str], workspace: Path, platform: str = sys.platform) -> list[str] | None:
    """Return the command that opens `url`; None if no program outside the workspace can.

    Raises `SaktiError` unless the address is http, https or mailto.
    """
    checked = address(url)
    if checked is None:
        raise SaktiError("Only http, https and mailto links are opened.", title="Link")
    for name, *arguments in _OPENERS.get(platform, _OTHERS):
        if program := find_program(name, workspace, env.get("PATH")):
            return [program, *arguments, checked]
    return None


def environment(env: Mapping[str, str], workspace: Path) -> dict[str, str]:
    """Return what a program that shows pages needs of `env`: no key of a model, no workspace in its PATH."""
    allowed = {k: v for k, v in env.items() if k in _KEPT or k.startswith(_KEPT_BEGIN)}
    return safe_environment(allowed, workspace)


def open_address(url: str, env: Mapping[str, str], workspace: Path) -> bool:
    """Open `url`; false where the system has nothing for it. Raises `SaktiError` as `command`."""
    argv = command(url, env, workspace)
    if argv is None:
        return False
    subprocess.Popen(
        argv,
        env=environment(env, workspace),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return True
