"""Build the blocks of stored messages, equal to those that a live turn produces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from sakti.core.events import TURN_ENDS
from sakti.core.text import FOLD_LINES, count_lines, format_bytes, format_count, sanitize_text, to_one_line
from sakti.core.types import (
    PASTED,
    FilePart,
    ImagePart,
    Json,
    MarkerPart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.tui.transcript.blocks import (
    Block,
    ChunkBlock,
    Label,
    NoticeBlock,
    TextBlock,
    ThinkingBlock,
)
from sakti.tui.transcript.chunks import split
from sakti.tui.transcript.tool import ToolBlock

if TYPE_CHECKING:
    from sakti.agent.session.queries import UnfinishedCall


def make_end_notice(status: str, title: str, text: str, message_id: str = "") -> NoticeBlock:
    tone = "error" if status in ("error", "no_model") else "warning"
    return NoticeBlock(message_id, tone=tone, title=title or TURN_ENDS.get(status, status), text=text)


def find_end_notice(message: Message) -> NoticeBlock | None:
    """Return the stored notice of a turn that ended without an answer, else None."""
    ended = message.metadata.get("ended")
    if not isinstance(ended, dict):
        return None
    status, title, text = (str(ended.get(k) or "") for k in ("status", "title", "text"))  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
    return make_end_notice(status, title, text, message.id) if status else None


_MARKERS = {
    "interrupted": "interrupted",
    "error": "stopped by an error",
    "model_changed": "model",
    "activation": "memory",
    "limit": "step limit",
    "cut": "answer cut",
    "hook": "hook",
}
_NOTICED = ("interrupted", "error", "cut")


def make_message_blocks(
    messages: Iterable[Message], unfinished: Mapping[str, UnfinishedCall] = MappingProxyType({})
) -> list[Block]:
    """Return `messages`, oldest first, as blocks.

    A result joins the call it answers; consecutive messages of the agent share one label. Calls without a result were
    stopped, except the `unfinished` ones.
    """
    blocks: list[Block] = []
    calls: dict[str, ToolBlock] = {}
    speaker = ""
    ordered = _order_messages(messages)
    ended_ids = _find_noticed_endings(ordered)
    for message in ordered:
        if message.role == "user":
            speaker = "you"
            blocks += make_user_blocks(message)
        elif message.role == "assistant" and speaker != "sakti":
            speaker = "sakti"
            blocks.append(Label(message.id, who="sakti", created_at=message.created_at))
        for part in _list_parts(message, message.id in ended_ids):
            _add_part(part, message, blocks, calls)
        if (ended := find_end_notice(message)) is not None:
            blocks.append(ended)
    for call in calls.values():
        if call.state == "running" and (now := unfinished.get(call.call_id)) is not None:
            call.state, call.elsewhere = now.state or "stopped", now.elsewhere
        elif call.state == "running":
            call.state = "stopped"
    return blocks


def _list_parts(message: Message, has_ending: bool) -> list[Part]:
    """Return the parts of an answer or a result, without an end marker that a notice repeats."""
    if message.role == "user":
        return []
    return [p for p in message.parts if not (has_ending and isinstance(p, MarkerPart) and p.kind in _NOTICED)]


def _find_noticed_endings(messages: Sequence[Message]) -> set[str]:
    """Return the messages of turns with a stored end notice, which replaces the marker in the answer."""
    out: set[str] = set()
    ended = False
    for message in reversed(messages):
        ended = ended or "ended" in message.metadata
        if ended:
            out.add(message.id)
        ended = ended and message.role != "user"
    return out


def _order_messages(messages: Iterable[Message]) -> list[Message]:
    """Move each command that the user ran during an answer to after that answer.

    It was stored before the answer, but shown below it.
    """
    out: list[Message] = []
    held: list[Message] = []
    for message in messages:
        if message.role == "user" and message.metadata.get("during"):
            held.append(message)
            continue
        if held and message.role == "user":
            out += held
            held = []
        out.append(message)
        if held and message.role == "assistant":
            out += held
            held = []
    return [*out, *held]


def _add_part(part: object, message: Message, blocks: list[Block], calls: dict[str, ToolBlock]) -> None:
    after_label = bool(blocks) and isinstance(blocks[-1], Label)
    match part:
        case TextPart(text):
            blocks += _make_text_blocks(message.id, text, after_label=after_label)
        case ThinkingPart(text) if text.strip():
            blocks.append(ThinkingBlock(message.id, gap=not after_label, text=text))
        case ToolCallPart():
            block = ToolBlock(message.id, gap=needs_gap(blocks), call_id=part.id)
            block.start(part)
            calls[part.id] = block
            blocks.append(block)
        case ToolResultPart():
            block = calls.get(part.call_id)
            if block is not None:
                block.finish(part, None)
                block.result_id = message.id
        case MarkerPart(kind, text):
            title = _MARKERS.get(kind, kind.replace("_", " "))
            tone = "warning" if kind in ("interrupted", "error", "limit", "cut") else "information"
            blocks.append(NoticeBlock(message.id, tone=tone, title=title, text=text))
        case _:
            pass


def _make_text_blocks(message_id: str, text: str, *, after_label: bool) -> list[ChunkBlock]:
    """Return an answer as blocks; the first needs no gap below a label."""
    chunks = split(sanitize_text(text))
    return [
        ChunkBlock(message_id, gap=chunk.gap and not (after_label and number == 0), chunk=chunk)
        for number, chunk in enumerate(chunks)
    ]


def make_user_blocks(message: Message) -> list[Block]:
    """Return the blocks of a user message: the text, and the names of its attachments."""
    if (notice := _make_program_notice(message)) is not None:
        return [notice]
    who = "you" if message.is_by_user else "main agent"
    blocks: list[Block] = [Label(message.id, who=who, created_at=message.created_at)]
    command = message.metadata.get("shell")
    if isinstance(command, str):
        blocks += [TextBlock(message.id, text=f"!{command}"), _make_own_command(message)]
    elif message.text.strip():
        blocks.append(TextBlock(message.id, text=message.text, pasted=_get_pasted_spans(message)))
    for part in message.parts:
        if isinstance(part, FilePart):
            lines = count_lines(part.text)
            blocks.append(
                NoticeBlock(message.id, False, text=f"@{to_one_line(part.path, 200)}  {format_count(lines, 'line')}")
            )
        elif isinstance(part, ImagePart):
            blocks.append(NoticeBlock(message.id, False, text=describe_image(part)))
        elif isinstance(part, MarkerPart) and part.kind == "deleted":
            blocks.append(NoticeBlock(message.id, False, text=part.text))
    return blocks


def _make_own_command(message: Message) -> ToolBlock:
    """Return the block of a command that the user ran."""
    call = ToolBlock(message.id, name="bash", own=True)
    ran = next((p for p in message.parts if isinstance(p, OutputPart)), None)
    printed = ran.text if ran else message.text.partition("\n```\n")[2].removesuffix("\n```")
    details = message.metadata.get("outcome")
    info = cast("Json", details) if isinstance(details, dict) else {}
    call.finish(ToolResultPart("", "bash", printed, bool(info.get("failed")), info), None)
    return call


def _make_program_notice(message: Message) -> NoticeBlock | None:
    """Return the notice for a message of a goal, of a repair, or of a hook that kept a turn running."""
    marks = [p for p in message.parts if isinstance(p, MarkerPart)]
    if "hook" in message.metadata:
        return NoticeBlock(message.id, tone="warning", title="Stop hook", text="\n".join(p.text for p in marks))
    if marks and marks[0].kind in ("goal", "repair"):
        return NoticeBlock(message.id, title=marks[0].kind.capitalize(), text=marks[0].text)
    return None


def _get_pasted_spans(message: Message) -> tuple[tuple[int, int], ...]:
    """Return the spans of pasted blocks; in other long texts, all but the first and last line."""
    text, spans = message.text, cast("list[list[int]]", message.metadata.get(PASTED) or [])
    if not spans and text.count("\n") >= FOLD_LINES:
        spans = [[text.index("\n") + 1, text.rindex("\n")]]
    return tuple((start, end) for start, end in spans if 0 <= start < end <= len(text))


def describe_image(image: ImagePart) -> str:
    """Return the line for an image: its name and, if known, its dimensions and size."""
    pixels = f"  {image.width}×{image.height}" if image.width and image.height else ""
    size = len(image.data) * 3 // 4  # base64
    amount = f"  {format_bytes(size)}" if size else ""
    return f"▣ {to_one_line(image.name or 'image', 200)}{pixels}{amount}"


def needs_gap(blocks: Sequence[Block]) -> bool:
    """Return whether a tool line needs a gap: only the first one does, unless it follows a label."""
    return bool(blocks) and not isinstance(blocks[-1], ToolBlock | Label)
