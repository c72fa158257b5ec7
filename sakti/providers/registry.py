"""Select the model to use and explain the choice. Imports no HTTP client until a model is used."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.config.fields import ProviderSettings
from sakti.core.errors import NoModelError
from sakti.core.lazy import lazy_imports
from sakti.core.network import is_loopback
from sakti.core.text import quote
from sakti.providers import endpoint as endpoints
from sakti.providers.endpoint import Api, Endpoint, check_base_url, split_base_url
from sakti.providers.presets import PRESETS, Preset
from sakti.providers.protocol import Provider
from sakti.providers.serving import fetch_local_models

with lazy_imports:
    from sakti.providers import anthropic as anthropic_messages
    from sakti.providers import keys, openai_chat, openai_responses
    from sakti.providers import scripted as scripted_provider
    from sakti.providers.local import model as local_model
    from sakti.providers.local import provider as local_provider

LOCAL_SILENCE = 600.0  # seconds: a server on this machine may read a long prompt before its first word
_NO_SETTINGS: Mapping[str, ProviderSettings] = {}

Probe = Callable[[str], Awaitable[list[str] | None]]
KeyLookup = Callable[[str], str | None]


class SelectedModel(Struct, frozen=True):
    """Model's full name ("provider/name") and in a few words why it was selected."""

    model: str
    reason: str


async def select_model(
    *,
    flag: str | None,
    config_model: str | None,
    env: Mapping[str, str],
    settings: Mapping[str, ProviderSettings] = _NO_SETTINGS,
    keyring: KeyLookup | None = None,
    probe: Probe = fetch_local_models,
    local_installed: bool | None = None,
) -> SelectedModel | None:
    """Select the model to use; None if none is available.

    The first available source wins: `flag` (--model), the config, a key in the environment, a key in the keyring, a
    server on this machine, the installed model.

    `keyring` looks a variable's name up (None: the system's), `probe` asks a base URL for its models,
    `local_installed` says whether the embedded model is installed (None: look). Raises NoModelError for a name that
    belongs to no provider.
    """
    for name, reason in ((flag, "from --model"), (config_model, "from the configuration")):
        if name:
            return SelectedModel(await complete_name(name, env, settings, probe), reason)
    by_key = await _select_by_key(env, settings, keyring, probe)
    if by_key is not None:
        return by_key
    served = await _select_by_server(settings, probe)
    if served is not None:
        return served
    if _is_installed() if local_installed is None else local_installed:
        return SelectedModel(_get_local_model(), "installed small model, for questions; check its edits")
    return None


async def complete_name(
    name: str,
    env: Mapping[str, str],
    settings: Mapping[str, ProviderSettings] = _NO_SETTINGS,
    probe: Probe = fetch_local_models,
) -> str:
    """Return `resolve_name(name)`; for a provider alone (`ollama`, `anthropic`) with its default model."""
    full = resolve_name(name, settings)
    provider, _, model = full.partition("/")
    if model:
        return full
    default = await _find_default_model(provider, env, settings, probe)
    if default is None:
        raise NoModelError(f"{provider} needs a model name, as in {provider}/NAME: it has no default.")
    return f"{provider}/{default}"


def resolve_name(name: str, settings: Mapping[str, ProviderSettings] = _NO_SETTINGS) -> str:
    """Return `name` as "provider/model", or "provider/" for a provider alone.

    Raises NoModelError with suggestions.
    """
    name = name.strip()
    head, slash, rest = name.partition("/")
    names = list_providers(settings)
    if head in names:
        if head == "local":
            return _get_local_model()
        return f"{head}/{rest}"
    if not slash:
        for preset in PRESETS.values():
            if preset.names and re.match(preset.names, name):
                return f"{preset.name}/{name}"
    what = f"There is no provider {quote(head)}" if slash else f"The provider of {quote(name)} is not clear"
    raise NoModelError(f"{what}: {_suggest_providers(head, rest or '…', names)}")


def _suggest_providers(head: str, model: str, names: Collection[str]) -> str:
    """Suggest providers with names similar to `head`, else list all of them."""
    if close := difflib.get_close_matches(head, names, n=3):
        return f"did you mean {' or '.join(f'{c}/{model}' for c in close)}?"
    return f"write provider/name, with one of {', '.join(sorted(names))}."


def list_providers(settings: Mapping[str, ProviderSettings] = _NO_SETTINGS) -> list[str]:
    """Return every name that may precede the slash."""
    custom = [n for n, s in settings.items() if n not in PRESETS and s.base_url]
    return [*PRESETS, "local", "scripted", *custom]


