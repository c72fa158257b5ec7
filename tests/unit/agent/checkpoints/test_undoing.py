"""Undo in a real session: the agent's edits and commands, the conversation, memory; and from the shell."""

from __future__ import annotations

import asyncio
import json

import pytest

from sakti.actions import line, undo
from sakti.actions.scope import Scope
from sakti.actions.values import Refused
from sakti.agent.checkpoints import restore, shadow, undoing
from sakti.agent.session.session import Session
from sakti.agent.threads import erasure
from sakti.core.errors import SaktiError
from sakti.core.events import Notice
from sakti.core.types import TextPart
from sakti.providers.scripted import Answer, Call
from sakti.store.maintenance import checks
from sakti.store.threads import messages
from sakti.store.threads import removal as thread_removal
from sakti.store.threads import threads as stored_threads
from tests.fakes.checkpoints import tree
from tests.fakes.session import start

AUTO = ("approval.mode=edits", 'approval.allow=["bash"]')


def said(*made: tuple[str, dict[str, object]]) -> Answer:
    return Answer(calls=tuple(Call(name, arguments) for name, arguments in made))


async def worked(store, tmp_path):
    """Two turns: the first writes a file, the second runs a command."""
    root = tmp_path / "w"
    root.mkdir()
    (root / "mine.txt").write_text("mine\n")
    here = await start(
        store,
        root,
        [
            said(("write", {"path": "one.txt", "content": "one\n"})),
            "written",
            said(("bash", {"command": "echo two > two.txt; echo more >> mine.txt; rm one.txt"})),
            "ran",
            "and on",
        ],
        overrides=AUTO,
    )
    await here.ask("write one")
    await here.ask("now run it")
    assert (root / "two.txt").exists() and not (root / "one.txt").exists(), here.events
    return here, root


async def listed(store, session) -> list[str]:
    return [t.id for t in await store.read(stored_threads.list_recent, session.workspace.resource_id)]


async def test_repeated_undos_leave_one_entry_and_a_continued_branch_is_listed_again(store, tmp_path):
    here = await start(store, tmp_path / "w", ["one", "two", "again", "third"])
    session = here.session
    await here.ask("first question")
    await here.ask("second question")
    first = session.thread.id
    for _ in range(2):
        found = undoing.make_undoing(session)
        await found.undo(await found.preview())
        store.clock.advance(5)
        await here.ask("asked again")
    assert await listed(store, session) == [session.thread.id]
    latest = session.thread.id
    [entry] = await session.views.threads()
    assert len(entry.undone) == 2 and {b.preview for b in entry.undone} == {"two", "again"}
    assert entry.undone[-1].thread.id == first
    rows = await line.run(Scope(session, lambda value: None), line.parse("/threads"))
    assert "↶ 2 undone branches" in (await rows.fallback()).text[0]
    await session.open_thread(first)
    await here.ask("on in the first")
    assert set(await listed(store, session)) == {first, latest}
    await session.close()


async def test_deleting_a_thread_deletes_what_was_undone_in_it(store, tmp_path):
    here = await start(store, tmp_path / "w", ["one", "two"])
    await here.ask("first question")
    await here.ask("second question")
    session = here.session
    found = undoing.make_undoing(session)
    await found.undo(await found.preview())
    await store.write(thread_removal.delete_thread, session.thread.id, store.clock.now())
    assert await listed(store, session) == []
    await store.write(thread_removal.restore_thread, session.thread.id)
    assert await listed(store, session) == [session.thread.id]
    await session.close()
    again = await start(store, tmp_path / "w", [], continue_last=True)
    assert again.session.thread.id == session.thread.id


def texts(found) -> list[str]:
    return [p.text for m in found for p in m.parts if isinstance(p, TextPart)]


