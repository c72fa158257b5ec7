"""Open the chat or run a command, as a command line says."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sakti.cli import common
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.cli import app, chat, completion, shell
    from sakti.cli import route as routing
    from sakti.cli import run as run_command


def run_cli(argv: Sequence[str]) -> None:
    """Open the chat or run a command; ends in SystemExit with the exit code if that is not 0."""
    with common.plain_errors():
        _run(argv)


def _run(argv: Sequence[str]) -> None:
    if "_SAKTI_COMPLETE" in os.environ:
        completion.complete()
        return
    try:
        request = routing.route(argv, shell.subject)
    except routing.UsageError as e:
        common.fail(str(e), common.USAGE)
    match request:
        case routing.ChatRequest(prompt, values):
            chat.open_chat(prompt, **values)
        case routing.PromptRequest(values):
            shell.execute(run_command.run, values)
        case routing.CommandRequest(words):
            if command := app.read(words):
                shell.execute(*command)
        case routing.CompletionRequest(install, name):
            completion.install(name) if install else completion.show(name)
