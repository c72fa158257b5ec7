"""Translate calls in the style of other programs: tool names, argument names and value formats.

A call whose meaning is clear must not cost a step. The translation happens before a call is judged, so that no spelling
bypasses the approvals. Texts in which models write changes are parsed too: heredocs of patches, SEARCH/REPLACE blocks,
unified diffs, almost valid JSON. Pure: it uses nothing but the call.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from sakti.agent.judge.workspace_view import resolve_path
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern
from sakti.core.types import DEEPEST, Json

_HEREDOC = lazy_pattern(
    r"\s*(?:cd\s+(?P<dir>'[^'\n]*'|\"[^\"\n$`]*\"|[^\s;&|<>$`'\"]+)\s*&&\s*)?apply_?patch\s*<<-?\s*"
    r"(?P<q>['\"]?)(?P<word>\w+)(?P=q)[ \t]*\n(?P<body>.*?)\n(?P=word)\s*",
    re.DOTALL,
)
_ARGUMENT = lazy_pattern(
    r"\s*apply_?patch\s+(?P<q>['\"])(?P<body>\*\*\* Begin Patch\n.*?\*\*\* End Patch)\s*(?P=q)\s*", re.DOTALL
)

# A string, a bracket, or (`odd`) anything else but separators, constants, numbers and names before a colon.
_PIECE = lazy_pattern(
    r'(?P<string>"(?:[^"\\]|\\.)*")|[{}\[\],:]|(?:true|false|null|True|False|None|-?\d[\d.eE+-]*)\b'
    r"|\w+(?=\s*:)|\s+|(?P<odd>.)",
    re.DOTALL,
)


def read_heredoc(command: str) -> tuple[str, str] | None:
    """Return (folder, patch) of a command that only passes a patch to `apply_patch`."""
    match = _HEREDOC.fullmatch(command)
    if match is not None and "*** Begin Patch" in match["body"]:
        return (match["dir"] or "").strip("'\""), match["body"]
    match = _ARGUMENT.fullmatch(command)
    return ("", match["body"]) if match is not None else None


_BLOCK = lazy_pattern(
    r"^(?:<{5,9}|-{5,9}) ?SEARCH[^\n]*\n(?:(?::(?:start|end)_line:[^\n]*\n)+-{5,9}[ \t]*\n)?(.*?)"
    r"^={5,9}[ \t]*\n(.*?)^(?:>{5,9}|\+{5,9}) ?REPLACE[^\n]*$",
    re.DOTALL | re.MULTILINE,
)


def parse_blocks(text: str) -> list[Json]:
    """Parse the replacements of `<<<<<<< SEARCH … ======= … >>>>>>> REPLACE` blocks."""
    return [{"old": old, "new": new} for old, new in _BLOCK.findall(text.replace("\r\n", "\n"))]


def parse_hunks(text: str) -> list[Json]:
    """Parse the replacements of a unified diff, one per hunk."""
    out: list[Json] = []
    for hunk in re.split(r"^@@[^\n]*\n", text.replace("\r\n", "\n"), flags=re.MULTILINE)[1:]:
        rows = [r for r in hunk.split("\n") if r and not r.startswith(("\\", "--- ", "+++ ", "diff "))]
        old = "".join(r[1:] + "\n" for r in rows if r[0] in " -")
        new = "".join(r[1:] + "\n" for r in rows if r[0] in " +")
        out.append({"old": old, "new": new})
    return out


def load_text(text: str) -> Any:
    value = _repair(text)
    if value is None:
        raise ToolError("edits is not a list but text that is not JSON. Give a list of objects.")
    return value


def parse_leniently(raw: str) -> Json | None:
    """Parse arguments that are almost a JSON object, None if they are not one or not all of one.

    Accepts line breaks inside strings, a code fence or words around it, a JSON string of it, extra braces and commas. A
    text that may have been cut is never completed: a file would be written in part.
    """
    value = _repair(raw)
    return cast("Json", value) if isinstance(value, dict) else None


def _repair(text: str, *, inside: bool = False) -> Any:
    """Return the one value that a text holds, None if it is cut, unclear or not the only one."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text, strict=False)
        return _repair(value, inside=True) if isinstance(value, str) and not inside else value
    if not _is_one_value(text):
        return None
    import json_repair  # takes 0.06 s to import, only for calls that are not JSON

    try:
        return json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError):
        return None


