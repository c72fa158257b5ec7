"""Check sakti itself: vectors of pure functions, replayed conversations, benchmarks."""
