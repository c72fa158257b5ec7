"""Declare `sakti db`: the database file."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from sakti.actions.scope import confirm, show_progress_bar
from sakti.actions.spec import UPKEEP, CommandGroup, action, arg, flag, option
from sakti.actions.values import USAGE, Done, Refused, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import format_count

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


with lazy_imports:
    from sakti.agent.threads import erasure as thread_purge
    from sakti.core import clock
    from sakti.store import archive_file, copies
    from sakti.store.maintenance import archiving, checks, recovery, upkeep

GROUP = CommandGroup("db", "Check, repair, back up and clean the database.", UPKEEP)
YES = flag("--yes", help="Do not ask for confirmation.")


def _describe_finding(finding: checks.Finding) -> str:
    line = f"{'✓' if finding.ok else '✗'} {finding.name}: {finding.detail}"
    return f"{line}\n  {finding.advice}" if finding.advice and not finding.ok else line


@action(shell="db check")
async def check(scope: Scope) -> Value:
    """Check for damage and repair the search index, even in a damaged file. Exit 1 if a problem remains."""
    findings = checks.inspect(scope.database)
    if any(f.is_repairable and not f.ok for f in findings) and all(f.ok for f in findings if not f.is_repairable):
        findings = scope.in_store(upkeep.check)
    ok = all(f.ok for f in findings)
    return Text(
        tuple(map(_describe_finding, findings)),
        json={"ok": ok, "findings": [to_builtins(f) for f in findings]},
        exit=int(not ok),
    )


@action(shell="db recover")
async def recover(scope: Scope) -> Value:
    """Copy every readable row of a damaged database into a new one; the damaged file is kept beside it."""
    recovered = recovery.recover(scope.database, clock.SystemClock())
    out = [
        f"{table:<22} {format_count(came, 'row'):>14}" + (f", {lost:,} could not be read" if lost else "")
        for table, (came, lost) in recovered.rows.items()
        if came or lost
    ]
    out += recovered.repaired
    if not recovered.rows:
        out.append("No row of the file could be read: the new database is empty.")
    out.append(f"The new database is {recovered.path}; the damaged file is now {recovered.damaged}.")
    out += [f"There is also a backup: {copy}" for copy in recovered.copies]
    return Text(
        tuple(out),
        json={
            "path": str(recovered.path),
            "kept": str(recovered.damaged),
            "rows": recovered.rows,
            "repaired": recovered.repaired,
            "lost": recovered.lost_rows,
        },
    )


@action(shell="db stats", needs="store")
async def stats(scope: Scope) -> Value:
    """Show how much the database holds."""
    values = await scope.store.read(upkeep.collect_stats, scope.store.path)
    lines = (
        f"{name.replace('_', ' '):<20} {value:,}" if isinstance(value, int) else f"{name:<20} {value}"
        for name, value in values.items()
    )
    return Text(tuple(lines), json=values)


@action(shell="db rebuild-index", needs="store")
async def rebuild_index(scope: Scope) -> Value:
    """Rebuild the search index."""
    done = await upkeep.rebuild_index(scope.store)
    missing = f", {format_count(done['added'], 'was', 'were')} missing" if done["added"] else ""
    return Done(f"{format_count(done['texts'], 'text')} indexed{missing}", json=done)


@action(shell="db optimize", needs="store")
async def optimize(scope: Scope) -> Value:
    """Merge the search index, which makes searches faster."""
    store = scope.store
    before = (await store.read(upkeep.collect_stats, store.path))["bytes"]
    await upkeep.optimize_indexes(store)
    after = (await store.read(upkeep.collect_stats, store.path))["bytes"]
    text = f"The search index is merged ({before:,} → {after:,} bytes)."
    return Done(text, json={"bytes_before": before, "bytes_after": after})


@action(
    arg("target", "File to write (default: beside the database).", kind="path", default=None),
    shell="db backup",
    chat="backup",
    hint="[FILE]",
    needs="store",
    json=False,
)
async def backup(scope: Scope, target: Path | None) -> Value:
    """Copy the database and its archive; safe while they are in use.

    In a chat whose database was removed or replaced, the copy also has the messages since then.
    """
    store = scope.store
    name = f"{store.path.name}.backup-{time.strftime('%Y%m%d-%H%M%S')}"
    written = await store.read(copies.backup, store.path, target or store.path.with_name(name))
    missing = [archive_file.MISSING] if await store.read(archive_file.is_missing) else []
    continuing = [f"Continue there with: SAKTI_DB={shlex.quote(str(written[0]))} sakti -c"] if store.not_saved else []
    return Text((*map(str, written), *missing, *continuing))


@action(
    option("--days", kind="whole", low=0, default=90, metavar="N", help="Only messages at least N days old."),
    shell="db archive",
    needs="store",
)
async def archive(scope: Scope, days: int) -> Value:
    """Move the text of old messages to a second file, where it can still be searched and opened.

    Only observed messages that are long enough and not linked to an open task are moved. The file is beside
    the database and its name ends in .archive. If this is interrupted, texts that were moved stay moved.
    """
    with show_progress_bar("archiving messages", "count") as show:
        before = scope.now() - days * 86_400_000
        done = await archiving.archive(scope.store, before=before, progress=show)
    text = (
        f"{format_count(done.messages, 'message')} moved to {done.path} ({done.bytes:,} bytes). Keep it beside"
        " the database; `sakti db vacuum` returns the space to the disk."
        if done.messages
        else f"No observed message older than {format_count(days, 'day')} can be moved: they are short, or belong to "
        "an open task."
    )
    return Done(text, json={"path": str(done.path), "messages": done.messages, "bytes": done.bytes,
                            "removed": done.removed})  # fmt: skip


@action(
    option("--days", kind="whole", low=0, default=0, metavar="N",
           help="Only items deleted at least this many days ago."),
    flag("--yes", help="Confirm: without it nothing is removed."),
    flag("--keep-copies", help="Keep copies of the database."),
    shell="db purge",
)  # fmt: skip
async def purge(scope: Scope, days: int, yes: bool, keep_copies: bool) -> Value:
    """Remove deleted threads and tasks of all workspaces for good, with everything derived from them.

    This includes drafts, prompts, log lines and copies of the database. Tasks that were worked on in a thread, its
    forks and the workspace's working memory stay. Without --yes it only lists what would be removed.
    """
    before = scope.now() - days * 86_400_000
    purged = scope.in_store(lambda store: thread_purge.purge(store, before=before, do=yes, keep_copies=keep_copies))
    remains = thread_purge.overwrite_free_space(purged) if yes else ""
    out = [f"{'removed' if yes else 'would be removed'}  {line}" for line in purged.in_words()]
    if purged.empty:
        out.append("Nothing deleted to remove.")
    elif not yes:
        out.append("Nothing was removed. --yes removes it for good.")
    return Text((*out, *filter(None, [remains])), json={"removed": yes, **purged.as_json(), "left": remains})


def _confirm_masking(scope: Scope, secrets: thread_purge.Redacted) -> bool:
    """Show the texts with secrets and ask; False without a terminal. Raises `Refused` for no."""
    if scope.json or not sys.stdin.isatty():
        return False
    print("\n".join(secrets.in_words()))
    if not confirm("Mask these secrets for good? Copies of the database are removed."):
        raise Refused("Nothing was changed.")
    return True


@action(
    flag("--yes", help="Do not ask for confirmation."),
    flag("--keep-copies", help="Keep copies of the database, which hold the secrets."),
    shell="db redact",
)
async def redact(scope: Scope, yes: bool, keep_copies: bool) -> Value:
    """Mask secrets that an older version stored: keys, tokens and passwords of all workspaces.

    First it counts the texts that contain secrets, then it asks. Masking cannot be undone.
    """

    def run(do: bool) -> thread_purge.Redacted:
        return scope.in_store(lambda store: thread_purge.redact(store, do=do, keep_copies=keep_copies))

    secrets = run(do=False)
    if yes or (not secrets.empty and _confirm_masking(scope, secrets)):
        yes = True
        secrets = run(do=True)
    remains = thread_purge.overwrite_free_space(secrets) if yes else ""
    out = [f"{'masked' if yes else 'found'}  {line}" for line in secrets.in_words()]
    if secrets.empty:
        out.append("No secrets found.")
    elif not yes:
        out.append("Nothing was changed. --yes masks them for good.")
    return Text((*out, *filter(None, [remains])), json={"masked": yes, **secrets.as_json(), "left": remains})


@action(YES, shell="db vacuum")
async def vacuum(scope: Scope, yes: bool) -> Value:
    """Reclaim free space; no other sakti may have the database open."""
    path = scope.database
    if not yes:
        if not sys.stdin.isatty():
            raise Refused(
                "this takes a while and needs twice the size of the database on disk; --yes confirms it.", code=USAGE
            )
        if not confirm(f"Rewrite {path} to reclaim free space? No other sakti may use it during that time."):
            raise Refused("Nothing was done.")
    before, after = upkeep.vacuum(path)
    text = f"{path} was rewritten ({before:,} → {after:,} bytes)."
    return Done(text, json={"bytes_before": before, "bytes_after": after})
