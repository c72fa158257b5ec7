"""Log the result of each repair as JSON Lines, so that an interrupted run can be continued."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins

from sakti.core.errors import ConfigError
from sakti.core.types import Json
from tests.bench.repair.catalog import Repair

Outcome = Literal["solved", "unsolved", "error", "not run"]


class Result(Struct, frozen=True):
    """Result of a repair.

    `outcome`: solved or unsolved by the hidden tests; error: the model failed before the end and it is not solved;
    not run: the machine lacks a tool chain. `reason` says why it is not solved, `status` how the turn ended. Tokens
    are of all model calls, memory's too; `cost_usd` is None where no price is known; `seconds` are wall time of the
    turn. `logged`: it is from an earlier run.
    """

    name: str
    language: str
    outcome: Outcome
    reason: str = ""
    status: str = ""
    passed: int = 0
    tests: int = 0
    steps: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0
    logged: bool = False


_FIELDS = set(Result.__struct_fields__)


class Log(Struct, frozen=True):
    """Results of one model in a file that several models may share."""

    path: Path
    model: str

    def read(self, repairs: Sequence[Repair]) -> dict[str, Result]:
        """Return the newest valid result of each of `repairs`, by name.

        Results of its earlier states, of another version of sakti, and lines cut by a crash are ignored. Raises
        `ConfigError` for a file that cannot be read.
        """
        digests = {r.name: r.digest() for r in repairs}
        found: dict[str, Result] = {}
        for row in self._rows():
            name, result = str(row.get("name")), row["result"]
            same = row.get("model") == self.model and name in digests and row.get("digest") == digests[name]
            if same and result.keys() == _FIELDS:
                found[name] = Result(**result)
        return found

    def _rows(self) -> list[Json]:
        try:
            lines = self.path.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as e:
            raise ConfigError(f"The log {self.path} cannot be read: {e.strerror}.") from e
        return [row for row in map(_row, lines) if row is not None]

    def add(self, repair: Repair, result: Result) -> None:
        """Append a result and sync it. Raises `ConfigError` where the file cannot be written."""
        row = {
            "model": self.model,
            "name": repair.name,
            "digest": repair.digest(),
            "result": {**to_builtins(result), "logged": True},
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
            with os.fdopen(handle, "ab") as f:
                torn = b"\n" if f.tell() and not self.path.read_bytes().endswith(b"\n") else b""
                f.write(torn + json.dumps(row).encode() + b"\n")
                f.flush()
                os.fsync(f.fileno())
        except OSError as e:
            raise ConfigError(f"The log {self.path} cannot be written: {e.strerror}.") from e


def _row(line: str) -> Json | None:
    try:
        row: Any = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("result"), dict) else None  # pyright: ignore


def summary(model: str, results: Sequence[Result], wanted: int) -> Json:
    """Return the object of `--json`, for `wanted` requested repairs.

    `run` leaves out those without a tool chain (`not_run`) and those after an error that ended the run
    (`not_reached`); a cost is None where no price is known.
    """
    ran = [r for r in results if r.outcome != "not run"]
    costs = [r.cost_usd for r in ran if r.cost_usd is not None]
    return {
        "model": model,
        "solved": sum(r.outcome == "solved" for r in ran),
        "run": len(ran),
        "not_run": len(results) - len(ran),
        "not_reached": wanted - len(results),
        "errors": sum(r.outcome == "error" for r in ran),
        "steps": sum(r.steps for r in ran),
        "input_tokens": sum(r.input_tokens for r in ran),
        "cached_tokens": sum(r.cached_tokens for r in ran),
        "output_tokens": sum(r.output_tokens for r in ran),
        "cost_usd": sum(costs) if costs else None,
        "seconds": round(sum(r.seconds for r in ran), 1),
        "repairs": [to_builtins(r) for r in results],
    }
