"""The shell's side. Every command is thin and imports what it needs inside itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence

COMMANDS = (
    "run",
    "search",
    "threads",
    "tour",
    "tasks",
    "import",
    "memory",
    "bench",
    "db",
    "local",
    "config",
    "models",
    "doctor",
)


def main() -> None:
    """The `sakti` program."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from sakti import __version__

        print(f"sakti {__version__}")
        return
    run_cli(sys.argv[1:])


def run_cli(argv: Sequence[str]) -> None:
    """Open the chat or run a command; ends in SystemExit with the exit code."""
    from sakti.cli import common
    from sakti.cli.route import Command, UsageError, route

    try:
        asked = route(argv, COMMANDS)
    except UsageError as e:
        common.fail(str(e), common.USAGE)
    if isinstance(asked, Command) and asked.argv[0] in ("tasks", "import"):
        from sakti.cli import shell

        shell.run(asked.argv)
    elif isinstance(asked, Command):
        from sakti.cli.app import run_command

        run_command(asked.argv)
    else:
        from sakti.cli.chat import open_chat

        open_chat(asked)
