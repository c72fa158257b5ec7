-- Files and databases of other programs as they were last read, and up to where.
CREATE TABLE import_sources (
  pk INTEGER PRIMARY KEY,
  program TEXT NOT NULL,
  path TEXT NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime INTEGER NOT NULL,
  offset INTEGER NOT NULL DEFAULT 0,
  head TEXT NOT NULL DEFAULT '',
  counts TEXT NOT NULL DEFAULT '{}',
  last_run TEXT NOT NULL,
  UNIQUE (program, path)
);

-- Entries of other programs, and the message that each became; an entry without a message stands for a whole thread,
-- or for a line that is no message and hangs on the one before it.
CREATE TABLE origins (
  pk INTEGER PRIMARY KEY,
  program TEXT NOT NULL,
  entry_id TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  message_id TEXT,
  run_id TEXT NOT NULL,
  UNIQUE (program, entry_id)
);
CREATE INDEX origins_by_thread ON origins (thread_id);
CREATE INDEX origins_by_run ON origins (run_id, thread_id);
