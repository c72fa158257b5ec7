"""Define what each approval mode does with each kind of effect, and match the user's rules.

`edit(docs/*)`: calls of a tool, by the path they name. `bash: git status`: commands that begin with these words, after
expansion by the shell; a rule for a command that runs files of the workspace names their hashes and ends when one of
them changes: `bash: make test # Makefile=3f2a…`. A bare `edit` or `bash` covers all calls.

A rule that denies or asks also holds for a command inside another one and behind other options; a rule that allows
holds for exactly its words at the beginning. The old form `bash(git push*)` is read as words: it still denies or asks,
but commands that it allowed need a new approval.

`mcp__git__git_log # 5d2c…`: a tool of an MCP server, with the hash of its description and schema when the rule was
saved; `mcp__git__*`: all tools of a server.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.agent.judge.workspace_view import LISTS
from sakti.core import network
from sakti.core.config import APPROVAL_MODES, SessionMode
from sakti.core.lazy import lazy_pattern

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
Kind: TypeAlias = Literal[
    "read",
    "system",
    "outside",
    "edit",
    "edit_outside",
    "work",
    "unknown",
    "changed",
    "guarded",
    "hard",
    "named",
    "secret",
]
STRICTNESS: tuple[Verdict, ...] = ("allow", "ask", "deny")

# The verdicts on each kind of effect, in the order of the modes: plan, ask, edits, auto. The help page of approvals
# describes the kinds.
MODE_TABLE: Mapping[Kind, tuple[Verdict, Verdict, Verdict, Verdict]] = {
    "read": ("allow", "allow", "allow", "allow"),
    "system": ("ask", "ask", "ask", "allow"),
    "outside": ("ask", "ask", "ask", "ask"),
    "edit": ("deny", "ask", "allow", "allow"),
    "edit_outside": ("deny", "ask", "ask", "ask"),
    "work": ("allow", "ask", "ask", "allow"),
    "unknown": ("ask", "ask", "ask", "allow"),
    "changed": ("ask", "ask", "ask", "ask"),
    "guarded": ("deny", "ask", "ask", "ask"),
    "hard": ("deny", "ask", "ask", "ask"),
    "named": ("deny", "ask", "ask", "ask"),
    "secret": ("deny", "deny", "deny", "deny"),
}
# Effects that may write, so that `plan` only runs them if a complete sandbox protects the workspace.
CONFINED: frozenset[Kind] = frozenset(("work", "unknown", "changed"))
# Effects that a user's rule may allow.
ALLOWABLE: frozenset[Kind] = frozenset(("system", "outside", "edit", "edit_outside", "work", "unknown"))

# A short description of each mode, for places without room for the table.
IN_SHORT: Mapping[SessionMode, str] = {
    "plan": "reads only, changes nothing",
    "ask": "reads freely, asks before any change or command",
    "edits": "reads and edits files freely, asks before other changes",
    "auto": "also runs commands in the sandbox, asks about what leaves it",
    "full": "never asks; commands run outside the sandbox",
}

READ_ONLY = "read-only"  # in a mode's `tools`: the reading tools, with commands judged as in `plan`
HOST_PREFIX = "reach: "  # prefix of rules about hosts
# Hashes follow an unquoted `#`.
_COMMAND = lazy_pattern(
    r"""(\w[\w-]*):\s*+((?:'[^']*+'|"(?:\\.|[^"\\])*+"|\\.|\s++(?!#)|[^'"\\\s])*+)(?:\s+#\s*(.*))?""", re.DOTALL
)


def verdict_for_kind(kind: Kind, mode: SessionMode, *, sandboxed: bool = False) -> Verdict:
    """Return the verdict of `mode` on an effect; rules may change it.

    `sandboxed`: a complete sandbox encloses commands; without one, unknown commands always need a question.
    """
    if mode == "full":
        return "deny" if kind == "secret" else "allow"
    if mode == "auto" and kind == "unknown" and not sandboxed:
        return "ask"
    if mode == "plan" and kind in CONFINED and not sandboxed:
        return "deny"
    return MODE_TABLE[kind][APPROVAL_MODES.index(mode)]


