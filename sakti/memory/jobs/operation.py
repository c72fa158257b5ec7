"""Emit the events of one job: started, ended, failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from sakti.core.errors import MemoryFailure, SaktiError
from sakti.core.events import MemoryOperation
from sakti.core.types import Json
from sakti.memory.state import MemoryState
from sakti.store.memory import Group


class Operation(Struct, frozen=True):
    """One job: its kind, record and settings; `tokens` go in, `started` in Unix ms."""

    cycle_id: str
    name: Literal["observation", "buffering"]
    type: Literal["observation", "reflection"]
    record_id: str
    thread_id: str
    tokens: int
    started: int
    config: Json

    @classmethod
    def of(
        cls,
        state: MemoryState,
        name: Literal["observation", "buffering"],
        kind: Literal["observation", "reflection"],
        tokens: int,
    ) -> Operation:
        window = state.window
        return cls(
            state.ids.new(),
            name,
            kind,
            window.record.id,
            window.thread.id,
            tokens,
            state.clock.now(),
            state.snapshot(),
        )

    def start(self, state: MemoryState) -> None:
        field = "tokens_to_buffer" if self.name == "buffering" else "tokens_to_observe"
        state.emit(self._event("start", started_at=self.started, **{field: self.tokens}))
        state.changed()

    def end(self, state: MemoryState, made: Sequence[Group]) -> None:
        buffering = self.name == "buffering"
        last = made[-1] if made else None
        values: Json = {
            "tokens_buffered" if buffering else "tokens_observed": (
                self.tokens if self.type == "reflection" else sum(g.message_tokens for g in made)
            ),
            "buffered_tokens" if buffering else "observation_tokens": sum(g.observation_tokens for g in made),
            "observations": "\n".join(g.text for g in made if g.text),
        }
        if not buffering and self.type == "observation" and last is not None:
            values |= {"current_task": last.current_task, "suggested_response": last.suggested_response}
        state.emit(self._event("end", completed_at=state.clock.now(), duration_ms=self._took(state), **values))

    def failed(self, state: MemoryState, error: Exception, made: Sequence[Group] = ()) -> str:
        """Emit a failure; return its message."""
        message = error.message if isinstance(error, SaktiError) else f"{type(error).__name__}: {error}"
        role = "Observer" if self.type == "observation" else "Reflector"
        text = message if isinstance(error, MemoryFailure) else f"{role} failed: {message}"
        state.emit(
            self._event(
                "failed",
                failed_at=state.clock.now(),
                duration_ms=self._took(state),
                tokens_attempted=self.tokens,
                error=text,
                code=error.code if isinstance(error, SaktiError) else "error",
                retryable=error.retryable if isinstance(error, SaktiError) else False,
                observations="\n".join(g.text for g in made),
            )
        )
        return text

    def _took(self, state: MemoryState) -> int:
        return state.clock.now() - self.started

    def _event(self, kind: Literal["start", "end", "failed"], **values: object) -> MemoryOperation:
        return MemoryOperation(
            self.name, kind, self.cycle_id, self.type, self.record_id, (self.thread_id,), self.config, dict(values)
        )
