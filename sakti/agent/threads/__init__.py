"""Offer the actions of people on entire threads.

`actions` renames, forks, deletes and restores; `export` writes files; `erasure` removes for good; `history` shows the
last compaction and past requests; `reindexing` updates the search index.
"""
