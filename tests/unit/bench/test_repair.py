"""`python -m tests.bench repair`: the repairs, who solves them and who does not, the log, what a shell sees."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent import workspace
from sakti.agent.sandbox.boundary import Level
from sakti.core.errors import ConfigError
from sakti.core.types import Request, ToolResultPart
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from tests.bench.repair import catalog, copies, judging
from tests.bench.repair.catalog import Repair
from tests.bench.repair.play import Contestant, Limits, play
from tests.bench.repair.results import Log, Result, summary
from tests.bench.repair.run import run
from tests.fakes import repairing, shell
from tests.fakes.sandbox import FakeSandbox

REPAIRS = catalog.all_repairs()
EASY = catalog.chosen(["py-page-end"])[0]
each = pytest.mark.parametrize("repair", REPAIRS, ids=[r.name for r in REPAIRS])
FIRST_OF_LANGUAGE = list({r.language: r for r in reversed(REPAIRS)}.values())
each_language = pytest.mark.parametrize("repair", FIRST_OF_LANGUAGE, ids=[r.name for r in FIRST_OF_LANGUAGE])


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the system: none of a developer's shims."""
    monkeypatch.setenv("PATH", repairing.PATH)


def must_run(repair: Repair) -> None:
    missing = catalog.tool_chain(repair, repair.workspace)[1]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}")


def tool_results(who: Contestant) -> list[ToolResultPart]:
    """What the tools said, as the model was told last."""
    assert isinstance(who.provider, ScriptedProvider)
    return [r for m in who.provider.requests[-1].messages for r in m.tool_results]


# --- the repairs ----------------------------------------------------------------------------------------


def test_there_are_twenty_in_five_languages() -> None:
    assert len(REPAIRS) == 20
    assert {r.language for r in REPAIRS} == set(catalog.TOOL_CHAINS)
    assert {r.level for r in REPAIRS} == {1, 2, 3}
    assert len({r.kind for r in REPAIRS}) == 20


@each
def test_a_repair_is_complete(repair: Repair) -> None:
    files = [p.relative_to(repair.workspace) for p in catalog.files(repair.workspace)]
    sources = [p for p in files if any(p.is_relative_to(s) for s in repair.sources)]
    assert len([p for p in sources if (repair.workspace / p).stat().st_size]) >= 3
    assert [p for p in files if "test" in str(p)], "the workspace shows tests of its own"
    assert Path("README.md") in files
    assert len(repair.issue.split()) > 30
    shown = b"".join((repair.workspace / p).read_bytes() for p in files)
    for change in repair.solution:
        assert (repair.workspace / change.file).read_text("utf-8").count(change.old) == 1
        assert any(Path(change.file).is_relative_to(s) for s in repair.sources)
        assert change.new.encode() not in shown or change.new == ""


# --- who solves them ------------------------------------------------------------------------------------


@each
async def test_the_solver_solves(repair: Repair) -> None:
    must_run(repair)
    who = repairing.solver(repair)
    result = await play(repair, who, Limits())
    assert (result.outcome, result.reason, result.status) == ("solved", "", "answered")
    assert (result.passed, result.tests, result.steps) == (repair.tests, repair.tests, 4)
    assert (result.input_tokens, result.output_tokens, result.cost_usd) == (4000, 40, pytest.approx(0.004))
    results = tool_results(who)
    assert {r.name for r in results} == {"read", "edit", "bash"}
    assert not [r.content for r in results if r.is_error]


@each
async def test_the_idler_does_not(repair: Repair) -> None:
    must_run(repair)
    result = await play(repair, repairing.idler(), Limits())
    assert result.outcome == "unsolved"
    assert 0 < result.passed < result.tests == repair.tests
    assert "hidden tests fail" in result.reason


@each_language
async def test_who_tampers_with_tests_and_programs_does_not(repair: Repair) -> None:
    must_run(repair)
    who = repairing.tamperer()
    result = await play(repair, who, Limits())
    assert result.outcome == "unsolved"
    assert result.passed < result.tests
    assert [r.is_error for r in tool_results(who)] == [False]


