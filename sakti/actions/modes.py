"""Declare how the agent works: mode, plan, goal, limits; its children, commands and side questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg, option
from sakti.actions.values import USAGE, Card, Done, Open, Refused, Rows, Text, Value, pick_numbered
from sakti.core.config import APPROVAL_MODES
from sakti.core.lazy import lazy_imports
from sakti.core.text import to_one_line
from sakti.core.types import RUNS_ELSEWHERE, STATE_SYMBOLS

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.agent.subagents.children import ListedChild


with lazy_imports:
    from sakti.agent import plans
    from sakti.agent.judge import policy
    from sakti.agent.session import goals
    from sakti.memory import modes as memory_modes
    from sakti.store import user_state


@action(arg("name", default="", offers="modes"), chat="mode", hint="[MODE]", needs="session",
        after_turn="change the mode")  # fmt: skip
async def mode(scope: Scope, name: str) -> Value:
    """Change the agent's instructions, its tools, and what memory keeps."""
    session = scope.session
    if name:
        await session.set_mode(name)
        return Done(f"The mode is {name}: {memory_modes.describe(name)}", title="Mode")
    modes, current = memory_modes.read_descriptions(), session.current.mode

    async def list_modes() -> Value:
        rows = ((n, f"{'Current. ' if n == current else ''}{text}") for n, text in modes.items())
        return Card("Modes: /mode NAME changes how the agent works and what is remembered", tuple(rows))

    return Open("choice", ("mode", "Mode", current, modes), fallback=list_modes)


@action(arg("name", default="", offers=APPROVAL_MODES), chat="approve", hint="[MODE]", needs="session")
async def approve(scope: Scope, name: str) -> Value:
    """Choose what may run without asking."""
    session = scope.session
    if name:
        session.set_approval_mode(name)
    where = " in this thread" if session.current.may_edit else ""
    state = Done(f"Approval is {session.current.approval_mode}{where}; /approve takes {', '.join(APPROVAL_MODES)}.")
    if name:
        return state

    async def show_mode() -> Value:
        return state

    modes = {mode: policy.IN_SHORT[mode] for mode in APPROVAL_MODES}
    return Open("choice", ("approve", "Approval", session.current.approval_mode, modes), fallback=show_mode)


@action(chat="plan", needs="session")
async def plan(scope: Scope) -> Value:
    """Show the plan that was approved in this thread."""
    thread = scope.session.thread
    current = plans.find_plan(thread.metadata) if thread is not None else None
    if current is None:
        return Done("No plan was approved in this thread. In plan mode the agent proposes one.", title="Plan")
    return Text(tuple(plans.to_markdown(current).split("\n")), title="Plan")


_ENDS = ("off", "clear", "end", "none", "cancel")  # other words for `/goal stop`


@action(arg("text", default="", metavar="TEXT"), chat="goal", hint="[TEXT]", needs="session",
        summary="keep working in new turns until a goal is met")  # fmt: skip
async def goal(scope: Scope, text: str) -> Value | None:
    """Show the goal of this thread, or set one: new turns start until it is met."""
    session = scope.session
    if text.strip().lower() in _ENDS:
        return await stop.run(scope)
    if not text.strip():
        current = session.turns.goals.current
        if current is None:
            return Done("This thread has no goal. /goal TEXT sets one.", title="Goal")
        return Text(tuple(goals.describe(current)), title="Goal")
    limits = session.workspace.config.goal
    try:
        parsed = goals.parse_goal(text, limits.max_turns, limits.max_usd)
    except ValueError as e:
        raise Refused(str(e), code=USAGE) from e
    if session.busy:
        raise Refused("The agent is working: wait, or stop it with Esc, then set the goal.")
    await session.turns.goals.start(parsed)
    return None


@action(chat="goal pause", needs="session")
async def pause(scope: Scope) -> Value:
    """Start no further turns for the goal until it is resumed."""
    if not await scope.session.turns.goals.end("paused", "you paused it"):
        raise Refused("No goal is active in this thread.")
    return Done("The goal is paused; /goal resume continues it.", title="Goal")


@action(chat="goal resume", needs="session", after_turn="resume the goal")
async def resume(scope: Scope) -> Value | None:
    """Continue a paused goal."""
    await scope.session.turns.goals.resume()
    return None