async def test_undo_restores_files_and_conversation_and_redo_brings_all_back(store, tmp_path):
    here, root = await worked(store, tmp_path)
    session = here.session
    first, whole, after = session.thread.id, await store.read(messages.list_after, session.thread.id, -1), tree(root)
    found = undoing.make_undoing(session)
    preview = await found.preview()
    assert [t.text for t in preview.turns] == ["now run it"]
    assert [(i.action, i.path) for i in preview.plan.items] == [
        ("change", "mine.txt"), ("create", "one.txt"), ("delete", "two.txt"),
    ]  # fmt: skip
    assert "-more" in preview.diffs["mine.txt"]
    result = await found.undo(preview)
    assert result.prompt == "now run it"
    assert {k: v[1] for k, v in tree(root).items()} == {"mine.txt": b"mine\n", "one.txt": b"one\n"}
    assert session.thread.id != first
    assert session.thread.title
    assert texts(await session.views.transcript(session.thread.id)) == ["write one", "written"]
    assert await store.read(messages.list_after, first, -1) == whole
    assert await listed(store, session) == [session.thread.id]  # the undone branch is no entry of its own
    again = undoing.make_undoing(session)
    assert [t.files for t in await again.turns()] == [1]  # what was before the fork is known in it
    fork = session.thread.id
    await again.redo()
    assert session.thread.id == first
    assert await listed(store, session) == [first]
    assert tree(root) == after
    assert await store.read(messages.list_after, first, -1) == whole
    gone = await store.read(thread_removal.list_deleted, session.workspace.resource_id)
    assert [c.thread.id for c in gone] == [fork]  # nothing was said in it
    await session.workspace.indexing.wait()
    await session.close()
    assert [f for f in checks.inspect(store.path) if not f.ok] == []


async def test_all_turns_are_undone_and_an_empty_thread_is_open(store, tmp_path):
    here, root = await worked(store, tmp_path)
    first = here.session.thread.id
    found = undoing.make_undoing(here.session)
    await found.undo(await found.preview(2))
    assert here.session.current.is_new
    assert {k: v[1] for k, v in tree(root).items()} == {"mine.txt": b"mine\n"}
    await undoing.make_undoing(here.session).redo()
    assert here.session.thread.id == first
    await here.session.close()


async def test_files_alone_leave_the_conversation(store, tmp_path):
    here, root = await worked(store, tmp_path)
    first = here.session.thread.id
    found = undoing.make_undoing(here.session)
    await found.undo(await found.preview(1, "files"))
    assert here.session.thread.id == first
    assert not (root / "two.txt").exists()
    preview = await found.preview(1, "files")
    assert [t.text for t in preview.turns] == ["write one", "now run it"]
    await found.undo(preview)
    assert not (root / "one.txt").exists()
    assert (await found.preview(1, "files")).empty
    await found.redo()
    await found.redo()
    assert (root / "two.txt").exists()
    with pytest.raises(SaktiError, match="no undo"):
        await found.redo()
    await here.session.close()


async def test_conversation_alone_leaves_the_files(store, tmp_path):
    here, root = await worked(store, tmp_path)
    after = tree(root)
    found = undoing.make_undoing(here.session)
    await found.undo(await found.preview(1, "conversation"))
    assert tree(root) == after
    assert texts(await here.session.views.transcript(here.session.thread.id)) == ["write one", "written"]
    await here.ask("go on")
    fork = here.session.thread.id
    await undoing.make_undoing(here.session).redo()
    assert await store.read(thread_removal.count_contents, fork)  # kept: something was said in it
    await here.session.close()


async def test_memory_of_the_undone_turn_stays_with_its_thread(store, tmp_path):
    here, _ = await worked(store, tmp_path)
    session = here.session
    await session.compact()
    await here.ask("and then?")
    first, log = session.thread.id, session.current.engine.status().observations
    found = undoing.make_undoing(session)
    await found.undo(await found.preview(3))
    assert session.current.engine.status().observations.tokens == 0
    await undoing.make_undoing(session).redo()
    assert session.thread.id == first
    assert session.current.engine.status().observations == log
    await session.close()


