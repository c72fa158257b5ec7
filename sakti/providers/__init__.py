"""Where models answer: one protocol, its implementations, and how one of them is chosen."""
