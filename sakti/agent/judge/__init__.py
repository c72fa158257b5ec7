"""Decide what a call of a tool may do: one function, `decide.judge`, on what the call reads, writes and runs."""
