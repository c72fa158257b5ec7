"""What the user does on the board: each a change of its own, told in a sentence. Refusals are `TaskError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sakti.agent.session import Session
    from sakti.tasks.queries import Branch


class BoardActions:
    """The user's hands on the tasks of a started session. Their claims are the user's, not the agent's; what the chat
    of this window has claimed is theirs to change, what another chat has only with `force`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def _write(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        from sakti.tasks.service import SHELL_CLAIM_MS, Actor

        session = self._session
        own = () if session.thread is None else (session.thread.id,)
        actor = Actor(
            session.resource_id, "user:you", session.clock.now(), name="you", lease_ms=SHELL_CLAIM_MS, also=own
        )
        return await session.store.write(fn, actor, *args, **kwargs)

    async def create_task(self, title: str) -> str:
        from sakti.tasks import service

        task = await self._write(service.create, self._session.store.ids.new(), title)
        return f"{task.handle} was made."

    async def claim_task(self, task_id: str) -> str:
        from sakti.tasks import service

        task, _ = await self._write(service.claim, task_id)
        return f"{task.handle} is yours."

    async def release_task(self, task_id: str, *, force: bool = False) -> str:
        from sakti.tasks import service

        return f"{(await self._write(service.release, task_id, force=force)).handle} is open again."

    async def close_task(self, task_id: str, summary: str, *, force: bool = False) -> str:
        from sakti.tasks import service

        task, freed = await self._write(service.close, task_id, "completed", summary, force=force)
        return f"{task.handle} is closed." + (f" Unblocked: {', '.join(t.handle for t in freed)}." if freed else "")

    async def reopen_task(self, task_id: str) -> str:
        from sakti.tasks import service

        return f"{(await self._write(service.reopen, task_id)).handle} is open again."

    async def depend_task(self, task_id: str, on: str, *, force: bool = False) -> str:
        from sakti.tasks import service

        task = await self._write(service.depend, task_id, on, "blocks", force=force)
        return f"{task.handle} waits for {on}."

    async def delete_task(self, task_id: str, *, force: bool = False) -> str:
        from sakti.tasks import service

        task, freed = await self._write(service.delete, task_id, force=force)
        more = f" Unblocked: {', '.join(t.handle for t in freed)}." if freed else ""
        return f"{task.handle} was deleted.{more} Undo brings it back."

    async def tree(self, task_id: str) -> tuple[Branch, ...]:
        """What a task waits for and what waits for it, the task itself first."""
        from sakti.tasks import queries

        session = self._session
        return await session.store.read(queries.tree, session.resource_id, task_id)

    async def undo_task(self) -> str:
        from sakti.tasks import service

        done = await self._write(service.undo)
        imported = sum(action == "import" for action, _ in done)
        if imported > 1:
            return f"undone: import of {imported} tasks"
        return "; ".join(f"undone: {action} {task.handle}" for action, task in done)