async def test_what_the_user_changed_is_named_and_kept(store, tmp_path):
    here, root = await worked(store, tmp_path)
    (root / "mine.txt").write_text("mine again\n")
    scope = Scope(here.session, lambda _value: None)
    shown = await (await line.run(scope, line.parse("/undo files"))).fallback()
    assert "M mine.txt  (changed since)" in shown.text
    done = await line.run(scope, line.parse("/undo files yes"))
    assert "Left as they are: mine.txt" in done.sentence
    assert (root / "mine.txt").read_text() == "mine again\n"
    assert (root / "one.txt").read_text() == "one\n"
    await here.session.close()


async def test_words_come_back_where_there_is_no_prompt_too(store, tmp_path):
    here, _ = await worked(store, tmp_path)
    scope = Scope(here.session, lambda _value: None)
    shown = await (await line.run(scope, line.parse("/undo yes"))).fallback()
    assert shown.lines[1] == "Your prompt was: now run it"
    await here.session.close()


async def test_a_redo_is_shown_first_where_files_changed_since(store, tmp_path):
    here, root = await worked(store, tmp_path)
    scope = Scope(here.session, lambda _value: None)
    await line.run(scope, line.parse("/undo files yes"))
    (root / "mine.txt").write_text("mine again\n")
    shown = await (await line.run(scope, line.parse("/redo"))).fallback()
    assert "M mine.txt  (changed since)" in shown.lines and "/redo yes does it." in shown.lines
    assert not (root / "two.txt").exists()
    done = await line.run(scope, line.parse("/redo yes all"))
    assert "Left" not in done.sentence and (root / "mine.txt").read_text() == "mine\nmore\n"
    assert (root / "two.txt").exists()
    await here.session.close()


async def test_a_kill_between_files_and_conversation_leaves_no_second_thread(store, tmp_path, monkeypatch):
    here, root = await worked(store, tmp_path)
    first, after = here.session.thread.id, tree(root)
    found = undoing.make_undoing(here.session)
    preview = await found.preview()

    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(undoing.Undoing, "_fork", killed)
        await found.undo(preview)
    assert here.session.thread.id == first and not (root / "two.txt").exists()
    again = undoing.make_undoing(here.session)
    await again.redo()
    assert tree(root) == after and here.session.thread.id == first
    await again.undo(await again.preview())
    assert here.session.thread.id != first and not (root / "two.txt").exists()
    await undoing.make_undoing(here.session).redo()
    assert tree(root) == after and here.session.thread.id == first
    await here.session.close()


async def interrupt(session: Session, *, redo: bool = False) -> None:
    """Begin to undo a turn, or to redo it, and stop before the first file."""

    class Killed(restore.Restorer, frozen=True):
        def _write_steps(self, undo: object, redoes: str) -> list[str]:
            raise KeyboardInterrupt

    def restorer(self: shadow.Shadow) -> Killed:
        return Killed(self.workspace, self.folder, self.objects, self.records)

    operations = undoing.make_undoing(session)
    preview = await (operations.redo_preview() if redo else operations.preview())
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shadow.Shadow, "restorer", restorer)
        await (operations.redo(preview) if redo else operations.undo(preview))


@pytest.mark.parametrize("what", ["both", "conversation"])
async def test_an_interrupted_undo_and_its_completion_are_one_step(store, tmp_path, what):
    here, root = await worked(store, tmp_path)
    first, after = here.session.thread.id, tree(root)
    await interrupt(here.session)
    assert tree(root) == after
    again = undoing.make_undoing(here.session)
    await again.undo(await again.preview(1, what))
    assert again.recovered == "An interrupted undo was completed: 3 files." and not (root / "two.txt").exists()
    assert [e.in_words for e in here.events if isinstance(e, Notice) and e.title == "Undo"] == [
        "Undo: An interrupted undo was completed: 3 files."
    ]
    assert here.session.thread.id != first
    await undoing.make_undoing(here.session).redo()
    assert tree(root) == after and here.session.thread.id == first
    with pytest.raises(SaktiError, match="no undo"):
        await undoing.make_undoing(here.session).redo()
    await here.session.close()


