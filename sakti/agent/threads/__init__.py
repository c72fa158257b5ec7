"""What people do with threads as a whole."""
