"""Run the embedded model: its weights, its process, and its provider."""
