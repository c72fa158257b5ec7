"""The chat line by line in a real terminal: with a line editor, and with a terminal that can do nothing."""

from __future__ import annotations

import signal
import termios

from tests.e2e.conftest import Place
from tests.e2e.server import Reply

WORK = (
    Reply("I will run it.", calls=(("bash", {"command": "echo ran > ran.txt"}),)),
    Reply("It **worked**, \x1b[31mtruly\x1b]0;title\x07.\n"),
)


def test_a_dumb_terminal_has_the_whole_chat(place: Place) -> None:
    place.env["TERM"] = "dumb"
    place.model.play("run it", *WORK)
    with place.open() as t:
        t.until("TERM is dumb")
        t.until("ready")
        t.keys("please \\\r")
        t.until("please")
        t.read(0.3)  # lines that come at once are a paste
        t.keys("run it now\r")
        t.until("question 1: run this command?")
        t.keys("and then rest\r")
        t.until("your message is queued")
        t.keys("y\r")
        t.until("It worked, ␛[31mtruly␛]0;title␇.")
        t.until("read by the agent: and then rest")
        t.keys("/search midnight\r")
        t.until("0 found")
        t.keys("/nonsense\r")
        t.until("error: Unknown command: /")
        assert t.leave() == 0
        assert f"resume with: sakti -c, or at any time: sakti -r {place.threads()[0][-8:]}" in t.text
        assert b"\x1b" not in t.raw
    assert (place.folder / "ran.txt").read_text() == "ran\n"
    said = [text for role, text in place.messages() if role == "user"]
    assert said == ["please \nrun it now", "and then rest"]
    place.sound()


def test_with_a_line_editor_it_is_interrupted_killed_and_left(place: Place) -> None:
    place.model.play("hold on", Reply("A long answer that never ", hold=True))
    with place.open("--plain") as t:
        t.until("ready")
        t.keys("please hold on\r")
        t.until(lambda _: place.model.holding.is_set(), "the answer")
        t.keys("/que\t\t\x15@no\t")
        t.until("@notes.txt")
        t.keys("\x15queued meanwhile\r")
        t.until("queued, 1 waiting: queued meanwhile")
        t.keys("half a line")
        t.until(lambda _: place.rows("SELECT draft FROM unsent") == [("half a line",)], "the draft in the store")
        t.process.send_signal(signal.SIGKILL)
        t.process.wait(10)
    place.model.holding.clear()
    with place.open("--plain", "-c") as t:
        t.until("/send sends it now")
        assert "not sent when sakti last quit: queued meanwhile" in t.text and "half a line" in t.text
        t.keys("\x1b[200~hold on\nfor two lines\x1b[201~\r")
        t.until(lambda _: place.model.holding.is_set(), "the answer")
        t.process.send_signal(signal.SIGINT)  # what ctrl+c is, where the terminal is the process's own
        t.until("Interrupted; the answer so far is kept")
        assert "sakti: A long answer that never" in t.text
        t.keys("\x1b[A")  # older input
        t.until(lambda text: text.count("for two lines") == 2, "the older input")
        t.process.send_signal(signal.SIGTERM)
        assert t.ended() == 128 + signal.SIGTERM
        assert b"\x1b[?1049h" not in t.raw and b"\x1b[H" not in t.raw
        cooked = termios.ICANON | termios.ECHO
        assert termios.tcgetattr(t._fd)[3] & cooked == cooked
    assert [text for role, text in place.messages() if role == "user"] == ["please hold on", "hold on\nfor two lines"]
    place.sound()


def test_lines_from_a_pipe_are_answered_one_after_the_other(place: Place) -> None:
    place.model.play("first", "First answer.")
    place.model.play("second", Reply("", status=400))
    done = place.run("--plain", "--model", "openai/bench", stdin="first\n/cost\nsecond\n!echo mine")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    at = [lines.index(x) for x in ("sakti: First answer.", "/retry tries again", "mine")]
    assert at == sorted(at)
    assert any(line.startswith("price: ") for line in lines[at[0] : at[1]])


def test_a_closed_terminal_ends_it(place: Place) -> None:
    with place.open("--plain") as t:
        t.until("ready")
        t.hang_up()
        assert t.process.wait(20) == 128 + signal.SIGHUP


def test_what_is_not_kept_says_so_when_it_is_left(place: Place) -> None:
    place.model.play("hello", "Good day.")
    with place.open("--plain", "--no-save") as t:
        t.until("Nothing is saved in this run")
        t.keys("hello\r")
        t.until("Good day.")
        assert t.leave() == 0
        assert "Nothing of this run was saved." in t.text
        assert "resume with" not in t.text
    assert not place.path.exists()
