"""State that a thread's tools keep between calls, and the context that each call gets.

The model may change the files that it, or its commands, read or wrote. A file is known in the state in which it was
last read or written here. After a command of the agent, known files are compared (and the model gets the difference);
other files count as the command's if their status changed while it ran.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge.workspace_view import WorkspaceView, resolve_path
from sakti.agent.sandbox.boundary import Level
from sakti.core.clock import Clock, Ids
from sakti.core.errors import ToolError
from sakti.core.text import clean_surrogates, cut_middle
from sakti.core.tokens import Counter, cut_to_tokens
from sakti.core.types import ImagePart, Json, Usage
from sakti.store.secrets import mask_secrets

if TYPE_CHECKING:
    from asyncio import Task

    from sakti.agent.sandbox.proxy import Network
    from sakti.agent.sandbox.sandbox import Sandbox
    from sakti.agent.tools.job_log import JobLog
    from sakti.agent.tools.processes import Running


TEXT_LIMIT = 200_000  # bytes of a file that is kept to show the changes of a command later
TEXTS_LIMIT = 20_000_000  # bytes of all of them
HASH_LIMIT = 20_000_000  # bytes of a file whose content is compared, not only its size and times
COMMANDS = 200  # commands that are remembered


class FileSeen(Struct, frozen=True):
    """File as the model last saw it; `data` is None if it was too large to keep."""

    mtime_ns: int
    size: int
    digest: bytes = b""
    data: bytes | None = None


class AgentCommand(Struct, frozen=True):
    """Command of the agent, and when it ran (ns)."""

    text: str
    begin: int
    end: int


class SeenFiles(Struct):
    seen: dict[Path, FileSeen] = field(default_factory=dict[Path, FileSeen])
    commands: list[AgentCommand] = field(default_factory=list[AgentCommand])
    _kept: int = 0

    def mark_seen(self, path: Path, data: bytes | None = None) -> None:
        """Note the present state of `path`; `data` is its content if the caller has it."""
        stat = path.stat()
        if data is None and stat.st_size <= HASH_LIMIT:
            data = path.read_bytes()
        self._drop(path)
        keep = data if data is not None and len(data) <= TEXT_LIMIT else None
        digest = hashlib.sha256(data).digest() if data is not None else b""
        self.seen[path] = FileSeen(stat.st_mtime_ns, stat.st_size, digest, keep)
        self._kept += len(keep or b"")
        self._drop_oldest()

    def forget(self, path: Path) -> None:
        """Drop a deleted file."""
        self._drop(path)

    def _drop(self, path: Path) -> None:
        before = self.seen.pop(path, None)
        self._kept -= len(before.data or b"") if before else 0

    def _drop_oldest(self) -> None:
        """Drop the content of the oldest files while all of it is too much."""
        for path, seen in list(self.seen.items()):
            if self._kept <= TEXTS_LIMIT:
                return
            self._kept -= len(seen.data or b"")
            self.seen[path] = FileSeen(seen.mtime_ns, seen.size, seen.digest)

    def state(self, path: Path, *, whole: bool = False) -> Literal["known", "changed", "unknown"]:
        """Return whether the model knows the present content of `path`.

        `whole`: to replace all of it.
        """
        seen = self.seen.get(path)
        if seen is not None:
            return "known" if self._is_same(path, seen) else "changed"
        return "known" if self._is_by_command(path, whole) else "unknown"

    @staticmethod
    def _is_same(path: Path, seen: FileSeen) -> bool:
        stat = path.stat()
        if stat.st_size != seen.size:
            return False
        if not seen.digest or stat.st_size > HASH_LIMIT:
            return stat.st_mtime_ns == seen.mtime_ns
        # equal size and times are no proof, and a new time alone is no change
        return hashlib.sha256(path.read_bytes()).digest() == seen.digest

    def _is_by_command(self, path: Path, whole: bool) -> bool:
        changed = path.stat().st_ctime_ns
        return any(c.begin <= changed <= c.end and (not whole or path.name in c.text) for c in self.commands)

    def list_unchanged(self) -> list[Path]:
        """Return the known files that are unchanged: a change by a command is its own effect."""
        return [path for path, seen in self.seen.items() if self._looks_same(path, seen)]

    @staticmethod
    def _looks_same(path: Path, seen: FileSeen) -> bool:
        try:
            stat = path.stat()
        except OSError:
            return False
        return (stat.st_mtime_ns, stat.st_size) == (seen.mtime_ns, seen.size)

    def note_command(
        self, command: AgentCommand, before: Sequence[Path]
    ) -> list[tuple[Path, bytes | None, bytes | None]]:
        """Note a command that has ended; return its changes of the files `before` it.

        Each has path, old and new content (None if too large to compare); deleted files are dropped.
        """
        self.commands = [*self.commands[-COMMANDS:], command]
        out: list[tuple[Path, bytes | None, bytes | None]] = []
        for path in before:
            seen = self.seen[path]
            if self._looks_same(path, seen):
                continue
            try:
                data = path.read_bytes() if path.stat().st_size <= HASH_LIMIT else None
                self.mark_seen(path, data)
            except OSError:
                self._drop(path)
                continue
            if data is None or self.seen[path].digest != seen.digest:
                out.append((path, seen.data, data))
        return out


MOST_TOKENS = 25_000  # of a web page, or of the result of a server's tool, that go to the model


class Outcome(Struct, frozen=True):
    """Result of a tool: text and images for the model, `details` for the screen only.

    `details`: diff, exit code, …; `characters`: the length of the content before it was cut. `is_limited`: the tool has
    limited the content by tokens.
    """

    content: str
    is_error: bool = False
    details: Json = field(default_factory=dict[str, Any])
    images: tuple[ImagePart, ...] = ()
    is_limited: bool = False


class CallRecord(Struct):
    """Record of a call.

    `jobs` are the commands still running after it, `lost` names files that cannot be restored.
    """

    jobs: list[Running] = field(default_factory=list["Running"])
    lost: list[str] = field(default_factory=list[str])


class Recorder(Protocol):
    """Records the changes of calls to files, so that they can be undone."""

    def record_writes(
        self, files: Sequence[tuple[Path, bytes | None, int]], temporaries: Sequence[Path]
    ) -> contextlib.AbstractContextManager[None]:
        """Surround the writing of files: path, content (None: deleted), permissions of a new one.

        `temporaries` are files that exist only meanwhile.
        """
        ...

    async def explain_loss(self, effect: str, arguments: Mapping[str, Any], place: WorkspaceView) -> str:
        """Return the files of a call that could not be restored, and the reason; "" if there are none."""
        ...

    def record_call(
        self, effect: str, arguments: Mapping[str, Any], place: WorkspaceView
    ) -> contextlib.AbstractAsyncContextManager[CallRecord]:
        """Surround a call of a tool with this effect; the record names the jobs still running after it."""
        ...

    async def settle(self, *, ends: bool = False) -> None:
        """Record the changes of jobs that have ended; `ends`: of all."""
        ...


class NoRecorder:
    """Records nothing."""

    def record_writes(
        self, files: Sequence[tuple[Path, bytes | None, int]], temporaries: Sequence[Path]
    ) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def explain_loss(self, effect: str, arguments: Mapping[str, Any], place: WorkspaceView) -> str:
        return ""

    @contextlib.asynccontextmanager
    async def record_call(
        self, effect: str, arguments: Mapping[str, Any], place: WorkspaceView
    ) -> AsyncGenerator[CallRecord]:
        yield CallRecord()

    async def settle(self, *, ends: bool = False) -> None:
        return None


class PageOpener(Protocol):
    """Opens web pages for the model."""

    async def open(self, run: ToolContext, url: str) -> Outcome: ...


class WebSearch(Protocol):
    """Searches the web for the model; `service` is the name of the search service, "" without one."""

    @property
    def service(self) -> str: ...

    async def search(self, run: ToolContext, query: str, limit: int, site: str | None) -> Outcome: ...


class ToolState(Struct):
    """State of a thread's tools, kept from one call to the next.

    `cwd` is the folder of the next call, `changed` are files that run later, with their diffs; `sandbox` encloses the
    model's commands, and `started` counts those that went to the background: no number is used twice.
    """

    workspace: Path
    cwd: Path
    output_folder: Path
    clock: Clock
    ids: Ids
    env: Mapping[str, str]
    output_bytes: int = 30_000
    bash_timeout: int = 120
    own: tuple[Path, ...] = ()  # of sakti itself: no tool touches them
    files: SeenFiles = field(default_factory=SeenFiles)
    background: dict[str, Any] = field(default_factory=dict[str, Any])
    changed: dict[Path, str] = field(default_factory=dict[Path, str])
    recorder: Recorder = field(default_factory=NoRecorder)
    sandbox: Sandbox | None = None
    readable: tuple[Path, ...] = ()  # folders of skills
    added: tuple[Path, ...] = ()  # folders that the user opened beside the workspace
    network: Network | None = None  # how commands in the sandbox reach hosts
    web: Callable[[], PageOpener] | None = None  # made when it is first used
    search: WebSearch | None = None
    spend: Callable[[Usage], None] = lambda _: None  # called with the usage of requests that tools make
    own_env: Mapping[str, str] | None = None  # of commands that the user types
    own_commands: dict[str, Task[Outcome]] = field(default_factory=dict[str, "Task[Outcome]"])  # by call
    started: int = 0
    job_log: JobLog | None = None
    jobs_changed: Callable[[], None] = lambda: None  # called when a background command begins or ends
    followers: set[Task[None]] = field(default_factory=set["Task[None]"])  # wait for their ends

    @property
    def level(self) -> Level:
        """Return the level of enclosure of commands; the sandbox is tested at the first call."""
        return self.sandbox.level if self.sandbox is not None else Level("unsandboxed", "no sandbox was asked for")

    @property
    def missing_tools(self) -> tuple[str, ...]:
        """Return the tools that cannot do anything here."""
        available = {"webfetch": self.web is not None, "websearch": self.search is not None}
        return tuple(name for name, is_available in available.items() if not is_available)

    def show(self, path: Path) -> str:
        """Return `path` relative to the workspace if it is inside."""
        try:
            return str(path.relative_to(self.workspace)) or "."
        except ValueError:
            return str(path)

    def resolve(self, path: str) -> Path:
        """Resolve `path` against the current folder, with symlinks and `..` followed; raises nothing."""
        return resolve_path(self.cwd, path)

    def make_context(
        self, call_id: str, thread_id: str, message_id: str, stream: Callable[[str], None] = lambda _text: None
    ) -> ToolContext:
        """Make the context of a call that begins now; its output streams to `stream`."""
        return ToolContext(self, self.cwd, call_id, thread_id, message_id, stream)

    def mark_seen(self, path: Path, data: bytes | None = None) -> None:
        """Note that the model has seen the file; `data` is its content if the caller has it."""
        self.files.mark_seen(path, data)

    def check_unchanged(self, path: Path, *, whole: bool = False) -> None:
        """Raise `ToolError` if the model does not know the file's content.

        Its content is unknown if it was never read or written here, or has changed since. `whole` is for replacing all
        of it.
        """
        match self.files.state(path, whole=whole):
            case "unknown":
                raise ToolError(f"{self.show(path)} has not been read yet. Read it, then change it.")
            case "changed":
                raise ToolError(f"{self.show(path)} has changed since it was read. Read it again, then change it.")
            case "known":
                pass

    def save_output(self, text: str, call_id: str) -> Path:
        """Write a long output, secrets masked, to a file that the model can read; return the file."""
        self.output_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.output_folder / self.make_output_name(call_id)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            f.write(clean_surrogates(text))
        return path

    def cut_output(self, text: str, call_id: str, counter: Counter) -> tuple[str, str]:
        """Cut a text to `MOST_TOKENS` for the model; return it and the file with the full text, "" if uncut."""
        shown = cut_to_tokens(counter, text, MOST_TOKENS)
        return shown, str(self.save_output(text, call_id)) if shown != text else ""

    def make_output_name(self, call_id: str) -> str:
        """Make a unique file name; a model's call id is not safe as a path."""
        return f"{re.sub(r'[^0-9A-Za-z_-]', '', call_id)[-12:]}-{self.ids.new()[-8:]}.txt"

    def limit_output(self, outcome: Outcome, call_id: str) -> Outcome:
        """Mask secrets in `outcome` and cut it to `output_bytes` for the model; a file keeps all of it."""
        content = mask_secrets(clean_surrogates(outcome.content))
        if outcome.is_limited or len(content) <= self.output_bytes:
            return replace(outcome, content=content)
        size = max(len(content), outcome.details.get("characters", 0))
        path = outcome.details.get("output_file") or str(self.save_output(content, call_id))
        short, _ = cut_middle(content, self.output_bytes - 200)
        what = "The beginning of the output" if outcome.details.get("cut") else "The whole output"
        note = f"\n[{what} of {size:,} characters is in {path}: read it with offset and limit, or grep it.]"
        return replace(outcome, content=short + note, details={**outcome.details, "output_file": str(path)})


