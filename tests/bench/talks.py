"""Generate conversations from a seed: settings, sizes, who talks where, and what happens in between. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from sakti.core.config import Config, MemorySettings, ObservationSettings, ReflectionSettings, check
from sakti.core.errors import ConfigError
from sakti.core.types import Json
from tests.bench.script import Call, Command, CommandName, Note, Script, Step, Turn

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
GAPS = (1_000, 20_000, 90_000, 20 * MINUTE, 26 * 60 * MINUTE)

# What is done by hand, and how often.
_OFTEN: dict[CommandName, int] = {
    "compact": 3,
    "uncompact": 3,
    "reflect": 2,
    "unreflect": 2,
    "pin": 4,
    "unpin": 1,
    "edit": 3,
    "forget": 2,
    "uncorrect": 3,
    "observe": 1,
    "idle": 1,
    "roundtrips": 1,
    "pause": 1,
    "resume": 1,
    "restart": 1,
    "stop": 1,
}
# What is taken back a turn or two later, as often as not.
_BACK: dict[CommandName, CommandName] = {"compact": "uncompact", "reflect": "unreflect", "pause": "resume"}
_BY_HAND: list[CommandName] = [name for name, often in _OFTEN.items() for _ in range(often)]
_MEANWHILE: tuple[CommandName, ...] = (
    "compact",
    "uncompact",
    "reflect",
    "unreflect",
    "pin",
    "edit",
    "forget",
    "observe",
)


_NOTES: tuple[tuple[Note, ...], ...] = ((), (), (), (), ("system",), ("synthetic",), ("system", "synthetic"))


class _Places(Struct, frozen=True):
    """Windows, threads, and the frequency of manual operations between two turns."""

    windows: int
    threads: int
    scope: str
    by_hand: float


_PLACES = (
    _Places(1, 1, "thread", 0.0),
    _Places(1, 1, "thread", 0.5),
    _Places(2, 1, "thread", 0.15),
    _Places(2, 1, "thread", 0.5),
    _Places(1, 2, "thread", 0.3),
    _Places(1, 2, "resource", 0.3),
    _Places(2, 2, "resource", 0.1),
    _Places(3, 3, "resource", 0.4),
)


def generate(seed: int) -> Script:
    """Generate the conversation of a seed; every eighth is of the same kind."""
    source = random.Random(seed)
    places = _PLACES[seed % len(_PLACES)]
    settings = _settings(source, places)
    threshold = settings.observation.message_tokens
    return Script(
        f"seed-{seed}",
        settings,
        tuple(_turns(source, threshold, places)),
        seed,
        source.choice((0, 0, 1, 2, 5, 9)),
        source.choice((0.0, 0.0, 0.0, 0.1, 0.4)),
        source.random() < 0.12,
        source.choice((None, None, None, None, threshold * 2, threshold)),
        source.choice((0, 0, 5, 9)) if places.windows == 1 else 0,
        late=places.windows > 1 or source.random() < 0.3,
    )


def _settings(source: random.Random, places: _Places) -> MemorySettings:
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
        scope="resource" if places.scope == "resource" else "thread",
        share_token_budget=source.random() < 0.25,
        retrieval=source.random() < 0.7,
        activate_after_idle=source.choice(("auto", "5m", False)),
        observation=observation,
        reflection=reflection,
    )
    try:
        check(Config(memory=settings))
    except ConfigError:  # an odd draw: the same one with a usual interval
        settings = replace(settings, observation=replace(observation, buffer_tokens=0.2))
        check(Config(memory=settings))
    return settings


# --- turns --------------------------------------------------------------------------------------------------


def _turns(source: random.Random, threshold: int, places: _Places) -> Iterator[Turn]:
    model = "scripted/one"
    later: list[tuple[int, Command]] = []
    for _ in range(source.randint(12, 28)):
        if source.random() < 0.04:
            yield Turn(restart=True)
        if source.random() < 0.06:
            model = source.choice(("scripted/one", "scripted/two", "other/three"))
        window = source.randrange(places.windows)
        turn = structs.replace(_turn(source, threshold, places, window), model=model)
        if places.windows > 1 and places.threads > 1 and source.random() < 0.3:
            beside = _turn(source, threshold, places, (window + 1) % places.windows)
            if beside.thread != turn.thread:
                turn = structs.replace(turn, beside=structs.replace(beside, model=model, commands=()))
        yield turn
        if source.random() < places.by_hand * 0.2:
            yield from _regret(source, threshold, turn)
        for command in turn.commands:
            back = _BACK.get(command.name)
            if back is not None and (back == "resume" or source.random() < 0.5):
                later.append((source.randint(1, 3), structs.replace(command, name=back)))
        later = [(turns - 1, command) for turns, command in later]
        due = [command for turns, command in later if turns <= 0]
        later = [(turns, command) for turns, command in later if turns > 0]
        if due:
            yield Turn(commands=tuple(due))
        if source.random() < 0.04:
            yield Turn(commands=(Command("kill", source.randrange(places.windows)),))


def _regret(source: random.Random, threshold: int, before: Turn) -> Iterator[Turn]:
    """Yield a compaction, a turn observed in the background, and the undo of the compaction.

    What was observed later then waits for what was observed before it.
    """
    idle = Command("idle", before.window)
    little = structs.replace(before, notes=(), guard="", commands=(), beside=None, gap_ms=20_000)
    for _ in range(2):  # too little for the background: the compaction has to observe it
        yield structs.replace(little, user=_text(source, 5), steps=(Step("Yes."),))
    calls = [Call("read", {"path": path(source)}, _text(source, int(threshold * 0.16))) for _ in range(3)]
    yield structs.replace(
        little,
        user=_text(source, 20),
        steps=(*(Step("", (call,)) for call in calls), Step("Seen.")),
        commands=(idle, Command("compact", before.window)),
    )
    yield Turn(commands=(idle, Command("uncompact", before.window)))


def _turn(source: random.Random, threshold: int, places: _Places, window: int) -> Turn:
    own = window % places.threads if places.windows > 1 and source.random() < 0.8 else source.randrange(places.threads)
    rich = places.by_hand > 0
    steps = list(_steps(source, threshold, places, window))
    if not rich:
        steps = [structs.replace(s, steer="", too_long=False) for s in steps]
    draw = source.random()
    notes = source.choice(_NOTES)
    return Turn(
        _text(source, _size(source, threshold)),
        source.choice(GAPS) if source.random() < 0.3 else 20_000,
        tuple(steps),
        thread=f"thread-{own}" if own else "main",
        window=window,
        commands=tuple(_commands(source, places)),
        notes=notes if rich else (),
        guard="" if not rich or draw > 0.2 else "passes" if draw > 0.07 else "withholds",
    )


def _steps(source: random.Random, threshold: int, places: _Places, window: int) -> Iterator[Step]:
    for number in range(source.choice((0, 0, 1, 2, 4, 9))):
        count = source.choice((1, 1, 1, 1, 2, 3))
        calls = [_call(source, threshold) for _ in range(count)]
        if count > 1 and source.random() < 0.1:
            calls[-1] = structs.replace(calls[-1], result=None)
        others = [w for w in range(places.windows) if w != window]
        busy = bool(others) and source.random() < places.by_hand * 0.2
        yield Step(
            _text(source, 30) if source.random() < 0.5 else "",
            tuple(calls),
            steer=_text(source, 25) if number and source.random() < 0.06 else "",
            thinking=_text(source, 20) if source.random() < 0.1 else "",
            too_long=source.random() < 0.02,
            meanwhile=(Command(source.choice(_MEANWHILE), source.choice(others), source.random()),) if busy else (),
        )
    if source.random() < 0.05:
        yield Step("I look.", (structs.replace(_call(source, threshold), result=None),))  # and nothing comes of it
    else:
        yield Step(_text(source, 120))


def _commands(source: random.Random, places: _Places) -> Iterator[Command]:
    while source.random() < places.by_hand:
        yield Command(source.choice(_BY_HAND), source.randrange(places.windows), source.random())


def _size(source: random.Random, threshold: int) -> int:
    """Return the approximate tokens of a text: mostly small, now and then above the threshold."""
    draw = source.random()
    if draw < 0.03:
        return int(threshold * source.choice((1.1, 1.6, 2.5)))
    return int(threshold * 0.3) if draw < 0.15 else source.randint(5, 120)


def _call(source: random.Random, threshold: int) -> Call:
    args: Json = {"path": path(source)}
    return Call(source.choice(_TOOLS), args, _text(source, _size(source, threshold)))


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
