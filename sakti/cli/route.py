"""Reading a command line before typer does.

The chat's own line is read here, without typer, so that the prompt is on the screen sooner; a prompt may stand where
a command would.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


class UsageError(Exception):
    """A command line that means nothing; the text says what to write instead."""


@dataclass(slots=True)
class Chat:
    """`sakti` without a command. `pick` shows the threads first."""

    prompt: str | None = None
    continue_last: bool = False
    resume: str | None = None
    pick: bool = False
    model: str | None = None
    approval: str | None = None
    mode: str | None = None
    overrides: list[str] = field(default_factory=list[str])
    debug: bool = False
    plain: bool = False
    no_save: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A line for typer: a command and its arguments, or a call for help."""

    argv: list[str]


_VALUES = {
    "-m": "model",
    "--model": "model",
    "--approval": "approval",
    "--mode": "mode",
    "-o": "overrides",
    "--set": "overrides",
}
_FLAGS = {
    "-c": "continue_last",
    "--continue": "continue_last",
    "--debug": "debug",
    "--plain": "plain",
    "--no-save": "no_save",
}


def route(argv: Sequence[str], commands: Collection[str]) -> Chat | Command:
    """What `argv` asks for. Raises `UsageError`.

    `sakti "fix the bug"` and `sakti -- fix the bug` start the chat with that prompt; `-p TEXT` is `run TEXT`; a bare
    `-r` picks a thread, `-r NAME` resumes one; a single unknown word is an error with suggestions.
    """
    chat, passed, i = Chat(), list[str](), 0
    while i < len(argv):
        word, following = argv[i], argv[i + 1 : i + 2]
        name, sep, value = word.partition("=")
        if word == "--":
            chat.prompt = " ".join(argv[i + 1 :]) or None
            return chat
        if word in ("-h", "--help"):
            return Command([word])
        if word in ("-p", "--print"):
            return Command(["run", *passed, *argv[i + 1 :]])
        if word in ("-r", "--resume"):
            chat.pick = not following or following[0].startswith("-")
            chat.resume = None if chat.pick else following[0]
            i += 1 if chat.pick else 2
        elif name == "--resume" and sep:
            chat.resume = value
            i += 1
        elif word in _VALUES or (name in _VALUES and sep):
            if not sep and not following:
                raise UsageError(f"{word} needs a value.")
            _set(
                chat, _VALUES[word if word in _VALUES else name], value if sep and word not in _VALUES else following[0]
            )
            passed += argv[i : i + (1 if sep and word not in _VALUES else 2)]
            i += 1 if sep and word not in _VALUES else 2
        elif word in _FLAGS:
            setattr(chat, _FLAGS[word], True)
            passed.append(word)
            i += 1
        elif word.startswith("-") and len(word) > 1:
            raise UsageError(f"There is no option {word}. `sakti --help` shows them.")
        elif word in commands:
            if passed or chat.resume or chat.pick:
                raise UsageError(f"Options stand behind the command: `sakti {word} {' '.join(passed)}`.")
            return Command(list(argv[i:]))
        elif any(c.isspace() for c in word) and len(argv) == i + 1:
            chat.prompt = word
            return chat
        else:
            near = difflib.get_close_matches(word, commands, 3)
            hint = f"Did you mean `sakti {near[0]}`?" if near else "`sakti --help` shows the commands."
            raise UsageError(
                f"There is no command {word!r}. {hint} To start with a prompt, write `sakti -- {' '.join(argv[i:])}`."
            )
    return chat


def _set(chat: Chat, name: str, value: str) -> None:
    if name == "overrides":
        chat.overrides.append(value)
    else:
        setattr(chat, name, value)
