"""`sakti bench`: commands that check sakti itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from sakti.cli import common

app = typer.Typer(help="Check sakti itself.", no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.callback()
def group() -> None:
    """Check sakti itself: exit 0 fine, 1 failed, 2 wrong usage or nothing found."""


@app.command()
def golden(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Files or folders of vectors.")],
    json_: Json = False,
) -> None:
    """Check pure functions and the task graph against vectors of inputs and outputs."""
    from dataclasses import asdict

    from sakti.bench import golden as bench

    found = [f for f in bench.files(paths) if bench.cases(f)]
    if not found:
        common.fail("no vectors were found there: they are JSON files with a list of cases.", common.USAGE)
    with common.plain_errors():
        report = asyncio.run(bench.check(found))
    if json_:
        common.say_json({
            "passed": report.passed, "total": report.total, "functions": [asdict(f) for f in report.functions],
            "unknown": report.unknown,
        })
    else:
        for f in report.functions:
            failed = f"   failed: {', '.join(f.failed_ids)}" if f.failed_ids else ""
            common.say(f"{f.file:<26} {f.fn:<34} {f.passed:>4} / {f.total}{failed}")
        for name in report.unknown:
            common.say(f"unknown: {name}")
        common.say(f"{report.passed} of {report.total} passed")
    raise SystemExit(common.OK if report.ok else common.FAILED)
