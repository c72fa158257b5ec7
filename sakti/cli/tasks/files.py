"""The commands of `sakti tasks` that write and read files, and `sakti import beads`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from sakti.cli import common
from sakti.cli.tasks.line import AS, JSON, arg, command
from sakti.cli.tasks.output import ask, change, refuse
from sakti.core.errors import TaskError

GONE = 20  # issues that are named


@command("export", arg("path", metavar="FILE", nargs="?", type=Path, help="Standard output where none is given."))
def export(path: Path | None) -> None:
    """All tasks as JSON Lines."""
    from sakti.core.text import json_line
    from sakti.tasks import transfer

    text = "".join(f"{json_line(line)}\n" for line in ask(transfer.export, False))
    if path is None:
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, "utf-8")
    except OSError as e:
        common.fail(f"{path} cannot be written: {e.strerror}.")


@command("import", arg("path", metavar="FILE", type=Path, help="JSON Lines; - is standard input."), AS, JSON)
def import_(path: Path, as_: str | None, json_: bool) -> None:
    """Bring in tasks of an export; what is there already stays as it is."""
    from sakti.tasks import transfer

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        common.fail(f"{path} cannot be read: {e}.", common.USAGE)
    done = change(transfer.bring_in, json_, as_, transfer.split_lines(text))
    if json_:
        values = {"tasks": done.tasks, "dependencies": done.dependencies, "known": done.known}
        common.say_json({"success": True, **values, "leftOut": [dataclasses.asdict(e) for e in done.left_out]})
    else:
        for edge in done.left_out:
            common.say(f"left out: {edge.task} {edge.type} {edge.on}: {edge.reason}")
        tasks, edges = common.counted(done.tasks, "task"), _dependencies(done.dependencies)
        were = "was" if done.known == 1 else "were"
        common.say(f"{tasks} and {edges}; {done.known:,} {were} there already")


def import_beads(path: Path, *, dry_run: bool, as_: str | None, json_: bool) -> None:
    """`sakti import beads`."""
    from sakti.core.clock import SystemClock
    from sakti.core.ids import TimeIds
    from sakti.tasks import beads

    try:
        issues = beads.read(path)
    except TaskError as e:
        refuse(e, json_, common.USAGE if e.code == "no_input" else common.FAILED)
    try:
        report = change(beads.bring_in, json_, as_, TimeIds(SystemClock()), issues, dry_run)
    except beads.DryRun as e:
        report = e.report
    if json_:
        common.say_json({"success": True, "dryRun": dry_run, **beads.describe(report)})
        return
    for name, why in (*report.skipped, *report.notes):
        common.say(f"{name}: {why}")
    for cycle in report.cycles:
        common.say(f"left out, it would be a cycle: {' → '.join(cycle)}")
    if report.gone:
        some = ", ".join(report.gone[:GONE]) + (", …" if len(report.gone) > GONE else "")
        common.say(f"{len(report.gone)} no longer in beads, kept here: {some}")
    begin = "Would be: " if dry_run else ""
    common.say(
        f"{begin}{report.imported} imported, {report.updated} updated, {report.unchanged} unchanged,"
        f" {len(report.skipped)} skipped; {_dependencies(report.dependencies)},"
        f" {common.counted(len(report.cycles), 'cycle')} refused"
    )


def _dependencies(count: int) -> str:
    return common.counted(count, "dependency", "dependencies")
