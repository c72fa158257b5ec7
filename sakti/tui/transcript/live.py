"""One turn as it happens: events become blocks at the end of a `Document`, and only the last text is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sakti.core.text import one_line, sanitise
from sakti.core.types import Message, ToolCallPart, ToolResultPart
from sakti.tui.transcript.blocks import (
    Block,
    ChunkBlock,
    Label,
    NoticeBlock,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
)
from sakti.tui.transcript.build import message_blocks, tool_gap, user_blocks
from sakti.tui.transcript.document import Document
from sakti.tui.transcript.split import Splitter


class LiveTurn:
    """Turn under way; `changed` is called whenever something has to be drawn.

    It gets True where the user waits for just that; `draw` then brings the document up to date.
    """

    def __init__(self, document: Document, changed: Callable[[bool], None]) -> None:
        self.document = document
        self.answer: list[str] = []
        self.seen: set[str] = set()
        self._draw_soon = changed
        self._splitter: Splitter | None = None
        self._sealed = 0  # blocks before the open tail of the answer
        self._open_tail = False
        self._thinking: ThinkingBlock | None = None
        self._tools: dict[str, ToolBlock] = {}
        self._stale: set[int] = set()
        self._speaker = ""
        self._step_start = 0
        self._carriage = False

    def reset(self) -> None:
        """Another thread, or an empty screen."""
        self._splitter = self._thinking = None
        self._open_tail = False
        self._tools.clear()
        self._stale.clear()
        self._step_start = self._sealed = 0
        self._speaker = ""

    def shift(self, added: int) -> None:
        """`added` blocks were put before everything."""
        self._step_start += added
        self._sealed += added

    def draw(self) -> None:
        """The open end of the answer, and the blocks that changed, as they are now."""
        if self._splitter is not None:
            self._drop_tail()
            self._sealed = self._blocks
            tail = self._splitter.tail()
            if tail is not None:
                self.document.append(ChunkBlock(gap=self._chunk_gap(tail.gap), chunk=tail))
                self._open_tail = True
        for index in range(self._blocks - 1, -1, -1):
            if not self._stale:
                break
            key = id(self.document.blocks[index])
            if key in self._stale:
                self.document.changed(index)
                self._stale.discard(key)
        self._stale.clear()

    def show_user(self, message: Message) -> None:
        """A message of the user, typed now or delivered from the queue."""
        if message.id in self.seen:
            return
        self.seen.add(message.id)
        self._close_text()
        if message.metadata.get("shell"):
            return  # its tool line is on the screen already
        self.document.append(*user_blocks(message))
        self._speaker = "you"
        self.answer = []
        self._step_start = self._blocks
        self._changed()

    def begin_shell(self, command: str) -> None:
        """The user's own `!command`: what it prints stands under what was typed."""
        self._close_text()
        self.document.append(Label(who="you"), TextBlock(text=f"!{command}"))
        self._speaker = "sakti"
        self._changed()

    def begin_step(self) -> None:
        self._close_text()
        self._step_start = self._blocks

    def add_text(self, delta: str) -> None:
        """A piece of the answer."""
        delta = self._clean(delta)
        if not delta:
            return
        if self._splitter is None:
            self._close_thinking()
            self._label()
            self._splitter = Splitter()
            self._sealed = self._blocks
            self._draw_soon(True)  # the first token is what one waits for
        self.answer.append(delta)
        for chunk in self._splitter.feed(delta):
            self._drop_tail()
            self.document.append(ChunkBlock(gap=self._chunk_gap(chunk.gap), chunk=chunk))
            self._sealed = self._blocks
        self._changed()

    def add_thinking(self, delta: str) -> None:
        delta = self._clean(delta)
        if self._thinking is None:
            self._close_text()
            self._label()
            self._thinking = ThinkingBlock(gap=not self._under_label(), done=False)
            self.document.append(self._thinking)
            self._draw_soon(True)
        self._thinking.text += delta
        self._touch(self._thinking)

    def write_call(self, call_id: str, name: str, text: str) -> None:
        """The model is writing a call's arguments."""
        block = self._tool(call_id, one_line(name, 40))
        block.write(sanitise(text))
        self._touch(block)

    def start_tool(self, call: ToolCallPart) -> None:
        block = self._tool(call.id, one_line(call.name, 40))
        block.start(call)
        self._touch(block)

    def add_output(self, call_id: str, text: str) -> None:
        if block := self._tools.get(call_id):
            block.add_output(text)
            if block.open:
                self._touch(block)

    def finish_tool(self, result: ToolResultPart, duration_ms: int) -> None:
        if block := self._tools.pop(result.call_id, None):
            block.finish(result, duration_ms)
            self._touch(block)

    def discard_step(self, reason: str) -> None:
        """What was streamed of this step is void."""
        self._splitter = self._thinking = None
        self._open_tail = False
        self._tools.clear()
        self._stale.clear()
        self.answer = []
        self.document.truncate(self._step_start)
        if not any(isinstance(b, Label) and b.who == "sakti" for b in self.document.blocks[-1:]):
            self._speaker = "" if self._speaker == "sakti" else self._speaker
        self.add_block(NoticeBlock(tone="warning", title="Started over", text=reason))

    def claim(self, message: Message) -> None:
        """`message` is stored: the blocks that were drawn for it live belong to it now."""
        if message.role == "user":
            self.show_user(message)
            return
        self.seen.add(message.id)
        if message.role == "assistant":
            self._close_text()
            for block in self.document.blocks[self._step_start :]:
                block.message_id = block.message_id or message.id
        answered = {r.call_id for r in message.tool_results}
        for block in self.document.blocks[self._step_start :] if answered else ():
            if isinstance(block, ToolBlock) and block.call_id in answered:
                block.result_id = message.id

    def add_stored(self, messages: Sequence[Message]) -> None:
        """Messages that another window wrote, oldest first, below what is shown."""
        self._close_text()
        calls = {b.call_id: b for b in self.document.blocks if isinstance(b, ToolBlock)}
        for message in messages:
            self.seen.add(message.id)
            for result in message.tool_results:
                if (call := calls.get(result.call_id)) is not None:
                    call.finish(result, None)
                    call.result_id = message.id
                    self._touch(call)
        blocks = message_blocks(messages)
        if blocks and isinstance(blocks[0], Label) and blocks[0].who == self._speaker == "sakti":
            del blocks[0]
        for block in blocks:
            if isinstance(block, ToolBlock) and block.state == "stopped":
                block.state = "running"  # its result is still to come
        self.document.append(*blocks)
        self._speaker = "you" if messages[-1].role == "user" else "sakti"
        self._step_start = self._blocks
        self._changed()

    def end_turn(self) -> None:
        """No more comes: nothing stays open."""
        self._close_text()
        self._close_thinking()
        for block in self._tools.values():
            block.state = "stopped"
            self._touch(block)
        self._tools.clear()
        self._changed()

    def add_block(self, block: Block) -> None:
        """A notice or a card at the end."""
        self._close_text()
        self.document.append(block)
        self._speaker = ""
        self._changed()

    @property
    def speaking(self) -> bool:
        """A turn has something on the screen already."""
        return self._speaker != ""

    @property
    def last_answer(self) -> str:
        """The Markdown of the newest answer, as far as it has come."""
        return "".join(self.answer).strip()

    def _clean(self, delta: str) -> str:
        if self._carriage:
            delta, self._carriage = "\r" + delta, False
        if delta.endswith("\r"):
            delta, self._carriage = delta[:-1], True
        return sanitise(delta)

    def _label(self) -> None:
        if self._speaker != "sakti":
            self._speaker = "sakti"
            self.document.append(Label(who="sakti"))

    @property
    def _blocks(self) -> int:
        return len(self.document.blocks)

    def _under_label(self) -> bool:
        return self._blocks > 0 and isinstance(self.document.blocks[-1], Label)

    def _chunk_gap(self, gap: bool) -> bool:
        return gap and not self._under_label()

    def _tool(self, call_id: str, name: str) -> ToolBlock:
        block = self._tools.get(call_id)
        if block is None:
            self._close_text()
            self._close_thinking()
            self._label()
            block = ToolBlock(call_id=call_id, name=name, gap=tool_gap(self.document.blocks))
            self._tools[call_id] = block
            self.document.append(block)
        return block

    def _close_text(self) -> None:
        if self._splitter is None:
            return
        self._drop_tail()
        for chunk in self._splitter.finish():
            self.document.append(ChunkBlock(gap=self._chunk_gap(chunk.gap), chunk=chunk))
        self._splitter = None
        self._changed()

    def _close_thinking(self) -> None:
        if self._thinking is not None:
            self._thinking.done = True
            self._touch(self._thinking)
            self._thinking = None

    def _drop_tail(self) -> None:
        if self._open_tail:
            self.document.truncate(self._sealed)
            self._open_tail = False

    def _changed(self) -> None:
        self._draw_soon(False)

    def _touch(self, block: Block) -> None:
        self._stale.add(id(block))
        self._changed()
