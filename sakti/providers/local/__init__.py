"""Run the embedded model: its weights, its process, and the provider that speaks to it."""
