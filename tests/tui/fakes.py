"""A session without a database or a model: the surface that the screen reads, with values a test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from msgspec.structs import replace

from sakti.agent.file_list import FileList
from sakti.agent.options import Options
from sakti.agent.sandbox.boundary import Level
from sakti.agent.session.queries import ChildMemory, Windows
from sakti.agent.session.session import Session
from sakti.agent.subagents.children import ListedChild
from sakti.core.config import APPROVAL_MODES, Config
from sakti.core.errors import NoModelError, TaskError
from sakti.core.events import (
    ApprovalResolved,
    MemoryStatus,
    MessageSaved,
    ModelChanged,
    QueueChanged,
    StepStarted,
    ThreadChanged,
    TurnFinished,
    TurnStarted,
)
from sakti.core.text import compile_phrase
from sakti.core.types import Message, Spent, TextPart, Thread, Usage, join_plain_text
from sakti.store.log.lines import Figures
from sakti.store.search.search import SearchPage
from sakti.store.threads.messages import MessageMatch

NOW = 1_768_478_400_000  # 2026-01-15 12:00 UTC


class FakeClock:
    """Moves only when told to; every look at `monotonic` is a second later, so that no guard holds a test up."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.step = 5.0

    def now(self) -> int:
        return NOW

    def monotonic(self) -> float:
        self.seconds += self.step
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class FakeViews:
    messages: dict[str, list[Message]] = field(default_factory=dict)
    lines: list = field(default_factory=list)
    waiting: list = field(default_factory=list)  # observations that are not in the context yet
    past: list = field(default_factory=list)  # moments of the log
    a_turn: int | None = None
    usage: Callable = Usage
    happened: list = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)
    tasks: SimpleNamespace = field(default_factory=lambda: board())
    state: dict[str, str] = field(default_factory=lambda: {"welcomed": "1"})
    typed: list[str] = field(default_factory=list)
    unsent: tuple[str, list[str]] = ("", [])
    kept: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list)
    hits: list = field(default_factory=list)
    all_threads: list = field(default_factory=list)
    blocks: list = field(default_factory=list)
    known_models: list = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    unread: tuple[tuple[str, int], ...] = ()
    origins: dict = field(default_factory=dict)
    carried: list = field(default_factory=list)
    status: MemoryStatus | None = None
    request: int = 0  # tokens of the next one
    streaming: int = 0

    async def transcript(self, thread_id, before=None, limit=200):
        found = [m for m in self.messages.get(thread_id, []) if before is None or m.index < before]
        return found[-limit:]

    async def observations(self):
        return self.lines

    async def waiting_observations(self):
        return self.waiting

    async def child_memory(self, child_id):
        assert self.status is not None
        return ChildMemory(self.status, self.lines, self.waiting, self.figures, self.happened, Spent())

    async def carried_lines(self):
        return self.carried

    async def group_of(self, line_id):
        return f"group of {line_id}"

    async def warm_windows(self):
        self.request = sum(b.tokens for b in self.blocks)

    def windows(self):
        return Windows(self.status, self.request + self.streaming, self.streaming)

    async def turn_tokens(self):
        return self.a_turn

    async def moments(self):
        return self.past

    async def log_at(self, time):
        return self.lines[: 1 + [m.time for m in self.past].index(time)]

    async def memory_figures(self):
        return self.figures

    async def memory_events(self):
        return self.happened

    async def spent(self):
        return Spent(self.usage())

    async def memory_groups(self, group_ids):
        return []

    async def sources(self, group_id):
        return [m for ms in self.messages.values() for m in ms][:3]

    async def board(self):
        return self.tasks

    async def board_version(self):
        return 0

    async def task(self, task_id):
        raise TaskError("There is no such task.", code="not_found")

    async def task_messages(self, task_id):
        return []

    async def search(self, query, *, scope="workspace", limit=50, offset=0, first=False):
        self.queries.append(query)
        self.scopes.append(scope)
        return SearchPage(query, len(self.hits), tuple(self.hits[offset : offset + limit]), unread=self.unread)

    async def other_turn(self, thread_id: str) -> str:
        return ""

    async def unfinished_calls(self, messages):
        return {}

    async def version(self):
        return -1  # nobody else writes

    async def message(self, message_id):
        return next((m for found in self.messages.values() for m in found if m.id == message_id), None)

    async def within(self, thread_id, text):
        counts = [
            (m, len(compile_phrase(text).findall(join_plain_text(m.parts)))) for m in self.messages.get(thread_id, [])
        ]
        return [MessageMatch(m.id, m.index, n) for m, n in counts if n]

    async def around(self, thread_id, index, before=3, after=3):
        found = self.messages.get(thread_id, [])
        return [m for m in found if index - before <= m.index <= index + after]

    async def origin(self, line_id):
        return self.origins.get(line_id)

    async def threads(self, limit=100):
        return self.all_threads

    async def context(self):
        return self.blocks

    async def models(self):
        return self.known_models

    async def history(self, limit=500):
        return list(self.typed)

    async def add_history(self, text):
        self.typed.append(text)

    async def take_unsent(self):
        return self.unsent

    async def keep_unsent(self, draft, queued, *, left=False):
        self.kept.append((draft, tuple(queued), left))

    async def ui_state(self):
        return dict(self.state)

    async def set_ui_state(self, key, value):
        self.state[key] = value


