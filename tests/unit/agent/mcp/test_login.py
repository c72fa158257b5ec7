"""Logins at MCP servers, against an issuer at a loopback address that speaks the real protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.null import Keyring

from sakti.agent.mcp import clients, login
from sakti.agent.mcp.login import LoginError
from sakti.agent.mcp.servers import LoginNeededError, McpServer
from sakti.agent.session.session import Options, Session
from sakti.core import http
from sakti.providers import keys
from sakti.store.database import Store
from tests.fakes.issuer import OAuthIssuer, find_redirect, open_in_browser, running_issuer


class KeyringInMemory(KeyringBackend):
    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[str, str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.secrets.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.secrets[username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.secrets[username]


@pytest.fixture
def backend() -> Iterator[KeyringInMemory]:
    before, now = keyring.get_keyring(), KeyringInMemory()
    keyring.set_keyring(now)
    yield now
    keyring.set_keyring(before)


@pytest.fixture
async def issuer(backend: KeyringInMemory) -> AsyncIterator[OAuthIssuer]:
    async with running_issuer() as issuer:
        yield issuer


def server(issuer: OAuthIssuer, **fields: object) -> McpServer:
    return McpServer("notes", Path("config.toml"), "user", url=issuer.url, **fields)


async def browse(address: str) -> None:
    page = await asyncio.to_thread(open_in_browser, address)
    assert "You can close this window." in page


async def status(target: McpServer, auth: object | None = None) -> int:
    """Ask the server something with a stored login; the status of its answer."""
    auth = auth or login.make_auth(target)
    async with http.make_client(http.HttpLimits(private=("127.0.0.1",)), auth=auth) as client:
        answer = await client.post(target.url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        return answer.status_code


async def test_a_login_is_stored_and_used(issuer: OAuthIssuer, backend: KeyringInMemory) -> None:
    notes = server(issuer)
    await login.log_in(notes, browse)
    assert list(backend.secrets) == [f"mcp notes {issuer.url}"]
    assert issuer.authorized[0]["scope"] == "all"
    assert await status(notes) == 200
    with pytest.raises(LoginNeededError, match="run `sakti mcp login other`"):
        await status(replace(notes, name="other"))

    assert keys.delete_secret(notes.login_name) and not keys.delete_secret(notes.login_name)
    issuer.requests.clear()
    with pytest.raises(LoginNeededError):
        await status(notes)
    assert issuer.requests == ["POST /mcp"], "nothing is registered without the user"


async def test_tokens_are_renewed_without_the_user(issuer: OAuthIssuer, backend: KeyringInMemory) -> None:
    notes = server(issuer)
    issuer.lifetime = 1  # it has ended when it is used
    await login.log_in(notes, browse)
    first = login.make_auth(notes)
    assert await status(notes, first) == 200
    assert issuer.requests[-2:] == ["POST /tokens", "POST /mcp"]
    assert await status(notes) == 200, "another session renews what the first one stored"
    assert await status(notes, first) == 200, "the first takes over what the other stored"

    issuer.lifetime = 3600
    assert await status(notes) == 200
    issuer.revoke(refresh=False)
    assert await status(notes) == 200, "a token that is refused early is renewed, too"

    issuer.revoke(refresh=False)
    issuer.token_status = 503
    with pytest.raises(LoginError, match="its issuer answered 503"):
        await status(notes)
    issuer.token_status = 200
    assert await status(notes) == 200, "the login is kept while the issuer is out of order"


async def test_a_login_is_asked_for_by_a_later_request_and_with_more_rights(issuer: OAuthIssuer) -> None:
    notes = server(issuer)
    issuer.open_methods = ("initialize", "notifications/initialized")
    await login.log_in(notes, browse)
    assert await status(notes) == 200
    issuer.wanted = "write"
    with pytest.raises(
        LoginNeededError, match="It needs more rights than the login grants: run `sakti mcp login notes`"
    ):
        await status(notes)
    await login.log_in(notes, browse)
    assert set(issuer.authorized[-1]["scope"].split()) == {"all", "write"}
    assert await status(notes) == 200


async def test_a_server_is_ready_after_the_login(issuer: OAuthIssuer, tmp_path: Path, store: Store) -> None:
    session = Session(Options(tmp_path), store=store)
    servers = clients.McpClients(session.workspace, [server(issuer, startup_timeout=5)])

    async def settle() -> tuple[str, int]:
        await servers.wait(["notes"], 5)
        (state,) = servers.states()
        return state.state, len(state.tools)

    try:
        servers.start()
        assert await settle() == ("needs login", 0)
        await login.log_in(server(issuer), browse)
        await servers.restart("notes")
        assert await settle() == ("ready", 1)
        files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert files and not [t for t in issuer.issued if any(t.encode() in data for data in files)]
        issuer.revoke()
        await servers.restart("notes")
        assert await settle() == ("needs login", 0)
    finally:
        await servers.close()


@pytest.mark.parametrize("lifetime", [1, 3600])
async def test_a_revoked_login_needs_the_user(issuer: OAuthIssuer, backend: KeyringInMemory, lifetime: int) -> None:
    issuer.lifetime = lifetime
    await login.log_in(server(issuer), browse)
    issuer.revoke()
    with pytest.raises(LoginNeededError):
        await status(server(issuer))
    assert backend.secrets == {}


async def test_the_redirect_can_be_pasted(issuer: OAuthIssuer) -> None:
    shown: asyncio.Queue[str] = asyncio.Queue()
    texts = ["", "http://127.0.0.1/callback?code=x&state=forged", "the address"]

    async def paste() -> str:
        text = texts.pop(0)
        return await asyncio.to_thread(find_redirect, await shown.get()) if text == "the address" else text

    await login.log_in(server(issuer), shown.put, paste)
    assert await status(server(issuer)) == 200


async def test_a_client_registered_by_hand_is_used(issuer: OAuthIssuer, unused_tcp_port: int) -> None:
    notes = server(issuer, client_id="by-hand", scopes=("read", "write"), redirect_port=unused_tcp_port)
    await login.log_in(notes, browse)
    assert "POST /clients" not in issuer.requests
    (fields,) = issuer.authorized
    assert (fields["client_id"], fields["scope"]) == ("by-hand", "read write")
    assert fields["redirect_uri"] == f"http://localhost:{unused_tcp_port}/callback"
    assert await status(notes) == 200


async def test_a_login_that_fails_says_why_and_stores_nothing(
    issuer: OAuthIssuer, backend: KeyringInMemory, unused_tcp_port: int
) -> None:
    async def refuse(address: str) -> None:
        await asyncio.to_thread(open_in_browser, address)

    issuer.denies = True
    with pytest.raises(LoginError, match="The login was refused: the user said no."):
        await login.log_in(server(issuer), refuse)
    issuer.denies = False
    issuer.pkce = None
    with pytest.raises(LoginError, match="does not support PKCE"):
        await login.log_in(server(issuer), refuse)
    issuer.pkce = ["S256"]
    issuer.token_status = 500
    with pytest.raises(LoginError, match=r"The login failed: token exchange failed \(HTTP 500\)."):
        await login.log_in(server(issuer), refuse)
    with pytest.raises(LoginError, match="notes answered 404 without asking for a login."):
        await login.log_in(replace(server(issuer), url=f"{issuer.address}/nothing"), refuse)
    with pytest.raises(LoginError, match="The login failed: "):
        await login.log_in(replace(server(issuer), url=f"http://127.0.0.1:{unused_tcp_port}/"), refuse)
    assert backend.secrets == {}


async def test_without_a_keyring_nobody_logs_in(issuer: OAuthIssuer) -> None:
    keyring.set_keyring(Keyring())
    with pytest.raises(LoginError, match="There is no keyring to store the login in"):
        await login.log_in(server(issuer), browse)
    assert issuer.requests == []


async def test_no_log_has_a_token(issuer: OAuthIssuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    issuer.lifetime = 1
    await login.log_in(server(issuer), browse)
    await status(server(issuer))
    issuer.revoke()
    with pytest.raises(LoginNeededError):
        await status(server(issuer))
    assert len(issuer.issued) == 4
    assert not [token for token in issuer.issued if token in caplog.text]


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nonsense",
        "http://[",
        "http://127.0.0.1/callback",
        "http://127.0.0.1/callback?code=c",
        "http://127.0.0.1/callback?code=c&state=other",
        "http://127.0.0.1/callback?state=s",
        "http://127.0.0.1/callback?error=access_denied&state=other",
    ],
)
def test_addresses_of_other_logins_are_ignored(address: str) -> None:
    assert login.read_redirect(address, "s") is None
