"""What stands before and after a tool call, and tools that a step's processor took out."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from sakti.agent.processors.base import Processor, StepInput
from sakti.agent.tools.context import Outcome
from sakti.core.errors import ToolError
from sakti.core.events import ToolFinished
from sakti.core.types import ToolCallPart
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import Recorded, start


def reading(path: str) -> Answer:
    return Answer(calls=(Call("read", {"path": path}),))


class Other:
    """Sends reads to another file and hides a word of the results."""

    def __init__(self, path: str = "b.txt", *, refuse: bool = False, fail: bool = False) -> None:
        self.path, self.refuse, self.fail = path, refuse, fail

    async def before(self, call: ToolCallPart) -> ToolCallPart:
        if self.refuse:
            raise ToolError("Not today.")
        return replace(call, arguments={"path": self.path})

    async def after(self, call: ToolCallPart, outcome: Outcome) -> Outcome:
        if self.fail:
            raise ValueError("broken")
        return replace(outcome, content=outcome.content.replace("apple", "fruit"))


async def result(store: Store, folder: Path, hook: Other | None, *processors: Processor) -> str:
    run: Recorded = await start(store, folder, [reading("a.txt"), "done"], processors=processors)
    (folder / "a.txt").write_text("first")
    (folder / "b.txt").write_text("an apple")
    (folder / ".env").write_text("KEY=apple")
    run.session.current.toolbox.hooks = (hook,) if hook else ()
    await run.ask("read it")
    return run.of(ToolFinished)[0].result.content


async def test_arguments_and_results_are_as_the_hook_leaves_them(store: Store, tmp_path: Path) -> None:
    assert "an fruit" in await result(store, tmp_path / "w", Other())


async def test_changed_arguments_are_judged_again(store: Store, tmp_path: Path) -> None:
    assert (await result(store, tmp_path / "w", Other(".env"))).startswith("Refused: ")


async def test_a_hook_refuses_a_call(store: Store, tmp_path: Path) -> None:
    assert await result(store, tmp_path / "w", Other(refuse=True)) == "Not today."


async def test_a_failing_hook_does_not_show_what_it_was_to_hide(store: Store, tmp_path: Path) -> None:
    assert await result(store, tmp_path / "w", Other(fail=True)) == "read failed: ValueError: broken"


async def test_a_tool_that_a_step_hook_took_out_does_not_run(store: Store, tmp_path: Path) -> None:
    class NoReads(Processor):
        async def process_input_step(self, step: StepInput) -> StepInput:
            return replace(step, tools=tuple(t for t in step.tools if t.name != "read"))

    assert await result(store, tmp_path / "w", None, NoReads()) == "The tool read is not available in this step."
