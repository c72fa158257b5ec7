"""Reports that people read: health, memory, settings, the workspace."""
