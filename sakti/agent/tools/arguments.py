"""Translate calls that models know from other programs: names of tools and arguments, and their forms.

A call whose meaning is clear must not cost a step. The translation happens before a call is judged, so that no
spelling gets round the approvals. Pure: it uses nothing but the call.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from sakti.agent.judge.where import resolve_path
from sakti.agent.tools.call_texts import blocks, heredoc, hunks, loaded
from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json

LONGEST = 3_600  # seconds that a command may have; a larger number is one of milliseconds


def plain(name: str) -> str:
    """Normalise a name: `file_path`, `filePath` and `file-path` are equal."""
    return name.replace("_", "").replace("-", "").lower()


def _table(lists: Mapping[str, str]) -> dict[str, str]:
    return {name: ours for ours, names in lists.items() for name in (plain(ours), *names.split())}


TOOLS = _table(
    {
        "bash": "shell execute executecommand executebash runshellcommand runterminalcmd runterminalcommand runcommand"
        " runinterminal shellcommand execcommand exec terminal localshell",
        "bash_output": "getoutput getterminaloutput shelloutput readshell",
        "kill": "killshell killbash killprocess",
        "read": "readfile readmanyfiles view viewfile openfile viewimage cat",
        "write": "writefile writetofile createfile newfile savefile",
        "edit": "editfile multiedit strreplace replace replaceinfile replacestringinfile multireplacestringinfile"
        " searchreplace searchandreplace applydiff editblock insertcontent",
        "ls": "list listdir listdirectory listfiles tree",
        "glob": "findfiles findpath filesearch globfilesearch find",
        "grep": "search searchfiles searchfilecontent grepsearch grepfiles searchcode rg ripgrep",
        "apply_patch": "patch applypatches",
        "agent": "task subagent dispatchagent",
        "ask_user": "askuserquestion askfollowupquestion",
        "present_plan": "exitplanmode presentplan",
        "webfetch": "fetch fetchurl fetchwebpage fetchpage readurl openurl urlfetch",
        "websearch": "searchweb googlewebsearch googlesearch",
    }
)
EDITORS = frozenset({"strreplacebasededittool", "strreplaceeditor", "texteditor", "strreplaceeditortool"})

_PATH = "filepath file filename absolutepath targetfile targetpath"
_FOLDER = "directory dir dirpath folder targetdirectory relativeworkspacepath searchdirectory root cwd directorypath"
_NAMES = {
    "bash": _table({"command": "cmd script commands input code", "timeout": "timeoutseconds timeoutsec",
                    "background": "runinbackground isbackground detach"}),
    "bash_output": _table({"id": "bashid shellid sessionid processid taskid pid"}),
    "kill": _table({"id": "bashid shellid sessionid processid taskid pid"}),
    "read": _table({"path": _PATH, "offset": "startline linestart startlineoneindexed firstline fromline line",
                    "limit": "maxlines numlines lines count linelimit"}),
    "write": _table({"path": _PATH, "content": "contents filetext text code data body filecontent filecontents"}),
    "edit": _table({"path": _PATH, "edits": "changes replacements blocks", "old": "", "new": "", "all": ""}),
    "ls": _table({"path": f"{_PATH} {_FOLDER}"}),
    "glob": _table({"pattern": "globpattern query name filepattern include glob patterns", "path": _FOLDER}),
    "grep": _table({
        "pattern": "regex regexp query search searchterm expression q", "path": f"{_PATH} {_FOLDER} searchpath",
        "include": "glob filepattern includepattern fileglob globpattern includes", "context": "contextlines c",
        "ignore_case": "i caseinsensitive", "files_only": "fileswithmatches l",
        "limit": "headlimit maxresults maxcount", "literal": "fixedstrings f isliteral",
    }),
    "apply_patch": _table({"patch": "input patchtext diff content"}),
    "webfetch": _table({"url": "uri link address"}),
    "websearch": _table({"query": "q searchterm", "limit": "count maxresults numresults", "site": "domain"}),
    "agent": _table({
        "mode": "subagenttype agenttype agent type", "goal": "prompt task message", "context": "", "tools": "",
        "model": "", "background": "runinbackground", "resume": "agentid",
    }),
}  # fmt: skip
_OLD = frozenset("old oldstring oldtext oldstr search find original before oldcontent oldcode".split())
_NEW = frozenset("new newstring newtext newstr replace replacement updated after newcontent newcode".split())
_ALL = frozenset("all replaceall allowmultiple multiple allowmultiplereplacements global".split())

# Arguments that change nothing of what is done here: they are for the other program's screen, limits or approvals.
_DROPPED = frozenset(
    "description explanation instruction instructions purpose reason requiresapproval thought summary title comment"
    " shouldreadentirefile respectgitignore filefilteringoptions ignore offset depth limit n multiline excludepattern"
    " exclude filter yieldtimems maxoutputtokens maxtokens block wait sandboxpermissions withescalatedpermissions"
    " justification login tty shell ismultiline mode indentation fuzzy encoding createdirs taskprogress issandboxed"
    " casesensitive recursive sortby sort expectedreplacements restart requiredpermissions securityrisk isinput goal"
    " isregexp ignoreglobs maxresults includehidden prompt format maxlength".split()
)
_DURATION = lazy_pattern(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min)\s*", re.IGNORECASE)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60}
_WRAPPERS = frozenset("arguments args params parameters input kwargs toolinput".split())

_SCRIPTS = {"js": "*.{js,jsx,mjs,cjs}", "ts": "*.{ts,tsx,mts,cts}"}
_TYPES = {
    **_SCRIPTS, "javascript": _SCRIPTS["js"], "typescript": _SCRIPTS["ts"], "python": "*.py", "rust": "*.rs",
    "markdown": "*.md", "cpp": "*.{cc,cpp,cxx,h,hh,hpp,hxx}", "c": "*.{c,h}", "yaml": "*.{yaml,yml}",
    "html": "*.{html,htm}", "ruby": "*.rb", "kotlin": "*.{kt,kts}", "shell": "*.{sh,bash}",
}  # fmt: skip


def tool_name(called: str) -> str:
    """Return our name of the tool that a model means, or `called` itself."""
    if called in _NAMES or called.startswith("mcp__"):  # a server's tool takes no name of ours
        return called
    return TOOLS.get(_bare(called), called)


def is_translated(name: str) -> bool:
    """Return whether this tool's arguments are translated here; other tools read their own."""
    return name in _NAMES


