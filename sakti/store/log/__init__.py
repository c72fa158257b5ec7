"""Read, correct and check the observation log."""
