"""What an engine knows of its thread without asking the disk: raw messages, the log, what is ready to go
in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sakti.core.types import Message, Thread
from sakti.memory import policy
from sakti.store.memory import Group, Record


class Window:
    """`messages` are those behind the cursor, in order; `pending` their tokens. `active` is the log,
    `buffered` the finished groups that are not in it yet, `reflection` a finished one that waits,
    `corrections` how often people had changed the log when it was read."""

    def __init__(
        self,
        thread: Thread,
        record: Record,
        cursor: int,
        *,
        messages: Sequence[Message] = (),
        active: Sequence[Group] = (),
        buffered: Sequence[Group] = (),
        corrections: int = 0,
    ) -> None:
        self.thread = thread
        self.record = record
        self.cursor = cursor
        self.messages = [m for m in messages if m.state != "withheld"]
        self.pending = sum(m.tokens for m in self.messages)
        self.active = list(active)
        self.buffered = sorted(
            (g for g in buffered if g.kind == "observation" and g.thread_id == thread.id),
            key=lambda g: g.first_index or 0,
        )
        self.reflection = next((g for g in buffered if g.kind == "reflection"), None)
        self.corrections = corrections
        self.turn_users: list[Message] = []

    def add(self, message: Message) -> bool:
        """A message that was just made durable; False for one that is known already."""
        if message.index <= self.cursor or (self.messages and message.index <= self.messages[-1].index):
            return False
        self.messages.append(message)
        self.pending += message.tokens
        return True

    def drop_through(self, index: int) -> None:
        """Messages up to `index` are observed: they leave."""
        self.messages = [m for m in self.messages if m.index > index]
        self.pending = sum(m.tokens for m in self.messages)
        self.cursor = max(self.cursor, index)

    def forget(self, ids: set[str]) -> None:
        self.messages = [m for m in self.messages if m.id not in ids]
        self.turn_users = [m for m in self.turn_users if m.id not in ids]
        self.pending = sum(m.tokens for m in self.messages)

    def replace(self, fresh: dict[str, Message]) -> None:
        """Put newer versions of some messages in place (a provisional one was confirmed or withheld)."""
        self.messages = [n for m in self.messages if (n := fresh.get(m.id, m)).state != "withheld"]
        self.pending = sum(m.tokens for m in self.messages)

    def group_ids(self) -> frozenset[str]:
        """Ids of the groups in the log and of those that wait to enter it."""
        waiting = [*self.buffered, *([self.reflection] if self.reflection else [])]
        return frozenset(g.id for g in (*self.active, *waiting))

    def ready(self) -> list[Group]:
        """Buffered groups that can be activated: from the cursor on without a hole."""
        out: list[Group] = []
        position = 0
        for group in self.buffered:
            while position < len(self.messages) and self.messages[position].index < (group.first_index or 0):
                if self.messages[position].state == "saved":
                    return out
                position += 1
            out.append(group)
            while position < len(self.messages) and self.messages[position].index <= (group.last_index or 0):
                position += 1
        return out

    def uncovered(self) -> list[Message]:
        """The first run of messages that no buffered group covers, up to the first that may not be observed
        yet."""
        ready = self.ready()
        start = ready[-1].last_index if ready else self.cursor
        following = next((g.first_index for g in self.buffered[len(ready) :]), None)
        out: list[Message] = []
        for message in self.messages:
            if message.index <= (start if start is not None else -1):
                continue
            if message.state != "saved" or (following is not None and message.index >= following):
                break
            out.append(message)
        return out

    def observable(self) -> list[Message]:
        """What a background observation may read now: no running tool call, not the prompt that was just
        asked."""
        messages = list(policy.select_safe_buffer_prefix(self.uncovered(), by_time=False))
        while messages and messages[-1].role == "user" and messages[-1].index == self.messages[-1].index:
            messages.pop()
        return messages


def slices(messages: Sequence[Message], limit: int) -> list[list[Message]]:
    """Consecutive pieces of at most `limit` tokens each; an exchange that is larger stays one piece."""
    cuts = policy.safe_cuts(messages)
    if cuts[-1] != len(messages):
        cuts.append(len(messages))
    out: list[list[Message]] = []
    tokens = 0
    for start, end in itertools.pairwise(cuts):
        piece = list(messages[start:end])
        size = sum(m.tokens for m in piece)
        if out and tokens + size <= limit:
            out[-1] += piece
            tokens += size
        else:
            out.append(piece)
            tokens = size
    return out


def sync_cut(messages: Sequence[Message], threshold: int, floor: float) -> int:
    """How many of `messages` a step that has to wait observes: as many as leave the newest `floor` tokens
    raw, or, where that is not enough to come below the threshold, as few as are. The last exchange always
    stays."""
    cuts = [c for c in policy.safe_cuts(messages) if c < len(messages)]
    if len(cuts) < 2:
        return 0
    suffix = _suffix_sums([m.tokens for m in messages])
    rest = {c: suffix[c] for c in cuts}
    keeping = [c for c in cuts if rest[c] >= floor]
    if keeping and keeping[-1] and rest[keeping[-1]] < threshold:
        return keeping[-1]
    return next((c for c in cuts[1:] if rest[c] < threshold), cuts[-1])


def newest_that_fit(messages: Sequence[Message], room: int, keep: Sequence[Message]) -> list[Message]:
    """The newest whole exchanges of at most `room` tokens. The last exchange and the messages of `keep` stay
    whatever they cost: a request without them would be no answer."""
    kept = {m.id for m in keep}
    room -= sum(m.tokens for m in keep)
    cuts = [c for c in policy.safe_cuts(messages) if c < len(messages)]
    suffix = _suffix_sums([0 if m.id in kept else m.tokens for m in messages])
    start = next((c for c in cuts if suffix[c] <= room), cuts[-1] if cuts else 0)
    return [m for i, m in enumerate(messages) if i >= start or m.id in kept]


def _suffix_sums(sizes: Sequence[int]) -> list[int]:
    return [*itertools.accumulate(reversed(sizes), initial=0)][::-1]
