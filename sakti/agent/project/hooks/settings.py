"""Read hooks: tables `[[hooks]]` of sakti's files, and the `hooks` of claude-code's settings.

A faulty hook does not affect the others: it is listed with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from sakti.core import resources
from sakti.core.config.check import explain_wrong_hook
from sakti.core.config.conversion import convert_table
from sakti.core.config.fields import EVENTS, TIMEOUT, HookSettings, resolve_event_name
from sakti.core.config.reading import parse, read_bytes
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import display_path, to_one_line

OFF = "disableAllHooks"
PROJECT_DIRS = ("CLAUDE_PROJECT_DIR", "SAKTI_PROJECT_DIR")  # variables that name the workspace
MOST = 200  # hooks of one file
SHORTEST = 0.1  # seconds
LONGEST = 1_000_000  # bytes of a file of settings

_SCRIPT = (".py", ".sh", ".bash", ".zsh", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua")
_RUNNERS = frozenset("python python3 node deno bun ruby perl php lua sh bash dash zsh source . uv run -f -m".split())
_TAKE_FILES = {"-m": ("python", "python3"), "-f": ("make", "gmake", "awk", "gawk", "sed", "jq")}
_WORD = lazy_pattern(r"[^\s'\"`;|&<>(){}]+")
_COMPANIONS = tuple(f"{brand}/hooks" for brand in (".sakti", ".agents", ".claude"))
MOST_COMPANIONS = 200  # files beside a script that are trusted with it


class Hook(Struct, frozen=True):
    """A command and the event that starts it.

    `source` is its file, as people write it; `project`: it came with the workspace. With `args` it is started without a
    shell. `condition` is a rule that the call must fit, `background`: nothing waits for it, `why_not` says why it never
    runs.
    """

    event: str
    command: str
    source: str
    match: str = ""
    timeout: float = TIMEOUT
    args: tuple[str, ...] | None = None
    write: tuple[str, ...] = ()
    condition: str = ""
    background: bool = False
    project: bool = False
    why_not: str = ""

    @property
    def title(self) -> str:
        """Return the hook as one line: event, matcher, command."""
        match = f" {self.match}" if self.match not in ("", "*") else ""
        words = " ".join((self.command, *(self.args or ())))
        return to_one_line(f"{self.event}{match}: {words}", 160)


class HookList(Struct, frozen=True):
    """Hooks of all files, including those that never run; `problems` are sentences on broken files."""

    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def active(self) -> tuple[Hook, ...]:
        return tuple(h for h in self.hooks if not h.why_not)


def load_hooks(user: Sequence[HookSettings], files: Mapping[str, bytes]) -> HookList:
    """Return the user's hooks, with those of ~/.claude/settings.json, and those in a project's `files`."""
    claude: bytes | None = None
    with contextlib.suppress(ConfigError):
        claude = read_bytes(Path.home() / ".claude" / "settings.json", LONGEST)
    return collect(user, display_path(resources.config_home() / "config.toml"), claude, files)


def collect(own: Sequence[HookSettings], own_source: str, claude: bytes | None, files: Mapping[str, bytes]) -> HookList:
    """Merge the hooks of the user's configuration, of their claude-code settings, and of a project.

    `claude` is the content of ~/.claude/settings.json, `files` those of the project's settings and files of hooks, by
    name.
    """
    hooks = [_read_hook(hook, own_source, project=False) for hook in own]
    problems: list[str] = []
    off = ""
    if claude is not None:
        source = "~/.claude/settings.json"
        user_hooks, off = _read_claude_hooks(claude, source, problems, project=False)
        hooks += [replace(h, write=("~/.claude",)) for h in user_hooks]
    theirs: list[Hook] = []
    for name, data in files.items():
        if name.endswith(".toml"):
            hooks += _read_project_hooks(data, name, problems)
        else:
            read, reason = _read_claude_hooks(data, name, problems, project=True)
            theirs, off = [*theirs, *read], off or reason
    hooks += [replace(h, why_not=h.why_not or off) for h in theirs]
    return HookList(tuple(hooks), tuple(problems))


def find_problems(workspace: Path, names: Iterable[str]) -> list[str]:
    """Return a sentence for each of a project's files of hooks that cannot be read; its hooks do not run."""
    out: list[str] = []
    for name in names:
        try:
            data = read_bytes(workspace / name, LONGEST)
        except ConfigError as e:
            out.append(e.message)
            continue
        if data and _parse_json_table(data) is None:
            out.append(f"{name} is not a JSON object: its hooks do not run.")
    return out


