"""Check, repair, back up, shrink and clean a database."""
