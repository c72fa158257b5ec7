"""What a replay plays: settings and turns, from a recorded file or generated from a seed. Pure."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

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
class Step:
    """One answer of the model; with a tool it calls it and gets `result`, without it ends the turn."""

    text: str
    tool: str = ""
    args: Json = field(default_factory=dict[str, Any])
    result: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """`gap_ms` passes before it. `restart`: the process ends and begins again instead."""

    user: str = ""
    gap_ms: int = 0
    steps: tuple[Step, ...] = ()
    model: str = ""
    thread: str = ""
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A conversation and the circumstances it is played in. `delay`: model calls that an Observer needs;
    `budget`: tokens that the model's window leaves for log and messages (None: no limit). `undo_every`: turns
    between a compaction, or an edit, that is taken back at once (0: never)."""

    name: str
    settings: MemorySettings
    turns: tuple[Turn, ...]
    seed: int | None = None
    delay: int = 0
    fail_rate: float = 0.0
    incompressible: bool = False
    budget: int | None = None
    undo_every: int = 0


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
        str(line["user"]),
        int(line.get("gapMs") or 0),
        tuple(_step(s) for s in line.get("steps") or ()),
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
    return Step(
        str(value.get("text") or ""),
        str(tool.get("name") or ""),
        cast("Json", args) if isinstance(args, dict) else {"input": args} if args is not None else {},
        result if isinstance(result, str) else json.dumps(result, ensure_ascii=False),
    )


# --- generated conversations --------------------------------------------------------------------------------

_VOCABULARY = (
    "the token is refreshed before request handler fails with a timeout and retry then tests pass again please fix "
    "index of cache schema migration parser error while deploying staging because user login does not work on branch"
)
_WORDS = tuple(_VOCABULARY.split())
_FOLDERS = ("src/auth", "src/api", "lib/core", "tests/unit", "web/components", "db/migrations")
_NAMES = ("session", "token", "handler", "schema", "router", "cache", "parser", "user_store", "LoginForm")
_ENDINGS = ("py", "ts", "tsx", "sql", "md", "toml")
_TOOLS = ("read", "bash", "grep", "edit")
MINUTE = 60_000


def generate(seed: int) -> Script:
    """A conversation of its own for every seed: settings, sizes, tools, gaps, models, restarts, circumstances."""
    source = random.Random(seed)
    settings = _settings(source)
    threshold = settings.observation.message_tokens
    delay = source.choice((0, 0, 0, 1, 2, 5, 9))
    budget = source.choice((None, None, None, threshold * 2, threshold)) if seed % 2 else None
    turns = tuple(_turns(source, threshold))
    return Script(
        f"seed-{seed}",
        settings,
        turns,
        seed,
        delay,
        source.choice((0.0, 0.0, 0.0, 0.1, 0.4)),
        source.random() < 0.12,
        budget,
        source.choice((0, 0, 5, 9)),
    )


def _settings(source: random.Random) -> MemorySettings:
    threshold = source.choice((600, 1_000, 2_000, 3_500, 6_000))
    buffer: Any = source.choice((0.1, 0.2, 0.25, 0.5, False, threshold // 3))
    observation = ObservationSettings(
        message_tokens=threshold,
        buffer_tokens=buffer,
        buffer_activation=source.choice((0.5, 0.7, 0.8, 0.95, 1.0)),
        block_after=source.choice((1.0, 1.1, 1.2, 1.5, 2.0)),
        previous_observer_tokens=source.choice((0, 200, 2_000)),
    )
    reflection = ReflectionSettings(
        observation_tokens=source.choice((300, 600, 1_500)),
        buffer_activation=source.choice((0.3, 0.5, 0.8, 1.0)),
        block_after=source.choice((1.0, 1.2, 1.5)),
    )
    settings = MemorySettings(
        share_token_budget=source.random() < 0.25,
        retrieval=source.random() < 0.7,
        activate_after_idle=source.choice(("auto", "5m", False)),
        observation=observation,
        reflection=reflection,
    )
    try:
        check(Config(memory=settings))
    except ConfigError:  # an odd draw: the same one with a usual interval
        settings = dataclasses.replace(settings, observation=dataclasses.replace(observation, buffer_tokens=0.2))
        check(Config(memory=settings))
    return settings


def _turns(source: random.Random, threshold: int) -> Iterator[Turn]:
    model = "scripted/one"
    for _ in range(source.randint(12, 32)):
        if source.random() < 0.06:
            yield Turn(restart=True)
        if source.random() < 0.06:
            model = source.choice(("scripted/one", "scripted/two", "other/three"))
        gap = source.choice((1_000, 20_000, 90_000, 20 * MINUTE, 26 * 60 * MINUTE)) if source.random() < 0.3 else 20_000
        calls = source.choice((0, 0, 1, 2, 4, 9))
        steps = [
            Step(_text(source, 30) if source.random() < 0.5 else "", *_tool(source, threshold)) for _ in range(calls)
        ]
        if source.random() > 0.05:
            steps.append(Step(_text(source, 120)))
        elif not steps:
            steps.append(Step("Done."))
        yield Turn(_text(source, _size(source, threshold)), gap, tuple(steps), model)


def _size(source: random.Random, threshold: int) -> int:
    """Tokens of a text, about: mostly small, now and then above the threshold."""
    draw = source.random()
    if draw < 0.03:
        return int(threshold * source.choice((1.1, 1.6, 2.5)))
    return int(threshold * 0.3) if draw < 0.15 else source.randint(5, 120)


def _tool(source: random.Random, threshold: int) -> tuple[str, Json, str]:
    return source.choice(_TOOLS), {"path": path(source)}, _text(source, _size(source, threshold))


def path(source: random.Random) -> str:
    return f"{source.choice(_FOLDERS)}/{source.choice(_NAMES)}.{source.choice(_ENDINGS)}"


def _text(source: random.Random, tokens: int) -> str:
    words: list[str] = []
    while len(words) < max(3, tokens):
        draw = source.random()
        words.append(
            path(source)
            if draw < 0.02
            else f"{source.choice(_NAMES)}_{source.randint(1, 999)}"
            if draw < 0.05
            else source.choice(_WORDS)
        )
        if draw > 0.97:
            words[-1] += source.choice((".", "?", "!\n"))
    return " ".join(words)


def parse_seeds(text: str) -> Sequence[int]:
    """ "0-99" or "7". Raises `ValueError`."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last if dash else first) + 1)
