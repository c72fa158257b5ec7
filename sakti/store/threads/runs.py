"""Store runs of child threads and background commands, and which of their ends were reported."""

from collections.abc import Callable, Collection, Iterable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from peewee import fn

from sakti.core.types import Json, Message, RunState, Thread, Usage, describe_state
from sakti.store import files, leases, rows
from sakti.store.connection import Database
from sakti.store.memory import records
from sakti.store.memory.advance import add_report
from sakti.store.memory.group_rows import Group, NewLine, Section, Span, make_section_metadata
from sakti.store.models import ChildRunRow, JobRow, MessageRow
from sakti.store.threads import threads

TOOL = "agent"  # the tool whose calls start children
REPORT_FACT = "report"  # first word of a fact with a background child's report
BUDGET = "budget"  # in a report: tokens that the child's window left for its memory
# In the details of the result of such a call, the id of a child:
CHILD = "child"  # whose report it contains
IN_BACKGROUND = "background"  # that continues in the background
UNFINISHED = "unfinished"  # that a crash interrupted


class ChildRun(Struct, frozen=True):
    """Run of a child thread.

    `report` is delivered to the parent: `block` to its model, `findings` to its log, `marks` to people.
    """

    child_id: str
    parent_id: str
    call_id: str
    mode: str
    goal: str
    started_at: int
    agent: str = ""
    background: bool = False
    state: RunState = "running"
    report: Json | None = None
    ended_at: int | None = None
    delivered_at: int | None = None

    @property
    def name(self) -> str:
        """Return its custom agent, or its mode."""
        return self.agent or self.mode

    @property
    def in_words(self) -> str:
        return describe_state(self.state, str((self.report or {}).get("marks", "")))


RUN = rows.Shape(ChildRunRow, ChildRun)


def start(db: Database, thread: Thread, run: ChildRun) -> None:
    """Store a new child thread with its run."""
    threads.create(db, thread)
    rows.insert(db, ChildRunRow, **RUN.values(run))


def restart(db: Database, child_id: str, call_id: str, now: int, *, background: bool) -> None:
    """Store that a child continues for another call."""
    _update(
        db, child_id, call_id=call_id, state="running", background=background, started_at=now, ended_at=None,
        delivered_at=None, report=None,
    )  # fmt: skip


def end(db: Database, child_id: str, state: RunState, report: Json, now: int) -> None:
    _update(db, child_id, state=state, report=report, ended_at=now)


def _update(db: Database, child_id: str, **changes: object) -> None:
    ChildRunRow.update(**changes).where(ChildRunRow.child_id == child_id).execute(db)


def get(db: Database, child_id: str) -> ChildRun | None:
    return RUN.select().where(ChildRunRow.child_id == child_id).get_or_none(db)


def get_by_call(db: Database, parent_id: str, call_id: str) -> ChildRun | None:
    """Return the run that a call of the parent started or resumed last."""
    here = (ChildRunRow.parent_id == parent_id) & (ChildRunRow.call_id == call_id)
    return RUN.select().where(here).get_or_none(db)


def list_children(db: Database, parent_id: str) -> list[ChildRun]:
    """Return the runs of a thread's children, oldest first."""
    return list(RUN.select().where(ChildRunRow.parent_id == parent_id).order_by(ChildRunRow.pk).execute(db))


def find(db: Database, parent_id: str, name: str) -> ChildRun | None:
    """Return the child of a thread whose id ends with `name`."""
    name = name.strip()
    return next((r for r in reversed(list_children(db, parent_id)) if name and r.child_id.endswith(name)), None)


def find_orphans(db: Database, parent_id: str, now: int, running: Collection[str] = ()) -> list[ChildRun]:
    """Return the running children of a thread that no process works on.

    `running`: children run by this process.
    """
    return [
        run
        for run in list_children(db, parent_id)
        if run.state == "running" and run.child_id not in running and not _is_worked_on(db, run.child_id, now)
    ]


def _is_worked_on(db: Database, child_id: str, now: int) -> bool:
    listed = leases.list_leases(db, child_id, now)
    return any(lease.kind == "turn" and files.is_owner_running(lease.owner) for lease in listed)


def interrupt_orphans(db: Database, parent_id: str, now: int, running: Collection[str] = ()) -> list[ChildRun]:
    """Mark the children that `find_orphans` returns as interrupted, and return them."""
    orphans = find_orphans(db, parent_id, now, running)
    for run in orphans:
        leases.clear_dead(db, run.child_id)
        _update(db, run.child_id, state="interrupted", ended_at=now)
    return orphans


def load_total_usage(db: Database, thread_id: str, purpose: str | None = None) -> Usage:
    """Return the usage of a thread with its children, for a purpose or for all of them."""
    # SQL: sums of five columns in one statement
    row = db.execute_sql(
        "SELECT coalesce(sum(input_tokens), 0), coalesce(sum(cached_tokens), 0), coalesce(sum(cache_write_tokens), 0),"
        " coalesce(sum(output_tokens), 0), coalesce(sum(reasoning_tokens), 0), sum(cost_usd) FROM steps"
        " WHERE thread_id IN (SELECT ?1 UNION ALL SELECT child_id FROM child_runs WHERE parent_id = ?1)"
        " AND (?2 IS NULL OR purpose = ?2)",
        (thread_id, purpose),
    ).fetchone()
    return Usage(*row)