def _is_one_value(text: str) -> bool:
    """Return whether a text holds exactly one object or list, ended, of which only the punctuation is odd.

    Words outside of quotes, single quotes and two texts side by side leave open where a text begins and ends.
    """
    depth = values = 0
    before = ""
    for piece in _PIECE.finditer(text):
        sign = piece[0]
        if sign.isspace() or (not depth and sign not in "{["):
            continue  # outside: words around the value, and braces after it
        if sign in "{[":
            values += not depth
            depth += 1
        elif sign in "}]":
            depth -= 1
        elif piece["odd"] or (piece["string"] and before):
            return False
        before = piece["string"] or ""
    return values == 1 and not depth


def explain_unreadable(raw: str) -> str:
    """Describe why arguments could not be parsed."""
    try:
        value = json.loads(raw)
    except RecursionError:
        return "are nested too deeply"
    except ValueError as e:
        return f"are not a JSON object ({e})"
    if not isinstance(value, dict):
        return "are not a JSON object"
    return f"are nested deeper than {DEEPEST} levels, or a text in them holds half of a surrogate pair"


LONGEST = 3_600  # seconds that a command may have; a larger number is one of milliseconds


def normalize(name: str) -> str:
    """Normalise a name: `file_path`, `filePath` and `file-path` are equal."""
    return name.replace("_", "").replace("-", "").lower()


class ForeignNames(Struct, frozen=True, forbid_unknown_fields=True):
    """Names that models know from other programs; the schema of `arguments.toml`.

    `tools` and `arguments` hold foreign names by ours, the others are sets of foreign names.
    """

    editors: frozenset[str]
    dropped: frozenset[str]
    wrappers: frozenset[str]
    old: frozenset[str]
    new: frozenset[str]
    all: frozenset[str]
    tools: dict[str, tuple[str, ...]]
    arguments: dict[str, dict[str, tuple[str, ...]]]
    file_types: dict[str, str]

    def __post_init__(self) -> None:
        """Add our own names to those that mean them."""
        for table in (self.tools, *self.arguments.values()):
            for ours, names in table.items():
                table[ours] = (normalize(ours), *names)


FOREIGN = msgspec.toml.decode(Path(__file__).with_name("arguments.toml").read_bytes(), type=ForeignNames)


def _invert(table: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: ours for ours, names in table.items() for name in names}


TOOLS = _invert(FOREIGN.tools)
_NAMES = {tool: _invert(table) for tool, table in FOREIGN.arguments.items()}
_REPLACEMENT = {
    **dict.fromkeys(FOREIGN.old, "old"),
    **dict.fromkeys(FOREIGN.new, "new"),
    **dict.fromkeys(FOREIGN.all, "all"),
}
_DURATION = lazy_pattern(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min)\s*", re.IGNORECASE)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60}


def translate_name(called: str) -> str:
    """Return our name of the tool that a model means, or `called` itself."""
    if called in _NAMES or called.startswith("mcp__"):  # a server's tool takes no name of ours
        return called
    return TOOLS.get(_strip_prefix(called), called)


def is_translated(name: str) -> bool:
    """Return whether this tool's arguments are translated here; other tools read their own."""
    return name in _NAMES


def _strip_prefix(called: str) -> str:
    return normalize(re.split(r"__|[.:/]", called)[-1])


