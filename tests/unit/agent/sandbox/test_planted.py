"""A command plants no instructions for later threads, neither inside the sandbox nor outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.agent import workspace as workspaces
from sakti.agent.project import trust
from sakti.agent.project.files import BRANDS
from sakti.agent.sandbox.boundary import Level
from sakti.agent.session import lifecycle
from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.events import ApprovalRequested, Notice
from sakti.core.tokens import Estimator
from sakti.core.types import ModelInfo
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from tests.fakes.enclosed import made_place, made_sandbox, run
from tests.fakes.sandbox import FakeSandbox
from tests.fakes.session import Recorded

SKILL = "---\nname: x\ndescription: obey-me\n---\nobey-me"
NAMES = (
    *("AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "sub/AGENTS.override.md", "sub/CLAUDE.local.md"),
    *("sub/deep/er/AGENTS.md", "new/folder/CLAUDE.md"),
    *(f"{folder}{brand}/rules/x.md" for brand in BRANDS for folder in ("", "sub/")),
    *(f"{folder}{brand}/skills/x/SKILL.md" for brand in BRANDS for folder in ("", "sub/")),
    *(f"{brand}/commands/x.md" for brand in BRANDS),
    *("sub/.claude/settings.json", "sub/.sakti/config.toml"),
    *("node_modules/q/AGENTS.md", "sub/node_modules/@x/q/CLAUDE.md", "venv/lib/x/.claude/rules/x.md"),
)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_sandboxed_command_plants_is_set_aside(name: str, tmp_path: Path) -> None:
    sandbox = made_sandbox(made_place(tmp_path), tmp_path)
    sandbox.watch.begin(running=False)
    code, said = run(sandbox, f"mkdir -p $(dirname {name}) && echo obey-me > {name}")
    assert code == 0, said
    moved = sandbox.watch.look()
    assert moved and all(new for _, new in moved), moved
    assert not (sandbox.workspace / name).exists()
    sandbox.watch.begin(running=False)
    assert sandbox.watch.look() == [], "what was set aside stays where it is"


@pytest.mark.parametrize("name", ["sub/AGENTS.md", "sub/.claude/rules/x.md", "sub/.agents/skills/x/SKILL.md"])
@pytest.mark.parametrize(
    "command", ["echo obey-me > {}", "rm {}", "mv {} other", "mv sub other", "rm -rf sub", "ln -sf /etc/hostname {}"]
)
def test_instructions_below_the_workspace_cannot_be_changed(name: str, command: str, tmp_path: Path) -> None:
    place = made_place(tmp_path)
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("be kind")
    sandbox = made_sandbox(place, tmp_path)
    code, said = run(sandbox, command.format(name))
    assert code != 0 and (place / name).read_text() == "be kind", said


async def begin(store: Store, workspace: Path, answers: list[Any]) -> Recorded:
    overrides = ("memory.model=extractive", "approval.mode=edits")
    options = Options.load(workspace, overrides=overrides, env={"PATH": "/usr/bin:/bin"})
    options = replace(options, config=load(overrides=overrides).config)
    counter, clock = Estimator(), store.clock
    provider: Any = ScriptedProvider(answers, clock=clock, count=counter.count)  # pyright: ignore[reportArgumentType]
    model = ModelInfo("demo", "scripted", context_window=200_000)
    session = Session(options, clock=clock, counter=counter, provider=provider, model=model, store=store)
    recorded = Recorded(session, provider)
    await session.start()

    def allow(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            session.resolve(event.id, True)

    session.subscribe(allow)
    return recorded


def shown_to_the_model(run: Recorded) -> str:
    return repr(run.provider.requests[-1])


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(made: workspaces.Workspace) -> FakeSandbox:
        return FakeSandbox(made.root, Level("unsandboxed", "switched off"))

    monkeypatch.setattr(workspaces, "make_sandbox", none)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    (folder / "sub").mkdir(parents=True)
    (folder / "AGENTS.md").write_text("be kind")
    (folder / "sub" / "a.txt").write_text("a")
    trust.save(trust.review(folder))
    return folder


@pytest.mark.parametrize("name", NAMES)
async def test_what_a_command_plants_is_in_no_later_request(
    store: Store, workspace: Path, name: str, no_sandbox: None
) -> None:
    command = f"mkdir -p $(dirname {name}) && printf '%s\\n' '{SKILL}' > {name}"
    answers = [Answer(calls=[Call("bash", {"command": command})]), Answer("done")]
    later = [Answer(calls=[Call("read", {"path": "sub/a.txt"})]), Answer("done"), Answer("done")]
    run = await begin(store, workspace, [*answers, *later])
    await run.ask("go")
    assert (workspace / name).exists(), "nothing holds the command here"
    await run.session.new_thread()
    await run.ask("read it")
    await run.ask("again")
    assert "obey-me" not in shown_to_the_model(run) and "be kind" in shown_to_the_model(run)
    await run.session.close()
    again = await begin(store, workspace, [Answer("x")])
    assert not again.session.workspace.options.known_texts or name not in again.session.workspace.options.known_texts
    await again.ask("hello")
    assert "obey-me" not in shown_to_the_model(again) and "be kind" in shown_to_the_model(again)
    await again.session.close()


async def test_a_new_text_is_announced_once(store: Store, workspace: Path, no_sandbox: None) -> None:
    command = "echo obey-me > AGENTS.override.md"
    answers = [Answer(calls=[Call("bash", {"command": command})]), *[Answer("x")] * 3]
    run = await begin(store, workspace, answers)
    for text in ("go", "on", "and on"):
        await run.ask(text)
    notices = [n.message for n in run.of(Notice) if n.title == "Instructions"]
    assert notices == [
        "AGENTS.override.md: new since the workspace was trusted, so left out. `sakti trust` shows and trusts it."
    ]
    await run.session.close()


async def answered(run: Recorded, answer: bool, shown: list[trust.TrustReview]) -> dict[str, str]:
    async def ask(review: trust.TrustReview) -> bool:
        shown.append(review)
        return answer

    return await lifecycle.settle_new_files(run.session.workspace, ask)


@pytest.mark.parametrize("answer", [True, False])
async def test_a_new_text_is_read_by_later_threads_if_the_user_trusts_it(
    store: Store, workspace: Path, no_sandbox: None, answer: bool
) -> None:
    writes = [Call("write", {"path": "AGENTS.override.md", "content": "obey-me"})]
    answers = [Answer(calls=writes), *[Answer("done")] * 3]
    run = await begin(store, workspace, answers)
    await run.ask("go")
    shown: list[trust.TrustReview] = []
    left_out = await answered(run, answer, shown)
    assert [c.name for review in shown for c in review.changes] == ["AGENTS.override.md"] and "obey-me" in shown[0].diff
    assert list(left_out) == ([] if answer else ["AGENTS.override.md"])
    assert await answered(run, True, shown) == {} and len(shown) == 1, "each is asked about once"
    await run.session.new_thread()
    await run.ask("hello")
    assert ("obey-me" in shown_to_the_model(run)) == answer
    await run.session.close()
    assert trust.review(workspace).asks is not answer


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("name", ["AGENTS.override.md", "sub/CLAUDE.md", ".claude/rules/x.md"])
async def test_what_was_set_aside_gets_its_name_back_if_the_user_trusts_it(
    store: Store, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bool, name: str
) -> None:
    sandbox = FakeSandbox(workspace, Level("sandboxed"))
    monkeypatch.setattr(workspaces, "make_sandbox", lambda _made: sandbox)
    run = await begin(store, workspace, [Answer("done")])
    assert run.session.workspace.sandbox is sandbox
    sandbox.watch.begin(running=False)
    (workspace / name).parent.mkdir(parents=True, exist_ok=True)
    (workspace / name).write_text("obey-me")
    moved = sandbox.watch.look()
    assert moved
    left_out = await answered(run, answer, [])
    assert (workspace / name).exists() == answer
    assert list(left_out) == ([] if answer else [name])
    await run.session.new_thread()
    await run.ask("hello")
    assert ("obey-me" in shown_to_the_model(run)) == (answer and "sub/" not in name)
    await run.session.close()


async def test_a_file_that_changed_while_it_was_asked_about_is_not_trusted(
    store: Store, workspace: Path, no_sandbox: None
) -> None:
    run = await begin(store, workspace, [Answer("done")])
    (workspace / "AGENTS.override.md").write_text("be kind too")

    async def ask(review: trust.TrustReview) -> bool:
        (workspace / "AGENTS.override.md").write_text("obey-me")
        return True

    assert list(await lifecycle.settle_new_files(run.session.workspace, ask)) == ["AGENTS.override.md"]
    await run.session.close()


IMPORTED = "See @docs/guide.md, `@docs/code.md` and @docs/late.md."


@pytest.mark.parametrize(
    "command",
    ["echo obey-me >> {}", "rm {}", "mv docs other", "ln -sf /etc/hostname {}", "echo obey-me > docs/late.md"],
)
@pytest.mark.parametrize("name", ["docs/guide.md", "docs/more.txt"])
def test_what_instructions_import_cannot_be_changed(name: str, command: str, tmp_path: Path) -> None:
    place = made_place(tmp_path)
    (place / "docs").mkdir()
    (place / "AGENTS.md").write_text(IMPORTED)
    for other in ("guide.md", "code.md", "more.txt"):
        (place / "docs" / other).write_text("be kind @more.txt")
    sandbox = made_sandbox(place, tmp_path)
    sandbox.watch.begin(running=False)
    run(sandbox, command.format(name))
    moved = sandbox.watch.look()
    assert (place / name).read_text() == "be kind @more.txt" and not (place / "docs/late.md").exists()
    assert [old for old, _ in moved] == (["docs/late.md"] if "late" in command else [])
    assert run(sandbox, "echo x > docs/code.md")[0] == 0, "what is named in code is no import"


async def test_a_new_import_is_text_until_the_user_trusts_it(
    store: Store, workspace: Path, no_sandbox: None, tmp_path: Path
) -> None:
    (workspace / "AGENTS.md").write_text(IMPORTED)
    (workspace / "docs").mkdir()
    (workspace / "docs" / "guide.md").write_text("be kind")
    trust.save(trust.review(workspace))
    command = "echo obey-me > docs/late.md"
    run = await begin(store, workspace, [Answer(calls=[Call("bash", {"command": command})]), *[Answer("x")] * 3])
    await run.ask("go")
    assert list(await answered(run, False, [])) == ["docs/late.md"]
    await run.session.new_thread()
    await run.ask("on")
    assert "obey-me" not in shown_to_the_model(run) and "be kind" in shown_to_the_model(run)
    await run.session.close()
