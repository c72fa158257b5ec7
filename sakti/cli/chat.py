"""`sakti` alone: the chat in the terminal."""

from __future__ import annotations

import os
import sys

from sakti.cli import common
from sakti.cli.route import Chat

DUMB = "TERM is dumb, so this is the chat line by line, as with --plain"


def open_chat(asked: Chat) -> None:
    """Show the TUI, or the chat line by line, until the user leaves; ends in SystemExit with its exit code."""
    with common.plain_errors():
        chosen = common.options(
            overrides=asked.overrides,
            model=asked.model,
            approval=asked.approval,
            mode=asked.mode,
            resume=asked.resume,
            continue_last=asked.continue_last,
        )
        common.log_to_file(debug=asked.debug)
        from sakti.agent.session import Session

        dumb = os.environ.get("TERM") == "dumb" and sys.stdin.isatty()
        if asked.plain or chosen.config.ui.plain or dumb:
            from sakti.plain import chat

            why = "" if asked.plain or chosen.config.ui.plain else DUMB
            raise SystemExit(chat.run(Session(chosen), prompt=asked.prompt, pick_thread=asked.pick, why=why))
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            common.fail("the chat needs a terminal. Without one, use `sakti run PROMPT`.", common.USAGE)
        from sakti.tui.run import run

        raise SystemExit(run(Session(chosen), prompt=asked.prompt, pick_thread=asked.pick))
