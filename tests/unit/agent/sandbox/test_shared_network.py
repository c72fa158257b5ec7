"""Servers are reached in the network that commands share, nothing else is, nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sakti.agent import workspace as workspaces
from sakti.agent.judge.decide import Decision, judge
from sakti.agent.judge.policy import Rules
from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.agent.sandbox import backends, relay
from sakti.agent.sandbox.sandbox import SystemSandbox
from sakti.agent.sandbox.shared_network import SharedNetwork
from sakti.agent.tools.bash import bash
from sakti.core.events import ToolFinished
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.enclosed import made_place, made_sandbox, run
from tests.fakes.session import start

SERVER = "python3 -m http.server 8000 --bind 127.0.0.1 >log 2>&1"
ASK = "for i in $(seq 100); do curl -sS --max-time 5 http://localhost:8000/ && break; sleep 0.05; done"
CONNECT = "exec 3<>/dev/tcp/127.0.0.1/"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return made_place(tmp_path)


@pytest.fixture
def sandbox(work: Path, tmp_path: Path) -> Iterator[SystemSandbox]:
    sandbox = made_sandbox(work, tmp_path)
    if not sandbox.open_network():
        pytest.skip("commands cannot share a network here")
    yield sandbox
    sandbox.close()


@pytest.fixture
def server(sandbox: SystemSandbox) -> Iterator[int]:
    """Return the port of a server that a command in the background started."""
    command = ["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"]
    with sandbox.enclose(command, sandbox.workspace, shares_network=True) as enclosed:
        process = subprocess.Popen(
            enclosed.argv,
            cwd=enclosed.cwd,
            pass_fds=enclosed.descriptors,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    try:
        yield 8000
    finally:
        process.kill()
        process.communicate()


def test_a_server_is_reached_by_the_commands_that_share_its_network_only(sandbox: SystemSandbox, server: int) -> None:
    code, output = run(sandbox, ASK, shares_network=True)
    assert code == 0 and "Directory listing" in output
    assert run(sandbox, f"{CONNECT}{server}")[0] != 0
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server), 1)


def test_the_shared_network_has_no_way_out_and_gives_no_rights(sandbox: SystemSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        assert run(sandbox, f"{CONNECT}{outside.getsockname()[1]}", shares_network=True)[0] != 0
    code, output = run(
        sandbox, "grep CapEff /proc/self/status; ls /sys/class/net; ls /proc/self/fd", shares_network=True
    )
    assert code == 0 and "CapEff:\t0000000000000000" in output
    for command in ("unshare -n true", f"nsenter -t {os.getpid()} -n true", "ip link add x type dummy", "cat .env"):
        assert "EXIT 0" not in run(sandbox, f"{command}; echo EXIT $?", shares_network=True)[1], command
    assert run(sandbox, "ls /proc | grep -c '^[0-9]'", shares_network=True)[1].strip() in ("3", "4", "5")


def test_a_port_of_the_network_is_opened_to_this_machine_until_it_is_closed(
    sandbox: SystemSandbox, server: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(sandbox, ASK, shares_network=True)[0] == 0
        port = sandbox.open_port(server)
        assert sandbox.open_port(server) == port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            assert b"Directory listing" in answer.read()
        other = sandbox.open_port(taken.getsockname()[1])
        assert other != taken.getsockname()[1]
    sandbox.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1)
    with pytest.raises(OSError, match="no background command"):
        sandbox.open_port(server)


def test_the_relay_takes_another_port_where_one_is_taken(sandbox: SystemSandbox) -> None:
    start = f"{sys.executable} -I -S {relay.__file__} /nowhere 3128"
    ports = "http_proxy=http://127.0.0.1:3128 no_proxy=x"
    code, output = run(sandbox, f"{ports} {start} {start} bash -c 'echo $http_proxy'", shares_network=True)
    assert code == 0 and output.startswith("http://127.0.0.1:") and "3128" not in output


_HELD = """\
import sys, time
from pathlib import Path
from sakti.agent.sandbox import backends
from sakti.agent.sandbox.shared_network import SharedNetwork
network = SharedNetwork(backends.find_bwrap(Path("/w"))[0])
print(network.open() and network._holder.pid, network.entry[-1], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_of_the_network_is_left_however_its_session_ends(sandbox: SystemSandbox, number: int) -> None:
    del sandbox  # it says that there can be one
    session = subprocess.Popen([sys.executable, "-c", _HELD], stdout=subprocess.PIPE, text=True)
    assert session.stdout is not None
    pids = session.stdout.readline().split()
    assert len(pids) == 2 and all(map(_is_alive, pids))
    session.send_signal(number)
    session.wait(20)
    session.stdout.close()
    end = time.monotonic() + 20
    while any(map(_is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(_is_alive, pids))


def _is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_network_that_ended_is_opened_again(sandbox: SystemSandbox) -> None:
    network = SharedNetwork(sandbox._program[0])
    assert network.open()
    before = network.entry
    assert network._holder is not None
    network._holder.kill()
    network._holder.wait()
    assert network.entry == ()
    assert network.open() and network.entry != before
    network.close()
    assert network.entry == ()


def test_without_nsenter_each_command_has_a_network_of_its_own(
    sandbox: SystemSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "SYSTEM", ())
    assert not SharedNetwork(sandbox._program[0]).open()


async def test_a_model_reaches_the_server_that_it_started(
    store: Store, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: SystemSandbox
) -> None:
    monkeypatch.setattr(workspaces, "make_sandbox", lambda _: sandbox)
    calls = [
        Answer(calls=[Call("bash", {"command": SERVER, "background": True})]),
        Answer(calls=[Call("bash", {"command": ASK})]),
        Answer("done"),
    ]
    session = await start(store, work, calls, overrides=("approval.mode=auto",))
    await session.ask("go")
    assert "Directory listing" in session.of(ToolFinished)[1].result.content
    await session.session.close()
    assert sandbox._network.entry == ()


@pytest.mark.parametrize(
    ("command", "auto", "edits"),
    [
        ("curl -sS http://localhost:8000/health", "allow", "ask"),
        ("curl -i localhost:3000", "allow", "ask"),
        ("wget -qO- http://127.0.0.1:8000", "allow", "ask"),
        ("curl -s 'http://[::1]:8000/x?y=1' -o out.json", "allow", "ask"),
        ("curl -X POST -d a=b -H 'A: b' http://0.0.0.0:5000/api", "allow", "ask"),
        ("sleep 2; curl -s http://localhost:8000 | head -3", "allow", "ask"),
        ("curl http://localhost.example.org", "ask", "ask"),
        ("curl http://localhost:8000 https://example.org", "ask", "ask"),
        ("curl http://127.0.0.1.example.org:80/", "ask", "ask"),
        ("curl http://localhost@example.org/", "ask", "ask"),
        ("ssh localhost", "ask", "ask"),
    ],
)
def test_what_stays_on_localhost_needs_no_network(tmp_path: Path, command: str, auto: str, edits: str) -> None:
    def decide(mode: str, **place: bool) -> Decision:
        here = WorkspaceView(tmp_path, tmp_path, level="sandboxed", **place)
        return judge(bash, {"command": command}, mode=mode, rules=Rules(), place=here)  # pyright: ignore

    assert (decide("auto").verdict, decide("edits").verdict) == (auto, edits)
    if auto == "allow":
        assert (decide("auto").outside, decide("auto").hosts) == ("", ())
        assert decide("auto", own_network=False).verdict == "ask"
