"""Show instructions that hold for a part of the project when a tool first touches that part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pathspec

from sakti.agent.instructions import find, rules
from sakti.agent.instructions.texts import Reader, cut
from sakti.agent.tools.base import Outcome
from sakti.core.types import Message, ToolCallPart

LIMIT = 16 * 1024  # bytes with one result
KEY = "instructions"  # in a result's details: what was shown with it, by name


class Nearby:
    """Adds them to the result of the call that touches the first matching file, once until memory replaces messages.

    `begun` gives the sources that are in the prompt already, `touched` the paths of a call, relative to the workspace,
    `window` the messages that are sent: what their results show is not shown again, in another process neither.
    """

    def __init__(
        self,
        workspace: Path,
        begun: Callable[[], Sequence[find.Source]],
        touched: Callable[[ToolCallPart], Sequence[str]],
        window: Callable[[], Iterable[Message]],
    ) -> None:
        self._workspace, self._begun, self._touched, self._window = workspace, begun, touched, window
        self._shown: dict[str, str] = {}
        self._after = -1
        self._rules: list[rules.Rule] | None = None

    def forget(self, newest: int = -1) -> None:
        """Show all again: messages up to the one of index `newest` were replaced, or another thread is open."""
        self._shown.clear()
        self._after = newest

    @property
    def shown(self) -> dict[str, str]:
        """Return the names of what the model was shown, each with the hash of its text."""
        return {**_in_results(m for m in self._window() if m.index > self._after), **self._shown}

    async def changes(self) -> dict[str, str]:
        """Begin a turn: return what was shown and reads otherwise now, by name, as it is to be told."""
        self._rules = None
        self._shown.clear()
        shown = self.shown
        return await asyncio.to_thread(self._changes, shown) if shown else {}

    def _changes(self, shown: Mapping[str, str]) -> dict[str, str]:
        ruled = {r.name: r.text for r in self._loaded_rules()}
        out: dict[str, str] = {}
        for name, sha256 in shown.items():
            path = self._workspace / name
            text = ruled.get(name) if name.startswith(rules.FOLDERS) else self._reader().read(path)
            if text and _hash(find.Source(name, text)) != sha256:
                out[name] = f"{name} has changed since it was shown. It reads now:\n{text}"
            elif not text:
                out[name] = f"{name} was removed: its instructions hold no longer."
        return out

    async def before(self, call: ToolCallPart) -> ToolCallPart:
        """Return the call as it is."""
        return call

    async def after(self, call: ToolCallPart, outcome: Outcome) -> Outcome:
        """Add to the outcome what holds for the paths of the call."""
        paths = [p for p in self._touched(call) if not p.startswith(("/", "~", ".."))]
        if outcome.is_error or not paths:
            return outcome
        known = {*self.shown, *(s.name for s in self._begun())}
        new = [s for s in await asyncio.to_thread(lambda: list(self._due(paths, known))) if s.name not in self._shown]
        if not new:
            return outcome
        hashes = {s.name: _hash(s) for s in new}
        self._shown |= hashes
        told = "".join(f'\n\n<instructions from="{s.name}">\n{s.text}\n</instructions>' for s in new)
        return replace(outcome, content=outcome.content + cut(told, LIMIT), details={**outcome.details, KEY: hashes})

    def _due(self, paths: Sequence[str], known: set[str]) -> Iterator[find.Source]:
        for folder in dict.fromkeys(f for p in paths for f in reversed(PurePosixPath(p).parents)):
            if folder == PurePosixPath("."):
                continue
            for path in find.of_folder(self._workspace / folder):
                name = path.relative_to(self._workspace).as_posix()
                if name not in known and (text := self._reader().read(path)):
                    known.add(name)
                    yield find.Source(name, text)
        for rule in self._loaded_rules():
            if rule.paths and rule.name not in known and _matches(rule.paths, paths):
                yield find.Source(rule.name, rule.text)

    def _reader(self) -> Reader:
        return Reader((self._workspace.resolve(),))

    def _loaded_rules(self) -> list[rules.Rule]:
        if self._rules is None:
            self._rules = rules.load(self._workspace)
        return self._rules


def _in_results(messages: Iterable[Message]) -> dict[str, str]:
    out: dict[str, str] = {}
    for message in messages:
        for result in message.tool_results:
            shown: Any = result.details.get(KEY)
            if isinstance(shown, dict):
                out |= {str(name): str(sha) for name, sha in cast("dict[Any, Any]", shown).items()}
    return out


def _hash(source: find.Source) -> str:
    return source.sha256[:16]


def _matches(patterns: Sequence[str], paths: Sequence[str]) -> bool:
    """Return whether a pattern fits one of the paths; what is no pattern fits none."""
    for pattern in patterns:
        try:
            spec = pathspec.GitIgnoreSpec.from_lines([pattern])
        except ValueError:
            continue
        if any(spec.match_file(p) for p in paths):
            return True
    return False
