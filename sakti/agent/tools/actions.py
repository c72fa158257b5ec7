"""Make one tool of several actions: one flat object of arguments, validated here, answered as JSON.

    async def show(run: ToolContext, *, id: str) -> Json: ...

    action_tool("task-query", (FIELD, …), (show, …))

An action takes the keyword arguments that it names, required if they have no default. The schema that models see is
flat (no `$ref`, no `oneOf`): providers refuse or misread the rest. Names from other agents' tools are mapped to ours,
and values are taken as models write them ("3", "P1", "done"). An error is an answer of the call that names the fields
of the action, never an exception.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field

from sakti.agent.tools.base import Tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.errors import SaktiError
from sakti.core.resources import read_prompt
from sakti.core.text import show_value
from sakti.core.types import Json, ToolSpec
from sakti.tasks.changes import check_text

Run = Callable[..., Awaitable[Json]]


class Field(Struct, frozen=True):
    """One argument: its JSON Schema, accepted names, and accepted words for its values (in lower case).

    `only` gives names that hold for some actions only, because they mean something else in others. `read` validates
    what the schema alone cannot; it raises `ValueError` with a sentence.
    """

    name: str
    schema: Json
    also: tuple[str, ...] = ()
    words: Mapping[str, Any] = field(default_factory=dict[str, Any])
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    read: Callable[[Any], Any] | None = None

    def list_names(self, action: str) -> tuple[str, ...]:
        """Return the argument's accepted names, preferred first, in lower case without punctuation."""
        return tuple(_normalize(n) for n in (self.name, *self.only.get(action, ()), *self.also))


class MissingArgument(Struct, frozen=True):
    """Error for a missing argument: a sentence and a code."""

    sentence: str
    code: str = "invalid"


class BoundAction(Struct, frozen=True):
    """Action with its arguments, each with its default (`inspect.Parameter.empty`: required)."""

    name: str
    run: Run
    takes: Mapping[str, Any]

    def fields(self) -> str:
        needed = [n for n, default in self.takes.items() if default is inspect.Parameter.empty]
        others = [n for n in self.takes if n not in needed]
        return ", ".join([*needed, *(f"{n}?" for n in others)]) or "nothing else"


class WrongArguments(Exception):
    """Wrong arguments; the model reads the message."""


class ActionTool(Tool, frozen=True):
    """Tool whose `action` selects its other arguments.

    `usual` is the action if none is named; `hints` say what to use instead of an unknown argument, by its name in lower
    case.
    """

    fields: tuple[Field, ...] = ()
    actions: Mapping[str, BoundAction] = field(default_factory=dict[str, BoundAction])
    missing: Mapping[str, MissingArgument] = field(default_factory=dict[str, MissingArgument])
    usual: str = ""
    hints: Mapping[str, str] = field(default_factory=dict[str, str])

    def spec(self) -> ToolSpec:
        properties: Json = {"action": {"type": "string", "enum": list(self.actions)}}
        properties |= {f.name: f.schema for f in self.fields}
        schema: Json = {"type": "object", "properties": properties, "required": ["action"]}
        return ToolSpec(self.name, self.description, {**schema, "additionalProperties": False})

    async def __call__(self, run: ToolContext, arguments: Json) -> Outcome:
        """Validate the arguments and run the action.

        Returns `success` and its result, or `error` and `code`.
        """
        try:
            for name, value in arguments.items():
                check_text(name, value)
            action = self._find_action(arguments)
            values = self._map_arguments(action, arguments)
            for name, default in action.takes.items():
                if default is inspect.Parameter.empty and name not in values:
                    what = self.missing.get(name, MissingArgument(f"needs {name}"))
                    return make_refusal(
                        SaktiError(f"{action.name} {what.sentence}. {_describe_arguments(action)}", code=what.code)
                    )
            return make_answer(await action.run(run, **values))
        except WrongArguments as e:
            return make_refusal(SaktiError(f"{self.name} was called with wrong arguments: {e}", code="invalid"))
        except SaktiError as e:
            return make_refusal(e)

    def check(self, arguments: Json, cwd: Path) -> Json:
        """Return the arguments unchanged: the call itself reports errors in them."""
        return arguments

    def _find_action(self, arguments: Json) -> BoundAction:
        named = arguments.get("action") or self.usual
        action = self.actions.get(_normalize(str(named))) if named else None
        if action is None:
            what = f"there is no action {show_value(named)}" if named else "action is missing"
            raise WrongArguments(f"{what}; it is one of {', '.join(self.actions)}.")
        return action

    def _map_arguments(self, action: BoundAction, arguments: Json) -> dict[str, Any]:
        """Map the action's arguments to our names. Raises `WrongArguments`."""
        action_fields = [f for f in self.fields if f.name in action.takes]
        exact = {_normalize(f.name) for f in action_fields} & set(map(_normalize, arguments))
        out: dict[str, Any] = {}
        unknown: list[str] = []
        used = {k: v for k, v in arguments.items() if k != "action" and v is not None}
        for key, value in used.items():
            name = _normalize(key)
            meant = _find_fields(action_fields, name, action)
            field = _choose_field(meant, name, exact)
            if field is not None and field.name not in out:
                out[field.name] = _convert_value(field, value)
            elif not meant and not self._may_be_ignored(action, name, value):
                unknown.append(key)
        if unknown:
            raise self._make_unknown_error(action, unknown)
        return out

    def _make_unknown_error(self, action: BoundAction, names: Sequence[str]) -> WrongArguments:
        hints = "".join(f" {hint}" for name in names if (hint := self.hints.get(_normalize(name))))
        return WrongArguments(f"{action.name} does not take {', '.join(names)}.{hints} {_describe_arguments(action)}")

    def _may_be_ignored(self, action: BoundAction, name: str, value: Any) -> bool:
        """Return whether an argument is an empty one of another action: some models fill in all of them."""
        return value in ("", [], {}, False, 0) and any(name in f.list_names(action.name) for f in self.fields)


