"""The statements of the package that go through a whole table, each with the reason why it may."""

from __future__ import annotations

_ALL = "`db check`, `db recover` and the look after a crash read everything there is"
_FEW = "a table of few rows: one for each window, each rule of the user's, each thing that a pane keeps"
_INDEX = "an index that is made anew or put in step is compared with all texts"

# A piece of the statement, or of its plan (`SCAN` and the table): why.
WALKS: dict[str, str] = {
    "NOT json_valid(": _ALL,
    "task_dependencies d CROSS JOIN tasks a": _ALL,
    "FROM tasks t WHERE t.own_blockers != (": _ALL,
    "SELECT id, lookup_key FROM observational_memory": _ALL,
    "SCAN origins USING INDEX origins_by_run": "all imports are listed; once, by hand",
    "HAVING max(message_index) - min(message_index) + 1": _ALL,
    "FROM messages m WHERE m.state = 'saved' AND trim(": _ALL,
    "FROM tasks t WHERE deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM task_words_docsize": _ALL,
    "SELECT pk FROM search_docs d WHERE NOT EXISTS": _INDEX,
    "WHERE NOT EXISTS (SELECT 1 FROM search_docs d WHERE d.pk = s.id)": _INDEX,
    "SELECT count(*) FROM search_": _INDEX,
    "SELECT id, sz FROM": _INDEX,
    "GROUP BY segid": "a row for each page of an index, once after nobody wrote for a while",
    "COVERING INDEX messages_archived": "what is archived, by the index of that alone",
    "coalesce(sum(token_count), 0) FROM messages": "`db stats`, by hand",
    "SELECT id FROM archive": "a table of one row",
    "_old_": "what is left of an index that another one took the place of goes piece by piece",
    "sqlite_schema": "the tables there are",
    "sqlite_stat4": "statistics, there where SQLite made some",
    "IN ()": "none is asked for, and SQLite knows that beforehand",
    " SET resource_id = ? WHERE resource_id = ?": "a moved workspace, once, by hand",
    "FROM ui_state WHERE substr(key": _FEW,
    "UPDATE leases SET": _FEW,
    "DELETE FROM unsent": _FEW,
    "FROM reindexing n": "the few threads that were deleted or restored just now",
    "SELECT id FROM threads WHERE id LIKE": "`thread:` of a query, whose threads are looked up once",
    "SELECT 1 FROM tasks WHERE id = ? UNION ALL": "`task:` of a query, whose handle is looked up once",
    "SCAN ui_state": _FEW,
    "FROM working_memory WHERE actor = ?": "an import that is undone, once, by hand",
    "SCAN import_sources": "the files that were imported, once when they are followed or an import is undone",
    ", ?, ?) WHERE instr(": "`memory forget --for-good`, by hand: the text may stand anywhere",
    "DELETE FROM request_blocks WHERE instr(": "`memory forget --for-good`, by hand: the text may stand anywhere",
    "FROM messages WHERE role IN ('tool', 'user')": "removal for good, by hand: any result may repeat the text",
    "search_trigrams_new": "the index that takes the place of an older one, there while it is made",
    "sqlite_temp_schema": "the one table of the connection",
    "temp.search_pieces": "the trigrams from a part on, in their order; the table is one of the connection",
    "SCAN packing": "the steps that are left of packing what earlier versions wrote: three at most",
    "SELECT id FROM threads WHERE deleted_at IS NOT NULL": "by an index of those that are deleted",
    "WHERE ((((threads.deleted_at IS NULL) AND (threads.parent_id IS NULL)) AND NOT": "`threads list` of all, by hand",
    "WHERE ((threads.deleted_at IS NULL) AND ((coalesce(": "`threads list --all-workspaces`, by hand",
    "(threads.deleted_at IS NULL)) ORDER BY (lower(": "for an error: a thread of that name elsewhere",
}
