"""Run commands in bash: in their own session, with streamed, limited output, and ended completely."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from sakti.agent.sandbox import environment, quarantine, relay
from sakti.agent.sandbox import sandbox as enclosing
from sakti.agent.tools import background as kept
from sakti.agent.tools import textfile
from sakti.agent.tools.base import tool
from sakti.agent.tools.changes import make_diff
from sakti.agent.tools.context import AgentCommand, Outcome, ToolContext
from sakti.agent.tools.processes import Output, Running, spawn
from sakti.core.errors import ToolError
from sakti.core.resources import find_program

if TYPE_CHECKING:
    from sakti.agent.sandbox.sandbox import Sandbox, SandboxedCommand

STREAM_INTERVAL = 0.1  # seconds between two pieces for the screen
LINGER = 0.3  # seconds for a command's child processes to end with it
DIFF_ROWS, DIFF_CHARACTERS = 60, 4_000  # of the files that a command changed
RELAY, PORT = Path(relay.__file__), 3128  # the port is one of the sandbox's own
LONGEST_PATH = 16_384  # bytes of the current folder
LONGEST_ARGUMENT = 100_000  # bytes; Linux takes no argument of more than 128 KiB

# The folder is noted at each change and at the end, so that a trap or an `exec` of the command's own does not lose it.
_PRELUDE = """\
__sakti() {{ [ "$BASHPID" != "$$" ] || builtin pwd -P >|{file}; }}
cd() {{ builtin cd "$@" || return; __sakti; }}
pushd() {{ builtin pushd "$@" || return; __sakti; }}
popd() {{ builtin popd "$@" || return; __sakti; }}
trap __sakti EXIT
"""


class StartedCommand(Struct, frozen=True):
    """Started command, with its temporary folder for the current folder, and its allowed hosts.

    `begin` is a time before its start (ns), by the clock that files are dated with.
    """

    running: Running
    notes: tempfile.TemporaryDirectory[str]
    begin: int
    sandbox: Sandbox | None = None
    hosts: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Return the file that holds the current folder."""
        return Path(self.notes.name) / "cwd"


def _pass_by_file(command: str, folder: Path) -> str:
    """Return `command`, or one that reads it from a file if it is too long to pass."""
    if len(command.encode("utf-8", "replace")) <= LONGEST_ARGUMENT:
        return command
    (folder / "command").write_text(command, "utf-8", "replace")
    return f". {shlex.quote(str(folder / 'command'))}"


def start(
    run: ToolContext, command: str, *, track: bool = True, outside: str = "", proxy_socket: Path | None = None
) -> StartedCommand:
    """Start a command. Raises `ToolError` if it cannot be started.

    `track`: follow its changes of the current folder; `outside`: why it runs outside of the sandbox; `proxy_socket`:
    the socket of the proxy that it reaches hosts by.
    """
    program = find_program("bash", run.state.workspace, run.state.env.get("PATH"))
    if program is None:
        raise ToolError("bash was not found on PATH outside the workspace: install it.")
    run.state.output_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    output = Output(run.state.output_folder / run.state.make_output_name(run.call_id))
    notes = tempfile.TemporaryDirectory(prefix="sakti-bash-", ignore_cleanup_errors=True)
    folder = Path(notes.name)
    (folder / "cwd").touch()
    begin = (folder / "cwd").stat().st_ctime_ns
    script_text = _pass_by_file(command, folder)
    prelude = _PRELUDE.format(file=shlex.quote(str(folder / "cwd"))).replace("\n", "; ") if track else ""
    # on one line, and the command evaluated: bash counts its lines from 1 in error messages
    script = f'{prelude}__command=$1; shift; eval "$__command"'
    cwd = run.cwd if run.cwd.is_dir() else run.state.workspace
    is_outside = bool(outside) or run.is_user_command or run.state.level.name == "unsandboxed"
    sandbox = None if is_outside else run.state.sandbox
    env = _choose_environment(run, cwd, inside=sandbox is not None)
    argv, read = [program, "-c", script, program, script_text], ()
    if proxy_socket is not None and sandbox is not None:
        argv, read = (
            [sys.executable, "-I", "-S", str(RELAY), str(proxy_socket), str(PORT), *argv],
            (proxy_socket.parent,),
        )
        env = {**env, **environment.make_proxy_variables(PORT)}
    try:
        with _enclose(run, sandbox, argv, cwd, folder.resolve(), read) as enclosed:
            process = spawn(enclosed.argv, enclosed.cwd, env, enclosed.descriptors)
    except (OSError, ValueError) as e:
        notes.cleanup()
        raise ToolError(f"bash cannot be started: {getattr(e, 'strerror', None) or e}.") from e
    return StartedCommand(Running(command, process, output), notes, begin, sandbox)


def _choose_environment(run: ToolContext, folder: Path, *, inside: bool) -> Mapping[str, str]:
    """Return the variables of a command; one that the user types gets the user's own, with the user's git."""
    state, user_env = run.state, run.state.own_env or {}
    if run.is_user_command and user_env:
        return user_env
    network = {} if inside else environment.choose_network_variables(user_env)
    git = environment.make_git_variables(user_env or state.env, folder, state.workspace, reads=run.read_only)
    return {**state.env, **network, **git}


