"""Log in to MCP servers by OAuth, and use stored logins without asking the user.

Tokens are stored in the system's keyring and nowhere else. Importing this module imports the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import sys
import time
import webbrowser
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from sakti.agent.mcp.servers import LoginNeededError, McpServer
from sakti.core import http
from sakti.core.errors import SaktiError
from sakti.core.text import to_one_line
from sakti.providers import keys
from sakti.version import __version__

LONGEST = 600.0  # seconds that a login may take
EARLY = 30.0  # seconds before its expiry at which a token is replaced
PATH = "/callback"
VERSION = "2025-11-25"
_INITIALIZE = {
    "protocolVersion": VERSION,
    "capabilities": {},
    "clientInfo": {"name": "sakti", "version": __version__},
}
_REQUESTS = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _INITIALIZE},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)
_HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": VERSION}
_PAGE = "<!doctype html><meta charset=utf-8><title>sakti</title><p>{}</p>"
_STATUS = re.compile(r"\((\d{3})\)|\b(\d{3})\b")

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)  # its log messages may contain tokens


class LoginError(SaktiError):
    """Failed login; the message says why."""

    title = "Login"
    code = "login"


def make_auth(server: McpServer) -> Any:
    """Return the authorisation of an HTTP client by a server's stored login.

    A request raises `LoginNeededError` if the user has to log in; no browser is opened.
    """
    return StoredLogin(server)


# --- the keyring --------------------------------------------------------------------------------------------


class KeyringTokens:
    """Storage of one server's login, with the issuer's metadata, which refreshing needs."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self.context: OAuthContext | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Read the login; its metadata goes into the context."""
        record = _read_record(await asyncio.to_thread(keys.look_up_key, self._server.login_name))
        context = self.context
        assert context is not None
        try:
            tokens = OAuthToken.model_validate(record["tokens"])
            self._client = OAuthClientInformationFull.model_validate(record["client"])
            if resource := record.get("resource"):
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource)
            if metadata := record.get("metadata"):
                context.oauth_metadata = OAuthMetadata.model_validate(metadata)
        except (KeyError, ValueError):
            return None
        context.auth_server_url = record.get("issuer")
        context.token_expiry_time = record.get("expires")
        return tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Remember a registration; it is stored with the tokens, so that a cancelled login leaves nothing."""
        self._client = client_info

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the login. Raises `SaktiError` if the keyring refuses it."""
        context, client = self.context, self._client
        assert context is not None and client is not None
        record = {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "client": client.model_dump(mode="json", exclude_none=True),
            "expires": time.time() + tokens.expires_in - EARLY if tokens.expires_in else None,
            "issuer": context.auth_server_url,
        }
        if context.protected_resource_metadata is not None:
            record["resource"] = context.protected_resource_metadata.model_dump(mode="json", exclude_none=True)
        if context.oauth_metadata is not None:
            record["metadata"] = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
        await asyncio.to_thread(keys.store_secret, self._server.login_name, json.dumps(record))

    async def note_scope(self, scope: str) -> None:
        """Store the scopes that the server wants beyond those of the login, for the next login."""
        record = _read_record(await asyncio.to_thread(keys.look_up_key, self._server.login_name))
        await asyncio.to_thread(keys.store_secret, self._server.login_name, json.dumps({**record, "wanted": scope}))

    async def read_wanted(self) -> str:
        """Return the scopes that the server wants beyond those of the login; "" without any."""
        record = _read_record(await asyncio.to_thread(keys.look_up_key, self._server.login_name))
        return str(record.get("wanted") or "")

    async def forget(self) -> None:
        with contextlib.suppress(SaktiError):
            await asyncio.to_thread(keys.delete_secret, self._server.login_name)


def _read_record(text: str | None) -> Mapping[str, Any]:
    try:
        record: Any = json.loads(text or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}


# --- requests with a stored login ---------------------------------------------------------------------------


