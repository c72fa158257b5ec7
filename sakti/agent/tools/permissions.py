"""Decide what the agent may do without asking: one pure decision for each tool call.

A command is never clearly a read, since commands are not parsed: in every mode but `auto` it asks. Paths are resolved
(symlinks, `..`) before they are judged. A deny beats an ask, an ask beats an allow, in every mode.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from sakti.core.config import ApprovalMode
from sakti.core.text import clean_surrogates

# What a call of a tool does: reads or writes the files that it names, runs a command, or touches only what is sakti's
# own: its tasks and memory, the commands that it started.
Effect: TypeAlias = Literal["read", "write", "run", "own"]

# Files that hold secrets, by name or by a folder on the way.
SECRET_NAMES = (
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    "credentials",
    "credentials.json",
    "*.keystore",
    "*.kdbx",
)
HARMLESS_NAMES = (".env.example", ".env.sample", ".env.template", "*.pub")
SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", "gcloud"})
# Files whose change runs code later, without anyone asking for it.
GUARDED_NAMES = frozenset(
    {
        ".bashrc",
        ".bash_profile",
        ".profile",
        ".zshrc",
        ".zprofile",
        ".zshenv",
        ".gitconfig",
        ".envrc",
        ".mcp.json",
    }
)
GUARDED_FOLDERS = frozenset({".git", ".sakti", ".vscode", ".husky"})

# Commands that are asked even in `auto`: what they do cannot be undone.
DESTRUCTIVE = re.compile(
    r"\brm\s+(?:-\w*\s+)*-\w*[rf]|\bmkfs|\bdd\s+.*\bof=|\bgit\s+(?:push|reset\s+--hard|clean)|\bsudo\b|\bshutdown\b"
    r"|\breboot\b|\bchmod\s+-R|\bchown\s+-R|>\s*/dev/(?!null|stdout|stderr)|\bcurl\b.*\|\s*\w*sh\b|\bwget\b.*\|\s*\w*sh\b"
    r"|-delete\b|\bshred\b|:\(\)\s*\{"
)
SHELL_SIGNS = re.compile(r"[;&|<>$`\n(){}!*?\[\]~\\]")


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on a call.

    `target` is what will run or change, `rule` what "always" would save, `reason` a few words for people.
    """

    verdict: Literal["allow", "ask", "deny"]
    reason: str
    target: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call would act.

    `own` are sakti's own folders: its data and its configuration. `outputs` is the folder of long outputs of tools,
    kept for the model to read.
    """

    workspace: Path
    cwd: Path
    own: tuple[Path, ...] = ()
    outputs: Path | None = None

    def resolve(self, path: str) -> Path:
        return resolved(self.cwd, path)

    def show(self, path: Path) -> str:
        return str(path.relative_to(self.workspace)) if path.is_relative_to(self.workspace) else str(path)


def resolved(folder: Path, path: str) -> Path:
    """Resolve `path` against `folder`, with symlinks and `..` followed; raises nothing.

    `~nosuch` is taken literally, as a shell does, and characters that no file system can hold are replaced.
    """
    try:
        named = Path(path).expanduser()
    except (RuntimeError, ValueError):
        named = Path(path)
    try:
        return Path(os.path.realpath(folder / named))
    except (ValueError, OSError):
        return Path(os.path.realpath(folder / clean_surrogates(str(named))))


class Facts(Protocol):
    """What a tool declares about itself.

    `named` gives the paths in a call; rules call the tool `rule_name`.
    """

    @property
    def effect(self) -> Effect: ...
    @property
    def rule_name(self) -> str: ...
    def named(self, arguments: Mapping[str, Any]) -> Sequence[str]: ...


def judge(tool: Facts, arguments: Mapping[str, Any], *, mode: ApprovalMode, rules: Rules, place: Place) -> Decision:
    """Return whether a call is allowed, asks or is refused.

    A call with several files is judged by each, and the strictest decision holds for all.
    """
    if tool.effect == "own":
        return Decision("allow", "")
    if tool.effect == "run":
        return _command(tool.rule_name, str(arguments.get("command", "")), mode, rules, place)
    judged = [_path(tool, path, mode, rules, place) for path in tool.named(arguments)]
    if not judged:  # it names none: a write changes nothing, and the tool says what is wrong with the call
        denied = _by_rule(tool.rule_name, "", rules) == "deny"
        return Decision("deny", "denied by your rules") if denied else Decision("allow", "")
    worst = max(judged, key=lambda d: ("allow", "ask", "deny").index(d.verdict))
    target = ", ".join(dict.fromkeys(d.target for d in judged))
    return Decision(worst.verdict, worst.reason, target, worst.rule if len(judged) == 1 else "")


def _path(tool: Facts, text: str, mode: ApprovalMode, rules: Rules, place: Place) -> Decision:
    path = place.resolve(text)
    reads, target = tool.effect == "read", place.show(path)
    rule = f"{tool.rule_name}({glob_escape(target)})"
    if secret := secret_reason(path, place):
        return Decision("deny", secret, target)
    said = _by_rule(tool.rule_name, target, rules)
    if said == "deny":
        return Decision("deny", "denied by your rules", target)
    if not reads and mode == "plan":
        return Decision("deny", "plan mode edits nothing", target)
    inside = path.is_relative_to(place.workspace) or (reads and _kept_output(path, place))
    if not reads and (guarded := _guarded(path)):
        return Decision("ask", guarded, target, "")
    if said == "ask":
        return Decision("ask", "Your rules ask first", target, "")
    if said == "allow":
        return Decision("allow", "", target)
    if not inside and not (reads and mode == "auto"):  # a command may read there anyway
        return Decision("ask", "Outside the project", target, rule)
    if reads or mode in ("edits", "auto"):
        return Decision("allow", "", target)
    return Decision("ask", "Edits a file in this project", target, rule)


def _kept_output(path: Path, place: Place) -> bool:
    """Return whether a path is a long output of a tool; the folder itself is not, so that it cannot be listed."""
    return place.outputs is not None and path.parent == place.outputs.resolve() and path.is_file()


def _command(name: str, command: str, mode: ApprovalMode, rules: Rules, place: Place) -> Decision:
    rule = f"{name}({glob_escape(command)})"
    for word in _words(command):
        for candidate in {word, word.partition("=")[2]} - {""}:
            if ("/" in candidate or "." in candidate) and (secret := secret_reason(place.resolve(candidate), place)):
                return Decision("deny", secret, command)
    said = _by_rule(name, command, rules)
    if said == "deny":
        return Decision("deny", "denied by your rules", command)
    if mode == "plan":
        return Decision("deny", "plan mode runs nothing", command)
    if DESTRUCTIVE.search(command):
        return Decision("ask", "Cannot be undone", command, "")
    if said == "ask":
        return Decision("ask", "Your rules ask first", command, "")
    if said == "allow" or mode == "auto":
        return Decision("allow", "", command)
    return Decision("ask", "Runs a command", command, rule)


def _words(command: str) -> list[str]:
    """Split a command into words as far as possible; `$HOME` and `~` are expanded."""
    home = str(Path.home())
    flat = re.sub(r"\$\{?HOME\}?", home, command)
    try:
        lexer = shlex.shlex(flat, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        return [re.sub(r"^~(?=/|$)", home, w) for w in lexer]
    except ValueError:
        return re.split(r"[\s'\"]+", flat)


def secret_reason(path: Path, place: Place) -> str:
    """Return why the agent may not read or write `path`; empty for an ordinary file."""
    name = path.name.lower()
    if any(path.is_relative_to(folder) for folder in place.own):
        return "sakti's own data"
    if any(part in SECRET_FOLDERS for part in path.parts):
        return "a folder of credentials"
    if _matches(name, SECRET_NAMES) and not _matches(name, HARMLESS_NAMES):
        return "holds secrets"
    return ""


def _secret_pattern() -> re.Pattern[str]:
    """Compile a pattern of secret names in lower-case relative paths with `/`, as `secret_reason` refuses them."""
    names = "|".join(_inside(n) for n in SECRET_NAMES)
    harmless = "|".join(_inside(n) for n in HARMLESS_NAMES)
    folders = "|".join(map(re.escape, sorted(SECRET_FOLDERS)))
    return re.compile(rf"(?:^|/)(?:(?:{folders})(?:/|$)|(?!(?:{harmless})$)(?:{names})$)")


def secret_filter(root: Path, place: Place) -> Callable[[str], bool]:
    """Return a test whether the file at a path relative to `root` is secret: by its name, or as sakti's own."""
    pattern = _secret_pattern()
    own = tuple(o.relative_to(root).as_posix() for o in place.own if o.is_relative_to(root))
    if own:
        inside = tuple(f"{o}/" for o in own)
        return lambda path: bool(pattern.search(path.lower())) or path in own or path.startswith(inside)
    return lambda path: bool(pattern.search(path.lower()))


