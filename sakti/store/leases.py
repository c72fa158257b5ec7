"""Manage leases: only one process at a time observes a thread, reflects on a log or runs a turn.

A lease is one row per record, kind and thread. Acquiring, renewing and releasing are single statements that contain
their complete condition; the transaction that commits a result checks that the lease is still held.

Raw SQL: each is one conditional statement, renewed by a heartbeat and checked at every commit.
"""

from __future__ import annotations

import os
import socket
import uuid
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.errors import MemoryFailure
from sakti.store import files, rows
from sakti.store.connection import Database
from sakti.store.models import LeaseRow

# Observing a thread, reflecting on a log (no thread), a turn or a manual operation in a thread.
LeaseKind: TypeAlias = Literal["observing", "reflecting", "turn"]
EXPIRES_MS = 30_000
HEARTBEAT_S = 10.0
# A heartbeat this far in the future was written before the clock was set back: its expiry is meaningless.
CLOCK_SLACK_MS = 60_000


class Lease(Struct, frozen=True):
    record_id: str
    kind: LeaseKind
    owner: str
    operation_id: str
    thread_id: str
    started_at: int
    heartbeat_at: int
    expires_at: int


_LEASE = rows.Shape(LeaseRow, Lease)


def make_owner() -> str:
    """Make an owner, unique for one open engine: host:pid:uuid.start, if the start time is known."""
    start = files.read_start_time(os.getpid())
    name = uuid.uuid4().hex if start is None else f"{uuid.uuid4().hex}.{start}"
    return f"{socket.gethostname()}:{os.getpid()}:{name}"


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
    """Acquire a lease that is free or has expired; False while another owner holds it.

    A turn may take over the lease of a manual operation of the same owner, which then continues without one.
    """
    # SQL: one conditional statement, so that no other process comes between
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
    """Extend a lease; False when its owner no longer holds it."""
    # SQL: one conditional statement, so that no other process comes between
    row = db.execute_sql(
        "UPDATE leases SET heartbeat_at = ?, expires_at = ?"
        " WHERE record_id = ? AND kind = ? AND thread_id = ? AND owner = ? AND operation_id = ? RETURNING 1",
        (now, now + EXPIRES_MS, record_id, kind, thread_id, owner, operation_id),
    ).fetchone()
    return row is not None


def release(
    db: Database, *, record_id: str, kind: LeaseKind, owner: str, operation_id: str, thread_id: str = ""
) -> None:
    mine = {"record_id": record_id, "kind": kind, "thread_id": thread_id, "owner": owner, "operation_id": operation_id}
    rows.delete(db, LeaseRow, **mine)


def require(
    db: Database, *, record_id: str, kind: LeaseKind, owner: str, operation_id: str, thread_id: str = ""
) -> None:
    """Require that a lease is still held; call it inside the transaction that commits a result.

    Raises `MemoryFailure` (lease_lost) when another owner took the lease or it was cleared: the result must then be
    discarded.
    """
    mine = {"record_id": record_id, "kind": kind, "thread_id": thread_id, "owner": owner, "operation_id": operation_id}
    if not rows.select(db, LeaseRow, ("owner",), **mine):
        raise MemoryFailure("Another window took over this work; its result is used.", code="lease_lost")


def clear_expired(db: Database, record_id: str, now: int) -> list[Lease]:
    """Delete the expired leases of a record and return them."""
    # SQL: one conditional statement, so that no other process comes between
    expired = db.execute_sql(
        f"DELETE FROM leases WHERE record_id = ? AND (expires_at <= ? OR heartbeat_at > ?) RETURNING {_LEASE.columns}",
        (record_id, now, now + CLOCK_SLACK_MS),
    ).fetchall()
    return [_LEASE.of(row) for row in expired]


def list_leases(db: Database, record_id: str, now: int) -> list[Lease]:
    """Return the leases of a record that have not expired."""
    return [lease for lease in _LEASE.find(db, record_id=record_id) if lease.expires_at > now]


def clear_dead(db: Database, record_id: str, *, but: str = "") -> list[Lease]:
    """Delete the leases of a record held by ended processes of this machine, except `but`; return them.

    After a crash, a restart need not wait for their expiry.
    """
    leases = [lease for lease in _LEASE.find(db, record_id=record_id) if lease.owner != but]
    dead = {owner for owner in {lease.owner for lease in leases} if not files.is_owner_running(owner)}
    for owner in dead:
        rows.delete(db, LeaseRow, record_id=record_id, owner=owner)
    return [lease for lease in leases if lease.owner in dead]
