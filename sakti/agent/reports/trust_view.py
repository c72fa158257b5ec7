"""Describe the files of a workspace that have an effect, for the shell, the plain chat and the TUI."""

from __future__ import annotations

from typing import Any

from sakti.agent import settings as project_settings
from sakti.agent.project.files import ProjectFile, ProjectFiles, hook_files, server_files
from sakti.agent.project.hooks import settings as hook_settings
from sakti.agent.project.trust import TrustReview
from sakti.agent.reports import mcp_view
from sakti.agent.settings import as_toml
from sakti.core.config import Config, flatten
from sakti.core.errors import ConfigError
from sakti.core.text import counted, one_line

MOST = 12  # rows of a kind; the text has all of them
STATES = {"trusted": "trusted", "new": "not trusted", "changed": "changed since it was trusted"}


def effects(review: TrustReview, most: int = MOST) -> tuple[str, ...]:
    """Return a line for each setting that changes, each hook, and each other file with its effect."""
    lines = (f"{name}: {effect}" for name, effect in files(review, most))
    return (*settings(review.project, most), *lines)


def settings(project: ProjectFiles, most: int = MOST) -> tuple[str, ...]:
    """Return a line for each setting that changes, each hook, MCP server and unused part."""
    if project.config is None:
        return (*_hooks(project, most), *_servers(project, most))
    try:
        loaded = project_settings.load_settings(project, use=True)
    except ConfigError as e:  # the user's own settings: reported elsewhere
        return (e.message,)
    usual = flatten(Config())
    changes = [
        f"{name} = {_value(value)}" + (f"  (default {_value(usual.get(name))})" if name in usual else "")
        for name, value in loaded.changed.items()
    ]
    unused = [f"not used: {one_line(w, 200)}" for w in loaded.warnings]
    return (
        *(_cut(changes, most, "settings") or ["no setting changes"]),
        *_hooks(project, most),
        *_servers(project, most),
        *unused,
    )


def _hooks(project: ProjectFiles, most: int) -> list[str]:
    sources = hook_files(project.files)
    if not sources:
        return []
    hooks = hook_settings.collect((), "", None, sources)
    rows = [f"runs at {h.title}  ({h.source})" for h in hooks.active]
    return [*_cut(rows, most, "hooks"), *(f"not used: {one_line(p, 200)}" for p in hooks.problems)]


def _servers(project: ProjectFiles, most: int) -> list[str]:
    if not server_files(project.files):
        return []
    return _cut(mcp_view.describe_project(project), most, "MCP servers")


def _cut(rows: list[str], most: int, noun: str) -> list[str]:
    return [*rows[:most], *([f"and {len(rows) - most} more {noun}"] if len(rows) > most else [])]


def files(review: TrustReview, most: int = MOST) -> tuple[tuple[str, str], ...]:
    """Return the other files with their effect, changed ones first."""
    marks = {c.name: c.how for c in review.changes} if review.state == "changed" else {}
    rows = [
        (one_line(f.name, 100), f"{marks[f.name]}: {_effect(f)}" if f.name in marks else _effect(f))
        for f in review.project.files
        if f.kind not in ("settings", "hooks", "mcp")
    ]
    rows += [(one_line(name, 100), how) for name, how in marks.items() if how == "removed"]
    rows.sort(key=lambda row: not row[1].startswith(("new: ", "changed: ", "removed")))
    more = [("…", f"and {counted(len(rows) - most, 'more file')}")] if len(rows) > most else []
    return (*rows[:most], *more)


def _effect(file: ProjectFile) -> str:
    if file.kind == "script":
        return "a hook or an MCP server runs it"
    if file.is_text or file.kind == "page":
        return "its text goes to the model"
    if file.name.endswith(".md"):
        return "it names commands, which run after the usual questions"
    return "a script, which the model may run after the usual questions"


def lines(review: TrustReview, how: str) -> tuple[str, ...]:
    """Return a full account of a workspace's trust; `how` is the command that trusts it."""
    project = review.project
    if project.problem:
        return (project.problem,)
    if review.state == "nothing":
        return ("Nothing to trust: this workspace has no settings.",)
    rows = [f"{project.workspace}: {STATES[review.state]}", *(f"  {one}" for one in effects(review))]
    if review.state == "trusted":
        return tuple(rows)
    return (*rows, "", *review.diff.splitlines(), "", f"Left out until {how} trusts it.")


def as_json(review: TrustReview) -> dict[str, Any]:
    """Return the state of a workspace's trust for programs."""
    project = review.project
    return {
        "workspace": str(project.workspace),
        "state": review.state,
        "files": [{"name": f.name, "sha256": f.sha256} for f in project.files],
        "problem": project.problem or None,
    }


def _value(value: Any) -> str:
    return one_line(as_toml(value) or "none", 60)
