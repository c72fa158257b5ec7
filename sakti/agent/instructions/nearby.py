"""Show instructions that hold for a part of the project when a tool first touches that part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pathspec

from sakti.agent.instructions import find, rules
from sakti.agent.instructions.texts import Reader, cut
from sakti.agent.tools.base import Outcome
from sakti.core.types import ToolCallPart

LIMIT = 16 * 1024  # bytes with one result


class Nearby:
    """Adds them to the result of the call that touches the first matching file, once until memory replaces messages.

    `begun` gives the sources that are in the prompt already, `touched` the paths of a call, relative to the workspace.
    """

    def __init__(
        self,
        workspace: Path,
        begun: Callable[[], Sequence[find.Source]],
        touched: Callable[[ToolCallPart], Sequence[str]],
    ) -> None:
        self._workspace, self._begun, self._touched = workspace, begun, touched
        self._shown: set[str] = set()
        self._rules: list[rules.Rule] | None = None

    def forget(self) -> None:
        """Show all again: the results that held them have left the window, or another thread is open."""
        self._shown.clear()

    async def before(self, call: ToolCallPart) -> ToolCallPart:
        """Return the call as it is."""
        return call

    async def after(self, call: ToolCallPart, outcome: Outcome) -> Outcome:
        """Add to the outcome what holds for the paths of the call."""
        paths = [p for p in self._touched(call) if not p.startswith(("/", "~", ".."))]
        if outcome.is_error or not paths:
            return outcome
        new = await asyncio.to_thread(lambda: list(self._due(paths)))
        self._shown.update(s.name for s in new)
        told = "".join(f'\n\n<instructions from="{s.name}">\n{s.text}\n</instructions>' for s in new)
        return replace(outcome, content=outcome.content + cut(told, LIMIT)) if told else outcome

    def _due(self, paths: Sequence[str]) -> Iterator[find.Source]:
        known = self._shown | {s.name for s in self._begun()}
        for folder in dict.fromkeys(f for p in paths for f in reversed(PurePosixPath(p).parents)):
            if folder == PurePosixPath("."):
                continue
            for path in find.of_folder(self._workspace / folder):
                name = path.relative_to(self._workspace).as_posix()
                if name not in known and (text := Reader((self._workspace.resolve(),)).read(path)):
                    known.add(name)
                    yield find.Source(name, text)
        if self._rules is None:
            self._rules = rules.load(self._workspace)
        for rule in self._rules:
            if rule.paths and rule.name not in known and _matches(rule.paths, paths):
                yield find.Source(rule.name, rule.text)


def _matches(patterns: Sequence[str], paths: Sequence[str]) -> bool:
    spec = pathspec.GitIgnoreSpec.from_lines(patterns)
    return any(spec.match_file(p) for p in paths)
