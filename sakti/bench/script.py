"""What a replay plays: settings and turns, as a recorded file has them or `talks` makes them up. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from sakti.core.config import Config, MemorySettings, ObservationSettings, ReflectionSettings, check
from sakti.core.errors import ConfigError
from sakti.core.types import Json

_OBSERVATION = {
    "messageTokens": "message_tokens",
    "bufferTokens": "buffer_tokens",
    "bufferActivation": "buffer_activation",
    "blockAfter": "block_after",
    "previousObserverTokens": "previous_observer_tokens",
}
_REFLECTION = {
    "observationTokens": "observation_tokens",
    "bufferActivation": "buffer_activation",
    "blockAfter": "block_after",
}
_GENERAL = {
    "scope": "scope",
    "retrieval": "retrieval",
    "shareTokenBudget": "share_token_budget",
    "activateAfterIdle": "activate_after_idle",
}

_INCOMPRESSIBLE = ("incompress", "same", "echo", "identity")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model calls. `result` None: nothing ever answers it."""

    tool: str
    args: Json = field(default_factory=dict[str, Any])
    result: str | None = ""


Note: TypeAlias = Literal["system", "synthetic"]
CommandName: TypeAlias = Literal[
    "compact",
    "uncompact",
    "observe",
    "reflect",
    "unreflect",
    "pin",
    "unpin",
    "edit",
    "forget",
    "uncorrect",
    "pause",
    "resume",
    "idle",  # wait until nothing works in the background
    "roundtrips",  # a compaction, a reflection and an edit, each taken back at once
    "restart",
    "kill",
    "stop",  # the process stands still until it is used again
]


@dataclass(frozen=True, slots=True)
class Command:
    """What the user does by hand in a window; `pick` (0–1) chooses the line that is corrected."""

    name: CommandName
    window: int = 0
    pick: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model; with calls it gets their results, without any it ends the turn. `steer`: what the user
    says before it; `too_long`: the provider finds its first request too long; `meanwhile`: what is done by hand in
    other windows while it is prepared."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    steer: str = ""
    thinking: str = ""
    too_long: bool = False
    meanwhile: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """`gap_ms` passes before it, then `commands` are done, `notes` (system messages and sakti's own) said. Without
    steps nobody says anything more. `restart`: every process ends and begins again instead. `guard`: a guardrail looks
    at the turn, and lets it pass or withholds it. `beside`: another window's turn at the same time."""

    user: str = ""
    gap_ms: int = 0
    steps: tuple[Step, ...] = ()
    model: str = ""
    thread: str = ""
    restart: bool = False
    window: int = 0
    commands: tuple[Command, ...] = ()
    notes: tuple[Note, ...] = ()
    guard: Literal["", "passes", "withholds"] = ""
    beside: Turn | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """A conversation and the circumstances it is played in. `delay`: model calls that an Observer needs;
    `budget`: tokens that the model's window leaves for log and messages (None: no limit). `undo_every`: turns
    between a compaction, or an edit, that is taken back at once (0: never). `late`: the database answers late, by
    chance."""

    name: str
    settings: MemorySettings
    turns: tuple[Turn, ...]
    seed: int | None = None
    delay: int = 0
    fail_rate: float = 0.0
    incompressible: bool = False
    budget: int | None = None
    undo_every: int = 0
    late: bool = False


def load(path: Path) -> Script:
    """A recorded conversation. Raises `ConfigError` for a file that is none, and for settings that contradict
    each other."""
    try:
        lines: list[Json] = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
        config = next((x["config"] for x in lines if "config" in x), dict[str, Any]())
        turns = tuple(_turn(x) for x in lines if "user" in x or "restart" in x)
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ConfigError(f"{path} is no recorded conversation: {e}.") from e
    if not turns:
        raise ConfigError(f"{path} has no turn in it.")
    return Script(
        path.stem,
        settings_of(config),
        turns,
        delay=int(config.get("observerDelay") or 0),
        fail_rate=float(config.get("observerFailRate") or 0),
        incompressible=str(config.get("reflector") or "").startswith(_INCOMPRESSIBLE),
    )


def settings_of(config: Json) -> MemorySettings:
    """The recorded configuration as settings. Raises `ConfigError` when it contradicts itself."""

    def some(values: Any, names: dict[str, str]) -> dict[str, Any]:
        fields = cast("Json", values) if isinstance(values, dict) else {}
        return {names[k]: v for k, v in fields.items() if k in names and v is not None}

    general = some(config, _GENERAL)
    observation = some(config.get("observation"), _OBSERVATION)
    title = _title(config.get("observation"))
    if title is not None:
        general["thread_title"] = title
    settings = MemorySettings(
        **general,
        observation=ObservationSettings(**observation),
        reflection=ReflectionSettings(**some(config.get("reflection"), _REFLECTION)),
    )
    check(Config(memory=settings))
    return settings


def _title(observation: Any) -> bool | None:
    value = cast("Json", observation).get("threadTitle") if isinstance(observation, dict) else None
    return value if isinstance(value, bool) else None


def _turn(line: Json) -> Turn:
    if line.get("restart"):
        return Turn(restart=True)
    return Turn(
        str(line["user"]) or ".",
        int(line.get("gapMs") or 0),
        tuple(_step(s) for s in line.get("steps") or ({"text": "."},)),
        _model(line.get("model")),
        str(line.get("thread") or ""),
    )


def _model(value: Any) -> str:
    if isinstance(value, dict):
        fields = cast("Json", value)
        return f"{fields.get('provider', '')}/{fields.get('modelId') or fields.get('model') or ''}"
    return str(value or "")


def _step(value: Json) -> Step:
    tool: Json = value.get("tool") or {}
    result = tool.get("result", "")
    args: Any = tool.get("args")
    text, name = str(value.get("text") or ""), str(tool.get("name") or "")
    if not name:
        return Step(text)
    given = cast("Json", args) if isinstance(args, dict) else {"input": args} if args is not None else {}
    return Step(
        text, (Call(name, given, result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)),)
    )


def parse_seeds(text: str) -> Sequence[int]:
    """ "0-99" or "7". Raises `ValueError`."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last if dash else first) + 1)
