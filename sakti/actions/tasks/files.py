"""Declare the actions that write the board to files and read it from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from sakti.actions.spec import action, arg
from sakti.actions.tasks.arguments import AS
from sakti.actions.values import USAGE, Refused, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.streams import print_document, read_input
from sakti.core.text import counted, json_line

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.tasks.transfer import Imported

with lazy_imports:
    from sakti.tasks import transfer as task_transfer


@action(arg("path", "File to write (default: standard output).", metavar="FILE", kind="path", default=None),
        shell="tasks export", json=False)  # fmt: skip
async def export(scope: Scope, path: Path | None) -> Value | None:
    """Export all tasks as JSON Lines."""
    text = "".join(f"{json_line(line)}\n" for line in await scope.ask(task_transfer.export))
    if path is None:
        if text:
            print_document(text.removesuffix("\n"))
        return None
    try:
        path.write_text(text, "utf-8")
    except OSError as e:
        raise Refused(f"{path} cannot be written: {e.strerror}.") from e
    return None


@action(arg("path", "JSON Lines; - for standard input.", metavar="FILE", kind="path"), AS, shell="tasks import")
async def import_(scope: Scope, path: Path, as_: str | None) -> Value:
    """Import tasks of an export; a task that was not changed here gets its newer version."""
    if str(path) != "-" and path.exists() and not path.is_file():
        raise Refused(f"{path} is not a regular file.", code=USAGE)  # a device or a pipe may never end
    try:
        text = (read_input() if str(path) == "-" else path.read_bytes()).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise Refused(f"{path} cannot be read: {why}.", code=USAGE) from e
    return _describe(await scope.change(task_transfer.import_tasks, as_, task_transfer.split_lines(text)))


def _describe(done: Imported) -> Value:
    edges = counted(done.dependencies, "dependency", "dependencies")
    updated = f"{done.updated:,} replaced by newer versions; " if done.updated else ""
    were = "was" if done.known == 1 else "were"
    belong = "belongs" if done.elsewhere == 1 else "belong"
    others = f"skipped: {counted(done.elsewhere, 'task')} that {belong} to another workspace of this database"
    return Text(
        (
            *(f"skipped: {e.task} {e.type} {e.on}: {e.reason}" for e in done.left_out),
            *(f"skipped: {d.task}: {d.reason}" for d in done.differing),
            *[others] * bool(done.elsewhere),
            *(f"reopened: {epic}: it has open children" for epic in done.reopened),
            f"{counted(done.tasks, 'task')} and {edges}; {updated}{done.known:,} {were} already there",
        ),
        json={
            "success": True,
            "tasks": done.tasks,
            "dependencies": done.dependencies,
            "known": done.known,
            "updated": done.updated,
            "elsewhere": done.elsewhere,
            "differing": [to_builtins(d) for d in done.differing],
            "reopened": list(done.reopened),
            "leftOut": [to_builtins(e) for e in done.left_out],
        },
    )
