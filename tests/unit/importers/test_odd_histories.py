"""Forks, children and damaged files of other programs: every text comes in once, and in its place."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from sakti import importers
from sakti.core.tokens import Estimator
from sakti.core.types import ImagePart, Message, TextPart
from sakti.importers.entries import Findings
from sakti.importers.inputs import read_lines
from sakti.importers.service import ImportOptions, Service, SourceReport
from sakti.importers.vibe import Vibe
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.maintenance import checks
from sakti.store.search import search
from sakti.store.threads import messages
from tests.fakes.histories import ClaudeSession, write_codex, write_pi


async def run(store: Store, program: str, root: Path, **more: Any) -> SourceReport:
    options = ImportOptions(workspace=root.parent, home=root.parent, **more)
    return await Service(store, options, Estimator()).import_program(importers.make_importer(program), root)


async def texts(store: Store) -> list[list[str]]:
    """The texts of each thread, in the order of their making; a child's begin with its parent's place."""

    def read(db: Database) -> list[list[str]]:
        rows = db.execute_sql(
            "SELECT t.id, (SELECT count(*) FROM threads p WHERE p.pk < o.pk) FROM threads t"
            " LEFT JOIN threads o ON o.id = t.parent_id ORDER BY t.pk"
        ).fetchall()
        parents = dict(db.execute_sql("SELECT id, parent_id IS NOT NULL FROM threads").fetchall())
        return [
            [
                *([f"child of {place}"] if parents[i] else []),
                *(m.text for m in messages.list_after(db, i, -1) if m.text),
            ]
            for i, place in rows
        ]

    return await store.read(read)


def say(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


async def test_forks_of_pi_repeat_nothing_if_their_folder_moved_or_a_parent_is_gone(
    store: Store, tmp_path: Path
) -> None:
    root, moved = tmp_path / "pi", tmp_path / "moved"
    begin = [("1", "", "user", "begin"), ("2", "1", "assistant", say("begun"))]
    first = write_pi(root, "aaaa", [*begin, ("3", "2", "user", "on")])
    second = write_pi(root, "bbbb", [*begin, ("4", "2", "user", "fork")], before=str(first))
    write_pi(root, "cccc", [*begin, ("4", "2", "user", "fork"), ("5", "4", "user", "again")], before=str(second))
    shutil.move(root, moved)
    expected = [["begin", "begun", "on"], ["begin", "begun", "fork"], ["begin", "begun", "fork", "again"]]
    report = await run(store, "pi", moved)
    assert (report.new, report.messages) == (5, 10) and await texts(store) == expected
    (moved / first.relative_to(root)).unlink()
    write_pi(moved, "dddd", [*begin, ("6", "2", "user", "late")], before=str(first))
    assert (await run(store, "pi", moved)).new == 1
    assert await texts(store) == [*expected, ["begin", "begun", "late"]]


async def test_forks_and_children_of_codex_are_joined_to_their_sessions(store: Store, tmp_path: Path) -> None:
    root, a, b, c, d = tmp_path / "codex", "a" * 36, "b" * 36, "c" * 36, "d" * 36
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": a}}}
    write_codex(root, a, ["one", "two"])
    base = {"history_base": {"thread_id": a, "end_ordinal_exclusive": 6}}
    fork = write_codex(root, b, ["three"], first=6, forked_from_id=a, **base)
    write_codex(root, c, ["one", "two", "four"], forked_from_id=a)  # as older versions wrote it
    write_codex(root, d, ["look"], source=spawn)
    notice = {"type": "input_text", "text": "<subagent_notification>zebra</subagent_notification>"}
    harness = {"content_item_metadata": [{"provenance": {"type": "harness"}}]}
    lines = [
        {"type": "message", "role": "user", "content": [notice]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "zebra"}],
         "internal_chat_message_metadata_passthrough": harness},
    ]  # fmt: skip
    with fork.open("a") as file:
        for number, item in enumerate(lines, 90):
            file.write(json.dumps({"ordinal": number, "type": "response_item", "payload": item}) + "\n")
    report = await run(store, "codex", root)
    assert (report.threads, report.child_threads, report.new, report.problems) == (3, 1, 15, [])
    assert await texts(store) == [
        ["one", "one: done", "two", "two: done"],
        ["one", "one: done", "three", "three: done"],
        ["one", "one: done", "two", "two: done", "four", "four: done"],
        ["child of 0", "look", "look: done"],
    ]
    assert (await run(store, "codex", root)).new == 0


async def test_children_and_images_of_vibe_come_in(store: Store, tmp_path: Path) -> None:
    def write(name: str, items: list[dict[str, Any]], **meta: Any) -> None:
        folder = tmp_path / "vibe" / "unified" / name
        (folder / "journal").mkdir(parents=True)
        (folder / "CURRENT").write_text(json.dumps({"session_id": name, "store_format": "3"}))
        (folder / "meta.json").write_text(json.dumps(meta))
        delta = [{"op": "append_entry", "entry": {"createdAt": 1_795_000_000_000, **item}} for item in items]
        line = {"sequence": 1, "type": "projection_delta", "payload": {"delta": delta}}
        (folder / "journal" / "1.jsonl").write_text(json.dumps(line) + "\n")

    image = {"type": "image", "mimeType": "image/png", "data": "aGk="}
    prompt = {"id": "p", "type": "message", "role": "user", "content": [*say("look"), image]}
    write("a", [prompt], title="Look")
    write("b", [{**prompt, "id": "q", "content": say("as a child")}], parent_session_id="a")
    report = await run(store, "vibe", tmp_path / "vibe")
    assert (report.threads, report.child_threads) == (1, 1)
    assert await texts(store) == [["look"], ["child of 0", "as a child"]]
    (source, *_) = Vibe().find(tmp_path / "vibe", Findings())
    (entry,) = Vibe().entries(source, 0, Findings())
    assert entry.parts == (TextPart("look"), ImagePart("image/png", "aGk=", ""))


async def test_damaged_lines_and_odd_files_do_not_change_the_order_or_end_an_import(
    store: Store, tmp_path: Path
) -> None:
    root = tmp_path / "claude"
    session = ClaudeSession(root, "a")
    session.prompt("first")
    for depth in (300, 100_000):
        deep = "[" * depth + "1" + "]" * depth
        session.write(f'{{"type": "user", "uuid": "d{depth}", "message": {{"content": {deep}}}, "note": "giraffe"}}')
        session.parent = f"d{depth}"  # the next line hangs on one that cannot be read
        session.prompt(f"after {depth}", timestamp="0001-01-01")
    folder = session.path.parent
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / os.fsdecode(b"bad\xff.jsonl")).write_text(session.path.read_text())
    report = await run(store, "claude-code", root)
    assert await texts(store) == [["first", "after 300", "after 100000"]]
    whys = {p.why for p in report.problems}
    assert {"the line is not a JSON object", "its name is not UTF-8", "Too many levels of symbolic links"} <= whys
    assert (await store.search(search.search, "giraffe", search.Scope(None), limit=5)).hits
    pipe = tmp_path / "pipe.db"
    os.mkfifo(pipe)
    assert (await run(store, "mastra", pipe)).messages == 0


def test_a_line_that_grows_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"b": ')
    findings = Findings()
    reading = read_lines(path, 0, findings)
    assert (next(reading).value, next(reading).is_cut) == ({"a": 1}, True)
    with path.open("a") as file:
        file.write('2}\n{"c": 3}\n')
    assert list(reading) == [] and findings.read_to == 9
    assert [line.value for line in read_lines(path, findings.read_to, findings)] == [{"b": 2}, {"c": 3}]


async def test_a_torn_line_in_the_middle_of_a_thread_leaves_no_gap(store: Store, tmp_path: Path) -> None:
    session = ClaudeSession(tmp_path / "claude", "a")
    session.turn("stock")
    with session.path.open("a") as file:
        file.write('{"type": "user", "uuid": "t", "parentUuid": "a-00004", "message": {"content": "torn')
    await run(store, "claude-code", tmp_path / "claude")

    def go_on(db: Database) -> None:
        i, resource = db.execute_sql("SELECT id, resource_id FROM threads").fetchone()
        messages.append(db, Message("own", i, resource, "user", (TextPart("mine"),), 1_900_000_000_000))

    await store.write(go_on)
    with session.path.open("a") as file:
        file.write(' and mended"}}\n')
    assert (await run(store, "claude-code", tmp_path / "claude")).new == 1
    own, fork = await texts(store)
    assert own == ["stock, please", "stock is done.", "mine"] and fork[-1] == "torn and mended"
    assert [f.detail for f in await store.read(checks.check) if not f.ok] == []
