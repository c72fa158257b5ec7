"""Store threads and their messages."""
