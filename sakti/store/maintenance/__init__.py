"""Check, repair, back up, shrink and clean a database.

`checks` finds faults of a file in any state; `recovery` copies readable rows, `rebuild` repairs the result. `purging`
removes data for good, with every copy; `redacting` removes secrets. `upkeep` runs long work in short transactions,
counts and vacuums; `archiving` moves old parts to a second file.
"""
