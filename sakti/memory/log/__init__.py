"""Text of the log: `parse` cleans answers, `lines` reads rows, `dates` shows distances. Pure."""
