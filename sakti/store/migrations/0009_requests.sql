-- What each step of the actor sent, so that its request can be shown again. A message is named by its index, everything
-- else (blocks of the system prompt, tools, what was told for one call only) stands here once a thread.
CREATE TABLE request_blocks (
  pk INTEGER PRIMARY KEY,
  thread_id TEXT NOT NULL REFERENCES threads (id),
  hash TEXT NOT NULL,
  text TEXT NOT NULL,
  UNIQUE (thread_id, hash)
);
ALTER TABLE steps ADD COLUMN request TEXT;
