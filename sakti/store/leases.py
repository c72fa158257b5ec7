"""Leases: who may observe a thread, condense a log or talk in a thread right now, across processes.

A lease is one row a record, kind and thread. Taking, renewing and giving back are single statements with their whole
condition in them; who commits a result checks in that transaction that the row is still its own.

Raw SQL: each is one conditional statement, renewed by a heartbeat and asked at every commit.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from sakti.core.errors import MemoryFailure
from sakti.store.connection import Database

# Whatever observes a thread, whatever condenses a log (no thread), a turn or work by hand in a thread.
LeaseKind: TypeAlias = Literal["observing", "reflecting", "turn"]
EXPIRES_MS = 30_000
HEARTBEAT_S = 10.0
# A heartbeat this far in the future was written before the clock was set back: its expiry means nothing.
CLOCK_SLACK_MS = 60_000


@dataclass(frozen=True, slots=True)
class Lease:
    record_id: str
    kind: LeaseKind
    owner: str
    operation_id: str
    thread_id: str
    started_at: int
    heartbeat_at: int
    expires_at: int


_COLUMNS = ", ".join(f.name for f in fields(Lease))


def new_owner() -> str:
    """host:pid:uuid, unique for one open engine."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"


def acquire(
    db: Database,
    *,
    record_id: str,
    kind: LeaseKind,
    owner: str,
    operation_id: str,
    thread_id: str = "",
    now: int,
) -> bool:
    """Take a lease that is free or has run out; False while someone else holds it. A turn may follow on work by hand of
    the same owner, which then goes on without."""
    row = db.execute_sql(
        "INSERT INTO leases"
        " (record_id, kind, owner, operation_id, thread_id, started_at, heartbeat_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (record_id, kind, thread_id) DO UPDATE SET owner = excluded.owner,"
        " operation_id = excluded.operation_id,"
        " started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at,"
        " expires_at = excluded.expires_at"
        " WHERE leases.expires_at <= excluded.heartbeat_at OR leases.heartbeat_at > excluded.heartbeat_at + ?"
        " OR (leases.kind = 'turn' AND leases.owner = excluded.owner)"
        " RETURNING 1",
        (record_id, kind, owner, operation_id, thread_id, now, now, now + EXPIRES_MS, CLOCK_SLACK_MS),
    ).fetchone()
    return row is not None


def renew(
    db: Database, *, record_id: str, kind: LeaseKind, owner: str, operation_id: str, now: int, thread_id: str = ""
) -> bool:
    """Push the end of an own lease away; False when it is no longer one's own."""
    row = db.execute_sql(
        "UPDATE leases SET heartbeat_at = ?, expires_at = ?"
        " WHERE record_id = ? AND kind = ? AND thread_id = ? AND owner = ? AND operation_id = ? RETURNING 1",
        (now, now + EXPIRES_MS, record_id, kind, thread_id, owner, operation_id),
    ).fetchone()
    return row is not None


def release(
    db: Database, *, record_id: str, kind: LeaseKind, owner: str, operation_id: str, thread_id: str = ""
) -> None:
    db.execute_sql(
        "DELETE FROM leases WHERE record_id = ? AND kind = ? AND thread_id = ? AND owner = ? AND operation_id = ?",
        (record_id, kind, thread_id, owner, operation_id),
    )


def require(
    db: Database, *, record_id: str, kind: LeaseKind, owner: str, operation_id: str, thread_id: str = ""
) -> None:
    """Call inside the transaction that commits a result. Raises `MemoryFailure` (lease_lost) when the row
    has gone to someone else or was cleared: the result must then be thrown away."""
    row = db.execute_sql(
        "SELECT 1 FROM leases WHERE record_id = ? AND kind = ? AND thread_id = ? AND owner = ? AND operation_id = ?",
        (record_id, kind, thread_id, owner, operation_id),
    ).fetchone()
    if row is None:
        raise MemoryFailure("Another window took this work over; its result stands.", code="lease_lost")


def clear_expired(db: Database, record_id: str, now: int) -> list[Lease]:
    """Remove the leases of a record whose holder is gone, and return them as they were."""
    rows = db.execute_sql(
        f"DELETE FROM leases WHERE record_id = ? AND (expires_at <= ? OR heartbeat_at > ?) RETURNING {_COLUMNS}",
        (record_id, now, now + CLOCK_SLACK_MS),
    ).fetchall()
    return [Lease(*row) for row in rows]


def held(db: Database, record_id: str, now: int) -> list[Lease]:
    """The leases of a record that are in force."""
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM leases WHERE record_id = ? AND expires_at > ?", (record_id, now)
    ).fetchall()
    return [Lease(*row) for row in rows]


def clear_dead(db: Database, record_id: str, *, but: str = "") -> list[Lease]:
    """Remove the leases of a record whose holder (other than `but`) was a process of this machine that is no more, and
    return them: who starts again right after a crash need not wait for them to run out."""
    owners = db.execute_sql("SELECT DISTINCT owner FROM leases WHERE record_id = ?", (record_id,)).fetchall()
    gone = [owner for (owner,) in owners if owner != but and not alive(owner)]
    rows = [
        row
        for owner in gone
        for row in db.execute_sql(
            f"DELETE FROM leases WHERE record_id = ? AND owner = ? RETURNING {_COLUMNS}", (record_id, owner)
        ).fetchall()
    ]
    return [Lease(*row) for row in rows]


def alive(owner: str) -> bool:
    """Whether the process of an owner runs. False only where it is known that nobody is there."""
    host, _, pid = owner.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or os.name != "posix" or not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
