"""Every command in the README and in the help pages runs as printed, in a prepared workspace."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Place
from tests.e2e.server import Reply
from tests.fakes.histories import ClaudeSession, write_codex
from tests.hygiene.documents import FOR_USERS, read_blocks

BLOCKS = [(path, block) for path in FOR_USERS for block in read_blocks(path, "sh")]
INSTALLS = [block for _, block in BLOCKS if "pip install" in block]
RUN = [pytest.param(block, id=f"{path.stem}-{n}") for n, (path, block) in enumerate(BLOCKS) if block not in INSTALLS]


def test_the_commands_that_install_are_those_of_the_readme() -> None:
    """They are not run here: the gate runs the last one in a new environment."""
    assert INSTALLS == [
        "pip install . && export ANTHROPIC_API_KEY=… && sakti\n",
        "pip install '.[local]' && sakti local install && sakti\n",
        "pip install -e '.[test]' && pytest -n auto\n",
    ]


def test_most_pages_show_commands() -> None:
    assert len({path for path, _ in BLOCKS}) > 12


def run_script(place: Place, script: str) -> subprocess.CompletedProcess[str]:
    program = f'sakti() {{ {shlex.join(place.program)} "$@"; }}\n'
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", program + script],
        cwd=place.folder,
        env={**place.env, "SAKTI_MODEL": "openai/bench"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def used(place: Place) -> Place:
    """A repository with instructions, in which the agent has written a file; two other programs left a history."""
    home = Path(place.env["HOME"])
    ClaudeSession(home / ".claude", "a").turn("stock")
    write_codex(home / ".codex", "b" * 36, ["till"])
    (place.folder / "AGENTS.md").write_text("Run the tests with pytest.\n")
    place.model.play(
        "close the queue", Reply(calls=(("write", {"path": "queue.txt", "content": "closed\n"}),)), "Done."
    )
    name = "-c user.name=a -c user.email=a@example.org"
    done = run_script(
        place,
        f"git init -q -b main && git add -A && git {name} commit -qm 'Add notes'\n"
        "sakti run --approval edits 'close the queue'\n",
    )
    assert (done.returncode, (place.folder / "queue.txt").read_text()) == (0, "closed\n"), done.stderr
    return place


@pytest.mark.parametrize("block", RUN)
def test_commands_run_as_printed(used: Place, block: str) -> None:
    done = run_script(used, block)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.strip()
    used.sound()
