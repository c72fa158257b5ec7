"""Hooks of the installed program: real processes in the real sandbox, trusted and not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Place
from tests.e2e.server import Reply

NAMED = ("--model", "openai/bench", "--approval", "edits")

# As people write them for claude-code: a rule about commands, told on standard error, exit 2.
GUARD = """\
import json, re, sys
data = json.load(sys.stdin)
if data.get("tool_name") == "Bash" and re.search(r"^grep\\b", data["tool_input"].get("command", "")):
    print("Use 'rg' instead of 'grep'", file=sys.stderr)
    sys.exit(2)
"""


def settings(**events: list[tuple[str, str]]) -> str:
    groups = {
        name: [{"matcher": match, "hooks": [{"type": "command", "command": command}]} for match, command in each]
        for name, each in events.items()
    }
    return json.dumps({"hooks": groups, "permissions": {"allow": []}})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def requests(place: Place) -> str:
    return "\n".join(" ".join((m.text, *m.results.values())) for said in place.model.requests for m in said)


def test_a_trusted_projects_hooks_run_in_the_sandbox(place: Place) -> None:
    guard = f'{sys.executable} "$CLAUDE_PROJECT_DIR"/.claude/hooks/guard.py'
    outside = f"{place.home}/outside.txt"
    start = f"echo The branch is main; cat > start.json; env > env.txt; echo x > {outside}; cat $(pwd)/nothing; true"
    write(place.folder / ".claude/hooks/guard.py", GUARD)
    write(place.folder / ".claude/settings.json", settings(PreToolUse=[("Bash", guard)], SessionStart=[("", start)]))
    place.model.play("find it", Reply(calls=(("bash", {"command": "grep -r midnight ."}),)), Reply("done"))

    left_out = place.run("run", "find it", *NAMED)
    assert left_out.returncode == 0 and ".claude/settings.json" in left_out.stderr and "not trusted" in left_out.stderr
    assert not (place.folder / "start.json").exists() and "Use 'rg'" not in requests(place)
    shown = place.run("trust").stdout
    assert "runs at PreToolUse Bash:" in shown and ".claude/hooks/guard.py: a hook or an MCP server runs it" in shown
    assert "not trusted" in place.run("doctor").stdout
    assert place.run("trust", "--yes").returncode == 0
    assert "✓ hook: PreToolUse Bash:" in place.run("doctor").stdout

    place.model.requests.clear()
    done = place.run("run", "find it", *NAMED)
    assert done.returncode == 0, done.stderr
    assert "Use 'rg'" in requests(place) and "Use 'rg'" in done.stderr
    assert requests(place).count("The branch is main") == len(place.model.requests)  # once in each request
    told = json.loads((place.folder / "start.json").read_text())
    assert told["hook_event_name"] == "SessionStart" and told["cwd"] == str(place.folder)
    assert "API_KEY" not in (place.folder / "env.txt").read_text()
    assert "✓ sandbox" not in place.run("doctor").stdout or not Path(outside).exists()

    write(place.folder / ".claude/hooks/guard.py", "")
    place.model.requests.clear()
    changed = place.run("run", "find it", *NAMED)
    assert "changed since it was trusted" in changed.stderr and "Use 'rg'" not in requests(place)
    place.sound()


def test_a_users_hooks_write_what_they_name_and_read_the_thread(place: Place) -> None:
    logs = place.home / "logs"
    logs.mkdir()
    (place.home / ".claude").mkdir()
    command = "import json,sys; print(json.load(sys.stdin)['tool_input']['command'])"
    log = f'{sys.executable} -c "{command}" >> ~/.claude/bash-command-log.txt'
    write(place.home / ".claude/settings.json", settings(PreToolUse=[("Bash", log)]))
    text = "import json,sys; sys.stdout.write(open(json.load(sys.stdin)['transcript_path']).read())"
    mine = [
        {"event": "Stop", "command": f'{sys.executable} -c "{text}" > ~/logs/thread.jsonl', "write": ["~/logs"]},
        {"event": "SessionEnd", "command": "cat > ~/logs/end.json; echo no > ~/no.txt", "write": ["~/logs"]},
    ]
    tables = "\n".join(
        f"[[hooks]]\n{''.join(f'{k} = {json.dumps(v)}{chr(10)}' for k, v in table.items())}" for table in mine
    )
    write(place.home / "config/sakti/config.toml", tables)
    place.model.play("look", Reply(calls=(("bash", {"command": "cat notes.txt"}),)), Reply("at midnight"))
    done = place.run("run", "look", *NAMED)
    assert done.returncode == 0, done.stderr
    assert (place.home / ".claude/bash-command-log.txt").read_text() == "cat notes.txt\n"
    rows: list[Any] = [json.loads(x) for x in (logs / "thread.jsonl").read_text().splitlines()]
    assert rows[1]["message"]["content"][0]["input"] == {"command": "cat notes.txt"}
    assert rows[-1]["message"]["content"] == [{"type": "text", "text": "at midnight"}]
    assert json.loads((logs / "end.json").read_text())["reason"] == "other"
    assert "✓ sandbox" not in place.run("doctor").stdout or not (place.home / "no.txt").exists()
    place.sound()


def test_a_changed_call_is_shown_and_a_blocked_prompt_is_refused(place: Place) -> None:
    changed = {"hookSpecificOutput": {"updatedInput": {"command": "echo harmless"}}}
    change = f"echo '{json.dumps(changed)}'"
    block = "grep -q password && { echo 'no passwords' >&2; exit 2; } || true"
    write(place.home / ".claude/settings.json", settings(PreToolUse=[("Bash", change)], UserPromptSubmit=[("", block)]))
    place.model.play("go", Reply(calls=(("bash", {"command": "rm -rf build"}),)), Reply("gone"))
    done = place.run("run", "go", *NAMED)
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stderr.splitlines() if line.startswith("▸")]
    assert lines[-1] == "▸ bash  echo harmless"
    done = place.run("run", "my password is x", *NAMED)
    assert done.returncode == 4 and "Blocked by a hook: no passwords" in done.stderr
    place.sound()
