from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sakti.agent.tools.background import bash_output, kill, stop_all
from sakti.agent.tools.bash import bash, start
from sakti.agent.tools.context import ToolState
from sakti.agent.tools.edit import edit, write
from sakti.agent.tools.processes import Output
from sakti.agent.tools.read import read
from sakti.core.errors import ToolError
from tests.fakes.tools import call, ended


@pytest.fixture(autouse=True)
async def stopped(tools: ToolState) -> AsyncIterator[None]:
    """Nothing that a test started outlives it."""
    yield
    await stop_all(tools)


async def test_the_process_is_waited_for_not_its_pipe(tools: ToolState) -> None:
    done = await call(tools, bash, command="sleep 600 & echo started; echo $! > pid")
    assert not done.is_error
    pid = (tools.workspace / "pid").read_text().strip()
    assert done.content == (
        f"started\n[left running, in the background as 1: sleep 600 (process {pid}). "
        "bash_output shows more, kill ends it]"
    )
    assert (await call(tools, bash_output, id="1")).content == "[nothing new]\n[still running]"
    assert (await call(tools, kill, id="1")).content == "Command 1 ended."
    assert await ended(int(pid))


async def test_what_was_left_running_is_read_on(tools: ToolState) -> None:
    await call(tools, bash, command="(while [ ! -e go ]; do sleep 0.05; done; echo later; exec sleep 600) & echo now")
    (tools.workspace / "go").touch()
    running = tools.background["1"]
    while "later" not in running.output.unread:
        await asyncio.sleep(0.01)
    assert (await call(tools, bash_output, id="1")).content == "later\n[still running]"


async def test_a_second_interrupt_ends_what_ignores_the_first(tools: ToolState) -> None:
    command = "trap 'touch asked' TERM; touch ready; while :; do sleep 0.05; done"
    task = asyncio.create_task(call(tools, bash, command=f"echo $$ > pid; {command}"))
    for sign in ("ready", "asked"):
        while not (tools.workspace / sign).exists():
            await asyncio.sleep(0.01)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ended(int((tools.workspace / "pid").read_text()))


ESCAPES = {
    "a new session": "setsid sleep 600 & echo $! > pid",
    "a shell's own groups": "bash -c 'set -m; sleep 600 & echo $! > pid; disown -a'",
    "python": 'python3 -c \'import subprocess; p = subprocess.Popen(["sleep", "600"], start_new_session=True); '
    'open("pid", "w").write(str(p.pid))\'',
    "a daemon": "(setsid bash -c 'setsid sleep 600 & echo $! > pid' &)",
    "an empty environment": "(env -i setsid /bin/bash -c '(/usr/bin/setsid /bin/sleep 600 & echo $! > pid) &' &)",
}


async def left_process(tools: ToolState) -> int:
    while not (tools.workspace / "pid").exists() or not (tools.workspace / "pid").read_text().strip():
        await asyncio.sleep(0.01)
    return int((tools.workspace / "pid").read_text())


@pytest.mark.parametrize("name", ESCAPES)
async def test_a_process_that_leaves_its_group_is_named_and_can_be_ended(tools: ToolState, name: str) -> None:
    done = await call(tools, bash, command=f"{ESCAPES[name]}; until [ -s pid ]; do sleep 0.02; done; echo started")
    pid = await left_process(tools)
    assert done.content.startswith("started\n[left running, in the background as 1: ")
    assert f"(process {pid})" in done.content
    assert (await call(tools, kill, id="1")).content == "Command 1 ended."
    assert await ended(pid)


