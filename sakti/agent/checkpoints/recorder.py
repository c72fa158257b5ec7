"""Record file changes by the calls of a turn; a failure is reported once and stops no call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from sakti.agent.checkpoints import records, surroundings
from sakti.agent.checkpoints.shadow import FirstLook, Shadow
from sakti.agent.judge import commands, expansion
from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.agent.tools.context import CallRecord
from sakti.core.errors import SaktiError
from sakti.store.secrets import mask_secrets

if TYPE_CHECKING:
    from sakti.agent.tools.processes import Running

log = logging.getLogger(__name__)


class _Job(Struct):
    """Commands that a call left running; `ends`: this is their last scan."""

    first: FirstLook
    running: tuple[Running, ...]
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    ends: bool = False

    def is_over(self) -> bool:
        return self.ends or not any(r.process.poll() is None or r.members() for r in self.running)


async def _beat_on(first: FirstLook) -> None:
    while True:
        first.mark.beat()
        await asyncio.sleep(records.BEAT_S)


class TurnRecorder:
    """Records for the running turn; `report` gets the reason if something is not covered.

    Tools call it in threads.
    """

    def __init__(self, shadow: Shadow, report: Callable[[str], None]) -> None:
        self.shadow = shadow
        self._report = report
        self._reported: set[str] = set()
        self._turn: tuple[str, int] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: list[_Job] = []

    def begin(self, thread_id: str, index: int) -> None:
        """Record for the turn of this user's message from now on; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._turn = (thread_id, index)

    @contextlib.contextmanager
    def record_writes(
        self, files: Sequence[tuple[Path, bytes | None, int]], temporaries: Sequence[Path]
    ) -> Generator[None]:
        """Record files that a tool writes in this context; blocks, and raises no error itself."""
        with contextlib.ExitStack() as stack:
            if self._turn is not None:
                try:
                    stack.enter_context(self.shadow.record_writes(files, self._turn, temporaries))
                except (OSError, SaktiError) as e:
                    self._report_no_checkpoint(e)
            yield

    async def explain_loss(self, effect: str, arguments: Mapping[str, Any], place: WorkspaceView) -> str:
        """Return the files named by a command that an undo could not restore, and why; "" without any."""
        if self._turn is None or effect != "run":
            return ""
        named = expansion.read_targets(str(arguments.get("command", "")), place)
        if named == expansion.NOTHING:
            return ""
        try:
            return await asyncio.to_thread(self.shadow.explain_loss, named)
        except (OSError, SaktiError) as e:
            self._report_no_checkpoint(e)
            return ""

    @contextlib.asynccontextmanager
    async def record_call(
        self, effect: str, arguments: Mapping[str, Any], place: WorkspaceView
    ) -> AsyncGenerator[CallRecord]:
        """Record the changes by a command or a server's call; read-only commands are skipped.

        Changes by a server elsewhere are reported as not covered. Processes that a command left running are recorded
        until they end.
        """
        turn, record = self._turn, CallRecord()
        command = str(arguments.get("command", ""))
        if turn is None or effect not in ("run", "remote") or (effect == "run" and _only_reads(command, place)):
            yield record
            return
        if effect == "remote" and not arguments.get("confined"):
            await asyncio.to_thread(self._note_elsewhere, turn, command)
        first = await self._look_before(command, turn, place)
        if first is None:
            yield record
            return
        beating = asyncio.create_task(_beat_on(first))
        try:
            yield record
        finally:  # completed even if the call was cancelled
            beating.cancel()
            after = asyncio.to_thread(self._take_second_look, first, goes_on=bool(record.jobs))
            names, job = await asyncio.shield(after)
            record.lost += names
            if job is not None:
                self._follow(record.jobs, job)

    async def _look_before(self, command: str, turn: tuple[str, int], place: WorkspaceView) -> FirstLook | None:
        look = asyncio.create_task(asyncio.to_thread(self._take_first_look, command, turn, place))
        try:
            return await asyncio.shield(look)
        except asyncio.CancelledError:
            if (first := await look) is not None:
                first.mark.end()  # the command never began
            raise

    def _follow(self, jobs: Sequence[Running], first: FirstLook) -> None:
        job = _Job(first, tuple(jobs))
        job.task = asyncio.create_task(self._record_at_end(job))
        self._jobs.append(job)

    async def _record_at_end(self, job: _Job) -> None:
        while not job.is_over():
            job.first.mark.beat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(records.BEAT_S):
                    await job.asked.wait()
            job.asked.clear()
        await asyncio.to_thread(self._take_second_look, job.first)
        self._jobs.remove(job)

    async def settle(self, *, ends: bool = False) -> None:
        """Record the changes of jobs that have ended; `ends`: of all."""
        ended = [job for job in self._jobs if ends or job.is_over()]
        for job in ended:
            job.ends = True
            job.asked.set()
        if tasks := [job.task for job in ended if job.task is not None]:
            await asyncio.wait(tasks)

    def _take_first_look(self, command: str, turn: tuple[str, int], place: WorkspaceView) -> FirstLook | None:
        try:
            named = expansion.read_targets(command, place)
            first = self.shadow.before(named, turn, mask_secrets(command), place.added)
        except (OSError, SaktiError) as e:
            self._report_no_checkpoint(e)
            with contextlib.suppress(OSError):
                self.shadow.add_uncovered(turn, mask_secrets(command))
            return None
        if first.before.history.problem:
            self._report_once(first.before.history.problem)
        return first

    def _note_elsewhere(self, turn: tuple[str, int], command: str) -> None:
        """Record that a server may have made changes that an undo cannot reach."""
        try:
            self.shadow.add_uncovered(turn, command, elsewhere=True)
        except OSError as e:
            self._report_no_checkpoint(e)

    def _take_second_look(self, first: FirstLook, *, goes_on: bool = False) -> tuple[list[str], FirstLook | None]:
        """Take the second snapshot; if the command `goes_on` in the background, return the snapshot to follow."""
        following = None
        try:
            following = self.shadow.follow(first) if goes_on else None
            lost = surroundings.summarize(self.shadow.after(first, goes_on=following is not None))
            self.shadow.prune()  # now, because the end of the session would have to wait for it
        except (OSError, SaktiError) as e:
            self._report_no_checkpoint(e)
            return [], following
        return lost, following

    def _report_no_checkpoint(self, error: Exception) -> None:
        why = error.message if isinstance(error, SaktiError) else str(error)
        log.warning("no checkpoint: %s", why)
        self._report_once(why)

    def _report_once(self, why: str) -> None:
        if why not in self._reported and self._loop is not None:
            self._reported.add(why)
            self._loop.call_soon_threadsafe(self._report, why)


def _only_reads(command: str, place: WorkspaceView) -> bool:
    return all(
        part.kind == "read" and all(access != "write" for _, access in part.paths)
        for part in commands.analyse(command, place).parts
    )
