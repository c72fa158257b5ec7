"""Log the background commands of a thread in the store, so that they are known after a crash."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from sakti.agent.tools.processes import Running
from sakti.core.errors import StoreError
from sakti.store import files
from sakti.store.database import Store
from sakti.store.secrets import mask_secrets
from sakti.store.threads import runs
from sakti.store.threads.runs import StoredJob


class JobLog:
    """Log of the commands that the agent left running; without a writable store none are logged."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(self, thread_id: str, running: Running, started: int) -> int:
        """Store a command and return its number, above `started` and all earlier ones of the thread."""
        number = started + 1
        with contextlib.suppress(StoreError):
            number = max(number, await self._store.read(runs.find_newest_job_number, thread_id) + 1)
            pid, file = running.process.pid, str(running.output.path)
            now, started_at = self._store.clock.now(), files.read_start_time(pid)
            job = StoredJob(thread_id, number, mask_secrets(running.command), pid, started_at, file, now)
            await self._store.write(runs.begin_job, job)
        running.job = (thread_id, number)
        return number

    async def end(self, running: Running) -> None:
        """Note how a command ended, once."""
        if running.job is None:
            return
        state, code = "stopped" if running.was_stopped else "ended", running.process.returncode
        with contextlib.suppress(StoreError):
            await self._store.write(runs.end_job, *running.job, state, code, self._store.clock.now())

    async def find_past(self, thread_id: str, mine: Collection[Running]) -> dict[str, StoredJob]:
        """Return the commands of a thread that were lost, or whose end the model does not know, by number.

        `mine` run, or ran, in this process.
        """
        numbers = {running.job for running in mine}

        def is_running(job: StoredJob) -> bool:
            return (job.thread_id, job.number) in numbers or (job.state == "running" and _is_alive(job))

        past = await self._store.write(runs.find_past_jobs, thread_id, self._store.clock.now(), is_running)
        return {str(job.number): job for job in past}


def _is_alive(job: StoredJob) -> bool:
    return job.pid is not None and files.is_process_running(job.pid, job.pid_started)