class StoredLogin(OAuthClientProvider):
    """Authorisation by a stored login: tokens are refreshed, and nothing asks the user."""

    def __init__(self, server: McpServer) -> None:
        self._tokens = KeyringTokens(server)
        super().__init__(server.url, _describe_client(server, ""), self._tokens)
        self._tokens.context = self.context
        how = f"run `sakti mcp login {server.name}`."
        self._needed = LoginNeededError(f"It needs a login: {how}")
        self._wants_more = LoginNeededError(f"It needs more rights than the login grants: {how}")
        self._is_short = False  # the login's scopes do not suffice for the request

    async def _auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        if not self.context.is_token_valid():
            self._initialized = False  # another session may have refreshed the tokens
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request and not self.context.can_refresh_token():
                    raise self._needed
                response = yield outgoing
                self._is_short = response.status_code == 403 or (self._is_short and outgoing is not request)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _perform_authorization(self) -> Any:
        """Refresh a token that the server refuses before its expiry."""
        if self._is_short:
            await self._tokens.note_scope(self.context.client_metadata.scope or "")
            raise self._wants_more
        if not self.context.can_refresh_token():
            raise self._needed
        return await self._refresh_token()

    async def _handle_token_response(self, response: Any) -> None:
        if not await self._handle_refresh_response(response):
            raise self._needed

    async def _handle_refresh_response(self, response: Any) -> bool:
        """Store new tokens; False if the login was revoked. Raises LoginError if the issuer failed."""
        if response.status_code >= 500 or response.status_code == 429:
            raise LoginError(f"The login could not be renewed: its issuer answered {response.status_code}.")
        refreshed = await super()._handle_refresh_response(response)
        if not refreshed:
            await self._tokens.forget()
        return refreshed


def _describe_client(server: McpServer, redirect: str) -> OAuthClientMetadata:
    return OAuthClientMetadata.model_validate(
        {
            "client_name": "sakti",
            "redirect_uris": [redirect or f"http://127.0.0.1{PATH}"],
            "token_endpoint_auth_method": "none",
            "scope": " ".join(server.scopes) or None,
        }
    )


# --- the user logs in ---------------------------------------------------------------------------------------

ShowAddress = Callable[[str], Awaitable[None]]
ReadPasted = Callable[[], Awaitable[str]]


async def log_in(server: McpServer, show: ShowAddress, read_pasted: ReadPasted | None = None) -> None:
    """Let the user log in to a server in a browser, and store the login. Raises `SaktiError`.

    `show` gets the address to open. `read_pasted` returns the final address of a browser on another machine; it may be
    called again.
    """
    if not await asyncio.to_thread(keys.get_keyring_name):
        raise LoginError("There is no keyring to store the login in, and sakti writes it nowhere else.")
    host = urlsplit(server.url).hostname or ""
    limits = http.HttpLimits(60.0, 1_000_000, (host,))
    async with RedirectListener(server) as listener:
        auth = BrowserLogin(server, listener, show, read_pasted)
        try:
            async with asyncio.timeout(LONGEST), http.make_client(limits, server.headers, auth) as client:
                status = await _provoke(client, server.url, auth)
        except TimeoutError as e:
            raise LoginError(f"There was no login within {LONGEST / 60:.0f} minutes.") from e
        except SaktiError:
            raise
        except Exception as e:
            raise LoginError(f"The login failed: {_explain(e)}") from e
    if not auth.is_done:
        what = "needs no login" if status < 400 else f"answered {status} without asking for a login"
        raise LoginError(f"{server.name} {what}.")


async def _provoke(client: Any, url: str, auth: BrowserLogin) -> int:
    """Send requests until one triggers a login; return the status of the last answer.

    Some servers answer `initialize` without a login and only require one for their list of tools.
    """
    headers, status = dict(_HEADERS), 0
    for request in _REQUESTS:
        async with client.stream("POST", url, json=request, headers=headers) as response:
            status = response.status_code
            if session := response.headers.get("mcp-session-id"):
                headers["mcp-session-id"] = session
        if auth.is_done or status >= 400:
            break
    if "mcp-session-id" in headers:
        await client.delete(url, headers=headers)
    return status


async def open_browser(address: str) -> None:
    await asyncio.to_thread(webbrowser.open, address)


