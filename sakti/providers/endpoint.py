"""Describe how a provider is reached, and create the SDK client that sends its requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import os
import re
import signal
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.core import network
from sakti.core.errors import ConfigError, ProviderError
from sakti.core.text import quote
from sakti.providers.presets import ClientKind
from sakti.version import __version__

SdkClient: TypeAlias = Any  # AsyncOpenAI, AsyncAnthropic or a cloud's: they share `post`, `get` and `close`
Api: TypeAlias = Literal["anthropic", "responses", "chat"]

OnResponse: TypeAlias = Callable[[Any], Awaitable[None]]

CONNECT_S = 15.0
KEY_COMMAND_S = 30.0  # a helper that opens a browser for a login takes longer and is stopped
LONGEST_KEY = 16_384  # bytes
_KEY = re.compile(r"[!-~]+")
GATEWAY_VERSION = "2023-06-01"  # the version of the Messages API that compatible servers know
_ENTRA_SCOPES = {
    "azure": "https://cognitiveservices.azure.com/.default",
    "foundry": "https://ai.azure.com/.default",
}
_ENDPOINT_PATHS: Mapping[str, Api] = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/v1/messages": "anthropic",
}


class Endpoint(Struct, frozen=True, kw_only=True):
    """How a provider is reached.

    `client` names the SDK client. A cloud's address may be empty until its client is made. `key_command` prints the
    key; `bearer`: the key is a token for the Authorization header only. `timeout` is the longest silence in seconds.
    `needs_key`: without a key no request is made. `is_custom_server`: the server is not the provider's own. `extra`
    goes into every body, `headers` and `query` into every request.
    """

    name: str
    client: ClientKind = "openai"
    base_url: str = ""
    key: str = ""
    key_env: str = ""
    key_command: str = ""
    bearer: bool = False
    needs_key: bool = False
    api_version: str = ""
    timeout: float = 120.0
    context_window: int | None = None
    is_custom_server: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def request_headers(self, key: str) -> dict[str, str]:
        """Return the headers to add to the SDK's."""
        headers = {"User-Agent": f"sakti/{__version__}"}
        if self.client == "anthropic" and self.is_custom_server:
            headers["anthropic-version"] = GATEWAY_VERSION
            if not self.bearer:
                headers["x-api-key"] = key or "none"
        return {**headers, **self.headers}


def split_base_url(url: str) -> tuple[str, dict[str, str], Api | None]:
    """Split what users copy from a server's documentation into base URL, query and API.

    A full endpoint (`…/v1/chat/completions?api-version=1`) names the API with its path; the API is None otherwise.
    Raises ConfigError if the text is not an address.
    """
    try:
        parts = urlsplit(url.strip())
    except ValueError:  # an unmatched bracket
        raise ConfigError(f"{quote(url)} is not an address: write it as https://HOST/v1.") from None
    address = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for path, api in _ENDPOINT_PATHS.items():
        if address.endswith(path):
            return address.removesuffix(path), query, api
    return address, query, None


# --- what is missing ----------------------------------------------------------------------------------------


def explain_missing(endpoint: Endpoint, env: Mapping[str, str]) -> str:
    """Return one sentence that says what a provider still needs; empty if it can be asked.

    Slow for Bedrock, whose credentials may come from a file or a service: call it in a thread.
    """
    if endpoint.key and not _KEY.fullmatch(endpoint.key):
        return f"The key of {endpoint.name} has characters that cannot be sent: copy it again."
    if endpoint.key_command and not endpoint.key:
        endpoint = replace(endpoint, key="printed")
    return _MISSING[endpoint.client](endpoint, env)


def _explain_missing_key(endpoint: Endpoint, _env: Mapping[str, str]) -> str:
    if endpoint.key or not endpoint.needs_key:
        return ""
    return (
        f"No key for {endpoint.name}: set {endpoint.key_env or 'its key'} in the environment, or store it in "
        "the system keyring."
    )


def _explain_missing_for_foundry(endpoint: Endpoint, env: Mapping[str, str]) -> str:
    if not endpoint.base_url and not env.get("ANTHROPIC_FOUNDRY_RESOURCE"):
        return "Set ANTHROPIC_FOUNDRY_RESOURCE to the name of your Foundry resource."
    return _explain_missing_entra(endpoint, "ANTHROPIC_FOUNDRY_API_KEY")


