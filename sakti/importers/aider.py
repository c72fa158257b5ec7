"""Read aider's history of a project: Markdown with `####` before prompts and `>` before output."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from sakti.core.types import MarkerPart, TextPart
from sakti.importers import inputs
from sakti.importers.entries import Entry, Findings, Importer, Source, ThreadInfo

NAME = ".aider.chat.history.md"
_START = "# aider chat started at "
_PROMPT, _PRINTED = "#### ", "> "


class Aider(Importer):
    program = "aider"

    def place(self, home: Path, workspace: Path) -> Path | None:
        return workspace

    def find(self, root: Path, findings: Findings) -> Iterable[Source]:
        if root.is_file():
            yield Source(self.program, root, root.parent)
            return
        path = root / NAME
        if not inputs.is_inside(path, root):
            findings.add(path, 0, "it is a link out of the folder")
        elif path.is_file():
            yield Source(self.program, path, root)

    def entries(self, source: Source, offset: int, findings: Findings) -> Iterator[Entry]:
        thread: ThreadInfo | None = None
        kind, text, index, start, time = "", list[str](), 0, "", 0
        for line in _read(source.path, findings):
            if line.startswith(_START):
                yield from _make_entry(thread, kind, text, start, index, time)
                start = line.removeprefix(_START).strip()
                time = _read_start(start)
                thread = ThreadInfo(
                    f"{source.key or source.path}:{start}", os.path.realpath(source.path.parent), file=str(source.path)
                )
                kind, text, index = "", [], 0
                continue
            line_kind = _find_kind(line)
            if line_kind != kind and (line.strip() or line_kind != "assistant"):
                yield from _make_entry(thread, kind, text, start, index, time)
                index += bool(text)
                kind, text = line_kind, []
            text.append(_remove_mark(line, line_kind))
        yield from _make_entry(thread, kind, text, start, index, time, is_open=True)


def _read(path: Path, findings: Findings) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            while data := file.readline(inputs.LONGEST):
                yield data.decode("utf-8", "replace").rstrip("\r\n")
    except OSError as e:
        findings.add(path, 0, e.strerror or str(e))


def _find_kind(line: str) -> str:
    if line.startswith(_PROMPT.rstrip()):
        return "user"
    return "printed" if line.startswith(_PRINTED.rstrip()) else "assistant"


def _remove_mark(line: str, kind: str) -> str:
    """Return a line without its mark; two spaces at its end are Markdown's line break."""
    if kind == "assistant":
        return line
    return line.removeprefix(_PROMPT if kind == "user" else _PRINTED).rstrip(" ")


def _read_start(text: str) -> int:
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def _make_entry(
    thread: ThreadInfo | None, kind: str, text: list[str], start: str, index: int, time: int, is_open: bool = False
) -> Iterator[Entry]:
    """Yield the entry of consecutive lines of one kind."""
    body = "\n".join(text).strip()
    if thread is None or not body:
        return
    entry_id = f"{thread.id}:{inputs.compute_short_hash(start, index, body)}"
    if kind == "printed":
        yield Entry(thread, entry_id, parts=(MarkerPart("output", body),), time=time, kind="raw", counted=False)
    else:
        role = "user" if kind == "user" else "assistant"
        yield Entry(thread, entry_id, role, (TextPart(body),), time, is_open=is_open and role == "assistant")
