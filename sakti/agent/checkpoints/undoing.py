"""Undo turns: their files, their conversation, or both; and undo an undo.

The conversation continues in a fork of the thread that ends before the first undone message. The thread and its memory
are unchanged, and a redo opens it again. No message or observation is ever changed or deleted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent import plans as proposals
from sakti.agent.checkpoints import plan as plans
from sakti.agent.checkpoints import surroundings
from sakti.agent.checkpoints.plan import Action, Plan
from sakti.agent.checkpoints.records import RecordedTurn, UndoRecord
from sakti.agent.checkpoints.shadow import Shadow, open_shadow
from sakti.agent.session import turn_lease
from sakti.agent.threads import reindexing
from sakti.agent.tools import changes, textfile
from sakti.core.errors import SaktiError
from sakti.core.events import Notice, ThreadChanged
from sakti.core.text import format_count, to_one_line
from sakti.store.threads import fork as thread_fork
from sakti.store.threads import messages as stored_messages
from sakti.store.threads import removal as thread_removal
from sakti.store.threads import threads as stored_threads

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.core.clock import Clock
    from sakti.core.types import Message, Thread
    from sakti.store.database import Store

What: TypeAlias = Literal["both", "conversation", "files"]
TITLE = "Undo"
_ACTION_LABELS: dict[Action, str] = {
    "change": "will be restored",
    "create": "will be created again",
    "delete": "will be deleted",
}


class PastTurn(Struct, frozen=True):
    """One turn of a thread: the user's message that began it, and the changes by its calls.

    `files` counts paths, including files that cannot be restored; `undone`: its files were restored already.
    """

    message: Message
    text: str
    changed: RecordedTurn | None
    undone: bool = False

    @property
    def index(self) -> int:
        return self.message.index

    @property
    def files(self) -> int:
        if self.changed is None or self.undone:
            return 0
        paths = [*(c.path for c in self.changed.changes), *self.changed.left_out, *self.changed.stays]
        return len({plans.name_in_lists(p) for p in paths})


class UndoRemains(Struct, frozen=True):
    """Effects that an undo does not reverse.

    These are `lost` files, new files that nothing covers, and commands that still run.
    """

    lost: tuple[str, ...] = ()
    new_ignored: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lost or self.new_ignored or self.jobs)

    def describe(self, number: int) -> list[tuple[str, str]]:
        """Return each kind that occurs, with up to `number` names."""
        kinds = {
            "Cannot be restored": self.lost,
            "New files stay": self.new_ignored,
            "Still running, and may change more files": self.jobs,
        }
        rows = {kind: ", ".join(to_one_line(n, 80) for n in names[:number]) for kind, names in kinds.items() if names}
        return [(kind, text + (", …" if len(kinds[kind]) > number else "")) for kind, text in rows.items()]


class UndoPreview(Struct, frozen=True):
    """Preview of an undo: the turns that are removed, oldest first, and the plan for their files.

    `again` is the undo that a redo would reverse, `completes` an incomplete undo; in both cases there are no turns.
    """

    turns: tuple[PastTurn, ...]
    plan: Plan
    what: What
    remains: UndoRemains = field(default_factory=UndoRemains)
    diffs: dict[str, str] = field(default_factory=dict[str, str])
    again: UndoRecord | None = None
    completes: UndoRecord | None = None

    @property
    def empty(self) -> bool:
        if self.again is not None or self.completes is not None:
            return False
        return not (self.turns if self.what != "files" else self.plan.items or self.remains)

    def in_words(self) -> str:
        """Describe the effect on files in one line."""
        plan = self.plan
        parts = [
            f"{format_count(plan.count(action), 'file')} {label}"
            for action, label in _ACTION_LABELS.items()
            if plan.count(action)
        ]
        if plan.has_history:
            parts.append("the git repository will be restored")
        if plan.conflicts:
            parts.append(f"{format_count(sum(bool(r.conflict) for r in plan.rows), 'conflict')}")
        return ", ".join(parts) or ("no file can be restored" if self.remains.lost else "no file changes")


class UndoResult(Struct, frozen=True):
    """Result of an undo or a redo; `prompt` is the first undone text.

    `unwritten` are paths that could not be written, `conflicts` those left unchanged. `tasks` belong to an approved
    plan: they remain after an undo because someone worked on them, or could not be restored by a redo.
    """

    done: UndoRecord
    unwritten: tuple[str, ...]
    conflicts: tuple[str, ...] = ()
    remains: UndoRemains = field(default_factory=UndoRemains)
    thread: Thread | None = None
    prompt: str = ""
    tasks: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether the files have their former state, with no command left that may change it."""
        return not (self.unwritten or self.conflicts or self.remains)


