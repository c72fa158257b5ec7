-- Times are Unix milliseconds; ids are UUIDv7 text beside an integer key that FTS5 refers to.

CREATE TABLE threads (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  resource_id TEXT NOT NULL,
  title TEXT NOT NULL DEFAULT '',
  title_pinned INTEGER NOT NULL DEFAULT 0,
  metadata TEXT NOT NULL DEFAULT '{}',
  parent_id TEXT,
  mode TEXT NOT NULL DEFAULT 'default',
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
);
CREATE INDEX threads_by_resource ON threads (resource_id, updated_at DESC);

CREATE TABLE messages (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  thread_id TEXT NOT NULL REFERENCES threads (id),
  resource_id TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),
  message_index INTEGER NOT NULL,
  format INTEGER NOT NULL DEFAULT 1,
  parts TEXT NOT NULL,
  raw_content TEXT NOT NULL,
  search_text TEXT,                      -- NULL: raw_content is indexed as it is
  injection_text TEXT,
  paths TEXT NOT NULL DEFAULT '[]',
  summary TEXT,
  compaction_level INTEGER NOT NULL DEFAULT 0,
  task_id TEXT,
  token_count INTEGER NOT NULL DEFAULT 0,
  part_tokens TEXT NOT NULL DEFAULT '[]',
  token_counter TEXT NOT NULL DEFAULT '',
  sealed_at INTEGER,
  state TEXT NOT NULL DEFAULT 'saved' CHECK (state IN ('provisional', 'saved', 'withheld')),
  metadata TEXT NOT NULL DEFAULT '{}',
  created_at INTEGER NOT NULL,
  UNIQUE (thread_id, message_index)
);
CREATE INDEX messages_by_task ON messages (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX messages_by_resource ON messages (resource_id, created_at);

-- One row for every model call: what the provider reported beside what we counted.
CREATE TABLE steps (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  thread_id TEXT NOT NULL REFERENCES threads (id),
  message_id TEXT,
  purpose TEXT NOT NULL CHECK (purpose IN ('actor', 'observer', 'reflector')),
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
  created_at INTEGER NOT NULL
);
CREATE INDEX steps_by_thread ON steps (thread_id, pk);

CREATE TABLE observational_memory (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  lookup_key TEXT NOT NULL UNIQUE,
  scope TEXT NOT NULL CHECK (scope IN ('thread', 'resource')),
  thread_id TEXT,
  resource_id TEXT NOT NULL,
  origin_type TEXT NOT NULL DEFAULT 'initialization'
    CHECK (origin_type IN ('initialization', 'observation', 'reflection')),
  generation_count INTEGER NOT NULL DEFAULT 0,
  last_observed_at INTEGER,
  last_reflection_at INTEGER,
  pending_message_tokens INTEGER NOT NULL DEFAULT 0,
  total_tokens_observed INTEGER NOT NULL DEFAULT 0,
  observation_token_count INTEGER NOT NULL DEFAULT 0,
  last_buffered_at_tokens INTEGER NOT NULL DEFAULT 0,
  last_buffered_at_time INTEGER,
  observed_message_ids TEXT NOT NULL DEFAULT '[]',
  observed_timezone TEXT NOT NULL DEFAULT 'UTC',
  metadata TEXT NOT NULL DEFAULT '{}',
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
);

-- How far a record has observed each of its threads: messages with an index up to last_index are covered.
CREATE TABLE observation_cursors (
  record_id TEXT NOT NULL REFERENCES observational_memory (id),
  thread_id TEXT NOT NULL,
  last_index INTEGER NOT NULL DEFAULT -1,
  PRIMARY KEY (record_id, thread_id)
) WITHOUT ROWID;

CREATE TABLE leases (
  record_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN
    ('observing', 'reflecting', 'buffering_observation', 'buffering_reflection', 'compacting', 'turn')),
  owner TEXT NOT NULL,
  operation_id TEXT NOT NULL,
  thread_id TEXT,
  started_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (record_id, kind)
) WITHOUT ROWID;

CREATE TABLE observation_groups (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  record_id TEXT NOT NULL REFERENCES observational_memory (id),
  thread_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('observation', 'reflection')),
  state TEXT NOT NULL CHECK (state IN ('buffered', 'active', 'superseded', 'discarded')),
  mode TEXT NOT NULL DEFAULT 'default',
  first_message_id TEXT,
  last_message_id TEXT,
  first_index INTEGER,
  last_index INTEGER,
  message_ids TEXT NOT NULL DEFAULT '[]',
  message_tokens INTEGER NOT NULL DEFAULT 0,
  observation_tokens INTEGER NOT NULL DEFAULT 0,
  text TEXT NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0,
  merged_group_ids TEXT NOT NULL DEFAULT '[]',
  cycle_id TEXT NOT NULL DEFAULT '',
  operation_id TEXT NOT NULL DEFAULT '',
  model TEXT NOT NULL DEFAULT '',
  prompt_hash TEXT NOT NULL DEFAULT '',
  current_task TEXT,
  suggested_response TEXT,
  metadata TEXT NOT NULL DEFAULT '{}',
  created_at INTEGER NOT NULL,
  activated_at INTEGER,
  superseded_at INTEGER,
  discarded_at INTEGER
);
CREATE INDEX groups_by_record ON observation_groups (record_id, state, pk);
CREATE INDEX groups_by_range ON observation_groups (thread_id, first_index, last_index);
CREATE VIEW reflections AS SELECT * FROM observation_groups WHERE kind = 'reflection';

