"""Hold one user's session in one workspace, talking in one thread at a time."""
