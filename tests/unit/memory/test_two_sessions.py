"""What one session learned is there for the next: from the log it sees to the exact code it asks for."""

from __future__ import annotations

import json
from pathlib import Path

from sakti.core.types import Request
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import start

CODE = '''"""What a login must look like."""

from pydantic import BaseModel, EmailStr, SecretStr


class LoginSchema(BaseModel):
    email: EmailStr
    password: SecretStr
    remember_me: bool = False
'''
PATH = "src/auth/schemas.py"


def results(request: Request) -> list[str]:
    """The contents of the tool results that a request ends with."""
    return [r.content for r in request.messages[-1].tool_results]


async def test_what_the_first_session_wrote_the_second_gets_word_for_word(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "w"
    first = await start(
        store,
        work,
        [
            Answer("I write the schema.", calls=(Call("write", {"path": PATH, "content": CODE}),)),
            f"I created LoginSchema in {PATH}: email, password and remember_me.",
            "You are welcome.",
        ],
        overrides=("approval.mode=auto",),
    )
    await first.ask(f"We must have a LoginSchema with pydantic in {PATH}. We decided that passwords are SecretStr.")
    assert (work / PATH).read_text() == CODE
    await first.ask("thanks")
    done = await first.session.compact()
    assert done.messages
    await first.session.close()
    (work / PATH).unlink()  # only memory has it now

    seen: list[Request] = []

    def play(request: Request) -> Answer | str:
        seen.append(request)
        if len(seen) == 1:
            return Answer("", calls=(Call("memory-search", {"query": "LoginSchema"}),))
        if len(seen) == 2:
            found = json.loads(results(request)[0])["results"]
            said = next(r for r in found if r["role"] == "user" and r["text"].startswith("We must have"))
            return Answer("", calls=(Call("memory-search", {"action": "recall", "id": said["id"], "detail": "high"}),))
        return "Here it is."

    second = await start(store, work, play)
    assert first.session.thread
    assert second.session.thread
    assert second.session.thread.id != first.session.thread.id
    end = await second.ask("Show me the LoginSchema that you made")
    assert end.text == "Here it is."
    carried = next(b.text for b in seen[0].system if b.kind == "carry_over")
    assert f"We must have a LoginSchema with pydantic in {PATH}." in carried
    assert CODE not in "".join(b.text for b in seen[0].system)  # nothing is put into the prompt by itself
    recalled = [p for m in json.loads(results(seen[2])[0])["messages"] for p in m["parts"]]
    written = next(json.loads(p["text"]) for p in recalled if p["kind"] == "call write")
    assert written == {"path": PATH, "content": CODE}
    await second.session.close()
