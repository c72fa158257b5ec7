"""The embedded model: its weights, the process it runs in, and the provider that speaks to it."""
