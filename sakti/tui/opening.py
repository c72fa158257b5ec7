"""Opening an address with what the system has for it. Nothing of it reaches this terminal."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping

from sakti.core.errors import SaktiError
from sakti.tui.transcript.links import address

_OPENERS = {"darwin": ("open",), "win32": ("rundll32", "url.dll,FileProtocolHandler")}
_KEPT = ("PATH", "HOME", "USER", "LANG", "DISPLAY", "BROWSER", "SHELL", "SYSTEMROOT", "USERPROFILE", "TMPDIR")
_KEPT_BEGIN = ("WAYLAND_", "XDG_", "DBUS_", "LC_", "WSL", "DESKTOP_", "KDE_", "GNOME_", "XAUTH")


def command(url: str, platform: str = sys.platform) -> list[str] | None:
    """What opens `url` (http, https or mailto); None where the system has nothing for it. Raises `SaktiError` for an
    address of another kind."""
    checked = address(url)
    if checked is None:
        raise SaktiError("Only http, https and mailto links are opened.", title="Link")
    found = _OPENERS.get(platform, ("xdg-open",) if shutil.which("xdg-open") else ("wslview",))
    return [*found, checked] if shutil.which(found[0]) else None


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """What a program that shows pages needs of `env`: no key of a model is in it."""
    return {k: v for k, v in env.items() if k in _KEPT or k.startswith(_KEPT_BEGIN)}


def open_address(url: str, env: Mapping[str, str]) -> bool:
    """Open `url`; false where the system has nothing for it. Raises `SaktiError` as `command`."""
    argv = command(url)
    if argv is None:
        return False
    subprocess.Popen(
        argv,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return True
