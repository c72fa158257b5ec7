"""Import the history of other programs: one file per program, one writer.

`entries` defines what an importer yields, `inputs` reads files and values of any shape, `writer` turns entries into
threads and messages, `service` runs an import. `READERS` lists the programs.

To add a program, write a class with the methods of `Importer`, name it in `READERS` and in `PROGRAMS` of
`actions.import_`, and describe its files in `help/import.md`. Ids of entries must be unique within the program; text
written by the program must never be imported as the user's.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from pathlib import Path

from sakti.importers.entries import Findings, Importer

READERS = {
    "claude-code": "claude_code.ClaudeCode",
    "codex": "codex.Codex",
    "opencode": "opencode.OpenCode",
    "pi": "pi.Pi",
    "vibe": "vibe.Vibe",
    "aider": "aider.Aider",
    "mastra": "mastra.Mastra",
}


def make_importer(program: str) -> Importer:
    module, _, name = READERS[program].partition(".")
    return getattr(importlib.import_module(f"sakti.importers.{module}"), name)()


async def find_present(home: Path, workspace: Path) -> list[tuple[Importer, Path]]:
    """Run `list_present` without blocking the event loop."""
    return await asyncio.to_thread(list_present, home, workspace)


def list_present(home: Path, workspace: Path) -> list[tuple[Importer, Path]]:
    """Return the importers of programs that have something to import, with their folders."""
    out: list[tuple[Importer, Path]] = []
    for importer in map(make_importer, READERS):
        root = importer.place(home, workspace)
        if root is not None and root.is_dir() and next(iter(importer.find(root, Findings())), None) is not None:
            out.append((importer, root))
    return out


def map_folder(folder: str, renamed: Sequence[tuple[str, str]]) -> str:
    """Map a folder to its new place; `renamed` are pairs (before, after)."""
    for before, after in renamed:
        if folder == before or Path(folder).is_relative_to(before):
            return str(Path(after) / Path(folder).relative_to(before)) if folder != before else after
    return folder
