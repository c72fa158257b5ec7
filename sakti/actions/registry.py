"""Find the actions in the files of `sakti.actions`, importing only the needed files."""

from __future__ import annotations

import functools
import importlib
import keyword
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import sakti.actions
from sakti.actions.spec import Action, CommandGroup
from sakti.core.resources import list_modes


class Subject(NamedTuple):
    """The declarations of one file in order: actions, and their groups in the shell."""

    actions: tuple[Action, ...]
    groups: tuple[CommandGroup, ...]

    def group(self, word: str) -> CommandGroup | None:
        """Return the group `sakti WORD`; None if the word is one command."""
        return next((group for group in self.groups if group.name == word), None)


def read_subject(module: ModuleType) -> Subject:
    """Return the declarations of a module in order; for a package, those of its PARTS."""
    parts: tuple[ModuleType, ...] = getattr(module, "PARTS", (module,))
    actions = [v for part in parts for v in vars(part).values() if isinstance(v, Action)]
    return Subject(tuple(actions), tuple(v for v in vars(module).values() if isinstance(v, CommandGroup)))


# Commands of the shell that are declared in a file of another name.
_FILE_OF = {
    **dict.fromkeys(("config", "doctor", "local", "models"), "installation"),
    **dict.fromkeys(("skills", "trust"), "project"),
    **dict.fromkeys(("diff", "redo"), "undo"),
    **{"connect": "mcp", "help": "screen", "rules": "modes"},
}


@functools.cache
def find_subject(word: str) -> Subject | None:
    """Return the file of the shell's command `sakti WORD`, if there is one."""
    name = _FILE_OF.get(word, word + "_" * keyword.iskeyword(word))
    if name not in _list_files():
        return None
    declared = read_subject(importlib.import_module(f"sakti.actions.{name}"))
    return declared if any(a.shell.split()[:1] == [word] for a in declared.actions) else None


@functools.cache
def _list_files() -> frozenset[str]:
    paths = (p for folder in sakti.actions.__path__ for p in Path(folder).iterdir())
    return frozenset(p.stem for p in paths if p.suffix == ".py" or (p / "__init__.py").exists())


@functools.cache
def list_subjects() -> tuple[Subject, ...]:
    """Return all files that declare an action, by name."""
    names = sorted(_list_files() - {"__init__"})
    subjects = [read_subject(importlib.import_module(f"sakti.actions.{name}")) for name in names]
    return tuple(s for s in subjects if s.actions)


@functools.cache
def chat_commands() -> dict[str, Action]:
    """Return slash commands by name, in the order of lists, without subcommands."""
    commands = {a.chat: a for s in list_subjects() for a in s.actions if a.chat and " " not in a.chat}
    return dict(sorted(commands.items(), key=lambda item: _sort_key(item[0])))


def find_subcommands(name: str, own: Mapping[str, Action] | None = None) -> dict[str, Action]:
    """Return the slash commands `/name WORD …` by WORD."""
    all_ = (*(a for s in list_subjects() for a in s.actions), *(own or {}).values())
    return {a.chat.partition(" ")[2]: a for a in all_ if a.chat.startswith(f"{name} ")}


def list_choices(name: str) -> tuple[str, ...]:
    """List the words that complete the first argument of a slash command."""
    if name not in chat_commands():
        return ()
    first = chat_commands()[name].args[:1]
    offered = first[0].choices or first[0].offers if first else ()
    offered = list_modes() if offered == "modes" else offered
    return (*(() if isinstance(offered, str) else offered), *find_subcommands(name))


# Commands listed first, in this order; others follow by name.
_FIRST = (
    "help compact search tasks memory observations context threads new rename delete-message resume model mode approve"
    " theme setup settings cost doctor clear quit"
).split()


def _sort_key(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else _FIRST.index("clear"), name)


def list_shell_words() -> set[str]:
    """Return the first words of the shell's commands."""
    return {a.shell.split()[0] for s in list_subjects() for a in s.actions if a.shell}
