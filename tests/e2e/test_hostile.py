"""What comes from outside is shown as text: none of its escapes reaches the terminal, none of its markup acts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.e2e.conftest import Place
from tests.e2e.server import Reply

ESCAPES = {  # each with something that no program writes by itself
    "osc52": "\x1b]52;c;aGFja2Vk\x07",
    "title": "\x1b]0;pwned\x07",
    "title_st": "\x1b]2;pwned\x1b\\",
    "clear": "\x1b[2J\x1b[31;77H",
    "leave": "\x1b[?1049l\x1b[?77h",
    "ask": "\x1b[6n\x1b[77;1R",
    "c1_csi": "\x9b2J\x9b77m",
    "c1_osc": "\x9d0;pwned\x9c",
    "dcs": "\x1bPpwned\x1b\\",
    "apc": "\x1b_pwned\x1b\\",
    "link": "\x1b]8;;http://pwned\x1b\\",
    "open": "\x1b]777;notify;pwned",
}
FORBIDDEN = (
    b"\x1b]52",
    b"\x1b]0;pwned",
    b"\x1b]2;pwned",
    b"\x1b]8;",  # links are this program's own affair: the terminal is told of none
    b"\x1b]777",
    b"\x1b[31;77H",
    b"\x1b[?77h",
    b"\x1b[77;1R",
    b"\x1bPpwned",
    b"\x1b_pwned",
    b"\xc2\x9b",
    b"\xc2\x9d",
    b"\x9b2J",
    b"\x9b77m",
    b"\x9d0;",
)
MARKUP = "[/red] [@click=app.quit]leave[/] [$primary]"
LINKS = "".join(f" [a link](https://pwned/{e}) <https://pwned/{e}> https://pwned/{e}" for e in ESCAPES.values())
PAYLOAD = MARKUP + "".join(ESCAPES.values()) + "\x00\x07\x08"


def test_hostile_text_everywhere(place: Place) -> None:
    folder = place.folder
    name = "a[@click=app.quit]b[_red]\x1b]0;pwned\x07.txt"
    (folder / name).write_text(f"in a file: {PAYLOAD}\n".replace("\x00", ""))
    (folder / "bytes.sh").write_bytes(
        b"printf '" + PAYLOAD.replace("\x00", "").encode("utf-8") + b"'\nprintf '\\2332J\\23377m raw c1 bytes'\n"
    )
    branch = "x]$primary@click=app.quit\x9b2J\x9b77m\x9d0;pwned\x9c"  # what git lets pass
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.email", "a@b")
    git(folder, "config", "user.name", "a")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    git(folder, "checkout", "-q", "-b", branch)
    place.model.play(
        "be hostile",
        Reply(
            f"Before {PAYLOAD} after.",
            calls=(("ls", {}), ("read", {"path": name}), ("bash", {"command": "sh bytes.sh"})),
        ),
        Reply(f"# Heading {PAYLOAD}\n\n```\ncode {PAYLOAD}\n```\n\n{LINKS}\n\nThe end, {MARKUP}."),
    )
    with place.open("-o", "approval.allow=['bash']", size=(160, 80)) as t:
        t.started()
        t.say("be hostile, [@click=app.quit]please[/]", "The end,")
        t.until_idle()
        assert "The end, [/red] [@click=app.quit]leave[/] [$primary]." in t.text
        t.keys("\x1b[5~")
        t.until("Before [/red]")
        assert "Before [/red] [@click=app.quit]leave[/] [$primary]" in t.text
        assert "be hostile, [@click=app.quit]please[/]" in t.text.split("\n")[0]  # the title
        assert "x]$primary@click" in t.text.split("\n")[0]
        t.say("/rename t[/red][@click=app.quit]t[/]\u202e title", "t[/red][@click=app.quit]t[/]")
        t.say("/search hostile", "found")
        t.until("esc back", "the whole of the search")  # else its going cannot be seen
        t.keys("\x1b")
        t.until(lambda text: "esc back" not in text, "the chat again")
        assert t.quit() == 0
        raw = t.raw
    with place.open("-c", "-o", "approval.allow=['bash']", size=(160, 60)) as t:
        t.started().until("The end,")
        assert t.quit() == 0
        raw += t.raw
    assert [p for p in FORBIDDEN if p in raw] == []
    assert raw.count(b"\x1b[?1049h") == raw.count(b"\x1b[?1049l") == 2
    # and in a shell
    for arguments in (("threads", "list"), ("threads", "show", "red"), ("search", "hostile"), ("memory", "log")):
        done = place.run(*arguments)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr and "\x9b" not in done.stdout + done.stderr
    assert "in a file" in place.messages()[2][1] and "raw c1 bytes" in place.messages()[2][1]
    place.sound()


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, capture_output=True, timeout=20, check=True)
