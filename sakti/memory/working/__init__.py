"""Working memory: one page of stable facts, in versions."""
