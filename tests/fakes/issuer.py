"""MCP server at a loopback address that wants a login, with its own OAuth 2.1 issuer: registration, PKCE, rotation."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlencode, urlsplit


class OAuthIssuer:
    """`tokens` are the access tokens in force; `requests` the paths that were asked for."""

    def __init__(self) -> None:
        self.address = ""
        self.lifetime = 3600
        self.denies = False
        self.pkce: list[str] | None = ["S256"]
        self.token_status = 200
        self.open_methods: tuple[str, ...] = ()  # that need no login
        self.wanted = ""  # scope that a login has to have been asked for
        self.tokens = set[str]()
        self.issued = set[str]()  # every token that was ever given out
        self.requests: list[str] = []
        self.authorized: list[dict[str, str]] = []
        self._refresh = set[str]()
        self._clients: dict[str, list[str]] = {"by-hand": []}
        self._codes: dict[str, dict[str, str]] = {}

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    def revoke(self, *, refresh: bool = True) -> None:
        self.tokens.clear()
        if refresh:
            self._refresh.clear()

    # --- requests ---------------------------------------------------------------------------------------------

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], str]:
        path, fields = urlsplit(target).path, _fields(urlsplit(target).query)
        self.requests.append(f"{method} {path}")
        match method, path:
            case "GET", "/.well-known/oauth-protected-resource/mcp":
                servers = {"resource": self.url, "authorization_servers": [self.address], "scopes_supported": ["all"]}
                return _json(200, servers)
            case "GET", "/.well-known/oauth-authorization-server":
                return _json(200, self._metadata())
            case "POST", "/clients":
                client = secrets.token_hex(4)
                self._clients[client] = json.loads(body)["redirect_uris"]
                return _json(201, {"client_id": client, "redirect_uris": self._clients[client]})
            case "GET", "/login":
                return self._authorize(fields)
            case "POST", "/tokens":
                return self._give_tokens(_fields(body.decode()))
            case "POST", "/mcp":
                return self._serve(headers, body)
            case _:
                return 404, {}, ""

    def _metadata(self) -> dict[str, object]:
        metadata: dict[str, object] = {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/login",
            "token_endpoint": f"{self.address}/tokens",
            "registration_endpoint": f"{self.address}/clients",
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": True,
        }
        return metadata if self.pkce is None else {**metadata, "code_challenge_methods_supported": self.pkce}

    def _authorize(self, fields: dict[str, str]) -> tuple[int, dict[str, str], str]:
        self.authorized.append(fields)
        assert fields["code_challenge_method"] == "S256" and fields["resource"] == self.url
        redirects = self._clients[fields["client_id"]]
        assert not redirects or fields["redirect_uri"] in redirects
        answer = {"state": fields["state"], "iss": self.address}
        if self.denies:
            answer |= {"error": "access_denied", "error_description": "the user said no"}
        else:
            answer["code"] = secrets.token_hex(8)
            self._codes[answer["code"]] = fields
        return 302, {"Location": f"{fields['redirect_uri']}?{urlencode(answer)}"}, ""

    def _give_tokens(self, fields: dict[str, str]) -> tuple[int, dict[str, str], str]:
        if self.token_status != 200:
            return _json(self.token_status, {"error": "temporarily_unavailable"})
        if fields.get("resource") != self.url:
            return _json(400, {"error": "invalid_target"})
        if fields["grant_type"] == "refresh_token":
            if fields["refresh_token"] not in self._refresh:
                return _json(400, {"error": "invalid_grant"})
            self._refresh.discard(fields["refresh_token"])
        else:
            asked = self._codes.pop(fields["code"], None)
            digest = base64.urlsafe_b64encode(hashlib.sha256(fields["code_verifier"].encode()).digest())
            if asked is None or asked["code_challenge"] != digest.decode().rstrip("="):
                return _json(400, {"error": "invalid_grant"})
        access, refresh = f"at-{secrets.token_hex(12)}", f"rt-{secrets.token_hex(12)}"
        self.tokens.add(access)
        self._refresh.add(refresh)
        self.issued |= {access, refresh}
        tokens = {"access_token": access, "refresh_token": refresh, "token_type": "bearer", "expires_in": self.lifetime}
        return _json(200, tokens)

    def _serve(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], str]:
        is_open = json.loads(body).get("method") in self.open_methods
        if not is_open and headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            where = f"{self.address}/.well-known/oauth-protected-resource/mcp"
            return 401, {"WWW-Authenticate": f'Bearer resource_metadata="{where}"'}, ""
        if self.wanted and self.wanted not in self.authorized[-1].get("scope", "").split():
            return 403, {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{self.wanted}"'}, ""
        request = json.loads(body)
        if "id" not in request:
            return 202, {}, ""
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1.0"},
            },
            "tools/list": {
                "tools": [{"name": "note", "description": "Writes a note.", "inputSchema": {"type": "object"}}]
            },
        }
        if request["method"] not in results:
            error = {"code": -32601, "message": "Method not found"}
            return _json(200, {"jsonrpc": "2.0", "id": request["id"], "error": error})
        return _json(200, {"jsonrpc": "2.0", "id": request["id"], "result": results[request["method"]]})


def _json(status: int, value: object) -> tuple[int, dict[str, str], str]:
    return status, {"Content-Type": "application/json"}, json.dumps(value)


def _fields(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


@asynccontextmanager
async def running_issuer() -> AsyncIterator[OAuthIssuer]:
    """Serve an issuer at a free port of the loopback address."""
    issuer = OAuthIssuer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, target, _ = head[0].split(" ", 2)
            headers = {name.lower(): value.strip() for name, _, value in (h.partition(":") for h in head[1:])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status, answer, text = issuer.answer(method, target, headers, body)
            lines = [f"HTTP/1.1 {status} .", f"Content-Length: {len(text.encode())}", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in answer.items()]
            writer.write("\r\n".join([*lines, "", text]).encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    issuer.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield issuer


class _KeepRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


def open_in_browser(address: str) -> str:
    """Log in as a browser does and return the text of the last page."""
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()


def find_redirect(address: str) -> str:
    """Log in with a browser on another machine: return the address at which it ends."""
    try:
        urllib.request.build_opener(_KeepRedirect).open(address)
    except urllib.error.HTTPError as e:
        return e.headers["Location"]
    raise AssertionError("the issuer did not redirect")
