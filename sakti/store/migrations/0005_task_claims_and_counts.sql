-- Claims that follow their chat, the state of a task as one column, counts that are kept, changes undone together.

-- host:pid:uuid of the process that works in the thread which holds the claim; NULL for shells and the user.
ALTER TABLE tasks ADD COLUMN claim_owner TEXT;
-- A claim belonged to a session; from now on it belongs to the thread that it was made in.
UPDATE tasks SET session_id = thread_id
  WHERE status = 'in_progress' AND thread_id IS NOT NULL AND session_id IS NOT NULL
    AND session_id NOT LIKE 'shell:%' AND session_id NOT LIKE 'user:%';

DROP INDEX tasks_by_status;
DROP INDEX tasks_by_priority;
DROP INDEX tasks_ready;
DROP INDEX tasks_blocked;

-- What is kept of the graph is counted once from the edges, whatever an earlier version or another program left there.
UPDATE tasks SET
  own_blockers = (SELECT count(*) FROM task_dependencies d JOIN tasks b ON b.id = d.depends_on
    WHERE d.task_id = tasks.id AND d.type = 'blocks' AND b.status != 'closed' AND b.deleted_at IS NULL),
  open_children = (SELECT count(*) FROM task_dependencies d JOIN tasks c ON c.id = d.task_id
    WHERE d.depends_on = tasks.id AND d.type = 'parent-child' AND c.status != 'closed' AND c.deleted_at IS NULL);
WITH RECURSIVE waiting (id) AS (
  SELECT id FROM tasks WHERE own_blockers > 0
  UNION SELECT d.task_id FROM waiting w
    CROSS JOIN tasks p ON p.id = w.id AND p.deleted_at IS NULL
    CROSS JOIN task_dependencies d ON d.depends_on = p.id AND d.type = 'parent-child')
UPDATE tasks SET held = id IN (SELECT id FROM waiting);

-- Where a task stands on the board. It is computed from columns of its own row, never written.
ALTER TABLE tasks ADD COLUMN state TEXT GENERATED ALWAYS AS (CASE
  WHEN deleted_at IS NOT NULL THEN 'deleted'
  WHEN status != 'open' THEN status
  WHEN held = 1 THEN 'blocked'
  WHEN open_children > 0 THEN 'container'
  ELSE 'ready' END) VIRTUAL;
CREATE INDEX tasks_by_state ON tasks (resource_id, state, priority, created_at, pk, type);
CREATE INDEX tasks_by_assignee ON tasks (resource_id, assignee, priority, created_at) WHERE assignee IS NOT NULL;
CREATE INDEX tasks_claimed ON tasks (resource_id, session_id, claimed_at) WHERE session_id IS NOT NULL;

-- How many tasks of a type stand where, kept by the statement that moves one: no question walks the board to count it.
CREATE TABLE task_counts (
  resource_id TEXT NOT NULL,
  state TEXT NOT NULL,
  type TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (resource_id, state, type)
) WITHOUT ROWID;
INSERT INTO task_counts SELECT resource_id, state, type, count(*) FROM tasks GROUP BY 1, 2, 3;
CREATE TRIGGER task_counted AFTER INSERT ON tasks BEGIN
  INSERT INTO task_counts VALUES (new.resource_id, new.state, new.type, 1)
    ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER task_recounted AFTER UPDATE OF status, type, held, open_children, deleted_at ON tasks
  WHEN old.state != new.state OR old.type != new.type
BEGIN
  UPDATE task_counts SET count = count - 1
    WHERE resource_id = old.resource_id AND state = old.state AND type = old.type;
  INSERT INTO task_counts VALUES (new.resource_id, new.state, new.type, 1)
    ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER task_uncounted AFTER DELETE ON tasks BEGIN
  UPDATE task_counts SET count = count - 1
    WHERE resource_id = old.resource_id AND state = old.state AND type = old.type;
END;

-- Events that one command made and one undo takes back: an import.
ALTER TABLE task_events ADD COLUMN batch TEXT;
CREATE INDEX task_events_by_batch ON task_events (batch) WHERE batch IS NOT NULL;
