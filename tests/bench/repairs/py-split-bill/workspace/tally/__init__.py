"""Who owes what after a trip."""
