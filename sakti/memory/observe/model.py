"""Observe with a model."""

from __future__ import annotations

from msgspec import structs

from sakti.core.errors import MemoryFailure
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.types import ImagePart, Message
from sakti.memory import modes
from sakti.memory.log import lines, parse
from sakti.memory.model_call import MemoryModel, prompt_hash
from sakti.memory.observe.transcript import format_messages, log_tail
from sakti.memory.protocol import ModelCall, ObserveInput, ObserveResult
from sakti.memory.window import slices

# A model whose window is smaller than this gets the condensed instructions.
SMALL_WINDOW = 16_000
# The end of the log is at most so much of what is observed: in small windows it would be most of the input.
PREVIOUS_SHARE = 0.4
# What stands round the messages in a prompt, and what times, roles and names of tools add to them.
FRAME_TOKENS, TRANSCRIPT_SHARE, LEAST_ROOM = 300, 0.85, 500


def system_prompt(mode: str, *, condensed: bool, want_title: bool) -> str:
    """Assemble the Observer's instructions for a mode."""
    output = "\n\n".join(
        t for t in (modes.prompt(mode, "output"), read_prompt("observer#title") if want_title else "") if t
    )
    if condensed:
        return fill_prompt("observer#condensed", task=modes.prompt(mode, "task"), output=output)
    return fill_prompt(
        "observer",
        task=modes.prompt(mode, "task"),
        extract=modes.prompt(mode, "extract"),
        output=output,
        rules=read_prompt("observer#rules"),
    )


class ModelObserver:
    """Observer that asks a model.

    `previous_tokens`: how much of the log's end it gets. `window`: its context window, None if unknown.
    """

    def __init__(self, model: MemoryModel, *, previous_tokens: int, window: int | None = None) -> None:
        self._model = model
        self._previous_tokens = previous_tokens
        self._window = window
        self._condensed = window is not None and window < SMALL_WINDOW

    @property
    def name(self) -> str:
        return self._model.full_name

    def prompt(self, request: ObserveInput) -> str:
        """Write the prompt: the log's end, the current state, the new messages."""
        count = self._model.counter.count
        size = sum(m.tokens for m in request.messages)
        log = log_tail(request.log, min(self._previous_tokens, int(size * PREVIOUS_SHARE)), count)
        state = [
            f"- {name}: {value}"
            for name, value in (
                ("Current task", request.current_task),
                ("Suggested response", request.suggested_response),
            )
            if value
        ]
        return fill_prompt(
            "observer#input",
            log=f"# The log so far (its end; do not repeat it)\n\n{log}\n\n" if log else "",
            state="# How things stood\n\n" + "\n".join(state) + "\n\n" if state else "",
            goal=f"# The goal of this agent\n\n{request.goal}\n\n" if request.goal else "",
            focus=f"# The user asked to pay special attention to\n\n{request.focus}\n\n" if request.focus else "",
            timezone=request.timezone,
            messages=format_messages(request.messages, request.timezone, count),
        )

    async def observe(self, request: ObserveInput) -> ObserveResult:
        """Return the observations of the messages, in slices where the model's window does not hold them all.

        Raises as a single slice does.
        """
        results: list[ObserveResult] = []
        for piece in self._pieces(request):
            results.append(
                await self._observe(
                    structs.replace(
                        request,
                        messages=tuple(piece),
                        log="\n".join(t for t in (request.log, *(r.text for r in results)) if t),
                        current_task=results[-1].current_task if results else request.current_task,
                        suggested_response=results[-1].suggested_response if results else request.suggested_response,
                    )
                )
            )
        last = results[-1]
        return structs.replace(
            last,
            text="\n".join(r.text for r in results),
            calls=tuple(c for r in results for c in r.calls),
            categories={content: name for r in results for content, name in r.categories.items()},
            title=next((r.title for r in reversed(results) if r.title), None),
        )

    def _pieces(self, request: ObserveInput) -> list[list[Message]]:
        if self._window is None:
            return [list(request.messages)]
        system = system_prompt(request.mode, condensed=self._condensed, want_title=request.want_title)
        fixed = self._model.counter.count(system) + self._previous_tokens + FRAME_TOKENS
        room = int((self._window - self._model.max_output_tokens - fixed) * TRANSCRIPT_SHARE)
        return slices(request.messages, max(room, LEAST_ROOM))

    async def _observe(self, request: ObserveInput) -> ObserveResult:
        """Observe one slice.

        Raises `MemoryFailure` (malformed) when the answer is unusable twice, `ProviderError` when the model is
        unavailable.
        """
        system = system_prompt(request.mode, condensed=self._condensed, want_title=request.want_title)
        prompt = self.prompt(request)
        images = [p for m in request.messages if m.role != "system" for p in m.parts if isinstance(p, ImagePart)]
        calls: list[ModelCall] = []
        for _ in range(2):
            text, call = await self._model.ask(system, prompt, images)
            calls.append(call)
            if parse.detect_degenerate_repetition(text):
                continue
            body, own = parse.take_sections(text, modes.sections(request.mode))
            parsed = parse.parse_observer_output(body)
            observations, categories = lines.with_sections(parse.clean(parsed.observations), own)
            if observations:
                return ObserveResult(
                    observations,
                    parsed.current_task,
                    parsed.suggested_response,
                    parsed.title if request.want_title else None,
                    self.name,
                    prompt_hash(system),
                    tuple(calls),
                    categories=categories,
                )
        raise MemoryFailure(f"{self.name} gave no usable observations twice.", code="malformed")
