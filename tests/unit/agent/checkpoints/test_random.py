"""Whatever agent and user do: an undo changes no path that the user changed since, and restores all others."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.checkpoints import Place, tree

NAMES = ("a", "b", "d/c", "d/e/f")
OPERATION = st.tuples(st.sampled_from(("agent", "tool", "user")), st.sampled_from(NAMES), st.sampled_from("123-"))


def act(root: Path, name: str, what: str) -> None:
    path = root / name
    if what == "-":
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(what)


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATION, max_size=8))
def test_the_users_changes_are_never_touched(operations: list[tuple[str, str, str]]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        place = Place(folder)
        for name in NAMES[::2]:
            act(place.root, name, "0")
        files = {n: place.root / n for n in NAMES}
        state = {n: p.read_text() if p.exists() else None for n, p in files.items()}
        was: dict[str, str | None] = {}  # before the agent's first change
        agents: dict[str, str | None] = {}  # what its last one left
        asked: set[str] = set()  # changed by the user between two of the agent's
        for who, name, what in operations:
            new = None if what == "-" else what
            if state[name] == new:
                continue
            if who == "user":
                act(place.root, name, what)
            else:
                was.setdefault(name, state[name])
                if agents.get(name, state[name]) != state[name]:
                    asked.add(name)
                if who == "agent":
                    place.run(lambda n=name, w=what: act(place.root, n, w))
                else:
                    place.edit(name, None if new is None else new.encode())
                agents[name] = new
            state[name] = new
        done, left = place.undo()
        assert left == []
        for name, path in files.items():
            kept = name not in agents or name in asked or state[name] != agents[name]
            assert (path.read_text() if path.exists() else None) == (state[name] if kept else was[name]), name
        place.redo(done)
        assert {n: p.read_text() if p.exists() else None for n, p in files.items()} == state
        assert not any(k.startswith(".sakti-") for k in tree(place.root))
    finally:
        shutil.rmtree(folder)
