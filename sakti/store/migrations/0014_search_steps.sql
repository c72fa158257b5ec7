-- A search of the web is a purpose of its own; SQLite cannot change a CHECK in place.
CREATE TABLE steps_with_search (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  thread_id TEXT NOT NULL REFERENCES threads (id),
  message_id TEXT,
  purpose TEXT NOT NULL CHECK (purpose IN ('actor', 'observer', 'reflector', 'search', 'side')),
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
INSERT INTO steps_with_search
    (pk, id, thread_id, message_id, purpose, model, counted_tokens, input_tokens, cached_tokens, cache_write_tokens,
     output_tokens, reasoning_tokens, cost_usd, duration_ms, stop_reason, created_at, request)
  SELECT pk, id, thread_id, message_id, purpose, model, counted_tokens, input_tokens, cached_tokens, cache_write_tokens,
     output_tokens, reasoning_tokens, cost_usd, duration_ms, stop_reason, created_at, request
  FROM steps;
DROP TABLE steps;
ALTER TABLE steps_with_search RENAME TO steps;
CREATE INDEX steps_by_thread ON steps (thread_id, pk);
