"""Let a model without tool calling call tools by writing one JSON object. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json, ToolCallPart, ToolSpec

ANSWER = "answer"
MOST_TOOLS = 6
_RENAMED = "operation"  # a tool's own argument `action` would hide which tool it is
_OPENING = lazy_pattern(r'\s*(?:```(?:json)?\s*)?\{\s*"action"\s*:\s*"((?:[^"\\]|\\.)*)"')
_TEXT = lazy_pattern(r'\s*,\s*"text"\s*:\s*"')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


class LocalTool(Struct, frozen=True):
    """Description of a tool for a small model: flat, with few arguments.

    `inner` names an argument that is a list of objects; the model writes the fields of one object instead.
    """

    tool: ToolSpec
    required: Json
    optional: Json
    inner: str = ""

    @property
    def name(self) -> str:
        return self.tool.name

    def schema(self) -> Json:
        properties = {"action": {"const": self.name}, **self.required, **self.optional}
        return {
            "type": "object",
            "properties": properties,
            "required": ["action", *self.required],
            "additionalProperties": False,
        }

    def line(self) -> str:
        """Return the action's line in the prompt: syntax and description."""
        fields = "".join(f', "{name}": {_describe_type(value)}' for name, value in self.required.items())
        sentence = re.split(r"(?<=[.!?])\s|\n", self.tool.description.strip())[0]
        also = f" (may also have {', '.join(self.optional)})" if self.optional else ""
        return f'{{"action": "{self.name}"{fields}}}: {sentence}{also}'

    def arguments(self, fields: Json) -> Json:
        """Convert the fields that the model wrote to the tool's own arguments."""
        argument_schemas = {
            ("action" if k == _RENAMED and _RENAMED not in _get_properties(self.tool) else k): v
            for k, v in fields.items()
        }
        if not self.inner or self.inner in argument_schemas:
            return argument_schemas
        outer = {k: v for k, v in argument_schemas.items() if k in _get_properties(self.tool)}
        return {**outer, self.inner: [{k: v for k, v in argument_schemas.items() if k not in outer}]}


def offer_tools(tools: Sequence[ToolSpec]) -> list[LocalTool]:
    """Return the first six tools; they are ordered by usefulness to a small model."""
    return [_make_local_tool(t) for t in tools[:MOST_TOOLS]]


def _make_local_tool(tool: ToolSpec) -> LocalTool:
    needed = cast("list[str]", tool.parameters.get("required") or [])
    definitions = cast("Json", tool.parameters.get("$defs") or {})
    argument_schemas = {name: _simplify_schema(value, definitions) for name, value in _get_properties(tool).items()}
    needed_schemas = {n: argument_schemas[n] for n in argument_schemas if n in needed}
    required = {_rename_action_field(n): v for n, v in needed_schemas.items()}
    optional = {_rename_action_field(n): v for n, v in argument_schemas.items() if n not in needed and _is_simple(v)}
    inner = _find_only_list(required)
    if not inner:
        return LocalTool(tool, required, optional)
    inside = _list_required_fields(cast("Json", required.pop(inner)["items"]))
    if not inside or inside.keys() & argument_schemas.keys():
        return LocalTool(tool, needed_schemas, optional)
    return LocalTool(tool, {**required, **inside}, optional, inner)


def _find_only_list(schemas: Json) -> str:
    """Return the name of the only argument that is a list of objects, "" for none or several."""
    lists = [n for n, v in schemas.items() if _is_list_of_objects(v)]
    return lists[0] if len(lists) == 1 else ""


def _is_list_of_objects(schema: Json) -> bool:
    return schema.get("type") == "array" and _is_object(schema.get("items"))


def _list_required_fields(item: Json) -> Json:
    """Return the required fields of an object's schema."""
    needed = cast("list[str]", item.get("required") or [])
    return {n: v for n, v in cast("Json", item.get("properties") or {}).items() if n in needed}


def _get_properties(tool: ToolSpec) -> Json:
    return cast("Json", tool.parameters.get("properties") or {})


def _rename_action_field(name: str) -> str:
    return _RENAMED if name == "action" else name


def _is_simple(value: Json) -> bool:
    return value.get("type") in ("string", "integer")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and cast("Json", value).get("type") == "object"


