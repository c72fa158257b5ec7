"""Keep the log of a run: JSON Lines, one record per question and arm; a killed run continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sakti.actions.values import USAGE, Refused
from sakti.core.types import Json
from sakti.importers.inputs import compute_short_hash


class RunLog:
    """Records of a run by their keys, in memory and in a file (None: in memory alone).

    A key names what was measured and with what, so a record with another prompt, model or setting is another one.
    """

    def __init__(self, path: Path | None, *, resume: bool = False) -> None:
        """Open a log; raises Refused (usage) if the file has records and `resume` is not set."""
        self.path = path
        self.records: dict[str, Json] = {}
        self._wanted: list[str] = []
        if path is None or not path.exists():
            return
        if not resume and path.stat().st_size:
            raise Refused(f"{path} exists: continue it with --resume, or name another file.", code=USAGE)
        self.records = {r["key"]: r for r in read(path)}
        _cut_torn_line(path)

    def find(self, key: str) -> Json | None:
        """Return the record of a key; it is part of this run."""
        self._wanted.append(key)
        return self.records.get(key)

    def add(self, key: str, record: Json) -> None:
        record = {"key": key, **record}
        self.records[key] = record
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def used(self) -> list[Json]:
        """Return the records of this run, without those of other settings in the same file."""
        return [self.records[key] for key in dict.fromkeys(self._wanted) if key in self.records]


def read(path: Path) -> list[Json]:
    """Return the complete records of a log. Raises Refused (usage)."""
    try:
        lines = path.read_text("utf-8", "replace").split("\n")
    except OSError as e:
        raise Refused(f"{path} cannot be read: {e.strerror}.", code=USAGE) from e
    records: list[Json] = []
    for number, line in enumerate(lines, 1):
        try:
            record: Any = json.loads(line) if line.strip() else None
        except ValueError as e:
            if number == len(lines):  # the run was killed while it wrote this
                break
            raise Refused(f"{path}, line {number}: it is not JSON.", code=USAGE) from e
        if isinstance(record, dict) and "key" in record:
            records.append(record)
    return records


def _cut_torn_line(path: Path) -> None:
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def key_of(*pieces: object) -> str:
    return compute_short_hash(*(json.dumps(p, sort_keys=True, default=str) for p in pieces))
