"""List skills and commands, begin a new skill, write a first AGENTS.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions import registry
from sakti.actions.spec import CHAT, CommandGroup, action, arg, flag
from sakti.actions.values import USAGE, Done, Refused, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.agent.project.skills import Library
    from sakti.agent.project.trust import TrustReview

with lazy_imports:
    from sakti.agent.project import skills as skill_files
    from sakti.agent.project import trust as workspace_trust

GROUP = CommandGroup("skills", "Skills and commands of this workspace and of the user.", CHAT)
DESCRIPTION = 100  # characters that a list shows


@action(shell="skills list", chat="skills", summary="list skills and commands: what is typed as /name or $name")
async def list_(scope: Scope) -> Value:
    """List skills and commands with their files, and what is shadowed, broken or not trusted."""
    review = workspace_trust.review(scope.workspace)
    library = scope.live.workspace.files.library if scope.live is not None else None
    library = library or skill_files.load(scope.workspace, project=review.holds, trusts=review.trusts)
    return Text(_lines(library, review), title="Skills", kind="findings", json=_json(library))


def _lines(library: Library, review: TrustReview) -> tuple[str, ...]:
    taken = registry.chat()
    out: list[str] = []
    for skill in library.skills:
        name = f"/{skill.name} {skill.hint}".strip()
        if skill.name in taken:
            out.append(f"! {name}: {skill.source}: sakti's own command has this name; rename the file.")
        else:
            who = "" if skill.offered or skill.kind == "command" else "  (not offered to the model)"
            out.append(f"✓ {name}: {one_line(skill.description, DESCRIPTION)}  {skill.source}{who}")
    out += [f"! /{s.name}: {s.source}: another one has this name and comes first." for s in library.shadowed]
    out += [f"! {note}" for note in library.notes]
    if not review.holds and review.project.select("skill", "command"):
        out.append("! this project's own are left out until it is trusted: `sakti trust` shows them.")
    return tuple(out) or ("No skills or commands yet: `sakti skills new NAME` begins one.",)


def _json(library: Library) -> object:
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
    flag("--user", help="For all workspaces of the user; otherwise for this one."),
    shell="skills new",
)
async def new(scope: Scope, name: str, user: bool) -> Value:
    """Begin a skill: a folder with a SKILL.md to fill in."""
    if name in registry.chat():
        raise Refused(f"/{name} is a command of sakti itself: choose another name.", code=USAGE)
    path = skill_files.create_skill(scope.workspace, name, user=user)
    return Done(f"Written: {path}. Fill in description and text; /skills lists it.", json={"file": str(path)})


@action(chat="init", needs="session", summary="have the model write a first AGENTS.md")
async def init(scope: Scope) -> None:
    """Let the model write a first AGENTS.md from the workspace."""
    await scope.session.submit("/init")