@contextmanager
def _enclose(
    run: ToolContext, sandbox: Sandbox | None, argv: Sequence[str], cwd: Path, notes: Path, read: Sequence[Path]
) -> Generator[SandboxedCommand]:
    if sandbox is None:
        yield enclosing.SandboxedCommand(tuple(argv), cwd)
        return
    shares = not run.is_alone
    with sandbox.enclose(argv, cwd, (notes,), read, read_only=run.read_only, shares_network=shares) as enclosed:
        yield enclosed


@tool(effect="run", small=3, small_without=("timeout", "outside", "reach"))
async def bash(
    run: ToolContext,
    command: Annotated[str, "what bash runs"],
    timeout: Annotated[Annotated[int, Meta(ge=1, le=3600)] | None, "seconds until it is stopped"] = None,
    background: Annotated[bool, "return at once; read more with bash_output, end it with kill"] = False,
    outside: Annotated[str, "why it has to run outside the sandbox; the user is asked"] = "",
    reach: Annotated[
        list[str] | None, "hosts to reach from inside the sandbox; the user is asked about new ones"
    ] = None,
) -> Outcome:
    """Run a command without a terminal or input; its last folder is kept for the next one."""
    if "\0" in command:
        raise ToolError("bash was called with wrong arguments: command holds a NUL character. Leave it out.")
    appeared = _begin_watch(run)
    if background:
        return await _run_in_background(run, command, outside, reach or ())
    before = run.state.files.list_unchanged()
    started = await _start_enclosed(run, command, outside=outside, hosts=reach or ())
    running, limit = started.running, timeout or run.state.bash_timeout
    timed_out, remaining, changed, survivors = False, "", "", list[str]()
    try:
        timed_out = not await _stream(run, running, limit)
        if not timed_out:
            remaining = await _describe_jobs(run, running)
    finally:
        if not remaining:
            survivors = await running.stop()
        running.output.settle()
        changed = _describe_changes(run, AgentCommand(command, started.begin, time.time_ns()), before)
        _change_folder(run, started)
        if started.sandbox is not None:
            appeared += started.sandbox.watch.look()
    if piece := running.output.take_unread():
        run.stream(piece)
    notes = [
        describe_survivors(survivors),
        remaining,
        changed,
        quarantine.describe_moves(appeared),
        _describe_refused_hosts(run, started),
    ]
    return _make_outcome(run, running, limit if timed_out else None, [*notes, _explain_failure(run, started)])


async def _run_in_background(run: ToolContext, command: str, outside: str, hosts: Sequence[str]) -> Outcome:
    local = await _open_network(run, outside)
    started = await _start_enclosed(run, command, track=False, outside=outside, hosts=hosts)
    if started.sandbox is not None:
        started.sandbox.watch.job()
    started.running.notes = started.notes
    number = await kept.register(run, started.running)
    return Outcome(f"Running in the background as {number}.{local}", details={"background": number})


async def _open_network(run: ToolContext, outside: str) -> str:
    """Open the shared network for a background command; return who reaches its ports."""
    sandbox = run.state.sandbox
    if sandbox is None or outside or not (run.state.level.name == "sandboxed" and run.state.level.own_network):
        return ""
    if not run.is_alone and await asyncio.to_thread(sandbox.open_network):
        return " Commands from now on reach its ports on localhost; the user opens one to a browser with /port N."
    return " No other command reaches its ports: it has its own localhost."


def describe_survivors(names: Sequence[str]) -> str:
    """Name the processes that could not be ended; empty if all were."""
    return f"[could not be ended, and still running: {', '.join(names)}]" if names else ""


async def _start_enclosed(
    run: ToolContext, command: str, *, track: bool = True, outside: str = "", hosts: Sequence[str] = ()
) -> StartedCommand:
    """Start a command, inside the sandbox with a way to the hosts that it may reach. Raises `ToolError`."""
    proxy_socket: Path | None = None
    level = run.state.level
    if hosts and run.state.network is not None and not outside and level.name != "unsandboxed" and level.own_network:
        try:
            proxy_socket = await run.state.network.socket(hosts)
        except OSError as e:
            raise ToolError(f"The network of the sandbox cannot be opened: {e.strerror or e}.") from e
    started = start(run, command, track=track, outside=outside, proxy_socket=proxy_socket)
    return replace(started, hosts=tuple(hosts) if proxy_socket is not None else ())


async def _stream(run: ToolContext, running: Running, limit: int) -> bool:
    """Stream a command's output until it ends; False on timeout."""
    ended = asyncio.ensure_future(running.wait_for_exit())
    try:
        async with asyncio.timeout(limit):
            while not ended.done():
                await asyncio.wait({ended}, timeout=STREAM_INTERVAL)
                if piece := running.output.take_unread():
                    run.stream(piece)
        running.drain()
        return True
    except TimeoutError:
        return False
    finally:
        ended.cancel()
        await asyncio.wait({ended})


