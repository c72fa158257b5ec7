"""Write a thread as a file for others: Markdown, JSON, or one self-contained HTML page. Pure."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import to_builtins

from sakti.core.text import format_count, sanitize_text
from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    MarkerPart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    Thread,
    ToolCallPart,
    ToolResultPart,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from sakti.store.log.lines import LogLine


from sakti.store.threads import codec

Format: TypeAlias = Literal["md", "json", "html"]
FORMATS: tuple[Format, ...] = ("md", "json", "html")
_WHO = {"user": "You", "assistant": "sakti", "tool": "Tool", "system": "System"}
_PRIORITY_SYMBOLS = {"high": "🔴", "medium": "🟡", "low": "🟢", "done": "✅"}

# No script, no picture from elsewhere, no form: the page can do nothing but be read.
_CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
article { margin: 1.6rem 0; border-left: 3px solid #8884; padding-left: 1rem; }
article.user { border-color: #b57a1c; }
article.assistant { border-color: #2f66b8; }
h1 { font-size: 1.5rem; } h2 { font-size: 1rem; margin: 0; }
h2 time { font-weight: normal; opacity: .65; margin-left: .6rem; }
pre { overflow-x: auto; background: #8881; padding: .7rem; border-radius: 4px; font-size: .88rem; }
code { font-family: ui-monospace, monospace; }
details summary { cursor: pointer; font-family: ui-monospace, monospace; font-size: .9rem; }
table { border-collapse: collapse; } td, th { border: 1px solid #8886; padding: .2rem .5rem; }
"""


def render(thread: Thread, messages: Sequence[Message], log: Sequence[LogLine], form: Format) -> str:
    """Render the entire thread with its log. Times are UTC; withheld messages stay withheld."""
    match form:
        case "md":
            return _format_markdown(thread, messages, log)
        case "html":
            return _format_html(thread, messages, log)
        case "json":
            return _format_json(thread, messages, log)


def make_file_name(thread: Thread, form: Format) -> str:
    """Name a file by the title's words and the end of the id: `fix-login-redirect-1a2b3c4d.md`."""
    words = re.findall(r"\w+", thread.title.lower())[:8]
    return "-".join([*words, thread.id[-8:]])[-120:] + f".{form}"


def _format_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _get_author(message: Message) -> str:
    if message.role == "user" and not message.is_by_user:
        return "Main agent"
    return "Hook" if "hook" in message.metadata else _WHO[message.role]


def _has_text(message: Message) -> bool:
    return message.role != "system" and any(not isinstance(p, ThinkingPart | ContextPart) for p in message.parts)


# --- Markdown ---------------------------------------------------------------------------------------------


def _format_markdown(thread: Thread, messages: Sequence[Message], log: Sequence[LogLine]) -> str:
    out = [
        f"# {_format_heading(thread.title)}",
        f"{format_count(len(messages), 'message')}, {_format_time(thread.created_at)}",
    ]
    for message in messages:
        if _has_text(message):
            out.append(f"## {_get_author(message)} · {_format_time(message.created_at)}")
            out += [text for part in message.parts if (text := _part_markdown(part))]
    if log:
        out.append("## Observations")
        date, lines = None, list[str]()
        for line in log:
            if line.date != date:
                date = line.date
                lines += ["", f"**{sanitize_text(date)}**", ""] if date else [""]
            lines.append(f"{'  ' * line.depth}- {_log_text(line)}")
        out.append("\n".join(lines).strip("\n"))
    return "\n\n".join(out) + "\n"


def _format_heading(title: str) -> str:
    return " ".join(sanitize_text(title).split()) or "untitled"


def _log_text(line: LogLine) -> str:
    sign = _PRIORITY_SYMBOLS.get(line.priority, "")
    return " ".join(p for p in (sign, sanitize_text(line.time), " ".join(sanitize_text(line.marked_text).split())) if p)


def _part_markdown(part: Part) -> str:
    match part:
        case TextPart(text):
            return sanitize_text(text).strip()
        case ToolCallPart():
            return f"`{sanitize_text(part.name)}`\n\n{_format_fence(_format_arguments(part), 'json')}"
        case ToolResultPart(name=name, content=content):
            return f"`{sanitize_text(name)}` {_describe_result(part)}\n\n{_format_fence(content)}"
        case OutputPart(command, text):
            return f"`!{sanitize_text(command)}`\n\n{_format_fence(text)}"
        case FilePart(path, text):
            return f"`{sanitize_text(path)}`\n\n{_format_fence(text)}"
        case ImagePart(name=name, media_type=kind):
            return f"[image {sanitize_text(name or kind)}]"
        case MarkerPart(kind, text):
            return f"*{sanitize_text(kind)}* {sanitize_text(text)}".strip()
        case ThinkingPart() | ContextPart():
            return ""


