"""The background work of memory: each job takes the state of a thread and moves it through the store."""
