"""Skills and commands: found in order, offered within a budget, loaded once, called with safe arguments."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sakti.agent.project import markdown, skills, trust
from sakti.agent.project.markdown import split_frontmatter
from sakti.agent.project.skills import Library, create_skill, load
from sakti.agent.reports import doctor
from sakti.agent.session.session import Options, Session
from sakti.core.config import Config
from sakti.core.config import load as load_config
from sakti.core.errors import ConfigError, SaktiError
from sakti.core.events import Notice, ToolFinished, ToolStarted
from sakti.core.tokens import Estimator, O200k
from sakti.core.types import FilePart, ModelInfo, ToolResultPart
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from tests.fakes.session import Recorded


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def skill(root: Path, name: str, description: str = "Does things.", body: str = "Do it.", **front: str) -> Path:
    lines = [f"name: {name}", f"description: {description}", *(f"{k.replace('_', '-')}: {v}" for k, v in front.items())]
    return put(root / "skills" / name / "SKILL.md", "---\n" + "\n".join(lines) + f"\n---\n{body}\n")


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


async def begin(store: Store, ws: Path, answers: Any, *, trusted: bool = True, **options: Any) -> Recorded:
    clock: Any = store.clock
    counter = Estimator()
    provider = ScriptedProvider(answers, clock=clock, count=counter.count)
    config = load_config(overrides=("memory.model=extractive",)).config
    options = {"env": {"PATH": "/usr/bin:/bin"}, **options}
    given = replace(Options(ws, config, **options), use_project_instructions=trusted)
    model = ModelInfo("demo", "scripted", context_window=200_000)
    run = Recorded(Session(given, clock=clock, counter=counter, provider=provider, model=model, store=store), provider)
    await run.session.start()
    return run


def listed(run: Recorded, number: int = -1) -> str:
    return "\n".join(b.text for b in run.provider.requests[number].system if b.kind == "skills")


def results(run: Recorded) -> list[ToolResultPart]:
    return [e.result for e in run.of(ToolFinished)]


# --- what is found ---------------------------------------------------------------------------------------------------


def test_the_projects_come_before_the_users_and_the_first_folder_name_wins(ws: Path, home: Path) -> None:
    for number, root in enumerate((home / ".claude", ws / ".claude", ws / ".agents", ws / ".sakti")):
        skill(root, "deploy", f"from {number}")
    skill(home / ".agents", "mine", "of the user")
    found = load(ws, project=True)
    assert [(s.name, s.description) for s in found.skills] == [("deploy", "from 3"), ("mine", "of the user")]
    assert [s.description for s in found.shadowed] == ["from 2", "from 1", "from 0"]
    assert [s.source for s in load(ws, project=False).skills] == [
        "~/.claude/skills/deploy/SKILL.md",
        "~/.agents/skills/mine/SKILL.md",
    ]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("---\nname: other\ndescription: d\n---\nb", "its name must be its folder's name"),
        ("---\nname: No Good\ndescription: d\n---\nb", "its name must be its folder's name"),
        ("---\ndescription: d\n---\nb", "its name must be its folder's name"),
        ("---\n- name\n---\nb", "left out, it has no description."),
        ("---\nname: x\n---\nb", "left out, it has no description."),
        ("no frontmatter", "left out, it has no description."),
    ],
)
def test_a_broken_skill_is_named_and_loaded_where_it_can_be(ws: Path, text: str, note: str) -> None:
    put(ws / ".sakti/skills/x/SKILL.md", text)
    found = load(ws, project=True)
    assert any(note in n and n.startswith(".sakti/skills/x/SKILL.md:") for n in found.notes), found.notes
    assert len(found.skills) == ("left out" not in note)


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf---\nname: x\ndescription: d: e\n---\nb",
        b"---\r\nname: x\r\ndescription: d: e\r\n---\r\nb",
        b"---\nname: x\ndescription: d: e\nargument-hint: [a] [b]\nallowed-tools: Bash(git add:*), Read\n---\nb",
    ],
)
def test_marks_line_ends_and_values_without_quotes_are_read(ws: Path, text: bytes) -> None:
    put(ws / ".claude/skills/x/SKILL.md", text)
    (found,) = load(ws, project=True).skills
    assert (found.name, found.description, found.body) == ("x", "d: e", "b")


_LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{k}: &{k} [{', '.join([f'*{b}'] * 9)}]\n" for b, k in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("key", ["name", "description", "argument-hint", "disable-model-invocation", "model"])
def test_frontmatter_that_multiplies_is_not_read(key: str) -> None:
    assert len(str(split_frontmatter(f"---\n{_LAUGHS}{key}: *i\n---\nb"))) < 10_000


def test_long_and_deep_frontmatter_is_broken() -> None:
    merged = "a: &a {x: 1}\n" + "".join(
        f"{k}: &{k} {{<<: [{', '.join([f'*{b}'] * 9)}]}}\n" for b, k in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert len(str(split_frontmatter(f"---\n{merged}\n---\nb"))) < 10_000
    assert split_frontmatter("---\n" + "k: v\n" * 9_000 + "---\nb") == (None, "b")
    assert split_frontmatter("---\nx: " + "[" * 8_000 + "\n---\nb")[1] == "b"


def test_a_hint_in_brackets_is_a_hint(ws: Path) -> None:
    put(ws / ".claude/commands/fix.md", "---\nargument-hint: [number]\n---\nFix $1")
    put(ws / ".claude/commands/git/pr.md", "---\nargument-hint: [a] [b]\n---\nGo")
    assert [(s.name, s.hint, s.kind) for s in load(ws, project=True).skills] == [
        ("fix", "[number]", "command"),
        ("git:pr", "[a] [b]", "command"),
    ]


def test_nothing_leads_out_of_the_project_and_floods_end(ws: Path, tmp_path: Path) -> None:
    skill(tmp_path / "out", "evil")
    (ws / ".claude").mkdir()
    (ws / ".claude/skills").symlink_to(tmp_path / "out/skills")
    put(ws / ".sakti/skills/a/b/c/d/e/deep/SKILL.md", "---\nname: deep\ndescription: d\n---\n")
    (ws / ".agents/skills/a").mkdir(parents=True)
    (ws / ".agents/skills/a/SKILL.md").symlink_to(tmp_path / "out/skills/evil/SKILL.md")
    for number in range(2_100):
        (ws / f".agents/skills/n{number:04}").mkdir()
    found = load(ws, project=True)
    assert found.skills == ()
    assert any("cannot be read" in n for n in found.notes)


def test_user_skills_may_be_links(ws: Path, home: Path, tmp_path: Path) -> None:
    skill(tmp_path / "dev", "mine")
    (home / ".claude/skills").mkdir(parents=True)
    (home / ".claude/skills/mine").symlink_to(tmp_path / "dev/skills/mine")
    assert [s.name for s in load(ws, project=False).skills] == ["mine"]


@given(st.text(alphabet="-: \n'\"[]{}|>abc#&*!%@`", max_size=80))
def test_frontmatter_never_fails(text: str) -> None:
    table, _body = split_frontmatter(f"---\n{text}\n---\nbody")
    assert table is None or isinstance(table, dict)


# --- the catalogue ---------------------------------------------------------------------------------------------------


def test_thirty_skills_take_at_most_3000_tokens_and_hold_no_body(ws: Path) -> None:
    for number in range(30):
        skill(
            ws / ".claude", f"skill-number-{number:02}", "Extract, transform and check documents. " * 25, "SECRET BODY"
        )
    text = skills.block(load(ws, project=True), O200k(), 200_000)
    assert 0 < O200k().count(text) <= 3_000
    assert text.count("\n- skill-number-") == 30 and "SECRET BODY" not in text


def test_what_is_beyond_the_share_of_the_window_is_counted_and_found_by_words(ws: Path) -> None:
    for number in range(40):
        skill(ws / ".claude", f"skill-{number:02}", f"Handles topic{number} with care. " * 6)
    found = load(ws, project=True)
    text = skills.block(found, O200k(), 32_000)
    assert O200k().count(text) < 900 and "more: call `skill`" in text
    assert [s.name for s in skills.find_similar(found, "topic39 please")] == ["skill-39"]
    assert skills.find_similar(Library(), "x") == []


# --- arguments -------------------------------------------------------------------------------------------------------


async def fill(body: str, argument: str) -> tuple[str, list[str]]:
    ran: list[str] = []

    async def shell(command: str) -> str:
        ran.append(command)
        return f"<{command}>"

    return await markdown.fill_template(body, argument, shell), ran


@pytest.mark.parametrize(
    ("body", "argument", "text"),
    [
        ("fix $ARGUMENTS", "12 now", "fix 12 now"),
        ("$1 and $2, $3.", "'a b' c", "a b and c, ."),
        ("$ARGUMENTS[0] $ARGUMENTS[1]", "x y", "x y"),
        ("costs $100 and $0", "", "costs $100 and $0"),
        ("no place", "12", "no place\n\nARGUMENTS: 12"),
        ("no place", "", "no place"),
        ("$1", "$2 !`id`", "$2"),
        ("$ARGUMENTS", "!`id` $1 @x", "!`id` $1 @x"),
        ("$1", "it's", "it's"),
        ("b: !`git log -1`", "", "b: <git log -1>"),
    ],
)
async def test_arguments_are_put_in_once(body: str, argument: str, text: str) -> None:
    assert (await fill(body, argument))[0] == text


@pytest.mark.parametrize(
    ("command", "argument", "ran"),
    [
        ("gh pr view $1", "12", "gh pr view 12"),
        ("gh pr view $1", "'1; id'", "gh pr view '1; id'"),
        ("gh pr view $ARGUMENTS", "1 '$(id)'", "gh pr view 1 '$(id)'"),
        ('echo "$1"', "plain", 'echo "plain"'),
        ('echo "$1"', "'$(id)'", None),
        ("echo '$1'", '"a\'b"', None),
        ("cat <<X $1", "'a b'", None),
    ],
)
async def test_an_argument_of_a_command_never_leaves_its_word(command: str, argument: str, ran: str | None) -> None:
    if ran is None:
        with pytest.raises(SaktiError, match="a shell would act on it"):
            await fill(f"!`{command}`", argument)
    else:
        assert (await fill(f"!`{command}`", argument))[1] == [ran]


@given(st.text(max_size=40))
def test_whatever_is_given_is_one_word_of_the_shell(argument: str) -> None:
    import shlex

    try:
        _, ran = asyncio.run(fill("!`show $ARGUMENTS`", argument))
    except SaktiError:
        return
    assert shlex.split(ran[0])[1:] == markdown.split_arguments(argument)


# --- in a session ----------------------------------------------------------------------------------------------------


async def test_the_model_loads_a_skill_once_a_thread_and_keeps_it(store: Store, ws: Path) -> None:
    skill(ws / ".claude", "pdf", "Read PDF files.", "Use the tool XYZZY.")
    put(ws / ".claude/skills/pdf/ref/forms.md", "forms")
    load_it = Answer("I load it.", calls=(Call("skill", {"name": "pdf"}),))
    run = await begin(store, ws, [load_it, "ok", load_it, "ok", "fine", "fine again"])
    await run.ask("read my pdf")
    assert "- pdf: Read PDF files." in listed(run) and "XYZZY" not in listed(run)
    first = results(run)[0].content
    assert "Use the tool XYZZY." in first and "- ref/forms.md" in first and str(ws / ".claude/skills/pdf") in first
    await run.ask("once more")
    assert "already loaded" in results(run)[1].content
    await run.session.compact()
    await run.ask("and now?")
    assert "XYZZY" in str(run.provider.requests[-1].messages[-1].parts), "its text comes back when memory took it away"
    await run.ask("still?")
    told = [m for m in run.provider.requests[-1].messages if "XYZZY" in str(m.parts)]
    assert len(told) == 1, "once, not with each turn"


async def test_an_unknown_name_is_answered_with_what_is_near(store: Store, ws: Path) -> None:
    skill(ws / ".claude", "pdf-forms", "Fill PDF forms.")
    run = await begin(store, ws, [Answer("", calls=(Call("skill", {"name": "fill forms"}),)), "ok"])
    await run.ask("fill it")
    assert "- pdf-forms: Fill PDF forms." in results(run)[0].content and results(run)[0].is_error


async def test_without_skills_nothing_is_offered(store: Store, ws: Path) -> None:
    run = await begin(store, ws, ["ok"])
    await run.ask("hello")
    assert listed(run) == "" and "skill" not in {t.name for t in run.provider.requests[0].tools}


async def test_an_untrusted_projects_skills_are_not_there(store: Store, ws: Path) -> None:
    skill(ws / ".claude", "pdf", "Read PDF files.")
    put(ws / ".claude/commands/fix.md", "Fix it")
    run = await begin(store, ws, ["ok"], trusted=False)
    assert run.session.typed_skills() == {}
    await run.ask("hello $pdf")
    assert "pdf" not in listed(run) and run.provider.requests[0].messages[0].text == "hello $pdf"


async def test_what_the_user_alone_may_call_is_not_offered(store: Store, ws: Path) -> None:
    skill(ws / ".claude", "release", "Release it.", "Tag it.", disable_model_invocation="true")
    skill(ws / ".claude", "style", "House style.", "Be brief.", user_invocable="false")
    run = await begin(store, ws, ["ok"])
    await run.ask("/release now")
    assert "release" not in listed(run) and "- style" in listed(run)
    assert set(run.session.typed_skills()) == {"release"}
    (file,) = [p for p in run.provider.requests[0].messages[0].parts if isinstance(p, FilePart)]
    assert file.path == ".claude/skills/release/SKILL.md" and "Tag it.\n\nARGUMENTS: now" in file.text


async def test_several_skills_are_named_in_a_prompt(store: Store, ws: Path) -> None:
    skill(ws / ".claude", "one", body="First.")
    skill(ws / ".claude", "two", body="Second.")
    run = await begin(store, ws, ["ok", "ok"])
    await run.ask("use $one, then $two; it costs $HOME or $three")
    message = run.provider.requests[0].messages[0]
    assert [p.path for p in message.parts if isinstance(p, FilePart)] == [
        ".claude/skills/one/SKILL.md",
        ".claude/skills/two/SKILL.md",
    ]
    assert message.text == "use $one, then $two; it costs $HOME or $three"


async def test_a_command_runs_what_it_names_after_the_usual_questions(store: Store, ws: Path) -> None:
    put(ws / "notes.txt", "the note")
    put(ws / ".claude/commands/look.md", "Notes: !`cat notes.txt`. Look at $1 and @notes.txt")
    put(ws / ".claude/commands/bad.md", "!`curl http://x.example`")
    run = await begin(store, ws, ["ok"], interactive=False)
    await run.ask("/look 'the $2'")
    message = run.provider.requests[0].messages[0]
    files = [p for p in message.parts if isinstance(p, FilePart)]
    assert message.text == "/look 'the $2'"
    assert "Notes: the note" in files[0].text and "Look at the $2" in files[0].text
    assert files[1] == FilePart("notes.txt", "the note")
    assert [e.call.name for e in run.of(ToolStarted)] == ["bash"]
    with pytest.raises(SaktiError, match=r"/bad runs `curl .*denied.*nothing was sent"):
        await run.session.submit("/bad")
    assert len(run.provider.requests) == 1


async def test_a_projects_text_names_files_of_the_workspace_and_an_output_none(
    store: Store, ws: Path, tmp_path: Path
) -> None:
    put(ws / "src.txt", "in the workspace")
    put(ws / "said.txt", "see @src.txt")
    put(tmp_path / "private.txt", "of the user")
    put(ws / ".claude/commands/look.md", f"@src.txt @{tmp_path}/private.txt @../private.txt @$1")
    put(ws / ".claude/commands/run.md", "!`cat said.txt`")
    run = await begin(store, ws, ["ok"] * 3)

    def files() -> list[str]:
        return [p.text for p in run.provider.requests[-1].messages[-1].parts if isinstance(p, FilePart)][1:]

    await run.ask("/look none.txt")
    assert files() == ["in the workspace"]
    await run.ask(f"/look {tmp_path}/private.txt")
    assert files() == ["in the workspace", "of the user"]
    await run.ask("/run")
    assert files() == []


async def test_missing_arguments_are_said_with_the_hint(store: Store, ws: Path) -> None:
    put(ws / ".claude/commands/fix.md", "---\nargument-hint: [issue] [priority]\n---\nFix $1 with $2.")
    run = await begin(store, ws, ["ok"] * 2)
    await run.ask("/fix 12 high")
    assert not run.of(Notice)
    await run.ask("/fix 12")
    assert [n.message for n in run.of(Notice)] == ["Arguments are missing: /fix [issue] [priority]"]


async def test_a_file_takes_no_name_of_sakti_in_a_run_either(store: Store, ws: Path) -> None:
    put(ws / ".claude/commands/compact.md", "evil")
    run = await begin(store, ws, ["ok"], interactive=False, own_commands=lambda: {"compact"})
    with pytest.raises(ConfigError, match="a built-in command"):
        await run.session.submit("/compact")
    assert run.provider.requests == []


async def test_an_unknown_command_of_a_program_is_not_sent(store: Store, ws: Path) -> None:
    run = await begin(store, ws, ["ok"], interactive=False)
    with pytest.raises(ConfigError, match="/fxi is not a skill or command here"):
        await run.session.submit("/fxi 12")
    await run.ask("/usr/bin/env is what?")
    assert len(run.provider.requests) == 1


async def test_init_never_writes_over_an_agents_file(store: Store, ws: Path) -> None:
    run = await begin(store, ws, ["ok"])
    await run.ask("/init")
    assert "Write `AGENTS.md` in the root" in str(run.provider.requests[0].messages[0].parts)
    put(ws / "AGENTS.md", "mine")
    with pytest.raises(SaktiError, match="AGENTS.md already exists"):
        await run.session.submit("/init")


async def test_the_prompt_stays_when_skills_change_and_the_change_is_told(store: Store, ws: Path) -> None:
    skill(ws / ".claude", "one", "The first.")
    run = await begin(store, ws, ["ok"] * 3)
    await run.ask("hello")
    skill(ws / ".claude", "two", "The second.")
    await run.ask("and now?")
    assert run.provider.requests[0].system == run.provider.requests[1].system
    assert "- two: The second." in str(run.provider.requests[1].messages[-1].parts)
    await run.ask("again")
    assert "- two: The second." not in str(run.provider.requests[2].messages[-1].parts)


async def test_a_model_that_cannot_be_had_is_said_and_the_usual_one_answers(store: Store, ws: Path) -> None:
    put(ws / ".claude/commands/fix.md", "---\nmodel: claude-haiku-5-5\n---\nFix it")
    run = await begin(store, ws, ["ok"])
    await run.ask("/fix")
    (notice,) = [n for n in run.of(Notice) if n.title == "Model"]
    assert "ANTHROPIC_API_KEY" in notice.message and "scripted/demo answers" in notice.message


# --- trust, and new ones ---------------------------------------------------------------------------------------------


def test_scripts_and_commands_that_run_are_trusted_as_they_were(ws: Path, home: Path) -> None:
    path = skill(ws / ".claude", "pdf")
    script = put(ws / ".claude/skills/pdf/run.sh", "echo 1")
    trust.save(trust.review(ws))
    assert trust.review(ws).state == "trusted"
    path.write_text(path.read_text() + "More words.")
    assert trust.review(ws).state == "trusted", "a text can only say something"
    skill(ws / ".claude", "second")
    assert [c.name for c in trust.review(ws).changes] == [".claude/skills/second/SKILL.md"], "a new one asks"
    trust.save(trust.review(ws))
    script.write_text("echo 2")
    assert trust.review(ws).state == "changed" and "+echo 2" in trust.review(ws).diff
    trust.save(trust.review(ws))
    put(ws / ".claude/commands/x.md", "!`id`")
    assert trust.review(ws).state == "changed"


def test_no_more_of_a_project_is_used_than_trust_has_looked_at(ws: Path, home: Path) -> None:
    for number in range(510):
        put(ws / f".claude/commands/c{number:03}.md", "!`id`")
    put(home / ".claude/commands/mine.md", "of the user")
    found = load(ws, project=True)
    looked = {f.name for f in trust.review(ws).project.files}
    assert {s.source for s in found.skills} - looked == {"~/.claude/commands/mine.md"}
    assert len(looked) == 500 and sum("a project may have at most" in n for n in found.notes) == 1


def test_rules_in_folders_below_are_asked_about(ws: Path) -> None:
    put(ws / ".claude/rules/front/end/x.md", "be kind")
    assert [f.name for f in trust.review(ws).project.files] == [".claude/rules/front/end/x.md"]


def test_a_new_skill_is_a_sound_one_and_never_written_over(ws: Path) -> None:
    path = create_skill(ws, "release-notes", user=False)
    assert path == ws / ".sakti/skills/release-notes/SKILL.md"
    found = load(ws, project=True)
    assert [s.name for s in found.skills] == ["release-notes"] and found.notes == ()
    with pytest.raises(ConfigError, match="already exists"):
        create_skill(ws, "release-notes", user=False)
    for bad in ("", "A", "a_b", "-a", "a--b", "x" * 65, "../x"):
        with pytest.raises(ConfigError):
            create_skill(ws, bad, user=False)


async def test_doctor_counts_what_cannot_be_typed(ws: Path, home: Path) -> None:
    skill(ws / ".sakti" / "skills", "search")
    trust.save(trust.review(ws))

    async def line(*own: str) -> str:
        found = await doctor.examine(home / "x.db", {"PATH": "/usr/bin:/bin"}, ws, Config(), own_commands=own)
        return next(x.text for x in found if x.name == "skills")

    assert await line() == "✓ skills: 1 skill or command"
    assert (await line("search")).startswith("! skills: 1 skill or command, 1 problem: `sakti skills list`")
