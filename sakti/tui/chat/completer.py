"""Offer completions for the prompt, and keep its draft and the queue across windows and crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.timer import Timer

from sakti.actions import registry
from sakti.actions.line import (
    Choice,
    CompletionQuery,
    list_argument_choices,
    list_command_choices,
    list_file_choices,
    list_model_choices,
    list_skill_choices,
    prompt_choices,
)
from sakti.core.errors import SaktiError
from sakti.core.text import count_k, format_count
from sakti.core.types import ModelInfo
from sakti.tui.host import Host
from sakti.tui.widgets.completions import Completions
from sakti.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from sakti.agent.project.skills import Skill
    from sakti.agent.session.session import Session


class Completer:
    """Offers completions and applies the chosen one. Keeps the query that the choices belong to."""

    def __init__(self, session: Session, prompt: Prompt, view: Completions) -> None:
        self._session, self._prompt, self._view = session, prompt, view
        self._query: CompletionQuery | None = None
        self._models: list[ModelInfo] | None = None  # loaded once while a name is typed

    async def show(self, query: CompletionQuery | None) -> None:
        """Offer completions for `query`; None, or no match, hides the list."""
        if query is None or query.command != "model":
            self._models = None
        self._query = query
        choices = await self._list_choices(query) if query is not None else []
        self._view.show(choices)
        self._prompt.completing = bool(choices)

    async def _list_choices(self, query: CompletionQuery) -> list[Choice]:
        match query.kind:
            case "command":
                return self._list_command_choices(query.text)
            case "argument" if query.command == "model":
                return list_model_choices(query.text, await self._load_models())
            case "argument":
                return list_argument_choices(query.command, query.text)
            case "skill":
                return list_skill_choices(query.text, (s for s in self._list_skills() if s.folder), "$")
            case "file":
                paths = await self._session.workspace.file_list.paths()  # its module is loaded at the first `@`
                return list_file_choices(query.text, [*paths, *self._session.resources()])

    def _list_command_choices(self, text: str) -> list[Choice]:
        """Return commands, skills and prompts; a single match that is already complete has no preview."""
        choices = [self._with_preview(c) for c in list_command_choices(text)]
        choices += list_skill_choices(text, self._list_skills(), "/")
        choices += prompt_choices(text, self._session.prompts())
        if len(choices) == 1 and choices[0].insert.strip() == f"/{text}":
            return [Choice(choices[0].insert, choices[0].label, choices[0].hint)]
        return choices

    def _list_skills(self) -> list[Skill]:
        """Return the skills that no built-in command hides."""
        return [s for name, s in self._session.typed_skills().items() if name not in registry.chat_commands()]

    def accept(self, *, send: bool) -> None:
        """Put the chosen completion into the prompt; with `send`, also send a complete command."""
        prompt, query = self._prompt, self._query
        choice = self._view.current
        self._view.show(())
        prompt.completing = False
        if choice is None or query is None:
            if send:
                prompt.send()
            return
        if not (send and choice.insert.strip() == prompt.text.strip()):
            prompt.apply(query, choice)
        if send and _is_complete(query, choice):
            prompt.send()

    async def _load_models(self) -> list[ModelInfo]:
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
            return Choice(choice.insert, choice.label, "nothing to compact")
        hint = f"{format_count(messages, 'message')}, {count_k(before)} → ~{count_k(after)} tokens"
        return Choice(choice.insert, choice.label, hint)


SAVE_DELAY_S = 0.5  # seconds from a change to saving it


def _is_complete(query: CompletionQuery, choice: Choice) -> bool:
    """Return whether a completed line can be sent: a command without arguments, or its argument."""
    is_command = query.kind == "command" and (
        choice.insert.strip() == f"/{query.text}" or not choice.insert.endswith(" ")
    )
    return is_command or query.kind == "argument"


class Drafts:
    """Keeps the prompt's text and the queue in the store. Restored text is never sent by itself."""

    def __init__(self, host: Host, prompt: Prompt) -> None:
        self._host, self._prompt = host, prompt
        self._is_saving = False  # not yet, or no longer
        self._saved: tuple[str, tuple[str, ...]] | None = ("", ())  # None: differs from the stored text
        self._has_reported = False
        self._timer: Timer | None = None

    async def restore(self) -> None:
        """Restore the unsent text of closed windows, before the current prompt text."""
        prompt = self._prompt
        try:
            draft, queued = await self._host.session.views.take_unsent()
        except SaktiError as e:
            self._report_failure(e)
            return
        self._is_saving, self._saved = True, (draft, tuple(queued))
        back = [*queued, *([draft] if draft.strip() else [])]
        if back:
            prompt.set_text("\n\n".join([*back, *([prompt.value] if prompt.text else [])]))
        if queued:
            what = format_count(len(queued), "message was queued", "messages were queued")
            self._host.show_notice(
                f"{what} when sakti ended. Nothing was sent: the text is in the prompt.", title="Not sent"
            )
        self.save_soon()

    def save_soon(self) -> None:
        """Schedule a save; save at once if the queue grew or the prompt became empty."""
        if not self._is_saving:
            return
        queue_grew = self._saved is not None and len(self._host.session.queued) > len(self._saved[1])
        if queue_grew or (self._saved != ("", ()) and not self._prompt.value):
            self._save_now()
        elif self._timer is None:
            self._timer = self._prompt.set_timer(SAVE_DELAY_S, self._save_now)

    def _save_now(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._host.start_worker(self._save, group="drafts")

    async def _save(self) -> None:
        if not self._is_saving:
            return
        now = (self._prompt.value, tuple(self._host.session.queued))
        if now == self._saved:
            return
        self._saved = now
        try:
            await self._host.session.views.keep_unsent(*now)
            self._has_reported = False
        except SaktiError as e:
            self._report_failure(e)

    def _report_failure(self, error: SaktiError) -> None:
        """Report the failure once; the next change tries to save again."""
        if error.retryable:
            self._saved = None
        else:
            self._is_saving = False
        if not self._has_reported:
            again = "as soon as it can be stored" if error.retryable else "after the next start"
            self._host.show_notice(f"{error.message} Drafts are saved again {again}.", title=error.title)
        self._has_reported = True

    async def save_at_exit(self) -> None:
        """Store the unsent text for the next window of this workspace.

        Raises `SaktiError` that contains the text if it cannot be stored.
        """
        if not self._is_saving:
            return
        text, self._is_saving = self._prompt.value, False
        session = self._host.session
        queued = session.queued
        try:
            await session.views.keep_unsent(text, queued, left=True)
        except SaktiError as e:
            unsent = "\n".join([*queued, *([text] if text.strip() else [])])
            raise SaktiError(f"{e.message} Not sent:\n{unsent}" if unsent else e.message, title=e.title) from e