async def read_line() -> str:
    """Return the next line that the user types; waits forever at the end of the input."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not (data := os.read(sys.stdin.fileno(), 65_536)):
            loop.remove_reader(sys.stdin)
        elif not typed.done():
            typed.set_result(data.decode("utf-8", "replace"))

    with contextlib.suppress(OSError, ValueError):  # a file, or no standard input: nothing is pasted
        loop.add_reader(sys.stdin, read)
    try:
        return await typed
    finally:
        with contextlib.suppress(OSError, ValueError):
            loop.remove_reader(sys.stdin)


def _explain(error: Exception) -> str:
    """Return a sentence about an error, without any token that an answer may contain."""
    if isinstance(error, ValueError):
        return "the server's answer cannot be used."
    text = str(error)
    if isinstance(error, OAuthFlowError):
        status = _STATUS.search(text)
        if status is not None:
            return f"{text.partition('(')[0].partition(':')[0].strip().lower()} (HTTP {status[1] or status[2]})."
        text = text.partition("\n")[0].partition(": {")[0]
    return to_one_line(text or type(error).__name__, 300).rstrip(".") + "."


class BrowserLogin(OAuthClientProvider):
    """Authorisation by a login in a browser; a stored login is not used."""

    def __init__(
        self, server: McpServer, listener: RedirectListener, show: ShowAddress, read_pasted: ReadPasted | None
    ) -> None:
        tokens = KeyringTokens(server)
        super().__init__(
            server.url, _describe_client(server, listener.address), tokens, self._show, self._wait_for_redirect
        )
        tokens.context = self.context
        self._server, self._listener, self._show_address, self._read_pasted = server, listener, show, read_pasted
        self._tokens, self._state = tokens, ""

    @property
    def is_done(self) -> bool:
        return self.context.current_tokens is not None

    async def _initialize(self) -> None:
        """Start without a login; a manually registered client uses its id."""
        if self._server.client_id:
            client = OAuthClientInformationFull.model_validate(
                {
                    "client_id": self._server.client_id,
                    "redirect_uris": [self._listener.address],
                    "token_endpoint_auth_method": "none",
                }
            )
            self.context.client_info = client
            await self._tokens.set_client_info(client)
        self._initialized = True

    async def _perform_authorization(self) -> Any:
        metadata = self.context.oauth_metadata
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise LoginError("Its issuer does not support PKCE, so the login would not be safe.")
        missing = await self._tokens.read_wanted()
        if self._server.scopes or missing:
            scopes = (*(self._server.scopes or (self.context.client_metadata.scope or "").split()), *missing.split())
            self.context.client_metadata.scope = " ".join(dict.fromkeys(scopes))
        return await super()._perform_authorization()

    async def _show(self, address: str) -> None:
        self._state = parse_qs(urlsplit(address).query).get("state", [""])[0]
        self._listener.expect(self._state)
        await self._show_address(address)

    async def _wait_for_redirect(self) -> AuthorizationCodeResult:
        """Return the result of the login, from the listener or pasted by the user."""
        waits = [asyncio.ensure_future(self._listener.wait())]
        if self._read_pasted is not None:
            waits.append(asyncio.ensure_future(self._wait_for_pasted(self._read_pasted)))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for wait in waits:
                wait.cancel()

    async def _wait_for_pasted(self, read_pasted: ReadPasted) -> AuthorizationCodeResult:
        while True:
            text = await read_pasted()
            if (result := read_redirect(text.strip(), self._state)) is not None:
                return result


def read_redirect(address: str, state: str) -> AuthorizationCodeResult | None:
    """Read the address of a redirect; None if it is not one of the login with this `state`.

    Raises LoginError if the issuer reports an error.
    """
    try:
        fields = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    except ValueError:
        return None
    if not state or fields.get("state") != state:
        return None
    if "error" in fields:
        why = fields.get("error_description") or fields["error"]
        raise LoginError(f"The login was refused: {to_one_line(why, 200).rstrip('.')}.")
    if "code" not in fields:
        return None
    return AuthorizationCodeResult(code=fields["code"], state=fields["state"], iss=fields.get("iss"))


class RedirectListener:
    """Server on the loopback address to which the browser is sent at the end of a login."""

    def __init__(self, server: McpServer) -> None:
        self._port = server.redirect_port
        # clients registered by hand use this name; others use the address (RFC 8252, 8.3)
        self._host = "localhost" if server.client_id else "127.0.0.1"
        self._state = ""
        self._result: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"http://{self._host}:{self._port}{PATH}"

    async def __aenter__(self) -> RedirectListener:
        try:
            self._server = await asyncio.start_server(self._handle_request, "127.0.0.1", self._port, limit=16_384)
        except OSError as e:
            raise LoginError(f"Port {self._port} cannot be opened for the redirect: {e.strerror}.") from e
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    def expect(self, state: str) -> None:
        """Accept only a redirect with this `state`."""
        self._state = state

    async def wait(self) -> AuthorizationCodeResult:
        """Return the result of the login. Raises LoginError if it failed."""
        return await asyncio.shield(self._result)

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(10):
                words = (await reader.readline()).decode("ascii", "replace").split()
                while (await reader.readline()).strip():
                    pass
            status, text = self._take(words[1] if len(words) == 3 and words[0] == "GET" else "")
            body = _PAGE.format(text).encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        writer.close()

    def _take(self, target: str) -> tuple[str, str]:
        """Return the status and the text for a request; a redirect of this login ends the wait."""
        if target.partition("?")[0] != PATH:
            return "404 Not Found", "Nothing is here."
        try:
            result = read_redirect(target, self._state)
        except LoginError as e:
            if not self._result.done():
                self._result.set_exception(e)
            return "200 OK", "The login was refused. You can close this window."
        if result is None:
            return "400 Bad Request", "This is not the login that sakti waits for."
        if not self._result.done():
            self._result.set_result(result)
        return "200 OK", "You are logged in. You can close this window."