async def _describe_jobs(run: ToolContext, running: Running) -> str:
    """Describe the processes that a command left running in the background; "" if all have ended.

    The first process of a sandbox ends a moment after its command, so the first checks follow each other quickly.
    """
    waited, pause = 0.0, LINGER / 64
    while ((members := running.members()) or not running.closed.is_set()) and waited < LINGER:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await (asyncio.sleep(LINGER) if members else running.closed.wait())
        waited, pause = waited + pause, pause * 2
        running.drain()
    if not members:
        running.drain()  # a process that ends closes its end of the pipe first
        held = not running.closed.is_set()
        running.close()
        note = "[something that it started left its process group and may still run; its output is no longer read]"
        return note if held else ""
    number = await kept.register(run, running)
    names = [f"{name} (process {pid})" for pid, name in members.items()]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"[left running, in the background as {number}: {shown}. bash_output shows more, kill ends it]"


def _change_folder(run: ToolContext, started: StartedCommand) -> None:
    """Change to the folder in which the command ended."""
    where = _read_note(started.folder).removesuffix("\n")
    if where and Path(where).is_dir():
        run.state.cwd = Path(where)
    started.notes.cleanup()


def _read_note(file: Path) -> str:
    """Return the command's note; "" if the command replaced that file."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(number, LONGEST_PATH).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(number)


def _begin_watch(run: ToolContext) -> list[tuple[str, str]]:
    """Check the protected names before a command; return files left there by a background command."""
    if run.state.sandbox is None or run.state.level.name == "unsandboxed":
        return []
    running = any(r.process.poll() is None for r in run.state.background.values())
    return run.state.sandbox.watch.begin(running=running)


def _explain_failure(run: ToolContext, started: StartedCommand) -> str:
    """Tell the model if the sandbox may have caused a command to fail."""
    running = started.running
    if started.sandbox is None or not running.process.returncode:
        return ""
    networked = started.sandbox.level.own_network
    why = enclosing.explain_failure(running.output.tail or running.output.head, by_rules=not networked)
    if run.is_planning:  # nothing runs outside then
        return f"[{why}: in this mode commands change nothing and reach no network]" if why else ""
    hint = 'With reach=["HOST"] it reaches that host, with' if networked else "With"
    if why == enclosing.NO_LISTENER:
        alone = " This command had its own localhost, because it asked for a host." if run.is_alone else ""
        why, hint = f"{why}.{alone} Start a server with background=true", "With"
    return f'[{why}. {hint} outside="REASON" it runs outside, if the user allows it.]' if why else ""


def _describe_refused_hosts(run: ToolContext, started: StartedCommand) -> str:
    """Tell the model which hosts a command asked for that it may not reach."""
    if run.state.network is None or not (refused := run.state.network.list_refused(started.hosts)):
        return ""
    return f"[the sandbox blocked access to {', '.join(refused)}. Name them in `reach`: the user is asked.]"


def _describe_changes(run: ToolContext, command: AgentCommand, before: Sequence[Path]) -> str:
    """Describe a command's changes to files that the model knows, so that it can continue editing them."""
    parts: list[str] = []
    rows = size = 0
    for path, old, new in run.state.files.note_command(command, before):
        name = run.state.show(path)
        was, now = (textfile.decode(data) if data is not None else None for data in (old, new))
        diff = make_diff(name, was.text, now.text) if was and now else ""
        rows, size = rows + diff.count("\n"), size + len(diff)
        short = diff and rows <= DIFF_ROWS and size <= DIFF_CHARACTERS
        parts.append(diff if short else f"{name}: too much to show; read it again before you rely on it")
    return "[changed by this command, of the files that you have read:]\n" + "\n".join(parts) if parts else ""


def _make_outcome(run: ToolContext, running: Running, stopped_after: int | None, notes: Sequence[str]) -> Outcome:
    output, code = running.output, running.process.returncode
    text = output.text().rstrip("\n")
    details: dict[str, object] = {"exit_code": code}
    if output.total > run.state.output_bytes:
        output.save()
        details |= {"output_file": str(output.path), "characters": output.total, "cut": output.cut}
    elif run.state.background.get(str(run.state.started)) is not running:
        output.path.unlink(missing_ok=True)
    if stopped_after is not None:
        end = f"[stopped after {stopped_after} s, with every process that it started]"
        details["timeout"] = stopped_after
    else:
        end = _describe_end(code or 0)
    body = "\n".join(part for part in (text, end, *notes) if part)
    return Outcome(body or "[no output]", is_error=bool(code) or stopped_after is not None, details=details)


def _describe_end(code: int) -> str:
    """Describe how a command ended, unless it succeeded."""
    if code >= 0:
        return f"[exit code {code}]" if code else ""
    try:
        return f"[ended by {signal.Signals(-code).name}]"
    except ValueError:
        return f"[ended by signal {-code}]"
