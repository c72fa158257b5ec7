"""Text of the log: `parse` cleans a model's answer, `lines` reads its rows, `dates` shows distances. Pure."""
