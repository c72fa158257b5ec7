"""`sakti` alone: the chat in the terminal."""

from __future__ import annotations

import sys

from sakti.cli import common
from sakti.cli.route import Chat


def open_chat(asked: Chat) -> None:
    """Show the TUI until the user leaves; ends in SystemExit with its exit code."""
    with common.plain_errors():
        chosen = common.options(
            overrides=asked.overrides,
            model=asked.model,
            approval=asked.approval,
            mode=asked.mode,
            resume=asked.resume,
            continue_last=asked.continue_last,
        )
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            common.fail("the chat needs a terminal. Without one, use `sakti run PROMPT`.", common.USAGE)
        common.log_to_file(debug=asked.debug)
        from sakti.agent.session import Session
        from sakti.tui.run import run

        raise SystemExit(run(Session(chosen), prompt=asked.prompt, pick_thread=asked.pick))
