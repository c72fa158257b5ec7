"""What each approval mode lets run."""

from __future__ import annotations

APPROVALS = {
    "plan": "reads only, changes nothing",
    "ask": "reads freely, asks before any change or command",
    "edits": "reads and edits files freely, asks before any command",
    "auto": "asks only for what cannot be undone",
}
