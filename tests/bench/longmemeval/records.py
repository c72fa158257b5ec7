"""Keep the log of a run: JSON Lines, one record per question and arm; a killed run continues."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sakti.actions.values import USAGE, Refused
from sakti.core.types import Json
from sakti.importers.inputs import compute_short_hash, read_status
from tests.bench.longmemeval.recall import Reach


class LoggedUsage(Struct):
    fresh: float
    cached: float
    output: float
    usd: float | None


class LoggedModels(Struct):
    observer: str | None
    answer: str | None
    judge: str | None


class EvidenceIds(Struct):
    repaired: int
    dropped: int


class PlantedShares(Struct):
    retention: list[float | None]
    invented_per_1000: float
    false_replaced: float
    stale: float


class LoggedRecord(Struct, tag_field="kind"):
    """Fields of a record that tables are computed from; it has others as well."""

    key: str
    id: str


class LoggedRun(LoggedRecord, tag="run"):
    format: str
    seed: int
    versions: dict[str, str]
    evidence_ids: EvidenceIds


class LoggedConversation(LoggedRecord, tag="conversation"):
    arm: str
    usage: dict[str, LoggedUsage]


class LoggedQuestion(LoggedConversation, tag="question"):
    conversation: str
    type: str
    abstention: bool
    evidence: int
    models: LoggedModels
    recall: dict[str, Reach]
    log_tokens: int
    window_tokens: int
    results_tokens: int
    latency_ms: int = 0
    verdict: bool | None = None


class LoggedLine(LoggedRecord, tag="line"):
    arm: str
    supported: bool | None


class LoggedPair(LoggedRecord, tag="pair"):
    expected: bool
    verdict: bool | None


class LoggedPlanted(LoggedRecord, tag="planted"):
    arm: str
    figures: PlantedShares


AnyRecord: TypeAlias = LoggedRun | LoggedConversation | LoggedQuestion | LoggedLine | LoggedPair | LoggedPlanted


class RunLog:
    """Records of a run by their keys, in memory and in a file (None: in memory alone).

    A key names what was measured and with what, so a record with another prompt, model or setting is another one.
    """

    def __init__(self, path: Path | None, *, resume: bool = False) -> None:
        """Open a log. Raises Refused (usage) if the file is no log, or has records and `resume` is not set."""
        self.path = path
        self.records: dict[str, Json] = {}
        self._wanted: list[str] = []
        status = read_status(path) if path is not None else None
        if path is None or status is None or not status.st_size:
            return
        self.records = {r["key"]: r for r in read(path)}
        if not resume:
            raise Refused(f"{path} exists: continue it with --resume, or name another file.", code=USAGE)
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
        with _refused_errors(self.path, "written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def used(self) -> list[Json]:
        """Return the records of this run, without those of other settings in the same file."""
        return [self.records[key] for key in dict.fromkeys(self._wanted) if key in self.records]


def read(path: Path) -> list[Json]:
    """Return the records of a log: its complete lines. Raises Refused (usage), also for any other file."""
    with _refused_errors(path, "read"):
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline was torn by a kill
    records: list[Json] = []
    for number, line in enumerate(lines, 1):
        try:
            record: Any = msgspec.json.decode(line)
            msgspec.convert(record, AnyRecord if records else LoggedRun)
        except (ValueError, RecursionError) as e:
            raise Refused(f"{path} is not a log of this benchmark: line {number}: {e}.", code=USAGE) from e
        records.append(record)
    if not records:
        raise Refused(f"{path} is not a log of this benchmark.", code=USAGE)
    return records


def _cut_torn_line(path: Path) -> None:
    with _refused_errors(path, "written"), path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


@contextlib.contextmanager
def _refused_errors(path: Path, what: str) -> Generator[None]:
    try:
        yield
    except OSError as e:
        raise Refused(f"{path} cannot be {what}: {e.strerror}.", code=USAGE) from e


def key_of(*pieces: object) -> str:
    return compute_short_hash(*(json.dumps(p, sort_keys=True, default=str) for p in pieces))
