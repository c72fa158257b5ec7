"""Which settings of a request a provider and its model take; the rest is left out rather than refused by the API."""

from __future__ import annotations

from dataclasses import dataclass

# The API's own smallest budget; the SDKs of 2026 have no temperature at all.
ANTHROPIC_LEAST_THINKING = 1_024
ANTHROPIC_FIRST_THINKING = (3, 7)


# Those whose models take images, as far as is known without asking: one that does not says so.
_IMAGES = ("anthropic", "openai", "gemini", "openrouter")


def images(provider: str) -> bool:
    """Whether the models of a provider are sent images."""
    return provider in _IMAGES


@dataclass(frozen=True, slots=True)
class Accepted:
    """What may be sent; `left_out` says for the user what is not, and why."""

    temperature: float | None
    thinking_tokens: int | None
    left_out: tuple[str, ...]


def accepted(provider: str, model: str, temperature: float | None, thinking_tokens: int | None) -> Accepted:
    """The settings that `model` of `provider` takes. Imports no SDK."""
    from sakti.providers.anthropic_render import version
    from sakti.providers.openai_responses import reasons

    no_temperature = no_thinking = ""
    if provider == "anthropic":
        no_temperature = "its API has none"
        if (0, 0) < version(model) < ANTHROPIC_FIRST_THINKING:
            no_thinking = "the model does not think"
        elif (thinking_tokens or 0) < ANTHROPIC_LEAST_THINKING:
            no_thinking = f"its API takes {ANTHROPIC_LEAST_THINKING:,} at least"
    elif reasons(model):
        no_temperature = "models that think take none"
    else:
        no_thinking = "the model is not known to think"
    left_out: list[str] = []
    if temperature is not None and no_temperature:
        left_out.append(f"temperature {temperature:g} ({no_temperature})")
    if thinking_tokens and no_thinking:
        left_out.append(f"{thinking_tokens:,} thinking tokens ({no_thinking})")
    return Accepted(
        None if no_temperature else temperature, None if no_thinking else thinking_tokens or None, tuple(left_out)
    )
