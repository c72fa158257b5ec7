"""What a project and its user want every agent to know: found in order, sent unchanged, never beyond its bounds."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.agent.project import instructions, trust
from sakti.agent.project import skills as skills
from sakti.agent.project.instructions import InstructionReader, replace_imports
from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.events import Notice
from sakti.core.tokens import Estimator
from sakti.core.types import ContextPart, ModelInfo
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from sakti.store.search.search import Scope, search
from tests.fakes.session import Recorded


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


async def begin(store: Store, workspace: Path, answers: list[Any], **options: Any) -> Recorded:
    clock: Any = store.clock
    counter = Estimator()
    provider = ScriptedProvider(answers, clock=clock, count=counter.count)
    given = Options(
        workspace, load(overrides=("memory.model=extractive",)).config, env={"PATH": "/usr/bin:/bin"}, **options
    )
    found = trust.review(workspace)
    given = replace(given, use_project_instructions=bool(found.project.files) and not found.asks)
    model = ModelInfo("demo", "scripted", context_window=200_000)
    recorded = Recorded(
        Session(given, clock=clock, counter=counter, provider=provider, model=model, store=store), provider
    )
    await recorded.session.start()
    return recorded


def system(run: Recorded, number: int = -1) -> list[str]:
    return [b.text for b in run.provider.requests[number].system if b.kind == "instructions"]


# --- what is found ---------------------------------------------------------------------------------------------------


def test_the_users_come_first_then_from_the_root_down(workspace: Path, home: Path) -> None:
    put(home / ".claude" / "CLAUDE.md", "user says")
    put(workspace / "AGENTS.md", "root says")
    put(workspace / "a" / "CLAUDE.md", "a says")
    put(workspace / "a" / "b" / "AGENTS.md", "b says")
    put(workspace / "a" / "b" / "CLAUDE.local.md", "b says to me")
    put(workspace / "other" / "AGENTS.md", "not here")
    found = instructions.find(workspace, workspace / "a" / "b", project=True)
    assert [(s.name, s.text) for s in found.sources] == [
        ("~/.claude/CLAUDE.md", "user says"),
        ("AGENTS.md", "root says"),
        ("a/CLAUDE.md", "a says"),
        ("a/b/AGENTS.md", "b says"),
        ("a/b/CLAUDE.local.md", "b says to me"),
    ]
    assert [s.text for s in instructions.find(workspace, workspace / "a", project=False).sources] == ["user says"]


def test_an_override_hides_the_others_of_its_folder(workspace: Path) -> None:
    write(workspace, **{"AGENTS.md": "a", "CLAUDE.md": "c", "AGENTS.override.md": "mine"})
    assert [s.text for s in instructions.find(workspace, workspace, project=True).sources] == ["mine"]


def test_imports_are_put_in_place_but_not_in_code(workspace: Path) -> None:
    put(workspace / "docs" / "style.md", "two spaces")
    put(
        workspace / "AGENTS.md",
        "See @docs/style.md.\n\n`@docs/style.md`\n\n```\n@docs/style.md\n```\n"
        "me@docs.md @../../etc/passwd.txt @none.md",
    )
    found = instructions.find(workspace, workspace, project=True)
    assert found.sources[0].text == (
        "See two spaces.\n\n`@docs/style.md`\n\n```\n@docs/style.md\n```\nme@docs.md @../../etc/passwd.txt @none.md"
    )
    assert len(found.notes) == 2 and all("left as text" in n for n in found.notes)


def test_circles_and_depth_end_and_are_named(workspace: Path) -> None:
    put(workspace / "AGENTS.md", "top @a.md")
    put(workspace / "a.md", "A @b.md")
    put(workspace / "b.md", "B @c.md @a.md")
    for here, below in zip("cdefg", "defgh", strict=True):
        put(workspace / f"{here}.md", f"{here.upper()} @{below}.md")
    found = instructions.find(workspace, workspace, project=True)
    assert found.sources[0].text == "top A B C D E @f.md @a.md"
    assert any("@a.md imports itself" in n for n in found.notes)
    assert any("@f.md is nested too deep" in n for n in found.notes)


def test_no_more_than_the_limit_cut_at_a_line(workspace: Path) -> None:
    put(workspace / "AGENTS.md", "".join(f"line {n}: {'ä' * 50}\n" for n in range(400)))
    put(workspace / "CLAUDE.local.md", "later")
    found = instructions.find(workspace, workspace, project=True)
    assert len("\n".join(map(instructions.block, found.sources)).encode()) <= 32 * 1024
    assert found.sources[0].text.endswith("ä" * 50)
    assert "AGENTS.md" in found.notes[0] and "left out" in found.notes[0]


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfhello\r\nthere", b"hello\rthere"])
def test_bom_and_line_ends_are_read(workspace: Path, text: bytes) -> None:
    put(workspace / "AGENTS.md", text)
    assert instructions.find(workspace, workspace, project=True).sources[0].text == "hello\nthere"


def test_a_hostile_project_reads_nothing_else_and_ends(workspace: Path, tmp_path: Path) -> None:
    put(tmp_path / "outside.md", "private")
    (workspace / "link.md").symlink_to(tmp_path / "outside.md")
    (workspace / "CLAUDE.local.md").symlink_to(tmp_path / "outside.md")
    os.mkfifo(workspace / "pipe.md")
    put(workspace / "big.md", "x" * 2_000_000)
    put(workspace / "flood.md", "deep")
    put(workspace / "bad.md", b"\xff\xfe\x1b[31mred\x07")
    put(workspace / "AGENTS.md", "@link.md @pipe.md @big.md @bad.md @AGENTS.md " + "@flood.md " * 400)
    (workspace / ".claude").mkdir()
    (workspace / ".claude" / "rules").symlink_to(tmp_path)
    found = instructions.find(workspace, workspace, project=True)
    text = "".join(s.text for s in found.sources)
    assert "private" not in text and "\x1b" not in text and text.count("deep") < 120
    assert all("\x1b" not in n for n in found.notes)


def test_a_link_is_judged_where_it_leads(workspace: Path) -> None:
    put(workspace / ".env", "HOST=internal.example")
    (workspace / "AGENTS.md").symlink_to(".env")
    (workspace / "env.md").symlink_to(".env")
    os.link(workspace / ".env", workspace / "hard.md")
    put(workspace / "CLAUDE.local.md", "@env.md @hard.md @.env @docs/.env")
    put(workspace / ".claude" / "commands" / "x.md", "")
    (workspace / ".claude" / "commands" / "show.md").symlink_to("../../.env")
    put(workspace / ".claude" / "skills" / "env" / "notes", "")
    (workspace / ".claude" / "skills" / "env" / "SKILL.md").symlink_to("../../../.env")
    found = instructions.find(workspace, workspace, project=True)
    assert [s.text for s in found.sources] == ["@env.md @hard.md @.env @docs/.env"]
    assert found.notes[0].startswith("AGENTS.md: left out, it holds secrets")
    assert skills.load(workspace, project=True).skills == ()


def test_imports_that_multiply_end(workspace: Path) -> None:
    put(workspace / "long.md", "x\n" * 400_000)
    put(workspace / "AGENTS.md", "@long.md " * 100_000)
    found = instructions.find(workspace, workspace, project=True)
    assert any("the rest is left as text" in n for n in found.notes)
    assert sum(len(instructions_bytes(s)) for s in found.sources) <= instructions.LIMIT


def test_hidden_characters_are_left_out_and_said(workspace: Path) -> None:
    tags = "".join(chr(0xE0000 + ord(c)) for c in "run this")
    flag = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    put(workspace / "AGENTS.md", f"be\u200b kind{tags} {flag} \u0645\u06cc\u200c\u062e")
    found = instructions.find(workspace, workspace, project=True)
    assert found.sources[0].text == f"be kind {flag} \u0645\u06cc\u200c\u062e"
    assert found.notes == ("AGENTS.md: 9 hidden characters left out.",)


def test_an_import_needs_no_ending_where_such_a_file_is_there(workspace: Path) -> None:
    put(workspace / "README", "read me")
    put(workspace / "package.json", '{"name": "x"}')
    (workspace / "docs").mkdir()
    put(workspace / "AGENTS.md", "See @README, @package.json. Ask @alice about @docs and @types/node.")
    found = instructions.find(workspace, workspace, project=True)
    assert found.sources[0].text == 'See read me, {"name": "x"}. Ask @alice about @docs and @types/node.'
    assert found.notes == ()


def instructions_bytes(source: instructions.InstructionSource) -> bytes:
    return instructions.block(source).encode()


def test_secrets_are_masked(workspace: Path) -> None:
    key = "ghp_" + "a1B2" * 9
    put(workspace / "AGENTS.md", f"use {key}")
    assert key not in instructions.find(workspace, workspace, project=True).sources[0].text


def test_rules_without_paths_hold_everywhere_the_others_for_theirs(workspace: Path) -> None:
    put(workspace / ".claude" / "rules" / "all.md", "always")
    put(
        workspace / ".claude" / "rules" / "py.md", '---\npaths: ["src/**/*.py"]\ndescription: python: rules\n---\ntyped'
    )
    put(workspace / ".sakti" / "rules" / "broken.md", "---\n- paths\n---\nstill read")
    loaded = {r.name: r for r in instructions.read_project_rules(workspace, [])}
    assert loaded[".claude/rules/py.md"].paths == ("src/**/*.py",)
    assert loaded[".claude/rules/py.md"].text == "typed"
    assert loaded[".sakti/rules/broken.md"] == instructions.InstructionSource(".sakti/rules/broken.md", "still read")
    assert [s.text for s in instructions.find(workspace, workspace, project=True).sources] == [
        "still read",
        "always",
    ]


def test_links_in_a_circle_end_nothing(workspace: Path, home: Path) -> None:
    for folder in (workspace / ".claude", home / ".claude" / "rules"):
        folder.mkdir(parents=True)
    (workspace / ".claude" / "rules").symlink_to("rules")
    (home / ".claude" / "rules" / "a.md").symlink_to("a.md")
    put(workspace / "AGENTS.md", "root")
    assert trust.review(workspace).project.files
    assert [s.text for s in instructions.find(workspace, workspace, project=True).sources] == ["root"]


def test_rules_of_the_user_hold_in_each_project_and_may_be_links(workspace: Path, home: Path) -> None:
    put(workspace / "AGENTS.md", "project")
    put(workspace / ".claude" / "rules" / "b.md", "rule of the project")
    put(home / ".claude" / "CLAUDE.md", "user")
    put(home / ".claude" / "rules" / "all.md", "rule of the user")
    put(home / "dotfiles" / "py.md", "---\npaths: '*.py'\n---\ntyped")
    (home / ".claude" / "rules" / "py.md").symlink_to(home / "dotfiles" / "py.md")
    put(home / ".ssh" / "id_ed25519", "secret")
    (home / ".claude" / "rules" / "key.md").symlink_to(home / ".ssh" / "id_ed25519")
    found = instructions.find(workspace, workspace, project=True)
    assert [s.text for s in found.sources] == ["user", "rule of the user", "project", "rule of the project"]
    assert [s.text for s in instructions.find(workspace, workspace, project=False).sources] == [
        "user",
        "rule of the user",
    ]
    (typed,) = [r for r in instructions.list_all_rules(workspace, project=False) if r.paths]
    assert typed == instructions.InstructionSource("~/.claude/rules/py.md", "typed", ("*.py",))


@pytest.mark.parametrize(
    ("paths", "patterns"),
    [
        ('["src/**/*.{ts,tsx}"]', ("src/**/*.ts", "src/**/*.tsx")),
        ("src/**/*.{ts,tsx}, {a,b}/{c,d}.py", ("src/**/*.ts", "src/**/*.tsx", "a/c.py", "a/d.py", "b/c.py", "b/d.py")),
        ("**/*.ts", ("**/*.ts",)),
        ("\n  - **/*.ts\n  - lib/", ("**/*.ts", "lib/")),
        ("'" + "{a,b}" * 9 + "'", ("{a,b}" * 9,)),
    ],
)
def test_patterns_are_read_as_people_write_them(workspace: Path, paths: str, patterns: tuple[str, ...]) -> None:
    put(workspace / ".claude" / "rules" / "front" / "end" / "x.md", f"---\npaths: {paths}\n---\nbody")
    assert [r.paths for r in instructions.read_project_rules(workspace, [])] == [patterns]


def test_imports_outside_code_are_found_as_written() -> None:
    seen: list[tuple[str, str]] = []

    def note(name: str, written: str) -> str:
        seen.append((name, written))
        return "!"

    assert (
        replace_imports("a @x.md, (@./y.md) ~~~\n~~~\n@z.md\n~~~\n@~/w.md", note) == "a !, (!) ~~~\n~~~\n@z.md\n~~~\n!"
    )
    assert [n for n, _ in seen] == ["x.md", "./y.md", "~/w.md"]
    assert InstructionReader(()).read(Path("/nonexistent.md")) is None


# --- in a thread -----------------------------------------------------------------------------------------------------


async def test_they_stand_in_every_request_once_trusted(store: Store, workspace: Path) -> None:
    put(workspace / "AGENTS.md", "Answer in rhyme.")
    run = await begin(store, workspace, ["one"])
    await run.ask("hi")
    assert system(run) == []
    trust.save(trust.review(workspace))
    run = await begin(store, workspace, ["one", "two"])
    await run.ask("hi")
    await run.ask("more")
    assert system(run, 0) == system(run, 1) == ["# Instructions from AGENTS.md\n\nAnswer in rhyme."]
    labels = [b.label for b in await run.session.views.context()]
    assert "Instructions from AGENTS.md" in labels
    assert (await store.read(search, "rhyme", Scope())).total == 0
    await run.session.current.engine.observe_now()
    assert "rhyme" not in str(run.session.current.engine.preview().blocks)


async def test_a_change_is_told_and_leaves_the_beginning_as_it_was(store: Store, workspace: Path) -> None:
    file = put(workspace / "AGENTS.md", "Answer in rhyme.")
    trust.save(trust.review(workspace))
    run = await begin(store, workspace, ["one", "two", "three"])
    await run.ask("hi")
    file.write_text("Answer in prose.")
    await run.ask("more")
    await run.ask("and more")
    first, second, third = run.provider.requests
    assert first.system[:2] == second.system[:2] == third.system[:2]
    assert second.messages[: len(first.messages)] == first.messages
    assert third.messages[: len(second.messages)] == second.messages
    assert str(second.messages).count("Answer in prose.") == str(third.messages).count("Answer in prose.") == 1
    assert (await store.read(search, "prose", Scope())).total == 0
    assert run.session.thread is not None
    again = await begin(store, workspace, ["four"], resume=run.session.thread.id)
    await again.ask("back")
    assert system(again) == system(run)


async def test_what_holds_for_a_folder_comes_with_the_first_call_that_touches_it(store: Store, workspace: Path) -> None:
    put(workspace / "AGENTS.md", "root")
    put(workspace / "src" / "AGENTS.md", "Types everywhere.")
    put(workspace / ".claude" / "rules" / "py.md", "---\npaths: 'src/**/*.py'\n---\nNo star imports.")
    put(workspace / "src" / "x.py", "print(1)\n")
    put(workspace / "notes.txt", "n\n")
    trust.save(trust.review(workspace))
    reads = [Answer(calls=(Call("read", {"path": p}),)) for p in ("notes.txt", "src/x.py", "src/x.py")]
    run = await begin(store, workspace, [*reads, "done", reads[1], "again"])
    await run.ask("look")

    def told() -> list[tuple[bool, bool]]:
        return [("Types everywhere." in shown, "No star imports." in shown) for shown in beside_results(run)]

    assert told() == [(False, False), (True, True), (False, False)]
    await run.ask("and what else?")
    await run.session.compact()
    await run.ask("look again")
    sent = str(run.provider.requests[-1].messages)
    assert (sent.count("Types everywhere."), sent.count("No star imports.")) == (1, 1)
    asked = [m for m in run.provider.requests[-1].messages if "look again" in m.text]
    assert "Types everywhere." in str(asked), "they were in messages that memory took out of the window"
    assert (await store.read(search, "everywhere", Scope())).total == 0, "neither indexed nor observed"


async def test_a_rule_of_the_user_comes_where_the_project_has_no_say(store: Store, workspace: Path, home: Path) -> None:
    put(home / ".claude" / "rules" / "py.md", "---\npaths: '*.py'\n---\nNo star imports.")
    put(workspace / "src" / "AGENTS.md", "Never trusted.")
    put(workspace / "src" / "x.py", "print(1)\n")
    run = await begin(store, workspace, [Answer(calls=(Call("read", {"path": "src/x.py"}),)), "done", "again"])
    await run.ask("look")
    (told,) = beside_results(run)
    assert "~/.claude/rules/py.md" in told and "No star imports." in told
    assert "Never trusted" not in str(run.provider.requests)
    await run.session.compact()
    await run.ask("and now?")
    assert str(run.provider.requests[-1].messages).count("No star imports.") == 1


def told_facts(run: Recorded, number: int = -1) -> str:
    """Return what the newest message of the user brings beside its text."""
    parts = [p for m in run.provider.requests[number].messages for p in m.parts if isinstance(p, ContextPart)]
    return "\n".join(parts[-1].facts.values())


async def test_a_change_is_told_once_by_file_and_so_is_its_end(store: Store, workspace: Path) -> None:
    put(workspace / "AGENTS.md", "be blue")
    put(workspace / "CLAUDE.local.md", "long and the same")
    trust.save(trust.review(workspace))
    run = await begin(store, workspace, ["1", "2", "3", "4", "5", "6"])
    await run.ask("1")
    put(workspace / "CLAUDE.local.md", "long and new")
    await run.ask("2")
    assert "long and new" in told_facts(run)
    put(workspace / "AGENTS.md", "be red")
    await run.ask("3")
    assert "be red" in told_facts(run) and "long and new" not in told_facts(run)
    await run.ask("4")
    assert "be red" not in told_facts(run)
    put(workspace / "AGENTS.md", "be blue")
    await run.ask("5")
    assert "AGENTS.md has its original text again." in told_facts(run)
    await run.ask("6")
    assert "AGENTS.md" not in told_facts(run)


def beside_results(run: Recorded, number: int = -1) -> list[str]:
    """Return what facts say beside each result, in order."""
    sent = [m for m in run.provider.requests[number].messages if m.tool_results]
    return ["\n".join(f for p in m.parts if isinstance(p, ContextPart) for f in p.facts.values()) for m in sent]


async def test_fifty_turns_begin_with_the_same_bytes_whatever_is_edited(
    store: Store, workspace: Path, home: Path
) -> None:
    def edit(number: int) -> None:
        put(home / ".claude" / "CLAUDE.md", f"user {number}")
        put(workspace / "AGENTS.md", f"root {number} @more.md")
        put(workspace / "more.md", f"import {number}")
        put(workspace / "CLAUDE.local.md", f"local {number}")
        put(workspace / ".claude" / "rules" / "all.md", f"always {number}")
        put(workspace / ".claude" / "rules" / "py.md", f"---\npaths: '*.py'\n---\nfor Python {number}")
        put(workspace / "src" / "AGENTS.md", f"source {number}")
        put(workspace / "src" / "x.py", "print(1)\n")
        for name in ("one", f"new-{number % 7}"):
            text = f"---\nname: {name}\ndescription: d {number}\n---\nbody {number}"
            put(workspace / ".sakti" / "skills" / name / "SKILL.md", text)

    edit(0)
    trust.save(trust.review(workspace))
    turns = 50
    run = await begin(store, workspace, [Answer(calls=(Call("read", {"path": "src/x.py"}),)), "done"] * turns)
    sent: list[list[Any]] = []
    for turn in range(turns):
        await run.ask(f"turn {turn}")
        edit(turn + 1)
    sent = [[(m.role, m.parts) for m in r.messages] for r in run.provider.requests]
    assert len(sent) == 2 * turns
    assert len({str((r.system, r.tools)) for r in run.provider.requests}) == 1
    assert all(later[: len(before)] == before for before, later in itertools.pairwise(sent))
    told = "\n".join(f for _, parts in sent[-1] for p in parts if isinstance(p, ContextPart) for f in p.facts.values())
    for text in ("user {}", "root {} import {}", "local {}", "always {}", "for Python {}", "source {}"):
        assert [told.count(text.format(n, n) + "\n") for n in range(2, 50)] == [1] * 48, text


async def test_what_a_result_showed_comes_once_in_a_later_process_too(store: Store, workspace: Path) -> None:
    put(workspace / "src" / "AGENTS.md", "Types everywhere.")
    put(workspace / ".claude" / "rules" / "py.md", "---\npaths: 'src/**/*.py'\n---\nNo star imports.")
    put(workspace / "src" / "x.py", "print(1)\n")
    trust.save(trust.review(workspace))
    read = Answer(calls=(Call("read", {"path": "src/x.py"}),))
    first = await begin(store, workspace, [read, "done"])
    await first.ask("look")
    assert first.session.thread is not None
    put(workspace / ".claude" / "rules" / "py.md", "---\npaths: 'src/**/*.py'\n---\nNo imports at all.")
    again = await begin(store, workspace, [read, "done", read, "done"], resume=first.session.thread.id)
    await again.ask("again")
    asked = [m for m in again.provider.requests[0].messages if m.role == "user"][-1]
    facts = "\n".join(f for p in asked.parts if isinstance(p, ContextPart) for f in p.facts.values())
    assert "No imports at all." in facts and "No star imports." not in facts
    assert "Types everywhere." not in facts
    assert [r.count("Types everywhere.") for r in beside_results(again)] == [1, 0]
    (workspace / "src" / "AGENTS.md").unlink()
    put(workspace / ".claude" / "rules" / "py.md", "---\npaths: 'src/**/*.py'\n---\nNo star imports.")
    await again.ask("and now")
    assert "src/AGENTS.md was removed" in told_facts(again, -2) and "No star imports." in told_facts(again, -2)


@pytest.mark.parametrize("pattern", ["!", "[", "{a", "///", "''", "\\\\"])
async def test_a_pattern_that_is_none_hinders_nothing(store: Store, workspace: Path, pattern: str) -> None:
    put(workspace / ".claude" / "rules" / "a.md", f'---\npaths: ["{pattern}", "*.txt"]\n---\nholds for texts')
    put(workspace / "x.txt", "text\n")
    trust.save(trust.review(workspace))
    run = await begin(store, workspace, [Answer(calls=(Call("read", {"path": "x.txt"}),)), "done"])
    await run.ask("look")
    assert [shown.count("holds for texts") for shown in beside_results(run)] == [1]


async def test_what_is_left_out_is_said_once(store: Store, workspace: Path) -> None:
    put(workspace / "AGENTS.md", "x @gone.md")
    trust.save(trust.review(workspace))
    run = await begin(store, workspace, ["one", "two"])
    await run.ask("hi")
    await run.ask("hi")
    assert [n.message for n in run.of(Notice) if n.title == "Instructions"] == [
        "AGENTS.md: @gone.md does not exist or is outside the project; left as text."
    ]
