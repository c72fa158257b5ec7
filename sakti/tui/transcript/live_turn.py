"""Show a running turn: events become blocks at the end of a `Document`; only its end changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from sakti.core.events import AgentFinished, AgentProgress, AgentStarted
from sakti.core.text import sanitize_text, to_one_line
from sakti.core.types import Message, ToolCallPart, ToolResultPart
from sakti.tui.transcript.blocks import (
    Block,
    ChunkBlock,
    Label,
    NoticeBlock,
    TextBlock,
    ThinkingBlock,
    WaitingBlock,
)
from sakti.tui.transcript.build import make_message_blocks, make_user_blocks, needs_gap
from sakti.tui.transcript.chunks import Splitter
from sakti.tui.transcript.document import Document
from sakti.tui.transcript.tool import ToolBlock

if TYPE_CHECKING:
    from sakti.agent.subagents.children import ListedChild


class OwnCommand(Struct):
    """A command of the user and the blocks that show it."""

    command: str
    call: ToolBlock
    blocks: tuple[Block, ...]


class Waiting(Struct):
    """Placeholder of the coming answer; `label`: a heading added for it, `before`: the previous speaker."""

    block: WaitingBlock
    label: Label | None
    before: str


class LiveTurn:
    """`changed` is called when a redraw is needed, with True if the user is waiting for it.

    `draw` then updates the document. `clock` returns seconds, `wall_time` Unix milliseconds.

    Blocks added while an answer streams that are not part of it (a user's command, a notice, a card) wait below the
    answer until its step is stored: the last `_waiting_below` blocks.
    """

    def __init__(
        self,
        document: Document,
        changed: Callable[[bool], None],
        clock: Callable[[], float] = lambda: 0.0,
        wall_time: Callable[[], int] = lambda: 0,
    ) -> None:
        self.document = document
        self.answer: list[str] = []
        self.seen: set[str] = set()
        self.outside_count = 0  # number of blocks that do not belong to an answer
        self._draw_soon = changed
        self._clock, self._wall_time = clock, wall_time
        self._undated: Label | None = None  # label of an answer that is not stored yet; it shows the time of its start
        self._splitter: Splitter | None = None
        self._sealed = 0  # blocks before the open tail of the answer
        self._open_tail = False
        self._thinking: ThinkingBlock | None = None
        self._tools: dict[str, ToolBlock] = {}
        self.children: dict[str, ToolBlock] = {}  # calls of the running child threads
        self._own_commands: list[OwnCommand] = []  # the user's commands whose messages are not stored yet
        self._stale: set[int] = set()
        self._speaker = ""
        self._step_start = 0
        self._in_turn = False
        self._streaming = False  # whether unstored content of a step is shown
        self._waiting_below = 0
        self._wait: Waiting | None = None
        self._has_carriage_return = False

    def reset(self, keep: Sequence[Block] = ()) -> str:
        """Reset for another thread or a cleared screen; the blocks `keep` stay.

        Returns the text of the wait that was shown, or "".
        """
        self._splitter = self._thinking = None
        self._open_tail = self._streaming = False
        kept_ids = set(map(id, keep))
        self._tools = {i: b for i, b in self._tools.items() if id(b) in kept_ids}
        self._own_commands = [o for o in self._own_commands if id(o.call) in kept_ids]
        self._stale.clear()
        self._step_start = self._sealed = self._waiting_below = 0
        self._speaker = ""
        awaited, self._wait = self._wait.block.text if self._wait is not None else "", None
        return awaited

    def shift(self, added: int) -> None:
        """Note that `added` blocks were inserted at the start."""
        self._step_start += added
        self._sealed += added

    def draw(self) -> None:
        """Draw the open end of the answer and the changed blocks."""
        if self._splitter is not None:
            self._drop_tail()
            self._sealed = self._end
            tail = self._splitter.tail()
            if tail is not None:
                self._add(ChunkBlock(gap=self._needs_gap(tail.gap), chunk=tail))
                self._open_tail = True
        for index in range(self._blocks - 1, -1, -1):
            if not self._stale:
                break
            key = id(self.document.blocks[index])
            if key in self._stale:
                self.document.redraw(index)
                self._stale.discard(key)
        self._stale.clear()

    # --- clocks -----------------------------------------------------------------------------------------------

    @property
    def has_clock(self) -> bool:
        """Return whether a clock is shown."""
        return self._wait is not None or any(b.state in ("running", "waiting") for b in self._tools.values())

    def tick(self) -> None:
        """Advance the clocks by a second."""
        now = self._clock()
        blocks = [*self._tools.values(), *([self._wait.block] if self._wait is not None else [])]
        for block in blocks:
            if block.tick(now):
                self._mark_stale(block)

    # --- input of the user --------------------------------------------------------------------------------------

    def show_user(self, message: Message) -> None:
        """Show a message of the user, typed now or delivered from the queue."""
        if message.id in self.seen:
            return
        self.seen.add(message.id)
        if (command := message.metadata.get("shell")) is not None:  # already on the screen
            self._claim_own(str(command), message.id)
            return
        if "hook" in message.metadata:  # its notice is already on the screen
            self._end_step()
            self._speaker = "you"
            self.answer = []
            self._step_start = self._blocks
            return
        self._end_step()
        self.document.append(*make_user_blocks(message))
        self._speaker = "you"
        self.answer = []
        self._step_start = self._blocks
        self._request_draw()

    def begin_shell(self, command: str) -> ToolBlock:
        """Show a `!command` of the user, with its output below."""
        call = ToolBlock(name="bash", own=True)
        call.set_state("running", self._clock())
        blocks = (Label(who="you", created_at=self._wall_time()), TextBlock(text=f"!{command}"), call)
        self._own_commands.append(OwnCommand(command, call, blocks))
        self._place(*blocks)
        return call

    def fail_shell(self, call: ToolBlock) -> None:
        """Mark a command of the user as not run."""
        self._own_commands = [o for o in self._own_commands if o.call is not call]
        if call.state == "running":
            call.set_state("stopped", 0.0)
            self._mark_stale(call)

    def _claim_own(self, command: str, message_id: str) -> None:
        """Assign the blocks of a user's command to its stored message."""
        for pending in self._own_commands:
            if pending.command == command and pending.call.call_id:
                for block in pending.blocks:
                    block.message_id = message_id
                self._own_commands.remove(pending)
                return

    # --- steps of a turn ----------------------------------------------------------------------------------------

    def begin_wait(self, text: str = "thinking") -> None:
        """Show `text` as the current state in place of the coming answer."""
        self._in_turn = True
        if self._streaming:
            return
        self._stop_wait(label=True)
        label = None if self._speaker == "sakti" else self._begin_label()
        block = WaitingBlock(text=text, since=self._clock(), gap=label is None)
        self._add(*([label] if label is not None else []), block)
        self._wait = Waiting(block, label, self._speaker)
        self._speaker = "sakti"
        self._request_draw()

    def begin_step(self, waiting: str = "thinking") -> None:
        self._end_step()
        self._step_start = self._blocks
        self.begin_wait(waiting)

    def add_text(self, delta: str) -> None:
        """Add a piece of the answer."""
        delta = self._clean(delta)
        if not delta:
            return
        if self._splitter is None:
            self._close_thinking()
            self._begin_content()
            self._splitter = Splitter()
            self._sealed = self._end
            self._draw_soon(True)  # the user is waiting for the first token
        self.answer.append(delta)
        for chunk in self._splitter.feed(delta):
            self._drop_tail()
            self._add(ChunkBlock(gap=self._needs_gap(chunk.gap), chunk=chunk))
            self._sealed = self._end
        self._request_draw()

    def add_thinking(self, delta: str) -> None:
        delta = self._clean(delta)
        if self._thinking is None:
            self._close_text()
            self._begin_content()
            self._thinking = ThinkingBlock(gap=not self._is_under_label(), done=False)
            self._add(self._thinking)
            self._draw_soon(True)
        self._thinking.text += delta
        self._mark_stale(self._thinking)

    def write_call(self, call_id: str, name: str, text: str) -> None:
        """Show that the model is writing a call's arguments."""
        block = self._get_tool_block(call_id, to_one_line(name, 40))
        block.write(sanitize_text(text))
        self._mark_stale(block)

    def start_tool(self, call: ToolCallPart, *, own: bool = False) -> None:
        """Show that a call starts; `own`: the user started it."""
        if own:
            self._start_own(call)
            return
        block = self._get_tool_block(call.id, to_one_line(call.name, 40))
        self._finish_step()
        if block.state != "waiting":  # its question arrives before its start
            block.start(call, self._clock())
        self._mark_stale(block)

    def _start_own(self, call: ToolCallPart) -> None:
        command = str((call.arguments or {}).get("command", ""))
        if not any(o.command == command and not o.call.call_id for o in self._own_commands):
            self.begin_shell(command)
        block = next(o.call for o in self._own_commands if o.command == command and not o.call.call_id)
        block.call_id, block.arguments = call.id, call.arguments or {}
        block.set_state("running", self._clock())
        self._tools[call.id] = block
        self._mark_stale(block)

    def set_state(self, call_id: str, state: Literal["waiting", "running"]) -> None:
        """Show whether a call waits for the user's answer."""
        if (block := self._tools.get(call_id)) is not None:
            block.set_state(state, self._clock())
            self._mark_stale(block)

    def add_output(self, call_id: str, text: str, progress: str = "") -> None:
        if block := self._tools.get(call_id):
            block.add_output(text)
            block.progress = to_one_line(progress, 120) or block.progress
            self._mark_stale(block)

    def show_child(self, event: AgentStarted | AgentProgress | AgentFinished) -> None:
        """Show the progress of a child thread at the call that started it."""
        if isinstance(event, AgentStarted):
            if (started := self._tools.get(event.call_id)) is not None:
                self.children[event.child_id] = started
                started.child_id, started.child_state = event.child_id, "running"
        elif (block := self.children.get(event.child_id)) is not None:
            block.show_progress(event)
            if isinstance(event, AgentFinished):
                del self.children[event.child_id]
            self._mark_stale(block)

    def show_stored_children(self, children: Iterable[ListedChild]) -> None:
        """Show the current states of child threads at their calls, in a thread that was loaded."""
        calls = {b.call_id: b for b in self.document.blocks if isinstance(b, ToolBlock)}
        for child in children:
            if (block := calls.get(child.run.call_id)) is None:
                continue
            block.child_id = child.run.child_id
            if child.state in ("waiting", "running"):
                self.children[block.child_id] = block
            if block.child_state != child.state or not block.progress:
                block.show_run(child.state, child.in_words)
                self._mark_stale(block)

    def finish_tool(self, result: ToolResultPart, duration_ms: int) -> None:
        if block := self._tools.pop(result.call_id, None):
            block.finish(result, duration_ms)
            self._mark_stale(block)

    def discard_step(self, reason: str) -> None:
        """Remove the streamed blocks of this step."""
        self._stop_wait(label=True)
        self._splitter = self._thinking = None
        self._open_tail = self._streaming = False
        self._tools = {i: b for i, b in self._tools.items() if b.own}
        self._stale.clear()
        self.answer = []
        self.document.remove(self._step_start, self._end)
        if not any(isinstance(b, Label) and b.who == "sakti" for b in self.document.blocks[: self._end][-1:]):
            self._speaker = "" if self._speaker == "sakti" else self._speaker
        self._keep_waiting()
        self.add_block(NoticeBlock(tone="warning", title="Started over", text=reason))

    def attach(self, message: Message) -> None:
        """Assign the blocks that were drawn live to the stored `message`."""
        if message.role == "user":
            self.show_user(message)
            return
        self.seen.add(message.id)
        mine = self.document.blocks[self._step_start : self._end]
        if message.role == "assistant":
            self._close_text()
            self._plan_calls(message, {b.call_id for b in mine if isinstance(b, ToolBlock)})
            for block in self.document.blocks[self._step_start : self._end]:
                block.message_id = block.message_id or message.id
            self._date_label(message)
            self._finish_step()
        _attach_results(mine, message)

    def _date_label(self, message: Message) -> None:
        """Show the time of an answer's first message in its label, as for stored messages."""
        labels = (b for b in reversed(self.document.blocks[: self._end]) if isinstance(b, Label))
        label = next(labels, None)
        if label is not None and label.who == "sakti" and (label is self._undated or not label.created_at):
            label.created_at, self._undated = message.created_at, None
            self._mark_stale(label)

    def _plan_calls(self, message: Message, shown: Set[str]) -> None:
        """Complete the blocks of streamed calls, and add those that were not streamed."""
        for call in message.tool_calls:
            if call.id in self._tools or call.id not in shown:
                block = self._get_tool_block(call.id, to_one_line(call.name, 40))
                if block.state == "writing":
                    block.plan(call)
                    self._mark_stale(block)

    def add_stored(self, messages: Sequence[Message]) -> None:
        """Append messages that another window wrote, oldest first."""
        self._end_step()
        self._finish_stored_calls(messages)
        blocks, above = make_message_blocks(messages), self.document.blocks[-1:]
        goes_on = self._speaker == "sakti" or any(isinstance(b, ToolBlock) and not b.own for b in above)
        if goes_on and blocks and isinstance(blocks[0], Label) and blocks[0].who == "sakti":
            del blocks[0]
        self.document.append(*blocks)
        self._speaker = "you" if messages[-1].role == "user" else "sakti"
        self._step_start = self._blocks
        self._request_draw()

    def show_other_turn(self, state: Literal["", "waiting", "running"]) -> None:
        """Show the state of a turn in another window at the calls without a result; "": it has ended."""
        for block in takewhile(lambda b: not (isinstance(b, Label) and b.who == "you"), reversed(self.document.blocks)):
            if isinstance(block, ToolBlock) and not (block.result_id or block.own or block.call_id in self._tools):
                block.elsewhere = bool(state)
                if block.state != (state or "stopped"):
                    block.set_state(state or "stopped", 0.0)
                    self._mark_stale(block)

    def _finish_stored_calls(self, messages: Sequence[Message]) -> None:
        """Attach the results in `messages` to their calls."""
        calls = {b.call_id: b for b in self.document.blocks if isinstance(b, ToolBlock)}
        for message in messages:
            self.seen.add(message.id)
            for result in message.tool_results:
                if (call := calls.get(result.call_id)) is not None:
                    call.finish(result, None)
                    call.result_id = message.id
                    self._mark_stale(call)

    def resume(self, thinking: str, text: str) -> None:
        """Continue a running turn: its open calls, and the streamed part of its answer."""
        for block in self.document.blocks:
            if isinstance(block, ToolBlock) and block.state == "stopped" and not block.result_id:
                block.set_state("running", self._clock())
                self._tools[block.call_id] = block
                self._mark_stale(block)
        if not self._tools:
            self.begin_step()
        if thinking:
            self.add_thinking(thinking)
        if text:
            self.add_text(text)

    def end_turn(self) -> None:
        """End the turn: close everything except commands of the user."""
        self._end_step()
        for block in self._tools.values():
            if not block.own:
                block.set_state("stopped", 0.0)
                self._mark_stale(block)
        self._tools = {i: b for i, b in self._tools.items() if b.own}
        self._in_turn = False
        self._request_draw()

    def add_block(self, block: Block) -> None:
        """Add a notice or card below the current message, never inside it."""
        self._place(block)

    @property
    def has_content(self) -> bool:
        """Return whether a turn already has content on the screen."""
        return self._speaker != ""

    @property
    def last_answer(self) -> str:
        """Return the Markdown of the newest answer so far."""
        return "".join(self.answer).strip()

    def _clean(self, delta: str) -> str:
        if self._has_carriage_return:
            delta, self._has_carriage_return = "\r" + delta, False
        if delta.endswith("\r"):
            delta, self._has_carriage_return = delta[:-1], True
        return sanitize_text(delta)

    # --- placing blocks -----------------------------------------------------------------------------------------

    def _place(self, *blocks: Block) -> None:
        """Place blocks outside the answer: below it while it streams, above it while it is awaited."""
        self.outside_count += len(blocks)
        if self._streaming:
            self.document.append(*blocks)
            self._waiting_below += len(blocks)
            self._request_draw()
            return
        awaited = self._wait.block if self._wait is not None else None
        self._stop_wait(label=True)
        self.document.append(*blocks)
        if isinstance(blocks[0], Label):
            self._speaker = blocks[0].who
        elif not self._in_turn:
            self._speaker = ""
        if awaited is not None:
            self._step_start = self._blocks
            self.begin_wait(awaited.text)
            if self._wait is not None:
                self._wait.block.since, self._wait.block.elapsed = awaited.since, awaited.elapsed
        self._request_draw()

    def _stop_wait(self, *, label: bool = False) -> None:
        """Remove the placeholder of the answer; with `label`, also its heading."""
        if self._wait is None:
            return
        wait, self._wait = self._wait, None
        gone = 2 if label and wait.label is not None else 1
        self.document.remove(self._end - gone, self._end)
        if gone == 2:
            self._speaker = wait.before

    def _begin_content(self) -> None:
        """Prepare to show content of a step."""
        self._stop_wait()
        self._streaming = True
        self._label()

    def _finish_step(self) -> None:
        """Finish the streamed part of a step; blocks that waited below it stay there."""
        self._streaming = False
        self._keep_waiting()

    def _keep_waiting(self) -> None:
        held = self.document.blocks[self._end :]
        self._waiting_below = 0
        if any(isinstance(b, Label) for b in held):
            self._speaker = "you"

    def _end_step(self) -> None:
        self._stop_wait(label=True)
        self._close_text()
        self._close_thinking()
        self._finish_step()

    def _label(self) -> None:
        if self._speaker != "sakti":
            self._speaker = "sakti"
            self._add(self._begin_label())

    def _begin_label(self) -> Label:
        """Return the label of an answer that begins now."""
        self._undated = Label(who="sakti", created_at=self._wall_time())
        return self._undated

    @property
    def _blocks(self) -> int:
        return len(self.document.blocks)

    @property
    def _end(self) -> int:
        """Return the index at which the answer continues."""
        return self._blocks - self._waiting_below

    def _add(self, *blocks: Block) -> None:
        """Add blocks of the answer, above the blocks that wait below it."""
        if self._waiting_below:
            self.document.insert(self._end, blocks)
        else:
            self.document.append(*blocks)

    def _is_under_label(self) -> bool:
        return self._end > 0 and isinstance(self.document.blocks[self._end - 1], Label)

    def _needs_gap(self, gap: bool) -> bool:
        return gap and not self._is_under_label()

    def _get_tool_block(self, call_id: str, name: str) -> ToolBlock:
        block = self._tools.get(call_id)
        if block is None:
            self._close_text()
            self._close_thinking()
            self._begin_content()
            above = self.document.blocks[max(0, self._end - 1) : self._end]
            block = ToolBlock(call_id=call_id, name=name, gap=needs_gap(above))
            self._tools[call_id] = block
            self._add(block)
        return block

    def _close_text(self) -> None:
        if self._splitter is None:
            return
        self._drop_tail()
        for chunk in self._splitter.finish():
            self._add(ChunkBlock(gap=self._needs_gap(chunk.gap), chunk=chunk))
        self._splitter = None
        self._request_draw()

    def _close_thinking(self) -> None:
        if self._thinking is not None:
            self._thinking.done = True
            self._mark_stale(self._thinking)
            self._thinking = None

    def _drop_tail(self) -> None:
        if self._open_tail:
            self.document.remove(self._sealed, self._end)
            self._open_tail = False

    def _request_draw(self) -> None:
        self._draw_soon(False)

    def _mark_stale(self, block: Block) -> None:
        self._stale.add(id(block))
        self._request_draw()


def _attach_results(blocks: Iterable[Block], message: Message) -> None:
    """Link the calls among `blocks` to `message`, which has their results."""
    answered = {r.call_id for r in message.tool_results}
    for block in blocks:
        if isinstance(block, ToolBlock) and block.call_id in answered:
            block.result_id = message.id
