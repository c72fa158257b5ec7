"""The first start: what is said, what can be chosen, and that typing is never lost in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import keyring
import pytest
from keyring.backend import KeyringBackend
from msgspec.structs import replace
from textual import events

from sakti.agent.session.session import Options, Session
from sakti.agent.setup import SHOWN, LocalServer, MachineScan, describe_selection, is_welcome_due, list_options
from sakti.core.config import load
from sakti.core.errors import SaktiError
from sakti.core.events import ModelChanged
from sakti.core.tokens import Estimator
from sakti.providers import keys
from sakti.providers.local import install, model
from sakti.tui import desktop
from sakti.tui.app import SaktiApp
from sakti.tui.screens import welcome
from sakti.tui.screens.welcome import WelcomeScreen
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import FakeSession
from tests.tui.test_snapshots import THEMES, posed


class Memory(KeyringBackend):
    """A keyring that forgets everything at the end of the test."""

    priority = 1  # type: ignore[assignment]

    def __init__(self):
        super().__init__()
        self.kept = {}

    def get_password(self, service, username):
        return self.kept.get(username)

    def set_password(self, service, username, password):
        self.kept[username] = password


@pytest.fixture
def chain():
    """No keyring of the developer's."""
    from keyring.backends.null import Keyring

    before = keyring.get_keyring()
    keyring.set_keyring(Keyring())
    yield
    keyring.set_keyring(before)


@pytest.fixture
def first(store, tmp_path, chain, monkeypatch):
    """An app that starts for the first time, on a machine with nothing; `look` may find something."""
    found = SimpleNamespace(value=MachineScan(runtime=True))

    async def look(env, settings):
        return replace(found.value, keyring=keys.get_keyring_name(), stored_keys=keys.list_stored_keys())

    monkeypatch.setattr(welcome, "scan_machine", look)
    monkeypatch.setattr("sakti.providers.registry._is_installed", lambda: False)

    def start(**options):
        workspace = tmp_path / "work"
        workspace.mkdir(exist_ok=True)
        chosen = Options(workspace, load(overrides=("memory.model=extractive",)).config, env={}, **options)
        session = Session(chosen, clock=store.clock, counter=Estimator(), store=store)
        return SaktiApp(session), found

    async def nobody(*args, **kwargs):
        return None

    monkeypatch.setattr("sakti.providers.registry.select_model", nobody)
    return start


async def test_what_is_typed_leaves_the_welcome_and_stands_in_the_prompt(first):
    app, _ = first()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        assert isinstance(app.screen, WelcomeScreen)
        text = screen_text(app)
        assert "no key in the environment" in text and "No model configured" in text and "Message sakti" in text
        await pilot.press(*"hello")
        assert not isinstance(app.screen, WelcomeScreen)
        assert app.chat.prompt.text == "hello"
        app.chat.prompt.set_text("/setup")
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.screen, WelcomeScreen)
        app.post_message(events.Paste("pasted"))
        await settle(app, pilot)
        assert app.chat.prompt.text == "pasted"
    again, _ = first()
    async with again.run_test() as pilot:
        await settle(again, pilot)
        assert not isinstance(again.screen, WelcomeScreen)  # once is enough


@pytest.mark.parametrize(("key", "leads_to"), [("f1", "HelpScreen"), ("f2", "memory"), ("f3", "log"), ("f4", "tasks")])
async def test_function_keys_of_the_chat_leave_the_welcome(first, key, leads_to):
    app, _ = first()
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        assert isinstance(app.screen, WelcomeScreen)
        await pilot.press(key)
        await settle(app, pilot)
        top = type(app.screen).__name__
        assert leads_to in (top, app.chat._browsed) and not isinstance(app.screen, WelcomeScreen)


async def test_approval_theme_and_the_advice_without_a_keyring(first, home):
    app, _ = first()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("down", "enter")
        await settle(app, pilot)
        assert "GROQ_API_KEY" in screen_text(app)
        await pilot.press(*"openai", "enter")
        await settle(app, pilot)
        assert "export OPENAI_API_KEY=…" in screen_text(app)
        await pilot.press("end", "enter")
        await settle(app, pilot)
        assert app.session.current.approval_mode == "edits" and app.chat.header.approval == "edits"
        assert "edits: reads and edits files freely" in screen_text(app)
        written = next(home.parent.rglob("sakti/config.toml"))
        assert written.read_text().split() == ["[approval]", "mode", "=", '"edits"']
        await pilot.press("up", "enter")
        await settle(app, pilot)
        await pilot.press(*"night", "enter")
        await settle(app, pilot)
        assert app.theme == "sakti-night" and "sakti-night" in screen_text(app)
        await pilot.press("escape")
        assert app.screen is app.screen_stack[0]


async def test_a_key_goes_into_the_keyring_and_nowhere_else(first, store):
    kept = Memory()
    keyring.set_keyring(kept)
    app, _ = first()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("down", "enter")
        await settle(app, pilot)
        await pilot.press("enter")  # the first provider
        await settle(app, pilot)
        await pilot.press(*"sk-secret")
        assert isinstance(app.screen, WelcomeScreen) and app.chat.prompt.text == ""
        assert "sk-secret" not in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert kept.kept == {"ANTHROPIC_API_KEY": "sk-secret"}
        assert "ANTHROPIC_API_KEY is in the keyring" in screen_text(app)
        assert app.chat.header.model.startswith("anthropic/")
        await pilot.press("escape")
    data = b"".join(p.read_bytes() for p in store.path.parent.parent.rglob("*") if p.is_file())
    assert b"sk-secret" not in data


