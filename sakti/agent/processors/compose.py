"""Make processors of processors: one after the other, side by side, only where something holds."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from sakti.agent.processors.base import Processor, StepInput, StepOutput, TurnInput, TurnResult, overrides
from sakti.providers.protocol import StreamEvent

StepHook: TypeAlias = Callable[[StepInput], "StepInput | Awaitable[StepInput]"]


class Chain(Processor):
    """Runs processors in order, on the way in and on the way out."""

    def __init__(self, *parts: Processor) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return f"chain({', '.join(map(title, self.parts))})"

    async def process_input(self, turn: TurnInput) -> TurnInput:
        for part in self.parts:
            turn = await part.process_input(turn)
        return turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        for part in self.parts:
            step = await part.process_input_step(step)
        return step

    def process_output_stream(self, chunk: StreamEvent) -> StreamEvent | None:
        passed: StreamEvent | None = chunk
        for part in self.parts:
            if passed is not None:
                passed = part.process_output_stream(passed)
        return passed

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        for part in self.parts:
            output = await part.process_output_step(output)
        return output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        for part in self.parts:
            result = await part.process_output_result(result)
        return result


class Parallel(Processor):
    """Guards that run at the same time: each may abort, their results are not used.

    The first abort ends the others.
    """

    def __init__(self, *guards: Processor) -> None:
        self.guards = guards

    def __str__(self) -> str:
        return f"parallel({', '.join(map(title, self.guards))})"

    async def process_input(self, turn: TurnInput) -> TurnInput:
        await _together(g.process_input(turn) for g in self.guards)
        return turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        await _together(g.process_input_step(step) for g in self.guards)
        return step

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        await _together(g.process_output_step(output) for g in self.guards)
        return output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        await _together(g.process_output_result(result) for g in self.guards)
        return result


class When(Processor):
    """Runs a processor in the turns for which `condition` holds; it is asked once, as a turn begins."""

    def __init__(self, condition: Callable[[TurnInput], bool], then: Processor) -> None:
        self.condition, self.then = condition, then
        self.holds = False

    def __str__(self) -> str:
        return f"when({title(self.then)})"

    async def process_input(self, turn: TurnInput) -> TurnInput:
        self.holds = self.condition(turn)
        return await self.then.process_input(turn) if self.holds else turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        return await self.then.process_input_step(step) if self.holds else step

    def process_output_stream(self, chunk: StreamEvent) -> StreamEvent | None:
        return self.then.process_output_stream(chunk) if self.holds else chunk

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        return await self.then.process_output_step(output) if self.holds else output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        return await self.then.process_output_result(result) if self.holds else result


class FromFunction(Processor):
    """Serves a plain function as a step hook."""

    def __init__(self, function: StepHook) -> None:
        self.function = function

    def __str__(self) -> str:
        return getattr(self.function, "__name__", "function")

    async def process_input_step(self, step: StepInput) -> StepInput:
        changed = self.function(step)
        return await changed if inspect.isawaitable(changed) else changed


def as_processor(given: Processor | StepHook) -> Processor:
    """Return a processor itself, one that calls a plain function before each model call for anything else."""
    return given if isinstance(given, Processor) else FromFunction(given)


def title(processor: Processor) -> str:
    """Return the name that a processor is shown by."""
    return str(processor) if overrides(processor, "__str__") else type(processor).__name__


async def _together(guards: Iterable[Awaitable[object]]) -> None:
    """Run all guards; the first that aborts (or fails) ends the rest and is raised itself."""
    tasks = [asyncio.ensure_future(g) for g in guards]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
