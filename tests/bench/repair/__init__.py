"""Run `python -m tests.bench repair`: small real repairs, each in its own copy, judged by hidden tests."""
