-- A text stands in the file once: messages hold it, the search indexes refer to it (the functions are those of
-- store/functions.py). What older versions wrote is packed in pieces afterwards (store/packing.py); search finds all of
-- it meanwhile.

DROP TRIGGER search_docs_of_deleted;
DROP TRIGGER search_docs_inserted;
DROP TRIGGER search_docs_deleted;
DROP TRIGGER search_docs_updated;
DROP TRIGGER search_docs_summarised;

-- 0: as an earlier version wrote it, text, idents and prev as they were indexed. 1: idents are computed, and where text
-- or prev is empty, it is that of a message: message_pk and prev_pk are pk of messages.
ALTER TABLE search_docs ADD COLUMN form INTEGER NOT NULL DEFAULT 0;
ALTER TABLE search_docs ADD COLUMN message_pk INTEGER;
ALTER TABLE search_docs ADD COLUMN prev_pk INTEGER;

-- What search looks at: every text as it was said, masked. The lengths are those of search/index.py.
CREATE VIEW search_texts AS SELECT
  pk, kind, doc_id, resource_id, thread_id, task_id, role, position, created_at, text,
  CASE form WHEN 0 THEN kept_idents ELSE sakti_identifiers(text) END AS idents, prev, summary, paths, form
FROM (SELECT
  pk, kind, doc_id, resource_id, thread_id, task_id, role, position, created_at,
  CASE WHEN text != '' OR message_pk IS NULL THEN text ELSE coalesce(
    (SELECT substr(coalesce(m.search_text, sakti_text(m.raw_content, m.parts)), 1, 100000)
      FROM messages m WHERE m.pk = message_pk), '') END AS text,
  CASE WHEN prev != '' OR prev_pk IS NULL THEN prev ELSE coalesce(
    (SELECT substr(coalesce(m.search_text, sakti_text(m.raw_content, m.parts)), 1, 1000)
      FROM messages m WHERE m.pk = prev_pk), '') END AS prev,
  idents AS kept_idents, summary, paths, form
FROM search_docs);
-- What the indexes hold of it.
CREATE VIEW search_terms AS SELECT
  pk,
  CASE form WHEN 0 THEN text ELSE sakti_folded(text) END AS text, idents,
  CASE form WHEN 0 THEN prev ELSE sakti_folded(prev) END AS prev,
  CASE form WHEN 0 THEN summary ELSE sakti_folded(summary) END AS summary
FROM search_texts;

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
    SELECT pk, text, idents, prev, summary FROM search_terms WHERE pk = new.pk;
  INSERT INTO search_trigrams (rowid, text)
    SELECT pk, text FROM search_terms WHERE pk = new.pk;
END;
-- A text that an index does not hold (it is being made anew, or was found out of step) is not taken out of it. What is
-- taken out has to be what was put in, so it is read before its row changes, and in one go for all columns.
CREATE TRIGGER search_docs_deleted BEFORE DELETE ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    SELECT 'delete', pk, text, idents, prev, summary FROM search_terms
    WHERE pk = old.pk AND EXISTS (SELECT 1 FROM search_words_docsize WHERE id = pk);
  INSERT INTO search_trigrams (search_trigrams, rowid, text)
    SELECT 'delete', pk, text FROM search_terms
    WHERE pk = old.pk AND EXISTS (SELECT 1 FROM search_trigrams_docsize WHERE id = pk);
END;
CREATE TRIGGER search_words_outdated
  BEFORE UPDATE OF text, idents, message_pk, prev, prev_pk, summary, form ON search_docs
BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    SELECT 'delete', pk, text, idents, prev, summary FROM search_terms
    WHERE pk = old.pk AND EXISTS (SELECT 1 FROM search_words_docsize WHERE id = pk);
END;
CREATE TRIGGER search_words_updated
  AFTER UPDATE OF text, idents, message_pk, prev, prev_pk, summary, form ON search_docs
BEGIN
  INSERT INTO search_words (rowid, text, idents, prev, summary)
    SELECT pk, text, idents, prev, summary FROM search_terms WHERE pk = new.pk;
END;
CREATE TRIGGER search_trigrams_outdated BEFORE UPDATE OF text, message_pk, form ON search_docs BEGIN
  INSERT INTO search_trigrams (search_trigrams, rowid, text)
    SELECT 'delete', pk, text FROM search_terms
    WHERE pk = old.pk AND EXISTS (SELECT 1 FROM search_trigrams_docsize WHERE id = pk);
END;
CREATE TRIGGER search_trigrams_updated AFTER UPDATE OF text, message_pk, form ON search_docs BEGIN
  INSERT INTO search_trigrams (rowid, text)
    SELECT pk, text FROM search_terms WHERE pk = new.pk;
END;
-- A message whose words change (they are masked, withheld, removed) is indexed again, and the next one by it.
CREATE TRIGGER messages_outdated BEFORE UPDATE OF parts, raw_content, search_text ON messages
  WHEN coalesce(new.search_text, sakti_text(new.raw_content, new.parts))
    IS NOT coalesce(old.search_text, sakti_text(old.raw_content, old.parts))
BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    SELECT 'delete', pk, text, idents, prev, summary FROM search_terms
    WHERE pk IN (SELECT pk FROM search_docs
      WHERE kind = 'message' AND (doc_id = old.id
        OR thread_id = old.thread_id AND position > old.message_index AND prev_pk = old.pk))
    AND EXISTS (SELECT 1 FROM search_words_docsize WHERE id = pk);
  INSERT INTO search_trigrams (search_trigrams, rowid, text)
    SELECT 'delete', pk, text FROM search_terms
    WHERE pk IN (SELECT pk FROM search_docs
      WHERE kind = 'message' AND doc_id = old.id)
    AND EXISTS (SELECT 1 FROM search_trigrams_docsize WHERE id = pk);
END;
CREATE TRIGGER messages_reworded AFTER UPDATE OF parts, raw_content, search_text ON messages
  WHEN coalesce(new.search_text, sakti_text(new.raw_content, new.parts))
    IS NOT coalesce(old.search_text, sakti_text(old.raw_content, old.parts))
BEGIN
  INSERT INTO search_words (rowid, text, idents, prev, summary)
    SELECT pk, text, idents, prev, summary FROM search_terms
    WHERE pk IN (SELECT pk FROM search_docs
      WHERE kind = 'message' AND (doc_id = new.id
        OR thread_id = new.thread_id AND position > new.message_index AND prev_pk = new.pk));
  INSERT INTO search_trigrams (rowid, text)
    SELECT pk, text FROM search_terms
    WHERE pk IN (SELECT pk FROM search_docs
      WHERE kind = 'message' AND doc_id = new.id);
END;

-- The next row that each step of the packing has to do; a step that is done has none.
CREATE TABLE packing (
  step TEXT PRIMARY KEY,
  next_pk INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO packing VALUES ('rows', 0), ('messages', 0), ('trigrams', 0);

-- Without positions: what shares the trigrams of a word is looked at. It takes the place of the other once it is whole,
-- and its triggers go then.
CREATE VIRTUAL TABLE search_trigrams_new USING fts5 (
  text, content = '', tokenize = 'trigram', detail = none
);
INSERT INTO search_trigrams_new (search_trigrams_new, rank)
  VALUES ('automerge', 0), ('crisismerge', 200), ('secure-delete', 1);
CREATE TRIGGER packing_inserted AFTER INSERT ON search_docs BEGIN
  INSERT INTO search_trigrams_new (rowid, text)
    SELECT pk, text FROM search_terms WHERE pk = new.pk;
END;
CREATE TRIGGER packing_deleted BEFORE DELETE ON search_docs BEGIN
  INSERT INTO search_trigrams_new (search_trigrams_new, rowid, text)
    SELECT 'delete', pk, text FROM search_terms
    WHERE pk = old.pk AND EXISTS (SELECT 1 FROM search_trigrams_new_docsize WHERE id = pk);
END;
CREATE TRIGGER packing_outdated BEFORE UPDATE OF text, message_pk, form ON search_docs BEGIN
  INSERT INTO search_trigrams_new (search_trigrams_new, rowid, text)
    SELECT 'delete', pk, text FROM search_terms
    WHERE pk = old.pk AND EXISTS (SELECT 1 FROM search_trigrams_new_docsize WHERE id = pk);
END;
CREATE TRIGGER packing_updated AFTER UPDATE OF text, message_pk, form ON search_docs BEGIN
  INSERT INTO search_trigrams_new (rowid, text)
    SELECT pk, text FROM search_terms WHERE pk = new.pk;
END;
CREATE TRIGGER packing_messages_outdated BEFORE UPDATE OF parts, raw_content, search_text ON messages
  WHEN coalesce(new.search_text, sakti_text(new.raw_content, new.parts))
    IS NOT coalesce(old.search_text, sakti_text(old.raw_content, old.parts))
BEGIN
  INSERT INTO search_trigrams_new (search_trigrams_new, rowid, text)
    SELECT 'delete', pk, text FROM search_terms
    WHERE pk IN (SELECT pk FROM search_docs
      WHERE kind = 'message' AND doc_id = old.id)
    AND EXISTS (SELECT 1 FROM search_trigrams_new_docsize WHERE id = pk);
END;
CREATE TRIGGER packing_messages_reworded AFTER UPDATE OF parts, raw_content, search_text ON messages
  WHEN coalesce(new.search_text, sakti_text(new.raw_content, new.parts))
    IS NOT coalesce(old.search_text, sakti_text(old.raw_content, old.parts))
BEGIN
  INSERT INTO search_trigrams_new (rowid, text)
    SELECT pk, text FROM search_terms
    WHERE pk IN (SELECT pk FROM search_docs
      WHERE kind = 'message' AND doc_id = new.id);
END;
