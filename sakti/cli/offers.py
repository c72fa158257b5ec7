"""List what a shell completes a value to: words of the declarations, names in the database, settings.

No network; what cannot be read has no names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sakti.cli.place import Offer, Place, values
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line, sanitise

with lazy_imports:
    from sakti.bench.repair import catalog
    from sakti.cli import common
    from sakti.core import config, resources
    from sakti.providers import presets
    from sakti.store import one_shot, thread_names
    from sakti.tasks import queries

if TYPE_CHECKING:
    from sakti.store.connection import Connection

MANY = 100  # names that are looked up
TITLE = 60  # signs of a title


def at(place: Place, word: str) -> list[Offer] | None:
    """Return the words that `word` can become at `place`; None: a file's name."""
    if place.arg is None:
        return _beginning(place.words, word)
    wanted = values(place.arg)
    if wanted == "files":
        return None
    begun = word.removeprefix(place.lead)
    found = _LOOKUPS[wanted](begun) if isinstance(wanted, str) else [Offer(w) for w in wanted]
    return [o._replace(word=place.lead + o.word) for o in _beginning(found, begun)]


def _beginning(offers: Iterable[Offer], word: str) -> list[Offer]:
    return [o for o in offers if o.word.lower().startswith(word.lower())]


def _titled(named: Iterable[tuple[str, str]], word: str) -> list[Offer]:
    """Ids with their titles; what begins a title becomes the title."""
    ids: list[Offer] = []
    titles: list[Offer] = []
    for identifier, title in named:
        shown = one_line(sanitise(title), TITLE)
        ids.append(Offer(identifier, shown, known=False))
        if word and shown == title:  # another one would not be found by it
            titles.append(Offer(title, identifier))
    return _beginning(ids, word) or titles


def _threads(word: str) -> list[Offer]:
    return _titled(((i[-8:], title) for i, title in _thread_names(deleted=False)), word)


def _deleted_threads(word: str) -> list[Offer]:
    return _titled(((i[-8:], title) for i, title in _thread_names(deleted=True)), word)


def _thread_ids(word: str) -> list[Offer]:
    return [Offer(i, one_line(sanitise(title), TITLE), known=False) for i, title in _thread_names(deleted=False)]


def _thread_names(*, deleted: bool) -> list[tuple[str, str]]:
    return _ask(lambda db, resource: thread_names.newest(db, resource, MANY, deleted))


def _tasks(word: str) -> list[Offer]:
    def named(db: Connection, resource: str) -> list[tuple[str, str]]:
        return [(t["handle"], t["title"]) for t in queries.list_tasks(db, resource, limit=MANY)["tasks"]]

    return [Offer(handle, one_line(sanitise(title), TITLE), known=False) for handle, title in _ask(named)]


def _ask(fn: Callable[[Connection, str], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Ask the database about this workspace; nothing where there is none, or one of another version."""
    try:
        return one_shot.ask(common.database_path(), fn, str(common.workspace()))
    except one_shot.NotReady:
        return []


def _setting_names(word: str) -> list[Offer]:
    return [Offer(name, config.meaning(name).help) for name in config.names()]


def _settings(word: str) -> list[Offer]:
    return [o._replace(word=f"{o.word}=") for o in _setting_names(word)]


def _modes(word: str) -> list[Offer]:
    return [Offer(name) for name in resources.mode_names()]


def _providers(word: str) -> list[Offer]:
    return [Offer(f"{name}/") for name in sorted({*presets.PRESETS, *common.settings().config.providers})]


def _repairs(word: str) -> list[Offer]:
    return [Offer(r.name, r.title) for r in catalog.all_repairs()]


_LOOKUPS: dict[str, Callable[[str], list[Offer]]] = {
    "threads": _threads,
    "deleted threads": _deleted_threads,
    "thread ids": _thread_ids,
    "tasks": _tasks,
    "settings": _settings,
    "setting names": _setting_names,
    "modes": _modes,
    "providers": _providers,
    "repairs": _repairs,
}
