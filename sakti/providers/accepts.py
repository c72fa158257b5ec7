"""Leave out of a request the settings that a provider or model does not take, rather than be refused."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Collection

from msgspec import Struct

from sakti.core.errors import ProviderError
from sakti.core.patterns import lazy_pattern
from sakti.core.types import Json
from sakti.providers import facts
from sakti.providers.protocol import StreamEvent
from sakti.providers.refused_pieces import named_node

log = logging.getLogger(__name__)

# The API's own smallest budget; the newest models take no temperature at all.
ANTHROPIC_LEAST_THINKING = 1_024


class AcceptedSettings(Struct, frozen=True):
    """Settings that may be sent; `left_out` tells the user which are not, and why."""

    temperature: float | None
    thinking_tokens: int | None
    left_out: tuple[str, ...]


def choose_settings(
    provider: str, model: str, temperature: float | None, thinking_tokens: int | None
) -> AcceptedSettings:
    """Return the settings that `model` of `provider` takes."""
    family = facts.family(provider, model)
    no_temperature = no_thinking = ""
    if provider == "anthropic":
        no_temperature = "its API has none"
        if family is not facts.UNKNOWN and not family.thinking:
            no_thinking = "the model does not think"
        elif (thinking_tokens or 0) < ANTHROPIC_LEAST_THINKING:
            no_thinking = f"its API takes {ANTHROPIC_LEAST_THINKING:,} at least"
    else:
        no_temperature = "" if family.temperature else "models that think take none"
        no_thinking = "" if family.thinking else "the model is not known to think"
    left_out: list[str] = []
    if temperature is not None and no_temperature:
        left_out.append(f"temperature {temperature:g} ({no_temperature})")
    if thinking_tokens and no_thinking:
        left_out.append(f"{thinking_tokens:,} thinking tokens ({no_thinking})")
    return AcceptedSettings(
        None if no_temperature else temperature, None if no_thinking else thinking_tokens or None, tuple(left_out)
    )


# --- what a server refuses by name ---------------------------------------------------------------------------------

# Parts of a body without which the same is asked, by the names that a refusal calls them.
_OPTIONAL = (
    *("reasoning_effort", "reasoning", "thinking", "output_config", "temperature"),
    *("stream_options", "prompt_cache_key", "include", "store"),
)
# Fields of an assistant's message that go back as they came; a server that sends one may still refuse to take it.
_MESSAGE_FIELDS = ("reasoning_content", "reasoning_details", "reasoning", "phase")
_IN_MESSAGES = "messages."  # before the name of such a field
_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_UNKNOWN = lazy_pattern(
    r"unsupported|(not|n't) support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|extra (input|field)|"
    r"additional propert|deprecated|remove the|invalid (parameter|argument|field)|no such (parameter|argument|field)",
    re.I,
)


def find_refused_field(body: Json, error: ProviderError) -> str:
    """Return the field of `body` that a server rejects as unknown and that may be omitted, or ""."""
    text = error.server_text
    if error.code != "invalid_request" or error.status not in (400, 422) or not _UNKNOWN.search(text):
        return ""
    if re.search(r"messages?|input\b", text) and (name := _message_field(body, text)):
        return _IN_MESSAGES + name
    named = [k for k in body if re.search(rf"(?<![\w.]){k}(?!\w)", text)]
    renamed = next((k for k in named if k in _RENAMED and re.search(rf"\b{_RENAMED[k]}\b", text)), "")
    return renamed or next((k for k in _OPTIONAL if k in named), "")


def _message_field(body: Json, text: str) -> str:
    """Return the field of a message in `body` that an error text names."""
    used = {key for message in _messages_of(body) for key in message}
    return next((f for f in _MESSAGE_FIELDS if f in used and re.search(rf"(?<!\w){f}(?!\w)", text)), "")


def _messages_of(body: Json) -> list[Json]:
    return body.get("messages") or body.get("input") or []


def without(body: Json, names: Collection[str]) -> Json:
    """Return `body` without what its server does not know; a limit of the answer gets its other name."""
    out = {k: v for k, v in body.items() if k not in names}
    if fields := {n.removeprefix(_IN_MESSAGES) for n in names if n.startswith(_IN_MESSAGES)}:
        key = "messages" if "messages" in out else "input"
        out[key] = [{k: v for k, v in m.items() if k not in fields} for m in _messages_of(out)]
    return out | {_RENAMED[k]: body[k] for k in names if k in _RENAMED and k in body}


class RefusedParameters:
    """Parameters that each model's server has refused by name: retried without, and not sent again."""

    def __init__(self) -> None:
        self._refused: dict[str, set[str]] = {}

    async def stream(
        self, model: str, body: Json, once: Callable[[Json], AsyncGenerator[StreamEvent]]
    ) -> AsyncGenerator[StreamEvent]:
        """Stream the answer to `body`, retrying without refused parameters; `once` sends one request.

        A refusal comes before anything of an answer does.
        """
        refused_names = self._refused.setdefault(model, set())
        while True:
            sent = without(body, refused_names)
            try:
                async with contextlib.aclosing(once(sent)) as events:
                    async for event in events:
                        yield event
                return
            except ProviderError as e:
                e.refused_node = named_node(sent, e.server_text)
                name = find_refused_field(sent, e)
                if not name or name in refused_names:
                    raise
                refused_names.add(name)
                log.warning("%s is not sent to %s any more: %s", name, model, e.message)
