"""Name the marks of a database file: bits of `PRAGMA user_version`."""

from __future__ import annotations

CLEAN = 1  # the free space holds nothing of what was removed; the file was made, or written anew, since that is kept up
PENDING = 4  # the write-ahead log may hold more than the file (`log_mark`)
UNMERGED = 2  # the search indexes hold words of texts that were taken out of them
