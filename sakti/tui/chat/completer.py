"""Completion on the screen: what the prompt asks for, fetched and offered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions import registry
from sakti.actions.line import (
    Choice,
    CompletionQuery,
    argument_choices,
    command_choices,
    file_choices,
    model_choices,
    prompt_choices,
    skill_choices,
)
from sakti.agent.file_list import FileList
from sakti.core.errors import SaktiError
from sakti.core.text import count_k
from sakti.core.types import ModelInfo
from sakti.tui.widgets.completions import Completions
from sakti.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from sakti.agent.project.skills.library import Skill
    from sakti.agent.session.session import Session


class Completer:
    """Keeps the query that the shown choices belong to."""

    def __init__(self, session: Session, prompt: Prompt, view: Completions) -> None:
        self._session, self._prompt, self._view = session, prompt, view
        self._files = FileList(session.workspace.root, trusted=lambda: session.workspace.options.trusted)
        self._query: CompletionQuery | None = None
        self._models: list[ModelInfo] | None = None  # asked for once while a name is being written

    async def show(self, query: CompletionQuery | None) -> None:
        """Offer completions for `query`; None, or no match, hides the list."""
        if query is None or query.command != "model":
            self._models = None
        self._query = query
        choices: list[Choice] = []
        if query is not None:
            match query.kind:
                case "command":
                    choices = [self._with_preview(c) for c in command_choices(query.text)]
                    choices += skill_choices(query.text, self._skills(), "/")
                    choices += prompt_choices(query.text, self._session.prompts())
                    if len(choices) == 1 and choices[0].insert.strip() == f"/{query.text}":
                        choices = [Choice(choices[0].insert, choices[0].label, choices[0].hint)]
                case "argument":
                    choices = argument_choices(query.command, query.text)
                    if query.command == "model":
                        choices = model_choices(query.text, await self._known_models())
                case "skill":
                    choices = skill_choices(query.text, (s for s in self._skills() if s.folder), "$")
                case "file":
                    choices = file_choices(query.text, [*await self._files.paths(), *self._session.resources()])
        self._view.show(choices)
        self._prompt.completing = bool(choices)

    def _skills(self) -> list[Skill]:
        """Return those whose name no command of sakti has."""
        return [s for name, s in self._session.typed_skills().items() if name not in registry.chat()]

    def accept(self, *, send: bool) -> None:
        """Put the chosen completion into the prompt. A command that was written out is sent by the same Enter."""
        prompt, query = self._prompt, self._query
        choice = self._view.chosen
        self._view.show(())
        prompt.completing = False
        if choice is None or query is None:
            if send:
                prompt.send()
            return
        complete = query.kind == "command" and (
            choice.insert.strip() == f"/{query.text}" or not choice.insert.endswith(" ")
        )
        if not (send and choice.insert.strip() == prompt.text.strip()):
            prompt.apply(query, choice)
        if send and (complete or query.kind == "argument"):
            prompt.send()

    async def _known_models(self) -> list[ModelInfo]:
        if self._models is None:
            try:
                self._models = await self._session.views.models()
            except SaktiError:
                self._models = []  # a name can still be typed; /model alone reports the error
        return self._models

    def _with_preview(self, choice: Choice) -> Choice:
        """Add a preview of the effect of /compact."""
        if choice.insert.strip() != "/compact" or self._session.thread is None:
            return choice
        messages, before, after = self._session.compact_preview()
        if not messages:
            return Choice(choice.insert, choice.label, "nothing is pending")
        hint = f"{messages} messages, {count_k(before)} → ~{count_k(after)} tokens"
        return Choice(choice.insert, choice.label, hint)