def choose_small_model(full_name: str) -> str:
    """Return the observing model for `full_name`: its provider's small model, else the model itself.

    On Bedrock the small model has the same region (`eu.anthropic.…`); an inference profile observes itself.
    """
    provider, _, model = full_name.partition("/")
    preset = PRESETS.get(provider)
    if preset is None or not preset.small:
        return full_name
    if preset.cloud == "bedrock":
        region, maker, _ = model.partition("anthropic.")
        small = preset.small.partition("anthropic.")[2]
        return f"{provider}/{region}{maker}{small}" if maker and ":" not in region else full_name
    return f"{provider}/{preset.small}"


def create_provider(
    full_name: str,
    settings: Mapping[str, ProviderSettings] = _NO_SETTINGS,
    env: Mapping[str, str] | None = None,
    keyring: KeyLookup | None = None,
) -> Provider:
    """Create the provider of `full_name`; a missing key is an error of the first call, not of this one.

    Raises NoModelError for an unknown provider and ConfigError for settings that do not fit together.
    """
    env = os.environ if env is None else env
    name, _, model = resolve_name(full_name, settings).partition("/")
    provider_settings = settings.get(name, ProviderSettings())
    if name == "local":
        return local_provider.LocalProvider(context=provider_settings.context_window)
    if name == "scripted":
        return scripted_provider.ScriptedProvider.from_file(model)
    preset = PRESETS.get(name) or Preset(name, "chat", provider_settings.base_url or "")
    api, endpoint = _make_endpoint(preset, provider_settings, env, keyring or keys.look_up_key)
    match api:
        case "anthropic":
            return anthropic_messages.AnthropicProvider(endpoint)
        case "responses":
            return openai_responses.ResponsesProvider(endpoint)
        case "chat":
            return openai_chat.ChatProvider(endpoint)


def _make_endpoint(
    preset: Preset, configured: ProviderSettings, env: Mapping[str, str], keyring: KeyLookup
) -> tuple[Api, Endpoint]:
    """Return a provider's API and how it is reached. Raises ConfigError for an address that is not HTTP."""
    base_url, query, path_api = split_base_url(_choose_url(preset, configured, env))
    if base_url or preset.cloud is None:
        check_base_url(preset.name, base_url)
    genuine = preset.cloud is not None or base_url == preset.base_url
    api = _choose_api(preset, configured, path_api, genuine=genuine)
    key, source, bearer = _find_credentials(preset, configured, env, keyring)
    endpoint = Endpoint(
        name=preset.name,
        client=preset.cloud or ("anthropic" if api == "anthropic" else "openai"),
        base_url=base_url,
        key=key,
        key_env=source,
        key_command=configured.key_command or "",
        bearer=bearer,
        needs_key=genuine and not preset.local,
        timeout=_choose_timeout(preset, configured),
        context_window=configured.context_window,
        is_custom_server=not genuine or preset.local or preset.name not in PRESETS,
        headers=configured.headers,
        query=query,
        extra=configured.extra,
    )
    if endpoint.client == "anthropic":  # the SDK adds the version to each path
        return api, replace(endpoint, base_url=base_url.removesuffix("/v1"))
    if preset.cloud == "azure":
        version = configured.api_version or query.pop("api-version", "") or env.get("OPENAI_API_VERSION", "")
        return api, replace(endpoint, api_version=version)
    return api, endpoint


def _find_credentials(
    preset: Preset, configured: ProviderSettings, env: Mapping[str, str], keyring: KeyLookup
) -> tuple[str, str, bool]:
    """Return the key, the setting or variable that it comes from, and whether it is a bearer token."""
    if configured.auth_token:
        return configured.auth_token, f"providers.{preset.name}.auth_token", True
    if configured.key_command:
        return "", f"providers.{preset.name}.key_command", False
    variable, key = _find_key(preset, configured, env, keyring)
    return key or "", variable, variable == "ANTHROPIC_AUTH_TOKEN"


def _choose_timeout(preset: Preset, configured: ProviderSettings) -> float:
    """Return how many seconds a stream may be silent; more for a server on this machine."""
    return (
        max(configured.timeout, LOCAL_SILENCE) if preset.local and configured.timeout == 120.0 else configured.timeout
    )


def _choose_api(preset: Preset, configured: ProviderSettings, path_api: Api | None, *, genuine: bool) -> Api:
    """Return the configured API, else the one that the address names, else the preset's.

    Other servers than OpenAI's own rarely have the Responses API.
    """
    if configured.api != "auto":
        return configured.api
    return path_api or ("chat" if preset.api == "responses" and not genuine else preset.api)