def _bare(called: str) -> str:
    return plain(re.split(r"__|[.:/]", called)[-1])


def call(name: str, arguments: Json, cwd: Path) -> tuple[str, Json]:
    """Translate a call to our tool, argument names and forms.

    Raises `ToolError` if that is impossible.
    """
    tool = tool_name(name)
    if tool.startswith("mcp__"):
        return tool, arguments
    values = _unwrap(arguments)
    if _bare(name) in EDITORS:
        tool, values = _editor(values)
    if tool not in _NAMES:
        return tool, arguments
    if tool == "ls" and _truth(values.get("recursive")):
        tool, values = "glob", {**values, "pattern": "**/*"}
    if tool == "glob" and _bare(name) == "filesearch":
        values = {"pattern" if plain(k) == "query" else k: f"**/*{v}*" if plain(k) == "query" else v
                 for k, v in values.items()}  # fmt: skip
    out = translate_arguments(tool, values, cwd)
    if tool == "bash" and (patch := heredoc(str(out.get("command", "")))):
        return "apply_patch", {"patch": patch[1], **({"workdir": patch[0]} if patch[0] else {})}
    return tool, out


def translate_arguments(tool: str, arguments: Json, cwd: Path) -> Json:
    """Translate the arguments of one of our tools.

    Unknown ones are kept, to be refused later; correct ones are unchanged.
    """
    values = {k: v for k, v in _unwrap(arguments).items() if v is not None}
    special = _SPECIAL.get(tool)
    names = _NAMES[tool]
    exact = {k for k in values if k in names.values()}
    named: Json = {}
    rest: Json = {}
    for key, value in values.items():
        ours = key if key in exact else names.get(plain(key).lstrip("-"))
        if ours is not None and ours not in named and (key in exact or ours not in exact):
            named[ours] = value
        else:
            rest[key] = value
    if special is not None:
        special(named, rest, cwd)
    _check_text(tool, named)
    return named | {k: v for k, v in rest.items() if plain(k) not in _DROPPED}


