"""Say what of a workspace has an effect, in lines for the shell, the plain chat and the screen."""

from __future__ import annotations

from typing import Any

from sakti.agent import project_settings, trust
from sakti.agent.reports.settings_view import as_toml
from sakti.agent.skills import load as skill_files
from sakti.core.config import Config, flat
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line

with lazy_imports:
    from sakti.agent.hooks import settings as hook_settings

MOST = 12  # settings that are listed; all of them stand in the text


def effects(found: trust.Look, most: int = MOST) -> tuple[str, ...]:
    """Return a line a setting that the files would change, a hook that they bring, a file that goes to the model."""
    return (*settings(found, most), *(f"{name}: {effect}" for name, effect in files(found, most)))


def settings(found: trust.Look, most: int = MOST) -> tuple[str, ...]:
    """Return a line a setting that the project's file would change, a hook, and what of them is not used."""
    if found.config is None:
        return tuple(_hooks(found, most))
    try:
        loaded = project_settings.settings(found, use=True)
    except ConfigError as e:  # the user's own settings: said elsewhere
        return (e.message,)
    usual = flat(Config())
    changes = [
        f"{name} = {_value(value)}" + (f"  (default {_value(usual.get(name))})" if name in usual else "")
        for name, value in loaded.changed.items()
    ]
    more = [f"and {len(changes) - most} more settings"] if len(changes) > most else []
    unused = [f"not used: {one_line(w, 200)}" for w in loaded.warnings]
    return (*(changes[:most] or ["no setting changes"]), *more, *_hooks(found, most), *unused)


def hooks(found: trust.Look) -> hook_settings.Found:
    """Return the hooks that the files bring."""
    return hook_settings.collect((), "", None, {f.name: f.data for f in found.files})


def _hooks(found: trust.Look, most: int) -> list[str]:
    if not _may_hook(found):
        return []
    brought = hooks(found)
    out = [f"runs at {h.title}  ({h.source})" for h in brought.active]
    more = [f"and {len(out) - most} more hooks"] if len(out) > most else []
    return [*out[:most], *more, *(f"not used: {one_line(p, 200)}" for p in brought.problems)]


def _may_hook(found: trust.Look) -> bool:
    return any(f.name in (trust.CONFIG, *trust.HOOKS) and b"ooks" in f.data for f in found.files)


def files(found: trust.Look, most: int = MOST) -> tuple[tuple[str, str], ...]:
    """Return the other files, each with what it does."""
    run = set[str]()
    if _may_hook(found):
        scripts = hook_settings.scripts(found.workspace, {f.name: f.data for f in found.files})
        run = {path.relative_to(found.workspace).as_posix() for path in scripts}
    out = [
        (one_line(f.name, 100), "a hook runs it" if f.name in run else _effect(f))
        for f in found.files
        if f.name not in (trust.CONFIG, *trust.HOOKS)
    ]
    more = [("…", f"and {len(out) - most} more files")] if len(out) > most else []
    return (*out[:most], *more)


def _effect(file: trust.File) -> str:
    if file.says_only or not skill_files.is_of_skills(file.name):
        return "its text goes to the model"
    if file.name.endswith(".md"):
        return "it names commands, which run after the usual questions"
    return "a script, which the model may run after the usual questions"


def lines(found: trust.Look, how: str) -> tuple[str, ...]:
    """Return all there is to say about a workspace's trust; `how` is what trusts it."""
    if found.problem:
        return (found.problem,)
    state = found.state
    if state == "nothing":
        return ("Nothing to trust: this workspace has no settings of its own.",)
    said = {"trusted": "trusted", "new": "not trusted", "changed": "changed since it was trusted"}[state]
    out = [f"{found.workspace}: {said}", *(f"  {one}" for one in effects(found))]
    if state == "trusted":
        return tuple(out)
    return (*out, "", *trust.diff(found).splitlines(), "", f"Left out until {how} trusts it.")


def as_json(found: trust.Look) -> dict[str, Any]:
    return {
        "workspace": str(found.workspace),
        "state": found.state,
        "files": [{"name": f.name, "sha256": f.sha256} for f in found.files],
        "problem": found.problem or None,
    }


def _value(value: Any) -> str:
    return one_line(as_toml(value) or "none", 60)