def translate_call(name: str, arguments: Json, cwd: Path) -> tuple[str, Json]:
    """Translate a call to our tool, argument names and forms.

    Raises `ToolError` if that is impossible.
    """
    tool = translate_name(name)
    if tool.startswith("mcp__"):
        return tool, arguments
    values = _unwrap(arguments)
    if _strip_prefix(name) in FOREIGN.editors:
        tool, values = _translate_editor(values)
    if tool not in _NAMES:
        return tool, arguments
    tool, values = _list_by_glob(name, tool, values)
    out = translate_arguments(tool, values, cwd)
    if tool == "bash" and (patch := read_heredoc(str(out.get("command", "")))):
        return "apply_patch", {"patch": patch[1], **({"workdir": patch[0]} if patch[0] else {})}
    return tool, out


def _list_by_glob(name: str, tool: str, values: Json) -> tuple[str, Json]:
    """Turn a recursive listing and a search for a part of a name into calls of glob."""
    if tool == "ls" and _is_true(values.get("recursive")):
        return "glob", {**values, "pattern": "**/*"}
    if tool == "glob" and _strip_prefix(name) == "filesearch":
        pairs = [("pattern", f"**/*{v}*") if normalize(k) == "query" else (k, v) for k, v in values.items()]
        return "glob", dict(pairs)
    return tool, values


def translate_arguments(tool: str, arguments: Json, cwd: Path) -> Json:
    """Translate the arguments of one of our tools.

    Unknown ones are kept, to be refused later; correct ones are unchanged.
    """
    values = {k: v for k, v in _unwrap(arguments).items() if v is not None}
    special = _SPECIAL.get(tool)
    named, rest = _map_names(_NAMES[tool], values)
    if special is not None:
        special(named, rest, cwd)
    _check_text(tool, named)
    return named | {k: v for k, v in rest.items() if normalize(k) not in FOREIGN.dropped}


def _map_names(names: Mapping[str, str], values: Json) -> tuple[Json, Json]:
    """Return the arguments that have a name of ours, and the rest; our exact names come before other ones."""
    exact = {k for k in values if k in names.values()}
    named: Json = {}
    rest: Json = {}
    for key, value in values.items():
        ours = key if key in exact else names.get(normalize(key).lstrip("-"))
        if ours is not None and ours not in named and (key in exact or ours not in exact):
            named[ours] = value
        else:
            rest[key] = value
    return named, rest


def _unwrap(arguments: Json) -> Json:
    """Unwrap arguments that a model wrapped once more: `{"arguments": {…}}`."""
    if len(arguments) == 1:
        ((key, value),) = arguments.items()
        if normalize(key) in FOREIGN.wrappers and isinstance(value, dict):
            return cast("Json", value)
    return arguments


def _check_text(tool: str, named: Json) -> None:
    for key in ("path", "command", "pattern", "include", "id"):
        value = named.get(key)
        if isinstance(value, str) and "\0" in value:
            raise ToolError(f"{tool} was called with wrong arguments: {key} holds a NUL character. Leave it out.")


def _is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "yes", "1"))


def _take(rest: Json, *names: str) -> Any:
    """Remove and return the first of `names` (normalised) that is present."""
    for key in list(rest):
        if normalize(key).lstrip("-") in names:
            return rest.pop(key)
    return None


def _to_integer(value: Any) -> int | None:
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _unwrap_single(named: Json, key: str) -> None:
    """Replace a list of one text by that text, however deep it is wrapped."""
    while isinstance(value := named.get(key), list) and len(cast("list[Any]", value)) == 1:
        named[key] = value[0]


# --- each tool --------------------------------------------------------------------------------------------------------


def _translate_bash(named: Json, rest: Json, cwd: Path) -> None:
    command = named.get("command")
    if isinstance(command, list):
        named["command"] = _join_words([str(w) for w in cast("list[Any]", command)])
    if command is None and _is_true(_take(rest, "restart")):
        named["command"] = ":"
    folder = _take(rest, "workdir", "workingdirectory", "cwd", "cd", "directory", "dir", "dirpath", "path")
    if isinstance(folder, str) and folder.strip() and resolve_path(cwd, folder) != cwd and "command" in named:
        named["command"] = f"(cd {shlex.quote(folder)} && {{\n{named['command']}\n}})"
    _set_timeout(named, rest)


