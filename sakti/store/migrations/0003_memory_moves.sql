-- How far a thread is observed follows from its groups, so nothing else says it; leases are per thread.

-- A fork in a shared log has messages that the log says already: a group without text stands for them.
INSERT INTO observation_groups (id, record_id, thread_id, kind, state, first_index, last_index, text, metadata,
    created_at, activated_at)
  SELECT 'fork-' || t.id, c.record_id, t.id, 'observation', 'active', 0,
    min(c.last_index, json_extract(t.metadata, '$.forked_at')), '', '{"forked": true}', t.created_at, t.created_at
  FROM observation_cursors c
  JOIN threads t ON t.id = c.thread_id
  JOIN observational_memory r ON r.id = c.record_id AND r.scope = 'resource'
  WHERE json_extract(t.metadata, '$.forked_at') IS NOT NULL AND c.last_index >= 0
    AND NOT EXISTS (SELECT 1 FROM observation_groups g WHERE g.record_id = c.record_id AND g.thread_id = c.thread_id
      AND g.first_index <= min(c.last_index, json_extract(t.metadata, '$.forked_at')));
-- Earlier versions could discard groups behind the cursor: what it said is looked at once, when memory is opened.
UPDATE observational_memory SET metadata = json_set(metadata, '$.observed_to', (
    SELECT json_group_object(thread_id, last_index) FROM observation_cursors WHERE record_id = observational_memory.id))
  WHERE EXISTS (SELECT 1 FROM observation_cursors WHERE record_id = observational_memory.id);
DROP TABLE observation_cursors;

-- Where a group's text comes from; only that of a thread has a range of messages.
ALTER TABLE observation_groups ADD COLUMN origin TEXT NOT NULL DEFAULT 'thread'
  CHECK (origin IN ('thread', 'report', 'import'));
DROP INDEX groups_by_range;
CREATE INDEX groups_by_range ON observation_groups (thread_id, first_index, last_index, record_id, kind, state);
CREATE INDEX groups_by_thread ON observation_groups (record_id, thread_id, kind, state, last_index);

-- Counts every change of a memory: who has read it knows by this number whether it is still as it was.
ALTER TABLE observational_memory ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

-- Filled by nothing.
ALTER TABLE observational_memory DROP COLUMN observed_message_ids;

-- One kind for whatever observes a thread, one for whatever condenses a log ('' for its thread), one for a turn.
DROP TABLE leases;
CREATE TABLE leases (
  record_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('observing', 'reflecting', 'turn')),
  thread_id TEXT NOT NULL DEFAULT '',
  owner TEXT NOT NULL,
  operation_id TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (record_id, kind, thread_id)
) WITHOUT ROWID;