def _unwrap(arguments: Json) -> Json:
    """Unwrap arguments that a model wrapped once more: `{"arguments": {…}}`."""
    if len(arguments) == 1:
        ((key, value),) = arguments.items()
        if plain(key) in _WRAPPERS and isinstance(value, dict):
            return cast("Json", value)
    return arguments


def _check_text(tool: str, named: Json) -> None:
    for key in ("path", "command", "pattern", "include", "id"):
        value = named.get(key)
        if isinstance(value, str) and "\0" in value:
            raise ToolError(f"{tool} was called with wrong arguments: {key} holds a NUL character. Leave it out.")


def _truth(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "yes", "1"))


def _take(rest: Json, *names: str) -> Any:
    """Remove and return the first of `names` (normalised) that is present."""
    for key in list(rest):
        if plain(key).lstrip("-") in names:
            return rest.pop(key)
    return None


def _whole(value: Any) -> int | None:
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _one(named: Json, key: str) -> None:
    """Replace a list of one text by that text, however deep it is wrapped."""
    while isinstance(value := named.get(key), list) and len(cast("list[Any]", value)) == 1:
        named[key] = value[0]


# --- each tool --------------------------------------------------------------------------------------------------------


def _bash(named: Json, rest: Json, cwd: Path) -> None:
    command = named.get("command")
    if isinstance(command, list):
        words = [str(w) for w in cast("list[Any]", command)]
        shell = len(words) == 3 and Path(words[0]).name in ("bash", "sh", "zsh") and words[1] in ("-c", "-lc", "-ic")
        named["command"] = words[2] if shell else shlex.join(words)
    if command is None and _truth(_take(rest, "restart")):
        named["command"] = ":"
    folder = _take(rest, "workdir", "workingdirectory", "cwd", "cd", "directory", "dir", "dirpath", "path")
    if isinstance(folder, str) and folder.strip() and resolve_path(cwd, folder) != cwd and "command" in named:
        named["command"] = f"(cd {shlex.quote(folder)} && {{\n{named['command']}\n}})"
    _set_timeout(named, rest)


