"""Trust in a workspace: its own settings have an effect only once the user has seen and allowed them.

What has an effect is `.sakti/config.toml`, the files that it names for working memory, the hooks in it and in
`.claude/settings*.json` with the scripts that they run, files of instructions (AGENTS.md, CLAUDE.md, rules), skills and
commands; sakti runs no program that a repository's git configuration names. Trust is kept in the user's state folder, a
file a workspace, under its resolved path, with the hash of each of these files; a change of one asks again.
Instructions, and skills and commands that run nothing, are trusted by path alone: they change with the work and can
only say something.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from sakti.agent.skills import load as skill_files
from sakti.agent.skills import template
from sakti.core import resources
from sakti.core.config.reading import parse, read_bytes
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line
from sakti.store import files

with lazy_imports:
    from sakti.agent.hooks import settings as hook_settings
    from sakti.agent.instructions import rules

CONFIG = ".sakti/config.toml"
HOOKS = (".claude/settings.json", ".claude/settings.local.json")  # files whose hooks count; the rest of them does not
INSTRUCTIONS = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md")
RULES = (".sakti/rules", ".agents/rules", ".claude/rules")
NAMED = 4  # files in a sentence
MOST_RULES = 50  # that are shown
NAMING = ("memory.working_memory.schema", "memory.working_memory.template")  # settings that name a file
State: TypeAlias = Literal["nothing", "trusted", "new", "changed"]


class File(Struct, frozen=True):
    """A file of the workspace that has an effect; `name` is relative to it."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def says_only(self) -> bool:
        """Return whether it is a text for the model, trusted by path alone."""
        if not skill_files.is_of_skills(self.name):
            return says_only(self.name)
        return self.name.endswith(".md") and not template.runs_commands(self.text)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class Known(Struct, frozen=True):
    """A file as it was trusted; `text` only to show what changed."""

    sha256: str
    text: str


class Look(Struct, frozen=True):
    """What was found in a workspace, and what was trusted there.

    `problem` says why the settings cannot be read: there is nothing to trust then. `known` is None where the
    workspace was never trusted.
    """

    workspace: Path
    files: tuple[File, ...] = ()
    known: Mapping[str, Known] | None = None
    problem: str = ""

    @property
    def state(self) -> State:
        return decide(self.files, self.known)

    @property
    def asks(self) -> bool:
        """Return whether the user has to be asked before anything of it has an effect."""
        return self.state in ("new", "changed")

    @property
    def config(self) -> bytes | None:
        """Return the project's settings as they were looked at."""
        return next((f.data for f in self.files if f.name == CONFIG), None)

    @property
    def left_out(self) -> str:
        """Say in one sentence what has no effect; empty where nothing is left out."""
        if not self.asks:
            return ""
        names = ", ".join(one_line(f.name, 80) for f in self.files[:NAMED])
        if len(self.files) > NAMED:
            names += f" and {len(self.files) - NAMED} more"
        why = "changed since it was trusted" if self.state == "changed" else "not trusted"
        return f"{names}: {why}, so left out. `sakti trust` shows and trusts it."


def decide(files: Sequence[File], known: Mapping[str, Known] | None) -> State:
    """Return whether these files may have an effect, after `known` was trusted."""
    if not files:
        return "nothing"
    if known is None:
        return "new"
    now = {f.name: f.sha256 for f in files if not f.says_only}
    same = now == {name: k.sha256 for name, k in known.items() if k.sha256 and not says_only(name)}
    return "trusted" if same else "changed"


def says_only(name: str) -> bool:
    """Return whether a file is one of instructions, which are trusted by path alone."""
    return name in INSTRUCTIONS or name.startswith(tuple(f"{folder}/" for folder in RULES))


def settings_of(look: Look) -> dict[str, Any]:
    """Return what the project's file sets, by dotted names; whether a project may set it is not asked."""
    return parse(look.config, look.workspace / CONFIG) if look.config is not None else {}


def diff(look: Look) -> str:
    """Return what changed since it was trusted, or all of it, as a unified diff."""
    return "\n".join(text for _, text in diffs(look))


def diffs(look: Look) -> list[tuple[str, str]]:
    """Return that for each file, with its name."""
    out: list[tuple[str, str]] = []
    known = look.known or {}
    now = {f.name: f for f in look.files}
    for name in sorted({*now, *known}):
        by_path = now[name].says_only if name in now else not known[name].sha256 or says_only(name)
        if look.known is not None and by_path:  # its text is not kept
            continue
        before = known[name].text.splitlines() if name in known else []
        after = now[name].text.splitlines() if name in now else []
        if name not in now or name not in known or now[name].sha256 != known[name].sha256:
            old, new = (f"a/{name}" if before else "/dev/null"), (f"b/{name}" if after else "/dev/null")
            out.append((name, "\n".join(difflib.unified_diff(before, after, old, new, lineterm=""))))
    return out


# --- the workspace --------------------------------------------------------------------------------------------------


