"""Text of the log: `parse` cleans answers, `lines` parses rows, `dates` adds distances. Pure."""
