"""Recognize commands that need a network, and the hosts that they name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from sakti.agent.judge import git
from sakti.agent.judge.programs import ProgramEntry, find_program, is_met
from sakti.core import hosts

_VERSION = (["--version"], ["--help"], ["version"])


def needs_network(argv: Sequence[str]) -> bool:
    """Return whether a command fetches or sends; what builds and may fetch on the way does not count."""
    if not argv:
        return False
    if tuple(argv[1:3]) == ("-m", "pip"):
        argv = argv[2:]
    program, words = _find_entry(argv)
    return is_met(program.network, words) and not (program.network is True and list(words) in _VERSION)


def _find_entry(argv: Sequence[str]) -> tuple[ProgramEntry, Sequence[str]]:
    """Return the entry of a program or a subcommand of git, and its arguments."""
    name = argv[0].rpartition("/")[2]
    return git.find_command(argv) if name == "git" else (find_program(name), argv[1:])


def hosts_of(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the hosts that a command names as http(s) addresses; None if it may reach others."""
    program, words = _find_entry(argv)
    if program.other_hosts is None or any(w.partition("=")[0] in program.other_hosts for w in words):
        return None
    named = [_host(w) for w in words if "://" in w]
    return None if None in named else tuple(dict.fromkeys(h for h in named if h is not None)) or None


_LOCAL = re.compile(r"(?:https?://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::\d+)?(?:[/?#].*)?", re.I)


def is_local(text: str) -> bool:
    """Return whether a word is an address, or a host, of the machine that it is used on."""
    return _LOCAL.fullmatch(text) is not None


def stays_local(argv: Sequence[str]) -> bool:
    """Return whether a command that names its hosts needs only the loopback interface.

    A mistake has no effect but an error: what runs inside of the sandbox reaches nothing else.
    """
    program, words = _find_entry(argv)
    if program.other_hosts is None:
        return False
    return any(map(is_local, words)) and not any("://" in w and not is_local(w) for w in words)


def _host(url: str) -> str | None:
    """Return the host of a plain http(s) address, with an unusual port."""
    if not url.startswith(("http://", "https://")):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    host = hosts.read(parts.hostname or "")
    if host is None or "*" in host.name:
        return None
    return host.name if port in (None, *hosts.USUAL_PORTS) else f"{host.name}:{port}"