async def test_an_interrupted_redo_brings_the_conversation_back_too(store, tmp_path):
    here, root = await worked(store, tmp_path)
    first, after = here.session.thread.id, tree(root)
    operations = undoing.make_undoing(here.session)
    await operations.undo(await operations.preview())
    assert here.session.thread.id != first
    await interrupt(here.session, redo=True)
    again = undoing.make_undoing(here.session)
    await again.redo()
    assert again.recovered == "An interrupted redo was completed: 3 files."
    assert tree(root) == after and here.session.thread.id == first
    with pytest.raises(SaktiError, match="no undo"):
        await undoing.make_undoing(here.session).redo()
    await here.session.close()


async def test_the_shell_tells_of_an_interrupted_undo_that_it_completed(store, tmp_path):
    here, root = await worked(store, tmp_path)
    after = tree(root)
    given = {"number": 1, "files": False, "conversation": False, "restore_conflicts": False, "thread": ""}
    sentence = "An interrupted undo was completed: 3 files."

    await interrupt(here.session)
    shown = await undo.undo.run(shell(store, here.session), **given, yes=False)
    assert shown.text[0] == sentence and shown.text[-1] == "Nothing else was changed; --yes does it."
    shown = await undo.undo.run(shell(store, here.session), **given, yes=False)
    assert sentence not in shown.text and shown.text[-1] == "Nothing was changed; --yes does it."
    await undo.redo.run(shell(store, here.session), restore_conflicts=False, thread="")
    assert tree(root) == after
    await interrupt(here.session)
    done = await undo.undo.run(shell(store, here.session), **given, yes=True)
    assert done.text[0] == sentence and done.text[1].startswith("Undone: 1 turn, 'now run it'. ")
    await undo.redo.run(shell(store, here.session), restore_conflicts=False, thread="")
    assert tree(root) == after
    await interrupt(here.session)
    done = await undo.redo.run(shell(store, here.session), restore_conflicts=False, thread="")
    assert done.text[0] == sentence and tree(root) == after
    await interrupt(here.session)
    told: list[object] = []
    here.session.workspace.make_tool_state(told.append, enclosed=False)
    assert [e.message for e in told if isinstance(e, Notice)] == [sentence]
    await here.session.close()


async def test_undo_right_after_a_compaction(store, tmp_path):
    here, root = await worked(store, tmp_path)
    first, after = here.session.thread.id, tree(root)
    await here.session.compact()
    found = undoing.make_undoing(here.session)
    result = await found.undo(await found.preview())
    assert result.prompt == "now run it" and not (root / "two.txt").exists()
    assert texts(await here.session.views.transcript(here.session.thread.id)) == ["write one", "written"]
    await undoing.make_undoing(here.session).redo()
    assert tree(root) == after and here.session.thread.id == first
    await here.session.close()


async def test_diff_shows_what_a_turn_did(store, tmp_path):
    here, _ = await worked(store, tmp_path)
    scope = Scope(here.session, lambda _value: None)
    last = "\n".join((await line.run(scope, line.parse("/diff"))).lines)
    assert "+more" in last and "-one" in last and "+two" in last
    assert "+one" in "\n".join((await line.run(scope, line.parse("/diff 2"))).lines)
    with pytest.raises(SaktiError, match="2 turns"):
        await line.run(scope, line.parse("/diff 3"))
    await here.session.close()


async def test_the_shell_shows_first_and_undoes_with_yes(store, tmp_path, monkeypatch, capsys):
    here, root = await worked(store, tmp_path)
    await here.session.close()

    scope = shell(store, here.session)
    given = {"number": 1, "files": False, "conversation": False, "restore_conflicts": False, "thread": ""}
    shown = await undo.undo.run(scope, **given, yes=False)
    assert (root / "two.txt").exists()
    assert json.loads(json.dumps(shown.json))["files"][2] == {"path": "two.txt", "action": "delete", "conflict": ""}
    done = await undo.undo.run(scope, **given, yes=True)
    assert done.exit == 0
    assert not (root / "two.txt").exists()
    assert "+one" in "\n".join((await undo.diff.run(scope, turn=1, thread="")).lines)
    await undo.redo.run(scope, restore_conflicts=False, thread="")
    assert (root / "two.txt").exists()


