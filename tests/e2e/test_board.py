"""The task board while others work: the agent in this window, and a shell beside it."""

from __future__ import annotations

from tests.e2e.conftest import Place
from tests.e2e.server import Reply


def test_the_board_shows_what_agent_and_shell_do(place: Place) -> None:
    made = ("task-mutate", {"action": "create", "title": "made by the agent"})
    place.model.play("plan it", Reply("I plan.", calls=(made,)), "It is planned.")
    with place.open() as terminal:
        terminal.started()
        terminal.say("plan it", "It is planned.")
        terminal.keys("\x1bOSb")  # F4 goes into the list of tasks, b opens the board
        terminal.until("Ready  1")
        assert place.run("tasks", "create", "made in a shell", "-p", "0", "--as", "alice").returncode == 0
        terminal.until("made in a shell")
        claimed = place.json("tasks", "ready", "--claim", "--as", "alice")["task"]
        assert claimed["title"] == "made in a shell"
        terminal.until("alice · just now")
        terminal.keys("nwrite xc docs\r")  # typed at once, and no letter of it is taken for a key of the board
        terminal.until("was created")
        terminal.until("Ready  2")
        assert place.run("tasks", "close", claimed["handle"], "-s", "done", "--as", "alice").returncode == 0
        terminal.until("Done today  1")
        assert {t["title"] for t in place.json("tasks", "list")["tasks"]} == {"made by the agent", "write xc docs"}
        terminal.keys("\x1b")
        terminal.until("It is planned.")
        terminal.quit()
    assert not place.model.wrong
