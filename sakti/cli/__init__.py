"""The shell's side: one line is the chat's, any other a command's. What is slow to import is imported when used."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    """The `sakti` program."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from sakti.version import __version__

        print(f"sakti {__version__}")
        return
    run_cli(sys.argv[1:])


def run_cli(argv: Sequence[str]) -> None:
    """Open the chat or run a command; ends in SystemExit with the exit code where that is not 0."""
    from sakti.cli import common

    with common.plain_errors():
        try:
            _run(argv)
        finally:
            sys.stdout.flush()  # a reader that is gone (`| head`) is noticed here, not at the end of the program


def _run(argv: Sequence[str]) -> None:
    if argv and argv[0] == "--complete":
        from sakti.cli import complete

        complete.answer(argv[1:])
        return
    from sakti.cli import common, shell
    from sakti.cli.route import Command, UsageError, route

    try:
        asked = route(argv, shell.subject)
    except UsageError as e:
        common.fail(str(e), common.USAGE)
    if isinstance(asked, Command):
        shell.run(asked.argv)
    else:
        from sakti.cli.chat import open_chat

        open_chat(asked)
