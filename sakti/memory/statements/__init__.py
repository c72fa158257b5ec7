"""Parse what a sentence states, and find what a newer one replaces. Pure."""
