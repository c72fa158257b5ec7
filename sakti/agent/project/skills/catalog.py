"""List the skills for the model, within a share of its window; it loads their texts on demand."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sakti.agent.project.skills.library import Library, Skill
from sakti.core import resources
from sakti.core.text import one_line
from sakti.core.tokens import Counter

SHARE = 0.02  # of the window
ASSUMED_WINDOW = 200_000
SHOWN = 300  # characters of a description


def block(library: Library, counter: Counter, window: int | None) -> str:
    """Return the text that names all skills that fit, by name; "" without skills."""
    skills = library.offered
    if not skills:
        return ""
    room = int(SHARE * (window or ASSUMED_WINDOW))
    lines: list[str] = []
    for skill in skills:
        line = _line(skill)
        room -= counter.count(line) + 1
        if room < 0:
            lines.append(f"- {len(skills) - len(lines)} more: call `skill` with words that say what you need.")
            break
        lines.append(line)
    return resources.fill_prompt("system#skills", skills="\n".join(lines))


def _line(skill: Skill) -> str:
    return f"- {skill.name}: {one_line(skill.description, SHOWN)}"


def near(library: Library, words: str) -> Sequence[Skill]:
    """Return the skills that `words` may mean: those whose name or description holds most of them."""
    query_words = set(words.lower().replace("-", " ").split())
    scored = [(len(query_words & _words(s)), s) for s in library.offered]
    ranked = [s for n, s in sorted(scored, key=lambda e: -e[0]) if n]
    if ranked:
        return ranked[:5]
    names = {s.name: s for s in library.offered}
    return [names[n] for n in difflib.get_close_matches(words.lower(), names, 3)]


def _words(skill: Skill) -> set[str]:
    return set(f"{skill.name.replace('-', ' ')} {skill.description.lower()}".split())


def whole(skill: Skill, body: str) -> str:
    """Return a skill's text as the model reads it, with its folder and the files there."""
    if skill.folder is None:
        return f'<command name="{skill.name}">\n{body}\n</command>'
    files = "".join(f"\n- {name}" for name in skill.files())
    folder_note = (
        f"\n\nIts folder is {skill.folder}; paths in it are relative to that.{' Files there:' * bool(files)}{files}"
    )
    return f'<skill name="{skill.name}">\n{body}{folder_note}\n</skill>'


def change(before: str, now: str) -> str:
    """Say which skills are new or other than at the thread's beginning; empty for none."""
    if before == now:
        return ""
    old = set(before.splitlines())
    new = [line for line in now.splitlines() if line not in old and line.startswith("- ")]
    names = {line.partition(":")[0] for line in now.splitlines()}
    gone = [line.partition(":")[0][2:] for line in before.splitlines() if line.startswith("- ")]
    lost = [name for name in gone if f"- {name}" not in names and " more" not in name]
    lines = ["Skills that are new or have changed since this thread began:", *new] if new else []
    return "\n".join((*lines, *(f"The skill {name} was removed." for name in lost)))