@each_language
async def test_who_ends_the_tests_early_does_not(repair: Repair) -> None:
    must_run(repair)
    who = repairing.quitter(repair)
    result = await play(repair, who, Limits())
    assert result.outcome == "unsolved"
    assert result.passed < result.tests
    assert [r.is_error for r in tool_results(who)] == [False]


async def test_a_run_that_was_not_answered_is_judged_all_the_same() -> None:
    """The limit of steps ends a turn in the middle; what stands then counts."""
    who = repairing.solver(EASY)
    result = await play(EASY, who, Limits(steps=3))
    assert (result.outcome, result.status, result.steps) == ("solved", "limit", 3)


async def test_the_limit_of_time_ends_a_repair() -> None:
    result = await play(EASY, repairing.contestant([repairing.bash("sleep 60"), "Late."]), Limits(seconds=0.5))
    assert (result.outcome, result.status, result.steps) == ("unsolved", "time", 1)
    assert result.seconds < 50


async def test_a_model_that_fails_is_no_repair_that_failed() -> None:
    who = repairing.contestant([Answer(error="auth", message="The key is not valid.")])
    result = await play(EASY, who, Limits())
    assert (result.outcome, result.reason, result.steps) == ("error", "The key is not valid.", 0)


async def test_the_answers_are_not_to_be_read() -> None:
    """The repairs stand on the same disk: the tools refuse them as they refuse sakti's own data."""
    file = str(EASY.folder / "repair.toml")
    who = repairing.contestant([Answer(calls=(Call("read", {"path": file}),)), repairing.bash(f"cat {file}"), "No."])
    await play(EASY, who, Limits())
    told = tool_results(who)
    assert [r.is_error for r in told] == [True, True]
    assert not any("solution" in r.content for r in told)


async def test_who_changes_the_hidden_tests_of_the_installation_has_not_solved(tmp_path: Path) -> None:
    folder = tmp_path / EASY.name
    shutil.copytree(EASY.folder, folder)
    who = repairing.contestant([repairing.bash(f"echo > '{folder}/hidden/test.py'"), "Done."])
    result = await play(replace(EASY, folder=folder), who, Limits())
    assert (result.outcome, result.passed) == ("unsolved", 0)
    assert "own files" in result.reason
    assert [r.is_error for r in tool_results(who)] == [False]


async def test_a_long_output_can_be_read_on() -> None:
    counted = repairing.bash("seq 1 20000")

    def play_on(request: Request) -> Answer:
        told = [r for m in request.messages for r in m.tool_results]
        if not told:
            return counted
        if len(told) == 1:
            found = re.search(r"is in (\S+\.txt)", told[0].content)
            assert found is not None
            return Answer(calls=(Call("read", {"path": found[1], "offset": 15_000, "limit": 1}),))
        return Answer("Read.")

    who = repairing.contestant(play_on)
    await play(EASY, who, Limits())
    assert tool_results(who)[1].content.startswith("15000\t15000")


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
async def test_the_copy_is_a_repository_with_one_commit_and_nothing_of_the_user(home: Path) -> None:
    (home / ".gitconfig").write_text("[core]\n\thooksPath = /nowhere\n[commit]\n\tgpgsign = true\n")
    who = repairing.contestant([repairing.bash("git status --short && git log --format=%an:%s"), "Seen."])
    await play(EASY, who, Limits())
    (told,) = tool_results(who)
    assert told.content == "bench@localhost:The workspace as it came"


async def test_commands_have_no_keys_and_no_network_where_no_sandbox_holds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workspace, "make_sandbox", lambda made: FakeSandbox(made.root, Level("unsandboxed")))
    who = repairing.contestant([repairing.bash("env"), "Seen."])
    options = replace(who.options, env={**who.options.env, "OPENAI_API_KEY": "sk-not-for-commands"})
    await play(EASY, replace(who, options=options), Limits())
    (told,) = tool_results(who)
    assert "https_proxy=http://127.0.0.1:9" in told.content
    assert "sk-not-for-commands" not in told.content


