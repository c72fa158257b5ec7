"""Describe the files of a workspace that have an effect, for the shell, the plain chat and the TUI."""

from __future__ import annotations

from typing import Any

from sakti.agent import settings as project_settings
from sakti.agent.project.files import ProjectFile, ProjectFiles, select_hook_files, select_server_files
from sakti.agent.project.hooks import settings as hook_settings
from sakti.agent.project.trust import TrustReview
from sakti.agent.reports import mcp_view
from sakti.agent.settings import format_toml
from sakti.core.config import Config, flatten
from sakti.core.errors import ConfigError
from sakti.core.text import format_count, to_one_line

MOST = 12  # rows of a kind; the text has all of them
STATES = {"trusted": "trusted", "new": "not trusted", "changed": "changed since it was trusted"}


def list_effects(review: TrustReview, most: int = MOST) -> tuple[str, ...]:
    """Return a line for each setting that changes, each hook, and each other file with its effect."""
    lines = (f"{name}: {effect}" for name, effect in list_other_files(review, most))
    return (*list_settings(review.project, most), *lines)


def list_settings(project: ProjectFiles, most: int = MOST) -> tuple[str, ...]:
    """Return a line for each setting that changes, each hook, MCP server and unused part."""
    if project.config is None:
        return (*_list_hooks(project, most), *_list_servers(project, most))
    try:
        loaded = project_settings.load_settings(project, use=True)
    except ConfigError as e:  # the user's own settings: reported elsewhere
        return (e.message,)
    usual = flatten(Config())
    changes = [
        f"{name} = {_format_value(value)}" + (f"  (default {_format_value(usual.get(name))})" if name in usual else "")
        for name, value in loaded.changed.items()
    ]
    unused = [f"not used: {to_one_line(w, 200)}" for w in loaded.warnings]
    return (
        *(_cut(changes, most, "settings") or ["no setting changes"]),
        *_list_hooks(project, most),
        *_list_servers(project, most),
        *unused,
    )


def _list_hooks(project: ProjectFiles, most: int) -> list[str]:
    sources = select_hook_files(project.files)
    if not sources:
        return []
    hooks = hook_settings.collect((), "", None, sources)
    rows = [f"runs at {h.title}  ({h.source})" for h in hooks.active]
    return [*_cut(rows, most, "hooks"), *(f"not used: {to_one_line(p, 200)}" for p in hooks.problems)]


def _list_servers(project: ProjectFiles, most: int) -> list[str]:
    if not select_server_files(project.files):
        return []
    return _cut(mcp_view.describe_project(project), most, "MCP servers")


def _cut(rows: list[str], most: int, noun: str) -> list[str]:
    return [*rows[:most], *([f"and {len(rows) - most} more {noun}"] if len(rows) > most else [])]


def list_other_files(review: TrustReview, most: int = MOST) -> tuple[tuple[str, str], ...]:
    """Return the other files with their effect, changed ones first."""
    marks = {c.name: c.how for c in review.changes} if review.state == "changed" else {}
    rows = [
        (
            to_one_line(f.name, 100),
            f"{marks[f.name]}: {_describe_effect(f)}" if f.name in marks else _describe_effect(f),
        )
        for f in review.project.files
        if f.kind not in ("settings", "hooks", "mcp")
    ]
    rows += [(to_one_line(name, 100), how) for name, how in marks.items() if how == "removed"]
    rows.sort(key=lambda row: not row[1].startswith(("new: ", "changed: ", "removed")))
    more = [("…", f"and {format_count(len(rows) - most, 'more file')}")] if len(rows) > most else []
    return (*rows[:most], *more)


def _describe_effect(file: ProjectFile) -> str:
    if file.kind == "script":
        return "a hook or an MCP server runs it"
    if file.is_text or file.kind == "page":
        return "its text goes to the model"
    if file.name.endswith(".md"):
        return "it names commands, which run after the usual questions"
    return "a script, which the model may run after the usual questions"


def describe_trust(review: TrustReview, how: str) -> tuple[str, ...]:
    """Return a full account of a workspace's trust; `how` is the command that trusts it."""
    project = review.project
    if project.problem:
        return (project.problem,)
    if review.state == "nothing":
        return ("Nothing to trust: this workspace has no settings.",)
    rows = [f"{project.workspace}: {STATES[review.state]}", *(f"  {one}" for one in list_effects(review))]
    if review.state == "trusted":
        return tuple(rows)
    return (*rows, "", *review.diff.splitlines(), "", f"Left out until {how} trusts it.")


def to_json(review: TrustReview) -> dict[str, Any]:
    """Return the state of a workspace's trust for programs."""
    project = review.project
    return {
        "workspace": str(project.workspace),
        "state": review.state,
        "files": [{"name": f.name, "sha256": f.sha256} for f in project.files],
        "problem": project.problem or None,
    }


def _format_value(value: Any) -> str:
    return to_one_line(format_toml(value) or "none", 60)
