"""Hosts that commands may reach from inside the sandbox: whole labels, public addresses, one reading of a request."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.agent import workspace
from sakti.agent.judge import decide as judge_decide
from sakti.agent.judge.decide import judge
from sakti.agent.judge.policy import Rules
from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.agent.sandbox import proxy
from sakti.agent.sandbox.proxy import Network, Proxy, ProxyRequest, RefusedRequest
from sakti.agent.sandbox.sandbox import SystemSandbox
from sakti.agent.tools.bash import bash
from sakti.core import network
from sakti.core.events import ApprovalRequested, ToolFinished
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import start

# --- names and addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "name", "port", "allowed"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "EXAMPLE.org.", 80, True),
        ("Example.ORG.", "example.org", 443, True),
        ("example.org", "example.org", 22, False),
        ("example.org", "a.example.org", 443, False),
        ("example.org", "evilexample.org", 443, False),
        ("example.org", "example.org.evil.com", 443, False),
        ("*.example.org", "a.example.org", 443, True),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "evilexample.org", 443, False),
        ("example.org:8443", "example.org", 8443, True),
        ("example.org:8443", "example.org", 443, False),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
        ("*", "example.org", 443, False),
        ("", "example.org", 443, False),
        ("example.org", "*.example.org", 443, False),
        ("example.org", "user@example.org", 443, False),
        ("example.org", "example.org:443", 443, False),
        ("example.org", "example.org..", 443, False),
        ("example.org", "evil-example.org", 443, False),
        ("example.org", "example.org\0.evil.com", 443, False),
        ("strasse.example", "straße.example", 443, False),
        ("straße.example", "strasse.example", 443, False),
        ("xn--strae-oqa.example", "xn--strae-oqa.example", 443, True),
        ("example.org", "ｅxample.org", 443, True),
        ("example.org", "ехample.org", 443, False),
        ("127.0.0.1", "2130706433", 443, False),
        ("127.0.0.1", "0177.0.0.1", 443, False),
    ],
)
def test_a_name_is_covered_by_whole_labels(entry: str, name: str, port: int, allowed: bool) -> None:
    assert network.is_allowed((entry,), name, port) is allowed


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
        ),
        *("255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:0a00:0001::", "64:ff9b::7f00:1"),
        *("fec0::1", "5f00::1", "3fff::1", "100::1", "::7f00:1", "4000::1", "2001::1", "192.88.99.1", "192.0.0.8"),
        *("64:ff9b:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.1", "198.18.0.1", "2001:db8::1", "x", ""),
    ],
)
def test_no_address_of_this_machine_or_its_networks_is_public(address: str) -> None:
    assert not network.is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
)
def test_public_addresses_are(address: str) -> None:
    assert network.is_public(address)


@given(st.text(max_size=60), st.integers(0, 70_000))
def test_reading_a_name_never_fails(text: str, port: int) -> None:
    network.parse_host(text)
    assert network.is_allowed(("example.org",), text, port) in (True, False)


REST = "host: h\r\nconnection: close\r\n\r\n"

# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "asked"),
    [
        ("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n", ProxyRequest("example.org", 443)),
        (
            "GET http://Example.org/a?b#c HTTP/1.1\r\nHost: other.org\r\nProxy-Authorization: x\r\nAccept: */*\r\n",
            ProxyRequest(
                "example.org",
                80,
                b"GET /a?b HTTP/1.1\r\nhost: example.org\r\naccept: */*\r\nconnection: close\r\n\r\n",
            ),
        ),
        *(
            (f"GET http://h{path} HTTP/1.1\r\n", ProxyRequest("h", 80, f"GET {sent} HTTP/1.1\r\n{REST}".encode()))
            for path, sent in (
                ("", "/"),
                ("?x=/y", "/?x=/y"),
                ("//a//b?c", "//a//b?c"),
                ("/?", "/?"),
                ("/%2e#x?y", "/%2e"),
                ("#/x", "/"),
            )
        ),
        (
            "POST http://h/ HTTP/1.1\r\ntransfer-encoding: Chunked\r\n",
            ProxyRequest(
                "h", 80, b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: Chunked\r\nconnection: close\r\n\r\n", None
            ),
        ),
    ],
)
def test_a_request_is_read(head: str, asked: ProxyRequest) -> None:
    assert proxy.parse_request(f"{head}\r\n".encode()) == asked


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\r\n", 400),
        ("GET https://example.org/ HTTP/1.1\r\n", 400),
        ("GET http://a@example.org/ HTTP/1.1\r\n", 400),
        ("GET http://example.org/ HTTP/2\r\n", 400),
        ("GET  http://example.org/ HTTP/1.1\r\n", 400),
        ("CONNECT example.org HTTP/1.1\r\n", 400),
        ("CONNECT example.org:99999 HTTP/1.1\r\n", 400),
        ("CONNECT [::1]:443 HTTP/1.1\r\n", 403),
        ("GET http://h/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\nContent-Length: +1\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\nContent-Length: 1, 1\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n", 400),
        ("GET http://h/\t HTTP/1.1\r\n", 400),
        ("GET http://h/\nX:y HTTP/1.1\r\n", 400),
        ("GET http://evil.org\\@h/ HTTP/1.1\r\n", 400),
        ("CONNECT h\x7f:443 HTTP/1.1\r\n", 400),
        ("CONNECT a@h:443 HTTP/1.1\r\n", 403),
        ("CONNECT h:0443:443 HTTP/1.1\r\n", 403),
        ("CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1\r\n", 403),
        ("CONNECT h..org:443 HTTP/1.1\r\n", 403),
        ("CONNECT h:+443 HTTP/1.1\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\nX : a\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\n folded: a\r\n", 400),
        ("GET http://h/ HTTP/1.1\r\nX: a\nY: b\r\n", 400),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(head: str, status: int) -> None:
    with pytest.raises(RefusedRequest) as e:
        proxy.parse_request(f"{head}\r\n".encode())
    assert e.value.status == status


@given(st.binary(max_size=200))
def test_reading_a_request_fails_in_one_way_only(head: bytes) -> None:
    with contextlib.suppress(RefusedRequest):
        proxy.parse_request(head)


# --- the proxy -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncGenerator[tuple[int, list[bytes]]]:
    """A server on this machine that keeps what it is sent and answers with a word."""
    got: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read(1_000))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    made = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield made.sockets[0].getsockname()[1], got
    made.close()


async def at_home(name: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@contextlib.asynccontextmanager
async def running(*allowed: str, **more: Any) -> AsyncGenerator[tuple[Proxy, Path]]:
    made = Proxy(allowed, **{"resolve": at_home, "may_reach": lambda _: True, **more})
    try:
        yield made, await made.start()
    finally:
        await made.close()


async def say(path: Path, text: str) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(text.encode())
    writer.write_eof()  # a tunnel with two silent ends stays open until it has been idle for long
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_an_allowed_host_is_reached_by_the_address_that_was_checked(server: Any) -> None:
    port, got = server
    async with running(f"example.org:{port}") as (made, path):
        answer = await say(path, f"GET http://example.org:{port}/x HTTP/1.1\r\nHost: evil\r\n\r\n")
        assert answer.endswith("hello") and got[0].startswith(b"GET /x HTTP/1.1\r\nhost: example.org:")
        tunnel = await say(path, f"CONNECT example.org:{port} HTTP/1.1\r\n\r\n")
        assert tunnel.startswith("HTTP/1.1 200 Connection established\r\n\r\n")
        assert made.refused == []


async def test_others_are_refused_and_named(server: Any) -> None:
    port, got = server
    async with running(f"example.org:{port}") as (made, path):
        for host in ("evil.org", "a.example.org", "example.org.evil.org"):
            assert "403 Forbidden" in await say(path, f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n")
        assert "403" in await say(path, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")
        assert made.refused[0] == f"evil.org:{port}" and got == []


async def test_a_name_that_leads_home_is_refused_whatever_it_says_later(server: Any) -> None:
    port, got = server
    answers = [["10.0.0.1", "127.0.0.1"], ["93.184.216.34"]]
    asked: list[str] = []

    async def rebound(name: str, _port: int) -> Sequence[str]:
        asked.append(name)
        return answers[min(len(asked), 2) - 1]

    async with running(f"example.org:{port}", resolve=rebound, may_reach=network.is_public) as (_, path):
        assert "has no public address" in await say(path, f"CONNECT example.org:{port} HTTP/1.1\r\n\r\n")
        assert asked == ["example.org"] and got == []


async def test_heads_without_end_and_many_connections_are_bounded(monkeypatch: pytest.MonkeyPatch, server: Any) -> None:
    monkeypatch.setattr(proxy, "HEAD_S", 0.2)
    async with running("example.org") as (_, path):
        assert "431" in await say(path, "GET http://example.org/ HTTP/1.1\r\nX: " + "a" * 40_000 + "\r\n\r\n")
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET ")
        assert await reader.read() == b"", "who does not go on is left"
        monkeypatch.setattr(proxy, "HEAD_S", 60.0)  # none ends while the others connect
        open_ones = [await asyncio.open_unix_connection(path) for _ in range(proxy.MOST + 6)]
        ended = [await r.read() for r, _ in open_ones[proxy.MOST :]]
        assert [e[:12] for e in ended] == [b"HTTP/1.1 503"] * 6
        for _, w in (*open_ones, (reader, writer)):
            w.close()


async def test_a_second_request_on_a_connection_reaches_nobody(server: Any) -> None:
    port, got = server
    second = f"GET /second HTTP/1.1\r\nHost: evil.org:{port}\r\n\r\n"
    async with running(f"example.org:{port}") as (_, path):
        for head, body in (
            ("", ""),
            ("Content-Length: 3\r\n", "abc"),
            ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
        ):
            answer = await say(path, f"POST http://example.org:{port}/ HTTP/1.1\r\n{head}\r\n{body}{second}")
            assert answer.endswith("hello")
        assert len(got) == 3 and not any(b"second" in g for g in got)
        assert got[1].endswith(b"abc") and got[2].endswith(b"0\r\n\r\n")
        for bad in ("xx\r\n", "-1\r\n", "1\r\nabc\r\n"):
            await say(path, f"POST http://example.org:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{bad}")
        assert not any(g.endswith(b"abc\r\n") for g in got[3:])


async def test_an_address_that_does_not_answer_is_not_the_last_word(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, _ = server
    monkeypatch.setattr(proxy, "CONNECT_S", 5.0)

    async def two(_name: str, _port: int) -> Sequence[str]:
        return ["127.0.0.2", "::1", "127.0.0.1"]

    async with running(f"example.org:{port}", resolve=two) as (_, path):
        assert (await say(path, f"GET http://example.org:{port}/ HTTP/1.1\r\n\r\n")).endswith("hello")


async def test_a_connection_lives_while_bytes_come_in_either_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "IDLE_S", 0.5)
    ended = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(12):
            writer.write(b"x")
            await asyncio.sleep(0.1)
        await reader.read()  # then silence
        ended.set()
        writer.close()

    made = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = made.sockets[0].getsockname()[1]
    async with running(f"example.org:{port}") as (_, path):
        said = await say(path, f"CONNECT example.org:{port} HTTP/1.1\r\n\r\n")
        assert said.endswith("x" * 12), "the client sent nothing all the time"
        await asyncio.wait_for(ended.wait(), 20)
    made.close()


async def test_two_commands_at_once_share_one_proxy() -> None:
    started: list[Proxy] = []

    class Slow(Proxy):
        async def start(self) -> Path:
            started.append(self)
            await asyncio.sleep(0)
            return await super().start()

    made = Network(make=Slow)
    paths = await asyncio.gather(*(made.socket(["a.org"]) for _ in range(3)))
    assert len(set(paths)) == 1 and len(started) == 1
    await made.close()
    assert not paths[0].parent.exists()


async def test_nothing_is_left_of_a_network(server: Any) -> None:
    made = Network(make=lambda allowed: Proxy(allowed, resolve=at_home, may_reach=lambda _: True))
    path = await made.socket(["a.org"])
    assert path == await made.socket(["a.org"]) and path != await made.socket(["b.org"])
    assert path.parent.stat().st_mode & 0o777 == 0o700
    await made.close()
    assert not path.parent.exists()


# --- the judge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("curl -sS https://a.example/x -o out.txt", ("a.example",)),
        ("wget http://a.example:8080/x https://b.example", ("a.example:8080", "b.example")),
        ("git clone https://a.example/r.git", ("a.example",)),
        ("git clone git@a.example:r.git", None),
        ("git fetch", None),
        ("curl -x evil:80 https://a.example", None),
        ("curl a.example", None),
        ("curl https://a.example ftp://b.example", None),
        ("curl https://10.0.0.1:99999/", None),
        ("ssh a.example", None),
    ],
)
def test_hosts_that_a_command_names(command: str, found: tuple[str, ...] | None) -> None:
    assert judge_decide.find_hosts(command.split()) == found


def decide(
    command: str, *, mode: Any = "auto", reach: Sequence[str] = (), hosts_: Sequence[str] = (), **rules: Any
) -> Any:
    place = WorkspaceView(Path("/w"), Path("/w"), level="sandboxed", hosts=tuple(hosts_))
    arguments = {"command": command, **({"reach": list(reach)} if reach else {})}
    return judge(bash, arguments, mode=mode, rules=Rules(**rules), place=place)


def test_a_new_host_is_asked_about_once_a_workspace() -> None:
    asked = decide("curl https://a.example/x")
    assert (asked.verdict, asked.rules, asked.hosts) == ("ask", ("reach: a.example",), ("a.example",))
    assert asked.reason == "Reaches a.example" and not asked.outside
    assert asked.is_alone, "no other command may use its way to the host"
    again = decide("curl https://a.example/x", allow=("reach: a.example",))
    assert (again.verdict, again.hosts, again.outside) == ("allow", ("a.example",), "") and not again.is_alone


def test_hosts_of_the_settings_are_free_for_every_command() -> None:
    assert decide("pytest", hosts_=["*.example"]).hosts == ("*.example",)
    assert decide("curl https://a.example", hosts_=["*.example"]).verdict == "allow"
    assert decide("make", reach=["a.example"], hosts_=["b.example"]).verdict == "ask"


def test_what_may_be_refused_is_refused() -> None:
    assert decide("curl https://a.example", deny=("reach: a.example",)).verdict == "deny"
    assert decide("make", reach=["a.example"], deny=("reach: *.example",)).verdict == "deny"
    assert decide("make", reach=["a b"]).verdict == "deny"
    assert decide("make", reach=[f"h{n}.example" for n in range(21)]).verdict == "deny"
    assert decide("cat x", reach=["a.example"], mode="plan").verdict == "deny"
    assert decide("curl https://a.example | sh", allow=("reach: a.example",), mode="ask").verdict == "ask"


def test_what_names_no_host_runs_outside_as_before() -> None:
    asked = decide("git fetch")
    assert (asked.verdict, asked.outside) == ("ask", "it needs the network")
    assert decide("git fetch", reach=["a.example"], allow=("reach: a.example",)).outside == ""
    assert decide("make", reach=["a.example"], mode="full").hosts == ()


# --- in a session ----------------------------------------------------------------------------------------------------


async def test_a_command_reaches_an_allowed_host_and_no_other(
    store: Store, tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w").mkdir()
    real = SystemSandbox((tmp_path / "w").resolve(), home=tmp_path, state=tmp_path / "state")
    if not real.level.holds:
        pytest.skip(f"this machine has no sandbox: {real.level.text}")
    monkeypatch.setattr(workspace, "make_sandbox", lambda _: real)
    port, _ = server
    fetch = f"{sys.executable} -c \"import urllib.request as u; print(u.urlopen('http://%s:{port}/x').read())\""
    calls = [
        Call("bash", {"command": fetch % "a.example", "reach": [f"a.example:{port}"]}),
        Call("bash", {"command": fetch % "b.example", "reach": [f"a.example:{port}"]}),
        Call("bash", {"command": fetch % "a.example"}),
    ]
    run = await start(store, tmp_path / "w", [*(Answer(calls=(c,)) for c in calls), "done"])
    asked: list[str] = []

    def answer(event: Any) -> None:
        if isinstance(event, ApprovalRequested):
            asked.append(event.reason)
            run.session.resolve(event.id, True, grant="workspace")

    run.session.subscribe(answer)
    tools = run.session.current.toolbox.state
    tools.network = Network(make=lambda allowed: Proxy(allowed, resolve=at_home, may_reach=lambda _: True))
    await run.ask("fetch it")
    first, second, third = [e.result for e in run.of(ToolFinished)]
    assert "hello" in first.content, first.content
    assert second.is_error and f"blocked access to b.example:{port}" in second.content
    assert "hello" in third.content, "a host that was allowed for the workspace is there for the next command"
    assert asked[0].startswith(f"Reaches a.example:{port}")
    folder = (await tools.network.socket([f"a.example:{port}"])).parent
    await run.session.close()
    assert not folder.exists()
