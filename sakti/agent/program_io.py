"""Input and output for programs: answers that match a schema, and messages of the user as JSON Lines."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.processors.base import Processor, StepInput, StepOutput, TurnResult, abort
from sakti.core import json_schema
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError
from sakti.core.text import to_one_line

REPAIRS = 2  # times that the model is asked again
REPAIR = "repair"  # kind of the messages that ask for another answer
PROBLEMS = 8  # problems of an answer that the model is told
WANTED = (
    "A program reads your final answer: give one JSON value that matches this JSON Schema, with nothing before "
    "or after it and no code fence.\n{schema}"
)
AGAIN = "Your answer does not match the JSON Schema:\n{problems}\nAnswer again with the whole JSON value only."


class Checked(Struct, frozen=True):
    """Checked answer: the value if there are no `problems`."""

    value: Any = None
    problems: tuple[str, ...] = ()


def load(path: Path) -> Any:
    """Return the schema in a file. Raises `ConfigError` for anything else, before a model is asked."""
    data = read_bytes(path)
    if data is None:
        raise ConfigError(f"--json-schema: there is no file {path}.")
    try:
        schema: Any = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"--json-schema: {path} cannot be read as JSON: {to_one_line(str(e), 200)}.") from e
    if not isinstance(schema, dict | bool):
        raise ConfigError(f"--json-schema: {path} must hold a JSON object.")
    try:
        json_schema.check_schema(schema)
    except json_schema.UnusableSchema as e:
        raise ConfigError(f"--json-schema: {path} {e}.") from e
    return cast("Any", schema)


def check(text: str, schema: Any) -> Checked:
    """Return an answer's value, or its problems. Text around the one JSON value is ignored.

    Raises `ConfigError` for a schema that nothing can be checked against.
    """
    try:
        value = _parse_value(text)
    except (ValueError, RecursionError) as e:
        return Checked(problems=(f"It is not JSON: {to_one_line(str(e), 200)}.",))
    try:
        problems = [f"{path}: {message}" for path, message in json_schema.find_violations(value, schema)]
    except json_schema.UnusableSchema as e:
        raise ConfigError(f"--json-schema: the schema {e}.") from e
    more = [f"and {len(problems) - PROBLEMS} more"] if len(problems) > PROBLEMS else []
    return Checked(value, (*problems[:PROBLEMS], *more))


def _parse_value(text: str) -> Any:
    """Return the JSON value of an answer: all of it, its one code fence, or from first to last brace.

    Raises `ValueError` about the whole text where none of them is JSON.
    """
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except ValueError:
        for part in _iter_json_texts(text):
            with suppress(ValueError):
                return json.loads(part, parse_constant=_reject_constant)
        raise


def _iter_json_texts(text: str) -> Iterator[str]:
    lines = text.split("\n")
    fences = [at for at, line in enumerate(lines) if line.lstrip().startswith("```")]
    if len(fences) == 2:
        yield "\n".join(lines[fences[0] + 1 : fences[1]])
    first = min((at for brace in "{[" if (at := text.find(brace)) >= 0), default=len(text))
    yield text[first : text.rfind("}" if text.startswith("{", first) else "]") + 1]


class AsksForJson(Processor):
    """Tells the model of the schema in each request; nothing of it is stored."""

    def __init__(self, schema: Any) -> None:
        self._told = WANTED.format(schema=json.dumps(schema, ensure_ascii=False, separators=(",", ":")))

    async def process_input_step(self, step: StepInput) -> StepInput:
        return replace(step, tail=(*step.tail, self._told))


class StructuredOutput(AsksForJson):
    """Accepts an answer only as JSON that matches a schema; else the model is told the problems.

    The value comes with the turn's end, as `structured_output` in the metadata of the answer.
    """

    def __init__(self, schema: Any) -> None:
        super().__init__(schema)
        self._schema, self._value = schema, None

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        if output.message.tool_calls:
            return output
        checked = check(output.message.text, self._schema)
        if checked.problems:
            why = f"It does not match the JSON Schema: {'; '.join(checked.problems)}"
            abort(why, retry=True, metadata={"problems": list(checked.problems)})
        self._value = checked.value
        return output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        added = {**result.metadata.get(result.messages[-1].id, {}), "structured_output": self._value}
        return replace(result, metadata={**result.metadata, result.messages[-1].id: added})


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


LONGEST = 10_000_000  # bytes of a line
CHUNK = 1 << 16
FORM = '{"type": "user", "message": {"role": "user", "content": "TEXT"}}'


def read_message_text(line: bytes, number: int) -> str:
    """Return the text of one message; `content` is a text or a list of text parts. Raises `ConfigError`."""
    where = f"line {number} of standard input"
    if len(line) > LONGEST:
        raise ConfigError(f"{where} has more than {LONGEST:,} bytes.")
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{where} is not JSON: {to_one_line(str(e), 120)}. Write {FORM}.") from e
    table = _to_table(value)
    content = _to_table(table.get("message")).get("content") if table.get("type") == "user" else None
    if isinstance(content, list):
        content = _join_texts([_to_table(p) for p in cast("list[Any]", content)])
    if not isinstance(content, str) or not content.strip():
        raise ConfigError(f"{where} is not a user message with text. Write {FORM}.")
    return content


def _join_texts(parts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the texts of parts, None if one is no text."""
    texts = [p.get("text") for p in parts if p.get("type") == "text"]
    return "\n".join(t for t in texts if isinstance(t, str)) if len(texts) == len(parts) else None


async def iter_messages(descriptor: int) -> AsyncGenerator[str, None]:
    """Yield the messages that come by a file descriptor. Raises `ConfigError` for a line that is none."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    # a thread of its own that nobody waits for: a signal ends the run while no line comes
    threading.Thread(target=_read, args=(descriptor, loop, queue), daemon=True).start()
    number = 0
    while (line := await queue.get()) is not None:
        number += 1
        if line.strip():
            yield read_message_text(line, number)


def _read(descriptor: int, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[bytes | None]) -> None:
    """Put each line into the queue, None at the end.

    Without a buffered reader: its lock, held by this thread while no line comes, would abort the program at its end.
    """
    rest = b""
    try:
        while piece := _read_piece(descriptor):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                loop.call_soon_threadsafe(queue.put_nowait, line)
            if len(rest) > LONGEST:
                break
        if rest:
            loop.call_soon_threadsafe(queue.put_nowait, rest)
        loop.call_soon_threadsafe(queue.put_nowait, None)
    except RuntimeError:  # the run has ended
        return


def _read_piece(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK)
    except OSError:  # closed, or open for writing only
        return b""


def _to_table(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
