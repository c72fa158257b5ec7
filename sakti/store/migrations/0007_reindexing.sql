-- Threads that were deleted or restored and whose rows in search are still to go or to come back: whoever comes next goes
-- on with it. operation_id: of the newest deletion or restoration; work for an earlier one stops.
CREATE TABLE reindexing (
  thread_id TEXT PRIMARY KEY,
  operation_id TEXT NOT NULL
) WITHOUT ROWID;
