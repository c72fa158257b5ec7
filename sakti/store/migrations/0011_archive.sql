-- Messages whose parts stand in the archive (store/archive_file.py), by what they refer to.
CREATE INDEX messages_archived ON messages (parts) WHERE substr(parts, 1, 4) = X'00617263';
