"""Store the commands that run in the background of a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct
from peewee import fn

from sakti.store import rows
from sakti.store.connection import Database
from sakti.store.models import JobRow
from sakti.store.threads import threads

JobState: TypeAlias = Literal["running", "ended", "stopped", "lost"]


class StoredJob(Struct, frozen=True):
    """Command in the background; a process is known by its number and its start time."""

    thread_id: str
    number: int
    command: str
    pid: int | None
    pid_started: int | None
    file: str
    started_at: int
    state: JobState = "running"
    exit_code: int | None = None
    ended_at: int | None = None


JOB = rows.Shape(JobRow, StoredJob)


def newest_number(db: Database, thread_id: str) -> int:
    """Return the highest number of a job of a thread; 0 without one."""
    return JobRow.select(fn.MAX(JobRow.number)).where(JobRow.thread_id == thread_id).scalar(db) or 0


def begin(db: Database, job: StoredJob) -> None:
    """Store a job that runs now, unless its thread is not stored yet."""
    if threads.get(db, job.thread_id) is not None:
        rows.insert(db, JobRow, **JOB.values(job))


def end(db: Database, thread_id: str, number: int, state: JobState, exit_code: int | None, now: int) -> None:
    """Note the end of a job that runs."""
    row = JobRow
    here = (row.thread_id == thread_id) & (row.number == number) & (row.state == "running")
    row.update(state=state, exit_code=exit_code, ended_at=now).where(here).execute(db)


def mark_lost(db: Database, thread_id: str, now: int, is_running: Callable[[StoredJob], bool]) -> list[StoredJob]:
    """Mark the jobs whose process a crash ended; return all that were lost, oldest first."""
    row = JobRow
    unfinished = JOB.select().where(row.thread_id == thread_id, row.state.in_(("running", "lost")))
    lost = [job for job in unfinished.order_by(row.number).execute(db) if not is_running(job)]
    for job in lost:
        end(db, thread_id, job.number, "lost", None, now)
    return lost
