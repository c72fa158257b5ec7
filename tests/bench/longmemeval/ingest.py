"""Play a conversation into the real engine, through the importers' writer, at its original times."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from sakti.core.clock import SystemClock
from sakti.core.config import MemorySettings
from sakti.core.tokens import Counter
from sakti.core.types import Block, Message, TextPart
from sakti.importers.entries import Entry, ThreadInfo
from sakti.importers.inputs import make_text_part
from sakti.importers.writer import BATCH, ImportWriter
from sakti.memory.engine import MemoryEngine
from sakti.memory.protocol import Observer, Reflector
from sakti.memory.state import MemoryOptions, MemoryServices
from sakti.store import imports
from sakti.store.database import Store
from sakti.store.imports import THREAD
from sakti.store.maintenance import upkeep
from sakti.store.threads import messages, threads
from tests.bench.bench_store import BenchIds
from tests.bench.longmemeval.formats import BenchConversation, BenchTurn

WORKSPACE = "/bench"
PROGRAM = "bench"


class FollowingClock(SystemClock):
    """Clock whose date is that of the newest message; durations and waiting are real."""

    def __init__(self, now: int) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def follow(self, time: int) -> None:
        self.time = max(self.time, time)


class MemoryArm(Struct, frozen=True):
    """Engine settings of an arm; `observes`: through the engine's turns, else messages are only stored.

    `whole`: the context is the complete conversation.
    """

    settings: MemorySettings
    observer: Observer
    reflector: Reflector
    whole: bool = False


class Ingested(Struct, frozen=True):
    """Conversation in a store.

    `stored` maps the ids of turns to the ids of their messages, `blocks` and `messages` are the context of the next
    request; `ranges`: first and last index of the messages behind each group of the log, `order` their ids.
    """

    store: Store
    engine: MemoryEngine | None
    thread_id: str
    stored: dict[str, str]
    order: tuple[str, ...]
    blocks: tuple[Block, ...]
    messages: tuple[Message, ...]
    ranges: tuple[tuple[int, int], ...]
    log_tokens: int
    window_tokens: int


@asynccontextmanager
async def ingest(
    conversation: BenchConversation, arm: MemoryArm, counter: Counter, folder: Path, seed: int
) -> AsyncGenerator[Ingested]:
    """Store a conversation as one thread in a new database of `folder`, and yield what memory made of it."""
    clock = FollowingClock(conversation.turns[0].time)
    store = await Store.open(folder / "memory.db", clock=clock, ids=BenchIds(clock, seed), synchronous="NORMAL")
    player = _Player(store, clock, conversation, arm, counter)
    try:
        yield await player.play()
    finally:
        await player.close()
        await store.close()


class _Player:
    def __init__(
        self, store: Store, clock: FollowingClock, conversation: BenchConversation, arm: MemoryArm, counter: Counter
    ) -> None:
        self._store, self._clock, self._arm, self._counter = store, clock, arm, counter
        self._conversation = conversation
        self._writer = ImportWriter(PROGRAM, store.ids.new(), store.ids, counter, lambda _cwd: WORKSPACE)
        self._info = ThreadInfo(conversation.id, title=conversation.id, cwd=WORKSPACE)
        self._engine: MemoryEngine | None = None
        self._step = 0

    async def play(self) -> Ingested:
        turns = self._conversation.turns
        if self._arm.whole:
            for start in range(0, len(turns), BATCH):
                await self._write(turns[start : start + BATCH])
        else:
            for turn in turns:
                await self._add(turn)
            await self._end_turn()
        await upkeep.merge_indexes(self._store)
        return await self._ingested()

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    async def _write(self, turns: Sequence[BenchTurn]) -> None:
        entries = [
            Entry(self._info, self._key(t), t.role, (TextPart(t.text), *make_text_part(t.picture)), t.time)
            for t in turns
        ]
        await self._store.write(self._writer.write, entries)

    def _key(self, turn: BenchTurn) -> str:
        return f"{self._conversation.id}/{turn.id}"

    async def _add(self, turn: BenchTurn) -> None:
        """Store a turn and show it to the engine, as if the conversation took place here."""
        if turn.role == "user" and self._step:
            await self._end_turn()
        if turn.role == "assistant" and self._engine is not None:
            if self._step == 0:
                await self._engine.begin_turn(provider="bench", model="bench")
            self._step += 1
            await self._engine.prepare(step=self._step)
            await self._engine.wait_idle()  # the clock must not move while something is observed
        self._clock.follow(turn.time)
        await self._write((turn,))
        thread_id = await self._thread_id()
        if self._engine is None:
            self._engine = await self._open(thread_id)
        else:
            (message,) = await self._store.read(messages.list_page, thread_id, limit=1)
            self._engine.add(message)

    async def _end_turn(self) -> None:
        if self._engine is not None:
            await self._engine.end_turn()
            await self._engine.wait_idle()
        self._step = 0

    async def _thread_id(self) -> str:
        key = THREAD + self._info.id
        return (await self._store.read(imports.find_entries, PROGRAM, [key]))[key].thread_id

    async def _open(self, thread_id: str) -> MemoryEngine:
        engine = MemoryEngine(
            MemoryServices(self._store, self._counter, lambda _event: None),
            MemoryOptions(settings=self._arm.settings, timezone="UTC"),
            self._arm.observer,
            self._arm.reflector,
        )
        thread = await self._store.read(threads.get, thread_id)
        assert thread is not None
        await engine.open(thread)
        return engine

    async def _ingested(self) -> Ingested:
        thread_id = await self._thread_id()
        keys = {self._key(t): t.id for t in self._conversation.turns}
        origins = await self._store.read(imports.find_entries, PROGRAM, list(keys))
        stored = {keys[key]: str(origin.message_id) for key, origin in origins.items()}
        everything = await self._store.read(messages.list_page, thread_id, limit=len(keys))
        engine, prepared = self._engine, None
        if engine is not None:
            prepared = engine.preview()
        groups = engine.state.window.active if engine is not None else ()
        sent = prepared.messages if prepared is not None else tuple(everything)
        return Ingested(
            self._store,
            engine,
            thread_id,
            stored,
            tuple(m.id for m in everything),
            prepared.blocks if prepared is not None else (),
            sent,
            tuple(
                (g.first_index, g.last_index) for g in groups if g.first_index is not None and g.last_index is not None
            ),
            sum(self._counter.count(b.text) for b in prepared.blocks) if prepared is not None else 0,
            sum(m.tokens for m in sent),
        )
