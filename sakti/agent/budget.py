"""Compute how much of a model's window an answer may have, and what a turn may take. Pure."""

from __future__ import annotations

from sakti.core.config import AgentSettings
from sakti.core.errors import ProviderError, SaktiError
from sakti.core.types import ModelInfo, Usage

DEFAULT_OUTPUT = 8_192  # tokens kept free of memory and messages, so that an answer has room
UNKNOWN_OUTPUT = 32_000  # tokens of an answer where nobody says how many a model may write
LEAST_OUTPUT = 256  # tokens: an answer with less is no answer
SPARE, SPARE_SHARE = 64, 0.02  # of the prompt: what a server's own template and tokenizer add to our count


def room(model: ModelInfo, settings: AgentSettings, fixed: int) -> tuple[int, int | None]:
    """Return the tokens left for an answer, and for memory and messages.

    None where the model's window is not known. `fixed` are the tokens of system prompt and tools.
    """
    window = model.context_window
    most = model.max_output or (DEFAULT_OUTPUT if window is None else min(UNKNOWN_OUTPUT, max(1, window // 2)))
    output = min(settings.max_output_tokens or most, most)
    if window is None:
        return output, None
    free = min(output, settings.max_output_tokens or DEFAULT_OUTPUT, window // 4)
    return output, max(0, window - free - fixed)


def output_for(model: ModelInfo, wanted: int, prompt: int) -> int:
    """Return the tokens that the answer to a prompt of `prompt` tokens may have.

    What is wanted, never more than the window leaves by the model's own way to count.
    """
    window = model.context_window
    if window is None:
        return wanted
    remaining = window - round(prompt * (model.tokens + SPARE_SHARE)) - SPARE
    least = max(1, min(LEAST_OUTPUT, window - prompt))
    return max(1, min(wanted, max(remaining, least)))


def must_fit(model: ModelInfo, tokens: int) -> None:
    """Refuse a request above the model's window before it is sent. Raises `ProviderError`.

    The embedded model shortens what it is sent by itself.
    """
    if model.context_window is not None and tokens > model.context_window and not model.small:
        assumed = f" (assumed: set providers.{model.provider}.context_window)" if model.assumed else ""
        raise ProviderError(
            f"The request has {tokens:,} tokens, {model.full_name} takes {model.context_window:,}{assumed}: it was not "
            "sent. Ask for less at once, or choose a model with a larger window with /model.",
            code="context_too_long",
        )


def spent(settings: AgentSettings, usage: Usage, seconds: float) -> SaktiError | None:
    """Return the limit that a turn has reached, or None."""
    limits = (
        ("max_seconds", settings.max_seconds, seconds, "{:g} s"),
        ("max_tokens", settings.max_tokens, usage.input_tokens + usage.output_tokens, "{:,} tokens"),
        ("max_usd", settings.max_usd, usage.cost_usd or 0.0, "${:.2f}"),
    )
    for name, limit, used, form in limits:
        if limit is not None and used >= limit:
            return _limit_error(name, form.format(limit))
    return None


def time_is_up(settings: AgentSettings) -> SaktiError:
    """Describe why a turn ends that was ended in the middle of something."""
    return _limit_error("max_seconds", f"{settings.max_seconds or 0:g} s")


def _limit_error(name: str, limit: str) -> SaktiError:
    text = f'The limit of {limit} for a turn is reached (agent.{name}). Say "continue" to go on.'
    return SaktiError(text, title="Limit reached", code=name)


def seconds_left(settings: AgentSettings, seconds: float) -> float | None:
    """Return the remaining seconds of a turn, or None if it has no limit."""
    return None if settings.max_seconds is None else max(0.0, settings.max_seconds - seconds)