def _set_timeout(named: Json, rest: Json) -> None:
    """Translate a time limit in any unit to seconds."""
    millis = _whole(_take(rest, "timeoutms", "timeoutmillis", "timeoutmilliseconds"))
    if isinstance(limit := named.get("timeout"), str) and (match := _DURATION.fullmatch(limit)):
        named["timeout"] = math.ceil(float(match[1]) * _UNITS[match[2].lower()])
    timeout = _whole(named["timeout"]) if "timeout" in named else None
    seconds = -(-millis // 1000) if millis is not None else timeout
    if seconds is None:
        return
    named["timeout"] = min(LONGEST, -(-seconds // 1000) if seconds > LONGEST else seconds)
    if named["timeout"] < 1:
        del named["timeout"]


def _read(named: Json, rest: Json, _cwd: Path) -> None:
    _set_path(named, rest)
    offset, last = _line_range(named, rest)
    if offset is not None:
        named["offset"] = max(1, offset)
    start = named.get("offset", 1)
    if last is not None and isinstance(start, int) and last >= start:
        named["limit"] = last - start + 1
    if (limit := _whole(named.get("limit"))) is not None and limit < 1:
        del named["limit"]


def _set_path(named: Json, rest: Json) -> None:
    """Take the one path out of a list of paths or of tables. Raises `ToolError` for several."""
    for key in ("paths", "filepaths", "files"):
        if "path" not in named and (path := _take(rest, key)) is not None:
            named["path"] = path
    _one(named, "path")
    _take(rest, "include")  # globs beside the paths
    inner = named.get("path")
    one = cast("Json", inner) if isinstance(inner, dict) else {}
    if isinstance(one.get("path"), str):  # [{"path": …, "line_ranges": ["1-20"]}]
        named["path"] = one["path"]
        ranges = _take(one, "lineranges")
        rest |= {"pages": ranges[0]} if isinstance(ranges, list) and ranges else {}
    elif isinstance(inner, list) and inner:
        raise ToolError("read reads one file: call it once for each; calls of one answer run at once.")


def _line_range(named: Json, rest: Json) -> tuple[int | None, int | None]:
    """First and last line that a call asks for, in any of the forms that models write."""
    offset, last = _whole(named.get("offset")), _whole(_take(rest, "endline", "lineend", "lastline", "toline",
                                                            "endlineoneindexedinclusive"))  # fmt: skip
    view = _take(rest, "viewrange", "linerange", "range")
    if isinstance(view, list) and len(cast("list[Any]", view)) == 2:
        offset, last = _whole(view[0]), _whole(view[1])
    pages = _take(rest, "pages", "page")
    if pages is not None and (page_range := re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", str(pages))):
        offset, last = int(page_range[1]), int(page_range[2] or page_range[1])
    return offset, last


def _write(named: Json, _rest: Json, _cwd: Path) -> None:
    _one(named, "path")
    content = named.get("content")
    if isinstance(content, dict | list):  # the object itself where the text of a JSON file was meant
        named["content"] = json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _edit(named: Json, rest: Json, _cwd: Path) -> None:
    _one(named, "path")
    _list_edits(named, rest)
    single = {k: named.pop(k) for k in ("old", "new", "all") if k in named}
    line, text = _insertion(named, rest)
    single |= {k: rest.pop(k) for k in list(rest) if plain(k) in _OLD | _NEW | _ALL}
    if (_whole(_take(rest, "expectedreplacements", "count")) or 1) > 1:
        single["all"] = True
    if line is not None:
        named["edits"] = [{"old": "", "new": str(text or _change(single).get("new", "")), "after": line}]
    elif "edits" not in named and single.keys() - {"all"}:
        named["edits"] = [_change(single)]
    elif single.get("all") and isinstance(there := named.get("edits"), list):
        only = cast("list[Any]", there)
        if len(only) == 1 and isinstance(only[0], dict):
            named["edits"] = [{**only[0], "all": single["all"]}]


def _list_edits(named: Json, rest: Json) -> None:
    """Read the replacements of a call from JSON, search-and-replace blocks or a diff."""
    edits = named.get("edits")
    if isinstance(edits, str):
        edits = blocks(edits) if "<<<<" in edits else loaded(edits)
    listed: Any = [edits] if isinstance(edits, dict) else edits
    if isinstance(listed, list):
        each = _of_one_file(named, cast("list[Any]", listed))
        named["edits"] = [_change(e) for e in each]
    diff = _take(rest, "diff", "patch", "searchreplace")
    if edits is None and isinstance(diff, str):
        named["edits"] = blocks(diff) or hunks(diff)


def _insertion(named: Json, rest: Json) -> tuple[int | None, Any]:
    """Line after which a call inserts a text, and that text; None for a call that inserts nothing."""
    line = _whole(_take(rest, "insertline"))
    text = _take(rest, "inserttext") if line is not None else None
    if "edits" not in named and (before := _whole(_take(rest, "line"))) is not None:  # insert_content: before that line
        return max(0, before - 1), _take(rest, "content")
    return line, text


def _of_one_file(named: Json, edits: list[Any]) -> list[Any]:
    """Move the file that all `edits` name from them to the call's `path`."""
    tables = [cast("Json", e) for e in edits if isinstance(e, dict)]
    paths = {str(v) for e in tables for k, v in e.items() if _NAMES["edit"].get(plain(k)) == "path"}
    if not paths:
        return edits
    if "path" in named:
        paths.add(str(named["path"]))
    if len(paths) > 1:
        raise ToolError("edit changes one file: call it once for each file.")
    named["path"] = paths.pop()
    return [{k: v for k, v in e.items() if _NAMES["edit"].get(plain(k)) != "path"} for e in tables]


def _change(value: Any) -> Any:
    """Translate the argument names of one replacement."""
    if isinstance(value, list) and len(pair := cast("list[Any]", value)) == 2:
        return {"old": pair[0], "new": pair[1]}
    if not isinstance(value, dict):
        return cast("Any", value)
    out: Json = {}
    for key, each in cast("Json", value).items():
        name = plain(key)
        ours = "old" if name in _OLD else "new" if name in _NEW else "all" if name in _ALL else key
        ours = "after" if name == "after" and isinstance(each, int) else ours  # a line to insert behind, not a text
        is_one_of_ours = name in _OLD | _NEW | _ALL | {"after"}
        if each is not None and ours not in out and (is_one_of_ours or name not in _DROPPED):
            out[ours] = each
    return out


def _glob(named: Json, _rest: Json, _cwd: Path) -> None:
    _one(named, "pattern")
    pattern = named.get("pattern")
    if not isinstance(pattern, str):
        return
    fixed: list[str] = []
    parts = pattern.split("/")
    while len(parts) > 1 and not re.search(r"[*?\[{]", parts[0]) and (fixed or parts[0] in ("", ".", "..", "~")):
        fixed.append(parts.pop(0))
    if fixed:  # an absolute pattern, or one with ./ or ../ before it, says where to look
        folder = "/".join(fixed) or "/"
        base = str(named.get("path", "."))
        named["path"] = folder if folder[0] in "/~" else f"{base}/{folder}"
        named["pattern"] = "/".join(parts)


def _grep(named: Json, rest: Json, _cwd: Path) -> None:
    for key in ("path", "pattern", "include"):
        _one(named, key)
    if isinstance(named.get("include"), list):
        named["include"] = "{" + ",".join(map(str, named["include"])) + "}"
    _set_grep_limits(named, rest)
    if (regular := _take(rest, "isregexp")) is not None and "literal" not in named:
        named["literal"] = not _truth(regular)
    sensitive = _take(rest, "casesensitive")
    if sensitive is not None and "ignore_case" not in named:
        named["ignore_case"] = not _truth(sensitive)
    shape = _take(rest, "outputmode")
    if isinstance(shape, str) and "files_only" not in named:
        named["files_only"] = shape != "content"
    kind = _take(rest, "type", "filetype", "language")
    if isinstance(kind, str) and kind and "include" not in named:
        named["include"] = _TYPES.get(kind.lower(), f"*.{kind.lower()}")


def _set_grep_limits(named: Json, rest: Json) -> None:
    """Bring the lines of context and the number of results into their bounds."""
    around = [
        n for n in (_whole(_take(rest, "a", "aftercontext", "before")), _whole(_take(rest, "b", "beforecontext"))) if n
    ]
    if around and "context" not in named:
        named["context"] = max(around)
    if (context := _whole(named.get("context"))) is not None:
        named["context"] = min(max(0, context), 10)
    if (limit := _whole(named.get("limit"))) is not None:
        if limit < 1:
            del named["limit"]
        else:
            named["limit"] = min(limit, 1_000)


def _id(named: Json, _rest: Json, _cwd: Path) -> None:
    if isinstance(named.get("id"), int | float):
        named["id"] = str(_whole(named["id"]))


def _patch(named: Json, _rest: Json, _cwd: Path) -> None:
    patch = named.get("patch")
    if isinstance(patch, list):  # ["apply_patch", "*** Begin Patch …"]
        words = [str(word) for word in cast("list[Any]", patch)]
        named["patch"] = next((word for word in words if "*** Begin Patch" in word), "\n".join(words))


def _ls(named: Json, _rest: Json, _cwd: Path) -> None:
    _one(named, "path")


_SPECIAL: dict[str, Callable[[Json, Json, Path], None]] = {
    "bash": _bash, "read": _read, "write": _write, "edit": _edit, "ls": _ls, "glob": _glob, "grep": _grep,
    "bash_output": _id, "kill": _id, "apply_patch": _patch,
}  # fmt: skip


def _editor(given: Json) -> tuple[str, Json]:
    """Translate a call of an editor tool, whose `command` selects the operation."""
    rest = dict(given)
    command = plain(str(rest.pop("command", "view")))
    tool = {"create": "write", "write": "write", "strreplace": "edit", "insert": "edit", "edit": "edit"}.get(command)
    if tool is None and command not in ("view", "read"):
        raise ToolError(f"There is no command {command} here; use read, write or edit.")
    unused = {"write": ("oldstr", "newstr", "viewrange", "insertline"), "edit": ("filetext", "viewrange")}
    dropped = unused.get(tool or "", ("filetext", "oldstr", "newstr", "insertline"))
    return tool or "read", {k: v for k, v in rest.items() if plain(k) not in dropped}
