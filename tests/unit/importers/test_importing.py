"""History of other programs comes in once, whole, and as what it was."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from sakti import importers
from sakti.core.clock import TimeIds
from sakti.core.tokens import Estimator
from sakti.core.types import Message, TextPart
from sakti.importers import service
from sakti.importers.service import ImportOptions, Service, SourceReport
from sakti.providers.history import make_turns
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.log import lines
from sakti.store.maintenance import checks
from sakti.store.search import search
from sakti.store.threads import messages, threads
from tests.fakes.clock import FakeClock
from tests.fakes.histories import ClaudeSession, write_codex, write_pi

LEDGER = Path(__file__).parents[4] / "shared" / "histories" / "ledger"
TABLES = ("threads", "messages", "origins", "search_docs", "tasks", "import_sources")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "history"
    folder.mkdir()
    return folder


def options(tmp_path: Path, **more: Any) -> ImportOptions:
    return ImportOptions(workspace=tmp_path, home=tmp_path, **more)


async def run(store: Store, program: str, root: Path, **more: Any) -> SourceReport:
    importing = Service(store, options(root.parent, **more), Estimator())
    return await importing.import_program(importers.make_importer(program), root)


def dump(db: Database) -> dict[str, Any]:
    """What an import made, without our ids and times."""
    rows = db.execute_sql(
        "SELECT t.title, t.resource_id, m.message_index, m.role, sakti_unpacked(m.parts), m.created_at FROM messages m"
        " JOIN threads t ON t.id = m.thread_id"
    ).fetchall()
    origins = db.execute_sql("SELECT program, entry_id, message_id IS NULL FROM origins").fetchall()
    return {"messages": sorted(map(tuple, rows)), "origins": sorted(map(tuple, origins))}


async def texts(store: Store) -> list[list[str]]:
    """The texts of each thread, in the order of their making."""

    def read(db: Database) -> list[list[str]]:
        ids = [i for (i,) in db.execute_sql("SELECT id FROM threads ORDER BY pk").fetchall()]
        return [[m.text for m in messages.list_after(db, i, -1) if m.text] for i in ids]

    return await store.read(read)


async def found(store: Store, words: str) -> list[str]:
    page = await store.search(search.search, words, search.Scope(None), limit=50)
    return [h.text for h in page.hits]


def parts_of(db: Database, program: str) -> Counter[str]:
    rows = db.execute_sql(
        "SELECT m.role, sakti_unpacked(m.parts), t.parent_id IS NOT NULL FROM messages m JOIN threads t"
        " ON t.id = m.thread_id WHERE json_extract(t.metadata, '$.origin.program') = ?",
        (program,),
    ).fetchall()
    out: Counter[str] = Counter()
    for role, parts, is_child in rows:
        out["messages"] += role in ("user", "assistant")
        for part in json.loads(parts):
            kind = part["t"]
            out["user_prompts"] += kind == "text" and role == "user" and not is_child
            out["assistant_texts"] += kind == "text" and role == "assistant"
            out["texts"] += kind == "text"
            out["tool_calls"] += kind == "call"
            out["tool_errors"] += kind == "result" and part["is_error"]
            out["thinking"] += kind == "thinking"
    out["reasoning"] = out["thinking"]
    threads_sql = "SELECT parent_id IS NOT NULL, count(*) FROM threads WHERE json_extract(metadata, '$.origin.program')"
    for is_child, count in db.execute_sql(f"{threads_sql} = ? GROUP BY 1", (program,)).fetchall():
        out["child_threads" if is_child else "threads"] = count
    sql = "SELECT count(*) FROM tasks WHERE json_extract(metadata, '$.source') = ?"
    out["todos"] = db.execute_sql(sql, (program,)).fetchone()[0]
    return out


def state(root: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(root.rglob("*")) if p.is_file()}


def count_rows(db: Database) -> dict[str, int]:
    return {t: db.execute_sql(f"SELECT count(*) + coalesce(max(rowid), 0) FROM {t}").fetchone()[0] for t in TABLES}


@pytest.mark.skipif(not LEDGER.is_dir(), reason="the histories of the real programs are not here")
async def test_the_real_histories_come_in_as_expected_and_once(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "ledger"
    shutil.copytree(LEDGER, root)
    before = state(root)
    reader = apsw.Connection(str(root / "opencode" / "opencode.db"), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN").execute("SELECT count(*) FROM part").fetchall()  # the program itself is running
    expected = json.loads((root / "expected.json").read_text())
    programs = [p for p in importers.READERS if p in expected]
    for program in programs:
        report = await run(store, program, root / program)
        counts = await store.read(parts_of, program)
        assert {k: counts[k] for k in expected[program]} == expected[program], program
        assert (report.threads, report.problems) == (expected[program]["threads"], [])
    rows, written = await store.read(count_rows), store.written
    for program in programs:
        again = await run(store, program, root / program)
        assert (again.new, again.unchanged) == (0, again.messages) != (0, 0)
    assert (await store.read(count_rows), store.written) == (rows, written)
    reader.close()
    for suffix in ("-wal", "-shm"):
        before.pop(str(root / "opencode" / f"opencode.db{suffix}"), None)
    after = state(root)
    assert {name: after[name] for name in before} == before
    for words in ("receipt numbers start at 1001", "integer cents", "Brotchen", "Brötchen", "AttributeError missing"):
        assert await found(store, words), words
    programs = await store.search(search.search, "integer cents", search.Scope(None), limit=50)
    origins = {(await store.read(threads.get, h.thread_id)).metadata["origin"]["program"] for h in programs.hits}  # pyright: ignore
    assert len(origins) >= 5


async def test_imported_threads_are_valid_for_every_model(store: Store, root: Path) -> None:
    session = ClaudeSession(root / "claude", "a")
    session.turn("stock")
    session.call("lost", "sleep 9")
    session.prompt("never mind")
    write_codex(root / "codex", "c" * 36, ["till"])
    await run(store, "claude-code", root / "claude")
    await run(store, "codex", root / "codex")

    def read(db: Database) -> list[list[Message]]:
        ids = db.execute_sql("SELECT id FROM threads").fetchall()
        return [messages.list_after(db, i, -1) for (i,) in ids]

    for thread in await store.read(read):
        sent = make_turns(thread, "anthropic", "claude")
        assert [t.role for t in sent] == ["user", "assistant"] * (len(sent) // 2) + ["user"] * (len(sent) % 2)
        calls = [p.id for m in thread for p in m.tool_calls]
        results = [getattr(p, "call_id", None) for t in sent for p in t.parts]
        assert calls and set(calls) <= set(results)


async def test_a_session_that_grows_adds_only_its_new_entries(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.turn("stock")
    await run(store, "claude-code", root)
    session.turn("till")
    report = await run(store, "claude-code", root)
    assert (report.new, report.unchanged, report.messages, report.threads) == (3, 3, 6, 1)
    (thread,) = await texts(store)
    assert thread == ["stock, please", "stock is done.", "till, please", "till is done."]


async def test_a_thread_continued_here_is_forked_when_its_source_grows(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.turn("stock")
    codex = write_codex(root, "c" * 36, ["ledger"])
    await run(store, "claude-code", root)
    await run(store, "codex", root)

    def go_on(db: Database) -> None:
        for i, resource in db.execute_sql("SELECT id, resource_id FROM threads").fetchall():
            messages.append(db, Message(f"own-{i}", i, resource, "user", (TextPart("mine"),), 1_900_000_000_000))

    await store.write(go_on)
    session.turn("till")
    session.turn("door")
    with codex.open("a") as file:
        for ordinal, text in ((90, "later"), (91, "last")):
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
            file.write(json.dumps({"ordinal": ordinal, "type": "response_item", "payload": item}) + "\n")
    for program in ("claude-code", "codex"):
        importing = Service(store, options(root.parent), Estimator())
        await importing.import_program(importers.make_importer(program), root)
        assert await service.undo(store, await store.read(service.plan_undo, importing.run)) == []
        await run(store, program, root)  # the fork comes in again
    own, ledger, fork, copy = await texts(store)
    assert own == ["stock, please", "stock is done.", "mine"] and ledger == ["ledger", "ledger: done", "mine"]
    assert fork == [*own[:2], "till, please", "till is done.", "door, please", "door is done."]
    assert copy == ["ledger", "ledger: done", "later", "last"]


async def test_the_newest_branch_is_the_thread_and_others_are_forks(store: Store, root: Path) -> None:
    text = [{"type": "text", "text": "x"}]
    write_pi(root / "pi", "s", [
        ("1", "", "user", "begin"), ("2", "1", "assistant", [{"type": "text", "text": "begun"}]),
        ("3", "2", "user", "abandoned"), ("4", "3", "assistant", text),
        ("5", "2", "user", "pursued"), ("6", "5", "assistant", text),
    ])  # fmt: skip
    report = await run(store, "pi", root / "pi")
    assert (report.threads, report.messages) == (1, 6)
    assert await texts(store) == [["begin", "begun", "pursued", "x"], ["begin", "begun", "abandoned", "x"]]


async def test_parallel_calls_and_their_results_are_no_branches(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.prompt("both")
    first = session.call("c1", "one")
    session.number -= 1  # the second line of the same answer
    message = {"role": "assistant", "id": "msg_a_2", "content": [{"type": "tool_use", "id": "c2", "name": "Bash",
               "input": {}}], "stop_reason": "tool_use"}  # fmt: skip
    session.number += 1
    second = session.add("assistant", message)
    session.parent = first
    session.result("c1", "one done")
    session.parent = second
    session.result("c2", "two done")
    session.answer("both done")
    await run(store, "claude-code", root)

    def read(db: Database) -> list[tuple[str, int, list[str]]]:
        (i,) = db.execute_sql("SELECT id FROM threads").fetchone()
        return [(m.role, len(m.tool_calls), [r.name for r in m.tool_results]) for m in messages.list_after(db, i, -1)]

    assert await store.read(read) == [
        ("user", 0, []),
        ("assistant", 2, []),
        ("tool", 0, ["Bash", "Bash"]),
        ("assistant", 0, []),
    ]


async def test_answers_of_our_own_memory_server_are_not_searched(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.prompt("which colour?")
    session.call("c1", "pelican", name="mcp__sakti__memory_search")
    session.result("c1", "[sakti · birds · 2026-01-01] The pelican is teal.")
    session.answer("teal")
    await run(store, "claude-code", root)
    assert await found(store, "pelican") == []
    assert await found(store, "teal") == ["teal"]


async def test_a_forked_session_is_a_fork_and_no_message_comes_twice(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.turn("stock")
    copied = session.path.read_text()
    session.turn("till")
    fork = ClaudeSession(root, "b", number=50)
    fork.path.write_text(copied)
    fork.parent = "a-00004"
    fork.turn("door")
    ClaudeSession(root, "c").path.write_text(copied)  # all of it is there already
    report = await run(store, "claude-code", root)
    assert report.new == 9
    first, second = await texts(store)
    assert first == ["stock, please", "stock is done.", "till, please", "till is done."]
    assert second == [*first[:2], "door, please", "door is done."]
    assert [t for t in await found(store, "stock done") if "stock is done" in t] == ["stock is done."]


async def test_words_of_the_program_are_never_the_users(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.prompt("<local-command-stdout>zebra one</local-command-stdout>")
    session.prompt("zebra two", isMeta=True)
    session.prompt("zebra three", isCompactSummary=True)
    session.prompt("mine <system-reminder>zebra four</system-reminder>")
    session.prompt("<command-name>/compact</command-name>")
    codex = write_codex(root, "c" * 36, ["<environment_context>zebra five</environment_context>", "yours"])
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "zebra six"}]}
    with codex.open("a") as file:
        file.write(json.dumps({"ordinal": 99, "type": "response_item", "payload": developer}) + "\n")
    await run(store, "claude-code", root)
    await run(store, "codex", root)

    def prompts(db: Database) -> list[str]:
        rows = db.execute_sql("SELECT sakti_text(raw_content, parts) FROM messages WHERE role = 'user'").fetchall()
        return [str(t).strip() for (t,) in rows]

    assert sorted(await store.read(prompts)) == ["mine", "yours"]


async def test_secrets_are_masked_everywhere_and_children_stand_under_their_parent(store: Store, root: Path) -> None:
    key = "AKIA" + "ABCDEFGH12345678"
    session = ClaudeSession(root, "a")
    session.prompt(f"use {key}")
    session.call("c", f"export KEY={key}")
    session.result("c", f"KEY={key}")
    session.write({"type": "novel", "content": f"raw {key}"})
    child = ClaudeSession(root, "a/subagents/agent-1")
    child.prompt(f"look at {key}", isSidechain=True)
    report = await run(store, "claude-code", root)
    assert (report.child_threads, report.raw) == (1, 1) and report.masked >= 4
    assert report.problems[0].why == "unknown type novel"
    store_bytes = b"".join(p.read_bytes() for p in sorted(store.path.parent.glob(f"{store.path.name}*")))
    assert key.encode() not in store_bytes

    def parents(db: Database) -> list[bool]:
        return [p is not None for (p,) in db.execute_sql("SELECT parent_id FROM threads ORDER BY pk").fetchall()]

    assert await store.read(parents) == [False, True]


async def test_a_killed_import_is_completed_by_the_next_one(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BATCH", 3)
    session = ClaudeSession(root, "a")
    for number in range(2):
        session.turn(f"part {number}")
    fork = ClaudeSession(root, "b", number=500)
    fork.path.write_text("".join(session.path.read_text().splitlines(keepends=True)[:4]))
    fork.parent = "a-00004"
    fork.turn("door")
    session.parent = "a-00004"  # another branch, and the newest
    session.turn("newest")
    write_codex(root, "c" * 36, ["one"])

    async def import_into(name: str, die_at: int) -> tuple[dict[str, Any], int]:
        clock = FakeClock()
        store = await Store.open(tmp_path / f"{name}.db", clock=clock, ids=TimeIds(clock), synchronous="NORMAL")
        write, calls = store.write, 0

        async def dying(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == die_at:
                raise KeyboardInterrupt
            return await write(*args, **kwargs)

        monkeypatch.setattr(store, "write", dying)
        for _ in range(2):
            try:
                for program in ("claude-code", "codex"):
                    await run(store, program, root)
            except KeyboardInterrupt:
                continue
        made = await store.read(dump)
        await store.close()
        return made, calls

    expected, points = await import_into("whole", 0)
    assert points > 8
    for point in range(1, points + 1, 3):
        assert (await import_into(f"killed-{point}", point))[0] == expected, point


async def test_undo_removes_what_a_run_added_and_keeps_what_went_on(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.turn("stock")
    tasks = root / "tasks" / "a"
    tasks.mkdir(parents=True)
    (tasks / "1.json").write_text(json.dumps({"id": "1", "subject": "Count", "blocks": ["2"]}))
    (tasks / "2.json").write_text(json.dumps({"id": "2", "subject": "Order", "status": "completed"}))
    empty = await store.read(dump)
    first = Service(store, options(root.parent), Estimator())
    await first.import_program(importers.make_importer("claude-code"), root)
    before = await store.read(dump)
    edges = "SELECT count(*) FROM task_dependencies"
    assert (await store.read(lambda db: db.execute_sql(edges).fetchone()))[0] == 1
    session.turn("till")
    second = Service(store, options(root.parent), Estimator())
    await second.import_program(importers.make_importer("claude-code"), root)
    plan = await store.read(service.plan_undo, second.run)
    assert await service.undo(store, plan) == [] and await store.read(dump) == before
    third = Service(store, options(root.parent), Estimator())
    assert (await third.import_program(importers.make_importer("claude-code"), root)).new == 3
    plan = await store.read(service.plan_undo, first.run)
    assert await service.undo(store, plan) == [] and await found(store, "stock") == []
    assert await texts(store) == [["till, please", "till is done."]], "another run added them"
    assert [f.detail for f in await store.read(checks.check) if not f.ok] == []
    assert await service.undo(store, await store.read(service.plan_undo, third.run)) == []
    assert await store.read(dump) == empty
    assert (await store.read(lambda db: db.execute_sql("SELECT count(*) FROM tasks").fetchone()))[0] == 0

    again = Service(store, options(root.parent), Estimator())
    await again.import_program(importers.make_importer("claude-code"), root)

    def go_on(db: Database) -> None:
        i, resource = db.execute_sql("SELECT id, resource_id FROM threads").fetchone()
        messages.append(db, Message("own", i, resource, "user", (TextPart("mine"),), 1_900_000_000_000))

    await store.write(go_on)
    problems = await service.undo(store, await store.read(service.plan_undo, again.run))
    assert len(problems) == 1 and "continued here" in problems[0]
    assert (await texts(store))[0][-1] == "mine"


async def test_bad_input_is_named_and_the_rest_comes_in(store: Store, root: Path, tmp_path: Path) -> None:
    session = ClaudeSession(root, "a")
    session.prompt("first")
    session.write('{"type": "user", "message": {"content": "torn giraffe')
    session.write("[1, 2]")
    session.write({"type": "hologram", "text": "strange walrus"})
    session.write({"type": "user", "uuid": "odd", "message": {"content": [{"type": "dance"}, 7, None]}})
    session.write({"type": "assistant", "uuid": "odder", "message": {"content": {"a": 1}}})
    session.answer("second")
    with session.path.open("ab") as file:
        file.write(b'{"type": "user", "uuid": "b", "message": {"content": "bytes \xff\xfe"}, "timestamp": "never"}\n')
        file.write(b'{"type": "user", "mess')
    secret = tmp_path / "elsewhere.jsonl"
    secret.write_text("{}\n")
    (session.path.parent / "link.jsonl").symlink_to(secret)
    (session.path.parent / "folder.jsonl").mkdir()
    (root / "opencode.db").write_bytes(b"SQLite format 3\0" + b"\1" * 900)
    (root / "unified" / "v").mkdir(parents=True)
    (root / "unified" / "v" / "CURRENT").write_text('{"generation": "1"}')
    report = await run(store, "claude-code", root)
    whys = [p.why for p in report.problems]
    assert {"the line is not a JSON object", "the last line is incomplete", "unknown type hologram"} <= set(whys)
    assert "it is a link out of the folder" in whys
    assert await found(store, "giraffe") and await found(store, "walrus")
    assert (await texts(store))[0][:2] == ["first", "second"]
    broken = await run(store, "opencode", root)
    assert (broken.new, len(broken.problems)) == (0, 1)
    assert (await run(store, "vibe", root)).new == 0
    with session.path.open("a") as file:
        file.write('age": {"content": "completed"}}\n')
    assert (await run(store, "claude-code", root)).new == 0  # it has no id
    assert '{"type": "user", "mess' not in await found(store, "mess")


async def test_prompts_without_a_transcript_come_in_alone(store: Store, root: Path) -> None:
    ClaudeSession(root, "s1").turn("stock")
    lines = [
        {
            "display": f"prompt {n}",
            "timestamp": 1_795_000_000_000 + n,
            "project": "/home/dev/shop",
            "sessionId": f"s{n}",
        }
        for n in range(1, 6)
    ]
    (root / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = await run(store, "claude-code", root)
    assert report.threads == 5
    assert sorted(t[0] for t in await texts(store)) == [*(f"prompt {n}" for n in range(2, 6)), "stock, please"]


async def test_a_session_that_codex_imported_itself_is_not_doubled(store: Store, root: Path) -> None:
    present = root / "original.jsonl"
    present.write_text("{}\n")
    for letter in "ab":
        write_codex(root, letter * 36, [f"from {letter}"])
    records = [
        {"source_path": str(present), "imported_thread_id": "a" * 36},
        {"source_path": str(root / "gone.jsonl"), "imported_thread_id": "b" * 36},
    ]
    (root / "external_agent_session_imports.json").write_text(json.dumps({"records": records}))
    await run(store, "codex", root)
    assert await texts(store) == [["from b", "from b: done"]]


async def test_filters_choose_whole_threads_and_a_dry_run_writes_nothing(store: Store, root: Path) -> None:
    ClaudeSession(root, "a", cwd="/home/dev/shop").turn("stock")
    ClaudeSession(root, "b", cwd="/home/dev/other").turn("till")
    dry = await run(store, "claude-code", root, dry_run=True)
    assert (dry.new, dry.threads, store.written) == (6, 2, 0)
    assert (await run(store, "claude-code", root, since=2_000_000_000_000)).new == 0
    moved = (("/home/dev/shop", "/home/dev/market"),)
    report = await run(store, "claude-code", root, here="/home/dev/market", renamed=moved)
    assert (report.new, report.threads) == (3, 1)
    assert (await run(store, "claude-code", root)).new == 3


async def test_watching_holds_back_an_unfinished_answer(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.turn("stock")
    await run(store, "claude-code", root)
    watching = Service(store, options(root.parent, hold_open=True), Estimator())
    reports: list[int] = []

    async def look() -> None:
        roots = [(importers.make_importer(program), root) for program in ("claude-code", "codex")]
        watched = await service.watch(watching, roots, lambda r: reports.append(r.sources[0].new), rounds=1)
        assert watched == ["claude-code"]

    session.prompt("till, please")
    session.call("c", "make till")
    await look()
    assert (await texts(store))[0][-1] == "till, please"
    session.result("c", "built")
    session.answer("till is done.")
    write_codex(root, "c" * 36, ["never imported"])
    await look()
    await look()
    assert await texts(store) == [["stock, please", "stock is done.", "till, please", "till is done."]]
    assert reports == [1, 2]


async def test_origins_are_shown_and_filter_and_imported_threads_wait_until_continued(store: Store, root: Path) -> None:
    session = ClaudeSession(root, "a")
    session.turn("stock")
    write_codex(root, "c" * 36, ["stock ledger"])
    await run(store, "claude-code", root)
    await run(store, "codex", root)
    hits = (await store.search(search.search, "stock", search.Scope(None), limit=20)).hits
    assert {h.origin for h in hits} == {"claude-code", "codex"}
    only = (await store.search(search.search, "stock origin:codex", search.Scope(None), limit=20)).hits
    assert only and {h.origin for h in only} == {"codex"}
    assert (await store.search(search.search, "stock origin:main", search.Scope(None), limit=20)).hits, "a word"
    workspace = "/home/dev/shop"
    listed = await store.read(threads.list_summaries, workspace, 10, "codex")
    assert [s[0].title for s in listed] == ["stock ledger"]
    assert len(await store.read(threads.list_recent, workspace)) == 2
    assert await store.read(threads.list_recent, workspace, continued=True) == []
    assert await store.read(lines.build_carry_over, workspace, "new") is None
    thread = listed[0][0]
    own = Message("own", thread.id, workspace, "user", (TextPart("mine"),), 1_900_000_000_000)
    await store.write(messages.append, own)
    assert [t.id for t in await store.read(threads.list_recent, workspace, continued=True)] == [thread.id]
    carried = await store.read(lines.build_carry_over, workspace, "new")
    assert carried is not None and carried.thread_id == thread.id