async def test_a_missing_tool_chain_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    repair = next(r for r in REPAIRS if r.language == "java")
    who = repairing.solver(repair)
    result = await play(repair, who, Limits())
    assert (result.outcome, result.reason) == ("not run", "no javac and no java on PATH")
    assert isinstance(who.provider, ScriptedProvider)
    assert not who.provider.requests
    total = summary("x", [result], 1)
    assert (total["run"], total["solved"], total["not_run"]) == (0, 0, 1)


# --- judging --------------------------------------------------------------------------------------------


def test_a_program_of_the_workspace_is_never_taken(tmp_path: Path) -> None:
    repair = next(r for r in REPAIRS if r.language == "javascript")
    fake = tmp_path / "bin" / "node"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    assert catalog.tool_chain(repair, tmp_path, f"{fake.parent}:.") == ({}, ["node"])


def test_only_sources_are_taken_from_a_run(tmp_path: Path) -> None:
    """New files among the sources are, and those that are gone stay away; links are not followed."""
    work = copies.fresh(EASY, tmp_path / "work")
    (tmp_path / "secret").write_text("x")
    (work / "catalog" / "store.py").unlink()
    (work / "catalog" / "more.py").write_text("x = 1\n")
    (work / "catalog" / "link.py").symlink_to(tmp_path / "secret")
    (work / "catalog" / "folder").symlink_to(tmp_path)
    (work / "conftest.py").write_text("x = 1\n")
    (work / "tests" / "test_views.py").write_text("x = 1\n")
    judged = copies.to_judge(EASY, work, tmp_path / "judged") / "workspace"
    assert sorted(p.name for p in (judged / "catalog").iterdir()) == [
        "__init__.py",
        "more.py",
        "pages.py",
        "views.py",
    ]
    assert not (judged / "conftest.py").exists()
    original = EASY.workspace / "tests" / "test_views.py"
    assert (judged / "tests" / "test_views.py").read_text() == original.read_text()


def test_a_link_in_the_place_of_the_sources_is_not_followed(tmp_path: Path) -> None:
    work = copies.fresh(EASY, tmp_path / "work")
    (work / "catalog").rename(tmp_path / "elsewhere")
    (work / "catalog").symlink_to(tmp_path / "elsewhere")
    judged = copies.to_judge(EASY, work, tmp_path / "judged") / "workspace"
    assert not (judged / "catalog").exists()


async def test_a_hidden_test_that_hangs_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    command = ["/bin/sh", "-c", "exec 3> held; sleep 300 & echo started; wait"]
    ended = await judging.run_program(command, tmp_path, {"PATH": repairing.PATH}, "", limit_s=0.5)
    assert (ended.code, ended.output) == (None, "started\n")
    assert select.select([held], [], [], 20)[0], "somebody still holds the pipe"
    assert os.read(held, 1) == b""
    os.close(held)


