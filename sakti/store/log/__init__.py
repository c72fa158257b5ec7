"""The log as people read it, correct it and check it."""
