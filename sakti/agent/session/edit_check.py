"""Check edits of the small local model: do files parse, are names that it removed still used?

The model itself does not notice. Searches and commands run only if the judge allows them without a question.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
import shlex
import shutil
import tomllib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from msgspec import structs

from sakti.core.errors import SaktiError
from sakti.core.events import TextDelta
from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_count
from sakti.core.types import TextPart, ToolCallPart, ToolResultPart
from sakti.providers.protocol import Completed

if TYPE_CHECKING:
    from sakti.agent.session.turn import Turn

CHANGES = ("edit", "write", "apply_patch")
JAVASCRIPT = (".js", ".mjs", ".cjs")
PROSE = ("", ".md", ".rst", ".txt")  # suffixes of files that define nothing
NAMED = 3  # uses of a name that are listed
_DEFINITION = lazy_pattern(
    r"^\s*(?:(?:export|default|async|pub|public|private|static)\s+)*"
    r"(?:def|class|function|fn|func|const|let|var|type|interface|struct|enum|trait)\*?\s+(?:mut\s+)?(\w{2,})"
    r"(?=\s*(?:[^\w\s.]|$|(?:extends|implements|struct|interface)\b))"  # unlike words of a comment: "class of its own"
    r"|^(\w{2,})\s*(?::[^=]*)?=(?!=)"
)
_COMMENT = lazy_pattern(r"(?m)(?:^|\s)/[/*]")
_MODULE = lazy_pattern(r"(?m)^\s*(?:import\b\s*[^(\s]|export\b)")
_MODULE_TYPE = lazy_pattern(r'"type"\s*:\s*"module"')
# Errors of JSX, and of versions of node that take modules for scripts.
_OTHER_DIALECT = lazy_pattern(r"token '<'|import statement outside|token 'export'|import\.meta|await is only valid")
_PLACE = lazy_pattern(r"^(.+?):(\d+)[:-]")


def _find_changes(turn: Turn) -> list[ToolResultPart]:
    """Return the results of the turn's calls that changed a file."""
    results = [r for step in turn.steps if step.results is not None for r in step.results.tool_results]
    return [r for r in results if r.name in CHANGES and not r.is_error and r.details.get("path")]


async def with_verdict(turn: Turn, completed: Completed) -> Completed:
    """Return the last answer of the local model with the verdict on its edits; any other as it is."""
    if turn.model.provider != "local" or any(isinstance(p, ToolCallPart) for p in completed.parts):
        return completed
    changes = _find_changes(turn)
    if not changes:
        return completed
    text = f"\n\nChecked by the program: {await _join_problems(turn, changes)}"
    turn.emit(TextDelta(text))
    *parts, last = completed.parts or (TextPart(""),)
    if isinstance(last, TextPart):
        return structs.replace(completed, parts=(*parts, TextPart(last.text + text)))
    return structs.replace(completed, parts=(*parts, last, TextPart(text.lstrip())))


async def _join_problems(turn: Turn, changes: Sequence[ToolResultPart]) -> str:
    names = dict.fromkeys(name for r in changes for name in str(r.details["path"]).split(", "))
    sentences = [await _check_file(turn, name) for name in names]
    code = (r for r in changes if PurePath(str(r.details["path"])).suffix.lower() not in PROSE)
    removed = list_removed_definitions("\n".join(str(r.details.get("diff") or "") for r in code))
    sentences += [sentence for name in removed if (sentence := await _check_use(turn, name))]
    return " ".join(sentences)


async def _check_file(turn: Turn, name: str) -> str:
    path = turn.toolbox.state.resolve(name)
    if path.suffix.lower() in JAVASCRIPT and shutil.which("node"):
        problem = await _find_node_problem(turn, path)
    else:
        try:
            problem = await asyncio.to_thread(_find_file_problem, path)
        except OSError:
            problem = None
    if problem is None:
        return f"{name} is unchecked."
    return f"{name} does not parse: {problem}." if problem else f"{name} parses."


