"""Ask whether a workspace's own settings may have an effect: `/trust` and `sakti trust`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg, flag
from sakti.actions.values import USAGE, Done, Refused, Rows, Text, Value
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.agent.project import trust as workspace_trust
    from sakti.agent.reports import trust_view

WORDS = ("yes", "revoke", "list")
RESTART = "It takes effect after a restart."


@action(
    flag("--yes", help="Trust the workspace's settings as they are now."),
    flag("--list", name="list_", help="List trusted workspaces."),
    flag("--revoke", help="Trust this workspace no more."),
    shell="trust",
)
async def trust(scope: Scope, yes: bool, list_: bool, revoke: bool) -> Value:
    """Show what of this workspace has an effect on sakti, and trust it. Exit 1: not trusted."""
    if yes + list_ + revoke > 1:
        raise Refused("--yes, --list and --revoke exclude each other.", code=USAGE)
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
    lines = trust_view.lines(review, command)
    return Text(lines, title="Trust", json=trust_view.as_json(review), exit=int(review.asks))


def _trust_files(scope: Scope) -> Value:
    review = workspace_trust.review(scope.workspace)
    project = review.project
    if project.problem:
        raise Refused(project.problem)
    if review.state == "nothing":
        return Done("There is nothing to trust: this workspace has no settings of its own.", json={"trusted": False})
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
