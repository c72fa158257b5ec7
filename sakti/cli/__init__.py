"""Run sakti from a shell. `--version` is handled here, before any other import."""

from __future__ import annotations

import sys

from sakti.core.streams import checked_output, prepare_streams, require_letters
from sakti.version import __version__


def main() -> None:
    """Run the `sakti` program."""
    require_letters()
    prepare_streams()
    with checked_output():
        if sys.argv[1:] in (["--version"], ["-V"]):
            print(f"sakti {__version__}")
            return
        from sakti.cli.start import run_cli

        run_cli(sys.argv[1:])
