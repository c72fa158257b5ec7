"""The owners of state stay small: each field has one owner, and no owner becomes the object that holds everything."""

from __future__ import annotations

import ast

import pytest

from tests.hygiene.measures import ROOT

MOST = 15  # attributes of one owner
OWNERS = {
    "sakti/agent/workspace.py": ("Workspace", "WorkspaceFiles"),
    "sakti/agent/open_thread.py": ("OpenThread",),
    "sakti/agent/session/running_turn.py": ("RunningTurn",),
    "sakti/agent/session/inbox.py": ("PromptNews",),
    "sakti/agent/session/session.py": ("Session",),
    "sakti/agent/session/turns.py": ("Turns",),
    "sakti/agent/session/models.py": ("Models",),
    "sakti/agent/session/session_hooks.py": ("SessionHooks",),
}


def attributes(owner: ast.ClassDef) -> set[str]:
    """Name what the class assigns to itself, and the fields that it declares."""
    out = {n.target.id for n in owner.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            out |= {node.attr} if node.value.id == "self" else set()
    return out


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in OWNERS.items() for name in names])
def test_an_owner_has_few_attributes(path: str, name: str) -> None:
    (owner,) = [n for n in ast.parse((ROOT / path).read_text("utf-8")).body if getattr(n, "name", "") == name]
    assert isinstance(owner, ast.ClassDef)
    found = attributes(owner)
    assert len(found) <= MOST, f"{name}: {', '.join(sorted(found))}"


def test_every_way_to_assign_an_attribute_is_counted() -> None:
    text = "class A:\n    a: int = 0\n    def f(self, other):\n        self.b, (self.c, *self.d) = 1, (2, 3)\n"
    text += "        self.e: int = 4\n        self.f += 1\n        other.g = self.h\n"
    (owner,) = ast.parse(text).body
    assert isinstance(owner, ast.ClassDef) and attributes(owner) == set("abcdef")