def _join_words(words: Sequence[str]) -> str:
    """Return the command that words mean, without a shell around it."""
    shell = len(words) == 3 and Path(words[0]).name in ("bash", "sh", "zsh") and words[1] in ("-c", "-lc", "-ic")
    return words[2] if shell else shlex.join(words)


def _set_timeout(named: Json, rest: Json) -> None:
    """Translate a time limit in any unit to seconds."""
    millis = _to_integer(_take(rest, "timeoutms", "timeoutmillis", "timeoutmilliseconds"))
    if isinstance(limit := named.get("timeout"), str) and (match := _DURATION.fullmatch(limit)):
        named["timeout"] = math.ceil(float(match[1]) * _UNITS[match[2].lower()])
    timeout = _to_integer(named["timeout"]) if "timeout" in named else None
    seconds = -(-millis // 1000) if millis is not None else timeout
    if seconds is None:
        return
    named["timeout"] = min(LONGEST, -(-seconds // 1000) if seconds > LONGEST else seconds)
    if named["timeout"] < 1:
        del named["timeout"]


def _translate_read(named: Json, rest: Json, _cwd: Path) -> None:
    _set_path(named, rest)
    offset, last = _take_line_range(named, rest)
    if offset is not None:
        named["offset"] = max(1, offset)
    start = named.get("offset", 1)
    if last is not None and isinstance(start, int) and last >= start:
        named["limit"] = last - start + 1
    if (limit := _to_integer(named.get("limit"))) is not None and limit < 1:
        del named["limit"]


def _set_path(named: Json, rest: Json) -> None:
    """Take the one path out of a list of paths or of tables. Raises `ToolError` for several."""
    for key in ("paths", "filepaths", "files"):
        if "path" not in named and (path := _take(rest, key)) is not None:
            named["path"] = path
    _unwrap_single(named, "path")
    _take(rest, "include")  # globs beside the paths
    inner = named.get("path")
    one = cast("Json", inner) if isinstance(inner, dict) else {}
    if isinstance(one.get("path"), str):  # [{"path": …, "line_ranges": ["1-20"]}]
        named["path"] = one["path"]
        ranges = _take(one, "lineranges")
        rest |= {"pages": ranges[0]} if isinstance(ranges, list) and ranges else {}
    elif isinstance(inner, list) and inner:
        raise ToolError("read reads one file: call it once for each; calls of one answer run at once.")


def _take_line_range(named: Json, rest: Json) -> tuple[int | None, int | None]:
    """First and last line that a call asks for, in any of the forms that models write."""
    offset, last = _to_integer(named.get("offset")), _to_integer(_take(rest, "endline", "lineend", "lastline", "toline",
                                                            "endlineoneindexedinclusive"))  # fmt: skip
    view = _take(rest, "viewrange", "linerange", "range")
    if isinstance(view, list) and len(cast("list[Any]", view)) == 2:
        offset, last = _to_integer(view[0]), _to_integer(view[1])
    pages = _take(rest, "pages", "page")
    if pages is not None and (page_range := re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", str(pages))):
        offset, last = int(page_range[1]), int(page_range[2] or page_range[1])
    return offset, last


def _translate_write(named: Json, _rest: Json, _cwd: Path) -> None:
    _unwrap_single(named, "path")
    content = named.get("content")
    if isinstance(content, dict | list):  # an object instead of the text of a JSON file
        named["content"] = json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _translate_edit(named: Json, rest: Json, _cwd: Path) -> None:
    _unwrap_single(named, "path")
    _list_edits(named, rest)
    single = {k: named.pop(k) for k in ("old", "new", "all") if k in named}
    line, text = _take_insertion(named, rest)
    single |= {k: rest.pop(k) for k in list(rest) if normalize(k) in _REPLACEMENT}
    if (_to_integer(_take(rest, "expectedreplacements", "count")) or 1) > 1:
        single["all"] = True
    _set_edits(named, single, line, text)


def _set_edits(named: Json, single: Json, line: int | None, text: Any) -> None:
    """Make a list of edits of a `single` replacement, or of a text to insert after a line."""
    if line is not None:
        named["edits"] = [{"old": "", "new": str(text or _translate_replacement(single).get("new", "")), "after": line}]
    elif "edits" not in named and single.keys() - {"all"}:
        named["edits"] = [_translate_replacement(single)]
    elif single.get("all") and isinstance(there := named.get("edits"), list):
        only = cast("list[Any]", there)
        if len(only) == 1 and isinstance(only[0], dict):
            named["edits"] = [{**only[0], "all": single["all"]}]


def _list_edits(named: Json, rest: Json) -> None:
    """Read the replacements of a call from JSON, search-and-replace blocks or a diff."""
    edits = named.get("edits")
    if isinstance(edits, str):
        edits = parse_blocks(edits) if "<<<<" in edits else load_text(edits)
    listed: Any = [edits] if isinstance(edits, dict) else edits
    if isinstance(listed, list):
        each = _take_path(named, cast("list[Any]", listed))
        named["edits"] = [_translate_replacement(e) for e in each]
    diff = _take(rest, "diff", "patch", "searchreplace")
    if edits is None and isinstance(diff, str):
        named["edits"] = parse_blocks(diff) or parse_hunks(diff)


def _take_insertion(named: Json, rest: Json) -> tuple[int | None, Any]:
    """Line after which a call inserts a text, and that text; None for a call that inserts nothing."""
    line = _to_integer(_take(rest, "insertline"))
    text = _take(rest, "inserttext") if line is not None else None
    if (
        "edits" not in named and (before := _to_integer(_take(rest, "line"))) is not None
    ):  # insert_content: before that line
        return max(0, before - 1), _take(rest, "content")
    return line, text


def _list_paths(tables: Sequence[Json]) -> set[str]:
    return {str(v) for e in tables for k, v in e.items() if _NAMES["edit"].get(normalize(k)) == "path"}


def _take_path(named: Json, edits: list[Any]) -> list[Any]:
    """Move the file that all `edits` name from them to the call's `path`."""
    tables = [cast("Json", e) for e in edits if isinstance(e, dict)]
    paths = _list_paths(tables)
    if not paths:
        return edits
    if "path" in named:
        paths.add(str(named["path"]))
    if len(paths) > 1:
        raise ToolError("edit changes one file: call it once for each file.")
    named["path"] = paths.pop()
    return [{k: v for k, v in e.items() if _NAMES["edit"].get(normalize(k)) != "path"} for e in tables]


def _translate_field(key: str, value: Any) -> str:
    if normalize(key) == "after" and isinstance(value, int):  # a line to insert after, not a text
        return "after"
    return _REPLACEMENT.get(normalize(key), key)


def _translate_replacement(value: Any) -> Any:
    """Translate the argument names of one replacement."""
    if isinstance(value, list) and len(pair := cast("list[Any]", value)) == 2:
        return {"old": pair[0], "new": pair[1]}
    if not isinstance(value, dict):
        return cast("Any", value)
    out: Json = {}
    for key, each in cast("Json", value).items():
        name = normalize(key)
        ours = _translate_field(key, each)
        is_one_of_ours = name in _REPLACEMENT or name == "after"
        if each is not None and ours not in out and (is_one_of_ours or name not in FOREIGN.dropped):
            out[ours] = each
    return out


def _translate_glob(named: Json, _rest: Json, _cwd: Path) -> None:
    _unwrap_single(named, "pattern")
    pattern = named.get("pattern")
    if not isinstance(pattern, str):
        return
    fixed: list[str] = []
    parts = pattern.split("/")
    while len(parts) > 1 and not re.search(r"[*?\[{]", parts[0]) and (fixed or parts[0] in ("", ".", "..", "~")):
        fixed.append(parts.pop(0))
    if fixed:  # an absolute pattern, or one with ./ or ../ before it, names the folder to search
        folder = "/".join(fixed) or "/"
        base = str(named.get("path", "."))
        named["path"] = folder if folder[0] in "/~" else f"{base}/{folder}"
        named["pattern"] = "/".join(parts)


def _translate_grep(named: Json, rest: Json, _cwd: Path) -> None:
    for key in ("path", "pattern", "include"):
        _unwrap_single(named, key)
    if isinstance(named.get("include"), list):
        named["include"] = "{" + ",".join(map(str, named["include"])) + "}"
    _set_grep_limits(named, rest)
    _set_opposite(named, rest, "literal", "isregexp")
    _set_opposite(named, rest, "ignore_case", "casesensitive")
    shape = _take(rest, "outputmode")
    if isinstance(shape, str) and "files_only" not in named:
        named["files_only"] = shape != "content"
    kind = _take(rest, "type", "filetype", "language")
    if isinstance(kind, str) and kind and "include" not in named:
        named["include"] = FOREIGN.file_types.get(kind.lower(), f"*.{kind.lower()}")


def _set_opposite(named: Json, rest: Json, ours: str, theirs: str) -> None:
    """Set our flag by one that means the opposite."""
    value = _take(rest, theirs)
    if value is not None and ours not in named:
        named[ours] = not _is_true(value)


def _set_grep_limits(named: Json, rest: Json) -> None:
    """Bring the lines of context and the number of results into their bounds."""
    around = [
        n
        for n in (
            _to_integer(_take(rest, "a", "aftercontext", "before")),
            _to_integer(_take(rest, "b", "beforecontext")),
        )
        if n
    ]
    if around and "context" not in named:
        named["context"] = max(around)
    if (context := _to_integer(named.get("context"))) is not None:
        named["context"] = min(max(0, context), 10)
    if (limit := _to_integer(named.get("limit"))) is not None:
        if limit < 1:
            del named["limit"]
        else:
            named["limit"] = min(limit, 1_000)


def _translate_id(named: Json, _rest: Json, _cwd: Path) -> None:
    if isinstance(named.get("id"), int | float):
        named["id"] = str(_to_integer(named["id"]))


def _translate_patch(named: Json, _rest: Json, _cwd: Path) -> None:
    patch = named.get("patch")
    if isinstance(patch, list):  # ["apply_patch", "*** Begin Patch …"]
        words = [str(word) for word in cast("list[Any]", patch)]
        named["patch"] = next((word for word in words if "*** Begin Patch" in word), "\n".join(words))


def _translate_ls(named: Json, _rest: Json, _cwd: Path) -> None:
    _unwrap_single(named, "path")


_SPECIAL: dict[str, Callable[[Json, Json, Path], None]] = {
    "bash": _translate_bash,
    "read": _translate_read,
    "write": _translate_write,
    "edit": _translate_edit,
    "ls": _translate_ls,
    "glob": _translate_glob,
    "grep": _translate_grep,
    "bash_output": _translate_id,
    "kill": _translate_id,
    "apply_patch": _translate_patch,
}


def _translate_editor(given: Json) -> tuple[str, Json]:
    """Translate a call of an editor tool, whose `command` selects the operation."""
    rest = dict(given)
    command = normalize(str(rest.pop("command", "view")))
    tool = {"create": "write", "write": "write", "strreplace": "edit", "insert": "edit", "edit": "edit"}.get(command)
    if tool is None and command not in ("view", "read"):
        raise ToolError(f"There is no command {command} here; use read, write or edit.")
    unused = {"write": ("oldstr", "newstr", "viewrange", "insertline"), "edit": ("filetext", "viewrange")}
    dropped = unused.get(tool or "", ("filetext", "oldstr", "newstr", "insertline"))
    return tool or "read", {k: v for k, v in rest.items() if normalize(k) not in dropped}
