"""A copy is of one moment, whole and checked, or it is not there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from sakti.core.errors import StoreError
from sakti.store import copies, files, user_state
from sakti.store.database import Store
from sakti.store.maintenance import checks
from sakti.store.threads import messages
from tests.unit.store.test_database import message, thread_in


@pytest.fixture
async def filled(store: Store) -> Store:
    thread = await thread_in(store)
    for n in range(40):
        await store.write(messages.append, message(store, thread, f"{n} " + "a long text " * 500))
    return store


async def test_each_step_of_it_may_be_followed_by_a_foreign_commit(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "PAGES", 10)
    other = apsw.Connection(str(filled.path))
    other.set_busy_timeout(10_000)  # the store may be copying its log
    steps: list[int] = []

    class Watched:
        """A connection whose backups let the other one write before every step."""

        def __init__(self, connection: apsw.Connection) -> None:
            self._connection = connection

        def __getattr__(self, name: str):
            return getattr(self._connection, name)

        def backup(self, *arguments):
            watched = self._connection.backup(*arguments)
            return Steps(watched)

    class Steps:
        def __init__(self, backup) -> None:
            self._backup = backup

        def __enter__(self):
            return self

        def __exit__(self, *error) -> None:
            self._backup.__exit__(*error)

        @property
        def done(self) -> bool:
            return self._backup.done

        def step(self, pages: int) -> None:
            steps.append(pages)
            assert len(steps) < 200, "it begins anew with every commit"
            other.execute("INSERT INTO prompt_history (resource_id, text, created_at) VALUES ('/w', 'meanwhile', 1)")
            self._backup.step(pages)

    real = apsw.Connection
    monkeypatch.setattr(
        copies.apsw, "Connection", lambda *a, **k: Watched(real(*a, **k)) if ".part-" in a[0] else real(*a, **k)
    )
    (target,) = await filled.read(copies.backup, filled.path, tmp_path / "copy.db")
    monkeypatch.undo()
    assert len(steps) > 10 and stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = await Store.open(target)
    assert all(f.ok for f in await copy.read(checks.check))
    assert await copy.read(user_state.list_prompts, "/w", 5) == []  # as it was when it began
    assert len(await filled.read(user_state.list_prompts, "/w", 999)) == len(steps)
    await copy.close()
    other.close()


async def test_damage_is_not_copied(filled: Store, tmp_path: Path) -> None:
    await filled.write(lambda db: db.execute_sql("UPDATE messages SET parts = '[' WHERE pk = 3"))
    with pytest.raises(StoreError, match="Nothing was copied: the database is damaged") as caught:
        await filled.read(copies.backup, filled.path, tmp_path / "copy.db")
    assert caught.value.code == "damaged" and list(tmp_path.glob("copy*")) == []


async def test_where_it_cannot_be_written_nothing_is_left(filled: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        await filled.read(copies.backup, filled.path, tmp_path / "none" / "copy.db")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(StoreError, match="already exists"):
        await filled.read(copies.backup, filled.path, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from sakti.store import copies
from sakti.store.database import Store

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = await Store.open(Path(sys.argv[1]))
    copies._give_name = die
    await store.read(copies.backup, store.path, Path(sys.argv[2]))

asyncio.run(main())
"""


def killed_while_copying(path: Path, target: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(path), str(target)], check=False)


async def test_one_that_was_killed_has_no_name_and_is_cleaned_up(filled: Store, tmp_path: Path) -> None:
    target = files.append_suffix(filled.path, ".backup-1")
    killed_while_copying(filled.path, target)
    (left,) = files.find_leftovers(filled.path)
    assert left.name.startswith(f"{target.name}.part-") and not target.exists()
    await filled.read(copies.backup, filled.path, target)
    assert not left.exists() and target.exists()
    assert str(os.getpid()) not in str(list(filled.path.parent.iterdir()))
