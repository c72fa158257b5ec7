"""Store everything in SQLite; the only package that speaks SQL."""
