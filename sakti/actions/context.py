"""`/context` and `/cost`: what would be sent now, and what was sent so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action
from sakti.actions.values import Card, Open, Rows, Text, Value, one
from sakti.core.text import counted

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


@action(chat="context", needs="session")
async def context(scope: Scope) -> Value:
    """Exactly what would be sent now."""
    blocks = await scope.session.views.context()

    async def show(number: int) -> Value:
        return Text((one(blocks, number).text,))

    async def listed() -> Value:
        lines = tuple(f"{b.label}  {b.tokens:,} tokens" for b in blocks)
        total = sum(b.tokens for b in blocks)
        head = f"What would be sent now: {counted(len(blocks), 'block')}, {total:,} tokens"
        return Rows(lines, "context", tuple(blocks), head=head, what="says a block's text", pick=show)

    return Open("context", blocks, listed)


@action(chat="cost", needs="session")
async def cost(scope: Scope) -> Value:
    """Tokens and price of this thread."""
    from sakti.agent.figures import spent_rows

    return Card("Cost of this thread", tuple(spent_rows(await scope.session.views.spent())))
