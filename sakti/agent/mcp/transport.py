"""Start a server in the sandbox and connect the SDK's client, with limits on lines and noise.

The SDK's own transport reads lines of any length and has no hook for the death of its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import PIPE
from types import TracebackType

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from sakti.agent.mcp.messages import read_message
from sakti.agent.mcp.place import ServerWorkspace
from sakti.agent.mcp.servers import McpServer
from sakti.agent.sandbox import environment
from sakti.agent.sandbox.proxy import Proxy
from sakti.agent.sandbox.sandbox import resolve_folders
from sakti.agent.tools.bash import PORT, RELAY
from sakti.agent.tools.processes import CHUNK, ProcessTree, spawn
from sakti.core.text import format_bytes, format_count
from sakti.store.secrets import mask_secrets

LONGEST_LINE = 16_000_000  # bytes of one message
NOTICED_NOISE = 1_000_000  # bytes of non-messages after which a notice is shown
WARNED_BROKEN = (1, 10, 100, 1_000)  # numbers of unreadable messages at which the user is warned
MOST_NOISE = 64_000_000  # bytes of them until the server is stopped
MOST_IN_CALL = 64_000_000  # bytes that arrive while calls are open
RING = 1_000_000  # bytes of the file with the server's errors
LEAVING_S = 0.5  # seconds until a server with closed input is stopped by a signal
OUTGOING = 64  # queued messages for a server that does not read


class LineLimitError(Exception):
    """A line longer than `LONGEST_LINE`."""


class LineSplitter:
    """Splits a stream into lines of bounded length."""

    def __init__(self, longest: int) -> None:
        self._longest, self._pieces, self._size = longest, list[bytes](), 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends. Raises `LineLimitError`."""
        *complete, rest = data.split(b"\n")
        lines: list[bytes] = []
        for line in complete:
            lines.append(b"".join((*self._pieces, line)))
            self._pieces, self._size = [], 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > self._longest:
            raise LineLimitError
        return lines


class RingFile:
    """File with the newest text of a stream, up to `RING` bytes, secrets masked."""

    def __init__(self, path: Path) -> None:
        self.path, self._size = path, 0
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)

    def add(self, data: bytes) -> None:
        """Append bytes; the older half is dropped when the file is full. They are lost if the disk is full."""
        text = mask_secrets(data.decode("utf-8", "replace")).encode("utf-8", "replace")[-RING // 2 :]
        with contextlib.suppress(OSError):
            if self._size + len(text) > RING:
                rest = self.path.read_bytes()[-RING // 2 + len(text) :] if len(text) < RING // 2 else b""
                self.path.unlink()
                text, self._size = rest + text, 0
            handle = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            try:
                self._size += os.write(handle, text)
            finally:
                os.close(handle)

    def last_line(self) -> str:
        """Return the last line that is not blank; "" without one."""
        try:
            lines = self.path.read_bytes()[-8_000:].decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class StdioTransport:
    """Transport of one server process, for `mcp.Client`.

    `start` starts the process in the calling thread, which has to be the main one: a sandbox ends with the thread that
    started it. `ended` is set when no more messages come; `why` then gives the reason, "" for a process that ended by
    itself. `notify` shows a sentence to the user. `open_calls` returns the number of unanswered calls.
    """

    def __init__(
        self, start: Callable[[], Awaitable[ProcessTree]], errors: RingFile, notify: Callable[[str], None]
    ) -> None:
        self._start, self._errors, self._notify = start, errors, notify
        self.ended, self.why = asyncio.Event(), ""
        self.open_calls: Callable[[], int] = lambda: 0
        self._tree: ProcessTree | None = None
        self._noise = self._broken = self._in_calls = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(
        self,
    ) -> tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]:
        """Start the process. Raises `OSError`, `ValueError`."""
        tree = self._tree = await self._start()
        reader = await _connect_reader(tree.process.stdout)
        errors = await _connect_reader(tree.process.stderr)
        writer = await _connect_writer(tree.process.stdin)
        into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](OUTGOING)
        self._writer = writer
        self._tasks = [
            asyncio.create_task(self._read(reader, into)),
            asyncio.create_task(self._write(out_of, writer)),
            asyncio.create_task(self._copy_errors(errors)),
        ]
        return incoming, outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: close its input, then TERM, a grace period, KILL."""
        assert self._tree is not None
        try:
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.close()
            if not self.why:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LEAVING_S):
                        await self._tree.wait_for_exit()
        finally:
            await _finish(self._tree.end())
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(
        self, reader: asyncio.StreamReader, into: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        lines = LineSplitter(LONGEST_LINE)
        try:
            async with into:
                while not self.why and (data := await reader.read(CHUNK)):
                    self._count_in_calls(len(data))
                    try:
                        complete = lines.feed(data)
                    except LineLimitError:  # explained before the stream closes, which ends open calls
                        self.why = f"wrote a line of more than {format_bytes(LONGEST_LINE)}"
                        return
                    for line in complete:
                        await self._take(line, into)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass  # the client has closed, or the process is gone
        finally:
            self.ended.set()

    def _count_in_calls(self, size: int) -> None:
        self._in_calls = self._in_calls + size if self.open_calls() else 0
        if self._in_calls > MOST_IN_CALL:
            self.why = f"sent more than {format_bytes(MOST_IN_CALL)} for one call"

    async def _take(self, line: bytes, into: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        line = line.strip()
        if line.startswith(b"{"):
            if (message := read_message(line)) is not None:
                await into.send(SessionMessage(message))
                return
            self._broken += 1
            if self._broken in WARNED_BROKEN:
                self._notify(f"sent {format_count(self._broken, 'message')} that cannot be read")
        if line:
            self._drop(line)

    def _drop(self, line: bytes) -> None:
        """Append a line that is not a message to the server's errors."""
        before, self._noise = self._noise, self._noise + len(line)
        self._errors.add(line[:CHUNK] + b"\n")
        if before <= NOTICED_NOISE < self._noise:
            self._notify(
                f"prints text that is not a message of the protocol, more than {format_bytes(NOTICED_NOISE)} so far"
            )
        if self._noise > MOST_NOISE:
            self.why = f"printed more than {format_bytes(MOST_NOISE)} that are not messages"

    async def _write(self, out_of: MemoryObjectReceiveStream[SessionMessage], writer: asyncio.StreamWriter) -> None:
        try:
            async with out_of:
                async for item in out_of:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writer.write(text.encode("utf-8", "replace") + b"\n")
                    await writer.drain()
        except OSError:
            return  # the process is gone: its output ends, too

    async def _copy_errors(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            self._errors.add(data)
            await asyncio.sleep(0)


async def _finish(ending: Awaitable[object]) -> None:
    """Await cleanup to its end, even while the calling task is being cancelled."""
    task = asyncio.ensure_future(ending)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _connect_reader(pipe: object) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK, loop=loop)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe)
    return reader


