"""Keep one server of a session: connect, list its tools, call them, restart it when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import mcp_types as types
from mcp import Client, MCPError
from mcp.client import InputRequiredRoundsExceededError
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from sakti.agent.mcp import messages, servers
from sakti.agent.mcp.messages import ListScreen, ScreenedTransport
from sakti.agent.mcp.servers import LoginNeededError, McpServer, McpTool, ServerState
from sakti.agent.mcp.transport import RingFile, StdioTransport
from sakti.agent.tools.processes import ProcessTree
from sakti.core import http
from sakti.core.errors import SaktiError, ToolError
from sakti.core.text import to_one_line
from sakti.version import __version__

log = logging.getLogger(__name__)

RESTARTS = (1.0, 5.0)  # seconds until a server that died starts again
STEADY_S = 600.0  # seconds after which a server may be restarted as often as at first
LONGEST_CALL = 600.0  # seconds, even if it reports progress
CANCEL_S = 0.8  # seconds that a cancelled call may take to tell the server
CLOSING_S = 1.0  # seconds that a server over HTTP may take to end its session
PROCESS_CLOSING_S = 5.0  # seconds until a process is killed, and a little more
ABANDONING_S = 0.5  # seconds that closing may take after it is cancelled
MOST_ROUNDS = 5  # questions to the user in one call
MOST_PAGES = 100
MOST_UNUSABLE = 5  # list entries named in a server's error
LARGEST_ANSWER = 64_000_000  # bytes of one answer over HTTP


class ConnectionHost(Protocol):
    """What a connection needs of the session."""

    @property
    def root(self) -> Path: ...
    @property
    def names(self) -> servers.ToolNames: ...
    async def start_process(self, server: McpServer, stack: AsyncExitStack) -> ProcessTree: ...
    def make_errors_file(self, server: McpServer) -> RingFile: ...
    def make_auth(self, server: McpServer) -> Any: ...
    def on_change(self, connection: Connection) -> None: ...
    def notify(self, server: McpServer, text: str) -> None: ...
    async def elicit(self, server: McpServer, params: types.ElicitRequestParams) -> types.ElicitResult: ...


Progress = Callable[[str], None]
Send = Callable[[Client, ProgressFnT], Awaitable[Any]]


class Connection:
    """Connection to one server; `state` is what lists show of it."""

    def __init__(self, server: McpServer, host: ConnectionHost) -> None:
        self.server, self._host = server, host
        self.state = ServerState(server, "starting" if server.enabled else "disabled")
        self.settled = asyncio.Event()  # it has become ready or failed since its start
        self.resources: tuple[types.Resource, ...] = ()
        self.prompts: tuple[types.Prompt, ...] = ()
        self._client: Client | None = None
        self._transport: StdioTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self._errors: RingFile | None = None
        self._relist = asyncio.Event()
        self._died = asyncio.Event()
        self._calls = self._rounds = 0
        self._waits: set[asyncio.Timeout] = set()  # questions to the user, of open calls
        self._questions: set[asyncio.Future[types.ElicitResult]] = set()
        self._screen = ListScreen()
        self.restarts: tuple[float, ...] = RESTARTS
        self.is_sandboxed = False
        self._http_status = 0  # of the last refused request

    # --- life -------------------------------------------------------------------------------------------------

    def start(self, places: asyncio.Semaphore) -> None:
        """Connect in the background; `places` limits how many servers start at once."""
        if self._task is None or self._task.done():
            self.settled.clear()
            self._task = asyncio.create_task(self._run(places))

    def use(self, server: McpServer) -> None:
        """Apply a changed entry; the server must be closed."""
        self.server = server
        self.state = ServerState(server, "starting")

    async def close(self, state: str = "disabled") -> None:
        """End the server and its process; a connection that does not end in time is abandoned."""
        if self._task is not None:
            task, self._task = self._task, None
            await self._end(task)
        if state == "disabled":
            self._set("disabled")

    async def _end(self, task: asyncio.Task[None]) -> None:
        for seconds in (PROCESS_CLOSING_S if self.server.command else CLOSING_S, ABANDONING_S):
            task.cancel()  # the second time closing itself hangs, for example in an unanswered request
            await asyncio.wait({task}, timeout=seconds)
            if task.done():
                return
        log.warning("MCP server %s: its connection does not end, so it was abandoned", self.server.name)

    async def _run(self, places: asyncio.Semaphore) -> None:
        """Serve until the server is closed; restart it twice when it dies."""
        loop, waits = asyncio.get_running_loop(), list(self.restarts)
        while True:
            began = loop.time()
            error, may_restart = await self._serve(places)
            _check_cancelled()
            if loop.time() - began > STEADY_S:
                waits = list(self.restarts)
            if isinstance(error, LoginNeededError):
                self._set("needs login", error.message)
                return
            text = self._explain(error)
            if not may_restart or not waits:
                self._set("failed", text)
                return
            self._set("starting", text)
            await asyncio.sleep(waits.pop(0))

    async def _serve(self, places: asyncio.Semaphore) -> tuple[BaseException | str, bool]:
        """Connect and serve until the connection ends; return the reason, and whether to restart."""
        self._set("starting", self.state.error)
        transport: StdioTransport | None = None
        self._died = asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                async with places, asyncio.timeout(self.server.startup_timeout):
                    transport = self._make_stdio(stack) if self.server.command else None
                    client = await stack.enter_async_context(await self._make_client(transport, stack))
                    await self._load(client)
                self._client = client
                self._set("ready", self.state.error)
                watching = asyncio.create_task(self._subscribe(client))
                try:
                    await self._serve_lists(client, transport)
                finally:
                    self._client = None
                    watching.cancel()
        except (Exception, BaseExceptionGroup) as e:
            error = _find_cause(e)
            log.info("MCP server %s: %r", self.server.name, error)
            if transport is None or not transport.why:
                started = transport is None or transport.ended.is_set()
                return error, started and not isinstance(error, SaktiError | TimeoutError)
        finally:
            self._client = None
            self._end_questions()
        if transport is not None and transport.why:
            return f"it {transport.why} and was stopped", True
        return "it ended", True

    async def _serve_lists(self, client: Client, transport: StdioTransport | None) -> None:
        """Reload the tools whenever the server reports a change, until the connection ends."""
        ended = transport.ended if transport is not None else self._died
        ending = asyncio.create_task(ended.wait())
        try:
            while not ending.done():
                changing = asyncio.create_task(self._relist.wait())
                await asyncio.wait({ending, changing}, return_when=asyncio.FIRST_COMPLETED)
                changing.cancel()
                if self._relist.is_set() and not ending.done():
                    self._relist.clear()
                    await self._load_again(client)
        finally:
            ending.cancel()

    async def _load_again(self, client: Client) -> None:
        """Reload the server's lists; if that fails, the old lists are kept."""
        try:
            async with asyncio.timeout(self.server.startup_timeout):
                await self._load(client)
            self._set("ready", self.state.error)
        except (MCPError, ValueError, RuntimeError, TimeoutError) as e:
            if isinstance(e, MCPError) and messages.is_closed(e):
                raise
            self._set("ready", f"Its changed lists cannot be read: {self._explain_error(e)}.")

    async def _subscribe(self, client: Client) -> None:
        """Subscribe to changed lists: a server of the newer protocol reports them only on request."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        with contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._relist.set()

    def _explain_error(self, error: BaseException) -> str:
        text = messages.explain(error, self.server)
        return f"{text} ({self._http_status})" if text == messages.HTTP_ERROR and self._http_status else text

    def _explain(self, error: BaseException | str) -> str:
        text = error if isinstance(error, str) else self._explain_error(error)
        last = self._errors.last_line() if self._errors is not None and self.server.command else ""
        if self.is_sandboxed and (hidden := messages.find_hidden(last)):
            how = "Move it, or name its folder in `write` of the entry, which lets the server see and change it"
            return to_one_line(f"the sandbox hides {hidden}, which it needs. {how}.", 400)
        return to_one_line(f"{text}. Its last line: {last}" if last else f"{text}.", 400)

    def _set(self, state: Any, error: str = "") -> None:
        tools = self.state.tools if state in ("ready", "starting") else ()
        self.state = replace(self.state, state=state, error=error, tools=tools)
        if state != "starting":
            self.settled.set()
        self._host.on_change(self)

    # --- connect ----------------------------------------------------------------------------------------------

    def _make_stdio(self, stack: AsyncExitStack) -> StdioTransport:
        errors = self._errors = self._host.make_errors_file(self.server)
        transport = StdioTransport(
            lambda: self._host.start_process(self.server, stack),
            errors,
            lambda text: self._host.notify(self.server, text),
        )
        transport.open_calls = lambda: self._calls
        self._transport = transport
        return transport

    async def _make_client(self, transport: StdioTransport | None, stack: AsyncExitStack) -> Client:
        self._screen = ListScreen()
        return Client(
            ScreenedTransport(transport if transport is not None else await self._make_http(stack), self._screen),
            client_info=types.Implementation(name="sakti", version=__version__),
            list_roots_callback=self._list_roots,
            elicitation_callback=self._elicit,
            message_handler=self._on_message,
            input_required_max_rounds=MOST_ROUNDS,
            cache=None,
        )

    async def _make_http(self, stack: AsyncExitStack) -> Any:
        server = self.server
        limits = http.HttpLimits(LONGEST_CALL, LARGEST_ANSWER, (urlsplit(server.url).hostname or "",))
        auth = self._host.make_auth(server)
        client = http.make_client(limits, server.headers, auth)
        client.event_hooks = {"response": [self._note_status if auth is not None else self._check_answer]}
        await stack.enter_async_context(client)
        return streamable_http_client(server.url, http_client=client)

    async def _note_status(self, response: Any) -> None:
        if response.status_code >= 400 and response.request.method == "POST":
            self._http_status = response.status_code

    async def _check_answer(self, response: Any) -> None:
        await self._note_status(response)
        if response.status_code in (401, 403):
            raise SaktiError(f"It refuses the Authorization header of its entry (HTTP {response.status_code}).")

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        root = self._host.root
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": root.as_uri(), "name": root.name})])

    async def _on_message(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._relist.set()

    async def _load(self, client: Client) -> None:
        """Load the server's lists."""
        listed = (
            [tool async for tool in _list_pages(client.list_tools, "tools")] if _has_capability(client, "tools") else []
        )
        tools, unusable = servers.make_tools(self.server, listed[: servers.MOST_TOOLS], self._host.names)
        self.resources = tuple(await self._list_rest(client, client.list_resources, "resources"))[:1_000]
        self.prompts = tuple(await self._list_rest(client, client.list_prompts, "prompts"))[:200]
        for entries in self._screen.dropped.values():
            unusable += entries
        info = client.server_info
        version = f"{info.name} {info.version}" if info is not None else ""
        self.state = ServerState(
            self.server,
            self.state.state,
            to_one_line(f"{version} · protocol {client.protocol_version}".removeprefix(" · "), 120),
            servers.clean_text(client.instructions or ""),
            tools,
            _describe_unusable(unusable),
        )

    async def _list_rest(self, client: Client, fetch: Callable[..., Awaitable[Any]], field: str) -> list[Any]:
        """Return the resources or prompts of a server; tools do not depend on them."""
        if not _has_capability(client, field):
            return []
        try:
            return [entry async for entry in _list_pages(fetch, field)]
        except (MCPError, ValueError, RuntimeError) as e:
            if isinstance(e, MCPError) and (messages.is_closed(e) or e.error.code == METHOD_NOT_FOUND):
                return []
            self._screen.dropped[f"{field}/list"].append(f"all {field}: {self._explain_error(e)}")
            return []

    # --- use --------------------------------------------------------------------------------------------------

    async def call_tool(self, tool: McpTool, arguments: dict[str, Any], show: Progress) -> types.CallToolResult:
        """Call a tool. Raises `ToolError` with a sentence for the model."""

        async def call(client: Client, on_progress: ProgressFnT) -> types.CallToolResult:
            return await client.call_tool(tool.original_name, arguments, progress_callback=on_progress)

        return await self._send_request(tool.original_name, call, show)

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """Read a resource. Raises `ToolError`."""

        async def read(client: Client, _: ProgressFnT) -> types.ReadResourceResult:
            return await client.read_resource(uri)

        return await self._send_request(uri, read, lambda _: None)

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """Return a prompt with its arguments. Raises `ToolError`."""

        async def get(client: Client, _: ProgressFnT) -> types.GetPromptResult:
            return await client.get_prompt(name, arguments)

        return await self._send_request(name, get, lambda _: None)

    async def _send_request(self, what: str, send: Send, show: Progress) -> Any:
        """Send one request with its timeouts. Raises `ToolError`."""
        client, name = self._client, self.server.name
        if client is None:
            raise ToolError(messages.explain_state(self.state))
        if self._calls == 0:
            self._rounds = self._http_status = 0
        self._calls += 1
        try:
            return await self._send(client, what, send, show)
        except MCPError as e:
            if messages.is_closed(e):
                raise ToolError(self._explain_end()) from e
            raise ToolError(f"{name}: {self._explain_error(e)}") from e
        except InputRequiredRoundsExceededError as e:
            raise ToolError(f"{name} asked more than {MOST_ROUNDS} questions in one call, so it was ended.") from e
        except (RuntimeError, ValueError, OSError) as e:
            raise ToolError(f"{name}: {self._explain_error(e)}. The call may have taken effect.") from e
        finally:
            self._calls -= 1
            if not self._calls:
                self._end_questions()

    def _explain_end(self) -> str:
        """Return why a call ended with its connection."""
        name = self.server.name
        if self._transport is not None and self._transport.why:
            return f"The MCP server {name} {self._transport.why} and was stopped; the call was not repeated."
        if self._http_status in (401, 403):
            how = f"It needs a login: the user can run `sakti mcp login {name}`, or change its Authorization header."
            return f"The MCP server {name} refused this call (HTTP {self._http_status}). {how}"
        return f"The MCP server {name} ended during this call; it was not repeated."

    async def _send(self, client: Client, what: str, send: Send, show: Progress) -> Any:
        loop, timeout = asyncio.get_running_loop(), self.server.timeout
        hard = loop.time() + LONGEST_CALL
        scope = asyncio.timeout(timeout)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if scope in self._waits:
                scope.reschedule(min(hard, loop.time() + timeout))
            show(_describe_progress(progress, total, message))

        try:
            async with scope:
                self._waits.add(scope)
                try:
                    return await _await_cancellable(send(client, on_progress))
                finally:
                    self._waits.discard(scope)
        except TimeoutError:
            limit = f"{LONGEST_CALL:.0f} s in all" if loop.time() >= hard else f"{timeout:g} s"
            raise ToolError(f"{to_one_line(what)} of {self.server.name} did not answer within {limit}.") from None

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        self._rounds += 1
        if not self._calls or self._rounds > MOST_ROUNDS:
            return types.ElicitResult(action="decline")
        for wait in self._waits:
            wait.reschedule(None)  # the user may take any length of time
        question = asyncio.ensure_future(self._host.elicit(self.server, params))
        self._questions.add(question)
        try:
            return await question
        except asyncio.CancelledError:
            question.cancel()
            self._host.notify(self.server, "asked a question whose call has ended, so it was closed")
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return types.ElicitResult(action="cancel")
        finally:
            self._questions.discard(question)
            again = asyncio.get_running_loop().time() + self.server.timeout
            for wait in self._waits:
                wait.reschedule(again)

    def _end_questions(self) -> None:
        """Close the questions to the user whose call has ended."""
        for question in self._questions:
            question.cancel()


