"""`sakti db`: the database file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sakti.cli import common

app = typer.Typer(
    help="The database: check, recover, search index, statistics, backup, purge.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.command()
def check(json_: Json = False) -> None:
    """Look for damage, mend the search index; exit 1 when something is left. Works on any file, sound or not."""
    from dataclasses import asdict

    from sakti.store import inspection, upkeep

    with common.plain_errors():
        path = common.database_path()
        findings = inspection.inspect(path)
        if any(f.mendable and not f.ok for f in findings) and all(f.ok for f in findings if not f.mendable):
            findings = common.with_store(upkeep.check)
    if json_:
        common.say_json({"ok": all(f.ok for f in findings), "findings": [asdict(f) for f in findings]})
    else:
        for f in findings:
            common.say(
                f"{'✓' if f.ok else '✗'} {f.name}: {f.detail}" + (f"\n  {f.mend}" if f.mend and not f.ok else "")
            )
    raise SystemExit(common.OK if all(f.ok for f in findings) else common.FAILED)


@app.command()
def recover(json_: Json = False) -> None:
    """Copy what can still be read of a damaged database into a new one; the damaged file is kept beside it."""
    from dataclasses import asdict

    from sakti.core.clock import SystemClock
    from sakti.store import recovery

    with common.plain_errors():
        found = recovery.recover(common.database_path(), SystemClock())
    if json_:
        common.say_json({**asdict(found), "path": str(found.path), "kept": str(found.kept), "lost": found.lost})
        return
    for table, (came, lost) in found.rows.items():
        if came or lost:
            common.say(
                f"{table:<22} {came:>9,} {'row' if came == 1 else 'rows'}"
                + (f", {lost:,} could not be read" if lost else "")
            )
    for line in found.repaired:
        common.say(line)
    if not found.rows:
        common.say("Nothing in the file could be read: the new database is empty.")
    common.say(f"The new database is {found.path}; the damaged file is kept as {found.kept}.")
    for copy in found.copies:
        common.say(f"There is also a copy: {copy}")


@app.command()
def stats(json_: Json = False) -> None:
    """How much is in it."""
    from sakti.store import maintenance

    values = common.with_store(lambda s: s.read(maintenance.stats, s.path))
    if json_:
        common.say_json(values)
    else:
        for name, value in values.items():
            common.say(f"{name.replace('_', ' '):<20} {value:,}" if isinstance(value, int) else f"{name:<20} {value}")


@app.command("rebuild-index")
def rebuild_index(json_: Json = False) -> None:
    """Make the search index anew."""
    from sakti.store import upkeep

    done = common.with_store(upkeep.rebuild_index)
    if json_:
        common.say_json(done)
    else:
        common.say(
            f"{common.counted(done['texts'], 'text')} indexed"
            + (f", {done['added']:,} {'was' if done['added'] == 1 else 'were'} missing" if done["added"] else "")
        )


@app.command()
def optimize(json_: Json = False) -> None:
    """Merge the search index, so that searches are faster."""
    from sakti.store import maintenance, upkeep

    async def work(store: Any) -> tuple[int, int]:
        before = await store.read(maintenance.stats, store.path)
        await upkeep.optimize(store)
        return before["bytes"], (await store.read(maintenance.stats, store.path))["bytes"]

    before, after = common.with_store(work)
    if json_:
        common.say_json({"bytes_before": before, "bytes_after": after})
    else:
        common.say(f"The search index is merged ({before:,} → {after:,} bytes).")


@app.command()
def backup(
    target: Annotated[Path | None, typer.Argument(help="File to write; beside the database by default.")] = None,
) -> None:
    """Copy the database, also while it is in use."""
    from sakti.store import maintenance

    async def work(store: Any) -> Path:
        name = f"{store.path.name}.backup-{time.strftime('%Y%m%d-%H%M%S')}"
        return await store.read(maintenance.backup, target or store.path.with_name(name))

    common.say(str(common.with_store(work)))


@app.command()
def purge(
    days: Annotated[int, typer.Option("--days", help="Only what was deleted at least so many days ago.", min=0)] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    keep_copies: Annotated[bool, typer.Option("--keep-copies", help="Leave copies of the database alone.")] = False,
    json_: Json = False,
) -> None:
    """Remove deleted threads and tasks for good, of all workspaces, with all that was taken from them: drafts, prompts,
    lines of logs, copies of the database. Tasks that were worked on in a thread, its forks and the workspace's working
    memory stay. Without --yes it only says what would go."""
    from sakti.agent import removal

    before = int(time.time() * 1000) - days * 86_400_000
    found = common.with_store(lambda store: removal.purge(store, before=before, do=yes, keep_copies=keep_copies))
    told = removal.wipe_free_space(found) if yes else ""
    if json_:
        common.say_json({"removed": yes, **found.as_json(), "left": told})
        return
    for line in found.in_words():
        common.say(f"{'removed' if yes else 'would go'}  {line}")
    if found.empty:
        common.say("Nothing is deleted.")
    elif not yes:
        common.say("Nothing was removed: --yes removes it for good.")
    if told:
        common.say(told)


@app.command()
def vacuum(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json_: Json = False,
) -> None:
    """Write the file anew, as small as what it holds; nothing else may have it open."""
    from sakti.store import vacuuming

    with common.plain_errors():
        path = common.database_path()
        if not yes:
            if not sys.stdin.isatty():
                common.fail("this takes a while and as much room as the database twice: --yes does it.", common.USAGE)
            typer.confirm(f"Write {path} anew? No other sakti may use it meanwhile.", abort=True)
        before, after = vacuuming.vacuum(path)
    if json_:
        common.say_json({"bytes_before": before, "bytes_after": after})
    else:
        common.say(f"{path} was written anew ({before:,} → {after:,} bytes).")
