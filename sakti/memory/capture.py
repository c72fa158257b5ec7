"""Export a thread as a file for the replay benchmark: messages, times, settings, no secrets.

One JSON object per line: a `config` line, then one line per turn. A step is one text or tool call of the agent with
its result; several calls of one answer become steps of their own. Thinking, images and messages withheld by a
guardrail are left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import to_builtins

from sakti.core.config import MemorySettings
from sakti.core.tokens import Counter
from sakti.core.types import Json, Message, TextPart, ToolCallPart, ToolResultPart, join_plain_text
from sakti.store.secrets import MARK, mask_secrets

WORD = "word"  # one token in o200k_base, and so is each " word" after it


class Redactor:
    """Masks keys, tokens, passwords and the user's home folder.

    With `counter`, texts are replaced by blanks of as many tokens. `secrets` counts the masked secrets.
    """

    def __init__(self, counter: Counter | None = None, home: str = "") -> None:
        self._counter, self._home = counter, home.rstrip("/")
        self.secrets = 0

    def text(self, text: str) -> str:
        clean = mask_secrets(text)
        self.secrets += len(MARK.findall(clean)) - len(MARK.findall(text))
        if self._counter is not None:
            return " ".join([WORD] * self._counter.count(text))
        return clean.replace(self._home, "~") if self._home else clean

    def value(self, value: Any, name: str = "") -> Any:
        """Redact a tool's argument; `name` identifies passwords."""
        if isinstance(value, dict):
            return {k: self.value(v, k) for k, v in cast("Json", value).items()}
        if isinstance(value, list):
            return [self.value(v, name) for v in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        prefix = f"{name}: "
        return self.text(prefix + value).removeprefix(prefix) if self._counter is None and name else self.text(value)


def iter_bundle(
    messages: Sequence[Message], actors: Sequence[tuple[int, str]], settings: MemorySettings, redactor: Redactor
) -> Iterator[Json]:
    """Yield the lines of the file.

    `actors`: (time, model) of the agent's calls. `settings` are those in force.
    """
    yield {"type": "config", "config": convert_settings(settings)}
    saved = [m for m in messages if m.state == "saved"]
    dialogue = [m for m in saved if m.role in ("user", "assistant")]
    results = {r.call_id: r for m in saved for r in m.tool_results}
    for number, (start, end) in enumerate(itertools.pairwise(_turn_bounds(dialogue))):
        begin = dialogue[start].created_at
        until = dialogue[end].created_at if end < len(dialogue) else math.inf
        yield {
            "type": "input",
            "turn": number,
            "gapMs": max(0, begin - dialogue[start - 1].created_at) if start else 0,
            **_turn(dialogue[start:end], results, redactor),
            **_find_model(actors, begin, until),
        }


def _turn_bounds(dialogue: Sequence[Message]) -> list[int]:
    """Return the index at which each turn begins, and the end."""
    starts = [i for i, m in enumerate(dialogue) if i == 0 or m.role == "user"]
    return [*starts, len(dialogue)]


def _find_model(actors: Sequence[tuple[int, str]], begin: int, until: float) -> Json:
    """Return the model of the last call in a time range."""
    models = [model for time, model in actors if begin <= time < until]
    return {"model": models[-1]} if models else {}


def _turn(turn: Sequence[Message], results: Mapping[str, ToolResultPart], redactor: Redactor) -> Json:
    """Return the user's message of a turn and the agent's steps."""
    return {
        "user": redactor.text(join_plain_text(turn[0].parts)) if turn[0].role == "user" else "",
        "steps": [s for m in turn if m.role == "assistant" for s in _iter_steps(m, results, redactor)],
    }


def _iter_steps(message: Message, results: Mapping[str, ToolResultPart], redactor: Redactor) -> Iterator[Json]:
    text = ""
    for part in message.parts:
        if isinstance(part, TextPart):
            text = f"{text}\n{part.text}" if text else part.text
        elif isinstance(part, ToolCallPart):
            result = results.get(part.id)
            args = redactor.value(part.arguments) if part.arguments is not None else {"input": redactor.text(part.raw)}
            step: Json = {"text": redactor.text(text)} if text else {}
            answer = redactor.text(result.content) if result else ""
            yield {**step, "tool": {"name": part.name, "args": args, "result": answer}}
            text = ""
    if text:
        yield {"text": redactor.text(text)}


def convert_settings(settings: MemorySettings) -> Json:
    """Convert the engine's settings to the names of the recorded format."""

    def camel(name: str) -> str:
        head, *rest = name.split("_")
        return head + "".join(w.capitalize() for w in rest)

    def some(values: Any, *left_out: str) -> Json:
        fields = to_builtins(values)
        return {camel(k): v for k, v in fields.items() if k not in left_out and not isinstance(v, dict)}

    observation = {**some(settings.observation, "model"), "threadTitle": settings.thread_title}
    general = ("scope", "retrieval", "share_token_budget", "activate_after_idle")
    return {
        **{camel(name): getattr(settings, name) for name in general},
        "observation": observation,
        "reflection": some(settings.reflection, "model"),
    }