def _explain_missing_for_azure(endpoint: Endpoint, env: Mapping[str, str]) -> str:
    if not endpoint.base_url:
        return "Set AZURE_OPENAI_ENDPOINT to the address of your Azure resource."
    if not endpoint.api_version:
        return "Set OPENAI_API_VERSION or providers.azure.api_version, for example to 2025-04-01-preview."
    return "" if env.get("AZURE_OPENAI_AD_TOKEN") else _explain_missing_entra(endpoint, "AZURE_OPENAI_API_KEY")


def _explain_missing_for_bedrock(endpoint: Endpoint, env: Mapping[str, str]) -> str:
    if not _is_installed("boto3"):
        return _explain_missing_extra("bedrock")
    if find_bedrock_region(env) is None and not endpoint.base_url:
        return "Set AWS_REGION to the region of your Bedrock models."
    if endpoint.key:
        return ""
    boto3 = importlib.import_module("boto3")
    if boto3.Session().get_credentials() is None:
        return "No AWS credentials: set AWS_BEARER_TOKEN_BEDROCK, or log in with `aws configure` or `aws sso login`."
    return ""


def _explain_missing_for_vertex(endpoint: Endpoint, env: Mapping[str, str]) -> str:
    if not endpoint.key and not _is_installed("google.auth"):
        return _explain_missing_extra("vertex")
    for name, meaning in (
        ("CLOUD_ML_REGION", "the region of your Vertex models, for example global"),
        ("ANTHROPIC_VERTEX_PROJECT_ID", "your Google Cloud project"),
    ):
        if not env.get(name):
            return f"Set {name} to {meaning}."
    return ""


def _explain_missing_entra(endpoint: Endpoint, variable: str) -> str:
    if endpoint.key or _is_installed("azure.identity"):
        return ""
    return f"Set {variable}; to log in with Entra instead, run: pip install 'sakti[azure]'"


_MISSING: Mapping[ClientKind, Callable[[Endpoint, Mapping[str, str]], str]] = {
    "bedrock": _explain_missing_for_bedrock,
    "vertex": _explain_missing_for_vertex,
    "foundry": _explain_missing_for_foundry,
    "azure": _explain_missing_for_azure,
    "anthropic": _explain_missing_key,
    "openai": _explain_missing_key,
}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def _explain_missing_extra(extra: str) -> str:
    return f"Support for {extra} is not installed. Run: pip install 'sakti[{extra}]'"


def find_bedrock_region(env: Mapping[str, str]) -> str | None:
    """Return the AWS region of the environment, else of the AWS profile."""
    if region := env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"):
        return region
    return importlib.import_module("boto3").Session().region_name


# --- the key ------------------------------------------------------------------------------------------------


async def run_key_command(command: str, provider: str) -> str:
    """Return the key that a user's command prints. Raises ProviderError (authentication).

    Its output is never shown, because errors may quote keys. Its children may keep running.
    """
    reading, writing = os.pipe()
    output = b""
    try:
        status = await _run(command, writing, provider)
        os.set_blocking(reading, False)  # a child may still hold the other end of the pipe
        with contextlib.suppress(BlockingIOError):
            output = os.read(reading, LONGEST_KEY)
    finally:
        os.close(reading)
    if status:
        raise _key_command_error(provider, f"failed with exit code {status}: run it in a shell to see why")
    key = output.decode("ascii", "replace").strip()
    if not _KEY.fullmatch(key):
        raise _key_command_error(provider, "must print the key and nothing else")
    return key


async def _run(command: str, stdout: int, provider: str) -> int:
    """Run a command that writes to the file descriptor `stdout`, which is closed; return its exit code."""
    nowhere = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_shell(
            command, stdin=nowhere, stdout=stdout, stderr=nowhere, start_new_session=True
        )
    finally:
        os.close(stdout)
    try:
        async with asyncio.timeout(KEY_COMMAND_S):
            return await process.wait()
    except TimeoutError:
        raise _key_command_error(provider, f"did not end within {KEY_COMMAND_S:g} s") from None
    finally:
        if process.returncode is None:
            _end_group(process)


