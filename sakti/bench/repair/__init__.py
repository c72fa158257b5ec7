"""`sakti bench repair`: small real repairs, each in a copy of its own, judged by tests that the model never saw."""
