"""Read, correct and check the observation log.

`lines` reads what panes and tools show, `corrections` changes lines, `erasure` removes one for good, `events` lists the
events of a memory, `replacements` marks what newer lines replace.
"""
