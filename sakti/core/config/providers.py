"""Define the settings of one provider, under `[providers.<name>]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sakti.core.config.meaning import setting


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Settings of one provider.

    A key itself is never written into a file: `key_env` names the variable that holds it.
    """

    api: Literal["auto", "chat", "responses", "anthropic"] = setting("auto", "The protocol of the server.")
    base_url: str | None = setting(None, "Address of the API, for a server of your own.")
    key_env: str | None = setting(None, "Name of the variable that holds the key.")
    timeout: float = setting(120.0, "Seconds that a stream may stay silent.", above=0)
    context_window: int | None = setting(None, "Context window in tokens, if the server does not report it.", above=0)
    images: bool | None = setting(None, "Whether the models take images, if their names do not say.")
    extra: Mapping[str, Any] = setting(make=dict[str, Any], help="Fields that go into the body of every request.")
