"""Declare trust in the files of a workspace, its skills and commands, and a first AGENTS.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions import registry
from sakti.actions.spec import CHAT, CommandGroup, action, arg, flag, option
from sakti.actions.values import USAGE, Done, Refused, Rows, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import to_one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sakti.actions.scope import Scope
    from sakti.agent.project.skills import Library
    from sakti.agent.project.trust import TrustReview


with lazy_imports:
    from sakti.agent.project import skills as skill_files
    from sakti.agent.project import trust as workspace_trust
    from sakti.agent.reports import mcp_view, trust_view

WORDS = ("yes", "revoke", "list")
RESTART = "It takes effect after a restart."


@action(
    flag("--yes", help="Trust the workspace's settings as they are now."),
    flag("--list", name="list_", help="List trusted workspaces."),
    flag("--revoke", help="Stop trusting this workspace."),
    option("--allow", help="Allow an MCP server of this workspace a variable, a host or a path.", many=True,
           metavar="NAME"),
    shell="trust",
)  # fmt: skip
async def trust(scope: Scope, yes: bool, list_: bool, revoke: bool, allow: Sequence[str] = ()) -> Value:
    """Show the files of this workspace that affect sakti, and trust them. Exit 1: not trusted."""
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
    summary="show the files of this workspace that affect sakti, and trust them: /trust, /trust yes, /trust "
    "revoke, /trust list",
    hint="[yes | revoke | list]",
)
async def trust_here(scope: Scope, what: str) -> Value | None:
    """Show the files of this workspace that affect sakti, and trust them."""
    return await trust.run(scope, yes=what == "yes", list_=what == "list", revoke=what == "revoke")


def _show_files(scope: Scope) -> Value:
    review = workspace_trust.review(scope.workspace)
    command = "`sakti trust --yes`" if scope.live is None else "/trust yes"
    lines = (*trust_view.describe_trust(review, command), *(_describe_needs(scope, review) if review.holds else ()))
    return Text(lines, title="Trust", json=trust_view.to_json(review), exit=int(review.asks))


def _describe_needs(scope: Scope, review: TrustReview) -> list[str]:
    """Return a line for each need of an MCP server that is not allowed yet."""
    answers = workspace_trust.read_answers(scope.workspace)
    needs = [need for need in mcp_view.list_needs(review, scope.env) if not answers.get(need.key)]
    return [f"  {need.sentence}: `sakti trust --allow {need.value}` allows it." for need in needs]


def _allow_needs(scope: Scope, values: Sequence[str]) -> Value:
    review = workspace_trust.review(scope.workspace)
    needs = mcp_view.list_needs(review, scope.env)
    unknown = [value for value in values if value not in {need.value for need in needs}]
    if unknown:
        raise Refused(f"No MCP server of this workspace asks for {unknown[0]}; `sakti trust` shows what they ask for.")
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


GROUP = CommandGroup("skills", "Skills and commands of this workspace, and your own.", CHAT)
DESCRIPTION = 100  # characters shown in a list


@action(shell="skills list", chat="skills", summary="list skills and commands, called as /name or $name")
async def list_(scope: Scope) -> Value:
    """List skills and commands with their files, and what is shadowed, broken or not trusted."""
    review = workspace_trust.review(scope.workspace)
    library = scope.live.workspace.files.library if scope.live is not None else None
    library = library or skill_files.load(scope.workspace, project=review.holds, trusts=review.trusts)
    return Text(_list_lines(library, review), title="Skills", kind="findings", json=_describe_library(library))


def _list_lines(library: Library, review: TrustReview) -> tuple[str, ...]:
    taken = registry.chat_commands()
    out: list[str] = []
    for skill in library.skills:
        name = f"/{skill.name} {skill.hint}".strip()
        if skill.name in taken:
            out.append(f"! {name}: {skill.source}: sakti's own command has this name; rename the file.")
        else:
            who = "" if skill.offered or skill.kind == "command" else "  (not offered to the model)"
            out.append(f"✓ {name}: {to_one_line(skill.description, DESCRIPTION)}  {skill.source}{who}")
    out += [f"! /{s.name}: {s.source}: another one has this name and comes first." for s in library.shadowed]
    out += [f"! {note}" for note in library.notes]
    if not review.holds and review.project.select("skill", "command"):
        out.append("! this project's own are left out until it is trusted: `sakti trust` shows them.")
    return tuple(out) or ("No skills or commands yet: `sakti skills new NAME` creates one.",)


def _describe_library(library: Library) -> object:
    return {
        "skills": [
            {"name": s.name, "kind": s.kind, "description": s.description, "file": str(s.path), "offered": s.offered}
            for s in library.skills
        ],
        "shadowed": [{"name": s.name, "file": str(s.path)} for s in library.shadowed],
        "notes": list(library.notes),
    }


@action(
    arg("name", "1 to 64 of a-z, 0-9 and single hyphens."),
    flag("--user", help="For all your workspaces; otherwise only for this one."),
    shell="skills new",
)
async def new(scope: Scope, name: str, user: bool) -> Value:
    """Create a skill: a folder with a SKILL.md to fill in."""
    if name in registry.chat_commands():
        raise Refused(f"/{name} is a built-in command: choose another name.", code=USAGE)
    path = skill_files.create_skill(scope.workspace, name, user=user)
    then = "; /skills lists it." if user else ", then run `sakti trust --yes`: until then it is left out."
    return Done(f"Written: {path}. Fill in description and text{then}", json={"file": str(path)})


@action(chat="init", needs="session", summary="have the model write a first AGENTS.md")
async def init(scope: Scope) -> None:
    """Let the model write a first AGENTS.md from the workspace."""
    await scope.session.submit("/init")
