"""Bedrock, Vertex, Foundry and Azure through the SDKs' own clients, against servers that check what they are sent."""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import hmac
import json
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from sakti.core.config.fields import ProviderSettings
from sakti.core.errors import ProviderError
from sakti.core.network import find_proxy
from sakti.providers import registry
from sakti.providers.protocol import TextChunk
from tests.fakes.requests import play, request

ACCESS, SECRET = "AKIDEXAMPLE00000", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
MESSAGES = [
    {"type": "message_start", "message": {"model": "claude-x", "usage": {"input_tokens": 7}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "All good."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]
CHAT = [
    {"choices": [{"delta": {"content": "All good."}, "finish_reason": None}]},
    {"choices": [{"delta": {}, "finish_reason": "stop"}]},
]


@dataclass
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass
class Cloud:
    """Answers each POST with `answer` of content type `kind`, or with status 401 unless it has `wanted` as header."""

    answer: bytes
    kind: str = "text/event-stream"
    wanted: tuple[str, str] | None = None
    token: bytes = b""
    refusal: bytes = b'{"error": {"message": "who are you"}}'
    url: str = ""
    requests: list[Received] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(Received(method, target, headers, body))
        status, kind, answer = "200 OK", self.kind, self.answer
        if method == "GET" or target.startswith("/token"):
            kind, answer = "application/json", self.token
        elif self.wanted is not None and headers.get(self.wanted[0]) != self.wanted[1]:
            status, kind, answer = "401 Unauthorized", "application/json", self.refusal
        length = f"Content-Length: {len(answer)}\r\nConnection: close"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{length}\r\n\r\n".encode() + answer)
        await writer.drain()
        writer.close()

    @property
    def calls(self) -> list[Received]:
        return [r for r in self.requests if r.method == "POST" and not r.target.startswith("/token")]


@asynccontextmanager
async def serving(cloud: Cloud) -> AsyncIterator[Cloud]:
    server = await asyncio.start_server(cloud.handle, "127.0.0.1", 0)
    cloud.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield cloud
    finally:
        server.close()


def sse(events: list[dict[str, Any]]) -> bytes:
    return b"".join(f"event: {e.get('type', 'x')}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def frame(payload: bytes, headers: dict[str, str]) -> bytes:
    """Encode one message of the AWS event stream."""
    encoded = b"".join(
        struct.pack(">B", len(k)) + k.encode() + b"\x07" + struct.pack(">H", len(v)) + v.encode()
        for k, v in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    prelude += struct.pack(">I", binascii.crc32(prelude))
    message = prelude + encoded + payload
    return message + struct.pack(">I", binascii.crc32(message))


def aws_frames(events: list[dict[str, Any]]) -> bytes:
    import base64

    headers = {":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}
    inner = (base64.b64encode(json.dumps(e).encode()).decode() for e in events)
    return b"".join(frame(json.dumps({"bytes": text}).encode(), headers) for text in inner)


def signature_of(received: Received, host: str) -> tuple[str, str]:
    """Return the signature that a request carries and the one that it should carry (AWS Signature Version 4)."""
    fields = dict(p.strip().partition("=")[::2] for p in received.headers["authorization"].split(" ", 1)[1].split(","))
    names = fields["SignedHeaders"].split(";")
    headers = {**received.headers, "host": host}
    path = quote(urlsplit(received.target).path, safe="/-_.~")
    payload = hashlib.sha256(received.body).hexdigest()
    canonical = "\n".join(
        [received.method, path, "", *(f"{n}:{headers[n].strip()}" for n in names), "", fields["SignedHeaders"], payload]
    )
    scope = fields["Credential"].partition("/")[2]
    stamp = received.headers["x-amz-date"]
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return fields["Signature"], hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@pytest.fixture(autouse=True)
def no_clouds(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "CLOUD_ML", "ANTHROPIC_", "OPENAI_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


async def answer(full_name: str, env: dict[str, str], monkeypatch, **settings: Any) -> str:
    """Ask a model once with this environment and return its text."""
    import os

    for name, value in env.items():
        monkeypatch.setenv(name, value)
    own = {full_name.partition("/")[0]: ProviderSettings(**settings)}
    provider = registry.create_provider(full_name, own, os.environ, keyring=lambda _: None)
    try:
        events, done = await play(provider, request(model=full_name.partition("/")[2]))
    finally:
        await provider.close()
    text = "".join(e.text for e in events if isinstance(e, TextChunk))
    assert (done.parts[0].text, done.stop_reason) == (text, "end")
    return text


AWS = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"


async def test_bedrock_signs_requests_and_reads_frames(monkeypatch) -> None:
    async with serving(Cloud(aws_frames(MESSAGES), "application/vnd.amazon.eventstream")) as cloud:
        env = {**AWS, "ANTHROPIC_BEDROCK_BASE_URL": cloud.url}
        assert await answer(f"bedrock/{MODEL}", env, monkeypatch) == "All good."
    (call,) = cloud.calls
    assert call.target == f"/model/{quote(MODEL, safe=':')}/invoke-with-response-stream"
    assert "model" not in call.json and call.json["anthropic_version"]
    assert "/eu-west-1/bedrock/aws4_request" in call.headers["authorization"]
    sent, expected = signature_of(call, urlsplit(cloud.url).netloc)
    assert sent == expected


async def test_bedrock_takes_a_bearer_token(monkeypatch) -> None:
    cloud = Cloud(aws_frames(MESSAGES), "application/vnd.amazon.eventstream", ("authorization", "Bearer abc-12345678"))
    async with serving(cloud):
        env = {"AWS_REGION": "eu-west-1", "AWS_BEARER_TOKEN_BEDROCK": "abc-12345678"}
        env["ANTHROPIC_BEDROCK_BASE_URL"] = cloud.url
        assert await answer(f"bedrock/{MODEL}", env, monkeypatch) == "All good."


async def test_an_exception_in_a_bedrock_stream_is_classified(monkeypatch) -> None:
    headers = {":message-type": "exception", ":exception-type": "throttlingException"}
    error = frame(b'{"message": "Too many tokens, please wait before trying again."}', headers)
    async with serving(Cloud(aws_frames(MESSAGES[:3]) + error, "application/vnd.amazon.eventstream")) as cloud:
        with pytest.raises(ProviderError) as caught:
            await answer(f"bedrock/{MODEL}", {**AWS, "ANTHROPIC_BEDROCK_BASE_URL": cloud.url}, monkeypatch)
    assert caught.value.retryable, caught.value.message
    assert "please wait" in caught.value.message


async def test_bedrock_says_what_is_missing(monkeypatch) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer(f"bedrock/{MODEL}", {"AWS_REGION": "eu-west-1"}, monkeypatch)
    assert "AWS_BEARER_TOKEN_BEDROCK" in caught.value.message
    assert caught.value.code == "authentication" and not caught.value.retryable


async def test_vertex_gets_a_token_for_the_service_account(monkeypatch, tmp_path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    cloud = Cloud(sse(MESSAGES), wanted=("authorization", "Bearer ya29.short-lived"))
    cloud.token = b'{"access_token": "ya29.short-lived", "expires_in": 3600, "token_type": "Bearer"}'
    async with serving(cloud):
        account = {"type": "service_account", "project_id": "my-project", "private_key": private.decode()}
        account |= {"client_email": "me@my-project.iam", "token_uri": f"{cloud.url}/token", "private_key_id": "1"}
        file = tmp_path / "account.json"
        file.write_text(json.dumps(account))
        env = {"GOOGLE_APPLICATION_CREDENTIALS": str(file), "CLOUD_ML_REGION": "global"}
        env |= {"ANTHROPIC_VERTEX_PROJECT_ID": "my-project", "ANTHROPIC_VERTEX_BASE_URL": f"{cloud.url}/v1"}
        assert await answer("vertex/claude-sonnet-5-5", env, monkeypatch) == "All good."
    (call,) = cloud.calls
    models = "/v1/projects/my-project/locations/global/publishers/anthropic/models"
    assert call.target == f"{models}/claude-sonnet-5-5:streamRawPredict"
    assert "model" not in call.json


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({}, "CLOUD_ML_REGION"),
        ({"CLOUD_ML_REGION": "global"}, "ANTHROPIC_VERTEX_PROJECT_ID"),
    ],
)
async def test_vertex_says_what_is_missing(env: dict[str, str], named: str, monkeypatch) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer("vertex/claude-sonnet-5-5", env, monkeypatch)
    assert named in caught.value.message


async def test_foundry_takes_a_key(monkeypatch) -> None:
    async with serving(Cloud(sse(MESSAGES))) as cloud:
        env = {"ANTHROPIC_FOUNDRY_BASE_URL": f"{cloud.url}/anthropic/", "ANTHROPIC_FOUNDRY_API_KEY": "foundry-12345"}
        assert await answer("foundry/claude-sonnet-5-5", env, monkeypatch) == "All good."
    (call,) = cloud.calls
    assert call.target == "/anthropic/v1/messages"
    assert "foundry-12345" in (call.headers.get("api-key"), call.headers.get("x-api-key"))


async def test_azure_takes_a_key(monkeypatch) -> None:
    async with serving(Cloud(sse(CHAT), wanted=("api-key", "azure-12345678"))) as cloud:
        env = {"AZURE_OPENAI_ENDPOINT": cloud.url, "AZURE_OPENAI_API_KEY": "azure-12345678"}
        env["OPENAI_API_VERSION"] = "2025-04-01-preview"
        assert await answer("azure/my-gpt", env, monkeypatch) == "All good."
    (call,) = cloud.calls
    assert call.target == "/openai/deployments/my-gpt/chat/completions?api-version=2025-04-01-preview"


async def test_azure_takes_a_full_endpoint_from_its_portal(monkeypatch) -> None:
    async with serving(Cloud(sse(CHAT), wanted=("api-key", "azure-12345678"))) as cloud:
        url = f"{cloud.url}/openai/deployments/my-gpt/chat/completions?api-version=2025-01-01"
        env = {"AZURE_OPENAI_API_KEY": "azure-12345678"}
        assert await answer("azure/my-gpt", env, monkeypatch, base_url=url) == "All good."
    assert cloud.calls[0].target == "/openai/deployments/my-gpt/chat/completions?api-version=2025-01-01"


@pytest.mark.parametrize("name", ["azure/my-gpt", "foundry/claude-sonnet-5-5"])
async def test_entra_logs_in_without_a_key(name: str, monkeypatch) -> None:
    """The managed identity of an App Service answers over plain HTTP, as it does on Azure."""
    cloud = Cloud(sse(CHAT if name.startswith("azure") else MESSAGES), wanted=("authorization", "Bearer eyJ.entra"))
    cloud.token = json.dumps({"access_token": "eyJ.entra", "expires_on": str(int(time.time()) + 3600)}).encode()
    async with serving(cloud):
        env = {"IDENTITY_ENDPOINT": f"{cloud.url}/msi/token", "IDENTITY_HEADER": "secret-header"}
        env |= {"AZURE_OPENAI_ENDPOINT": cloud.url, "OPENAI_API_VERSION": "2025-04-01-preview"}
        env |= {"ANTHROPIC_FOUNDRY_BASE_URL": f"{cloud.url}/anthropic/"}
        assert await answer(name, env, monkeypatch) == "All good."
    tokens = [r for r in cloud.requests if r.method == "GET"]
    scope = "cognitiveservices.azure.com" if name.startswith("azure") else "ai.azure.com"
    assert tokens and scope in tokens[0].target and tokens[0].headers["x-identity-header"] == "secret-header"


async def test_azure_takes_a_ready_entra_token(monkeypatch) -> None:
    async with serving(Cloud(sse(CHAT), wanted=("authorization", "Bearer eyJ.ready"))) as cloud:
        env = {"AZURE_OPENAI_ENDPOINT": cloud.url, "AZURE_OPENAI_AD_TOKEN": "eyJ.ready"}
        assert await answer("azure/my-gpt", env, monkeypatch, api_version="2025-04-01-preview") == "All good."


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({}, "AZURE_OPENAI_ENDPOINT"),
        ({"AZURE_OPENAI_ENDPOINT": "http://127.0.0.1:9"}, "OPENAI_API_VERSION"),
    ],
)
async def test_azure_says_what_is_missing(env: dict[str, str], named: str, monkeypatch) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer("azure/my-gpt", env, monkeypatch)
    assert named in caught.value.message


@pytest.mark.parametrize(
    ("name", "env", "url"),
    [
        ("bedrock", {"AWS_REGION": "eu-west-1"}, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        ("vertex", {"CLOUD_ML_REGION": "global"}, "https://aiplatform.googleapis.com/v1"),
        ("vertex", {"CLOUD_ML_REGION": "eu"}, "https://aiplatform.eu.rep.googleapis.com/v1"),
        ("vertex", {"CLOUD_ML_REGION": "us-east5"}, "https://us-east5-aiplatform.googleapis.com/v1"),
        ("foundry", {"ANTHROPIC_FOUNDRY_RESOURCE": "mine"}, "https://mine.services.ai.azure.com/anthropic"),
    ],
)
async def test_the_host_of_a_cloud_decides_about_its_proxy(
    name: str, env: dict[str, str], url: str, monkeypatch
) -> None:
    """The address is the one that the SDK makes up when it is left alone."""
    import os

    import anthropic

    for variable, value in {**env, "ANTHROPIC_VERTEX_PROJECT_ID": "p", "HTTPS_PROXY": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("NO_PROXY", urlsplit(url).netloc)
    provider = registry.create_provider(f"{name}/m", {name: ProviderSettings(auth_token="abcdefgh123")}, os.environ)
    client = await provider._server.open()
    kinds = {"bedrock": "AsyncAnthropicBedrock", "vertex": "AsyncAnthropicVertex", "foundry": "AsyncAnthropicFoundry"}
    key = "access_token" if name == "vertex" else "api_key"
    assert str(client.base_url) == str(getattr(anthropic, kinds[name])(**{key: "x"}).base_url)
    assert provider._context.base_url == url
    assert find_proxy(provider._context.base_url) == ""
    await provider.close()


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("azure/m", "AZURE_OPENAI_ENDPOINT"),
        ("vertex/m", "CLOUD_ML_REGION"),
        ("foundry/m", "ANTHROPIC_FOUNDRY_RESOURCE"),
    ],
)
async def test_a_key_command_does_not_replace_the_rest_of_a_cloud(name: str, named: str, monkeypatch) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer(name, {}, monkeypatch, key_command="echo abcdefgh123")
    assert named in caught.value.message and not caught.value.retryable


async def test_a_refused_login_of_a_cloud_is_no_crash(monkeypatch, tmp_path) -> None:
    env = {"CLOUD_ML_REGION": "global", "ANTHROPIC_VERTEX_PROJECT_ID": "p", "NO_GCE_CHECK": "true"}
    env |= {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "gone.json")}
    with pytest.raises(ProviderError) as caught:
        await answer("vertex/claude-sonnet-5-5", env, monkeypatch)
    assert "gone.json" in caught.value.message and caught.value.code == "authentication"
