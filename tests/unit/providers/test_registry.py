"""Which model is chosen, why, and by which protocol it is reached."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from sakti.core.config.fields import ProviderSettings
from sakti.core.errors import ConfigError, NoModelError
from sakti.core.network import is_loopback
from sakti.providers import registry
from sakti.providers.anthropic import AnthropicProvider
from sakti.providers.local.provider import LocalProvider
from sakti.providers.openai_chat import ChatProvider
from sakti.providers.openai_responses import ResponsesProvider
from sakti.providers.presets import PRESETS
from sakti.providers.registry import SelectedModel
from sakti.providers.scripted import ScriptedProvider
from sakti.providers.serving import fetch_local_models


def nothing(name):
    return None


async def select(flag=None, config=None, env=None, keys=nothing, served=None, installed=False, settings=None):
    asked = []

    async def probe(url):
        asked.append(url)
        return (served or {}).get(url)

    choice = await registry.select_model(
        flag=flag,
        config_model=config,
        env=env or {},
        settings=settings or {},
        keyring=keys,
        probe=probe,
        local_installed=installed,
    )
    return choice, asked


OLLAMA = {"http://127.0.0.1:11434/v1": ["qwen3:8b", "llama3"]}
KEYS = {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "y"}


async def test_the_order():
    everything = {"env": KEYS, "served": OLLAMA, "installed": True}
    choice, asked = await select("groq/llama", "openai/gpt-x", **everything)
    assert (choice, asked) == (SelectedModel("groq/llama", "from --model"), [])
    assert (await select(None, "openai/gpt-x", **everything))[0] == SelectedModel(
        "openai/gpt-x", "from the configuration"
    )
    choice, asked = await select(**everything)
    assert choice == SelectedModel(f"anthropic/{PRESETS['anthropic'].model}", "ANTHROPIC_API_KEY is set")
    assert asked == [], "with a key nothing is probed"
    assert (await select(keys={"GROQ_API_KEY": "k"}.get, served=OLLAMA))[0].reason == "GROQ_API_KEY is in the keyring"
    assert (await select(served=OLLAMA, installed=True))[0] == SelectedModel(
        "ollama/qwen3:8b", "Ollama answers at 127.0.0.1:11434"
    )
    assert (await select(installed=True))[0].reason == "installed small model, for questions; check its edits"
    assert (await select())[0] is None


async def test_only_known_ports_of_this_machine_are_asked():
    _, asked = await select()
    assert sorted(asked) == sorted(p.base_url for p in PRESETS.values() if p.local)
    assert all(is_loopback(url) for url in asked)


async def test_a_local_base_url_is_asked_for_its_models():
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:4000/v1"}
    choice, _ = await select(env=env, served={"http://127.0.0.1:4000/v1": ["m1"]})
    assert choice == SelectedModel("openai/m1", "OPENAI_BASE_URL is set")
    choice, _ = await select(env={**env, "OPENAI_API_KEY": "x"}, served={"http://127.0.0.1:4000/v1": ["m1"]})
    assert choice == SelectedModel("openai/m1", "OPENAI_API_KEY is set")


async def test_a_provider_alone_gets_its_model():
    assert (await select("anthropic"))[0].model == f"anthropic/{PRESETS['anthropic'].model}"
    assert (await select("ollama", served=OLLAMA))[0].model == "ollama/qwen3:8b"
    with pytest.raises(NoModelError, match="ollama/NAME"):
        await select("ollama")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("claude-opus-5-5", "anthropic/claude-opus-5-5"),
        ("gpt-6-luna", "openai/gpt-6-luna"),
        ("o3", "openai/o3"),
        ("gemini-3.8-flash", "gemini/gemini-3.8-flash"),
        ("openrouter/anthropic/x", "openrouter/anthropic/x"),
    ],
)
def test_names(name, full):
    assert registry.resolve_name(name) == full


@pytest.mark.parametrize(
    ("name", "hint"), [("antropic/claude", "anthropic/claude"), ("olama", "ollama"), ("zzz", "provider/name")]
)
def test_unclear_names_get_suggestions(name, hint):
    with pytest.raises(NoModelError, match=hint):
        registry.resolve_name(name)


def make(name, env=None, **settings):
    own = {name.partition("/")[0]: ProviderSettings(**settings)} if settings else {}
    return registry.create_provider(name, own, env or {}, nothing)


def test_the_protocol_follows_the_address():
    assert isinstance(make("openai/x"), ResponsesProvider)
    elsewhere = {"OPENAI_BASE_URL": "http://localhost:1/v1"}
    assert isinstance(make("openai/x", elsewhere), ChatProvider)
    assert isinstance(make("openai/x", elsewhere, api="responses"), ResponsesProvider)
    assert isinstance(make("anthropic/x"), AnthropicProvider)
    assert isinstance(make("ollama/x"), ChatProvider)
    assert isinstance(make("mine/x", base_url="http://localhost:9/v1"), ChatProvider)
    assert isinstance(make("mine/x", base_url="http://localhost:9", api="anthropic"), AnthropicProvider)
    assert isinstance(make("local/x"), LocalProvider)


def test_every_preset_can_be_made():
    for name in PRESETS:
        assert make(f"{name}/m").name == name


def test_a_script(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(["hi"]))
    assert isinstance(make(f"scripted/{path}"), ScriptedProvider)


def test_addresses_that_are_none():
    with pytest.raises(ConfigError):
        make("mine/x", base_url="localhost:9")


def test_small_models():
    assert registry.choose_small_model("anthropic/claude-opus-5-5") == f"anthropic/{PRESETS['anthropic'].small}"
    assert registry.choose_small_model("ollama/qwen3") == "ollama/qwen3"
    assert registry.choose_small_model("mine/x") == "mine/x"


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://10.0.0.1/v1", False),
        ("http://localhost.example.com/v1", False),
        ("https://api.openai.com/v1", False),
    ],
)
def test_loopback(url, loopback):
    assert is_loopback(url) is loopback


async def test_probing_a_real_socket():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"data": [{"id": "nomic-embed-text"}, {"id": "qwen3"}]})
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{body}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await fetch_local_models(f"http://127.0.0.1:{port}/v1") == ["qwen3"]
    server.close()
    await server.wait_closed()
    assert await fetch_local_models(f"http://127.0.0.1:{port}/v1") is None
    assert await fetch_local_models("http://192.0.2.1/v1") is None


async def test_a_server_that_keeps_the_connection_open_is_heard_too():
    hold = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"data": [{"id": "qwen3"}]})
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await hold.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await fetch_local_models(f"http://127.0.0.1:{port}/v1") == ["qwen3"]
    hold.set()
    server.close()
    await server.wait_closed()


def test_choosing_imports_no_sdk():
    code = (
        "import sys; from sakti.providers.registry import create_provider as create; "
        "import sakti.actions.installation; "
        "create('anthropic/x', {}, {}, lambda n: None); create('openai/x', {}, {}, lambda n: None); create('local/x'); "
        "heavy = {'anthropic', 'openai', 'genai_prices', 'keyring', 'xllamacpp', 'httpx2'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