CREATE TABLE observations (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  group_id TEXT NOT NULL REFERENCES observation_groups (id),
  thread_id TEXT NOT NULL,
  resource_id TEXT NOT NULL,
  line INTEGER NOT NULL,
  depth INTEGER NOT NULL DEFAULT 0,
  mode TEXT NOT NULL DEFAULT 'default',
  observed_date TEXT NOT NULL DEFAULT '',
  time TEXT NOT NULL DEFAULT '',
  priority TEXT NOT NULL DEFAULT 'low' CHECK (priority IN ('high', 'medium', 'low', 'done', 'none')),
  category TEXT NOT NULL DEFAULT '',
  content TEXT NOT NULL,
  metadata TEXT NOT NULL DEFAULT '{}',
  pinned INTEGER NOT NULL DEFAULT 0,
  edited TEXT,
  forgotten INTEGER NOT NULL DEFAULT 0,
  flags TEXT NOT NULL DEFAULT '[]',
  created_at INTEGER NOT NULL
);
CREATE INDEX observations_by_group ON observations (group_id, line);
CREATE INDEX observations_pinned ON observations (resource_id, pinned) WHERE pinned = 1;

CREATE TABLE compaction_records (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  thread_id TEXT NOT NULL REFERENCES threads (id),
  resource_id TEXT NOT NULL,
  record_id TEXT NOT NULL,
  focus TEXT NOT NULL DEFAULT '',
  first_index INTEGER,
  last_index INTEGER,
  message_count INTEGER NOT NULL,
  summary TEXT NOT NULL DEFAULT '',
  original_message_ids TEXT NOT NULL,
  group_ids TEXT NOT NULL DEFAULT '[]',
  before TEXT NOT NULL DEFAULT '{}',     -- record and cursor as they were, for undo
  tokens_before INTEGER NOT NULL,
  tokens_after INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  undone_at INTEGER
);
CREATE INDEX compactions_by_thread ON compaction_records (thread_id, pk);

CREATE TABLE working_memory (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  scope TEXT NOT NULL CHECK (scope IN ('resource', 'thread')),
  owner_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  content TEXT NOT NULL,
  tokens INTEGER NOT NULL DEFAULT 0,
  actor TEXT NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL,
  UNIQUE (scope, owner_id, version)
);

CREATE TABLE tasks (
  pk INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  resource_id TEXT NOT NULL,
  handle TEXT NOT NULL,
  title TEXT NOT NULL,
  description TEXT NOT NULL DEFAULT '',
  status TEXT NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'in_progress', 'closed')),
  priority INTEGER NOT NULL DEFAULT 2 CHECK (priority BETWEEN 0 AND 4),
  type TEXT NOT NULL DEFAULT 'task' CHECK (type IN ('bug', 'feature', 'task', 'epic', 'chore')),
  assignee TEXT,
  session_id TEXT,
  claimed_at INTEGER,
  claim_expires_at INTEGER,
  thread_id TEXT,
  close_reason TEXT CHECK (close_reason IN ('completed', 'wontfix', 'duplicate')),
  summary TEXT,
  compaction_level INTEGER NOT NULL DEFAULT 0,
  compacted_at INTEGER,
  original TEXT,
  metadata TEXT NOT NULL DEFAULT '{}',
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  closed_at INTEGER,
  deleted_at INTEGER,
  own_blockers INTEGER NOT NULL DEFAULT 0,  -- these three are kept by store/task_graph.py: open tasks it waits for,
  open_children INTEGER NOT NULL DEFAULT 0, -- open tasks that are its children,
  held INTEGER NOT NULL DEFAULT 0,          -- whether it or an ancestor waits for an open task
  UNIQUE (resource_id, handle)
);
CREATE INDEX tasks_by_status ON tasks (resource_id, status, priority, created_at);
CREATE INDEX tasks_by_priority ON tasks (resource_id, priority, created_at, pk, status, type, assignee, deleted_at);
CREATE INDEX tasks_ready ON tasks (resource_id, priority, created_at, pk, status, held, open_children, deleted_at)
  WHERE status = 'open' AND held = 0 AND open_children = 0 AND deleted_at IS NULL;
CREATE INDEX tasks_blocked ON tasks (resource_id, priority, created_at, pk, status, held, deleted_at)
  WHERE status = 'open' AND held = 1 AND deleted_at IS NULL;
CREATE INDEX tasks_closed ON tasks (resource_id, closed_at, compaction_level)
  WHERE status = 'closed' AND deleted_at IS NULL;

CREATE VIRTUAL TABLE task_words USING fts5 (
  title, body, idents,
  content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);

