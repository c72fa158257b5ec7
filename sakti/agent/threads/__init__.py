"""Do what people do with threads as a whole."""
