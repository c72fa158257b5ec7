-- What is removed for good leaves nothing elsewhere: carry-over by reference, prompts by thread, masks as they are today.

-- What a new thread begins with of earlier work, by where each line of it comes from: what is removed there is not told
-- here either. text: the line as it stood when the thread began.
CREATE TABLE carry_over (
  thread_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('thread', 'line', 'task')),
  source_id TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (thread_id, position)
) WITHOUT ROWID;
CREATE INDEX carry_over_by_source ON carry_over (source_id);
-- Nothing tells where the lines of older threads come from.
UPDATE threads SET metadata = json_remove(metadata, '$.carry_over')
  WHERE json_valid(metadata) AND json_type(metadata, '$.carry_over') IS NOT NULL;

-- What was typed goes with the thread in which it was.
ALTER TABLE prompt_history ADD COLUMN thread_id TEXT;
ALTER TABLE unsent ADD COLUMN thread_id TEXT;
CREATE INDEX prompt_history_by_thread ON prompt_history (thread_id) WHERE thread_id IS NOT NULL;

-- Few rows are deleted: they are found without a walk through the others.
CREATE INDEX threads_deleted ON threads (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX tasks_deleted ON tasks (deleted_at) WHERE deleted_at IS NOT NULL;

-- Titles and the index of tasks hold no secrets (the functions are those of store/migrate.py).
UPDATE threads SET title = sakti_masked(title) WHERE title != sakti_masked(title);
INSERT OR REPLACE INTO task_words (rowid, title, body, idents)
  SELECT pk, sakti_masked(title), sakti_masked(body), sakti_identifiers(sakti_masked(title || char(10) || body))
  FROM (SELECT pk, title, description || char(10) || coalesce(summary, '') AS body FROM tasks WHERE deleted_at IS NULL)
  WHERE title || body != sakti_masked(title) || sakti_masked(body);
