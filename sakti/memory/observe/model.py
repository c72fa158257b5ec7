"""Observe with a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from sakti.core.errors import MemoryFailure
from sakti.core.patterns import lazy_pattern
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.types import ImagePart, Message
from sakti.memory import modes
from sakti.memory.log import lines, parse
from sakti.memory.model_call import MemoryModel, prompt_hash
from sakti.memory.observe import answer
from sakti.memory.observe.transcript import format_messages, log_tail
from sakti.memory.protocol import ModelCall, ObserveInput, ObserveResult
from sakti.memory.window import slices
from sakti.store.log.replaced import Earlier, remove_marks

# A model whose window is smaller than this gets the condensed instructions.
SMALL_WINDOW = 16_000
# The end of the log is at most so much of what is observed: in small windows it would be most of the input.
PREVIOUS_SHARE = 0.4
_REPLACES = lazy_pattern(r" ?\[replaces:? ?O\d{1,5}(?:(?:,| and)? ?O\d{1,5}){0,9}\]")
_ANCHORED = lazy_pattern(r"^\s*\[(O\d{1,5}(?:-N\d{1,5})?)\]", re.MULTILINE)
_NESTED = lazy_pattern(r"^(\s+)\[O\d+-N\d+\]\s", re.MULTILINE)  # only complete lines are replaced
_ANCHOR = lazy_pattern(r"O\d{1,5}")
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


def take_replaced(text: str, shown: str) -> tuple[str, dict[str, list[Earlier]]]:
    """Remove `[replaces O3]` from lines; return for each line's content the shown lines that it names.

    An anchor counts as those that `inject_anchor_ids` gives the lines of `shown`.
    """
    anchors = _ANCHORED.findall(parse.inject_anchor_ids(shown))
    by_anchor = {
        anchor: Earlier(remove_marks(row.content), row.date, row.time)
        for anchor, row in zip(anchors, lines.rows(shown), strict=False)
    }
    replaces: dict[str, list[Earlier]] = {}
    changes: dict[int, str] = {}
    for row in lines.rows(text):
        content = _REPLACES.sub("", row.content).rstrip()
        named = [a for match in _REPLACES.finditer(row.content) for a in _ANCHOR.findall(match[0])]
        if content != row.content:
            changes[row.line] = content
        if earlier := [by_anchor[a] for a in named if a in by_anchor]:
            replaces[content] = earlier
    return lines.apply_corrections(text, changes) if changes else text, replaces


def _continue(request: ObserveInput, results: Sequence[ObserveResult]) -> ObserveInput:
    """Return the request for the next slice: log and state as the slices before it left them."""
    if not results:
        return request
    return structs.replace(
        request,
        log="\n".join(t for t in (request.log, *(r.text for r in results)) if t),
        current_task=results[-1].current_task,
        suggested_response=results[-1].suggested_response,
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
        log = _NESTED.sub(r"\1", parse.inject_anchor_ids(self._shown_log(request)))
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
            log=f"# The log so far (its end, each line with its anchor; do not repeat it)\n\n{log}\n\n" if log else "",
            state="# How things stood\n\n" + "\n".join(state) + "\n\n" if state else "",
            goal=f"# The goal of this agent\n\n{request.goal}\n\n" if request.goal else "",
            focus=f"# The user asked to pay special attention to\n\n{request.focus}\n\n" if request.focus else "",
            timezone=request.timezone,
            messages=format_messages(request.messages, request.timezone, count),
        )

    def _shown_log(self, request: ObserveInput) -> str:
        """Return the end of the log that the prompt shows."""
        size = sum(m.tokens for m in request.messages)
        return log_tail(request.log, min(self._previous_tokens, int(size * PREVIOUS_SHARE)), self._model.counter.count)

    async def observe(self, request: ObserveInput) -> ObserveResult:
        """Return the observations of the messages, in slices where the model's window does not hold them all.

        Raises as a single slice does.
        """
        results: list[ObserveResult] = []
        for piece in self._pieces(request):
            results.append(await self._observe(structs.replace(_continue(request, results), messages=tuple(piece))))
        return structs.replace(
            results[-1],
            text="\n".join(r.text for r in results),
            calls=tuple(c for r in results for c in r.calls),
            categories={content: name for r in results for content, name in r.categories.items()},
            replaces={content: older for r in results for content, older in (r.replaces or {}).items()},
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
            text = answer.cut_lines(text)
            if parse.detect_degenerate_repetition(text):
                continue
            body, sections = parse.take_sections(text, modes.sections(request.mode))
            parsed = parse.parse_observer_output(body)
            observations, categories = lines.with_sections(parse.clean(parsed.observations), sections)
            if observations:
                text, replaces = take_replaced(observations, self._shown_log(request))
                return ObserveResult(
                    text,
                    parsed.current_task,
                    parsed.suggested_response,
                    parsed.title if request.want_title else None,
                    self.name,
                    prompt_hash(system),
                    tuple(calls),
                    categories=categories,
                    replaces=replaces,
                )
        raise MemoryFailure(f"{self.name} gave no usable observations twice.", code="malformed")
