"""Declare `sakti import`: tasks of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sakti.actions.spec import MEMORY, Group, action, arg, flag
from sakti.actions.tasks.arguments import AS
from sakti.actions.values import Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import counted

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.core import clock, ids
    from sakti.tasks import beads as beads_file

GROUP = Group("import", "Import from other tools.", MEMORY)
GONE = 20  # issues that are named
WHERE = "A repository, its .beads folder, an issues.jsonl file or the database."


@action(arg("path", WHERE, kind="path"), flag("--dry-run", help="Only show what would be done."), AS,
        shell="import beads")  # fmt: skip
async def beads(scope: Scope, path: Path, dry_run: bool, as_: str | None) -> Value:
    """Import tasks of beads (bd). Run it again to import changes. Exit 1: refused, 2: nothing to import."""
    issues = beads_file.read(path)
    try:
        report = await scope.change(beads_file.import_issues, as_, ids.TimeIds(clock.SystemClock()), issues, dry_run)
    except beads_file.DryRun as e:
        report = e.report
    out = [f"{name}: {why}" for name, why in (*report.skipped, *report.notes)]
    out += [f"skipped, it would close a cycle: {' → '.join(cycle)}" for cycle in report.cycles]
    if report.gone:
        some = ", ".join(report.gone[:GONE]) + (", …" if len(report.gone) > GONE else "")
        out.append(f"{len(report.gone)} no longer in beads, kept here: {some}")
    out.append(
        f"{'Would be: ' if dry_run else ''}{report.imported} imported, {report.updated} updated,"
        f" {report.unchanged} unchanged, {len(report.skipped)} skipped;"
        f" {counted(report.dependencies, 'dependency', 'dependencies')},"
        f" {counted(len(report.cycles), 'cycle')} refused"
    )
    taken = report.imported + report.updated + report.unchanged
    told = {"success": True, "dryRun": dry_run, **beads_file.describe(report)}
    return Text(tuple(out), json=told, exit=2 if report.skipped and not taken else 0)