def _check_cancelled() -> None:
    """Raise the cancellation of this task instead of the error raised by its cleanup.

    A task group of the SDK whose request fails while it is being cancelled raises only the failure.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _await_cancellable(request: Awaitable[Any]) -> Any:
    """Await a request; once cancelled it has `CANCEL_S` to tell the server."""
    task = asyncio.ensure_future(request)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_S)
        raise


async def _list_pages(fetch: Callable[..., Awaitable[Any]], field: str) -> AsyncGenerator[Any]:
    """Yield the entries of a list of the server, page by page."""
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await fetch(cursor=cursor)
        for entry in getattr(page, field):
            yield entry
        cursor = page.next_cursor
        if not cursor:
            return


def _has_capability(client: Client, capability: str) -> bool:
    return getattr(client.server_capabilities, capability) is not None


def _describe_progress(progress: float, total: float | None, message: str | None) -> str:
    amount = f"{progress:g} of {total:g}" if total else f"{progress:g}"
    return to_one_line(f"{message} · {amount}" if message else amount, 120)


def _find_cause(error: BaseException) -> BaseException:
    """Return the first cause in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _describe_unusable(entries: Sequence[str]) -> str:
    """Return a sentence about listed tools that sakti does not offer; "" without any."""
    more = f"; and {len(entries) - MOST_UNUSABLE} more" if len(entries) > MOST_UNUSABLE else ""
    return f"Not offered: {'; '.join(entries[:MOST_UNUSABLE])}{more}." if entries else ""
