"""List the repairs of the benchmark: a faulty workspace, an issue as a user writes it, hidden tests.

Each is a folder of `tests/bench/repairs`: `repair.toml` (the fields of `Repair`), `workspace/` and `hidden/`. Hidden
tests fail before the reference solution and pass with it, and some pass before, so that a new fault shows.
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from sakti.core.errors import ConfigError
from sakti.core.resources import find_program

FOLDER = Path(__file__).resolve().parent.parent / "repairs"
RUNNERS = FOLDER / "runners"

# What a machine needs to work on a repair, by language; its tests are run by the same programs.
TOOL_CHAINS: dict[str, tuple[str, ...]] = {
    "python": ("python3",),
    "javascript": ("node",),
    "c": ("cc",),
    "java": ("javac", "java"),
    "bash": ("bash",),
}


class Change(Struct, frozen=True):
    """One replacement of the reference solution: `old`, which occurs once in `file`, becomes `new`."""

    file: str
    old: str
    new: str


class Repair(Struct, frozen=True):
    """One repair.

    `sources` are the files and folders that are judged as the run left them, all else is taken from the original;
    `check` runs the visible tests. `level`: 1 found by reading, 2 by reproducing, 3 has more than one place or a
    cause far from its symptom.
    """

    name: str
    folder: Path
    title: str
    language: str
    level: int
    kind: str
    issue: str
    sources: tuple[str, ...]
    check: str
    tests: int
    solution: tuple[Change, ...]

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def hidden(self) -> Path:
        return self.folder / "hidden"

    def digest(self) -> str:
        """Return a hash of the repair: results are valid as long as it is the same."""
        seen = hashlib.sha256()
        for folder in (self.folder, RUNNERS):
            for path in files(folder):
                seen.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
        return seen.hexdigest()[:16]


def files(folder: Path) -> list[Path]:
    """Return the regular files below `folder`, without Python's caches."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def load(folder: Path) -> Repair:
    """Load the repair of a folder."""
    table = tomllib.loads((folder / "repair.toml").read_text("utf-8"))
    solution = tuple(Change(**change) for change in table.pop("solution"))
    sources = tuple(table.pop("sources"))
    return Repair(name=folder.name, folder=folder, sources=sources, solution=solution, **table)


def all_repairs() -> list[Repair]:
    """Return every repair, by language, easy ones first."""
    order = list(TOOL_CHAINS)
    found = [load(path.parent) for path in FOLDER.glob("*/repair.toml")]
    return sorted(found, key=lambda r: (order.index(r.language), r.level, r.name))


def chosen(names: Iterable[str]) -> list[Repair]:
    """Return the repairs of these names, all where none is given. Raises `ConfigError` for an unknown name."""
    there = {r.name: r for r in all_repairs()}
    wanted = list(dict.fromkeys(names))
    if unknown := [n for n in wanted if n not in there]:
        raise ConfigError(f"There is no repair {', '.join(unknown)}; `repair --list` names them all.")
    return [r for name, r in there.items() if not wanted or name in wanted]


def tool_chain(repair: Repair, workspace: Path, path: str | None = None) -> tuple[dict[str, str], list[str]]:
    """Return (absolute paths of the programs that the repair needs, names of the missing ones).

    Nothing is taken from `workspace`; `path` is searched, the process's own PATH if None.
    """
    found = {name: find_program(name, workspace, path) for name in TOOL_CHAINS[repair.language]}
    programs = {name: program for name, program in found.items() if program is not None}
    if "python3" in programs:
        programs["python3"] = sys.executable  # the version that the tests are written for
    return programs, [name for name in found if name not in programs]
