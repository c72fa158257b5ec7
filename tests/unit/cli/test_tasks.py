"""`sakti tasks`: the objects of the tools, and real exit codes."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sakti.cli.start import run_cli


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    (tmp_path / "w").mkdir()
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))

    def call(*args: str, code: int | None = 0, stdin: str | None = None) -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((stdin or "").encode())))
        ended = 0
        try:
            run_cli(["tasks", *args])
        except SystemExit as e:
            ended = e.code
        out, err = capsys.readouterr()
        assert code is None or ended == code, out + err
        return json.loads(out) if "--json" in args else out + err

    return call


def test_a_task_from_its_making_to_its_end(run: Any) -> None:
    first = run("create", "first", "-p", "1", "-l", "one", "--json")["task"]
    second = run("create", "second", "--depends-on", first["handle"], "--json")["task"]
    assert [t["title"] for t in run("ready", "--json")["tasks"]] == ["first"]
    assert [t["handle"] for t in run("show", second["handle"], "--json")["blockingTasks"]] == [first["handle"]]
    assert [s["title"] for s in run("explain", second["handle"], "--json")["chain"]] == ["second", "first"]
    assert run("ready", "--claim", "--as", "ann", "--json")["task"]["claimedBy"] == "shell:ann"
    refused = run("claim", first["handle"], "--as", "bob", "--json", code=1)
    assert (refused["success"], refused["code"]) == (False, "already_claimed")
    run("release", first["handle"], "--as", "bob", code=1)
    run("release", first["handle"], "--as", "ann")
    done = run("close", first["handle"], "-s", "moved the xylophone", "--json")
    assert [t["title"] for t in done["unblocked"]] == ["second"]
    assert [t["title"] for t in run("search", "xylophone", "--json")["tasks"]] == ["first"]
    assert run("undo", "--json")["undone"][0]["action"] == "close"
    assert run("list", "--label", "one", "--json")["total"] == 1
    run("label", first["handle"], "two")
    run("label", first["handle"], "one", "--remove")
    assert run("list", "--json")["tasks"][0]["labels"] == ["two"]
    assert "Blocked  1" in run("board")
    run("dep", second["handle"], first["handle"], "--remove")
    run("dep", second["handle"], first["handle"], "--remove", code=1)
    run("delete", second["handle"])
    run("show", second["handle"], code=1)
    run("restore", second["handle"])
    assert "second" in run("list")


def test_wrong_usage_is_two_and_a_refusal_one(run: Any) -> None:
    run("create", "x", "-p", "9", code=2)
    run("create", "x", "-t", "wish", code=2)
    run("list", "--status", "stuck", code=2)
    run("update", "t", code=2)
    run("undo", code=1)
    run("import", "nowhere.jsonl", code=2)
    refused = run("import", "-", code=2, stdin='{"id": "a", "title": "a"}\n{"id": "b", "title": "b\\u0000"}\n')
    assert "Line 2: the task.title has a NUL character" in refused and "Nothing was imported." in refused
    assert run("list", "--json")["total"] == 0
    run("link", "nothing", "nothing", code=1)


def test_an_epic_is_no_part_of_a_task_and_what_is_advised_instead_works(run: Any) -> None:
    task = run("create", "a task", "--json")["task"]["handle"]
    refused = run("create", "an epic", "-t", "epic", "--parent", task, "--json", code=1)
    assert refused["code"] == "bad_parent" and run("list", "--json")["total"] == 1
    epic = run("create", "an epic", "-t", "epic", "--json")["task"]["handle"]
    (advised,) = re.findall(r"`(dep [^`]*)`", refused["error"])
    run(*advised.replace("EPIC", epic).split())
    assert "waits for its child" in run("list")


KINDS = st.sampled_from(["blocks", "parent-child"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("dep"), st.integers(0, 4), st.integers(0, 4), KINDS),
        st.tuples(st.just("type"), st.integers(0, 4), st.sampled_from(["epic", "task"])),
        st.tuples(st.just("close"), st.integers(0, 4)),
        st.tuples(st.just("claim"), st.integers(0, 4)),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_whatever_is_advised_can_be_done(run: Any, steps: list[tuple[Any, ...]]) -> None:
    made = [
        run("create", f"task {n}", *(["-t", "epic"] if n < 2 else []), "--json")["task"]["handle"] for n in range(5)
    ]
    for name, which, *rest in steps:
        lines = {
            "dep": lambda w, r: ["dep", w, made[r[0]] if isinstance(r[0], int) else w, "--type", r[-1]],
            "type": lambda w, r: ["update", w, "-t", r[0]],
            "close": lambda w, _: ["close", w, "-s", "done"],
            "claim": lambda w, _: ["claim", w],
        }
        done = run(*lines[name](made[which], rest), "--json", code=None)
        for advised in re.findall(r"`([^`]*)`", done.get("error", "")):
            run(*advised.split())


def test_the_line_may_be_written_in_any_order(run: Any) -> None:
    assert "Usage: sakti tasks [OPTIONS] COMMAND" in run(code=2)
    assert " ready " in run("--help")
    assert "Did you mean 'ready'?" in run("raedy", code=2)
    assert "--priority" in run("create", "--help")
    assert "'x' is not a whole number" in run("ready", "--limit", "x", code=2)
    assert "No such option: --lim" in run("ready", "--lim", "3", code=2)
    task = run("create", "--", "--title of dashes")
    assert "--title of dashes" in task
    handle = task.split()[1]
    assert run("label", "--json", handle, "b", "--as", "ann", "a")["task"]["labels"] == ["a", "b"]
    assert [u["action"] for u in run("undo", "--json", "2")["undone"]] == ["update", "create"]


def test_every_change_answers_with_the_whole_task(run: Any) -> None:
    """Labels too, whatever was changed."""
    other = run("create", "other", "--json")["task"]["handle"]
    task = run("create", "one", "-l", "b", "-l", "a", "--json")["task"]["handle"]
    for change in (
        ("claim", task),
        ("release", task),
        ("update", task, "-p", "1"),
        ("dep", task, other),
        ("close", task, "-s", "done", "--force"),
        ("reopen", task),
        ("delete", task),
        ("restore", task),
    ):
        assert run(*change, "--json")["task"]["labels"] == ["a", "b"], change


def test_a_question_works_without_a_database_and_says_what_is_wrong_with_it(run: Any, tmp_path: Path) -> None:
    assert run("ready", "--json") == {"success": True, "tasks": [], "readyCount": 0, "blockedCount": 0}
    (tmp_path / "x.db").write_bytes(b"no database at all" * 100)
    assert "is damaged" in run("ready", code=1)


def test_a_deleted_task_is_named_with_how_to_restore_it(run: Any) -> None:
    first = run("create", "first", "--json")["task"]["handle"]
    task = run("create", "second", "--depends-on", first, "--json")["task"]["handle"]
    deleted = run("delete", first).splitlines()
    assert deleted == [
        f"{first} 'first' was deleted. `sakti tasks restore {first}` restores it.",
        f"unblocked: {task}",
    ]


def test_an_export_comes_back_in_another_workspace(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("create", "first", "--json")["task"]
    run("create", "second", "--depends-on", first["id"])
    assert run("export", str(tmp_path / "out.jsonl")).endswith(f" written to {tmp_path / 'out.jsonl'}.\n")
    assert (tmp_path / "out.jsonl").read_text() == run("export")
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "other.db"))
    done = run("import", str(tmp_path / "out.jsonl"), "--json")
    assert (done["tasks"], done["dependencies"], done["known"]) == (2, 1, 0)
    assert run("ready", "--json")["blockedCount"] == 1
    assert run("import", str(tmp_path / "out.jsonl"), "--json")["known"] == 2


def test_tasks_of_beads_come_in_by_their_own_command(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def bring(*args: str, code: int = 0) -> Any:
        ended = 0
        try:
            run_cli(["import", "beads", *args])
        except SystemExit as e:
            ended = e.code
        out, err = capsys.readouterr()
        assert ended == code, out + err
        return json.loads(out) if "--json" in args else out + err

    assert bring(str(tmp_path), "--json", code=2)["code"] == "no_input"
    folder = tmp_path / ".beads"
    folder.mkdir()
    lines = [
        {"id": "bd-1", "title": "one"},
        {"id": "bd-2", "title": "two", "dependencies": [{"issue_id": "bd-2", "depends_on_id": "bd-1"}]},
        {"id": "bd-3"},
    ]
    (folder / "issues.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    dry = bring(str(tmp_path), "--dry-run", "--json")
    assert (dry["success"], dry["dryRun"], dry["imported"], dry["skipped"][0]["id"]) == (True, True, 2, "bd-3")
    assert run("list", "--json")["total"] == 0
    told = bring(str(folder))
    assert "2 imported, 0 updated" in told and "1 skipped; 1 dependency, 0 cycles refused" in told
    assert [t["handle"] for t in run("ready", "--json")["tasks"]] == ["bd-1"]
    assert "0 imported, 0 updated, 2 unchanged" in bring(str(folder / "issues.jsonl"))
    (folder / "issues.jsonl").write_text("{")
    assert bring(str(folder), "--json", code=2)["code"] == "unreadable"


def test_what_somebody_else_has_claimed_is_changed_only_by_force(run: Any) -> None:
    task = run("create", "one", "--json")["task"]["handle"]
    other = run("create", "other", "--json")["task"]["handle"]
    assert run("claim", task, "--as", "ann", "--json")["task"]["claimedBy"] == "shell:ann"
    for change in (
        ("close", task, "-s", "done"),
        ("update", task, "-p", "0"),
        ("dep", task, other),
        ("label", task, "x"),
        ("delete", task),
        ("release", task),
    ):
        refused = run(*change, "--as", "bob", "--json", code=1)
        assert refused["code"] == "already_claimed", change
        assert "claimed by ann" in refused["error"]
        assert "Use force to" in refused["error"]
    assert "ann" in run("list", "--status", "in_progress")
    run("update", task, "-p", "0", "--as", "ann")
    assert run("close", task, "-s", "done", "--as", "bob", "--force", "--json")["task"]["status"] == "closed"


def test_containers_and_blocked_claims_are_in_sight(run: Any) -> None:
    epic = run("create", "the epic", "-t", "epic", "--json")["task"]["handle"]
    child = run("create", "the child", "--parent", epic, "--json")["task"]["handle"]
    blocker = run("create", "the blocker", "--json")["task"]["handle"]
    run("claim", child, "--as", "ann")
    run("dep", child, blocker, "--as", "ann")
    board = run("board")
    assert "Waiting for children  1" in board
    assert f"{epic}  P2 the epic  waits for its child" in board
    assert f"{child}  P2 the child  ← {blocker}; shell:ann" in board
    assert run("board", "--json")["container_count"] == 1
    listed = run("list")
    assert "(waits for its child)" in listed
    assert f"← {blocker}" in listed
    assert [t["title"] for t in run("list", "--status", "ready", "--json")["tasks"]] == ["the blocker"]
    assert run("list", "--status", "blocked", "--json")["total"] == 0  # it is in progress
    shown = run("show", child)
    assert "blocked by" in shown
    assert "the blocker" in shown


def test_a_ring_is_refused_told_and_left_out_of_an_import(run: Any, tmp_path: Path) -> None:
    import sqlite3

    epic = run("create", "e", "-t", "epic", "--json")["task"]
    x = run("create", "x", "--parent", epic["handle"], "--json")["task"]
    y = run("create", "y", "--json")["task"]
    run("dep", x["handle"], y["handle"])
    refused = run("dep", y["handle"], epic["handle"], code=1)
    assert f"{y['handle']} → {epic['handle']} → {x['handle']} → {y['handle']}" in refused
    assert "cannot depend on itself" in run("dep", y["handle"], y["handle"], code=1)
    alone = run("create", "alone", "-t", "epic", "--json")["task"]["handle"]
    assert "type parent-child" in run("dep", alone, y["handle"], "--type", "parent-child", code=1)
    run("delete", alone)
    with sqlite3.connect(tmp_path / "x.db") as db:  # as an older version let it in
        db.execute("INSERT INTO task_dependencies VALUES (?, ?, 'blocks', 1)", (y["id"], epic["id"]))
        db.execute("UPDATE tasks SET own_blockers = 1, held = 1 WHERE id = ?", (y["id"],))
    db.close()
    told = run("explain", x["handle"], code=1)
    assert "nothing here can start" in told
    assert run("explain", x["handle"], "--json", code=1)["code"] == "deadlock"
    lines = (
        {"id": "a", "title": "a", "dependencies": [{"on": "b"}]},
        {"id": "b", "title": "b", "dependencies": [{"on": "a"}]},
    )
    file = tmp_path / "ring.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    done = run("import", str(file), "--json")
    assert (done["tasks"], done["dependencies"], len(done["leftOut"])) == (2, 1, 1)
    run("undo")
    assert run("list", "--json")["total"] == 3
    file.write_text(file.read_text().replace('"a"', '"c"').replace('"b"', '"d"'))
    told = run("import", str(file))
    assert "skipped: " in told and "2 tasks and 1 dependency; 0 were already there" in told


def test_metadata_and_assignee_are_set_and_shown(run: Any) -> None:
    task = run("create", "one", "--meta", "pr=7", "--meta", "branch=a=b", "--assignee", "ann", "--json")["task"]
    assert (task["metadata"], task["assignee"]) == ({"pr": "7", "branch": "a=b"}, "ann")
    assert run("update", task["handle"], "--meta", "pr=", "--json")["task"]["metadata"] == {"branch": "a=b"}
    assert "branch: a=b" in run("show", task["handle"])
    assert "is not KEY=VALUE" in run("create", "x", "--meta", "pr", code=2)
    assert "Write the words to search for" in run("search", " ", code=1)


def test_nothing_that_is_printed_or_exported_holds_a_secret(run: Any) -> None:
    key = "AKIA" + "ABCDEFGH12345678"
    made = run("create", f"rotate {key}", "-d", f"password = {key}", "-l", "x", "--json")["task"]
    run("create", "after", "--depends-on", made["handle"])
    told = [made, *(run(c, "--json") for c in ("ready", "list", "board")), run("show", made["handle"], "--json")]
    told += [run(c) for c in ("ready", "list", "board", "export")] + [
        run("search", "rotate"),
        run("tree", made["handle"]),
    ]
    told += [run("update", made["handle"], "-p", "1"), run("explain", run("list", "--json")["tasks"][1]["handle"])]
    assert key not in json.dumps(told) and json.dumps(told).count("[secret:aws:") > 9


def test_what_is_no_file_of_tasks_is_refused_in_a_sentence(run: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "deep").write_text('{"id": "a", "title": ' + "[" * 100_000)
    (tmp_path / "half").write_text('{"id": "a", "title": "\\ud800"}')
    (tmp_path / "latin").write_bytes(b"\xe9")
    for name, words in {
        "pipe": "is not a regular file", "deep": "nested too deep", "half": "half of a surrogate pair",
        "latin": "it is not UTF-8", "none": "No such file",
    }.items():  # fmt: skip
        assert words in run("import", str(tmp_path / name), code=2)
    assert run("list", "--json")["tasks"] == []


def test_an_import_reads_a_file_with_a_byte_order_mark(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "marked.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"id": "a", "title": "first"}\n')
    assert run("import", str(file), "--json")["tasks"] == 1
    assert run("import", "-", "--json", stdin=file.read_text("utf-8"))["known"] == 1


def test_an_import_says_which_tasks_are_not_on_this_board(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, made = (run("create", title, "--json")["task"]["handle"] for title in ("deleted", "undone"))
    file = tmp_path / "tasks.jsonl"
    file.write_text(run("export"))
    run("undo")
    run("delete", gone)
    newer = [json.dumps(json.loads(line) | {"updated_at": 1 << 50}) for line in file.read_text().splitlines()]
    for text in (file.read_text(), "\n".join(newer)):
        answer = run("import", "-", stdin=text)
        assert all(f"skipped: {h}: deleted here; `tasks restore {h}`" in answer for h in (made, gone))
        assert "0 were already there" in answer
    run("restore", gone)
    assert run("import", str(file), "--json")["known"] == 1
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    answer = run("import", str(file))
    assert "skipped: 2 tasks that belong to another workspace of this database" in answer
    assert "0 were already there" in answer and run("list", "--json")["total"] == 0