def _simplify_schema(value: Any, definitions: Json) -> Any:
    """Resolve a schema's references and drop keywords that only lengthen the grammar."""
    if isinstance(value, list):
        return [_simplify_schema(v, definitions) for v in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Json", value)
    if "$ref" in fields:
        return _simplify_schema(definitions.get(str(fields["$ref"]).rpartition("/")[2], {}), definitions)
    out: Json = {}
    for key, inner in fields.items():
        if key == "properties":
            out[key] = {name: _simplify_schema(v, definitions) for name, v in cast("Json", inner).items()}
        elif key not in ("title", "default", "description", "examples"):
            out[key] = _simplify_schema(inner, definitions)
    return out


def _describe_type(value: Json) -> str:
    match value.get("type"):
        case "string":
            return '"…"'
        case "array":
            return f"[{_describe_type(cast('Json', value.get('items') or {}))}, …]"
        case "integer" | "number":
            return "1"
        case "boolean":
            return "true"
        case _:
            return "…"


def build_schema(actions: Sequence[LocalTool], answer: bool = True) -> Json:
    """Return the JSON Schema of one action or, with `answer`, one answer."""
    talk: Json = {
        "type": "object",
        "properties": {"action": {"const": ANSWER}, "text": {"type": "string"}},
        "required": ["action", "text"],
        "additionalProperties": False,
    }
    forms = [talk] if answer or not actions else []
    return {"anyOf": [*forms, *(a.schema() for a in actions)]}


def write_call(call: ToolCallPart, actions: Sequence[LocalTool]) -> str:
    """Write a call the way the model does: one object per line."""
    arguments = call.arguments or {}
    action = next((a for a in actions if a.name == call.name), None)
    flat = _flatten(arguments, action.inner) if action is not None and action.inner else [arguments]
    return "\n".join(_write_object(call.name, fields) for fields in flat)


def _flatten(arguments: Json, inner: str) -> list[Json]:
    """Return one set of arguments per object in the list `inner`, merged with the object's fields."""
    items: Any = arguments.get(inner)
    if not isinstance(items, list):
        return [arguments]
    rest = {k: v for k, v in arguments.items() if k != inner}
    return [{**rest, **item} for item in cast("list[Json]", items)]


def write_answer(text: str) -> str:
    """Write an answer the way the model does."""
    return _write_object(ANSWER, {"text": text})


def _write_object(name: str, fields: Json) -> str:
    return json.dumps({"action": name, **{_rename_action_field(k): v for k, v in fields.items()}}, ensure_ascii=False)


def read_action(raw: str) -> tuple[str, Json] | None:
    """Parse the action's name and fields from the model's text; None if it has no object.

    Tolerates typical output of small models: a code fence around the object, words before or after it.
    """
    start = raw.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(raw, start)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    fields = dict(cast("Json", value))
    name = fields.pop("action", None)
    return (name, fields) if isinstance(name, str) else None


class ObjectReader:
    """Incremental parser of an object.

    `feed` returns the new part of the answer's text; `action` is the name of the action once it is known.
    """

    def __init__(self) -> None:
        self.raw = ""
        self.action = ""
        self.text = ""
        self._position = -1
        self._inside = False
        self._closed = False

    def feed(self, piece: str) -> str:
        self.raw += piece
        if not self.action:
            opening = _OPENING.match(self.raw)
            if opening is None:
                return ""
            self.action = opening[1]
            self._position = opening.end()
        if self.action != ANSWER or self._closed:
            return ""
        if not self._inside:
            begin = _TEXT.match(self.raw, self._position)
            if begin is None:
                return ""
            self._position, self._inside = begin.end(), True
        new = self._decode()
        self.text += new
        return new

    def _decode(self) -> str:
        """Decode the characters of the JSON string received so far; an unfinished escape waits for its rest."""
        out: list[str] = []
        raw, at = self.raw, self._position
        while at < len(raw):
            if raw[at] == '"':
                self._closed = True
                break
            if raw[at] != "\\":
                out.append(raw[at])
                at += 1
                continue
            width = self._escape_width(raw, at)
            if width == 0:
                break
            out.append(_decode_escape(raw[at : at + width]))
            at += width
        self._position = at
        return "".join(out)

    @staticmethod
    def _escape_width(raw: str, at: int) -> int:
        """Return the length of the escape at `at`, 0 if it is incomplete."""
        if at + 1 >= len(raw):
            return 0
        if raw[at + 1] != "u":
            return 2
        if at + 6 > len(raw):
            return 0
        if not re.match(r"\\u[dD][89abAB]", raw[at : at + 4]):
            return 6
        if at + 12 <= len(raw):
            return 12 if raw[at + 6 : at + 8] == "\\u" else 6
        return 0 if "\\u".startswith(raw[at + 6 : at + 8]) or raw[at + 6 : at + 8] == "\\u" else 6


def _decode_escape(escape: str) -> str:
    if escape[1] != "u":
        return _ESCAPES.get(escape[1], escape[1])
    try:
        return json.loads(f'"{escape}"').encode("utf-8", "replace").decode("utf-8")
    except ValueError:
        return "\ufffd"


def is_degenerate(text: str) -> bool:
    """Return whether a text ends in the same few characters or lines over and over."""
    tail = text[-400:]
    for size in range(1, 81):
        times = max(6, 160 // size)
        if len(tail) >= size * times and tail.endswith(tail[-size:] * times):
            return bool(tail[-size:].strip()) or times * size >= 200
    return False
