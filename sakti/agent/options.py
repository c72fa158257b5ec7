"""Settings and choices that a session starts with."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent import settings as project_settings
from sakti.agent.project import trust
from sakti.agent.project.files import ProjectFile
from sakti.agent.repository import find_root
from sakti.core.config import Config


class Options(Struct, frozen=True):
    """Settings and choices of a session.

    `resume` is a thread's id or part of its title, `fork` that of a thread to copy; `continue_last` opens the newest
    one; `thread_id` names a thread that is created if missing. Threads, tasks and rules belong to `resource_id`, by
    default the workspace's path. `interactive`: a user is present to approve calls. `closed` are paths that no tool may
    touch, besides sakti's own; `added` are resolved folders that tools and commands treat as parts of the workspace.
    `full` is the mode that asks nothing, for containers. `own_commands` are the chat's commands, whose names files must
    not use.

    For the project: `trust_pending`: only the user's settings apply until the user decides on the project's;
    `overrides` are then loaded again. `trusted`: all files of the workspace have an effect, and git may run there.
    `project_notice` is one line on changes by the project's settings. `files` are the project's reviewed files that
    have an effect; `reviewed` names all reviewed files, trusted or not. `known_texts` names the files present at the
    review: later texts are not read; None: all are.
    """

    workspace: Path
    config: Config = field(default_factory=Config)
    model_flag: str | None = None
    resume: str | None = None
    fork: str | None = None
    continue_last: bool = False
    interactive: bool = True
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    warnings: tuple[str, ...] = ()
    resource_id: str | None = None
    thread_id: str | None = None
    closed: tuple[Path, ...] = ()
    added: tuple[Path, ...] = ()
    project_notice: str = ""
    trust_pending: bool = False
    trusted: bool = True
    full: bool = False
    use_project_instructions: bool = False
    overrides: tuple[str, ...] = ()
    files: tuple[ProjectFile, ...] = ()
    known_texts: frozenset[str] | None = None
    reviewed: frozenset[str] = frozenset()
    own_commands: Callable[[], Container[str]] = frozenset

    @classmethod
    def load(
        cls, workspace: Path | None = None, *, overrides: Sequence[str] = (), trusted: bool = False, **given: Any
    ) -> Options:
        """Make options with the user's settings, those of a trusted project, environment and `overrides`.

        `overrides` ("name=value") are on top; the workspace is the current folder's by default. `trusted`: trust the
        project this time, without asking. Raises `ConfigError`.
        """
        bare = cls.load_without_project(workspace, overrides=overrides, **given)
        review = trust.review(bare.workspace)
        return bare.with_project(review, use=trusted or not review.asks)

    @classmethod
    def load_without_project(
        cls, workspace: Path | None = None, *, overrides: Sequence[str] = (), **given: Any
    ) -> Options:
        """Make options without the project's settings; `with_project` adds them. Raises `ConfigError`."""
        folder = find_root(workspace or Path.cwd())
        loaded = project_settings.load_user_settings(overrides)
        return cls(folder, loaded.config, trust_pending=True, overrides=tuple(overrides), **given)

    def with_project(self, review: trust.TrustReview, *, use: bool) -> Options:
        """Return these options with the project's settings if `use`, else with a warning that names them.

        Raises `ConfigError`.
        """
        project, trusted = review.project if use else review.trusted_part, use or review.holds
        loaded = project_settings.load_settings(project, use=trusted, overrides=self.overrides)
        left_out = "" if use else review.left_out
        warnings = (*loaded.warnings, *(w for w in (project.problem, left_out) if w))
        return replace(
            self,
            config=loaded.config,
            warnings=warnings,
            project_notice=project_settings.describe_changes(loaded),
            trust_pending=False,
            trusted=trusted,
            use_project_instructions=trusted and bool(project.files),
            files=project.files if trusted else (),
            known_texts=frozenset(f.name for f in project.files),
            reviewed=frozenset(f.name for f in review.project.files),
        )

    def with_trusted(self, names: Iterable[str]) -> Options:
        """Return these options with texts that the user trusted later."""
        return replace(self, use_project_instructions=True, known_texts=(self.known_texts or frozenset()).union(names))

    def trusts(self, name: str) -> bool:
        """Return whether a text of the project was there when its trust was decided."""
        return self.known_texts is None or name in self.known_texts
