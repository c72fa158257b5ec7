"""Run the background work of memory: each job changes the state of a thread through the store."""