@action(chat="goal stop", needs="session")
async def stop(scope: Scope) -> Value:
    """End the goal; a running turn still finishes."""
    if not await scope.session.turns.goals.end("stopped", "you stopped it"):
        raise Refused("This thread has no open goal.")
    return Done("The goal was stopped.", title="Goal")


@action(chat="agents", needs="session")
async def agents(scope: Scope) -> Value:
    """List the child threads of this thread, and the custom agents."""
    children = scope.session.children

    async def list_rows() -> Value:
        rows = await children.list_all()

        async def use(number: int) -> Value:
            run = pick_numbered(rows, number).run
            if await children.stop(run.child_id):
                return Done(f"The child thread {run.child_id[-8:]} was stopped; its partial report is delivered.")
            if await children.is_elsewhere(run.child_id):
                raise Refused(RUNS_ELSEWHERE)
            return Text((str((run.report or {}).get("block", "It wrote no report.")),))

        custom = [f"{a.name}: {to_one_line(a.description, 100)} ({a.source})" for a in children.custom]
        return Rows(
            tuple(f"{row.run.child_id[-8:]}  {describe_child(row)}" for row in rows),
            "agents",
            tuple(rows),
            "This thread has no child threads.",
            tail="\n".join(["Custom agents:", *custom]) if custom else "No custom agents.",
            what="stops it, or shows its report",
            pick=use,
        )

    return Open("agents", fallback=list_rows)


def describe_child(child: ListedChild) -> str:
    """Return a child in a line: its agent, its goal, and its state."""
    return f"{STATE_SYMBOLS[child.state]} {child.run.name}  {to_one_line(child.run.goal, 120)}  {child.in_words}"


@action(
    option(
        "--revoke", help="Revoke the saved rule with this number.", kind="whole", default=0, metavar="N", in_chat=True
    ),
    shell="rules",
    chat="rules",
    hint="[N]",
    needs="store",
    summary="list the rules of approvals; a number revokes one",
)
async def rules(scope: Scope, revoke: int) -> Value:
    """List the rules of approvals, or revoke a saved one."""
    saved = await scope.store.read(user_state.list_rules, scope.resource)
    if revoke:
        if not 1 <= revoke <= len(saved):
            listing = "/rules" if scope.live is not None else "`sakti rules`"
            raise Refused(f"There is no saved rule {revoke}; {listing} lists them.", code=USAGE)
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
    summary="open a port of the sandbox to this machine, for example for a browser",
)
async def port(scope: Scope, number: int) -> Value:
    """Open a port of the sandbox to this machine until sakti ends."""
    try:
        here = scope.session.workspace.sandbox.open_port(number)
    except OSError as e:
        why = e.strerror or str(e)
        raise Refused(f"Port {number} was not opened: {why}. The agent must start a server in the background.") from e
    return Done(f"http://localhost:{here} now reaches port {number} of the sandbox, until sakti ends.", title="Port")


@action(chat="jobs", needs="session")
async def jobs(scope: Scope) -> Value:
    """List background commands, and end them."""

    async def list_rows() -> Value:
        jobs = scope.session.list_jobs()
        numbers = list(jobs)

        async def end(number: int) -> Value:
            survivors = await scope.session.end_background(pick_numbered(numbers, number))
            return Done(f"Still running: {', '.join(survivors)}." if survivors else "The command was ended.")

        return Rows(
            tuple(f"{number}  {scope.session.describe_job(job)}" for number, job in jobs.items()),
            "jobs",
            tuple(jobs.items()),
            "There are no background commands.",
            what="ends it",
            pick=end,
        )

    return Open("jobs", fallback=list_rows)


@action(arg("question", default="", metavar="QUESTION"), chat="btw", hint="QUESTION", needs="session",
        summary="ask a side question: the thread is not changed")  # fmt: skip
async def btw(scope: Scope, question: str) -> Value | None:
    """Ask the model a question beside the thread, also while it works."""
    if not question.strip():
        raise Refused(
            "Write a question after /btw; it is answered beside the thread, which stays as it is.", code=USAGE
        )
    scope.session.turns.aside.ask(question.strip())
    return None
