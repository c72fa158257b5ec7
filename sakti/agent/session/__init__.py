"""One user in one workspace, talking in one thread at a time."""
