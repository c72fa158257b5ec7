"""Actions of people on entire threads."""
