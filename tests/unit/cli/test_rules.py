"""`sakti rules`: lists what is saved and what is set, revokes what is saved."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from sakti.store import user_state
from sakti.store.database import Store
from tests.fakes.shell import code


def test_rules_are_listed_and_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))
    monkeypatch.setenv("SAKTI_APPROVAL__DENY", '["bash: git push"]')

    async def fill() -> None:
        store = await Store.open(tmp_path / "x.db")
        for number, rule in enumerate(("bash: npm ci", "edit(docs/*)")):
            await store.write(user_state.save_rule, os.getcwd(), rule, "allow", number)  # noqa: PTH109
        await store.close()

    asyncio.run(fill())
    assert code("rules") == 0
    listed = capsys.readouterr().out
    assert "1. allow  bash: npm ci" in listed and "deny   bash: git push  (settings)" in listed
    assert code("rules", "--revoke", "3") == 2
    assert "no saved rule 3" in capsys.readouterr().err
    assert code("rules", "--revoke", "1") == 0
    assert "Revoked the rule bash: npm ci" in capsys.readouterr().out
    assert code("rules", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [r["rule"] for r in found["saved"]] == ["edit(docs/*)"]