class ToolContext(Struct):
    """Context of one call: the tool state, the folder, the judged files, and the sink of its output.

    `cwd` is the folder in which the call was judged, even if another command changes the current one. `judged` are
    the files that the call may read or change (None: none was judged), `shown` the texts of those that it would change
    in the question to the user.
    `read_only`: a command of the call needs to write nothing, or must not (`is_planning`); `is_alone`: no other may use
    its network. `is_user_command`: the user typed it, so that it runs outside of the sandbox with their environment.
    `hosts` are those that redirects may lead to, "*" for any; `show_progress` shows how far the call is.
    """

    state: ToolState
    cwd: Path
    call_id: str
    thread_id: str
    message_id: str
    stream: Callable[[str], None]
    judged: frozenset[Path] | None = None
    shown: dict[Path, str | None] = field(default_factory=dict[Path, str | None])
    read_only: bool = False
    is_planning: bool = False
    is_alone: bool = False
    is_user_command: bool = False
    hosts: tuple[str, ...] = ()
    show_progress: Callable[[str], None] = lambda _text: None

    def resolve(self, path: str) -> Path:
        """Resolve `path` against the call's folder, with symlinks and `..` followed; raises nothing."""
        return resolve_path(self.cwd, path)

    def resolve_judged(self, path: str) -> Path:
        """Resolve `path`. Raises `ToolError` if it leads to another file than the judged one."""
        target = self.resolve(path)
        if self.judged is not None and target not in self.judged:
            raise ToolError(f"{path} is no longer the file that was allowed; nothing was done. Call again.")
        return target

    def place(self) -> WorkspaceView:
        """Return the place of the call, for judging it."""
        state = self.state
        return WorkspaceView(
            state.workspace,
            self.cwd,
            state.own,
            state.output_folder,
            state.changed,
            state.level.name,
            state.readable,
            state.network.allowed if state.network is not None else (),
            state.added,
            state.level.own_network,
            state.search.service if state.search is not None else "",
        )