def _end_group(process: asyncio.subprocess.Process) -> None:
    """End a command with everything that it started in its session."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _key_command_error(provider: str, problem: str) -> ProviderError:
    return ProviderError(f"providers.{provider}.key_command {problem}.", code="authentication")


# --- the client ---------------------------------------------------------------------------------------------


def create_client(endpoint: Endpoint, key: str, on_response: OnResponse) -> SdkClient:
    """Return the SDK's client; `on_response` sees each response before its body.

    Imports the SDK, which takes one to three seconds: call it in a thread. Raises ProviderError (authentication) if
    something is missing that only the user can provide.
    """
    if problem := explain_missing(replace(endpoint, key=key), os.environ):
        raise ProviderError(problem, code="authentication")
    endpoint = replace(endpoint, base_url=endpoint.base_url or _make_cloud_url(endpoint, os.environ))
    if endpoint.client in ("openai", "azure"):
        return _create_openai_client(endpoint, key, on_response)
    return _create_anthropic_client(endpoint, key, on_response)


def _make_cloud_url(endpoint: Endpoint, env: Mapping[str, str]) -> str:
    """Return the address that the SDK would construct; it is needed earlier, to choose the proxy."""
    match endpoint.client:
        case "bedrock":
            return f"https://bedrock-runtime.{find_bedrock_region(env)}.amazonaws.com"
        case "vertex":
            region = env["CLOUD_ML_REGION"]
            special = {"global": "aiplatform", "us": "aiplatform.us.rep", "eu": "aiplatform.eu.rep"}
            return f"https://{special.get(region, f'{region}-aiplatform')}.googleapis.com/v1"
        case "foundry":
            return f"https://{env['ANTHROPIC_FOUNDRY_RESOURCE']}.services.ai.azure.com/anthropic/"
        case _:
            return ""


@contextlib.contextmanager
def _pause_collections() -> Generator[None]:
    """Pause garbage collection during an import, because it wastes a fifth of the CPU time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _create_openai_client(endpoint: Endpoint, key: str, on_response: OnResponse) -> SdkClient:
    with _pause_collections():
        import openai

    options = _build_client_options(openai, endpoint, key, on_response)
    if endpoint.client == "azure":
        entra = None if key or os.environ.get("AZURE_OPENAI_AD_TOKEN") else _make_token_source("azure")
        address = "base_url" if "/openai" in endpoint.base_url else "azure_endpoint"
        options |= {address: endpoint.base_url, "api_version": endpoint.api_version, "azure_ad_token_provider": entra}
        return openai.AsyncAzureOpenAI(api_key=key or None, **options)
    client = openai.AsyncOpenAI(api_key=key or "none", base_url=endpoint.base_url, **options)
    if endpoint.name != "openai":  # OPENAI_ORG_ID and OPENAI_PROJECT_ID must not be sent to other providers
        client.organization = client.project = None
    return client


def _create_anthropic_client(endpoint: Endpoint, key: str, on_response: OnResponse) -> SdkClient:
    with _pause_collections():
        import anthropic
        from anthropic.lib import bedrock, vertex

    options = _build_client_options(anthropic, endpoint, key, on_response)
    options["base_url"] = endpoint.base_url
    match endpoint.client:
        case "bedrock":
            return bedrock.AsyncAnthropicBedrock(
                aws_region=find_bedrock_region(os.environ), api_key=key or None, **options
            )
        case "vertex":
            return vertex.AsyncAnthropicVertex(access_token=key or None, **options)
        case "foundry":
            entra = None if key else _make_token_source("foundry")
            return anthropic.AsyncAnthropicFoundry(api_key=key or None, azure_ad_token_provider=entra, **options)
        case _:
            return anthropic.AsyncAnthropic(api_key=key or "none", **options)


def _build_client_options(sdk: Any, endpoint: Endpoint, key: str, on_response: OnResponse) -> dict[str, Any]:
    """Return the arguments that all clients share; the loop retries, so that waits are visible."""
    hooks = {"response": [on_response]}
    return {
        "max_retries": 0,
        "timeout": sdk.Timeout(endpoint.timeout, connect=min(CONNECT_S, endpoint.timeout)),
        "default_headers": endpoint.request_headers(key),
        "default_query": dict(endpoint.query) or None,
        "http_client": sdk.DefaultAsyncHttpxClient(
            event_hooks=hooks, **network.build_client_options(endpoint.base_url)
        ),
    }


def _make_token_source(client: str) -> Callable[[], Awaitable[str]]:
    """Return a source of Entra tokens; a token is kept until it expires."""
    identity = importlib.import_module("azure.identity")
    token = identity.get_bearer_token_provider(identity.DefaultAzureCredential(), _ENTRA_SCOPES[client])
    return lambda: asyncio.to_thread(token)


def check_base_url(name: str, url: str) -> None:
    """Raise ConfigError for an address without HTTP, a host or a valid port."""
    parts = urlsplit(url)
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or too large
        is_address = False
    if not is_address:
        raise ConfigError(f"providers.{name}.base_url = {quote(url)} must be an address such as https://HOST:PORT/v1.")
