"""Let a model repair: the same session, loop, tools and memory as `sakti run`, in a copy of the workspace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.judge.policy import escape_glob
from sakti.agent.session.session import Options, Session
from sakti.core.errors import SaktiError
from sakti.core.events import Event, StepFinished, TurnFinished
from sakti.core.lazy import lazy_imports
from sakti.core.resources import find_program, search_path
from sakti.core.tokens import Counter
from sakti.core.types import ModelInfo, Usage
from sakti.providers.protocol import Provider
from tests.bench.repair import copies, judging
from tests.bench.repair.catalog import FOLDER, Repair, tool_chain
from tests.bench.repair.judging import Verdict
from tests.bench.repair.results import Result

with lazy_imports:
    from sakti.store.threads import runs

STEPS, SECONDS = 60, 900
OUTPUTS = "outputs"

# Clients of the network fail at once in the agent's commands: no repair needs any.
OFFLINE: Mapping[str, str] = {
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
    "PIP_NO_INDEX": "1",
    "npm_config_offline": "true",
}


class Limits(Struct, frozen=True):
    """Limits of one repair: model calls, and seconds of wall time."""

    steps: int = STEPS
    seconds: float = SECONDS


class Contestant(Struct, frozen=True):
    """Model that repairs: a provider and its model, None for the choice of `options`.

    `options.workspace` is not used.
    """

    options: Options
    provider: Provider | None = None
    model: ModelInfo | None = None
    counter: Counter | None = None


class _Turn(Struct):
    """Result of the turn: how it ended, what it cost."""

    status: str = "error"
    error: str = ""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0

    def hear(self, event: Event) -> None:
        match event:
            case StepFinished():
                self.steps += 1
            case TurnFinished(status=status, error=error):
                self.status, self.error = status, error or ""
            case _:
                pass


async def play(repair: Repair, contestant: Contestant, limits: Limits) -> Result:
    """Let the contestant work on the repair's issue in a fresh copy, then judge the copy by the hidden tests.

    Raises `NoModelError` where there is no model to ask.
    """
    with _folder("sakti-repair-") as top:
        workspace = copies.fresh(repair, top / "work" / repair.name)
        programs, missing = tool_chain(repair, workspace)  # before the run: it may change what stands on PATH
        if missing:
            return Result(repair.name, repair.language, "not run", f"no {' and no '.join(missing)} on PATH")
        await _commit(workspace)
        digest = repair.digest()
        turn = await _work(repair, contestant, limits, workspace, top)
        if repair.digest() != digest:
            return _result(repair, turn, Verdict(0, repair.tests, "the run changed the bench's own files", ""))
        # made now: the run cannot have put anything there
        with _folder("sakti-judge-") as folder:
            copies.to_judge(repair, workspace, folder)
            return _result(repair, turn, await judging.judge(repair, folder, programs))


@contextlib.contextmanager
def _folder(prefix: str) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made:
        yield Path(made).resolve()


def _result(repair: Repair, turn: _Turn, verdict: Verdict) -> Result:
    asked = turn.status != "error"
    reason = verdict.reason if asked or verdict.solved else turn.error
    return Result(
        repair.name,
        repair.language,
        "solved" if verdict.solved else "unsolved" if asked else "error",
        reason,
        turn.status,
        verdict.passed,
        verdict.total,
        turn.steps,
        turn.usage.input_tokens,
        turn.usage.cached_tokens,
        turn.usage.output_tokens,
        turn.usage.cost_usd,
        round(turn.seconds, 1),
    )


def _options(options: Options, limits: Limits, workspace: Path, top: Path) -> Options:
    """Return the user's options with an own database, approval `auto` and the limit of steps.

    No tool may touch the repairs themselves, which contain the solutions.
    """
    config = options.config
    outputs = f"read({escape_glob(str(top / OUTPUTS))}/*)"  # nobody is there to allow what a tool tells to read on
    config = replace(
        config,
        approval=replace(config.approval, mode="auto", allow=(*config.approval.allow, outputs, "bash")),
        agent=replace(config.agent, max_steps=limits.steps),
        store=replace(config.store, path=str(top / "sakti.db"), synchronous="NORMAL"),
        memory=replace(config.memory, read_only=False),
    )
    env = {**options.env, **OFFLINE}
    return replace(
        options,
        workspace=workspace,
        config=config,
        resume=None,
        continue_last=False,
        interactive=False,
        env=env,
        closed=(FOLDER,),
    )


async def _commit(workspace: Path) -> None:
    """Commit the copy as it came, so that there is a diff to look at; without git do nothing.

    Nothing of the user's own configuration is used.
    """
    git = find_program("git", workspace)
    if git is None:
        return
    who = {f"GIT_{role}_{part}": "bench@localhost" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    env = {"PATH": search_path(workspace), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **who}
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message=The workspace as it came")):
        await judging.run_program([git, *words], workspace, env, "")


async def _work(repair: Repair, contestant: Contestant, limits: Limits, workspace: Path, top: Path) -> _Turn:
    turn = _Turn()
    options = _options(contestant.options, limits, workspace, top)
    session = Session(options, provider=contestant.provider, model=contestant.model, counter=contestant.counter)
    session.subscribe(turn.hear)
    clock = session.workspace.clock
    started = clock.monotonic()
    try:
        await session.start()
        session.current.toolbox.state.output_folder = top / OUTPUTS
        await session.submit(repair.issue)
        try:
            async with asyncio.timeout(limits.seconds):
                await session.wait()
        except TimeoutError:
            await session.interrupt()
            turn.status = "time"
    except SaktiError as e:
        if e.code in ("no_model", "config"):
            raise
        turn.status, turn.error = "error", e.message
    finally:
        turn.seconds = clock.monotonic() - started
        with contextlib.suppress(SaktiError):
            turn.usage = await _usage(session)
        session.hurry()
        await session.close()
    return turn


async def _usage(session: Session) -> Usage:
    """Return the usage of the repair, including the calls of memory."""
    if session.thread is None:
        return Usage()
    return await session.workspace.store.read(runs.load_total_usage, session.thread.id)
