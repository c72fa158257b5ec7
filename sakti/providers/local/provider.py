"""Provider of the embedded model: short prompts, at most six tools, one action or answer at a time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from sakti.core.errors import NoModelError, ProviderError, SaktiError
from sakti.core.resources import fill_prompt
from sakti.core.text import cut_middle
from sakti.core.types import (
    FilePart,
    ImagePart,
    Json,
    ModelInfo,
    Part,
    Request,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from sakti.providers.facts import ServedLimits
from sakti.providers.history import CallIds, HistoryTurn, format_file, make_turns
from sakti.providers.local import actions, model, policy, project
from sakti.providers.local.process import ModelProcess
from sakti.providers.protocol import Completed, PromptProgress, StopReason, StreamEvent, TextChunk, ToolCallChunk

log = logging.getLogger(__name__)

CONTEXT = 8_192
OUTPUT = 1_024
LEAST_OUTPUT = 700  # tokens: with fewer, an edit of a few lines would be cut
LONGEST_RESULT = 5_000  # characters of one tool result
LONGEST_TAIL = 600
CHANGING = ("edit", "write")
DONE_HINT = "\nIf that is all that the user asked for, answer now."  # otherwise it keeps changing files
CHECK_EVERY = 32  # chunks between two checks for endless repetition


class LocalProvider:
    """Provider that runs the installed GGUF file; `context` is its window in tokens."""

    name = "local"
    is_custom_server = False
    loopback = True

    def __init__(self, context: int | None = None, worker: ModelProcess | None = None) -> None:
        self._context = context or CONTEXT
        self._worker = worker
        self._preparing: asyncio.Task[None] | None = None

    def _ensure_ready(self) -> ModelProcess:
        if self._worker is None:
            if not model.weights_ready():
                raise NoModelError(f"The local model is not at {model.path()}: run `sakti local install`.")
            if not model.runtime_ready():
                raise NoModelError("The local model needs the extra `sakti[local]`.")
            self._worker = ModelProcess(model.path(), self._context, keep_in=model.prompts_folder())
        return self._worker

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        await self._stop_preparing()
        allowed = choose_actions(request)
        answer = _LocalStreamParser(request, allowed)
        if allowed.call or allowed.text:
            for event in answer.decide_without_model():
                yield event
        else:
            async with aclosing(
                self._ensure_ready().chat(render(request, allowed), list_prefixes(request))
            ) as messages:
                async for message in messages:
                    for event in answer.take(message, self._context):
                        yield event
                    if answer.is_looping or answer.is_repeating:
                        break
            for event in answer.flush():
                yield event
        yield answer.complete(model.name())

    async def prepare(self, request: Request) -> None:
        """Evaluate the beginning of `request` in the background until the next question."""
        await self._stop_preparing()
        self._preparing = asyncio.create_task(self._prepare(list_prefixes(request)))

    async def _prepare(self, texts: Sequence[str]) -> None:
        try:
            async with aclosing(self._ensure_ready().chat(None, texts)) as messages:
                async for _ in messages:
                    pass
        except SaktiError:
            log.warning("the prompt was not prepared", exc_info=True)  # the next request reports why

    async def _stop_preparing(self) -> None:
        task, self._preparing = self._preparing, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def models(self) -> Sequence[ModelInfo]:
        if not model.weights_ready():
            return []
        return [get_model_info(self._context)]

    async def fetch_limits(self, model: str) -> ServedLimits | None:
        """Return nothing: all facts about `model` are known."""
        return ServedLimits()

    async def warm(self) -> None:
        await self._ensure_ready().start()

    async def close(self) -> None:
        await self._stop_preparing()
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()


def get_model_info(context: int | None = None) -> ModelInfo:
    """Return the facts about the model to load, with a window of `context` tokens."""
    return ModelInfo(model.name(), LocalProvider.name, context or CONTEXT, OUTPUT, 0.0, 0.0, small=True, observes=False)


def choose_actions(request: Request) -> policy.AllowedActions:
    """Return the actions that `request` allows; all of them if it offers no tools."""
    offered = actions.offer_tools(request.tools)
    if request.schema is not None or not offered or request.tool_choice != "auto":
        return policy.AllowedActions(())
    return policy.choose_actions(request.messages, offered, _find_project_block(request))


def render(request: Request, allowed: policy.AllowedActions | None = None) -> Json:
    """Return the Chat Completions body for `request`; `allowed` are the actions that may follow."""
    allowed = allowed or choose_actions(request)
    chat: Json = {
        "messages": _render_messages(request, actions.offer_tools(request.tools), grounded=allowed.grounded),
        "max_tokens": max(LEAST_OUTPUT, request.max_output_tokens or OUTPUT),
        "temperature": 0.0 if request.temperature is None else request.temperature,
        "top_p": 0.9,
        "cache_prompt": True,
    }
    schema = request.schema
    if schema is None and request.tools:
        schema = actions.build_schema(allowed.actions, allowed.answer)
    if schema is not None:
        chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "action", "schema": schema}}
    return chat


def list_prefixes(request: Request) -> list[str]:
    """Return prefixes of the system prompt, each a prefix of the next: rules, then the project."""
    if not request.tools:
        return []
    rules = _render_rules(actions.offer_tools(request.tools))
    project = _find_project_block(request)
    return [rules, f"{rules}\n\n{project}"] if project else [rules]


def _render_rules(offered: Sequence[actions.LocalTool]) -> str:
    return fill_prompt("local", actions="\n".join(a.line() for a in offered))


def _find_project_block(request: Request) -> str:
    return next((b.text.strip() for b in request.system if b.kind == "project"), "")


def _render_messages(request: Request, offered: Sequence[actions.LocalTool], *, grounded: bool) -> list[Json]:
    has_tools = bool(offered)
    prefix = list_prefixes(request)[-1:]
    kinds = ("system", "project", *(["carry_over"] if grounded else []))  # other threads say nothing about the files
    blocks = [b.text for b in request.system if b.text.strip() and not (has_tools and b.kind in kinds)]
    messages: list[Json] = [{"role": "system", "content": "\n\n".join([*prefix, *blocks])}]
    for turn in make_turns(request.messages, LocalProvider.name, context=_note):
        text = _render_assistant(turn, offered) if turn.role == "assistant" else _render_user(turn)
        if text:
            messages.append({"role": turn.role, "content": text})
    if request.tail.strip():
        _append_note(messages, _note(request.tail.strip()))
    return messages


def _append_note(messages: list[Json], note: str) -> None:
    """Append a note to the last message if it is the user's, else as a new message."""
    if messages[-1]["role"] == "user":
        messages[-1]["content"] += f"\n\n{note}"
    else:
        messages.append({"role": "user", "content": note})