async def test_commands_that_only_read_and_the_users_own_are_not_recorded(store, tmp_path):
    root = tmp_path / "w"
    here = await start(store, root, [said(("bash", {"command": "ls"})), "listed"], overrides=AUTO)
    await here.ask("list")
    await here.session.shell("echo mine > mine.txt")
    assert not here.session.current.recorder.shadow.folder.exists()
    await here.session.close()


async def test_a_purged_thread_takes_its_checkpoints(store, tmp_path):
    here, _ = await worked(store, tmp_path)
    session = here.session
    records = session.current.recorder.shadow.records
    await store.write(thread_removal.delete_thread, session.thread.id, 1)
    assert records.turns(session.thread.id)
    await erasure.purge(store, before=2, do=True)
    assert records.turns(session.thread.id) == []
    await session.close()


def shell(store, session) -> Scope:
    opened = store

    class Shell(Scope):
        json = False
        store = opened
        workspace = session.workspace.root
        resource = session.workspace.resource_id

    return Shell(None, lambda _value: None)


async def shell_undo(store, session):
    given = {"number": 1, "files": False, "conversation": False, "restore_conflicts": False, "thread": ""}
    return await undo.undo.run(shell(store, session), **given, yes=True)


@pytest.mark.parametrize("live", [True, False])
async def test_a_thread_whose_first_turn_is_undone_goes_on_empty(store, tmp_path, live):
    root = tmp_path / "w"
    here = await start(store, root, ["first answer"])
    await here.ask("first question")
    first = here.session.thread.id
    if live:
        found = undoing.make_undoing(here.session)
        await found.undo(await found.preview())
    await here.session.close()
    if not live:
        await shell_undo(store, here.session)
    again = await start(store, root, ["second answer"], continue_last=True)
    assert again.session.thread.id != first
    await again.ask("second question")
    assert [m.text for m in again.provider.requests[-1].messages] == ["second question"]
    assert [m.text for m in await store.read(messages.list_after, first, -1)] == ["first question", "first answer"]
    await again.session.close()
    last = await start(store, root, ["third answer"], continue_last=True)
    assert last.session.thread.id == again.session.thread.id


async def test_a_redo_of_the_first_turn_brings_the_thread_back(store, tmp_path):
    root = tmp_path / "w"
    here = await start(store, root, ["first answer"])
    await here.ask("first question")
    first = here.session.thread.id
    await here.session.close()
    await shell_undo(store, here.session)
    with pytest.raises(Refused, match="This thread has no messages"):
        await shell_undo(store, here.session)
    await undo.redo.run(shell(store, here.session), restore_conflicts=False, thread="")
    again = await start(store, root, ["second answer"], continue_last=True)
    assert again.session.thread.id == first


async def test_a_thread_that_was_undone_counts_again_once_something_is_said_in_it(store, tmp_path):
    root = tmp_path / "w"
    here = await start(store, root, ["first answer"])
    await here.ask("first question")
    first = here.session.thread.id
    await here.session.close()
    await shell_undo(store, here.session)
    store.clock.advance(5)
    named = await start(store, root, ["second answer"], resume=first)
    await named.ask("second question")
    assert [t.text for t in await undoing.make_undoing(named.session).turns()] == ["first question", "second question"]
    await named.session.close()
    last = await start(store, root, [], continue_last=True)
    assert last.session.thread.id == first


async def test_an_undone_thread_is_not_carried_over(store, tmp_path):
    root = tmp_path / "w"
    here = await start(store, root, ["first answer"])
    await here.ask("odd words of the first question")
    await here.session.close()
    await shell_undo(store, here.session)
    again = await start(store, root, ["second answer"], continue_last=True)
    await again.ask("second question")
    request = again.provider.requests[-1]
    assert not any("odd words" in block.text for block in request.system)