def _describe_result(result: ToolResultPart) -> str:
    if isinstance(result.details.get("denied"), str):
        return "denied"
    return "failed" if result.is_error else "gave"


def _format_arguments(call: ToolCallPart) -> str:
    return call.raw if call.arguments is None else json.dumps(call.arguments, ensure_ascii=False, indent=2)


def _format_fence(text: str, language: str = "") -> str:
    text = sanitize_text(text).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


# --- JSON -------------------------------------------------------------------------------------------------


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message as it is shown to programs."""
    return {
        "id": message.id,
        "index": message.index,
        "role": message.role,
        "time": message.created_at,
        "tokens": message.tokens,
        "parts": [codec.encode(p) for p in message.parts if not isinstance(p, ContextPart)],
    }


def _format_json(thread: Thread, messages: Sequence[Message], log: Sequence[LogLine]) -> str:
    value: dict[str, Any] = {
        "thread": {
            "id": thread.id,
            "title": thread.title,
            "workspace": thread.resource_id,
            "created_at": thread.created_at,
            "updated_at": thread.updated_at,
            "mode": thread.mode,
        },
        "messages": [message_to_json(m) for m in messages],
        "observations": [
            {
                "id": x.id,
                "kind": x.kind,
                "date": x.date,
                "time": x.time,
                "priority": x.priority,
                "category": x.category,
                "depth": x.depth,
                "text": x.content,
                "earlier": [to_builtins(e) for e in x.earlier],
                "flags": list(x.flags),
                "pinned": x.pinned,
                "first_index": x.first_index,
                "last_index": x.last_index,
            }
            for x in log
        ],
    }
    return json.dumps(value, ensure_ascii=True, indent=1) + "\n"


# --- HTML -------------------------------------------------------------------------------------------------


def _format_html(thread: Thread, messages: Sequence[Message], log: Sequence[LogLine]) -> str:
    title = html.escape(_format_heading(thread.title))
    body = [f"<h1>{title}</h1>", f"<p>{format_count(len(messages), 'message')}, {_format_time(thread.created_at)}</p>"]
    for message in messages:
        if _has_text(message):
            parts = "\n".join(_part_html(p) for p in message.parts)
            head = f"<h2>{_get_author(message)}<time>{_format_time(message.created_at)}</time></h2>"
            body.append(f'<article class="{message.role}">{head}\n{parts}</article>')
    if log:
        rows = "\n".join(
            f'<li style="margin-left:{min(x.depth, 6)}em">{html.escape(f"{sanitize_text(x.date)} {_log_text(x)}")}</li>'
            for x in log
        )
        body.append(f"<h1>Observations</h1>\n<ul>\n{rows}\n</ul>")
    text = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>\n<style>{_STYLE}</style>\n'
        f"</head>\n<body>\n{text}\n</body>\n</html>\n"
    )


def _part_html(part: Part) -> str:
    match part:
        case TextPart(text):
            return _from_markdown(text)
        case ToolCallPart():
            return _fold(part.name, _format_arguments(part))
        case ToolResultPart(name=name, content=content):
            return _fold(f"{name} {_describe_result(part)}", content)
        case OutputPart(command, text):
            return _fold(f"!{command}", text)
        case FilePart(path, text):
            return _fold(path, text)
        case ThinkingPart() | ContextPart():
            return ""
        case _:
            return f"<p>{html.escape(_part_markdown(part))}</p>"


def _fold(title: str, text: str) -> str:
    head = html.escape(" ".join(sanitize_text(title).split()))
    return f"<details><summary>{head}</summary><pre>{html.escape(sanitize_text(text))}</pre></details>"


def list_code_blocks(text: str) -> list[str]:
    """Return the contents of the code blocks of a Markdown text."""
    return [token.content for token in _make_markdown_reader().parse(text) if token.type in ("fence", "code_block")]


def _from_markdown(text: str) -> str:
    return _make_markdown_reader().render(sanitize_text(text))


def _make_markdown_reader() -> MarkdownIt:
    """Return a reader of Markdown that escapes tags, checks links and leaves pictures out."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
