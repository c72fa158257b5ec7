"""Read what a sentence states, and what a newer one replaces. Pure."""
