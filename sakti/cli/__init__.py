"""The shell's side. Every command is thin and imports what it needs inside itself."""

from __future__ import annotations

import sys


def main() -> None:
    """The `sakti` program."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from sakti import __version__

        print(f"sakti {__version__}")
        return
    from sakti.cli.app import run_cli

    run_cli(sys.argv[1:])
