"""Install or print the scripts that complete lines in the user's shell."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sakti.actions.scope import Scope
from sakti.actions.spec import Action, action, arg
from sakti.actions.values import USAGE, Done, Refused, Text, Value
from sakti.cli.options import SHELLS

_SHELL = arg("shell", "bash, zsh or fish; the one that runs sakti by default.", default=None, choices=SHELLS)
# What loads completions by itself, where the package is installed.
_BASH_COMPLETION = (
    "/usr/share/bash-completion/bash_completion",
    "/usr/local/share/bash-completion/bash_completion",
    "/opt/homebrew/share/bash-completion/bash_completion",
    "/usr/local/etc/profile.d/bash_completion.sh",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
)


@action(_SHELL, shell="--install-completion", json=False)
async def install(scope: Scope, shell: str | None) -> Value:
    """Complete commands, options, choices, threads and tasks with Tab."""
    name = shell or running_shell(os.environ)
    path, text = place_of(name, os.environ), script(name)
    there = path.is_file() and path.read_text("utf-8", "replace") == text
    if not there:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        except OSError as e:
            raise Refused(f"{path} cannot be written: {e.strerror}. `sakti --show-completion {name}` prints it.") from e
    return Done(f"{'Installed already in' if there else 'Written to'} {_short(path)}: {_next_step(name, path)}.")


@action(_SHELL, shell="--show-completion", json=False)
async def show(scope: Scope, shell: str | None) -> Value:
    """Print the script that completes commands with Tab, for a place of your own."""
    return Text((script(shell or running_shell(os.environ)).removesuffix("\n"),))


ACTIONS: Mapping[str, Action] = {a.shell: a for a in (install, show)}


def script(shell: str) -> str:
    """Return the script of a shell. It runs the program at each Tab, so a new version needs no new one."""
    return (Path(__file__).with_name("completions") / f"sakti.{shell}").read_text("utf-8")


def place_of(shell: str, env: Mapping[str, str]) -> Path:
    """Return where a shell loads completions from; zsh has no place of the user's own, so its file is sourced."""
    data = Path(env.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    match shell:
        case "bash":
            own = env.get("BASH_COMPLETION_USER_DIR", "").split(":")[0]
            return Path(own or data / "bash-completion") / "completions" / "sakti"
        case "fish":
            return Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "fish/completions/sakti.fish"
        case _:
            return data / "sakti" / "completion.zsh"


def _next_step(shell: str, path: Path) -> str:
    """Say what is left to do for the user."""
    loaded = shell == "fish" or (shell == "bash" and any(Path(p).is_file() for p in _BASH_COMPLETION))
    start = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc" if shell == "zsh" else Path.home() / ".bashrc"
    said = start.read_text("utf-8", "replace") if start.is_file() else ""
    if loaded or str(path) in said or _short(path) in said:
        return f"open a new {shell}"
    return f"add the line `source {_short(path)}` to {_short(start)} and open a new {shell}"


def _short(path: Path) -> str:
    """Format a path as a shell takes it, from the home folder where it is in there."""
    home = str(Path.home())
    within = str(path).removeprefix(home)
    return f"~{shlex.quote(within)}" if within != str(path) and within[:1] == "/" else shlex.quote(str(path))


def running_shell(env: Mapping[str, str]) -> str:
    """Return the shell that started this program, else the user's own. Raises `Refused` for an unknown one."""
    found = [_parent(), Path(env.get("SHELL", "")).name]
    for name in found:
        if name in SHELLS:
            return name
    which = next((n for n in reversed(found) if n), "")
    what = f"{which} is not a shell that can be completed in" if which else "the shell is not known"
    raise Refused(f"{what}: write `sakti --install-completion bash`, zsh or fish.", code=USAGE)


def _parent() -> str:
    """Return the name of the program that started this one; empty where the system does not tell."""
    try:
        told = subprocess.run(
            ["ps", "-o", "comm=", "-p", str(os.getppid())], capture_output=True, text=True, check=False, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return Path(told.stdout.strip().removeprefix("-")).name
