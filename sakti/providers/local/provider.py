"""Offer the embedded model as a provider: short prompts, at most six tools, one action or answer at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from sakti.core.errors import NoModelError, ProviderError
from sakti.core.resources import fill_prompt
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
from sakti.providers.facts import Served
from sakti.providers.history import CallIds, Turn, file_text, turns
from sakti.providers.local import actions, model, policy
from sakti.providers.local.process import Worker
from sakti.providers.protocol import Completed, StopReason, StreamEvent, TextChunk, ToolCallChunk

CONTEXT = 8_192
OUTPUT = 1_024
LEAST_OUTPUT = 700  # tokens: an edit of a few lines is cut in the middle with less
LONGEST_RESULT = 5_000  # characters of one tool result
LONGEST_TAIL = 600
CHANGING = ("edit", "write")
DONE_HINT = "\nIf that is all that the user asked for, answer now."  # it goes on changing things otherwise
CHECK_EVERY = 32  # chunks between two looks for text that goes round in circles


class LocalProvider:
    """Provider that runs the installed GGUF file; `context` is the window in tokens, `worker` is for tests."""

    name = "local"
    elsewhere = False

    def __init__(self, context: int | None = None, worker: Worker | None = None) -> None:
        self._context = context or CONTEXT
        self._worker = worker

    def _ready(self) -> Worker:
        if self._worker is None:
            if not model.weights_ready():
                raise NoModelError(f"The local model is not at {model.path()}: run `sakti local install`.")
            if not model.runtime_ready():
                raise NoModelError("The local model needs the extra `sakti[local]`.")
            self._worker = Worker(model.path(), self._context)
        return self._worker

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        answer = _Answer(request)
        async with aclosing(self._ready().chat(body(request))) as messages:
            async for message in messages:
                for event in answer.take(message, self._context):
                    yield event
                if answer.looping:
                    break
        yield answer.completed(model.name())

    async def count_tokens(self, request: Request) -> int | None:
        """Return None: counting would need the loaded model."""
        return None

    async def models(self) -> Sequence[ModelInfo]:
        if not model.weights_ready():
            return []
        return [info(self._context)]

    async def served(self, model: str) -> Served | None:
        """Return nothing: all facts about `model` are known."""
        return Served()

    async def warm(self) -> None:
        await self._ready().start()

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()


def info(context: int | None = None) -> ModelInfo:
    """Return the facts about the model to load, with a window of `context` tokens."""
    return ModelInfo(model.name(), LocalProvider.name, context or CONTEXT, OUTPUT, 0.0, 0.0, small=True, observes=False)


def body(request: Request) -> Json:
    """Render `request` as a body of Chat Completions."""
    offered = actions.offer(request.tools)
    chat: Json = {
        "messages": _messages(request, offered),
        "max_tokens": max(LEAST_OUTPUT, request.max_output_tokens or OUTPUT),
        "temperature": 0.0 if request.temperature is None else request.temperature,
        "top_p": 0.9,
        "cache_prompt": True,
    }
    wanted = request.schema
    if wanted is None and offered:
        choose = request.tool_choice == "auto"
        allowed = policy.allowed_actions(request.messages, offered) if choose else policy.AllowedActions(())
        wanted = actions.schema(allowed.actions, allowed.answer)
    if wanted is not None:
        chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "action", "schema": wanted}}
    return chat


def _messages(request: Request, offered: Sequence[actions.Action]) -> list[Json]:
    acting = bool(offered)
    own = [fill_prompt("local", actions="\n".join(a.line() for a in offered))] if acting else []
    blocks = [b.text for b in request.system if b.text.strip() and not (acting and b.kind == "system")]
    messages: list[Json] = [{"role": "system", "content": "\n\n".join([*own, *blocks])}]
    for turn in turns(request.messages, LocalProvider.name, context=_note):
        text = _assistant(turn, offered) if turn.role == "assistant" else _user(turn)
        if text:
            messages.append({"role": turn.role, "content": text})
    if request.tail.strip():
        note = _note(request.tail.strip())
        if messages[-1]["role"] == "user":
            messages[-1]["content"] += f"\n\n{note}"
        else:
            messages.append({"role": "user", "content": note})
    return messages


def _note(text: str) -> str:
    return f"(for your information: {text[:LONGEST_TAIL]})"


def _assistant(turn: Turn, offered: Sequence[actions.Action]) -> str:
    calls = [p for p in turn.parts if isinstance(p, ToolCallPart)]
    if calls:
        return "\n".join(actions.write(c, offered) for c in calls)
    text = "\n".join(p.text for p in turn.parts if isinstance(p, TextPart))
    return actions.write_answer(text) if text and offered else text


def _user(turn: Turn) -> str:
    return "\n\n".join(t for p in turn.parts if (t := _user_text(p)))


def _user_text(part: Part) -> str:
    match part:
        case TextPart(text):
            return text
        case FilePart():
            return _bounded(file_text(part))
        case ToolResultPart(_, name, content, is_error):
            hint = DONE_HINT if name in CHANGING and not is_error else ""
            return f"{'Error' if is_error else 'Result'} of {name}:\n{_bounded(content) or '(nothing)'}{hint}"
        case ImagePart(name=name):
            return f"(an image that you cannot see: {name})"
        case _:
            return ""


def _bounded(text: str) -> str:
    if len(text) <= LONGEST_RESULT:
        return text
    head, tail = text[: LONGEST_RESULT * 2 // 3], text[-LONGEST_RESULT // 3 :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"


class _Answer:
    """Converts the worker's messages to events."""

    def __init__(self, request: Request) -> None:
        self.looping = False
        self._offered = actions.offer(request.tools)
        self._messages = request.messages
        self._plain = not request.tools or request.schema is not None
        self._reader = actions.Reader()
        self._call_id = CallIds(request.messages).unique(None)
        self._text: list[str] = []
        self._chunks = 0
        self._finish = ""
        self._usage = Usage()

    def take(self, message: Json, context: int) -> list[StreamEvent]:
        if "error" in message:
            raise _failure(message)
        if "progress" in message:
            total = int(message["progress"][1])
            if total > context - LEAST_OUTPUT:
                raise _too_long(total, context)
            return []
        if "done" in message:
            self._finish = str(message["done"])
            self._usage = Usage(int(message["prompt"]), int(message["cached"]), 0, int(message["output"]), cost_usd=0.0)
            return []
        return self._piece(str(message.get("text") or ""))

    def _piece(self, piece: str) -> list[StreamEvent]:
        self._chunks += 1
        if self._plain:
            self._text.append(piece)
            self._look("".join(self._text[-400:]))
            return [TextChunk(piece)] if piece else []
        said = self._reader.feed(piece)
        self._look(self._reader.raw)
        if said:
            return [TextChunk(said)]
        if self._reader.action and self._reader.action != actions.ANSWER:
            return [ToolCallChunk(self._call_id, self._reader.action, piece)]
        return []

    def _look(self, text: str) -> None:
        if self._chunks % CHECK_EVERY == 0 and actions.degenerate(text):
            self.looping = True

    def completed(self, name: str) -> Completed:
        stop: StopReason = "length" if self.looping or self._finish == "length" else "end"
        if self._plain:
            text = "".join(self._text)
            return Completed((TextPart(text),) if text else (), stop, self._usage, name)
        found = actions.read(self._reader.raw)
        if found is None or found[0] == actions.ANSWER:
            whole = str(found[1].get("text") or "") if found else ""
            text = self._reader.text or whole
            return Completed((TextPart(text),) if text else self._broken(), stop, self._usage, name)
        action = next((a for a in self._offered if a.name == found[0]), None)
        fields = policy.repaired(found[0], found[1], self._messages)
        arguments = action.arguments(fields) if action else fields
        call = ToolCallPart(self._call_id, found[0], arguments)
        return Completed((call,), "tool_use", self._usage, name)

    def _broken(self) -> tuple[Part, ...]:
        """Return an incomplete answer or action as parts, so that the model can be told."""
        raw = self._reader.raw.strip()
        if self._reader.action and self._reader.action != actions.ANSWER:
            return (ToolCallPart(self._call_id, self._reader.action, None, raw),)
        return (TextPart(raw),) if raw else ()


def _failure(message: Json) -> ProviderError:
    if message.get("kind") == "exceed_context_size_error":
        return ProviderError(
            f"The conversation is longer than the local model's window: {message['error']}.", code="context_too_long"
        )
    code: Any = message.get("code")
    kind = "invalid_request" if isinstance(code, int) and 400 <= code < 500 else "server"
    return ProviderError(
        f"The local model refused the request: {message['error']}", code=kind, retryable=kind == "server"
    )


def _too_long(total: int, context: int) -> ProviderError:
    return ProviderError(
        f"The conversation ({total:,} tokens) leaves the local model no room to answer in its window of {context:,}.",
        code="context_too_long",
    )
