"""Commands that check sakti itself: vectors of pure functions, replayed conversations."""
