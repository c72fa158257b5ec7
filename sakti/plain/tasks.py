"""The task board in lines, and what is done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.agent.board import BoardActions
from sakti.core.errors import SaktiError
from sakti.plain import words
from sakti.plain.offer import Offer

if TYPE_CHECKING:
    from sakti.agent.session import Session

USE = (
    "/tasks create TITLE; claim, release, reopen, tree, said, delete TASK; close TASK SUMMARY; dep TASK ON; undo;"
    " with !, as close!, also what another chat has claimed"
)


class Tasks:
    """`/tasks` with its actions; `offer` says the lines."""

    def __init__(self, session: Session, offer: Offer) -> None:
        self._session = session
        self._offer = offer
        self._board = BoardActions(session)

    async def run(self, argument: str) -> None:
        """Raises `TaskError` where something is refused, `SaktiError` where it was written wrongly."""
        action, _, rest = argument.strip().partition(" ")
        force = action.endswith("!")
        action = action.removesuffix("!")
        first, _, more = rest.strip().partition(" ")
        if not action:
            board = await self._session.views.board()
            self._offer([*words.board(board), USE])
            return
        needed = {"create": first, "close": more, "dep": more, "undo": "-"}.get(action, first)
        if not needed.strip():
            raise SaktiError(f"write {USE}", title="Tasks")
        match action:
            case "create":
                said = [await self._board.create_task(rest.strip())]
            case "claim":
                said = [await self._board.claim_task(first)]
            case "release":
                said = [await self._board.release_task(first, force=force)]
            case "close":
                said = [await self._board.close_task(first, more.strip(), force=force)]
            case "reopen":
                said = [await self._board.reopen_task(first)]
            case "dep":
                said = [await self._board.depend_task(first, more.strip(), force=force)]
            case "delete":
                said = [await self._board.delete_task(first, force=force)]
            case "undo":
                said = [await self._board.undo_task()]
            case "tree":
                said = [words.branch(b) for b in await self._board.tree(first)]
            case "said":
                tree = await self._board.tree(first)
                messages = await self._session.views.task_messages(tree[0].task.id)
                said = [line for m in messages for line in words.message(m)] or ["nothing was said about it"]
            case _:
                raise SaktiError(f"there is no action {action!r}: write {USE}", title="Tasks")
        self._offer(said)
