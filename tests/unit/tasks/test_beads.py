"""What `bd` kept comes in whole, once, and what changed there since."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sakti.core.errors import TaskError
from sakti.store.database import Store
from sakti.tasks import beads, queries, service
from sakti.tasks.service import Actor


def issue(name: str, **values: Any) -> dict[str, Any]:
    times = {"created_at": f"2025-10-14T12:00:0{len(name)}.5-07:00", "updated_at": "2025-10-15T00:00:00Z"}
    return (
        {"id": name, "title": f"issue {name}", "status": "open", "priority": 1, "issue_type": "task"} | times | values
    )


def edge(name: str, on: str, kind: str = "blocks") -> dict[str, str]:
    return {"issue_id": name, "depends_on_id": on, "type": kind, "created_at": "2025-10-14T12:00:00Z"}


ISSUES = [
    issue("bd-1", issue_type="epic", labels=["b", "a"], external_ref="gh-9"),
    issue(
        "bd-2",
        description="text",
        design="a drawing",
        acceptance_criteria="it works",
        notes="soon",
        assignee="ann",
        status="in_progress",
        dependencies=[edge("bd-2", "bd-1", "parent-child"), edge("bd-2", "bd-3", "discovered-from")],
        comments=[{"id": 1, "author": "bob", "text": "the marimba", "created_at": "2025-10-14T12:00:00Z"}],
    ),
    issue("bd-3", status="closed", closed_at="2025-10-16T00:00:00Z", close_reason="Duplicate of bd-2"),
    issue("bd-4", status="blocked", dependencies=[edge("bd-4", "bd-2"), edge("bd-4", "bd-99"), edge("bd-4", "bd-4")]),
    issue("bd-5", issue_type="molecule", dependencies=[edge("bd-5", "bd-1", "tracks")]),
    issue("bd-6", status="tombstone"),
    issue("bd-7", title=""),
]


@pytest.fixture
def actor(store: Store) -> Actor:
    return Actor("/w", "s1", store.clock.now())


async def bring(store: Store, actor: Actor, issues: list[dict[str, Any]]) -> beads.Report:
    return await store.write(beads.import_issues, actor, store.ids, issues)


async def test_every_field_has_a_place(store: Store, actor: Actor) -> None:
    report = await bring(store, actor, ISSUES)
    assert (report.imported, report.updated, report.dependencies) == (5, 0, 4)
    assert dict(report.skipped) == {"bd-6": "it was deleted in beads", "bd-7": "A task needs a title."}
    assert report.cycles == [["bd-4", "bd-4"]]
    notes = [f"{name} {why}" for name, why in report.notes]
    assert sum("bd-99" in n for n in notes) == 1
    assert any("'blocked' became open" in n for n in notes)
    assert any("'molecule' became task" in n for n in notes)
    assert any("tracks edge to bd-1 became related" in n for n in notes)
    board = await store.read(queries.load_board, "/w", 0)
    assert [t.handle for t in board.ready] == ["bd-5"]
    assert [(t.handle, t.blocked_by) for t in board.blocked] == [("bd-4", ("bd-2",))]
    assert [(t.handle, t.assignee) for t in board.in_progress] == [("bd-2", "ann")]
    two, three = [await store.read(service.find, "/w", n) for n in ("bd-2", "bd-3")]
    for text in ("text", "## Design\n\na drawing", "it works", "soon", "bob, 2025-10-14: the marimba"):
        assert text in two.description
    assert (three.close_reason, three.summary, three.closed_at) == (
        "duplicate", "Duplicate of bd-2", 1_760_572_800_000,
    )  # fmt: skip
    assert (await store.read(service.find, "/w", "bd-1")).labels == ("a", "b")
    assert two.created_at == 1_760_468_404_500
    assert [t["handle"] for t in (await store.read(queries.search, "/w", "marimba", 3))["tasks"]] == ["bd-2"]


async def test_again_it_changes_only_what_changed_there(store: Store, actor: Actor) -> None:
    await bring(store, actor, ISSUES)
    again = await bring(store, actor, ISSUES)
    assert (again.imported, again.updated, again.unchanged, again.dependencies) == (0, 0, 5, 0)
    await store.write(service.update, actor, "bd-2", {"title": "ours", "priority": 4})
    await store.write(service.delete, actor, "bd-5")
    changed = [
        *ISSUES[:1],
        ISSUES[1] | {"title": "theirs", "status": "closed", "dependencies": [edge("bd-2", "bd-3", "discovered-from")]},
        *ISSUES[2:],
        issue("bd-8", dependencies=[edge("bd-8", "bd-4")]),
    ]
    third = await bring(store, actor, changed)
    assert (third.imported, third.updated, third.unchanged, third.dependencies) == (1, 1, 3, 1)
    assert "bd-5" in dict(third.skipped)
    two = await store.read(service.find, "/w", "bd-2")
    assert (two.title, two.priority, two.status) == ("theirs", 4, "closed")  # the priority was changed here alone
    board = await store.read(queries.load_board, "/w", 0)
    assert [t.handle for t in board.ready] == ["bd-1", "bd-4"]  # nothing waits for bd-2, and it is no child any more
    assert [t.handle for t in board.blocked] == ["bd-8"]


async def test_a_cycle_is_left_out_and_told_and_the_rest_comes_in(store: Store, actor: Actor) -> None:
    ring = [
        issue("a", dependencies=[edge("a", "b")]),
        issue("b", dependencies=[edge("b", "c", "parent-child")]),
        issue("c", dependencies=[edge("c", "a"), edge("c", "a", "related")]),
    ]
    report = await bring(store, actor, ring)
    assert report.cycles == [["c", "a", "b", "c"]]
    assert (report.imported, report.dependencies) == (3, 3)


async def test_a_closed_epic_with_an_open_part_comes_in_open(store: Store, actor: Actor) -> None:
    part = issue("b", dependencies=[edge("b", "a", "parent-child")])
    report = await bring(store, actor, [issue("a", issue_type="epic", status="closed", close_reason="done"), part])
    assert ("a", "it became open: it has open children") in report.notes
    assert (await store.read(service.find, "/w", "a")).status == "open"


async def test_a_dry_run_tells_and_does_nothing(store: Store, actor: Actor) -> None:
    with pytest.raises(beads.DryRun) as e:
        await store.write(beads.import_issues, actor, store.ids, ISSUES, True)
    assert e.value.report.imported == 5
    assert (await store.read(queries.list_tasks, "/w", status="all"))["total"] == 0


def test_it_is_found_in_its_folder_and_what_is_broken_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ".beads"
    folder.mkdir()
    for path in (tmp_path, folder, tmp_path / "nowhere"):
        with pytest.raises(TaskError) as e:
            beads.read(path)
        assert e.value.code == "no_input"
    file = folder / "issues.jsonl"
    file.write_text("".join(f"{json.dumps(i)}\n" for i in ISSUES) + '\n{"_type": "memory", "id": "m"}\n')
    assert beads.read(tmp_path) == beads.read(folder) == beads.read(file) == ISSUES
    file.write_text(f"{json.dumps(ISSUES[0])}\n<<<<<<< HEAD\n")
    with pytest.raises(TaskError, match="Line 2 is not JSON.*Nothing was imported"):
        beads.read(folder)


def test_its_database_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "beads.db"
    (tmp_path / "no.db").write_text("no database")
    with sqlite3.connect(path) as db:
        db.executescript(
            """
            CREATE TABLE issues (id TEXT, title TEXT, description TEXT, status TEXT, priority INTEGER, issue_type TEXT,
              created_at DATETIME);
            CREATE TABLE dependencies (issue_id TEXT, depends_on_id TEXT, type TEXT, created_at DATETIME);
            CREATE TABLE labels (issue_id TEXT, label TEXT);
            CREATE TABLE comments (id INTEGER PRIMARY KEY, issue_id TEXT, author TEXT, text TEXT, created_at DATETIME);
            INSERT INTO issues VALUES ('bd-1', 'one', '', 'open', 0, 'bug', '2025-10-14 12:00:00.25-07:00'),
              ('bd-2', 'two', NULL, 'open', 2, 'task', '2025-10-14T12:00:00Z');
            INSERT INTO dependencies VALUES ('bd-1', 'bd-2', 'blocks', ''), ('gone', 'bd-2', 'blocks', '');
            INSERT INTO labels VALUES ('bd-1', 'x');
            INSERT INTO comments VALUES (1, 'bd-1', 'ann', 'hm', '2025-10-14T12:00:00Z');
            """
        )
    db.close()
    one, two = beads.read(path)
    assert (one["labels"], one["dependencies"][0]["depends_on_id"], one["comments"][0]["text"]) == (["x"], "bd-2", "hm")
    assert "description" not in two
    with pytest.raises(TaskError, match="bd export"):
        beads.read(tmp_path / "no.db")


async def test_what_is_gone_from_the_source_is_named_and_kept(store: Store, actor: Actor) -> None:
    await bring(store, actor, ISSUES)
    report = await bring(store, actor, ISSUES[1:2])
    assert report.gone == ["bd-1", "bd-3", "bd-4", "bd-5"]
    assert (await store.read(queries.list_tasks, "/w", status="all"))["total"] == 5
    await store.write(service.delete, actor, "bd-5")
    assert (await bring(store, actor, ISSUES[1:2])).gone == ["bd-1", "bd-3", "bd-4"]


def test_a_line_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    """Unicode has other ends of lines; within a text they are nothing but characters."""
    texts = [f"before{sign}after" for sign in ("\x85", "\u2028", "\u2029", "\x0c", "\x1c")]
    issues = [issue(f"bd-{n}", description=text) for n, text in enumerate(texts)]
    file = tmp_path / "issues.jsonl"
    file.write_bytes("\r\n".join(json.dumps(i, ensure_ascii=False) for i in issues).encode())
    assert [i["description"] for i in beads.read(file)] == texts


async def test_an_epic_that_is_part_of_a_task_there_is_told(store: Store, actor: Actor) -> None:
    wrong = [
        issue("a"),
        issue("e", issue_type="epic", dependencies=[edge("e", "a", "parent-child")]),
        issue("x", dependencies=[edge("x", "e", "parent-child"), edge("x", "y")]),
        issue("y", dependencies=[edge("y", "e")]),
    ]
    report = await bring(store, actor, wrong)
    assert report.dependencies == 2
    assert report.cycles == [["y", "e", "x", "y"]]
    assert any(name == "e" and "an epic can only be part" in why for name, why in report.notes)
