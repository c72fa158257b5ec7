"""Read and write the log's text. Pure."""