def board(**columns):
    empty = dict.fromkeys(("ready", "blocked", "in_progress", "closed_today", "containers"), ())
    empty |= {"counts": None, "container_count": 0}
    return SimpleNamespace(**{**empty, **columns})


class FakeWorkspace:
    """Settings and models, as a test sets them."""

    def __init__(self, root: Path, config: Config) -> None:
        self.root = root
        self.resource_id = self.board_id = "r"
        self.env: dict[str, str] = {}
        self.store = SimpleNamespace(path=root / "x.db")
        self.config = config
        self.saved = not config.memory.read_only
        self.clock = FakeClock()
        self.models = SimpleNamespace(selection=None)
        self.level: Level | None = Level("sandboxed")
        self.options = Options(root, config)  # trusted, or with nothing of its own
        self.files = SimpleNamespace(git=SimpleNamespace(branch="main", changed=2))
        self.not_saved = ""
        self.file_list = FileList(root)

    def refused_auto(self) -> str:
        return "" if self.level is not None and self.level.holds else "auto needs a sandbox."


class FakeThread:
    """An open thread, as a test sets it."""

    def __init__(self, session: FakeSession) -> None:
        self._session = session
        self.approval_mode = "ask"
        self.may_edit = False
        self.mode = "default"
        self.status: MemoryStatus | None = None
        self.usage = Usage()

    async def follow(self) -> bool:
        return False

    async def learn(self) -> None:
        models = self._session.workspace.models
        assert models.selection is not None
        self._session.calls.append(("learn",))
        models.selection = ModelChanged(models.selection.model, models.selection.reason, 200_000)
        self._session.emit(models.selection)


class FakeChildren:
    """Children of the open thread, as a test sets them."""

    def __init__(self) -> None:
        self.all: dict = {}
        self.custom: tuple = ()
        self.runs: list = []
        self.running: list = []

    async def list_all(self):
        return [ListedChild(run, run.state, run.in_words) for run in self.runs]