# --- delivery -------------------------------------------------------------------------------------------------


def deliver_results(db: Database, message: Message) -> None:
    """Deliver the reports that a message with results brings to its thread; in its transaction."""
    for result in message.tool_results:
        child_id = result.details.get(CHILD) if result.name == TOOL else None
        if isinstance(child_id, str):
            deliver(db, child_id, message)


def deliver(db: Database, child_id: str, message: Message) -> None:
    """Store that a child's report is in a message of its parent, and buffer its findings for the log."""
    run = get(db, child_id)
    if run is None or run.delivered_at is not None or run.ended_at is None:
        return
    _update(db, child_id, delivered_at=message.created_at)
    record = records.get_record(db, f"thread:{run.parent_id}") or records.get_record(
        db, f"resource:{message.resource_id}"
    )
    findings = (run.report or {}).get("findings")
    if record is None or not findings:
        return
    span = Span(child_id, 0, _last_index(db, child_id), run.goal[: threads.TITLE_LIMIT])
    count = findings["text"].count("\n") + 1
    lines = msgspec.convert(findings["lines"], list[NewLine])
    group = Group(
        findings["group_id"],
        record.id,
        run.parent_id,
        "observation",
        "buffered",
        findings["text"],
        message.created_at,
        mode=run.mode,
        observation_tokens=findings["tokens"],
        model="report",
        metadata={"at": message.index, CHILD: child_id, **make_section_metadata([Section(count, len(lines), (span,))])},
        origin="report",
    )
    add_report(db, group, lines)


def deliver_facts(db: Database, message: Message, facts: Iterable[str]) -> None:
    """Deliver the reports of background children that were attached to a message; in its transaction."""
    for name in facts:
        word, _, child_id = name.partition(" ")
        if word == REPORT_FACT:
            deliver(db, child_id, message)


def _last_index(db: Database, thread_id: str) -> int:
    row = MessageRow
    newest = row.select(row.message_index).where(row.thread_id == thread_id).order_by(row.message_index.desc()).limit(1)
    return newest.scalar(db) or 0


JOB_FACT = "job"  # first word of a fact on the end of a command; the second one is its number
ENDED = "ended_job"  # in the details of a result that reports the end: the number
JobState: TypeAlias = Literal["running", "ended", "stopped", "lost"]


class StoredJob(Struct, frozen=True):
    """Background command; a process is identified by its number and its start time."""

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


def find_newest_job_number(db: Database, thread_id: str) -> int:
    """Return the highest number of a job of a thread; 0 without one."""
    return JobRow.select(fn.MAX(JobRow.number)).where(JobRow.thread_id == thread_id).scalar(db) or 0


def begin_job(db: Database, job: StoredJob) -> None:
    """Store a job that runs now, unless its thread is not stored yet."""
    if threads.get(db, job.thread_id) is not None:
        rows.insert(db, JobRow, **JOB.values(job))


def end_job(db: Database, thread_id: str, number: int, state: JobState, exit_code: int | None, now: int) -> None:
    row = JobRow
    here = (row.thread_id == thread_id) & (row.number == number) & (row.state == "running")
    row.update(state=state, exit_code=exit_code, ended_at=now).where(here).execute(db)


def find_past_jobs(db: Database, thread_id: str, now: int, is_running: Callable[[StoredJob], bool]) -> list[StoredJob]:
    """Return the jobs of a thread that were lost, or whose end was not reported, oldest first.

    A job whose process a crash ended is marked as lost.
    """
    row = JobRow
    due = row.reported_at.is_null() | (row.state == "lost")
    jobs = JOB.select().where(row.thread_id == thread_id, due).order_by(row.number).execute(db)
    past = [job for job in jobs if not is_running(job)]
    for job in past:
        end_job(db, thread_id, job.number, "lost", None, now)
    return [replace(job, state="lost") if job.state == "running" else job for job in past]


# --- reports to the model -------------------------------------------------------------------------------------


def report_job_results(db: Database, message: Message) -> None:
    """Mark the jobs whose end the results in a message report; in its transaction."""
    _report(db, message, (r.details[ENDED] for r in message.tool_results if ENDED in r.details))


def report_job_facts(db: Database, message: Message, facts: Iterable[str]) -> None:
    """Mark the jobs whose end a fact attached to a message reports; in its transaction."""
    words = (name.split() for name in facts)
    _report(db, message, (pair[1] for pair in words if len(pair) == 2 and pair[0] == JOB_FACT))


def _report(db: Database, message: Message, numbers: Iterable[object]) -> None:
    row = JobRow
    for number in numbers:
        here = (row.thread_id == message.thread_id) & (row.number == number) & row.reported_at.is_null()
        row.update(reported_at=message.created_at).where(here).execute(db)
