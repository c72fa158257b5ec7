"""Judge tool calls by their reads, writes and commands: one function, `decide.judge`."""