CREATE TABLE task_dependencies (
  task_id TEXT NOT NULL REFERENCES tasks (id),
  depends_on TEXT NOT NULL REFERENCES tasks (id),
  type TEXT NOT NULL CHECK (type IN ('blocks', 'parent-child', 'related', 'discovered-from')),
  created_at INTEGER NOT NULL,
  PRIMARY KEY (task_id, depends_on, type)
) WITHOUT ROWID;
CREATE INDEX dependencies_by_target ON task_dependencies (depends_on, type);

CREATE TABLE task_labels (
  task_id TEXT NOT NULL REFERENCES tasks (id),
  label TEXT NOT NULL,
  PRIMARY KEY (task_id, label)
) WITHOUT ROWID;
CREATE INDEX labels_by_name ON task_labels (label);

CREATE TABLE task_messages (
  task_id TEXT NOT NULL REFERENCES tasks (id),
  message_id TEXT NOT NULL REFERENCES messages (id),
  relation TEXT NOT NULL CHECK (relation IN ('output', 'reference')),
  created_at INTEGER NOT NULL,
  PRIMARY KEY (task_id, message_id)
) WITHOUT ROWID;
CREATE INDEX task_messages_by_message ON task_messages (message_id);
-- What is written while a task is worked on is a sign of life of its claim.
CREATE TRIGGER claim_renewed AFTER INSERT ON messages WHEN new.task_id IS NOT NULL BEGIN
  UPDATE tasks SET claim_expires_at = new.created_at + 3600000
    WHERE id = new.task_id AND status = 'in_progress' AND claim_expires_at < new.created_at + 1800000;
END;

CREATE TABLE task_events (
  pk INTEGER PRIMARY KEY,
  task_id TEXT NOT NULL,
  resource_id TEXT NOT NULL,
  action TEXT NOT NULL,
  actor TEXT NOT NULL DEFAULT '',
  before TEXT,
  after TEXT,
  created_at INTEGER NOT NULL,
  undone_at INTEGER
);
CREATE INDEX task_events_by_resource ON task_events (resource_id, pk);
CREATE INDEX task_events_by_task ON task_events (task_id, pk);

-- What search looks at: one row a message, observation line or task, with what code derived from its text.
CREATE TABLE search_docs (
  pk INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('message', 'observation', 'reflection', 'task', 'working_memory')),
  doc_id TEXT NOT NULL,
  resource_id TEXT NOT NULL,
  thread_id TEXT,
  task_id TEXT,
  role TEXT NOT NULL DEFAULT '',
  position INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  text TEXT NOT NULL,
  idents TEXT NOT NULL DEFAULT '',
  prev TEXT NOT NULL DEFAULT '',
  paths TEXT NOT NULL DEFAULT '',
  UNIQUE (kind, doc_id)
);
CREATE INDEX search_docs_by_thread ON search_docs (thread_id, kind, position);

CREATE VIRTUAL TABLE search_words USING fts5 (
  text, idents, prev,
  content = 'search_docs', content_rowid = 'pk',
  tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE search_trigrams USING fts5 (
  text,
  content = 'search_docs', content_rowid = 'pk', tokenize = 'trigram'
);
CREATE VIRTUAL TABLE search_vocabulary USING fts5vocab (search_words, row);
CREATE TRIGGER search_docs_inserted AFTER INSERT ON search_docs BEGIN
  INSERT INTO search_words (rowid, text, idents, prev) VALUES (new.pk, new.text, new.idents, new.prev);
  INSERT INTO search_trigrams (rowid, text) VALUES (new.pk, new.text);
END;
CREATE TRIGGER search_docs_deleted AFTER DELETE ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev)
    VALUES ('delete', old.pk, old.text, old.idents, old.prev);
  INSERT INTO search_trigrams (search_trigrams, rowid, text) VALUES ('delete', old.pk, old.text);
END;
CREATE TRIGGER search_docs_updated AFTER UPDATE OF text, idents, prev ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev)
    VALUES ('delete', old.pk, old.text, old.idents, old.prev);
  INSERT INTO search_trigrams (search_trigrams, rowid, text) VALUES ('delete', old.pk, old.text);
  INSERT INTO search_words (rowid, text, idents, prev) VALUES (new.pk, new.text, new.idents, new.prev);
  INSERT INTO search_trigrams (rowid, text) VALUES (new.pk, new.text);
END;

-- Small things of the user's: prompt history, approval rules that "always" saved, the state of the panes.
CREATE TABLE prompt_history (
  pk INTEGER PRIMARY KEY,
  resource_id TEXT NOT NULL,
  text TEXT NOT NULL,
  created_at INTEGER NOT NULL
);
CREATE INDEX prompt_history_by_resource ON prompt_history (resource_id, pk);

CREATE TABLE approval_rules (
  resource_id TEXT NOT NULL,
  rule TEXT NOT NULL,
  decision TEXT NOT NULL CHECK (decision IN ('allow', 'ask', 'deny')),
  created_at INTEGER NOT NULL,
  PRIMARY KEY (resource_id, rule)
) WITHOUT ROWID;

CREATE TABLE ui_state (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;