async def test_changes_of_a_background_command_are_undone_with_its_turn(store, tmp_path):
    root = tmp_path / "w"
    wait = "until [ -e go ]; do sleep 0.02; done"
    answers = [
        said(("bash", {"command": f"echo now > now.txt; {wait}; echo late > late.txt", "background": True})),
        "started",
        said(("bash", {"command": f"({wait}; echo child > child.txt) & echo x > y.log", "timeout": 20})),
        "left",
    ]
    here = await start(store, root, answers, overrides=AUTO)
    (root / ".gitignore").write_text("*.log\n")
    await here.ask("run it in the background")
    while not (root / "now.txt").exists():  # else both turns see it appear, at one time of the fake clock
        await asyncio.sleep(0.02)
    await here.ask("leave something")
    found = undoing.make_undoing(here.session)
    assert len((await found.preview(2)).remains.jobs) == 2
    last = await found.preview(1)
    assert "Still running, and may change more files" in "\n".join(undo.describe_preview(last))
    assert last.remains.new_ignored == ("y.log",)
    store.clock.advance(1)
    (root / "go").touch()
    jobs = here.session.current._toolbox.state.background.values()
    while any(job.members() for job in jobs) or (await found.preview(2)).remains.jobs:  # or an exit is not reported yet
        await asyncio.sleep(0.02)
    preview = await found.preview(2)
    assert {i.path for i in preview.plan.items if not i.conflict} >= {"late.txt", "child.txt"}
    result = await found.undo(preview)
    assert {p.name for p in root.iterdir()} <= {"y.log", "go", ".gitignore"}
    assert not result.is_complete
    assert "New files stay: y.log." in undo.describe_result(preview, result).sentence
    await here.session.close()


async def test_a_file_made_during_a_scan_and_recorded_later_is_not_said_to_stay(store, tmp_path):
    here, root = await worked(store, tmp_path)
    found = undoing.make_undoing(here.session)
    [*_, last] = await found.turns()
    (root / "y.log").touch()
    found.shadow.records.add(last.changed.key, store.clock.now(), (), stays=["two.txt", "y.log"])
    preview = await found.preview()
    assert "two.txt" in {i.path for i in preview.plan.items}
    assert preview.remains.new_ignored == ("y.log",)
    await here.session.close()


async def test_the_result_of_an_undo_counts_restored_and_deleted_files(store, tmp_path):
    here, root = await worked(store, tmp_path)
    found = undoing.make_undoing(here.session)
    preview = await found.preview()
    sentence = undo.describe_result(preview, await found.undo(preview)).sentence
    assert ". 2 files restored, 1 file deleted. /redo" in sentence and not (root / "two.txt").exists()
    again = undoing.make_undoing(here.session)
    preview = await again.redo_preview()
    sentence = undo.describe_result(preview, await again.redo(preview)).sentence
    assert (
        sentence == "Redone: messages and files. 2 files restored, 1 file deleted." and not (root / "one.txt").exists()
    )
    await here.session.close()


async def test_a_turn_whose_only_change_is_a_loss_is_the_turn_to_undo(store, tmp_path):
    root = tmp_path / "w"
    root.mkdir()
    (root / ".gitignore").write_text("*.log\n")
    (root / "a.log").write_text("log\n")
    remove = "import os; os.remove('a.log'); open('b.log', 'w')"
    answers = [
        said(("write", {"path": "one.txt", "content": "one\n"})),
        "written",
        said(("bash", {"command": f'python3 -c "{remove}"'})),
        "removed",
    ]
    here = await start(store, root, answers, overrides=AUTO)
    await here.ask("write one")
    await here.ask("remove the log")
    await here.session.close()
    scope = shell(store, here.session)
    words = {"number": 1, "files": True, "conversation": False, "restore_conflicts": False, "thread": ""}
    shown = await undo.undo.run(scope, **words, yes=False)
    assert shown.exit == 1 and "Cannot be restored: a.log" in shown.lines
    assert shown.json["lost"] == ("a.log",) and shown.json["new_ignored"] == ("b.log",)
    done = await undo.undo.run(scope, **words, yes=True)
    assert done.exit == 1 and "Cannot be restored: a.log" in done.lines[0]
    assert done.json["lost"] == ("a.log",) and (root / "one.txt").exists()
    assert (await undo.undo.run(scope, **words, yes=True)).exit == 0
    assert not (root / "one.txt").exists()
