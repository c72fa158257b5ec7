-- What is removed leaves no trace; an index can be made anew beside its own use.

PRAGMA application_id = 1935764340; -- "sakt": tells this file from other programs' databases

INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1);
INSERT INTO search_trigrams (search_trigrams, rank) VALUES ('secure-delete', 1);

-- A text that the index does not hold (it is being made anew, or was found out of step) is not taken out of it.
DROP TRIGGER search_docs_deleted;
DROP TRIGGER search_docs_updated;
DROP TRIGGER search_docs_summarised;
CREATE TRIGGER search_docs_deleted AFTER DELETE ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    SELECT 'delete', old.pk, old.text, old.idents, old.prev, old.summary
    WHERE EXISTS (SELECT 1 FROM search_words_docsize WHERE id = old.pk);
  INSERT INTO search_trigrams (search_trigrams, rowid, text)
    SELECT 'delete', old.pk, old.text WHERE EXISTS (SELECT 1 FROM search_trigrams_docsize WHERE id = old.pk);
END;
CREATE TRIGGER search_docs_updated AFTER UPDATE OF text, idents, prev ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    SELECT 'delete', old.pk, old.text, old.idents, old.prev, old.summary
    WHERE EXISTS (SELECT 1 FROM search_words_docsize WHERE id = old.pk);
  INSERT INTO search_trigrams (search_trigrams, rowid, text)
    SELECT 'delete', old.pk, old.text WHERE EXISTS (SELECT 1 FROM search_trigrams_docsize WHERE id = old.pk);
  INSERT INTO search_words (rowid, text, idents, prev, summary)
    VALUES (new.pk, new.text, new.idents, new.prev, new.summary);
  INSERT INTO search_trigrams (rowid, text) VALUES (new.pk, new.text);
END;
CREATE TRIGGER search_docs_summarised AFTER UPDATE OF summary ON search_docs BEGIN
  INSERT INTO search_words (search_words, rowid, text, idents, prev, summary)
    SELECT 'delete', old.pk, old.text, old.idents, old.prev, old.summary
    WHERE EXISTS (SELECT 1 FROM search_words_docsize WHERE id = old.pk);
  INSERT INTO search_words (rowid, text, idents, prev, summary)
    VALUES (new.pk, new.text, new.idents, new.prev, new.summary);
END;
