"""Background jobs of one thread: `observation` and `reflection`, with their lease and events (`operation`)."""
