"""Ask whether a workspace's own settings may have an effect: `/trust` and `sakti trust`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg, flag, option
from sakti.actions.values import USAGE, Done, Refused, Rows, Text, Value
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sakti.actions.scope import Scope
    from sakti.agent.project.trust import TrustReview

with lazy_imports:
    from sakti.agent.project import trust as workspace_trust
    from sakti.agent.reports import mcp_view, trust_view

WORDS = ("yes", "revoke", "list")
RESTART = "It takes effect after a restart."


@action(
    flag("--yes", help="Trust the workspace's settings as they are now."),
    flag("--list", name="list_", help="List trusted workspaces."),
    flag("--revoke", help="Stop trusting this workspace."),
    option("--allow", help="Let an MCP server of this workspace have a variable, a host or a path.", many=True,
           metavar="NAME"),
    shell="trust",
)  # fmt: skip
async def trust(scope: Scope, yes: bool, list_: bool, revoke: bool, allow: Sequence[str] = ()) -> Value:
    """Show what of this workspace has an effect on sakti, and trust it. Exit 1: not trusted."""
    if yes + list_ + revoke + bool(allow) > 1:
        raise Refused("--yes, --list, --revoke and --allow exclude each other.", code=USAGE)
    if allow:
        return _allow_needs(scope, allow)
    if list_:
        return _list_trusted()
    if revoke:
        return _revoke_trust(scope)
    return _trust_files(scope) if yes else _show_files(scope)


@action(
    arg("what", default="", choices=WORDS),
    chat="trust",
    needs="session",
    summary="show what of the workspace has an effect, and trust it: /trust, /trust yes, /trust revoke, /trust list",
    hint="[yes | revoke | list]",
)
async def trust_here(scope: Scope, what: str) -> Value | None:
    """Show what of this workspace has an effect on sakti, and trust it."""
    return await trust.run(scope, yes=what == "yes", list_=what == "list", revoke=what == "revoke")


def _show_files(scope: Scope) -> Value:
    review = workspace_trust.review(scope.workspace)
    command = "`sakti trust --yes`" if scope.live is None else "/trust yes"
    lines = (*trust_view.lines(review, command), *(_describe_needs(scope, review) if review.holds else ()))
    return Text(lines, title="Trust", json=trust_view.as_json(review), exit=int(review.asks))


def _describe_needs(scope: Scope, review: TrustReview) -> list[str]:
    """Return a line for each need of an MCP server that is not allowed."""
    answers = workspace_trust.read_answers(scope.workspace)
    needs = [need for need in mcp_view.list_needs(review, scope.env) if not answers.get(need.key)]
    return [f"  {need.sentence}: `sakti trust --allow {need.value}` allows it." for need in needs]


def _allow_needs(scope: Scope, values: Sequence[str]) -> Value:
    review = workspace_trust.review(scope.workspace)
    needs = mcp_view.list_needs(review, scope.env)
    unknown = [value for value in values if value not in {need.value for need in needs}]
    if unknown:
        raise Refused(f"No MCP server of this workspace wants {unknown[0]}; `sakti trust` shows what they want.")
    allowed = [need for need in needs if need.value in values]
    workspace_trust.save_answers(scope.workspace, {need.key: True for need in allowed})
    names = ", ".join(dict.fromkeys(need.value for need in allowed))
    return Done(f"Allowed {names}.", json={"allowed": list(values)})


def _trust_files(scope: Scope) -> Value:
    review = workspace_trust.review(scope.workspace)
    project = review.project
    if project.problem:
        raise Refused(project.problem)
    if review.state == "nothing":
        return Done("There is nothing to trust: this workspace has no settings.", json={"trusted": False})
    workspace_trust.save(review)
    after = f" {RESTART}" if scope.live is not None else ""
    names = ", ".join(f.name for f in project.files)
    return Done(f"Trusted {project.workspace}: {names}.{after}", json={"trusted": True})


def _revoke_trust(scope: Scope) -> Value:
    if not workspace_trust.revoke(scope.workspace):
        return Done(f"{scope.workspace} was not trusted.", json={"revoked": False})
    after = f" {RESTART}" if scope.live is not None else ""
    return Done(f"{scope.workspace} is no longer trusted.{after}", json={"revoked": True})


def _list_trusted() -> Value:
    trusted = workspace_trust.list_trusted()
    rows = tuple(f"{path}: {', '.join(names)}" for path, names in trusted)
    json = [{"workspace": str(path), "files": list(names)} for path, names in trusted]
    return Rows(rows, empty="No workspace is trusted.", json=json)