async def _connect_writer(pipe: object) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop),  # pyright: ignore[reportAttributeAccessIssue]
        pipe,
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


def is_confined(workspace: ServerWorkspace, server: McpServer) -> bool:
    """Return whether a server runs inside a working sandbox and reaches no network."""
    return bool(server.command) and not server.network and workspace.try_sandbox().holds


class ServerProcess:
    """Process of one server, with the proxy to the hosts that it may reach."""

    def __init__(self, workspace: ServerWorkspace, server: McpServer) -> None:
        self._workspace, self._server = workspace, server
        self._proxy: Proxy | None = None

    async def start(self) -> ProcessTree:
        """Start the process from this thread, which has to be the main one. Raises `OSError`, `ValueError`."""
        ws, server = self._workspace, self._server
        level = ws.try_sandbox()
        env = environment.choose_variables(ws.command_environment(), ws.config.sandbox.env)
        program = shutil.which(server.command, path=server.env.get("PATH") or env.get("PATH"))
        if program is None:
            raise FileNotFoundError(f"the program {server.command} was not found")
        cwd = (ws.root / Path(server.cwd).expanduser()).resolve()
        if not cwd.is_dir():
            raise FileNotFoundError(f"there is no folder {server.cwd}")
        loaded = environment.drop_loaders(server.env)  # bubblewrap must not see these
        late = tuple(f"{k}={v}" for k, v in server.env.items() if k not in loaded)
        argv = (*(("/usr/bin/env", *late) if late else ()), program, *server.args)
        env |= loaded
        if level.name == "unsandboxed":
            network = environment.choose_network_variables(ws.command_environment())
            return ProcessTree(spawn(argv, cwd, {**network, **env}, stdin=PIPE, stderr=PIPE))
        read: tuple[Path, ...] = ()
        if server.network and level.own_network:
            self._proxy = Proxy(server.network)
            proxy_socket = await self._proxy.start()
            argv = (sys.executable, "-I", "-S", str(RELAY), str(proxy_socket), str(PORT), *argv)
            env |= environment.make_proxy_variables(PORT)
            read = (proxy_socket.parent,)
        with ws.sandbox.enclose(argv, cwd, self._make_writable(), read, read_only=True) as enclosed:
            process = spawn(enclosed.argv, enclosed.cwd, env, enclosed.descriptors, stdin=PIPE, stderr=PIPE)
        return ProcessTree(process)

    def _make_writable(self) -> tuple[Path, ...]:
        """Return the folders that it may change; missing ones are created."""
        ws = self._workspace
        names = [str(ws.root / Path(name).expanduser()) for name in self._server.write]
        folders = resolve_folders(names, ws.home)
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
        return tuple(folder for folder in folders if os.path.lexists(folder))

    async def close(self) -> None:
        """Close its proxy."""
        if self._proxy is not None:
            await self._proxy.close()
            self._proxy = None
