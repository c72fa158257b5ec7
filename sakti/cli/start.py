"""Open the chat or run a command, as a command line says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sakti.cli import common
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.cli import chat, complete, shell
    from sakti.cli import route as routing


def run_cli(argv: Sequence[str]) -> None:
    """Open the chat or run a command; ends in SystemExit with the exit code where that is not 0."""
    with common.plain_errors():
        try:
            _run(argv)
        finally:
            sys.stdout.flush()  # a reader that is gone (`| head`) is noticed here, not at the end of the program


def _run(argv: Sequence[str]) -> None:
    if argv and argv[0] == "--complete":
        complete.answer(argv[1:])
        return
    try:
        asked = routing.route(argv, shell.subject)
    except routing.UsageError as e:
        common.fail(str(e), common.USAGE)
    if isinstance(asked, routing.Command):
        shell.run(asked.argv)
    else:
        chat.open_chat(asked)
