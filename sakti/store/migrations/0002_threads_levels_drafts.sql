-- Deleted threads, summaries of older messages, drafts that outlive their window.

ALTER TABLE threads ADD COLUMN deleted_at INTEGER;

CREATE INDEX messages_summarised ON messages (thread_id, message_index) WHERE injection_text IS NOT NULL;

-- What stands in a window's prompt and queue: it comes back when that window is gone. owner '' = it was left.
CREATE TABLE unsent (
  pk INTEGER PRIMARY KEY,
  resource_id TEXT NOT NULL,
  owner TEXT NOT NULL,
  draft TEXT NOT NULL,
  queued TEXT NOT NULL CHECK (json_valid(queued)),
  updated_at INTEGER NOT NULL
);
CREATE INDEX unsent_by_resource ON unsent (resource_id, owner);

-- The word index gets a column, so it is made anew.
DROP TRIGGER search_docs_inserted;
DROP TRIGGER search_docs_deleted;
DROP TRIGGER search_docs_updated;
DROP TABLE search_vocabulary;
DROP TABLE search_words;
ALTER TABLE search_docs ADD COLUMN summary TEXT NOT NULL DEFAULT '';
CREATE VIRTUAL TABLE search_words USING fts5 (
  text, idents, prev, summary,
  content = 'search_docs', content_rowid = 'pk',
  tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO search_words (search_words) VALUES ('rebuild');
-- Merging is not done by the write that happens to be the one too many, but every so often behind it (database.py).
INSERT INTO search_words (search_words, rank) VALUES ('automerge', 0), ('crisismerge', 200);
INSERT INTO search_trigrams (search_trigrams, rank) VALUES ('automerge', 0), ('crisismerge', 200);
CREATE VIRTUAL TABLE search_vocabulary USING fts5vocab (search_words, row);
-- What is still written to a deleted thread is not found; lines of a log that the workspace shares are not the thread's.
CREATE TRIGGER search_docs_of_deleted BEFORE INSERT ON search_docs
  WHEN new.kind IN ('message', 'observation', 'reflection')
    AND EXISTS (SELECT 1 FROM threads WHERE id = new.thread_id AND deleted_at IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM observations o JOIN observation_groups g ON g.id = o.group_id
      JOIN observational_memory r ON r.id = g.record_id WHERE o.id = new.doc_id AND r.scope = 'resource')
BEGIN
  SELECT RAISE(IGNORE);
END;
CREATE TRIGGER search_docs_inserted AFTER INSERT ON search_docs BEGIN
  INSERT INTO search_words (rowid, text, idents, prev, summary)
    VALUES (new.pk, new.text, new.idents, new.prev, new.summary);
  INSERT INTO search_trigrams (rowid, text) VALUES (new.pk, new.text);
END;
CREATE TRIGGER search_docs_deleted AFTER DELETE ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    VALUES ('delete', old.pk, old.text, old.idents, old.prev, old.summary);
  INSERT INTO search_trigrams (search_trigrams, rowid, text) VALUES ('delete', old.pk, old.text);
END;
CREATE TRIGGER search_docs_updated AFTER UPDATE OF text, idents, prev ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    VALUES ('delete', old.pk, old.text, old.idents, old.prev, old.summary);
  INSERT INTO search_trigrams (search_trigrams, rowid, text) VALUES ('delete', old.pk, old.text);
  INSERT INTO search_words (rowid, text, idents, prev, summary)
    VALUES (new.pk, new.text, new.idents, new.prev, new.summary);
  INSERT INTO search_trigrams (rowid, text) VALUES (new.pk, new.text);
END;
CREATE TRIGGER search_docs_summarised AFTER UPDATE OF summary ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    VALUES ('delete', old.pk, old.text, old.idents, old.prev, old.summary);
  INSERT INTO search_words (rowid, text, idents, prev, summary)
    VALUES (new.pk, new.text, new.idents, new.prev, new.summary);
END;
