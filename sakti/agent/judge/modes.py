"""Define what each approval mode does with each kind of effect, and which tools an agent mode has."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.config import APPROVAL_MODES, SessionMode

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

# In the order of the modes: plan, ask, edits, auto.
_VERDICTS: Mapping[Kind, tuple[str, tuple[Verdict, Verdict, Verdict, Verdict]]] = {
    "read": ("read files in the workspace; run commands that only read there", ("allow", "allow", "allow", "allow")),
    "system": ("read installed files (/usr, /opt, Python packages)", ("ask", "ask", "ask", "allow")),
    "outside": ("read any other file", ("ask", "ask", "ask", "ask")),
    "edit": ("change a file in the workspace", ("deny", "ask", "allow", "allow")),
    "edit_outside": ("change any other file", ("deny", "ask", "ask", "ask")),
    "work": ("build, test, format, commit", ("allow", "ask", "ask", "allow")),
    "unknown": ("run any other command", ("ask", "ask", "ask", "allow")),
    "changed": ("run a command that executes a file changed in this session", ("ask", "ask", "ask", "ask")),
    "guarded": ("change a file that runs code later (.bashrc, .git, .sakti)", ("deny", "ask", "ask", "ask")),
    "hard": ("do something that cannot be undone (remove folders, push, publish, sudo)", ("deny", "ask", "ask", "ask")),
    "named": ("run a command that names a secret file", ("deny", "ask", "ask", "ask")),
    "secret": ("read or change a secret file or sakti's own data", ("deny", "deny", "deny", "deny")),
}
# What may write, so that `plan` runs it only where a whole sandbox keeps the workspace from being changed.
CONFINED: frozenset[Kind] = frozenset(("work", "unknown", "changed"))
# What a rule of the user may allow.
ALLOWABLE: frozenset[Kind] = frozenset(("system", "outside", "edit", "edit_outside", "work", "unknown"))


# A few words for each mode, where there is no room for the table.
IN_SHORT: Mapping[SessionMode, str] = {
    "plan": "reads only, changes nothing",
    "ask": "reads freely, asks before any change or command",
    "edits": "reads and edits files freely, asks before other changes",
    "auto": "also runs commands in the sandbox, asks about what leaves it",
    "full": "asks nothing; commands run outside of the sandbox",
}


def verdict(kind: Kind, mode: SessionMode, *, sandboxed: bool = False) -> Verdict:
    """Return what `mode` does with an effect, where no rule says more.

    `sandboxed`: a whole sandbox holds commands; without one, one that nothing is known of is never free.
    """
    if mode == "full":
        return "deny" if kind == "secret" else "allow"
    if mode == "auto" and kind == "unknown" and not sandboxed:
        return "ask"
    if mode == "plan" and kind in CONFINED and not sandboxed:
        return "deny"
    return _VERDICTS[kind][1][APPROVAL_MODES.index(mode)]


def table() -> str:
    """Return the table of all modes in Markdown, as the help shows it."""
    words = {"allow": "free", "ask": "asks", "deny": "refuses"}
    rows = [f"| to | {' | '.join(f'`{m}`' for m in APPROVAL_MODES)} |", "| --- " * (1 + len(APPROVAL_MODES)) + "|"]
    rows += [f"| {text} | {' | '.join(words[v] for v in verdicts)} |" for text, verdicts in _VERDICTS.values()]
    return "\n".join(rows)


READ_ONLY = "read-only"  # in a mode's `tools`: the tools below, with commands judged as in `plan`
_READERS = ("read", "ls", "glob", "grep", "memory-search", "task-query", "skill", "bash", "bash_output", "kill")
# Tools that change nothing by themselves, or run another tool that is judged: every mode has them.
_ALWAYS = ("agent", "ask_user", "present_plan", "wait", "search_tools", "load_tool", "call_tool")


class ModeTools(Struct, frozen=True):
    """Tools that an agent mode allows: names or patterns (`mcp__*`), or `read-only`; None: all."""

    mode: str = "default"
    names: tuple[str, ...] | None = None

    @property
    def reads_only(self) -> bool:
        """Return whether commands are judged as in the approval mode `plan`."""
        return self.names is not None and READ_ONLY in self.names and "bash" not in self.names

    def allows(self, tool: str, *, reads: bool = False) -> bool:
        """Return whether the mode has a tool; `reads`: of a server, and known to read only."""
        if self.names is None or tool in _ALWAYS or (READ_ONLY in self.names and tool in _READERS):
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
