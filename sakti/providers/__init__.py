"""Call model providers: one protocol, its implementations, and how one of them is chosen."""