class Undoing:
    """Undo and redo in one thread. Every method raises `SaktiError` if it fails.

    `live` is the session that has the thread open, or None. `recovered` describes the completion of an interrupted
    undo or redo; a live session shows it as a notice.
    """

    def __init__(self, store: Store, workspace: Path, clock: Clock, thread: Thread, live: Session | None) -> None:
        self._store, self._thread, self._live = store, thread, live
        self._clock = clock
        self.recovered = ""
        self.shadow: Shadow = open_shadow(workspace, clock, store.ids)

    # --- previews -----------------------------------------------------------------------------------------------

    async def turns(self) -> list[PastTurn]:
        """Return the turns of the thread that were not undone with their conversation, oldest first."""
        thread = await self._store.read(stored_threads.get, self._thread.id)
        if thread is not None and stored_threads.find_successor(thread):
            return []
        messages = await self._store.read(stored_messages.list_after, self._thread.id, -1)
        await self._recover()
        changed, undone = await asyncio.to_thread(self._read_records)
        prompts = [
            m
            for m in messages
            if m.role == "user" and m.state != "withheld" and not m.metadata.keys() & {"shell", "hook"}
        ]
        return [
            PastTurn(m, to_one_line(m.text, 200), changed.get(m.index), (turn := changed.get(m.index)) is not None
                 and turn.key in undone)
            for m in prompts
        ]  # fmt: skip

    def _read_records(self) -> tuple[dict[int, RecordedTurn], set[tuple[str, int]]]:
        """Return the records of this thread's messages, also from before a fork, and the undos."""
        records = self.shadow.records
        lineage: Sequence[Sequence[object]] = self._thread.metadata.get("lineage", ())
        turns: dict[int, RecordedTurn] = {}
        for thread_id, end in lineage:
            turns |= {t.index: t for t in records.turns(str(thread_id)) if t.index <= int(str(end))}
        turns |= {t.index: t for t in records.turns(self._thread.id)}
        turns = {index: replace(t, stays=tuple(self._select_existing(t.stays))) for index, t in turns.items()}
        undone = {key for u in records.undone() if not u.redone for key in u.turns}
        return turns, undone

    async def preview(self, number: int = 1, what: What = "both", *, first: int | None = None) -> UndoPreview:
        """Preview undoing the last `number` turns, or those from the message with index `first` on.

        If only files are undone, only turns that changed files count. An incomplete undo is completed first.
        """
        await self._settle_jobs()
        if (
            first is None
            and what != "conversation"
            and (last := await self._find_last_undo()) is not None
            and last.unwritten
            and not last.redone
        ):
            return await asyncio.to_thread(self._preview_rest, last)
        turns = await self.turns()
        if first is None:
            first = _find_first(turns, number, what)
        turns = [t for t in turns if first is not None and t.index >= first]
        return await asyncio.to_thread(self._make_preview, tuple(turns), what)

    async def _recover(self) -> None:
        """Complete an undo or a redo that a kill interrupted."""
        recovery = await asyncio.to_thread(self.shadow.recover)
        if recovery is None:
            return
        self.recovered = recovery.in_words()
        if self._live is not None:
            self._live.emit(Notice("information", TITLE, self.recovered))

    async def _settle_jobs(self) -> None:
        """Record the changes of commands in the background that have ended."""
        recorder = self._live.current.recorder if self._live is not None else None
        if recorder is not None:
            await recorder.settle()

    def _make_preview(self, turns: tuple[PastTurn, ...], what: What) -> UndoPreview:
        if what == "conversation":
            return UndoPreview(turns, Plan(), what)
        changed = [t.changed for t in turns if t.changed is not None and not t.undone]
        plan = self.shadow.plan(c for t in changed for c in t.changes)
        keys = {t.changed.key if t.changed is not None else (self._thread.id, t.index) for t in turns}
        return UndoPreview(turns, plan, what, self._collect_remains(changed, keys, plan), self._make_diffs(plan))

    def _collect_remains(
        self, changed: Sequence[RecordedTurn], keys: Container[tuple[str, int]], plan: Plan
    ) -> UndoRemains:
        lost = dict.fromkeys(p for t in changed for p in t.left_out)
        planned = {item.path for item in plan.items}  # a file made during a scan is recorded again by a later one
        stays = dict.fromkeys(p for t in changed for p in t.stays if p not in planned)
        jobs = tuple(to_one_line(c.command, 80) for c in self.shadow.jobs() if c.key in keys)
        return UndoRemains(tuple(surroundings.summarize(lost)), tuple(surroundings.summarize(stays)), jobs)

    def _select_existing(self, paths: Iterable[str]) -> list[str]:
        return [p for p in paths if os.path.lexists(self.shadow.workspace / p)]

    def _preview_rest(self, done: UndoRecord) -> UndoPreview:
        plan = self.shadow.plan(s.reverse() for s in done.steps if s.path in done.unwritten)
        return UndoPreview((), plan, "files", diffs=self._make_diffs(plan), completes=done)

    def _make_diffs(self, plan: Plan) -> dict[str, str]:
        items = [i for i in plan.items if not plans.is_history(i.path)]
        return {i.path: self.diff_of(i.path, i.now.oid if i.now else "", i.to.oid if i.to else "") for i in items}

    def diff_of(self, path: str, old: str, new: str) -> str:
        """Compare two contents of a path; return a note if they are not text."""
        texts: list[str] = []
        for oid in (old, new):
            data = self._read_content(path, oid)
            text = textfile.decode(data) if data is not None else None
            if text is None:
                return f"--- a/{to_one_line(path, 300)}\n+++ b/{to_one_line(path, 300)}\n@@ no text to compare @@"
            texts.append(text.text)
        return changes.make_diff(to_one_line(path, 300), *texts)

    def _read_content(self, path: str, oid: str) -> bytes | None:
        if not oid:
            return b""
        if ":" in oid:  # a secret, or too large
            return None
        if self.shadow.objects.has(oid):
            return self.shadow.objects.get(oid)
        return self.shadow.content(path, oid)

    async def diff(self, number: int = 1) -> list[str]:
        """Return the diffs of the last turn that changed files (2: the one before it)."""
        turns = [t for t in await self.turns() if t.changed is not None]
        if not 0 < number <= len(turns):
            count = format_count(len(turns), "turn") if turns else "No turn"
            raise SaktiError(f"{count} of this thread changed files.", title="Diff")
        return await asyncio.to_thread(self._make_turn_diff, turns[-number])

    def _make_turn_diff(self, past: PastTurn) -> list[str]:
        assert past.changed is not None
        net = plans.collapse(past.changed.changes)
        rows = {
            path: self.diff_of(path, one.before.oid if one.before else "", one.after.oid if one.after else "")
            for path, one in sorted(net.items())
            if _has_diff(path, one)
        }
        return [row or f"--- a/{path}\n+++ b/{path}" for path, row in rows.items()]

    # --- doing it -----------------------------------------------------------------------------------------------

    async def undo(self, preview: UndoPreview, *, take: Iterable[str] = ()) -> UndoResult:
        """Perform a previewed undo; conflicting files stay unchanged, except those in `take`.

        Files are written first: if that fails, the conversation is unchanged.
        """
        if preview.empty:
            raise SaktiError("There is nothing to undo.", title=TITLE)
        self._check_idle()
        taken = frozenset(take)
        if preview.completes is not None:
            return await self._complete(preview, preview.completes, taken)
        lease = turn_lease.TurnLease(
            self._store, self._live.workspace.owner if self._live is not None else "undo", self._thread.id,
            interactive=self._live is not None, stored=True,
        )  # fmt: skip
        await lease.take()
        try:
            begun = await self._find_begun_undo(preview)
            went_to, forks = await self._find_successor(preview, begun)
            if self._live is not None:
                self._live.undone_to = went_to
            keys = [t.changed.key for t in preview.turns if t.changed is not None and not t.undone]
            keys = keys if preview.what != "conversation" else []
            if begun is not None:
                done, skipped = replace(begun, steps=()), list[str]()
            else:
                done, skipped = await asyncio.to_thread(
                    self.shadow.undo, preview.plan, self._thread.id, keys, take=taken, went_to=went_to
                )
            # a kill before this leaves the turn in the thread, its files undone: /undo and /redo continue from there
            thread = await self._fork(preview.turns[0].index, went_to) if forks else None
            if went_to:
                await self._mark_undone(self._thread.id, went_to)
        finally:
            await lease.give_back()
        await self._update_changed_files()
        tasks = await self._take_plan_back(preview.turns[0].index) if went_to else ()
        if went_to:
            await self._open_successor(went_to, thread)
        prompt = preview.turns[0].message.text if went_to else ""
        conflicts = _list_refused_conflicts(preview.plan, taken)
        return UndoResult(done, _name_paths(skipped), conflicts, preview.remains, thread, prompt, tasks)

    async def _open_successor(self, thread_id: str, fork: Thread | None) -> None:
        """Open the fork, or an empty thread if the first turn was undone."""
        if self._live is not None and fork is not None:
            await self._live.open_thread(fork.id)
        elif self._live is not None:
            await self._live.current.open_new(thread_id, proposals.make_undo_metadata(self._thread))

    async def _take_plan_back(self, first: int) -> tuple[str, ...]:
        """Take back the plan that was approved in undone turns; return the tasks that stay."""
        current = self._live.current if self._live is not None else None
        mode = "ask" if current is None or current.may_edit else current.approval_mode
        write, now = self._store.write, self._clock.now()
        return self._use_plan_change(await write(proposals.take_back, self._thread.id, first, mode, now))

    def _use_plan_change(self, change: proposals.PlanChange | None) -> tuple[str, ...]:
        if change is not None and self._live is not None:
            self._live.use_plan_change(change)
        return change.remaining if change is not None else ()

    async def _complete(self, preview: UndoPreview, done: UndoRecord, taken: frozenset[str]) -> UndoResult:
        plan = preview.plan
        skipped = await asyncio.to_thread(lambda: self.shadow.complete(done, plan, take=taken))
        await self._update_changed_files()
        return UndoResult(
            replace(done, steps=tuple(plan.steps(taken)), went_to=""),
            _name_paths(skipped),
            _list_refused_conflicts(plan, taken),
        )

    async def _find_begun_undo(self, preview: UndoPreview) -> UndoRecord | None:
        """Return the undo of these turns that a kill ended after their files; the messages are left to do."""
        changed = [t for t in preview.turns if t.changed is not None]
        if preview.what == "files" or not all(t.undone for t in changed):
            return None
        last = await self._find_last_undo()
        if last is None or not last.went_to or last.thread_id != self._thread.id:
            return None
        keys = {t.changed.key for t in changed if t.changed is not None}
        return last if keys == set(last.turns) and not await self._is_conversation_undone(last) else None

    async def _is_conversation_undone(self, undone: UndoRecord) -> bool:
        """Return whether the thread of an undo is marked as continued by the thread that the undo made."""
        thread = await self._store.read(stored_threads.get, undone.thread_id)
        mark = thread.metadata.get(stored_threads.UNDONE) if thread is not None else None
        return bool(mark and undone.went_to and mark["went_to"] == undone.went_to)

    async def _find_successor(self, preview: UndoPreview, begun: UndoRecord | None) -> tuple[str, bool]:
        """Return the id of the thread that continues the conversation, and whether it is a fork of this one.

        If the first message is undone it is an empty thread.
        """
        if preview.what == "files":
            return "", False
        index, new_id = preview.turns[0].index, begun.went_to if begun is not None else self._store.ids.new()
        return new_id, bool(await self._store.read(stored_messages.list_page, self._thread.id, before=index, limit=1))

    async def _mark_undone(self, thread_id: str, went_to: str) -> None:
        """Make lists and `sakti -c` continue with the thread `went_to`, or with this one if that is empty."""
        await self._store.write(stored_threads.mark_undone, thread_id, went_to, self._store.clock.now())

    async def _fork(self, index: int, new_id: str) -> Thread:
        """Fork the thread before the first undone message."""
        return await self._store.write(
            thread_fork.fork, self._thread.id, id=new_id, ids=self._store.ids, now=self._clock.now(),
            upto=index - 1, undo=True,
        )  # fmt: skip

    async def redo_preview(self) -> UndoPreview:
        """Preview a redo, which reverses the last undo of this thread. Raises `SaktiError`."""
        done = await self._find_last_undo()
        if done is None:
            recovered = f"{self.recovered} " if self.recovered else ""
            raise SaktiError(f"{recovered}There is no undo in this thread to redo.", title="Redo")
        what: What = "both" if done.went_to and done.turns else "conversation" if done.went_to else "files"
        plan = await asyncio.to_thread(self.shadow.plan, () if done.redone else done.steps)
        diffs = await asyncio.to_thread(self._make_diffs, plan)
        return UndoPreview((), plan, what, diffs=diffs, again=done)

    async def redo(self, preview: UndoPreview | None = None, *, take: Iterable[str] = ()) -> UndoResult:
        """Reverse the last undo of this thread, files and conversation: as previewed, or at once."""
        self._check_idle()
        preview = preview or await self.redo_preview()
        done, plan = preview.again, preview.plan
        assert done is not None
        thread = None
        if done.went_to:
            thread = await self._store.read(stored_threads.get, done.thread_id)
            if thread is None:
                raise SaktiError("The earlier thread was permanently removed.", title="Redo")
        taken = frozenset(take)
        skipped = await asyncio.to_thread(lambda: self.shadow.redo(done, plan, take=taken))
        await self._update_changed_files()
        tasks: tuple[str, ...] = ()
        if thread is not None:
            change = await self._store.write(proposals.bring_back, thread.id, self._clock.now())
            if self._live is not None:
                await self._live.open_thread(thread.id)
            tasks = self._use_plan_change(change)
            await self._mark_undone(thread.id, "")
            await self._remove_unused_fork(done.went_to)
        return UndoResult(done, _name_paths(skipped), _list_refused_conflicts(plan, taken), thread=thread, tasks=tasks)

    async def _update_changed_files(self) -> None:
        """Update the session's number of files changed in git."""
        if self._live is not None:
            await self._live.workspace.files.look_at_git()
            if self._live.thread is not None:
                self._live.emit(ThreadChanged(self._live.thread))

    async def _remove_unused_fork(self, thread_id: str) -> None:
        """Delete the fork made by an undo if it has no new messages; it can be restored."""
        fork = await self._store.read(stored_threads.get, thread_id)
        if fork is None:
            return
        newer = await self._store.read(stored_messages.list_after, thread_id, int(fork.metadata.get("forked_at", -1)))
        if not newer:
            await self._delete(thread_id)

    async def _delete(self, thread_id: str) -> None:
        """Delete a thread with its search rows; it can be restored."""
        await self._store.write(thread_removal.delete_thread, thread_id, self._clock.now())
        indexing = self._live.workspace.indexing if self._live is not None else reindexing.Indexing()
        indexing.begin(self._store)
        if self._live is None:
            await indexing.wait()

    async def _find_last_undo(self) -> UndoRecord | None:
        """Return the newest undo in effect that was made in this thread or led to it.

        An undo whose fork was never created, or is gone, still belongs to this thread. One whose redo a kill ended
        after its files is still in effect for the conversation.
        """
        await self._recover()
        undos = await asyncio.to_thread(self.shadow.records.undone)
        mine = self._thread.id
        for undone in reversed(undos):
            if undone.redone and not await self._is_conversation_undone(undone):
                continue
            if undone.went_to == mine or (undone.thread_id == mine and not undone.went_to):
                return undone
            if undone.thread_id == mine and await self._store.read(stored_threads.get, undone.went_to) is None:
                return undone
        return None

    def _check_idle(self) -> None:
        if self._live is not None and self._live.busy:
            raise SaktiError("The agent is working: wait, or stop it with Esc, then undo.", title=TITLE)


def _name_paths(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(plans.name_in_lists, paths)))


def _list_refused_conflicts(plan: Plan, taken: frozenset[str]) -> tuple[str, ...]:
    return tuple(r.path for r in plan.rows if r.conflict and r.path not in taken)


def make_undoing(session: Session) -> Undoing:
    """Return the undo operations for the open thread of a session."""
    assert session.thread is not None
    return Undoing(session.workspace.store, session.workspace.root, session.workspace.clock, session.thread, session)


def _find_first(turns: Sequence[PastTurn], number: int, what: What) -> int | None:
    """Return the index of the first of the last `number` turns.

    If only files are undone, only turns that changed files count.
    """
    counted_ = [t for t in turns if t.files] if what == "files" else turns
    return counted_[-number:][0].index if counted_ else None


def _has_diff(path: str, net: plans.NetChange) -> bool:
    """Return whether a change of a path is shown as a diff: folders and git's own files are not."""
    if plans.is_same(net.before, net.after) or plans.is_history(path):
        return False
    return not any(e is not None and e.is_folder for e in (net.before, net.after))
