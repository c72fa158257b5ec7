"""Read, correct and check the observation log.

`lines` reads the data of panes and tools, `corrections` changes lines, `erasure` removes one for good, `events` lists
the events of a memory, `replacements` marks words replaced by newer lines.
"""
