"""Background jobs: `observation` and `reflection`, with their lease and events (`operation`)."""
