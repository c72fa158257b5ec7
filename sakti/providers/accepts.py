"""Which settings of a request a provider and its model take; the rest is left out rather than refused by the API."""

from __future__ import annotations

from dataclasses import dataclass

from sakti.providers import facts

# The API's own smallest budget; the SDKs of 2026 have no temperature at all.
ANTHROPIC_LEAST_THINKING = 1_024


@dataclass(frozen=True, slots=True)
class Accepted:
    """What may be sent; `left_out` says for the user what is not, and why."""

    temperature: float | None
    thinking_tokens: int | None
    left_out: tuple[str, ...]


def accepted(provider: str, model: str, temperature: float | None, thinking_tokens: int | None) -> Accepted:
    """The settings that `model` of `provider` takes. Imports no SDK."""
    found = facts.family(provider, model)
    no_temperature = no_thinking = ""
    if provider == "anthropic":
        no_temperature = "its API has none"
        if found is not facts.UNKNOWN and not found.thinking:
            no_thinking = "the model does not think"
        elif (thinking_tokens or 0) < ANTHROPIC_LEAST_THINKING:
            no_thinking = f"its API takes {ANTHROPIC_LEAST_THINKING:,} at least"
    else:
        no_temperature = "" if found.temperature else "models that think take none"
        no_thinking = "" if found.thinking else "the model is not known to think"
    left_out: list[str] = []
    if temperature is not None and no_temperature:
        left_out.append(f"temperature {temperature:g} ({no_temperature})")
    if thinking_tokens and no_thinking:
        left_out.append(f"{thinking_tokens:,} thinking tokens ({no_thinking})")
    return Accepted(
        None if no_temperature else temperature, None if no_thinking else thinking_tokens or None, tuple(left_out)
    )