def _find_fields(fields: Sequence[Field], name: str, action: BoundAction) -> list[Field]:
    """Return the fields of an action that an argument's name may mean."""
    return [f for f in fields if name in f.list_names(action.name)]


def _choose_field(fields: Sequence[Field], name: str, exact: Collection[str]) -> Field | None:
    """Return the field with this name, else one whose own name is not among the arguments (`exact`)."""
    named = next((f for f in fields if _normalize(f.name) == name), None)
    return named or next((f for f in fields if _normalize(f.name) not in exact), None)


def _describe_arguments(action: BoundAction) -> str:
    return f"{action.name} takes {action.fields()}."


def _normalize(name: str) -> str:
    """Normalise a name: `depends_on`, `dependsOn` and `depends-on` are equal; `update_context` stays."""
    return name if name == "update_context" else name.replace("_", "").replace("-", "").lower()


def _convert_value(field: Field, value: Any) -> Any:
    """Convert a value to its schema. Raises `WrongArguments`."""
    schema, name = field.schema, field.name
    if field.read is not None:
        try:
            return field.read(value)
        except ValueError as e:
            raise WrongArguments(f"{name}: {e}") from e
    if isinstance(value, str) and value.strip().lower() in field.words:
        value = field.words[value.strip().lower()]
    value = _CONVERT.get(schema["type"], _read_text)(field, value)
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        raise WrongArguments(f"{name} is one of {', '.join(allowed)}, not {show_value(value)}.")
    return value


def _is_within(value: Any, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _read_integer(field: Field, value: Any) -> Any:
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        value = int(value)
    low, high = field.schema.get("minimum"), field.schema.get("maximum")
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or not _is_within(value, low, high):
        bounds = f" from {low} to {high}" if high is not None else "" if low is None else f" of at least {low}"
        raise WrongArguments(f"{field.name} is a whole number{bounds}, not {show_value(value)}.")
    return value


def _read_boolean(field: Field, value: Any) -> Any:
    value = {"true": True, "false": False}.get(value.strip().lower(), value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise WrongArguments(f"{field.name} is true or false, not {show_value(value)}.")
    return value


def _read_text(field: Field, value: Any) -> Any:
    if not isinstance(value, str):
        raise WrongArguments(f"{field.name} is text, not {show_value(value)}.")
    return value


def _split_texts(text: str) -> list[str]:
    bare = text.strip().removeprefix("[").removesuffix("]")
    return [part for each in bare.split(",") if (part := each.strip().strip("\"'"))]


def _read_list(field: Field, value: Any) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(i, str) for i in cast("list[Any]", items)):
        raise WrongArguments(f"{field.name} is a list of texts, not {show_value(value)}.")
    texts = cast("list[str]", items)
    if isinstance(value, str):  # "a, b", or a list that was written as text
        texts = _split_texts(value)
    allowed: list[str] | None = field.schema["items"].get("enum")
    wrong = [t for t in texts if t not in allowed] if allowed is not None else []
    if allowed is not None and wrong:
        raise WrongArguments(f"{field.name} are of {', '.join(allowed)}, not {show_value(wrong[0])}.")
    return texts


def _read_object(field: Field, value: Any) -> Json:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as e:
            raise WrongArguments(f"{field.name} is not a JSON object: {e}.") from e
    if not isinstance(value, dict):
        raise WrongArguments(f"{field.name} is an object, not {show_value(value)}.")
    return cast("Json", value)


_CONVERT: Mapping[str, Callable[[Field, Any], Any]] = {
    "integer": _read_integer,
    "boolean": _read_boolean,
    "array": _read_list,
    "object": _read_object,
}


def make_answer(values: Json) -> Outcome:
    """Return the answer of an action that succeeded."""
    return Outcome(json.dumps({"success": True, **values}, ensure_ascii=False))


def make_refusal(error: SaktiError) -> Outcome:
    """Return the answer of a refused action, and why."""
    body = {"success": False, "error": error.message, "code": error.code}
    return Outcome(json.dumps(body, ensure_ascii=False), is_error=True)


async def _refuse_call(*_: Any) -> Outcome:
    raise NotImplementedError  # an ActionTool runs its actions


def make_action_tool(
    name: str,
    fields: Sequence[Field],
    actions: Mapping[str, Run],
    *,
    parallel: bool = False,
    missing: Mapping[str, MissingArgument] | None = None,
    usual: str = "",
    hints: Mapping[str, str] | None = None,
) -> ActionTool:
    """Make a tool of its actions, by name; its description is `prompts/tools/<name>.md`."""
    actions_by_name: dict[str, BoundAction] = {}
    field_names = {f.name for f in fields}
    for each, run in actions.items():
        parameters = [p for p in inspect.signature(run).parameters.values() if p.kind is p.KEYWORD_ONLY]
        takes = {p.name: p.default for p in parameters}
        assert takes.keys() <= field_names, f"{each} uses fields that {name} lacks: {takes.keys() - field_names}"
        actions_by_name[each] = BoundAction(each, run, takes)
    return ActionTool(
        name=name,
        description=read_prompt(f"tools/{name}"),
        parameters={},
        function=_refuse_call,
        effect="own",
        parallel=parallel,
        rule_name=name,
        fields=tuple(fields),
        actions=actions_by_name,
        missing=missing or {},
        usual=usual,
        hints=hints or {},
    )
