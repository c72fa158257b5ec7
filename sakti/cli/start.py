"""Parse a command line into a chat, one prompt, a command or completion, and run it.

A line that opens the chat or asks one prompt is read here, without typer and without the commands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from sakti.actions.spec import UsageError
from sakti.cli import common
from sakti.cli.options import CHAT, HELP, INSTALL, PRINT, SHOW
from sakti.core.lazy import lazy_imports
from sakti.core.text import quote

with lazy_imports:
    from sakti.cli import app, completion, option_reader, shell
    from sakti.cli import run as run_command


class ChatRequest(Struct, frozen=True):
    """`sakti` without a command: its initial prompt, and the values of its options by name."""

    prompt: str | None
    values: dict[str, Any]


class PromptRequest(Struct, frozen=True):
    """`sakti -p PROMPT`: the values of the arguments of `sakti run`."""

    values: dict[str, Any]


class CommandRequest(Struct, frozen=True):
    """A command with its arguments, or the program's help."""

    argv: list[str]


class CompletionRequest(Struct, frozen=True):
    """Install or print the completion script of `shell`; "" is the shell of the user."""

    install: bool
    shell: str


Request: TypeAlias = ChatRequest | PromptRequest | CommandRequest | CompletionRequest


def route(argv: Sequence[str], is_command: Callable[[str], object]) -> Request:
    """Return the request of `argv`. Raises `UsageError`.

    `sakti "fix the bug"` and `sakti -- fix the bug` start the chat with that prompt; `-p TEXT` is `run TEXT`; `-r`
    alone picks a thread, `-r NAME` resumes one; a single unknown word is an error with suggestions.
    """
    if argv and is_command(argv[0]):
        return CommandRequest(list(argv))
    end = argv.index("--") if "--" in argv else len(argv)
    head, tail = argv[:end], argv[end + 1 :]
    if printed := [i for i, word in enumerate(head) if word in PRINT.flags]:
        return _route_prompt(head, tail, printed[0])
    if HELP & set(head):
        return CommandRequest(["--help"])
    values, words = option_reader.read((*CHAT, INSTALL, SHOW), head, "sakti")
    install, show = values.pop("install_completion"), values.pop("show_completion")
    if install is not None or show is not None:
        return CompletionRequest(install is not None, install or show or "")
    return ChatRequest(_read_prompt(words, tail, is_command), values)


def _route_prompt(head: Sequence[str], tail: Sequence[str], at: int) -> Request:
    """Return the request of `sakti -p`; the flag is at index `at`. Raises `UsageError`."""
    if HELP & set(head):
        return CommandRequest(["run", "--help"])
    values, words = option_reader.read(run_command.run.args, [*head[:at], *head[at + 1 :]], "sakti -p")
    if len(words := [*words, *tail]) > 1:
        raise UsageError(f"{quote(words[1])} is not expected: write the prompt as one argument, in quotes.")
    return PromptRequest({**values, "prompt": "".join(words)})


def _read_prompt(words: list[str], tail: Sequence[str], is_command: Callable[[str], object]) -> str | None:
    """Return the initial prompt of the chat: one quoted argument, or all words after `--`."""
    if not words:
        return " ".join(tail) or None
    if is_command(words[0]):
        command = words[0]
        hint = f"`sakti {command} --help` shows its options, which go after it."
        raise UsageError(f"Options of the chat go before {quote(command)}: {hint}")
    if len(words) == 1 and not tail and any(c.isspace() for c in words[0]):
        return words[0]
    start = f"To start with a prompt, write `sakti -- {' '.join([*words, *tail])}`."
    raise UsageError(f"{shell.explain_unknown(words[0])} {start}")


def run_cli(argv: Sequence[str]) -> None:
    """Open the chat or run a command; raises SystemExit if the exit code is not 0."""
    with common.plain_errors():
        _run(argv)


def _run(argv: Sequence[str]) -> None:
    if "_SAKTI_COMPLETE" in os.environ:
        completion.complete()
        return
    try:
        request = route(argv, shell.find_subject)
    except UsageError as e:
        common.fail(str(e), common.USAGE)
    match request:
        case ChatRequest(prompt, values):
            run_command.open_chat(prompt, **values)
        case PromptRequest(values):
            shell.execute(run_command.run, values)
        case CommandRequest(words):
            if command := app.read_command(words):
                shell.execute(*command)
        case CompletionRequest(install, name):
            completion.install(name) if install else completion.show(name)
