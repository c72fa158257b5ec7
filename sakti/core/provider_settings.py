"""What a user can say about one provider, under `[providers.<name>]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """`key_env` names the variable that holds the key; a key itself is never written into a file.

    `timeout` is how long, in seconds, a stream may stay silent. `context_window` in tokens, for servers that
    do not tell. `images`: whether the models take images, where that is not what the provider's name says.
    `extra` goes into the body of every request as it stands.
    """

    api: Literal["auto", "chat", "responses", "anthropic"] = "auto"
    base_url: str | None = None
    key_env: str | None = None
    timeout: float = 120.0
    context_window: int | None = None
    images: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