class ModeTools(Struct, frozen=True):
    """Tools that an agent mode allows: names or patterns (`mcp__*`), or `read-only`; None: all."""

    mode: str = "default"
    names: tuple[str, ...] | None = None

    @property
    def reads_only(self) -> bool:
        """Return whether commands are judged as in the approval mode `plan`."""
        return self.names is not None and READ_ONLY in self.names and "bash" not in self.names

    def allows(self, tool: str, *, reads: bool = False) -> bool:
        """Return whether the mode has a tool; `reads`: it is a server's tool known to only read."""
        if (
            self.names is None
            or tool in LISTS.common_tools
            or (READ_ONLY in self.names and tool in LISTS.reading_tools)
        ):
            return True
        if reads and self.reads_only:
            return True
        return any(fnmatch.fnmatchcase(tool, name) for name in self.names)

    def refusal(self, tool: str, *, reads: bool = False) -> str:
        """Return the sentence for a call of a tool that the mode lacks; "" if it has it."""
        if self.allows(tool, reads=reads):
            return ""
        what = "It only reads and searches" if self.reads_only else f"It has {', '.join(self.names or ())}"
        return f"The mode {self.mode} has no tool {tool}. {what}; the user changes the mode with /mode."


class Rules(Struct, frozen=True):
    """Rules as they are written in the configuration."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class CommandRule(Struct, frozen=True):
    """Rule for commands: its words, and the hash of each file that they run when it was saved."""

    words: tuple[str, ...]
    hashes: Mapping[str, str]
    partial: bool = False  # the last word is a prefix, as in the globs of older versions


def verdict_for_path(rules: Rules, tool: str, target: str) -> Literal["allow", "ask", "deny"] | None:
    """Return the verdict of the strictest rule on a call of `tool` on a path, or None."""
    for verdict in ("deny", "ask", "allow"):
        if any(_covers_path(rule, tool, target) for rule in getattr(rules, verdict)):
            return verdict
    return None


def _covers_path(rule: str, tool: str, target: str) -> bool:
    name, _, pattern = rule.partition("(")
    if name.strip() != tool:
        return False
    pattern = pattern.removesuffix(")")
    return not pattern or pattern == escape_glob(target) or fnmatch.fnmatchcase(target, pattern)


def parse_command_rule(rule: str, tool: str) -> CommandRule | None:
    """Parse a rule about commands; None for another or an invalid rule."""
    if rule.strip() == tool:
        return CommandRule((), {})
    if match := re.fullmatch(rf"{re.escape(tool)}\((.*)\)", rule.strip(), re.DOTALL):
        text = re.sub(r"\[([*?\[])\]", r"\1", match[1])
        prefix = re.split(r"[*?]", text, maxsplit=1)[0]
        return _parse_words(prefix, {}, partial=prefix != text and not prefix.endswith(" "))
    if (match := _COMMAND.fullmatch(rule.strip())) and match[1] == tool:
        hashes = {h.rpartition("=")[0]: h.rpartition("=")[2] for h in (match[3] or "").split()}
        return _parse_words(match[2], hashes)
    return None


def describe_rule(rule: str) -> str:
    """Describe a rule for a question: its command, and the files whose change invalidates it."""
    command = parse_command_rule(rule, "bash")
    if command is None or not command.words:
        return rule
    until = f", until {' or '.join(command.hashes)} changes" if command.hashes else ""
    return f"`{shlex.join(command.words)} …`{until}"


def _parse_words(text: str, hashes: Mapping[str, str], *, partial: bool = False) -> CommandRule | None:
    try:
        return CommandRule(tuple(shlex.split(text)), hashes, partial)
    except ValueError:
        return None


def names_tool(rules: Sequence[str], tool: str, fingerprint: str = "") -> bool:
    """Return whether a rule is about a server's tool, as `mcp__git__*` or `mcp__git__git_log # HASH`.

    With a `fingerprint`, a rule with a hash only matches the same hash.
    """
    for rule in rules:
        pattern, _, digest = (part.strip() for part in rule.partition("#"))
        is_current = not (fingerprint and digest) or digest == fingerprint
        if pattern.startswith("mcp__") and is_current and fnmatch.fnmatchcase(tool, pattern):
            return True
    return False


def find_tool(rule: str) -> str:
    """Return the tool that a rule is about, "" if it is not a rule."""
    if server_tool := re.fullmatch(r"\s*(mcp__[\w*?-]+)\s*(?:#\s*\w+\s*)?", rule):
        return server_tool[1]
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\(.+\)|:.*)?\s*", rule, re.DOTALL)
    if match is None or (":" in rule.partition("(")[0] and match[1] != "bash"):
        return ""
    return match[1]


def names_host(rule: str) -> bool:
    """Return whether a rule is about a host that may be reached, as `reach: docs.example.org`."""
    return rule.startswith(HOST_PREFIX) and network.parse_host(rule.removeprefix(HOST_PREFIX)) is not None


def is_old_form(rule: str, tool: str) -> bool:
    """Return whether a rule about commands has the form of older versions."""
    return rule.strip().startswith(f"{tool}(")


def format_rule(tool: str, words: Sequence[str], hashes: Mapping[str, str]) -> str:
    """Write a rule for commands that begin with `words`."""
    files = " ".join(f"{path}={value}" for path, value in hashes.items())
    return f"{tool}: {shlex.join(words)}" + (f" # {files}" if files else "")


def skip_git_options(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a git command without the options before its subcommand."""
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in LISTS.git_value_options else 1
    return (argv[0], *argv[at:])


