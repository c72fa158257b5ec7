"""Check, repair, back up, shrink and clean a database.

Looking: `inspection` of a file in any state, `maintenance` (checks, counts, backups by `copying`, vacuum).
Repairing: `recovery` copies what can be read, `recovery_repairs` rebuilds the rest, `lost_schema` finds the tables.
Removing: `purging` for good with every copy, `redacting` of secrets.
`upkeep` runs long work in short transactions; `archiving` and `archive_care` keep old parts in a second file.
"""