def look(workspace: Path) -> Look:
    """Read what has an effect in a workspace, and what of it was trusted. Raises nothing."""
    workspace = workspace.resolve()
    path = workspace / CONFIG
    try:
        data = read_bytes(path)
        named = parse(data, path) if data is not None else {}
    except ConfigError as e:
        return Look(workspace, problem=e.message)
    files = [File(CONFIG, data)] if data is not None else []
    for name in dict.fromkeys(named.get(setting) for setting in NAMING):
        target = inside(workspace, name)
        if target is not None:
            with contextlib.suppress(ConfigError):  # it is refused when it is used, and said there
                if (found := read_bytes(target)) is not None:
                    files.append(File(target.relative_to(workspace).as_posix(), found))
    files += _hooks(workspace, data or b"")
    files += _instructions(workspace)
    files += _skills(workspace)
    return Look(workspace, tuple(files), _known(workspace) if files else None)


def _hooks(workspace: Path, config: bytes) -> list[File]:
    """Return what files of claude-code's settings say of hooks, and the workspace's scripts that all its hooks run."""
    out: list[File] = []
    for name in HOOKS:
        if (target := inside(workspace, name)) is not None:
            with contextlib.suppress(ConfigError):  # doctor says it
                data = read_bytes(target, 1_000_000)
                if data and b"ooks" in data and (part := hook_settings.part(data)) is not None:
                    out.append(File(name, part))
    if not out and b"hooks" not in config:
        return out
    for path in hook_settings.scripts(workspace, {CONFIG: config, **{f.name: f.data for f in out}}):
        with contextlib.suppress(ConfigError):  # it is not started then
            if (data := read_bytes(path, 1_000_000)) is not None:
                out.append(File(path.relative_to(workspace).as_posix(), data))
    return out


def _instructions(workspace: Path) -> list[File]:
    """Return the workspace's files of instructions, those of its folders below aside."""
    out: list[File] = []
    paths = [workspace / name for name in INSTRUCTIONS]
    if any((workspace / folder).is_dir() for folder in RULES):
        paths += itertools.islice(rules.files(workspace), MOST_RULES)
    for path in paths:
        name = path.relative_to(workspace).as_posix()
        if (target := inside(workspace, name)) is not None:
            with contextlib.suppress(ConfigError):  # it is left out when it is read, too
                if (data := read_bytes(target, 1_000_000)) is not None:
                    out.append(File(name, data))
    return out


def _skills(workspace: Path) -> list[File]:
    """Return the texts of skills and commands, and what could be run of a skill's folder."""
    out: list[File] = []
    for path in skill_files.project_files(workspace):
        with contextlib.suppress(ConfigError, OSError):
            if path.suffix == ".md" or skill_files.is_script(path):
                data = read_bytes(path, 1_000_000)
                if data is not None:
                    out.append(File(path.relative_to(workspace).as_posix(), data))
    return out


def of_file(path: Path) -> Look:
    """Look at the workspace whose settings `path` is; at none where it is a file of another name."""
    workspace = path.parent.parent
    return look(workspace) if path == workspace / CONFIG else Look(workspace)


def inside(workspace: Path, name: Any) -> Path | None:
    """Return the file that a project's setting names, links resolved; None where it is not in the workspace."""
    if not isinstance(name, str):
        return None
    try:
        path = (workspace / name).resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL, a name that is too long, links in a circle
        return None
    return path if path.is_relative_to(workspace.resolve()) else None


# --- what was trusted -----------------------------------------------------------------------------------------------


def folder() -> Path:
    """Return the folder in which trust is kept."""
    return resources.state_home() / "trust"


def _file(workspace: Path) -> Path:
    return folder() / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]}.json"


def _known(workspace: Path) -> dict[str, Known] | None:
    if (mode := files.open_to_others(folder())) is not None and mode & 0o022:
        return None  # others may have written there
    kept = _read(_file(workspace))
    return kept[1] if kept is not None and kept[0] == workspace else None


def _read(path: Path) -> tuple[Path, dict[str, Known]] | None:
    """Return a workspace and its trusted files; None where nothing, or nothing sound, is kept."""
    try:
        data = read_bytes(path, 4_000_000)
        if data is None:
            return None
        kept = cast("dict[str, Any]", json.loads(data))
        files = {str(name): Known(str(f["sha256"]), str(f["text"])) for name, f in kept["files"].items()}
        return Path(str(kept["workspace"])), files
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def save(found: Look) -> None:
    """Trust the files as they were looked at. Raises `ConfigError` where that cannot be kept."""
    kept = {
        "workspace": str(found.workspace),
        "files": {f.name: _kept(f) for f in found.files},
    }
    path, tried = _file(found.workspace), ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, tried = tempfile.mkstemp(dir=path.parent, prefix=".trust-")  # 0600
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(kept, file)
        Path(tried).replace(path)
    except OSError as e:
        if tried:
            Path(tried).unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written ({e.strerror}): the trust is not saved.") from e


def _kept(file: File) -> dict[str, str]:
    return {"sha256": "", "text": ""} if file.says_only else {"sha256": file.sha256, "text": file.text}


def revoke(workspace: Path) -> bool:
    """Trust the workspace no more; False where it was not trusted. Raises `ConfigError`."""
    path = _file(workspace.resolve())
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as e:
        raise ConfigError(f"{path} cannot be removed ({e.strerror}).") from e
    return True


def trusted() -> list[tuple[Path, tuple[str, ...]]]:
    """Return every trusted workspace with the names of its files, by path."""
    try:
        found = [_read(path) for path in folder().glob("*.json")]
    except OSError:
        return []
    return sorted((kept[0], tuple(kept[1])) for kept in found if kept is not None)
