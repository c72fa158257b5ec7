"""Declare `/context` and `/cost`: the next request, and tokens and money spent so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import Card, Open, Refused, Rows, Text, Value, one
from sakti.core.lazy import lazy_imports
from sakti.core.text import counted

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


with lazy_imports:
    from sakti.agent.reports import memory_report
    from sakti.agent.threads import history


@action(arg("step", kind="whole", default=None, low=1), chat="context", hint="[STEP]", needs="session",
        summary="show the request that would be sent now, or the one that a past step sent")  # fmt: skip
async def context(scope: Scope, step: int | None) -> Value:
    """Show the request that would be sent now, or the one that a past step sent."""
    views = scope.session.views
    blocks = await (views.context() if step is None else views.past_request(step))
    if not blocks:
        raise Refused(history.explain_no_request(step), title="Context")

    async def show(number: int) -> Value:
        return Text((one(blocks, number).text,))

    async def list_rows() -> Value:
        lines = tuple(f"{b.label}  {b.tokens:,} tokens" for b in blocks)
        total = sum(b.tokens for b in blocks)
        what = "What would be sent now" if step is None else f"What step {step} sent"
        head = f"{what}: {counted(len(blocks), 'block')}, {total:,} tokens"
        return Rows(lines, "context", tuple(blocks), head=head, what="shows a block's text", pick=show)

    return Open("context" if step is None else "request", blocks, list_rows)


@action(chat="cost", needs="session")
async def cost(scope: Scope) -> Value:
    """Show tokens and cost of this thread."""
    return Card("Cost of this thread", tuple(memory_report.spent_rows(await scope.session.views.spent())))