def _find_file_problem(path: Path) -> str | None:
    return parse_problem(path.name, path.read_text("utf-8-sig", "replace"))


def parse_problem(name: str, text: str) -> str | None:
    """Return why `text` does not parse, "" if it does, None for kinds of files that are not checked.

    JSON with comments is not checked: programs allow them in their settings.
    """
    parsers: dict[str, Any] = {
        ".py": _parse_python,
        ".pyi": _parse_python,
        ".json": json.loads,
        ".toml": tomllib.loads,
        ".yaml": _parse_yaml,
        ".yml": _parse_yaml,
    }
    parse = parsers.get(PurePath(name).suffix.lower())
    if parse is None:
        return None
    try:
        parse(text)
    except Exception as e:  # each parser has errors of its own
        if parse is json.loads and _COMMENT.search(text):
            return None
        return " ".join(str(e).split())[:120].rstrip(".") or type(e).__name__
    return ""


def _parse_python(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(text)


def _parse_yaml(text: str) -> None:
    yaml: Any = importlib.import_module("yaml")
    for _ in yaml.parse(text, Loader=yaml.SafeLoader):  # syntax alone: nothing is constructed
        pass


def list_removed_definitions(diff: str) -> list[str]:
    """Return names whose definitions a diff removes."""
    rows = [row for row in diff.split("\n") if row[:1] in "+-" and not row.startswith(("+++", "---"))]
    removed = _find_definitions(row[1:] for row in rows if row.startswith("-"))
    added = set(_find_definitions(row[1:] for row in rows if row.startswith("+")))
    return [name for name in removed if name not in added]


def _find_definitions(lines: Iterable[str]) -> list[str]:
    matches = (_DEFINITION.match(line) for line in lines)
    return list(dict.fromkeys(m[1] or m[2] for m in matches if m))


async def _check_use(turn: Turn, name: str) -> str:
    """Return the places that still use a removed name; "" if there are none."""
    result = await _call(turn, "grep", {"pattern": rf"\b{re.escape(name)}\b"})
    if result is None or result.is_error:
        return f"Whether `{name}` is still used is unchecked."
    matches = (_PLACE.match(line) for line in result.content.split("\n"))
    places = [f"{m[1]}:{m[2]}" for m in matches if m]
    if not places:
        return ""
    files = len({p.rpartition(":")[0] for p in places})
    more = ", …" if len(places) > NAMED else ""
    return f"`{name}` is gone but still used in {format_count(files, 'file')}: {', '.join(places[:NAMED])}{more}."


async def _find_node_problem(turn: Turn, path: Path) -> str | None:
    result = await _call(turn, "bash", {"command": f"node --check {shlex.quote(str(path))}"})
    if result is None or "exit_code" not in result.details:
        return None
    if not result.is_error:
        return None if await asyncio.to_thread(_is_unclear_module, path) else ""
    problem = next((line for line in result.content.split("\n") if "Error" in line), "node reports an error")
    return None if _OTHER_DIALECT.search(problem) else problem


def _is_unclear_module(path: Path) -> bool:
    """Return whether only its syntax makes a file a module: node then reports none of its errors."""
    try:
        if path.suffix.lower() != ".js" or not _MODULE.search(path.read_text("utf-8", "replace")):
            return False
        package = next((p for folder in path.parents if (p := folder / "package.json").is_file()), None)
        return package is None or not _MODULE_TYPE.search(package.read_text("utf-8", "replace"))
    except OSError:
        return True


async def _call(turn: Turn, name: str, arguments: dict[str, Any]) -> ToolResultPart | None:
    """Run a call that needs no approval; None if the judge would ask or deny."""
    call = ToolCallPart(turn.store.ids.new(), name, arguments)
    if not await turn.toolbox.runs_freely(call, turn.thread_id):
        return None
    try:
        return await turn.toolbox.run_single(call, turn.thread_id, lambda event: None)
    except SaktiError:
        return None
