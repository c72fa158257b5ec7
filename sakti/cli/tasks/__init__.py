"""`sakti tasks`: the board from a shell. Exit code 1 when something is refused, 2 when it was called wrongly.

Agents and scripts call it often, so a question costs no more than its answer: the line is read by argparse, not by
typer (whose checks bring pydantic), and what only reads opens the database without an event loop.
"""

from __future__ import annotations

from sakti.cli.tasks import changes, files, questions
from sakti.cli.tasks.files import import_beads
from sakti.cli.tasks.line import COMMANDS, HELP, run

__all__ = ["COMMANDS", "HELP", "changes", "files", "import_beads", "questions", "run"]