def _note(text: str) -> str:
    return f"(for information: {text[:LONGEST_TAIL]})"


def _render_assistant(turn: HistoryTurn, offered: Sequence[actions.LocalTool]) -> str:
    calls = [p for p in turn.parts if isinstance(p, ToolCallPart)]
    if calls:
        return "\n".join(actions.write_call(c, offered) for c in calls)
    text = "\n".join(p.text for p in turn.parts if isinstance(p, TextPart))
    return actions.write_answer(text) if text and offered else text


def _render_user(turn: HistoryTurn) -> str:
    return "\n\n".join(t for p in turn.parts if (t := _render_user_part(p)))


def _render_user_part(part: Part) -> str:
    match part:
        case TextPart(text):
            return text
        case FilePart():
            return cut_middle(format_file(part), LONGEST_RESULT)[0]
        case ToolResultPart(_, name, content, is_error):
            hint = DONE_HINT if name in CHANGING and not is_error else ""
            text, _ = cut_middle(content, LONGEST_RESULT)
            return f"{'Error' if is_error else 'Result'} of {name}:\n{text or '(nothing)'}{hint}"
        case ImagePart(name=name):
            return f"(an image that is not shown to you: {name})"
        case _:
            return ""


class _LocalStreamParser:
    """Converts the worker's messages to events."""

    def __init__(self, request: Request, allowed: policy.AllowedActions) -> None:
        self.is_looping = False
        self._allowed = allowed
        self._guard = project.GroundingFilter(_join_seen_text(request)) if allowed.grounded else None
        self._accepted: list[str] = []  # pieces that passed the filter
        self._offered = actions.offer_tools(request.tools)
        self._messages = request.messages
        self._plain = not request.tools or request.schema is not None
        self._reader = actions.ObjectReader()
        self._call_id = CallIds(request.messages).unique(None)
        self._text: list[str] = []
        self._chunks = 0
        self._finish = ""
        self._usage = Usage()

    @property
    def is_repeating(self) -> bool:
        """Return whether an answer was given and the model only invents more."""
        return self._guard is not None and self._guard.is_repeating

    @property
    def _cut(self) -> bool:
        return self.is_looping or self._finish == "length"

    def decide_without_model(self) -> list[StreamEvent]:
        """Return the events of the only possible action or answer, without the model."""
        if self._allowed.call:
            name, arguments = self._allowed.call
            return [ToolCallChunk(self._call_id, name, json.dumps(arguments))]
        return [TextChunk(self._allowed.text)]

    def flush(self) -> list[StreamEvent]:
        """Return the buffered rest of the text."""
        if self._guard is None or self._reader.action != actions.ANSWER:
            return []
        return self._show_pieces([self._guard.end(cut=self._cut or self.is_repeating)])

    def _show_pieces(self, pieces: list[str]) -> list[StreamEvent]:
        self._accepted += pieces
        return [TextChunk(text) for text in pieces if text]

    def take(self, message: Json, context: int) -> list[StreamEvent]:
        if "error" in message:
            raise _make_failure(message)
        if "begin" in message:
            return [PromptProgress(*map(int, message["begin"]))]
        if "progress" in message:
            read, total = map(int, message["progress"])
            if total > context - LEAST_OUTPUT:
                raise _make_too_long_error(total, context)
            return [PromptProgress(read, total)]
        if "done" in message:
            self._finish = str(message["done"])
            self._usage = Usage(int(message["prompt"]), int(message["cached"]), 0, int(message["output"]), cost_usd=0.0)
            return []
        return self._parse_piece(str(message.get("text") or ""))

    def _parse_piece(self, piece: str) -> list[StreamEvent]:
        self._chunks += 1
        if self._plain:
            self._text.append(piece)
            self._check_for_loop("".join(self._text[-400:]))
            return [TextChunk(piece)] if piece else []
        text = self._reader.feed(piece)
        self._check_for_loop(self._reader.raw)
        if text:
            return self._show_pieces([self._guard.feed(text)]) if self._guard else [TextChunk(text)]
        if self._reader.action and self._reader.action != actions.ANSWER:
            return [ToolCallChunk(self._call_id, self._reader.action, piece)]
        return []

    def _check_for_loop(self, text: str) -> None:
        if self._chunks % CHECK_EVERY == 0 and actions.is_degenerate(text):
            self.is_looping = True

    def _call_action(self, name: str, action_name: str, fields: Json) -> Completed:
        """Call the tool that the model chose; an edit is repaired using the file read last."""
        action = next((a for a in self._offered if a.name == action_name), None)
        fields = policy.repair_edit(action_name, fields, self._messages)
        return self._call_tool(name, action_name, action.arguments(fields) if action else fields)

    def complete(self, name: str) -> Completed:
        if self._allowed.call:
            return self._call_tool(name, *self._allowed.call)
        if self._allowed.text:
            return Completed((TextPart(self._allowed.text),), "end", self._usage, name)
        last_action = None if self._plain else actions.read_action(self._reader.raw)
        if last_action is not None and last_action[0] != actions.ANSWER:
            return self._call_action(name, *last_action)
        stop: StopReason = "length" if self._cut and self._guard is None else "end"  # the accepted part is the answer
        text = self._answer_text(last_action[1] if last_action else {})
        missing = () if self._plain else self._build_incomplete_parts()
        return Completed((TextPart(text),) if text else missing, stop, self._usage, name)

    def _answer_text(self, fields: Json) -> str:
        if self._plain:
            return "".join(self._text)
        if self._guard and self._accepted:
            return "".join(self._accepted)
        return self._reader.text or str(fields.get("text") or "")

    def _call_tool(self, name: str, tool: str, arguments: Json) -> Completed:
        call = ToolCallPart(self._call_id, tool, arguments)
        return Completed((call,), "tool_use", self._usage, name)

    def _build_incomplete_parts(self) -> tuple[Part, ...]:
        """Return an incomplete answer or action as parts, so that the model learns of it."""
        raw = self._reader.raw.strip()
        if self._reader.action and self._reader.action != actions.ANSWER:
            return (ToolCallPart(self._call_id, self._reader.action, None, raw),)
        return (TextPart(raw),) if raw else ()


def _join_seen_text(request: Request) -> str:
    """Return all text that the model was sent; an answer may only name files in it."""
    results = [r.content for m in request.messages for r in m.tool_results]
    calls = [json.dumps(c.arguments) for m in request.messages for c in m.tool_calls]
    return "\n".join(
        [_find_project_block(request), *(m.text for m in request.messages if m.role == "user"), *results, *calls]
    )


def _make_failure(message: Json) -> ProviderError:
    if message.get("kind") == "exceed_context_size_error":
        return ProviderError(
            f"The thread is longer than the local model's window: {message['error']}.", code="context_too_long"
        )
    code: Any = message.get("code")
    kind = "invalid_request" if isinstance(code, int) and 400 <= code < 500 else "server"
    return ProviderError(
        f"The local model refused the request: {message['error']}", code=kind, retryable=kind == "server"
    )


def _make_too_long_error(total: int, context: int) -> ProviderError:
    return ProviderError(
        f"The thread ({total:,} tokens) leaves the local model no room to answer in its window of {context:,}.",
        code="context_too_long",
    )