HELD = {
    "timeout": "timeout 999 bash -c 'echo $$ > pid; exec sleep 600'",
    "setsid": "setsid -w bash -c 'echo $$ > pid; exec sleep 600'",
    **{name: f"{command}; sleep 600" for name, command in ESCAPES.items()},
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("way", ["time", "interrupt", "kill"])
async def test_nothing_outlives_a_command_that_is_stopped(tools: ToolState, name: str, way: str) -> None:
    if way == "time":
        await call(tools, bash, command=HELD[name], timeout=3)
    elif way == "interrupt":
        task = asyncio.create_task(call(tools, bash, command=HELD[name]))
        await left_process(tools)
        task.cancel()
        await asyncio.wait({task})
    else:
        await call(tools, bash, command=HELD[name], background=True)
        await left_process(tools)
        await call(tools, kill, id="1")
    assert await ended(await left_process(tools))


STUBBORN = """
note() { echo $! >> pids; }
sleep 600 & note; kill -STOP $!
(trap '' TERM HUP INT QUIT; exec sleep 600) & note
bash -c 'trap "" TERM; while :; do sleep 600; done' & note
xargs -I{} sleep {} <<< 600 & note
script -qec 'sleep 600' /dev/null & note
python3 -c 'import os
for n in range(2): os.fork() and os._exit(0); os.setsid()
os.write(1, b"%d\\n" % os.getpid()); os.closerange(0, 256); os.execvp("sleep", ["sleep", "600"])' >> pids
touch pid; echo 1 > pid; sleep 600
"""


async def test_processes_that_ignore_signals_or_hide_are_ended(tools: ToolState) -> None:
    await call(tools, bash, command=STUBBORN, background=True)
    await left_process(tools)
    pids = [int(line) for line in (tools.workspace / "pids").read_text().split()]
    assert len(pids) >= 5
    assert (await call(tools, kill, id="1")).content == "Command 1 ended."
    for pid in pids:
        assert await ended(pid)


async def test_a_command_is_ended_before_it_has_begun(tools: ToolState) -> None:
    for _ in range(5):
        done = await call(tools, bash, command="sleep 600", background=True)
        running = tools.background[str(done.details["background"])]
        assert await running.stop() == []
        assert running.members() == {}


async def test_a_command_that_kills_its_supervisor_is_ended(tools: ToolState) -> None:
    command = "sleep 600 & echo $! > pid; kill -9 $PPID; sleep 600"
    task = asyncio.create_task(call(tools, bash, command=command))
    pid = await left_process(tools)
    task.cancel()
    await asyncio.wait({task})
    assert await ended(pid)


async def test_the_exit_code_and_signals_are_those_of_the_command(tools: ToolState) -> None:
    assert (await call(tools, bash, command="exit 7")).content == "[exit code 7]"
    assert (await call(tools, bash, command="kill -TERM $$")).content == "[ended by SIGTERM]"
    assert (await call(tools, bash, command="yes | head -1; echo ${PIPESTATUS[0]}")).content == "y\n141"


async def test_what_ends_with_the_command_is_not_spoken_of(tools: ToolState) -> None:
    assert (await call(tools, bash, command="sleep 0.01 & echo started")).content == "started"
    assert (await call(tools, bash, command="setsid sleep 0.05 & echo started")).content == "started"
    assert tools.background == {}


async def test_a_timeout_says_what_was_ended(tools: ToolState) -> None:
    done = await call(tools, bash, command="sleep 600 & echo $! > pid; sleep 600", timeout=3)
    assert done.is_error
    assert done.content == "[stopped after 3 s, with every process that it started]"
    assert await ended(int((tools.workspace / "pid").read_text()))
    assert tools.background == {}


async def test_background_numbers_are_never_given_twice(tools: ToolState) -> None:
    for _ in range(2):
        await call(tools, bash, command="exec sleep 600", background=True)
    await call(tools, kill, id="1")
    third = await call(tools, bash, command="exec sleep 600", background=True)
    assert third.details["background"] == "3"
    second = tools.background["2"].process.pid
    assert set(tools.background) == {"2", "3"}
    await stop_all(tools)
    assert await ended(second)


@pytest.mark.parametrize(
    "command",
    [
        "cd sub; trap 'echo bye' EXIT",
        "cd sub && exec true",
        "pushd sub >/dev/null",
        "cd sub; set -C; set -eu",
        "set -e; cd sub; false",
        "cd sub; exit 3",
        "cd sub; kill -9 $$",
        "builtin cd sub",
        "( cd / ); cd sub; ( cd / ) | cat",
    ],
)
async def test_the_folder_is_not_lost(tools: ToolState, command: str) -> None:
    (tools.workspace / "sub").mkdir()
    await call(tools, bash, command=command)
    assert tools.cwd == tools.workspace / "sub"


async def test_a_folder_that_is_gone_or_odd(tools: ToolState) -> None:
    odd = tools.workspace / "a\n b'\"$x"
    odd.mkdir()
    await call(tools, bash, command="cd a*")
    assert tools.cwd == odd
    await call(tools, bash, command="cd ..; rmdir a*; mkdir gone; cd gone; rmdir ../gone")
    assert (await call(tools, bash, command="pwd")).content == str(tools.workspace)


async def test_lines_and_errors_are_those_of_the_command(tools: ToolState) -> None:
    failed = await call(tools, bash, command="true\nno-such-command\n")
    assert re.search(r"bash: line 2: no-such-command: command not found", failed.content)
    wrong = await call(tools, bash, command="echo )")
    assert "__" not in wrong.content
    assert wrong.is_error
    assert (await call(tools, bash, command='echo "$# [$@] $-"')).content.startswith("0 [] ")


async def test_a_very_long_command_runs(tools: ToolState) -> None:
    text = "x" * 300_000
    done = await call(tools, bash, command=f"cat > big <<'EOF'\n{text}\nEOF\nwc -c < big; cd /")
    assert done.content == "300001"
    assert str(tools.cwd) == "/"


async def test_nothing_is_left_in_the_temporary_folder(
    tools: ToolState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"  # other tests use the usual one meanwhile
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    await call(tools, bash, command="true")
    await call(tools, bash, command="exec sleep 600", background=True)
    await call(tools, kill, id="1")
    assert not list(own.iterdir())


async def test_a_command_begins_before_what_it_writes_however_late_one_looks(tools: ToolState) -> None:
    started = start(tools.make_context("c1", "", ""), "touch made")
    await started.running.wait_for_exit()
    await started.running.stop()
    assert started.begin <= (tools.workspace / "made").stat().st_ctime_ns
    assert started.begin < started.folder.stat().st_ctime_ns, "it writes its folder there when it ends"
    started.notes.cleanup()


async def test_files_that_its_commands_wrote_may_be_edited(tools: ToolState) -> None:
    await call(tools, bash, command="echo 'a = 1' > new.py; python3 -c \"open('made.py','w').write('m = 1')\"")
    await call(tools, edit, path="new.py", old="a = 1", new="a = 2")
    assert (tools.workspace / "new.py").read_text() == "a = 2\n"
    (tools.workspace / "other.py").write_text("x = 1\n")
    with pytest.raises(ToolError, match="not been read"):
        await call(tools, edit, path="other.py", old="x", new="y")


async def test_files_that_its_commands_changed_are_known_with_the_difference(tools: ToolState) -> None:
    path = tools.workspace / "a.py"
    path.write_text("one\ntwo\n")
    await call(tools, read, path="a.py")
    done = await call(tools, bash, command="sed -i s/two/2/ a.py")
    assert "changed by this command" in done.content
    assert "-two\n+2" in done.content
    await call(tools, edit, path="a.py", old="2", new="II")
    assert path.read_text() == "one\nII\n"
    assert "changed by" not in (await call(tools, bash, command="touch a.py")).content
    await call(tools, write, path="a.py", content="all\n")
    await call(tools, bash, command="rm a.py")
    path.write_text("by someone else\n")
    with pytest.raises(ToolError, match="not been read"):
        await call(tools, write, path="a.py", content="x")


async def test_what_the_user_changed_before_a_command_is_not_its_doing(tools: ToolState) -> None:
    path = tools.workspace / "a.py"
    path.write_text("one\n")
    await call(tools, read, path="a.py")
    path.write_text("by the user\n")
    await call(tools, bash, command="true")
    with pytest.raises(ToolError, match="has changed since"):
        await call(tools, edit, path="a.py", old="user", new="x")


async def test_a_great_change_is_only_named(tools: ToolState) -> None:
    (tools.workspace / "a.py").write_text("".join(f"line {n}\n" for n in range(900)))
    await call(tools, read, path="a.py")
    done = await call(tools, bash, command="sed -i s/line/row/ a.py")
    assert "a.py: too much to show" in done.content
    assert len(done.content) < 300


async def test_equal_size_and_time_are_no_proof(tools: ToolState) -> None:
    path = tools.workspace / "a.py"
    path.write_text("one\n")
    await call(tools, read, path="a.py")
    before = path.stat()
    path.write_text("two\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ToolError, match="has changed since"):
        await call(tools, edit, path="a.py", old="two", new="x")


async def test_the_size_that_is_told_is_the_true_one(tools: ToolState) -> None:
    done = await call(tools, bash, command="head -c 348894 /dev/zero | tr '\\0' x")
    assert "The whole output of 348,894 characters is in " in done.content
    whole = Path(done.details["output_file"])
    assert whole.stat().st_size == 348_894


def test_an_output_beyond_its_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sakti.agent.tools.processes.FILE_LIMIT", 10)
    output = Output(tmp_path / "o")
    for text in ("12345678", "9abc"):
        assert not output.cut
        output.add(text)
        output.settle()
        output.save()
    assert output.cut
    assert (tmp_path / "o").read_text() == "123456789a"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("for i in $(seq 1 3000); do printf '\\rprogress %d%%' $i; done; echo; echo built", "progress 3000%\nbuilt"),
        ("for i in $(seq 1 3000); do printf '\\r\\033[2K%d' $i; done", "3000"),
        ("for i in $(seq 1 300); do printf '%3d%%\\b\\b\\b\\b' $i; done; echo", "300%"),
        ("echo; for i in $(seq 1 300); do printf '\\033[1A\\033[Klayer %d\\n' $i; done", "layer 300"),
        ("printf '\\033[1;31mred\\033[0m \\033]8;;http://x\\033\\\\link\\033]8;;\\033\\\\\\n'", "red link"),
        ("printf 'one\\r\\ntwo\\r\\n'", "one\ntwo"),
        ("printf 'kept  \\n\\tas it is\\n'", "kept  \n\tas it is"),
        ("printf 'no line end \\033[3'; exit 3", "no line end \n[exit code 3]"),
    ],
)
async def test_a_redrawn_output_reaches_the_model_as_it_ends_up(tools: ToolState, command: str, shown: str) -> None:
    done = await call(tools, bash, command=command)
    assert done.content == shown
    assert "output_file" not in done.details


async def test_the_size_and_the_file_of_a_redrawn_output_are_those_of_its_text(tools: ToolState) -> None:
    done = await call(
        tools, bash, command="for i in $(seq 1 9000); do printf '0%%\\r\\033[32m%d done\\033[0m\\n' $i; done"
    )
    text = "".join(f"{i} done\n" for i in range(1, 9001))
    assert f"The whole output of {len(text):,} characters is in " in done.content
    assert Path(done.details["output_file"]).read_text() == text
    assert done.content.startswith(text[:5_000])


async def test_what_was_drawn_so_far_is_read_from_a_running_command(tools: ToolState) -> None:
    drawn = "printf '\\r10%%\\r20%%\\033[1'"
    await call(
        tools, bash, command=f"({drawn}; until [ -e go ]; do sleep 0.02; done; printf 'm\\r30%%'; exec sleep 600) &"
    )
    (number,) = tools.background
    running = tools.background[number]
    while "20%" not in running.output.unread + running.output.text():
        await asyncio.sleep(0.01)
    seen = (await call(tools, bash_output, id=number)).content
    assert seen in ("20%\n[still running]", "[nothing new]\n[still running]")  # the command's own result may have it
    (tools.workspace / "go").touch()
    while "30%" not in running.output.unread:
        await asyncio.sleep(0.01)
    assert (await call(tools, bash_output, id=number)).content == "30%\n[still running]"


def test_a_piece_for_the_screen_says_that_it_redraws_a_line(tmp_path: Path) -> None:
    output = Output(tmp_path / "o")
    pieces: list[str] = []
    for text in ("start\n\x1b[3", "2m10%", "\x1b[0m\r20%", "\r30%\n", "end\r", "\n"):
        output.add(text)
        pieces.append(output.take_unread())
    assert pieces == ["start\n", "10%", "\r20%", "\r30%\n", "end", "\n"]
    output.settle()
    assert output.text() == "start\n30%\nend\n"