async def test_endless_output_is_bounded(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"]
    ended = await judging.run_program(command, tmp_path, {"PATH": repairing.PATH}, "")
    assert ended.code == 0
    assert len(ended.output) == judging.OUTPUT_BYTES
    assert ended.output.endswith("end\n")


# --- many, and the log ----------------------------------------------------------------------------------


def solved(name: str) -> Result:
    return Result(name, "python", "solved", passed=7, tests=7, steps=4, cost_usd=0.5)


async def test_what_the_log_has_is_not_run_again(tmp_path: Path) -> None:
    repairs = catalog.chosen(["py-page-end", "py-retry-none"])
    log = Log(tmp_path / "log.jsonl", "scripted/demo")
    log.add(EASY, solved(EASY.name))
    who = repairing.solver(repairs[1])
    told: list[Result] = []
    found = await run(repairs, who, Limits(), log, tell=told.append)
    assert [(r.name, r.outcome, r.logged) for r in found] == [
        ("py-page-end", "solved", True),
        ("py-retry-none", "solved", False),
    ]
    assert told == found
    assert [r.logged for r in await run(repairs, repairing.contestant([]), Limits(), log)] == [True, True]


async def test_again_runs_what_the_log_has_and_the_newest_result_holds(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", "scripted/demo")
    log.add(EASY, solved(EASY.name))
    (result,) = await run([EASY], repairing.idler(), Limits(), log, again=True)
    assert result.outcome == "unsolved"
    assert log.read([EASY])[EASY.name].outcome == "unsolved"


async def test_a_model_that_never_answers_ends_the_run_and_is_asked_again_the_next_time(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", "scripted/demo")
    repairs = catalog.chosen(["py-page-end", "py-retry-none"])
    who = repairing.contestant([Answer(error="auth", message="The key is not valid.")])
    found = await run(repairs, who, Limits(), log)
    assert [r.outcome for r in found] == ["error"]
    assert log.read(repairs) == {}
    total = summary("x", found, len(repairs))
    assert (total["errors"], total["not_reached"], total["run"]) == (1, 1, 1)


def test_a_log_is_private_and_survives_a_torn_line(tmp_path: Path) -> None:
    log = Log(tmp_path / "folder" / "log.jsonl", "a/b")
    log.add(EASY, solved(EASY.name))
    assert log.path.stat().st_mode & 0o777 == 0o600
    with log.path.open("a") as f:
        f.write('{"model": "a/b", "na')
    log.add(EASY, replace(solved(EASY.name), steps=9))
    assert log.read([EASY])[EASY.name].steps == 9
    assert Log(log.path, "another/model").read([EASY]) == {}
    row = json.loads(log.path.read_text().splitlines()[-1])
    row["result"] = {"name": EASY.name, "verdict": "of another version"}
    log.path.write_text(json.dumps(row))
    assert log.read([EASY]) == {}


def test_a_result_of_a_repair_that_has_changed_is_not_kept(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", "a/b")
    log.add(EASY, solved(EASY.name))
    other = replace(EASY, folder=next(r for r in REPAIRS if r != EASY).folder)
    assert log.read([other]) == {}


def test_a_log_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    log = Log(tmp_path, "a/b")
    with pytest.raises(ConfigError, match="cannot be read"):
        log.read([EASY])
    with pytest.raises(ConfigError, match="cannot be written"):
        log.add(EASY, solved(EASY.name))


# --- the command ----------------------------------------------------------------------------------------


def bench(*arguments: str) -> shell.Ended:
    return shell.bench("repair", *arguments)


def script(folder: Path, *answers: dict[str, object]) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps(answers))
    return f"scripted/{path}"


def solving_script(folder: Path) -> str:
    change = EASY.solution[0]
    edits = [{"old": change.old, "new": change.new}]
    return script(
        folder,
        {"calls": [{"name": "read", "arguments": {"path": change.file}}], "usage": {"cost_usd": 0.25}},
        {"calls": [{"name": "edit", "arguments": {"path": change.file, "edits": edits}}]},
        {"text": "Done."},
    )


def test_a_shell_sees_one_object_and_a_table_elsewhere(tmp_path: Path) -> None:
    model = solving_script(tmp_path)
    first = bench("--model", model, "--only", EASY.name, "--json")
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert (found["solved"], found["run"], found["not_run"], found["cost_usd"]) == (1, 1, 0, 0.25)
    (row,) = found["repairs"]
    assert (row["name"], row["outcome"], row["steps"], row["logged"]) == (EASY.name, "solved", 3, False)
    assert EASY.name in first.stderr
    again = bench("--model", model, "--only", EASY.name)
    assert again.exit_code == 0
    assert "from the log" in again.stdout
    assert "1 of 1 solved" in again.stdout


def test_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = script(tmp_path, {"text": "Fine."})
    assert bench("--model", idle, "--only", EASY.name).exit_code == 1
    assert bench("--only", "nothing").exit_code == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = bench("--model", idle, "--only", "js-lru-recent", "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["repairs"][0]["reason"] == "no node on PATH"


def test_the_list() -> None:
    assert [r["name"] for r in json.loads(bench("--list", "--json").stdout)["repairs"]] == [r.name for r in REPAIRS]
    assert "A price in the wrong currency" in bench("--list").stdout
    assert len(json.loads(bench("--list", "--only", EASY.name, "--json").stdout)["repairs"]) == 1
