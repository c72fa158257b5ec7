"""Define the settings of one provider, under `[providers.<name>]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sakti.core.config.meaning import setting


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Settings of one provider.

    sakti writes no key into a file: `key_env` names the variable that holds it, `key_command` prints it.
    """

    api: Literal["auto", "chat", "responses", "anthropic"] = setting("auto", "The protocol of the server.")
    base_url: str | None = setting(None, "Address of the API, for a server of your own.")
    key_env: str | None = setting(None, "Name of the variable that holds the key.")
    key_command: str | None = setting(None, "Command that prints the key; run again if the key has expired.")
    auth_token: str | None = setting(
        None, "Token that is sent in place of a key, for gateways with their own login.", secret=True
    )
    headers: Mapping[str, str] = setting(make=dict[str, str], help="Headers that go with every request.", secret=True)
    api_version: str | None = setting(None, "Version of the API, for azure.")
    timeout: float = setting(120.0, "Seconds that a stream may stay silent.", above=0)
    context_window: int | None = setting(None, "Context window in tokens, if the server does not report it.", above=0)
    images: bool | None = setting(None, "Whether the models take images, if their names do not say.")
    extra: Mapping[str, Any] = setting(make=dict[str, Any], help="Fields that go into the body of every request.")