def forbids(rules: Sequence[str], tool: str, argv: Sequence[str]) -> bool:
    """Return whether a deny or ask rule of `rules` matches a command.

    The program's folder is ignored, and options (with values) may stand between the words.
    """
    if not argv:
        return any(rule.strip() == tool for rule in rules)
    name = argv[0].rpartition("/")[2]
    plain = skip_git_options((name, *argv[1:])) if name.lower() == "git" else (name, *argv[1:])
    lower = (name.lower(), *plain[1:])  # some file systems ignore the case of a program's name
    named = (rule for rule in (parse_command_rule(text, tool) for text in rules) if rule is not None)
    return any(_begins_with(rule, words) or _fits_between(rule, words) for rule in named for words in (plain, lower))


def _begins_with(rule: CommandRule, argv: Sequence[str]) -> bool:
    words = rule.words
    if len(argv) < len(words):
        return False
    if rule.partial and words:
        return tuple(argv[: len(words) - 1]) == words[:-1] and argv[len(words) - 1].startswith(words[-1])
    return tuple(argv[: len(words)]) == words


def _fits_between(rule: CommandRule, argv: Sequence[str]) -> bool:
    """Match the words in their order, with options and their values between them."""
    if not rule.words or argv[0] != rule.words[0]:
        return False
    at: int | None = 0
    for number, word in enumerate(rule.words[1:], 2):
        at = _find_word(argv, at + 1, word, partial=rule.partial and number == len(rule.words))
        if at is None:
            return False
    return True


def _find_word(argv: Sequence[str], at: int, word: str, *, partial: bool) -> int | None:
    """Return the index of `word`, from `at` on, if only options and their values precede it; or None.

    `partial`: a word with this prefix counts as well.
    """
    while at < len(argv) and argv[at] != word and not (partial and argv[at].startswith(word)):
        if not argv[at].startswith("-") and not argv[at - 1].startswith("-"):
            return None
        at += 1
    return at if at < len(argv) else None


def permits(
    rules: Sequence[str], tool: str, argv: Sequence[str], hashes: Mapping[str, str], *, exact: bool, least: int = 1
) -> bool:
    """Return whether one of `rules` allows a command.

    `hashes` are those of the files that it runs now; `exact`: its options could do more than its first words say, so
    only a rule for all of them counts. `least`: the minimum number of its words in a rule.
    """
    for text in rules:
        rule = None if is_old_form(text, tool) else parse_command_rule(text, tool)
        if rule is None or len(rule.words) < least or rule.hashes != hashes:
            continue
        if tuple(argv) == rule.words if exact else _begins_with(rule, argv):
            return True
    return False


def escape_glob(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)
