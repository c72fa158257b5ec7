"""List completions for a shell: names in the database, settings, files. Uses no network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from sakti.core.lazy import lazy_imports
from sakti.core.text import sanitize_text, to_one_line

with lazy_imports:
    from sakti.agent.reports import mcp_view
    from sakti.cli import common
    from sakti.core import config, resources
    from sakti.providers import presets
    from sakti.store import opening
    from sakti.tasks import queries

if TYPE_CHECKING:
    from sakti.store.connection import Connection

Offer: TypeAlias = tuple[str, str]  # a word and its description
MANY = 100  # kinds of names that are looked up
TITLE = 60  # maximum characters of a title


def make_completer(kind: str | tuple[str, ...]) -> Callable[[str], list[Offer]]:
    """Return a function that lists completions: the words of `kind`, or the names it looks up."""

    def complete(incomplete: str) -> list[Offer]:
        name, sign, _ = incomplete.partition("=")
        if kind == "settings" and sign:
            return [(f"{name}={value}", "") for value in list_values(name)]
        return list(_LOOKUPS[kind]()) if isinstance(kind, str) else [(word, "") for word in kind]

    return complete


def _list_threads(*, deleted: bool = False, whole: bool = False) -> Iterable[Offer]:
    named = _query(lambda db, resource: opening.list_newest_threads(db, resource, MANY, deleted))
    return ((i if whole else i[-8:], _format_title(title)) for i, title in named)


def _list_tasks() -> Iterable[Offer]:
    def list_names(db: Connection, resource: str) -> list[Offer]:
        return [(t["handle"], t["title"]) for t in queries.list_tasks(db, resource, limit=MANY)["tasks"]]

    return ((handle, _format_title(title)) for handle, title in _query(list_names))


def _format_title(title: str) -> str:
    return to_one_line(sanitize_text(title), TITLE)


def _query(fn: Callable[[Connection, str], list[Offer]]) -> list[Offer]:
    """Query the database for this workspace; empty without a database, or if its version differs."""
    try:
        return opening.read_once(common.find_database(), fn, str(common.find_workspace()))
    except opening.NotReady:
        return []


def _list_setting_names(sign: str = "") -> Iterable[Offer]:
    return ((name + sign, config.get_meaning(name).help) for name in config.iter_names())


def list_values(name: str) -> tuple[str, ...]:
    """Return the allowed values of a setting; empty if they cannot be listed."""
    if name == "ui.theme":
        return resources.list_themes()
    return resources.list_modes() if name == "mode" else config.list_choices(name)


def _list_modes() -> Iterable[Offer]:
    return ((name, "") for name in resources.list_modes())


def _list_providers() -> Iterable[Offer]:
    return ((f"{name}/", "") for name in sorted({*presets.PRESETS, *common.load_settings().config.providers}))


def _list_servers() -> Iterable[Offer]:
    listed = mcp_view.load_all(common.find_workspace(), common.load_settings().config.mcp, os.environ)
    return ((entry.server.name, mcp_view.describe_way(entry)) for entry in listed.entries)


_LOOKUPS: dict[str, Callable[[], Iterable[Offer]]] = {
    "threads": _list_threads,
    "deleted threads": lambda: _list_threads(deleted=True),
    "thread ids": lambda: _list_threads(whole=True),
    "tasks": _list_tasks,
    "settings": lambda: _list_setting_names("="),
    "setting names": _list_setting_names,
    "modes": _list_modes,
    "providers": _list_providers,
    "servers": _list_servers,
    "files": list,
}
