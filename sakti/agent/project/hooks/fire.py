"""Choose and run the hooks of an event and show their messages, for a session.

A pattern of plain names matches whole names; any other is a regular expression that may match anywhere in the name, as
in claude-code. Hooks of one event run at the same time. A failing hook becomes a notice and never ends a chat.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, Protocol

from msgspec import Struct, field, structs

from sakti.agent.judge import shell
from sakti.agent.project.hooks import answers, payload, settings
from sakti.agent.project.hooks.answers import HookDecision, HookRun, HookSurroundings, HookText
from sakti.agent.project.hooks.settings import Hook, HookList
from sakti.agent.sandbox import quarantine
from sakti.core.config.fields import EVENTS, TOOL_EVENTS
from sakti.core.events import Event, Notice
from sakti.core.lazy import lazy_pattern
from sakti.core.text import to_one_line
from sakti.core.types import ContextPart, MarkerPart, Part

_PLAIN = lazy_pattern(r"[\w\s,|-]*")
_RULE = lazy_pattern(r"\s*([^()\s]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_ASSIGNMENT = lazy_pattern(r"(?:[A-Za-z_]\w*=\S*\s+)+")

# The names of a tool for patterns: ours, and those of other programs.
NAMES = {
    "bash": ("Bash",),
    "bash_output": ("BashOutput",),
    "kill": ("KillShell", "KillBash"),
    "read": ("Read",),
    "write": ("Write",),
    "edit": ("Edit", "MultiEdit"),
    "apply_patch": ("Edit", "MultiEdit", "Write"),  # it does what they do
    "ls": ("LS",),
    "glob": ("Glob",),
    "grep": ("Grep",),
    "ask_user": ("AskUserQuestion",),
    "webfetch": ("WebFetch",),
    "websearch": ("WebSearch",),
}


class HookSubject(Struct, frozen=True):
    """Subject of a hook's pattern: names of a tool, or a field of an event.

    `command` is that of a call, `paths` the files in it, absolute and relative to the workspace.
    """

    names: tuple[str, ...] = ()
    command: str | None = None
    paths: tuple[str, ...] = ()


def list_tool_names(tool: str) -> tuple[str, ...]:
    """Return the names of a tool, ours first."""
    return (tool, *NAMES.get(tool, ()))


def choose_hooks(
    hooks: Iterable[Hook], event: str, subject: HookSubject, commands: Callable[[str], Sequence[str] | None]
) -> list[Hook]:
    """Return the hooks that an event starts, each command once.

    `commands` gives the single commands in a command line, None if it cannot be read.
    """
    out: dict[tuple[str, tuple[str, ...] | None], Hook] = {}
    for hook in hooks:
        if hook.event == event and not hook.why_not and _should_run(hook, event, subject, commands):
            out.setdefault((hook.command, hook.args), hook)
    return list(out.values())


def _should_run(hook: Hook, event: str, subject: HookSubject, commands: Callable[[str], Sequence[str] | None]) -> bool:
    if EVENTS.get(event) and not matches(hook.match, subject.names):
        return False
    return not hook.condition or (event in TOOL_EVENTS and meets_condition(hook.condition, subject, commands))


def matches(pattern: str, names: Collection[str]) -> bool:
    """Return whether a pattern fits one of the names; an empty one and `*` fit all."""
    pattern = pattern.strip()
    if pattern in ("", "*"):
        return True
    if _PLAIN.fullmatch(pattern):
        words = {word.strip().casefold() for word in re.split(r"[|,]", pattern)}
        return any(name.casefold() in words for name in names)
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except re.error:
        return False
    return any(expression.search(name) for name in names)


def meets_condition(rule: str, subject: HookSubject, commands: Callable[[str], Sequence[str] | None]) -> bool:
    """Return whether a call fits `Tool`, `Tool(pattern)` or `Bash(words *)`; unparsed commands do."""
    match = _RULE.fullmatch(rule)
    if match is None or not matches(match[1], subject.names):
        return False
    pattern = match[2]
    if pattern is None or pattern in ("", "*"):
        return True
    if subject.command is not None:
        each = commands(subject.command)
        return each is None or any(_fits_words(pattern, _ASSIGNMENT.sub("", one, count=1)) for one in each)
    return any(fnmatchcase(path, pattern) or PurePath(path).match(pattern) for path in subject.paths)


def _fits_words(pattern: str, command: str) -> bool:
    if pattern.endswith(":*"):  # the words that a command begins with
        begin = pattern[:-2]
        return command == begin or command.startswith(f"{begin} ")
    return fnmatchcase(command, pattern) or (pattern.endswith(" *") and command == pattern[:-2])


log = logging.getLogger(__name__)

TITLE = "Hook"
HELD = 3  # times in a row that hooks may keep a turn, or a child, from ending
FACT = "hook"  # the name of hook texts for the model, in the message that they come with


class HookHost(Protocol):
    """Part of a session that hooks need."""

    @property
    def session_id(self) -> str: ...
    @property
    def mode(self) -> str: ...
    def emit(self, event: Event) -> None: ...
    async def place(self) -> HookSurroundings: ...
    async def transcript(self) -> Path:
        """Write the open thread to a file of JSON Lines; return it."""
        ...

    async def child_transcript(self, child_id: str) -> Path:
        """Write a child thread to a file of JSON Lines beside it; return it."""
        ...


Runner = Callable[[Hook, bytes, HookSurroundings], Awaitable[HookRun]]


class Hooks(Struct):
    """The hooks of a session, or of a child of it.

    `hashes` are those of the project's scripts as they were trusted, by path. `agent` are the fields that name a
    child in all its events.
    """

    listed: HookList
    host: HookHost
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])
    run: Runner = answers.run
    agent: Mapping[str, str] = field(default_factory=dict[str, str])
    _background: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def listens(self, event: str) -> bool:
        """Return whether any hook may run at an event."""
        return any(h.event == event for h in self.listed.active)

    async def fire(
        self,
        event: str,
        fields: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        subject: HookSubject | None = None,
        *,
        limit: float | None = None,
    ) -> HookDecision:
        """Run the hooks that an event starts and return their combined decision.

        Several `fields` are several things that happen at once: every hook gets each. `limit` is the longest that a
        hook may take, in seconds. Raises nothing but a cancellation.
        """
        if not self.listens(event):
            return HookDecision()
        several = [fields] if isinstance(fields, Mapping) else list(fields)
        subject = subject or HookSubject(tuple(str(v) for f in several[:1] if (v := f.get(_get_matched_field(event)))))
        try:
            hooks = choose_hooks(self.listed.hooks, event, subject, _split_commands)
            decision = await self._run(event, hooks, several, limit) if hooks else HookDecision()
        except Exception as e:  # the worker's root: a fault of hooks becomes a notice, the chat goes on
            log.exception("hooks of %s failed", event)
            self.host.emit(Notice("warning", TITLE, f"{event}: {to_one_line(f'{type(e).__name__}: {e}', 200)}"))
            return HookDecision()
        for text in decision.notices:
            self.host.emit(Notice("warning", TITLE, f"{text.hook.title} ({text.hook.source}): {text.text}"))
        for text in decision.messages:
            self.host.emit(Notice("warning", TITLE, f"{text.hook.source}: {text.text}"))
        return decision

    def of_agent(self, agent_id: str, agent_type: str) -> Hooks:
        """Return the hooks for a child thread."""
        return Hooks(self.listed, self.host, self.hashes, self.run, {"agent_id": agent_id, "agent_type": agent_type})

    async def start_agent(self) -> None:
        """Run the hooks for the start of a child."""
        if self.listens("SubagentStart"):
            await self.fire("SubagentStart", await self._build_agent_fields())

    async def _build_agent_fields(self) -> dict[str, str]:
        path = await self.host.child_transcript(self.agent["agent_id"])
        return {**self.agent, "agent_transcript_path": str(path)}

    async def hold(self, event: str, answer: str, held: int) -> tuple[HookText, ...]:
        """Return the texts that continue a turn, or a child, which was held `held` times; none if it ends."""
        if not self.listens(event):
            return ()
        fields = await self._build_agent_fields() if event == "SubagentStop" else {}
        decision = await self.fire(event, {**fields, "stop_hook_active": held > 0, "last_assistant_message": answer})
        texts = (*decision.reasons, *decision.context) if decision.verdict == "deny" else decision.context
        if decision.stop is not None or not texts:
            return ()
        if held >= HELD:
            what = "this turn" if event == "Stop" else "a child thread"
            text = f"{event} hooks continued {what} {HELD} times; the limit is reached."
            self.host.emit(Notice("warning", TITLE, text))
            return ()
        self.host.emit(Notice("warning", f"{event} hook", "\n".join(f"{t.hook.source}: {t.text}" for t in texts)))
        return texts

    def begin(self, event: str, fields: Mapping[str, Any], subject: HookSubject | None = None) -> None:
        """Run the hooks that an event starts; nothing waits for them."""
        if self.listens(event):
            self._keep(self._fire_alone(event, fields, subject))

    async def _fire_alone(self, event: str, fields: Mapping[str, Any], subject: HookSubject | None) -> None:
        await self.fire(event, fields, subject)

    async def end(self) -> None:
        """End the hooks that nothing waits for."""
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- one event ----------------------------------------------------------------------------------------------

    async def _run(
        self, event: str, hooks: Iterable[Hook], several: Sequence[Mapping[str, Any]], limit: float | None
    ) -> HookDecision:
        place, transcript = await self.host.place(), await self.host.transcript()
        place = structs.replace(place, read=(*place.read, transcript.parent))
        inputs = [
            payload.make_payload(
                event, self.host.session_id, str(transcript), str(place.cwd), self.host.mode, {**self.agent, **f}
            )
            for f in several
        ]
        data = [json.dumps(i, default=str).encode() for i in inputs]
        ready, refused = self._check_scripts(hooks, place)
        if limit is not None:
            ready = [structs.replace(h, timeout=min(h.timeout, limit)) for h in ready]
        watch = _watch(place) if ready else None
        for hook in ready:
            if hook.background:
                self._keep(self._await_background(event, [self.run(hook, d, place) for d in data], watch))
        waited = [h for h in ready if not h.background]
        ran = await asyncio.gather(*(self.run(hook, d, place) for hook in waited for d in data))
        self._set_aside(watch)
        return answers.merge_decisions([answers.read(event, r) for r in (*refused, *ran)])

    def _check_scripts(self, hooks: Iterable[Hook], place: HookSurroundings) -> tuple[list[Hook], list[HookRun]]:
        """Leave out the project's hooks whose scripts differ from the trusted ones."""
        ready: list[Hook] = []
        refused: list[HookRun] = []
        for hook in hooks:
            changed = self._explain_change(hook, place.workspace) if hook.project else ""
            if changed:
                why = f"not started: {changed} has changed since it was trusted. `sakti trust` shows and trusts it."
                refused.append(HookRun(hook, failed=why))
            else:
                ready.append(hook)
        return ready, refused

    def _explain_change(self, hook: Hook, workspace: Path) -> str:
        for path in settings.run_by(hook, workspace):
            name = path.relative_to(workspace).as_posix()
            try:
                now = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError:
                now = ""
            if self.hashes.get(name) != now:
                return to_one_line(name, 100)
        return ""

    def _set_aside(self, watch: quarantine.Watch | None) -> None:
        for old, new in watch.look() if watch is not None else []:
            moved = to_one_line(quarantine.describe_move(old, new), 200)
            text = f"A hook created files that run code or give instructions later: {moved}."
            self.host.emit(Notice("warning", TITLE, text))

    async def _await_background(
        self, event: str, runs: Sequence[Awaitable[HookRun]], watch: quarantine.Watch | None
    ) -> None:
        """Wait for a hook that runs in the background; only its failures and messages are shown."""
        ran = await asyncio.gather(*runs)
        self._set_aside(watch)
        for text in answers.merge_decisions([answers.read(event, r) for r in ran]).notices:
            self.host.emit(Notice("warning", TITLE, f"{text.hook.title} ({text.hook.source}): {text.text}"))

    def _keep(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def make_hold_message(event: str, texts: Sequence[HookText]) -> tuple[Part, ...]:
    """Return the message that continues a turn which hooks held, with their texts."""
    shown = "\n".join(t.text for t in texts)
    return ContextPart({FACT: answers.delimit(event, texts)}), MarkerPart(FACT, shown)


def _watch(place: HookSurroundings) -> quarantine.Watch | None:
    """Watch the protected names while hooks run in the sandbox.

    The watch is separate, because commands run meanwhile.
    """
    if place.sandbox is None:
        return None
    watch = quarantine.Watch(place.workspace, place.sandbox.watch.gits)
    watch.begin(running=False)
    return watch


def _get_matched_field(event: str) -> str:
    """Return the field that the pattern of an event's hooks is compared with."""
    return settings.EVENTS.get(event, "")


def _split_commands(text: str) -> Sequence[str] | None:
    """Return the single commands of a command line, or None if it is not understood."""
    script = shell.parse(text)
    return [" ".join(c.argv) for c in shell.list_commands(script) if c.argv] if script.understood else None
