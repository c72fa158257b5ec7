"""Show instructions that hold for a part of the project when a tool first touches that part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import pathspec

from sakti.agent.project import files
from sakti.agent.project.files import Trusts
from sakti.agent.project.instructions import find
from sakti.agent.project.instructions.texts import InstructionReader, cut
from sakti.agent.tools.context import Outcome
from sakti.core.types import ToolCallPart

LIMIT = 32 * 1024  # bytes of all that is kept for a thread; what was touched first is left out first
KEY = "nearby"  # in a thread's metadata: names of what was shown, in order


class Nearby:
    """Finds instructions for the calls of a thread; each is shown once, as a fact that memory ignores.

    `trusts`: those of the workspace count that it trusts, None: the user's rules only. `begun` gives the sources that
    are in the prompt already, `touched` the paths of a call, relative to the workspace. `kept` are the names that the
    thread has, `keep` adds some.
    """

    def __init__(
        self,
        workspace: Path,
        trusts: Trusts | None,
        begun: Callable[[], Sequence[find.InstructionSource]],
        touched: Callable[[ToolCallPart], Sequence[str]],
        kept: Callable[[], Sequence[str]],
        keep: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._workspace, self._project, self._trusts = workspace, trusts is not None, trusts or files.trusts_all
        self._begun, self._touched, self._kept, self._keep = begun, touched, kept, keep
        self._texts: dict[str, str] = {}
        self._rules: list[find.InstructionSource] | None = None

    def forget(self) -> None:
        """Forget all texts: another thread is open."""
        self._texts = {}

    async def refresh(self) -> None:
        """Read the instructions shown in the thread again, at the start of a turn."""
        self._rules = None
        names = self._kept()
        self._texts = await asyncio.to_thread(self._read, names) if names else {}

    def _read(self, names: Sequence[str]) -> dict[str, str]:
        ruled = {r.name: r.text for r in self._loaded_rules()}
        return {name: ruled.get(name) or self._of_workspace(name) for name in names}

    def _of_workspace(self, name: str) -> str:
        """Return the text of a file of instructions; empty for a rule, which would be there."""
        if not self._project or name.startswith(("~", "/")) or files.kind_of(name, "instructions") == "rule":
            return ""
        if not self._trusts(name):
            return ""
        return self._reader().read(self._workspace / name) or ""

    def texts(self) -> dict[str, str]:
        """Return the current texts that the thread has been shown, by name; empty for a removed file."""
        out: dict[str, str] = {}
        remaining = LIMIT
        for name, text in reversed(self._texts.items()):
            remaining -= len(text.encode("utf-8", "replace"))
            if remaining < 0:
                break
            out[name] = text
        return dict(reversed(out.items()))

    async def before(self, call: ToolCallPart) -> ToolCallPart:
        """Return the call as it is."""
        return call

    async def after(self, call: ToolCallPart, outcome: Outcome) -> Outcome:
        """Note what holds for the paths of the call; return the outcome as it is."""
        paths = [p for p in self._touched(call) if not p.startswith(("/", "~", ".."))]
        if outcome.is_error or not paths:
            return outcome
        names = {*self._texts, *(s.name for s in self._begun())}
        due = await asyncio.to_thread(lambda: list(self._due(paths, names)))
        new = {s.name: cut(s.text, LIMIT) for s in due if s.name not in self._texts}
        if new:
            self._texts |= new
            await self._keep(list(new))
        return outcome

    def _due(self, paths: Sequence[str], known: set[str]) -> Iterator[find.InstructionSource]:
        for folder in dict.fromkeys(f for p in paths for f in reversed(PurePosixPath(p).parents)):
            if folder == PurePosixPath(".") or not self._project:
                continue
            for path in find.of_folder(self._workspace, self._workspace / folder, self._trusts, []):
                name = path.relative_to(self._workspace).as_posix()
                if name not in known and (text := self._reader().read(path)):
                    known.add(name)
                    yield find.InstructionSource(name, text)
        for rule in self._loaded_rules():
            if rule.paths and rule.name not in known and _matches(rule.paths, paths):
                yield rule

    def _reader(self) -> InstructionReader:
        return InstructionReader((self._workspace.resolve(),), trusts=self._trusts)

    def _loaded_rules(self) -> list[find.InstructionSource]:
        if self._rules is None:
            self._rules = find.all_rules(self._workspace, project=self._project, trusts=self._trusts)
        return self._rules


def _matches(patterns: Sequence[str], paths: Sequence[str]) -> bool:
    """Return whether a pattern fits one of the paths; an invalid pattern fits none."""
    for pattern in patterns:
        try:
            spec = pathspec.GitIgnoreSpec.from_lines([pattern])
        except ValueError:
            continue
        if any(spec.match_file(p) for p in paths):
            return True
    return False
