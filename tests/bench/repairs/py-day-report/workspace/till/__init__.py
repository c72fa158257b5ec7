"""What was sold on each day."""
