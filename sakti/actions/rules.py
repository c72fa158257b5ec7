"""Declare what opens the limits of commands: the rules of approvals, and ports of the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg, option
from sakti.actions.values import USAGE, Done, Refused, Text, Value
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.store import user_state


@action(
    option("--revoke", help="Revoke the saved rule with this number.", kind="whole", default=0, metavar="N", said=True),
    shell="rules",
    chat="rules",
    hint="[N]",
    needs="store",
    summary="list the rules of approvals; a number revokes one",
)
async def rules(scope: Scope, revoke: int) -> Value:
    """List the rules of approvals, or revoke a saved one."""
    saved = await scope.store.read(user_state.rules, scope.resource)
    if revoke:
        if not 1 <= revoke <= len(saved):
            raise Refused(f"There is no saved rule {revoke}; `sakti rules` lists them.", code=USAGE)
        rule = saved[revoke - 1][0]
        await scope.store.write(user_state.delete_rule, scope.resource, rule)
        return Done(f"Revoked the rule {rule}. sakti will ask again.", title="Rules", json={"revoked": rule})
    approval = scope.config.approval
    written = [(kind, rule) for kind in ("deny", "ask", "allow") for rule in getattr(approval, kind)]
    lines = [f"{number:>3}. {decision:<5}  {rule}" for number, (rule, decision) in enumerate(saved, 1)]
    lines += [f"     {kind:<5}  {rule}  (settings)" for kind, rule in written]
    granted = scope.live.current.granted_rules if scope.live is not None else ()
    lines += [f"     allow  {rule}  (this thread)" for rule in granted]
    if not lines:
        lines = ["No rules yet: answer a question with `a` to save one, or set approval.allow, ask or deny."]
    return Text(
        tuple(lines),
        title="Rules",
        json={
            "saved": [{"rule": rule, "decision": decision} for rule, decision in saved],
            "settings": [{"rule": rule, "decision": kind} for kind, rule in written],
        },
    )


@action(
    arg("number", kind="whole", low=1, high=65_535, metavar="N"),
    chat="port",
    hint="N",
    needs="session",
    summary="open a port of the sandbox to this machine, as for a browser",
)
async def port(scope: Scope, number: int) -> Value:
    """Open a port of the sandbox to this machine until sakti ends."""
    try:
        here = scope.session.workspace.sandbox.open_port(number)
    except OSError as e:
        why = e.strerror or str(e)
        raise Refused(f"Port {number} was not opened: {why}. The agent must start a server in the background.") from e
    return Done(f"http://localhost:{here} now reaches port {number} of the sandbox, until sakti ends.", title="Port")
