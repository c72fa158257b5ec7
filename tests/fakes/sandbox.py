"""A sandbox that is said to hold and encloses nothing: what commands do is then as quick as without one."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.agent.sandbox.boundary import Level, Masks
from sakti.agent.sandbox.quarantine import Watch
from sakti.agent.sandbox.sandbox import SandboxedCommand


@dataclass
class FakeSandbox:
    """`started` are the commands that were to be enclosed, `read_only` whether each must write nothing."""

    workspace: Path
    level: Level = field(default_factory=lambda: Level("sandboxed"))
    started: list[Sequence[str]] = field(default_factory=list[Sequence[str]])
    read_only: list[bool] = field(default_factory=list[bool])

    def __post_init__(self) -> None:
        self._masks = Masks(WorkspaceView(self.workspace, self.workspace))
        self.watch = Watch(self.workspace, self._gits, self._texts)

    def _gits(self) -> tuple[Path, ...]:
        self._masks.refresh()
        return self._masks.repositories

    def _texts(self) -> tuple[Path, ...]:
        return (*self._masks.texts, *self._masks.dependency_texts())

    def open_network(self) -> bool:
        return False

    def open_port(self, port: int) -> int:
        raise OSError("no background command can be reached")

    def close(self) -> None:
        pass

    @contextmanager
    def enclose(
        self,
        argv: Sequence[str],
        cwd: Path,
        shown: Iterable[Path] = (),
        read: Iterable[Path] = (),
        *,
        read_only: bool = False,
        shares_network: bool = False,
    ) -> Generator[SandboxedCommand]:
        self.started.append(argv)
        self.read_only.append(read_only)
        yield SandboxedCommand(tuple(argv), cwd)
