"""Store the commands that run in the background of a thread, and whether its model knows of their end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from peewee import fn

from sakti.core.types import Message
from sakti.store import rows
from sakti.store.connection import Database
from sakti.store.models import JobRow
from sakti.store.threads import threads

FACT = "job"  # first word of the fact that a command has ended; the second one is its number
ENDED = "ended_job"  # in the details of a result that tells of the end: the number
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
    reported_at: int | None = None


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


def find_past(db: Database, thread_id: str, now: int, is_running: Callable[[StoredJob], bool]) -> list[StoredJob]:
    """Return the jobs of a thread that were lost, or whose end was not reported, oldest first.

    A job whose process a crash ended is marked as lost.
    """
    row = JobRow
    due = row.reported_at.is_null() | (row.state == "lost")
    jobs = JOB.select().where(row.thread_id == thread_id, due).order_by(row.number).execute(db)
    past = [job for job in jobs if not is_running(job)]
    for job in past:
        end(db, thread_id, job.number, "lost", None, now)
    return [replace(job, state="lost") if job.state == "running" else job for job in past]


# --- reports to the model -------------------------------------------------------------------------------------


def report_results(db: Database, message: Message) -> None:
    """Note the jobs whose end the results in a message tell; in its transaction."""
    _report(db, message, (r.details[ENDED] for r in message.tool_results if ENDED in r.details))


def report_facts(db: Database, message: Message, facts: Iterable[str]) -> None:
    """Note the jobs whose end is a fact that was attached to a message; in its transaction."""
    words = (name.split() for name in facts)
    _report(db, message, (pair[1] for pair in words if len(pair) == 2 and pair[0] == FACT))


def _report(db: Database, message: Message, numbers: Iterable[object]) -> None:
    row = JobRow
    for number in numbers:
        here = (row.thread_id == message.thread_id) & (row.number == number) & row.reported_at.is_null()
        row.update(reported_at=message.created_at).where(here).execute(db)