def _inside(pattern: str) -> str:
    """Convert a glob of a name to a regular expression for a name in a longer path."""
    return "".join("[^/]*" if c == "*" else re.escape(c) for c in pattern)


def _guarded(path: Path) -> str:
    if path.name in GUARDED_NAMES or any(part in GUARDED_FOLDERS for part in path.parts):
        return "Can run code later, without asking"
    return ""


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def _by_rule(tool: str, target: str, rules: Rules) -> Literal["allow", "ask", "deny"] | None:
    if any(rule_matches(r, tool, target) for r in rules.deny):
        return "deny"
    if any(rule_matches(r, tool, target) for r in rules.ask):
        return "ask"
    if any(rule_matches(r, tool, target, careful=True) for r in rules.allow):
        return "allow"
    return None


def rule_matches(rule: str, tool: str, target: str, *, careful: bool = False) -> bool:
    """Return whether the rule `tool` or `tool(glob)` covers a call.

    `careful`: a glob with a wildcard never covers a command in which a shell could do more than the first word says
    (`git status*` does not allow `git status; rm x`).
    """
    name, _, pattern = rule.partition("(")
    if name.strip() != tool:
        return False
    if not pattern:
        return not careful or tool != "bash"
    pattern = pattern.removesuffix(")")
    if pattern == glob_escape(target):
        return True
    if careful and tool == "bash" and SHELL_SIGNS.search(target):
        return False
    return fnmatch.fnmatchcase(target, pattern)


def glob_escape(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)
