"""Define the settings of a hook: one table of `[[hooks]]`."""

from __future__ import annotations

from dataclasses import dataclass

# What happens to a tool call; a hook's `match` is a pattern of the tool's name there.
TOOL_EVENTS = ("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure")
# Events by name; what `match` is compared with, "" where it is ignored.
EVENTS = {
    **dict.fromkeys(TOOL_EVENTS, "tool_name"),
    "SessionStart": "source",
    "SessionEnd": "reason",
    "UserPromptSubmit": "",
    "PreCompact": "trigger",
    "PostCompact": "trigger",
    "Notification": "notification_type",
    "Stop": "",
    "Observed": "",
    "Reflected": "",
    "TaskClosed": "",
    "SubagentStart": "agent_type",
    "SubagentStop": "agent_type",
}
TIMEOUT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class HookSettings:
    """Settings of one hook; `write` names folders and files that it may change beside the workspace."""

    event: str
    command: str
    match: str = ""
    timeout: float = TIMEOUT
    write: tuple[str, ...] = ()


def event_name(name: str) -> str:
    """Return the canonical name of an event, "" for an unknown one."""
    return next((event for event in EVENTS if event.casefold() == name.strip().casefold()), "")
