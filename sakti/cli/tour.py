"""`sakti tour`."""

from __future__ import annotations

from sakti.cli import common


def show() -> None:
    """Two minutes with sakti, without a model: answers are played from a script, tools and memory are real."""
    import os
    import sys
    import tempfile
    from pathlib import Path

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        common.fail("the tour needs a terminal.", common.USAGE)
    common.log_to_file()
    from sakti.agent.tour import FIRST, tour_session
    from sakti.cli.chat import talk

    with common.plain_errors(), tempfile.TemporaryDirectory(prefix="sakti-tour-") as folder:
        raise SystemExit(talk(tour_session(Path(folder), env=dict(os.environ)), prompt=FIRST))