async def test_a_server_and_the_small_model_are_chosen_here(first, monkeypatch):
    app, found = first()
    stopped = []

    class Installer:
        def __init__(self, progress, cancelled, workspace):
            self.progress, self.cancelled = progress, cancelled

        def run(self):
            self.progress(50_000_000, 100_000_000, "fetching")
            if not stopped:
                while not self.cancelled():
                    pass
                stopped.append(True)
                raise install.Cancelled("Stopped. `sakti local install` continues from here.")
            found.value = replace(found.value, weights=True)

    monkeypatch.setattr(install, "Installer", Installer)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("down", "down", "enter")
        await settle(app, pilot)
        assert "No server answers. Start Ollama" in screen_text(app)
        found.value = replace(found.value, servers=(LocalServer("ollama", "Ollama", "127.0.0.1:11434", ("qwen3:4b",)),))
        await pilot.press("enter")
        await settle(app, pilot)
        assert "ollama/qwen3:4b" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.chat.header.model == "ollama/qwen3:4b"
        assert "sakti talks to ollama/qwen3:4b" in screen_text(app)
        await pilot.press("down", "enter")
        while "50 of 100 MB  50%" not in screen_text(app):
            await pilot.pause()
        assert "enter stops it" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "continues from here" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.chat.header.model == f"local/{model.name()}"
        found.value = MachineScan()
        await app.screen._load_setup()
        await pilot.press("enter")
        await settle(app, pilot)
        assert "pip install 'sakti[local]'" in screen_text(app)


@pytest.mark.parametrize("theme", THEMES)
def test_pictures(snap_compare, monkeypatch, theme):
    async def look(env, settings):
        return MachineScan(
            ("ANTHROPIC_API_KEY",), servers=(LocalServer("ollama", "Ollama", "127.0.0.1:11434", ("a", "b")),)
        )

    monkeypatch.setattr(welcome, "scan_machine", look)
    session = FakeSession(Path("/work"))
    session.workspace.env = {}

    async def open_it(pilot):
        await posed(theme)(pilot)
        pilot.app.chat.welcome.open()
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(session), terminal_size=(80, 24), run_before=open_it)


def test_names_of_keys_are_said_and_no_key():
    found = MachineScan(("OPENAI_API_KEY",), ("OPENAI_API_KEY", "GROQ_API_KEY"), weights=True)
    assert list_options(found) == [
        (True, "OPENAI_API_KEY is set"),
        (True, "GROQ_API_KEY is in the keyring"),
        (False, "no local server answers (Ollama, LM Studio, llama.cpp, vLLM)"),
        (False, "the small model for this machine: its runtime is missing"),
    ]
    assert list_options(MachineScan(keyring="SecretService"))[0] == (False, "no key in the environment or the keyring")
    assert describe_selection(ModelChanged("a/b", "it is set")) == "sakti talks to a/b: it is set."


@pytest.mark.parametrize(
    ("said", "options", "threads", "wanted"),
    [
        (None, {}, [1], True),
        (ModelChanged(None, "none"), {}, [1], True),
        (ModelChanged("a/b", "KEY is set"), {}, [], True),
        (ModelChanged("a/b", "KEY is set"), {}, [1], False),
        (ModelChanged("a/b", "given"), {}, [], False),
        (None, {"model_flag": "a/b"}, [], False),
        (None, {"continue_last": True}, [], False),
        (None, {"resume": "x"}, [], False),
    ],
)
async def test_when_the_welcome_is_due(tmp_path, said, options, threads, wanted):
    async def listed(limit):
        return threads

    workspace = SimpleNamespace(options=Options(tmp_path, **options), models=SimpleNamespace(selection=said))
    session = SimpleNamespace(workspace=workspace, views=SimpleNamespace(threads=listed))
    assert await is_welcome_due(session, {}) is wanted
    assert not await is_welcome_due(session, {SHOWN: "1"})


def test_a_keyring_that_loses_keys_is_named(chain):
    assert keys.get_keyring_name() == ""
    with pytest.raises(SaktiError, match="set X_API_KEY in the environment"):
        keys.store_key("X_API_KEY", "secret")


async def test_the_tour_and_the_setup_are_reached_from_the_chat(running, monkeypatch):
    played = []

    async def play(app, words):
        played.append(words[-1])
        return len(played) - 1  # the second one fails

    monkeypatch.setattr(desktop, "run_in_terminal", play)
    async with running() as (app, pilot):
        for _ in range(2):
            app.run_command("/tour")
            await settle(app, pilot)
        assert played == ["tour", "tour"]
        assert chat_text(app).count("run `sakti tour` in a shell") == 1
        app.run_command("/model")
        await settle(app, pilot)
        await pilot.press(*"small model", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, WelcomeScreen) and len(app.screen_stack) == 2