def part(data: bytes) -> bytes | None:
    """Return the part of a claude-code settings file that has an effect here, normalised, or None."""
    table = _parse_json_table(data) or {}
    used = {k: v for k, v in table.items() if k in ("hooks", OFF) and v}
    return (json.dumps(used, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace") if used else None


def _parse_json_table(data: bytes) -> dict[str, Any] | None:
    try:
        table: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", table) if isinstance(table, dict) else None


def list_scripts(workspace: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Return the files of the workspace that a project's hooks run: they are trusted with the hooks."""
    out: dict[Path, None] = {}
    for hook in collect((), "", None, files).hooks:
        out |= dict.fromkeys(run_by(hook, workspace))
    return list(out)


def run_by(hook: Hook, workspace: Path) -> Iterator[Path]:
    """Yield the files of the workspace that a hook's command names and runs, links followed."""
    text = " ".join((hook.command, *(hook.args or ())))
    for name in PROJECT_DIRS:
        text = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", lambda _: str(workspace), text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)  # `"$DIR"/x.sh; y` has three words
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        words = []
    seen: set[Path] = set()
    folders = [workspace]
    for before, word in _iter_pairs([*_WORD.findall(text), "", *words]):
        if before in ("cd", "pushd"):
            folders += [folder / word for folder in folders[:8]]
        for name in _find_named_files(before, word):
            for path in (folder / name for folder in folders):
                if (script := _find_script(path, before, workspace)) is not None and script not in seen:
                    seen.add(script)
                    yield script
                    yield from (p for p in _iter_companions(script, workspace) if not (p in seen or seen.add(p)))


def _find_named_files(before: str, word: str) -> Sequence[str]:
    """Return the files that a word of a command may mean: a module of Python is one, or a folder's."""
    if before != "-m":
        return (word,)
    module = word.replace(".", "/")
    return (f"{module}.py", f"{module}/__main__.py")


def _find_script(path: Path, before: str, workspace: Path) -> Path | None:
    """Return a file of the workspace, links followed, if a command that names it runs it."""
    try:
        real = path.resolve()
        inside = real.is_relative_to(workspace) and real.is_file()
        runs = inside and (real.suffix in _SCRIPT or before in _RUNNERS or bool(real.stat().st_mode & 0o111))
    except (OSError, ValueError, RuntimeError):
        return None
    return real if runs else None


def _iter_companions(script: Path, workspace: Path) -> Iterator[Path]:
    """Yield the files beside a script in a folder for hooks, and below: they may be parts of it."""
    root = next((r for r in (workspace / c for c in _COMPANIONS) if script.is_relative_to(r)), None)
    if root is None:
        return
    number = 0
    for at, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(names):
            number += 1
            if number > MOST_COMPANIONS:
                return
            if (companion := _find_script(Path(at, name), "", workspace)) is not None:
                yield companion


def _iter_pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each word with the one before it that is no option, or an option that takes a file."""
    before = ""
    for word in words:
        yield before, word
        if not word.startswith("-") or before in _TAKE_FILES.get(word, ()):
            before = word


# --- one hook ---------------------------------------------------------------------------------------------------------


def _read_hook(hook: HookSettings, source: str, *, project: bool) -> Hook:
    timeout = max(SHORTEST, hook.timeout)
    new_hook = Hook(
        resolve_event_name(hook.event) or hook.event, hook.command, source, hook.match, timeout, project=project
    )
    return replace(new_hook, write=() if project else hook.write, why_not=explain_wrong_hook(hook))


def _read_project_hooks(data: bytes, source: str, problems: list[str]) -> list[Hook]:
    try:
        tables = parse(data, Path(source)).get("hooks", [])
    except ConfigError as e:
        problems.append(e.message)
        return []
    if not isinstance(tables, list):
        problems.append(f"{source}: hooks must be a list of tables [[hooks]].")
        return []
    out: list[Hook] = []
    for number, table in enumerate(cast("list[Any]", tables)[:MOST], 1):
        try:
            settings: HookSettings = convert_table(HookSettings, table, f"hooks[{number}]", source)
        except ConfigError as e:
            problems.append(e.message)
            continue
        if settings.write:
            problems.append(f"{source}: hooks[{number}].write is not used; only your own config.toml may name folders.")
        out.append(_read_hook(settings, source, project=True))
    return out


def _read_claude_hooks(data: bytes, source: str, problems: list[str], *, project: bool) -> tuple[list[Hook], str]:
    """Return the hooks of a file, and the reason if it disables all of them."""
    try:
        table: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as e:
        problems.append(f"{source} cannot be read: {to_one_line(str(e), 120)}.")
        return [], ""
    if not isinstance(table, dict):
        problems.append(f"{source} is not a JSON object.")
        return [], ""
    settings = cast("dict[str, Any]", table)
    off = f"switched off by {OFF} in {source}" if settings.get(OFF) is True else ""
    events = settings.get("hooks")
    if not isinstance(events, dict):
        return [], off
    out: list[Hook] = []
    for name, groups in cast("dict[str, Any]", events).items():
        for group in cast("list[Any]", groups) if isinstance(groups, list) else []:
            out += _iter_group_hooks(name, group, source, project=project)
    return [replace(h, why_not=h.why_not or off) for h in out[:MOST]], off


def _iter_group_hooks(name: str, group: Any, source: str, *, project: bool) -> Iterator[Hook]:
    if not isinstance(group, dict):
        return
    table = cast("dict[str, Any]", group)
    match, handlers = table.get("matcher"), table.get("hooks")
    for handler in cast("list[Any]", handlers) if isinstance(handlers, list) else []:
        if isinstance(handler, dict):
            text = match if isinstance(match, str) else ""
            yield _read_handler(name, text, cast("dict[str, Any]", handler), source, project=project)


def _read_timeout(value: object) -> float:
    """Return the seconds of a hook's own limit, else the usual ones."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return max(SHORTEST, float(value))
    return TIMEOUT


def _read_handler(name: str, match: str, given: Mapping[str, Any], source: str, *, project: bool) -> Hook:
    event, kind = resolve_event_name(name), str(given.get("type", "command"))
    command = given.get("command")
    limit, args, rule = given.get("timeout"), given.get("args"), given.get("if")
    hook = Hook(
        event or name,
        command if isinstance(command, str) else "",
        source,
        match,
        _read_timeout(limit),
        tuple(map(str, cast("list[Any]", args))) if isinstance(args, list) else None,
        condition=rule if isinstance(rule, str) else "",
        background=given.get("async") is True or given.get("asyncRewake") is True,
        project=project,
    )
    if not event:
        return replace(hook, why_not="there is no such event here")
    if kind != "command":
        return replace(
            hook, command=hook.command or f"({kind})", why_not=f"hooks of type {to_one_line(kind, 20)} do not run"
        )
    problem = explain_wrong_hook(HookSettings(event, hook.command, match if EVENTS.get(event) else "", hook.timeout))
    return replace(hook, why_not=problem)
