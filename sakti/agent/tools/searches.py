"""Bounds and notes about omitted files, shared by glob and grep."""

from __future__ import annotations

from sakti.agent.tools.files import not_shown
from sakti.agent.tools.walk import Listing

MAX_RESULTS = 200
SECONDS = 20.0  # for one search


def notes(found: Listing, secret: list[str]) -> list[str]:
    """Return notes of an incomplete listing and of files left out as secret."""
    late = [] if found.complete else [f"[Stopped after {SECONDS:.0f} s: not every folder was looked into]"]
    return [*late, *([not_shown(secret)] if secret else [])]
