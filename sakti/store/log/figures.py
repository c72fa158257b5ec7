"""Compute a memory's figures from its rows: last passes, generations, faithfulness findings.

Raw SQL: a pane queries it at every step.
"""

from __future__ import annotations

from msgspec import Struct

from sakti.store.connection import Database
from sakti.store.log.lines import Generation, generations


class Pass(Struct, frozen=True):
    """One observation or reflection: tokens in and out, the model, when (Unix ms)."""

    tokens_before: int
    tokens_after: int
    model: str
    created_at: int

    @property
    def ratio(self) -> float:
        """Return output tokens per input token."""
        return self.tokens_after / self.tokens_before if self.tokens_before else 0.0


class Figures(Struct, frozen=True):
    """Figures of one record.

    `observation` and `reflection` are the newest that count; `generations` leave out discarded and undone ones.
    Findings of the faithfulness check: lines of the log with `claims` that their source does not have; important
    lines and paths that the log's reflections dropped. `ready_lines` are made and not yet in the prompt.
    """

    observation: Pass | None = None
    reflection: Pass | None = None
    generations: tuple[Generation, ...] = ()
    marked_lines: int = 0
    claims: int = 0
    dropped_lines: int = 0
    dropped_paths: int = 0
    ready_lines: int = 0


TURNS = 10  # newest ones that a forecast looks at: few make it jump
ENOUGH = 5  # of them, from which on the largest and the smallest are left out


def turn_tokens(db: Database, thread_id: str) -> int | None:
    """Return the tokens of messages that a turn brought lately; None before there are two.

    The mean of the newest turns, without the largest and the smallest where there are enough.
    """
    rows = db.execute_sql(
        "SELECT role, token_count FROM messages WHERE thread_id = ? AND state = 'saved'"
        " ORDER BY message_index DESC LIMIT 400",
        (thread_id,),
    ).fetchall()
    turns: list[int] = []
    under_way = 0
    for role, tokens in rows:
        under_way += tokens
        if role == "user":
            turns.append(under_way)
            under_way = 0
        if len(turns) == TURNS:
            break
    if len(turns) >= ENOUGH:
        turns = sorted(turns)[1:-1]
    return None if len(turns) < 2 else sum(turns) // len(turns)


def figures(db: Database, record_id: str) -> Figures:
    """Compute a record's figures from stored numbers. Read-only."""
    last = db.execute_sql(
        "SELECT message_tokens, observation_tokens, model, created_at FROM observation_groups"
        " WHERE record_id = ? AND state IN ('buffered', 'active', 'superseded') AND kind = 'observation'"
        " AND observation_tokens > 0 ORDER BY pk DESC LIMIT 1",
        (record_id,),
    ).fetchone()
    marked, claims = db.execute_sql(
        "SELECT count(*), coalesce(sum(json_array_length(o.flags)), 0) FROM observation_groups g"
        " JOIN observations o ON o.group_id = g.id"
        " WHERE g.record_id = ? AND g.state = 'active' AND o.forgotten = 0 AND o.flags != '[]'",
        (record_id,),
    ).fetchone()
    lines, paths = db.execute_sql(
        "SELECT coalesce(sum(json_array_length(metadata, '$.dropped.lines')), 0),"
        " coalesce(sum(json_array_length(metadata, '$.dropped.paths')), 0) FROM observation_groups"
        " WHERE record_id = ? AND state = 'active' AND kind = 'reflection'",
        (record_id,),
    ).fetchone()
    (ready,) = db.execute_sql(
        "SELECT count(*) FROM observation_groups g JOIN observations o ON o.group_id = g.id"
        " WHERE g.record_id = ? AND g.kind = 'observation' AND g.state = 'buffered' AND o.forgotten = 0",
        (record_id,),
    ).fetchone()
    lasting = tuple(g for g in generations(db, record_id) if g.state != "discarded")
    reflected = (
        Pass(lasting[-1].input_tokens, lasting[-1].tokens, lasting[-1].model, lasting[-1].created_at)
        if lasting
        else None
    )
    return Figures(Pass(*last) if last else None, reflected, lasting, marked, claims, lines, paths, ready)
