"""Condense the log with a model, at higher compression levels until the answer is small enough."""

from __future__ import annotations

from msgspec import structs

from sakti.core.errors import MemoryFailure
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.text import format_count
from sakti.core.types import ModelCall
from sakti.memory import modes, shared
from sakti.memory.log import parse
from sakti.memory.model_call import MemoryModel, prompt_hash
from sakti.memory.observe.model import build_system_prompt
from sakti.memory.protocol import ReflectInput, ReflectResult, join_results

LEVELS = 4
MORE_LEVELS = 3  # levels tried above the first one
UNUSABLE_LIMIT = 1  # unusable answers after which the model is asked again, at a higher level
# Tokens of a prompt besides the log, and of the anchors added to it.
FRAME_TOKENS, LOG_SHARE, LEAST_ROOM = 300, 0.85, 500


class ModelReflector:
    """Reflector that asks a model; `window` is its context window in tokens, None if unknown."""

    def __init__(self, model: MemoryModel, *, window: int | None = None) -> None:
        self._model = model
        self._window = window

    @property
    def name(self) -> str:
        return self._model.full_name

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        """Condense the log, in slices if it exceeds the model's window.

        A slice that cannot be made smaller stays as it is. If none can, the errors of a single slice are raised.
        """
        pieces = self._divide(request)
        if len(pieces) == 1:
            return await self._reflect(request)
        count = self._model.counter.count
        sizes = [sum(count(text) for _, text in piece) for piece in pieces]
        texts: list[str] = []
        results: list[ReflectResult] = []
        failures: list[MemoryFailure] = []
        for piece, size in zip(pieces, sizes, strict=True):
            text = "\n\n".join(t for _, t in piece)
            part = structs.replace(
                request,
                groups=piece,
                target_tokens=max(1, request.target_tokens * size // sum(sizes)),
                pinned=tuple(p for p in request.pinned if p.lstrip("* ") in text),
            )
            try:
                results.append(await self._reflect(part))
                texts.append(results[-1].text)
            except MemoryFailure as e:
                failures.append(e)
                texts.append(text)
        if not results:
            raise failures[-1]
        return join_results(results, "\n\n".join(texts))

    def _divide(self, request: ReflectInput) -> list[tuple[tuple[str, str], ...]]:
        if self._window is None:
            return [request.groups]
        count = self._model.counter.count
        fixed = count(self._system(request)) + sum(count(p) for p in request.pinned) + FRAME_TOKENS
        room = int((self._window - self._model.max_output_tokens - fixed) * LOG_SHARE)
        out: list[list[tuple[str, str]]] = []
        used = 0
        for group in request.groups:
            size = count(group[1])
            if out and used + size <= max(room, LEAST_ROOM):
                out[-1].append(group)
                used += size
            else:
                out.append([group])
                used = size
        return [tuple(piece) for piece in out] or [request.groups]

    def _system(self, request: ReflectInput) -> str:
        return fill_prompt(
            "reflector",
            observer=build_system_prompt(request.mode, condensed=True, want_title=False),
            compress=modes.prompt(request.mode, "compress"),
        )

    async def _reflect(self, request: ReflectInput) -> ReflectResult:
        """Ask at higher levels until an answer meets the target; return it, or else the smallest one.

        Raises `MemoryFailure` (not_smaller, malformed) if no answer is smaller than its input.
        """
        count = self._model.counter.count
        system, log = self._system(request), label_log(request)
        smallest = before = sum(count(text) for _, text in request.groups)
        calls: list[ModelCall] = []
        best: ReflectResult | None = None
        unusable = 0
        for level in range(request.start_level, min(LEVELS, request.start_level + MORE_LEVELS) + 1):
            text, call = await self._model.ask(system, _write_prompt(request, log, level))
            calls.append(call)
            answer = self._read_answer(text, prompt_hash(system), level)
            if answer is None:
                unusable += 1
                if unusable > UNUSABLE_LIMIT:
                    break
                continue
            size = count(answer.text)
            if size < smallest:
                smallest, best = size, answer
            if smallest <= min(request.target_tokens, before - 1):
                break
        if best is not None:
            return structs.replace(best, calls=tuple(calls))
        attempts = format_count(len(calls), "attempt")
        if unusable == len(calls):
            raise MemoryFailure(
                f"{self.name} returned no usable reflection in {attempts}: the log stays.", code="malformed"
            )
        raise MemoryFailure(
            f"{self.name} returned nothing smaller than the log ({before} tokens) in {attempts}.",
            code="not_smaller",
        )

    def _read_answer(self, text: str, system_hash: str, level: int) -> ReflectResult | None:
        """Return the reflection in a model's answer; None if it has none."""
        parsed = parse.parse_reflector_output(text)
        observations = parse.clean(shared.remove_labels(parsed.observations))
        if parsed.degenerate or not observations:
            return None
        return ReflectResult(
            observations, parsed.current_task, parsed.suggested_response, self.name, system_hash, level
        )


def _write_prompt(request: ReflectInput, log: str, level: int) -> str:
    pinned = "\n# Pinned by the user: keep word for word\n\n" + "\n".join(request.pinned) if request.pinned else ""
    return fill_prompt(
        "reflector#input",
        log=log,
        pinned=pinned,
        focus=f"\n# Pay special attention to\n\n{request.focus}\n" if request.focus else "",
        threads=f"\n{read_prompt('reflector#threads')}\n" if any(request.labels.values()) else "",
        level=fill_prompt(f"reflector#level-{level}", target=str(request.target_tokens)),
    )


def label_log(request: ReflectInput) -> str:
    """Return the log with consecutive anchors, and a heading above the lines of each of several threads.

    Headings are added last, since they are not lines of the log.
    """
    anchored = parse.inject_anchor_ids("\n\n".join(text for _, text in request.groups)).split("\n")
    out: list[str] = []
    before = ""
    for group_id, text in request.groups:
        name = request.labels.get(group_id, "")
        if name != before:
            out.append(f"## {name or shared.NO_THREAD}")
        size = text.count("\n") + 2  # with the empty line after it
        out += anchored[:size]
        anchored, before = anchored[size:], name
    return "\n".join(out)