def explain_missing(
    full_name: str,
    settings: Mapping[str, ProviderSettings],
    env: Mapping[str, str],
    keyring: KeyLookup | None = None,
) -> str:
    """Return one sentence that says what the provider of a model still needs; empty if it can be asked.

    Slow if the keyring or a cloud's login has to be asked: call it in a thread.
    """
    name = full_name.partition("/")[0]
    if (preset := PRESETS.get(name)) is None:
        return ""
    _, endpoint = _make_endpoint(preset, settings.get(name, ProviderSettings()), env, keyring or keys.look_up_key)
    return endpoints.explain_missing(endpoint, env)


def _choose_url(preset: Preset, configured: ProviderSettings, env: Mapping[str, str]) -> str:
    from_env = env.get(preset.base_url_env) if preset.base_url_env else None
    return configured.base_url or from_env or preset.base_url


def _normalize_base_url(preset: Preset, configured: ProviderSettings, env: Mapping[str, str]) -> str:
    """Return the address of the API, without a query or the path of an endpoint."""
    return split_base_url(_choose_url(preset, configured, env))[0]


def _find_key(
    preset: Preset, configured: ProviderSettings, env: Mapping[str, str], keyring: KeyLookup
) -> tuple[str, str | None]:
    """Return the variable that holds the key, and the key: environment first, then keyring."""
    names = (configured.key_env,) if configured.key_env else preset.keys
    for name in names:
        if env.get(name):
            return name, env[name]
    for name in names:
        if key := keyring(name):
            return name, key
    return (names[0] if names else ""), None


async def _select_by_local_address(env: Mapping[str, str], probe: Probe) -> SelectedModel | None:
    """Return the first model of a server on this machine whose address is in the environment."""
    for preset in PRESETS.values():
        url = env.get(preset.base_url_env) if preset.base_url_env else None
        if url and is_loopback(url) and (names := await probe(_with_v1(url))):
            return SelectedModel(f"{preset.name}/{names[0]}", f"{preset.base_url_env} is set")
    return None


async def _select_by_key(
    env: Mapping[str, str], settings: Mapping[str, ProviderSettings], keyring: KeyLookup | None, probe: Probe
) -> SelectedModel | None:
    candidates = list(_key_variables(settings))
    for provider, variable in candidates:
        if env.get(variable) and (model := await _find_default_model(provider, env, settings, probe)):
            return SelectedModel(f"{provider}/{model}", f"{variable} is set")
    if served := await _select_by_local_address(env, probe):
        return served
    # Looking a key up may open a connection to the desktop's keyring: in a thread, all at once.
    lookup = keyring or keys.look_up_key
    candidate = await asyncio.to_thread(lambda: next(((p, v) for p, v in candidates if lookup(v)), None))
    if candidate is None:
        return None
    model = await _find_default_model(candidate[0], env, settings, probe)
    return SelectedModel(f"{candidate[0]}/{model}", f"{candidate[1]} is in the keyring") if model else None


def _key_variables(settings: Mapping[str, ProviderSettings]) -> Iterator[tuple[str, str]]:
    for preset in PRESETS.values():
        provider_settings = settings.get(preset.name)
        for variable in (
            (provider_settings.key_env,) if provider_settings and provider_settings.key_env else preset.keys
        ):
            yield preset.name, variable


async def _find_default_model(
    provider: str, env: Mapping[str, str], settings: Mapping[str, ProviderSettings], probe: Probe
) -> str | None:
    """Return the provider's default model, or the first that its server on this machine lists."""
    preset = PRESETS.get(provider) or Preset(provider, "chat", "")
    url = _normalize_base_url(preset, settings.get(provider, ProviderSettings()), env)
    served = await probe(_with_v1(url)) if is_loopback(url) else None
    if served and preset.model not in served:
        return served[0]
    return preset.model or None


def _with_v1(url: str) -> str:
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


async def _select_by_server(settings: Mapping[str, ProviderSettings], probe: Probe) -> SelectedModel | None:
    servers = [
        (p, _normalize_base_url(p, settings.get(p.name, ProviderSettings()), {})) for p in PRESETS.values() if p.local
    ]
    answers = await asyncio.gather(*(probe(url) for _, url in servers))
    for (preset, url), names in zip(servers, answers, strict=True):
        if names:
            return SelectedModel(f"{preset.name}/{names[0]}", f"{preset.title} answers at {urlsplit(url).netloc}")
    return None


def _get_local_model() -> str:
    return f"local/{local_model.name()}"


def _is_installed() -> bool:
    return local_model.is_ready()