class FakeSession:
    renumber_plan = staticmethod(Session.renumber_plan)

    def __init__(self, workspace: Path, config: Config | None = None) -> None:
        self.workspace = FakeWorkspace(Path(workspace), config or Config())
        self.current = FakeThread(self)
        self.goal_status = ""
        self.skills: dict = {}
        self.thread: Thread | None = None
        self.first_thread = Thread("t1", "r", "fix login redirect", NOW, NOW)
        self.first_model = ModelChanged("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY", 200_000)
        self.busy = False
        self.commands = []
        self.jobs: dict = {}
        self.children = FakeChildren()
        self.queued: tuple[str, ...] = ()
        self.approvals: tuple = ()
        self.views = FakeViews(usage=lambda: self.current.usage)
        self.listeners: list = []
        self.sent: list[str] = []
        self.calls: list[tuple] = []
        self.fail_start: Exception | None = None
        self.gate: asyncio.Event | None = None

    def typed_names(self):
        return frozenset(self.typed_skills())

    def typed_skills(self):
        return self.skills

    def subscribe(self, listener):
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def emit(self, event) -> None:
        if isinstance(event, ThreadChanged):
            self.thread = event.thread
        elif isinstance(event, MemoryStatus):
            self.views.status = event
        elif isinstance(event, StepStarted):
            self.views.request = event.request_tokens
        for listener in list(self.listeners):
            listener(event)

    async def start(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.fail_start is not None:
            raise self.fail_start
        self.workspace.models.selection = self.first_model
        self.emit(self.first_model)
        self.emit(ThreadChanged(self.first_thread))
        if self.current.status is not None:
            self.emit(self.current.status)

    async def warm(self) -> None:
        self.calls.append(("warm",))

    @property
    def aside(self):
        return SimpleNamespace(stop=lambda: self.calls.append(("stop aside",)))

    @property
    def turns(self):
        return self

    async def submit(self, text: str) -> None:
        if (model := self.workspace.models.selection) is None or model.model is None:
            raise NoModelError("Set a key.")
        if self.busy:
            self.queued = (*self.queued, text)
            self.emit(QueueChanged(self.queued))
            return
        self.sent.append(text)
        self.busy = True
        number = len(self.sent)
        self.emit(TurnStarted("t1", user(f"u{number}", text)))

    def finish(self, text: str = "", status: str = "answered", **more) -> None:
        self.busy = False
        if text:
            self.emit(MessageSaved(assistant(f"a{len(self.sent)}", text)))
        self.emit(TurnFinished("t1", status, text, 1, Usage(), **more))

    async def send_queued(self) -> None:
        if self.queued and not self.busy:
            text, *rest = self.queued
            self.queued = tuple(rest)
            self.emit(QueueChanged(self.queued))
            await self.submit(text)

    def unqueue(self, index):
        text = self.queued[index]
        self.queued = (*self.queued[:index], *self.queued[index + 1 :])
        self.emit(QueueChanged(self.queued))
        return text

    async def remove_carried(self, line, *, removed=True) -> None:
        self.views.carried = [replace(c, is_removed=removed) if c == line else c for c in self.views.carried]

    def note_pasted_blocks(self, blocks) -> None:
        self.pasted = blocks

    def background_commands(self) -> dict:
        return self.jobs

    def list_jobs(self) -> dict:
        return self.jobs

    async def end_background(self, number: str) -> list[str]:
        self.calls.append(("end_background", number))
        del self.jobs[number]
        return []

    def stop_command(self, call_id: str = "") -> bool:
        return bool(self.commands) and bool(self.commands.pop())

    async def interrupt(self) -> bool:
        if not self.busy:
            return False
        self.finish(status="interrupted")
        return True

    def resolve(self, approval_id, approved, *, grant="once", note="", edited=None):
        self.calls.append(("resolve", approval_id, approved, grant, note, edited))
        self.approvals = tuple(a for a in self.approvals if a.id != approval_id)
        self.emit(ApprovalResolved(approval_id, approved, note))

    def answer(self, approval_id, answer):
        self.calls.append(("answer", approval_id, answer))
        self.approvals = tuple(a for a in self.approvals if a.id != approval_id)
        self.emit(ApprovalResolved(approval_id, answer.approved, answer.note))

    async def new_thread(self) -> None:
        self.emit(ThreadChanged(Thread("t9", self.workspace.resource_id, "", NOW, NOW)))

    async def open_thread(self, thread_id) -> None:
        self.emit(ThreadChanged(Thread(thread_id, self.workspace.resource_id, f"thread {thread_id}", NOW, NOW)))

    async def rename(self, title) -> None:
        self.emit(ThreadChanged(Thread("t1", self.workspace.resource_id, title, NOW, NOW)))

    async def set_model(self, name) -> None:
        self.emit(ModelChanged(name, "/model", 128_000))

    def prompts(self):
        return []

    def resources(self):
        return []

    def next_approval_mode(self) -> str:
        modes = [m for m in APPROVAL_MODES if m != "auto" or not self.workspace.refused_auto()]
        return modes[(modes.index(self.current.approval_mode) + 1) % len(modes)]

    def set_approval_mode(self, mode) -> None:
        self.current.approval_mode = mode

    async def set_mode(self, mode) -> None:
        self.current.mode = mode

    async def compact(self, focus="") -> None:
        self.calls.append(("compact", focus))

    async def pause_memory(self, *, pause) -> None:
        self.calls.append(("pause", pause))

    async def undo_reflection(self) -> None:
        self.calls.append(("undo_reflection",))

    async def undo_compaction(self) -> bool:
        self.calls.append(("undo",))
        return False

    async def follow_undo(self):
        return ""

    async def follow(self):
        pass

    async def require_thread(self):
        pass

    def compact_preview(self):
        return 38, 21_400, 2_100

    async def shell(self, command) -> None:
        self.calls.append(("shell", command))

    async def note(self, text) -> None:
        self.calls.append(("note", text))

    async def retry(self) -> None:
        self.calls.append(("retry",))

    async def close(self) -> None:
        self.calls.append(("close",))


def user(id: str, text: str, index: int = -1, **more) -> Message:
    return Message(id, "t1", "r", "user", (TextPart(text),), NOW, index=index, **more)


def assistant(id: str, text: str, index: int = -1, parts=()) -> Message:
    return Message(id, "t1", "r", "assistant", (TextPart(text), *parts), NOW, index=index)
