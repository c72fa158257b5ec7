-- Runs of child threads. A child that is resumed keeps its row: state, call, report and times are those of its last run.
CREATE TABLE child_runs (
  pk INTEGER PRIMARY KEY,
  child_id TEXT NOT NULL UNIQUE REFERENCES threads (id),
  parent_id TEXT NOT NULL REFERENCES threads (id),
  call_id TEXT NOT NULL,
  mode TEXT NOT NULL DEFAULT 'default',
  agent TEXT NOT NULL DEFAULT '',
  goal TEXT NOT NULL,
  background INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'finished', 'partial', 'interrupted')),
  report TEXT,
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  delivered_at INTEGER
);
CREATE INDEX child_runs_by_parent ON child_runs (parent_id, pk);

-- Commands in the background. A process is known by its number and the time at which the system started it.
CREATE TABLE jobs (
  pk INTEGER PRIMARY KEY,
  thread_id TEXT NOT NULL REFERENCES threads (id),
  number INTEGER NOT NULL,
  command TEXT NOT NULL,
  pid INTEGER,
  pid_started INTEGER,
  state TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'ended', 'stopped', 'lost')),
  exit_code INTEGER,
  file TEXT NOT NULL DEFAULT '',
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  reported_at INTEGER,
  UNIQUE (thread_id, number)
);

-- A question beside the thread is a purpose of its own; SQLite cannot change a CHECK in place.
CREATE TABLE steps_with_side (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  thread_id TEXT NOT NULL REFERENCES threads (id),
  message_id TEXT,
  purpose TEXT NOT NULL CHECK (purpose IN ('actor', 'observer', 'reflector', 'side')),
  model TEXT NOT NULL,
  counted_tokens INTEGER NOT NULL DEFAULT 0,
  input_tokens INTEGER NOT NULL DEFAULT 0,
  cached_tokens INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens INTEGER NOT NULL DEFAULT 0,
  cost_usd REAL,
  duration_ms INTEGER NOT NULL DEFAULT 0,
  stop_reason TEXT NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL,
  request TEXT
);
INSERT INTO steps_with_side
    (pk, id, thread_id, message_id, purpose, model, counted_tokens, input_tokens, cached_tokens, cache_write_tokens,
     output_tokens, reasoning_tokens, cost_usd, duration_ms, stop_reason, created_at, request)
  SELECT pk, id, thread_id, message_id, purpose, model, counted_tokens, input_tokens, cached_tokens, cache_write_tokens,
     output_tokens, reasoning_tokens, cost_usd, duration_ms, stop_reason, created_at, request
  FROM steps;
DROP TABLE steps;
ALTER TABLE steps_with_side RENAME TO steps;
CREATE INDEX steps_by_thread ON steps (thread_id, pk);
