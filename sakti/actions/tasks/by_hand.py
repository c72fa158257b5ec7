"""Do what the keys of a board do: the same changes as its commands, told in their sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sakti.actions import reader
from sakti.actions.scope import Scope
from sakti.actions.spec import Action
from sakti.actions.tasks import changes
from sakti.actions.values import Done
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.tasks.queries import Branch

with lazy_imports:
    from sakti.tasks import queries as task_queries

_ACTIONS = {a.chat.partition(" ")[2]: a for a in vars(changes).values() if isinstance(a, Action) and a.chat}


async def change(session: Session, what: str, *words: str, force: bool = False) -> str:
    """Do `what` ("close") with its arguments in the order of the chat's line.

    The claims of the user are not the agent's; what another chat has claimed is changed only with `force`. Raises
    `TaskError`.
    """
    action = _ACTIONS[what]
    given: dict[str, Any] = {a.name: [] if a.many else a.default for a in action.args}
    given |= dict(zip((a.name for a in reader.chat_args(action)), words, strict=False))
    if force:
        given["force"] = True
    done = await action.run(Scope(session, lambda _: None), **given)
    assert isinstance(done, Done)
    return done.sentence


async def tree(session: Session, task_id: str) -> tuple[Branch, ...]:
    """Return a task and its neighbours in the graph, the task first. Raises TaskError."""
    return await session.workspace.store.read(task_queries.tree, session.workspace.resource_id, task_id)
