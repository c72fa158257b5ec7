"""Compute the share of input that a prompt cache would serve, on rendered requests.

A request may read the longest prefix that is equal to one which an earlier request wrote: prefixes are written at its
breakpoints, and looked up at its own breakpoints and up to twenty blocks before each. Nothing expires.
"""

from __future__ import annotations

import hashlib
import json

from sakti.core.tokens import Counter
from sakti.core.types import Json, Request
from sakti.providers import anthropic

LOOKBACK = 20


class PromptCache:
    """Simulated prompt cache; `share` is over all requests but the first."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._written: set[bytes] = set()
        self._sizes: dict[bytes, int] = {}
        self._cached = self._input = self._requests = 0

    @property
    def share(self) -> float:
        return self._cached / self._input if self._input else 0.0

    def add(self, request: Request) -> None:
        """Count one request, and add its prefixes to the cache."""
        prefix = hashlib.sha256()
        hashes: list[bytes] = []
        totals: list[int] = []
        breaks: list[int] = []
        total = 0
        for role, block in _blocks(anthropic.render(request)):
            marked = "cache_control" in block
            body = json.dumps({k: v for k, v in block.items() if k != "cache_control"}, ensure_ascii=False)
            data = f"{role}\n{body}\n".encode("utf-8", "surrogatepass")
            prefix.update(data)
            total += self._size(data, body)
            hashes.append(prefix.digest())
            totals.append(total)
            if marked:
                breaks.append(len(hashes) - 1)
        places = (p for b in breaks for p in range(b, max(-1, b - LOOKBACK - 1), -1) if hashes[p] in self._written)
        best = max(places, default=-1)
        if self._requests:
            self._input += total
            self._cached += totals[best] if best >= 0 else 0
        self._requests += 1
        self._written.update(hashes[b] for b in breaks)

    def _size(self, data: bytes, body: str) -> int:
        key = hashlib.sha256(data).digest()
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = self._counter.count(body)
        return size


def _blocks(body: Json) -> list[tuple[str, Json]]:
    out: list[tuple[str, Json]] = [("tool", t) for t in body.get("tools", ())]
    out += [("system", b) for b in body.get("system", ())]
    out += [(m["role"], b) for m in body["messages"] for b in m["content"]]
    return out
