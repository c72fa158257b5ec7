"""Background commands: waited for, told to the model at its next step once they end, alive between turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.agent.tools.job_log import JobLog
from sakti.agent.tools.processes import Output
from sakti.core.errors import SaktiError
from sakti.core.events import JobsChanged, ToolFinished, ToolStarted
from sakti.core.types import ContextPart
from sakti.providers.scripted import Answer, Call
from sakti.store import files
from sakti.store.connection import Database
from sakti.store.database import Store
from tests.fakes.session import Recorded, start
from tests.unit.agent.test_questions import results, until

FREE = ("approval.mode=edits", 'approval.allow=["bash"]')
SERVER = (
    "echo one; while [ ! -e ready ]; do sleep 0.01; done; echo is listening; while [ ! -e stop ]; do sleep 0.01; done"
)
BEGIN = Call("bash", {"command": SERVER, "background": True})


def wait(**arguments: object) -> Call:
    return Call("wait", {"job": "1", **arguments})


def notices(run: Recorded) -> list[str]:
    parts = (p for m in run.provider.requests[-1].messages for p in m.parts if isinstance(p, ContextPart))
    return [text for part in parts for name, text in part.facts.items() if name.startswith("job ")]


async def test_a_server_is_waited_for_and_lives_through_turns(store: Store, tmp_path: Path) -> None:
    steps = (BEGIN, wait(timeout=1, text="listening"), wait(text="is listening"))
    answers = [*(Answer("", calls=(c,)) for c in steps), "up", "second", "third", "fourth"]
    run = await start(store, tmp_path / "w", answers, overrides=FREE)
    await run.session.submit("serve")
    await until(lambda: len(results(run)) == 2)
    assert results(run)[1].startswith("[1 s have passed; it still runs, and the text has not appeared]\none")
    (tmp_path / "w/ready").touch()
    await run.session.wait()
    assert results(run)[2] == "[the text has appeared]\none\nis listening"
    await run.ask("two")
    await run.ask("three")
    [job] = run.session.list_jobs().values()
    assert job.exit_code is None and not notices(run)
    (tmp_path / "w/stop").touch()
    await until(lambda: not run.session.background_commands() and job.exit_code is not None)
    assert run.of(JobsChanged)
    await run.ask("four")
    [notice] = notices(run)
    assert notice.endswith("ended with exit code 0. Its last lines:\none\nis listening")
    run.provider._left += ["fifth"]
    await run.ask("five")
    assert notices(run) == [notice], "it is told once"
    await run.session.close()


async def test_a_wait_ends_with_the_command_or_a_message_of_the_user(store: Store, tmp_path: Path) -> None:
    ends = Call("bash", {"command": "until [ -e go ]; do sleep 0.01; done; echo bye; exit 3", "background": True})
    steps = (ends, wait(text="never"), BEGIN, Call("wait", {"job": "2"}))
    run = await start(store, tmp_path / "w", [*(Answer("", calls=(c,)) for c in steps), "ok"], overrides=FREE)
    await run.session.submit("go")
    await until(lambda: len(run.of(ToolStarted)) == 2)
    (tmp_path / "w/go").touch()
    await until(lambda: len(results(run)) == 3)
    assert results(run)[1] == "[ended with exit code 3, without the text]\nbye"
    await until(lambda: len(run.of(ToolStarted)) == 4)
    await run.session.submit("never mind")
    await run.session.wait()
    assert results(run)[3].startswith("[the user sent a message; it still runs]")
    assert not notices(run), "the model knows of the end by its own call"
    assert run.of(ToolFinished)[1].result.details["exit_code"] == 3
    await run.session.close()


def test_a_text_is_found_across_pieces_and_in_a_flood(tmp_path: Path) -> None:
    output = Output(tmp_path / "out")
    output.add("it is list")
    output.watch("listening on 8000")
    for piece in ("ening ", "on 80", "00"):
        assert not output.is_matched
        output.add(piece)
    assert output.is_matched
    output.watch("needle")
    for _ in range(300):
        output.add("x" * 100_000)
    assert not output.is_matched and len(output.unread) <= 100_000
    output.add("a needle")
    output.add("x" * 300_000)
    assert output.is_matched
    output.watch("is list")
    assert output.is_matched, "what was printed before counts"


async def test_numbers_go_on_and_a_killed_job_is_listed_as_lost(store: Store, tmp_path: Path) -> None:
    steps = (Call("bash", {"command": "exit 3", "background": True}), BEGIN, BEGIN, Call("kill", {"id": "3"}))
    answers = [*(Answer("", calls=(c,)) for c in steps), "ok"]
    run = await start(store, tmp_path / "w", answers, overrides=FREE)
    await run.ask("go")
    await until(lambda: run.session.list_jobs()["1"].exit_code == 3)
    thread_id = run.session.current.id

    def states(db: Database) -> list[tuple[int, str, int | None]]:
        return db.execute_sql("SELECT number, state, exit_code FROM jobs ORDER BY number").fetchall()

    rows = await store.read(states)
    assert rows[0] == (1, "ended", 3) and rows[1] == (2, "running", None) and rows[2][:2] == (3, "stopped")
    [(pid, started)] = await store.read(
        lambda db: db.execute_sql("SELECT pid, pid_started FROM jobs WHERE number = 2").fetchall()
    )
    assert started == files.read_start_time(pid) != None  # noqa: E711
    other = JobLog(store)
    past = await other.find_past(thread_id, ())
    assert "2" not in past, "it runs, in another process"
    await until(lambda: run.session.list_jobs()["2"].output.path.with_suffix(".end").exists())
    await run.session.close()
    assert (await store.read(states))[1][1] == "stopped"
    as_killed = "UPDATE jobs SET state = 'running', exit_code = NULL WHERE number = 2"
    await store.write(lambda db: db.execute_sql(as_killed))

    begins = Answer("", calls=(Call("bash", {"command": "true", "background": True}),))
    again = await start(store, tmp_path / "w", [begins, "ok"], overrides=FREE, continue_last=True)
    [(number, job)] = again.session.list_jobs().items()
    assert (number, job.command) == ("2", SERVER)
    assert again.session.describe_job(job).endswith("lost: sakti was killed while it ran; one")
    with pytest.raises(SaktiError, match="ended with an earlier sakti"):
        await again.session.end_background("2")
    await again.ask("go on")
    assert again.of(ToolFinished)[0].result.content.startswith("Running in the background as 4")
    [notice] = [n for n in notices(again) if n.startswith("Background command 2")]
    assert notice.endswith("while it ran. Its last lines:\none")
    await again.session.close()
    third = await start(store, tmp_path / "w", ["ok"], overrides=FREE, continue_last=True)
    await third.ask("and now?")
    assert sum(n == notice for n in notices(third)) == 1, "an end is told once, also after a restart"
    reported = "SELECT number FROM jobs WHERE reported_at IS NOT NULL ORDER BY number"
    assert await store.read(lambda db: db.execute_sql(reported).fetchall()) == [(1,), (2,), (3,), (4,)]
    await third.session.close()


async def test_a_job_that_is_waited_for_is_ended_only_after_the_wait(store: Store, tmp_path: Path) -> None:
    steps = ((BEGIN,), (wait(timeout=1, text="never"), Call("kill", {"id": "1"})))
    run = await start(store, tmp_path / "w", [*(Answer("", calls=c) for c in steps), "ok"], overrides=FREE)
    await run.ask("serve, wait and end it")
    waited, killed = results(run)[1:]
    assert waited.startswith("[1 s have passed; it still runs") and killed == "Command 1 ended."
    await run.session.close()
