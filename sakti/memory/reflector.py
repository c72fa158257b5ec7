"""The Reflector that asks a model: condenses the log, harder each time the answer is not small enough."""

from __future__ import annotations

from sakti.core.errors import MemoryFailure
from sakti.core.resources import fill_prompt
from sakti.memory import modes, parse
from sakti.memory.asking import Asker, prompt_hash
from sakti.memory.observer import system_prompt
from sakti.memory.protocol import ModelCall, ReflectInput, ReflectResult

LEVELS = 4
MORE_LEVELS = 3  # above the level it starts at


class ModelReflector:
    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    @property
    def name(self) -> str:
        return self._asker.full_name

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        """The first answer that meets the target, else the smallest one. Raises `MemoryFailure` (not_smaller,
        malformed) when none is smaller than its input."""
        count = self._asker.counter.count
        system = fill_prompt(
            "reflector", observer=system_prompt(request.mode, condensed=True, want_title=False),
            compress=modes.prompt(request.mode, "compress"),
        )
        # anchors first, headings afterwards: a heading is no line of the log
        log = parse.inject_anchor_ids("\n\n".join(text for _, text in request.groups))
        before = sum(count(text) for _, text in request.groups)
        pinned = (
            "\n# Pinned by the user: keep word for word\n\n" + "\n".join(request.pinned)
            if request.pinned
            else ""
        )
        focus = f"\n# Pay special attention to\n\n{request.focus}\n" if request.focus else ""
        calls: list[ModelCall] = []
        best: ReflectResult | None = None
        smallest = before
        usable = False
        for level in range(request.start_level, min(LEVELS, request.start_level + MORE_LEVELS) + 1):
            prompt = fill_prompt(
                "reflector-input", log=log, pinned=pinned, focus=focus,
                level=fill_prompt(f"reflector-level-{level}", target=str(request.target_tokens)),
            )
            text, call = await self._asker.ask(system, prompt)
            calls.append(call)
            parsed = parse.parse_reflector_output(text)
            observations = parse.clean(parsed.observations)
            if parsed.degenerate or not observations:
                continue
            usable = True
            size = count(observations)
            if size < smallest:
                smallest = size
                best = ReflectResult(
                    observations,
                    parsed.current_task,
                    parsed.suggested_response,
                    self.name,
                    prompt_hash(system),
                    level,
                )
            if best is not None and size <= request.target_tokens:
                break
        if best is None:
            raise MemoryFailure(
                f"{self.name} gave nothing smaller than the log ({before} tokens) in {len(calls)} attempts."
                if usable
                else f"{self.name} gave no usable reflection in {len(calls)} attempts: the log stays.",
                code="not_smaller" if usable else "malformed",
            )
        return ReflectResult(
            best.text, best.current_task, best.suggested_response, best.model, best.prompt_hash, best.level,
            tuple(calls),
        )
