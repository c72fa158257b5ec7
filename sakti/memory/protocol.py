"""Define the protocols of Observer and Reflector, implemented by a model or extractively."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, Protocol, TypeVar

from msgspec import Struct, field, structs

from sakti.core.types import Json, Message, ModelCall
from sakti.store.log.replacements import Earlier


class ObserveInput(Struct, frozen=True):
    """Messages to observe and their context.

    The log (its end is shown), the current task and suggested response, the user's `focus`, a sub-agent's `goal`.
    Times are in `timezone`; `zone_before` is that of the newest earlier lines, or empty. `room`: tokens by which the
    log may grow before it is condensed, `limit`: its largest size in tokens; None if unknown.
    """

    thread_id: str
    messages: tuple[Message, ...]
    timezone: str
    mode: str = "default"
    log: str = ""
    current_task: str | None = None
    suggested_response: str | None = None
    focus: str = ""
    goal: str = ""
    want_title: bool = False
    zone_before: str = ""
    room: int | None = None
    limit: int | None = None


class ObserveResult(Struct, frozen=True):
    """Observations.

    `text` is a cleaned log, empty if nothing deserved a line. `note` is for the user. By the content of a line:
    `categories` is its section of the mode, `replaces` the older lines of the log that it replaces (None: the engine
    looks for explicit changes itself), `fields` the values of keys that the mode declares.
    """

    text: str
    current_task: str | None = None
    suggested_response: str | None = None
    title: str | None = None
    model: str = ""
    prompt_hash: str = ""
    calls: tuple[ModelCall, ...] = ()
    note: str = ""
    categories: Mapping[str, str] = field(default_factory=dict[str, str])
    replaces: Mapping[str, Sequence[Earlier]] | None = None
    fields: Mapping[str, Json] = field(default_factory=dict[str, Json])


class ReflectInput(Struct, frozen=True):
    """Log texts to condense, oldest first, each with its group's id.

    `pinned` lines must survive word for word. `target_tokens` is the goal, `limit_tokens` the size from which the log
    is too long again (None: unknown), `start_level` the first compression level (0–4). `labels`: in a log of several
    threads a group's thread, by its id. `full`: the log has reached its threshold.
    """

    thread_id: str
    groups: tuple[tuple[str, str], ...]
    target_tokens: int
    start_level: int = 0
    pinned: tuple[str, ...] = ()
    mode: str = "default"
    focus: str = ""
    limit_tokens: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    full: bool = False


class ReflectResult(Struct, frozen=True):
    text: str
    current_task: str | None = None
    suggested_response: str | None = None
    model: str = ""
    prompt_hash: str = ""
    level: int = 0
    calls: tuple[ModelCall, ...] = ()
    note: str = ""


def join_results(results: Sequence[ReflectResult], text: str) -> ReflectResult:
    """Return the joined result of a log that was condensed in parts; `text` is the joined text."""
    return structs.replace(
        results[-1],
        text=text,
        level=max(r.level for r in results),
        calls=tuple(c for r in results for c in r.calls),
        note=next((r.note for r in results if r.note), ""),
    )


class Observer(Protocol):
    """Converts messages to lines of the log; `observe` raises `MemoryFailure` or `ProviderError`."""

    @property
    def name(self) -> str: ...

    async def observe(self, request: ObserveInput) -> ObserveResult: ...


class Reflector(Protocol):
    """Condenses a log; `reflect` raises `MemoryFailure` (not_smaller) if it cannot."""

    @property
    def name(self) -> str: ...

    async def reflect(self, request: ReflectInput) -> ReflectResult: ...


P = ParamSpec("P")
T = TypeVar("T")


class RunAside(Protocol):
    """Runs a function in another thread, as `asyncio.to_thread` does."""

    async def __call__(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
