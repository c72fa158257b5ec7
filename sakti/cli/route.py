"""Read a command line: is it the chat's own, or a command's?

A prompt may stand where a command would. Nothing of a command is imported for a line that opens the chat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from sakti.actions import reader
from sakti.actions.reader import UsageError
from sakti.cli.options import CHAT, INSTALL, PRINT, SHOW
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.cli import shell


class Chat(Struct):
    """`sakti` without a command. `resume`: "" shows the threads first."""

    prompt: str | None = None
    continue_last: bool = False
    resume: str | None = None
    model: str | None = None
    approval: str | None = None
    mode: str | None = None
    overrides: list[str] = field(default_factory=list[str])
    debug: bool = False
    added: list[str] = field(default_factory=list[str])
    plain: bool = False
    no_save: bool = False


class Command(Struct, frozen=True):
    """A command and its arguments, or a call for help or completion."""

    argv: list[str]


def route(argv: Sequence[str], is_command: Callable[[str], object]) -> Chat | Command:
    """Return what `argv` asks for. Raises `UsageError`.

    `sakti "fix the bug"` and `sakti -- fix the bug` start the chat with that prompt; `-p TEXT` is `run TEXT`; a bare
    `-r` picks a thread, `-r NAME` resumes one; a single unknown word is an error with suggestions.
    """
    found: dict[str, Any] = {}
    prompt: str | None = None
    i = 0
    while i < len(argv):
        word = argv[i]
        if word == "--":
            prompt = " ".join(argv[i + 1 :]) or None
            break
        if word in reader.HELP:
            return Command([word])
        if (name := word.partition("=")[0]) in (*INSTALL.flags, *SHOW.flags):
            return Command([name, *([word[len(name) + 1 :]] if "=" in word else []), *argv[i + 1 :]])
        if word in PRINT.flags:
            return Command(["run", *argv[:i], *argv[i + 1 :]])
        if word.startswith("-") and len(word) > 1:
            i += reader.take(CHAT, argv, i, found, "sakti")
        elif is_command(word):
            if i:
                raise UsageError(f"Write options after the command: `sakti {word} {' '.join(argv[:i])}`.")
            return Command(list(argv))
        elif any(c.isspace() for c in word) and len(argv) == i + 1:
            prompt = word
            break
        else:
            start = f"To start with a prompt, write `sakti -- {' '.join(argv[i:])}`."
            raise UsageError(f"{shell.unknown(word)} {start}")
    return Chat(prompt, **found)
