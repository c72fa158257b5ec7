"""Load a skill's text by its name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Protocol

from sakti.agent.project import skills
from sakti.agent.project.skills import Library, Skill
from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.errors import ToolError

NAME = "skill"


class LoadedSkills(Protocol):
    """The skills that were loaded in the open thread."""

    def __contains__(self, name: object, /) -> bool: ...

    async def add(self, skill: Skill) -> None: ...


def make_skill_tool(library: Callable[[], Library], loaded: LoadedSkills) -> Tool:
    """Make the tool of one session."""

    @tool(effect="own", name=NAME)
    async def skill(run: ToolContext, name: Annotated[str, "of a skill, or words that say what is needed"]) -> Outcome:
        """Load a skill."""
        offered = {s.name: s for s in library().offered}
        match = offered.get(name.strip().removeprefix("/").removeprefix("$"))
        if match is None:
            raise ToolError(_explain_unknown(library(), name, offered))
        if match.name in loaded:
            return Outcome(f"The skill {match.name} is already loaded: its text is in this conversation.")
        await loaded.add(match)
        return Outcome(skills.format_skill(match, match.body), details={"skill": match.name, "path": match.source})

    return skill


def _explain_unknown(library: Library, name: str, known: Collection[str]) -> str:
    near = skills.find_similar(library, name)
    if near:
        return "There is no such skill. Similar ones:\n" + "\n".join(f"- {s.name}: {s.description}" for s in near)
    return f"There is no skill {name!r}. There are: {', '.join(sorted(known))}."
